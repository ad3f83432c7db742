//! Kind `mapping`: any JSON, by a mapping that the target's settings hold (Depsera's SchemaMapping, and a little more).
//!
//! `{"root": "dot.path", "fields": {"name": ..., "healthy": ..., ...}}`: each element of the array, or each member of the
//! object, at `root` becomes a dependency; a text, number or boolean there is one by itself. What upstream's mappings mean
//! is kept, with these additions: an absent or empty root is the body itself; `$value` stands for an element that is no
//! object; `equals` may be a number or boolean; a field `severity` tells ok, warning and critical apart, and with it
//! `healthy` may be left out, and of both the worse counts; both know the same words. And with these differences: an element
//! whose word nobody knows is reported as unknown, and not left out; no code is invented. The body is read whatever the
//! status of the answer is.

#![deny(unsafe_code)]

mod evaluate;
mod settings;

use polliwog_sdk::prelude::*;
use settings::Mapping;

/// The plugin.
pub struct MappingPoller;

impl Poller for MappingPoller {
    type Settings = Mapping;
    const INFO: Info = Info {
        kind: "mapping",
        title: "JSON mapping",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Dependencies from any JSON, by a mapping of its fields",
        ..Info::SERVICE
    };

    fn check(mapping: &Mapping) -> Vec<String> {
        mapping.problems()
    }

    fn poll(_: &Target, mapping: Mapping) -> Result<Report, PollError> {
        if let Some(problem) = mapping.problems().into_iter().next() {
            return Err(PollError::permanent("bad_settings", problem));
        }
        let response = http::Request::get_json("", &mapping.headers).send()?;
        response.report(|response| evaluate::report(&mapping, &response.json()?))
    }
}

polliwog_sdk::register!(MappingPoller);

#[cfg(test)]
mod tests;
