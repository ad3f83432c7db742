//! Certificates of a node, and when they expire. All three products list them in the same way.

use crate::{Answer, Look, Remaining, Trouble, judged, moment};
use polliwog_sdk::lenient::{Field, Number, Text};
use polliwog_sdk::{Dependency, Status};
use schemars::JsonSchema;
use serde::Deserialize;

const DAY: f64 = 24.0 * 3600.0;

/// When a certificate is to be renewed.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CertificateLimits {
    /// Fewer days than this left are a warning; 0 for never. Days.
    pub warning_days: f64,
    /// Fewer days than this left are critical; 0 for never. Days.
    pub critical_days: f64,
}

impl Default for CertificateLimits {
    fn default() -> Self {
        // Proxmox renews its own two weeks before they end, and those of ACME a month before.
        Self { warning_days: 10.0, critical_days: 3.0 }
    }
}

impl CertificateLimits {
    fn remaining(self) -> Remaining {
        Remaining { warning: self.warning_days, critical: self.critical_days }
    }

    /// What is wrong with them, as the setting `certificates`.
    pub fn problem(self) -> Option<String> {
        self.remaining().problem("certificates.warning_days", "certificates.critical_days")
    }
}

/// One entry of `/nodes/N/certificates/info`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    filename: Field<Text>,
    notafter: Field<Number>,
}

/// A node's certificates, by the one that ends first. `renew` says how that of a file is renewed there.
pub fn certificates<S>(
    look: &mut Look<S>,
    (name, kind, renew): (String, &str, fn(&str) -> &'static str),
    limits: CertificateLimits,
    answer: Answer,
) -> Result<Dependency, Trouble> {
    let entries: Vec<Entry> = answer.list(&mut look.notes)?;
    let mut first: Option<(f64, String)> = None;
    for entry in &entries {
        let file = entry.filename.get().map_or_else(|| "a certificate".to_owned(), |Text(file)| file.clone());
        let Some(end) = look.notes.number(&entry.notafter, || format!("notafter of {file}")) else { continue };
        if first.as_ref().is_none_or(|(known, _)| end < *known) {
            first = Some((end, file));
        }
    }
    let Some(first) = first else {
        let why = "the node does not say when its certificates end".to_owned();
        return Ok(judged(name, kind, (Status::Unknown, Some(why))));
    };
    Ok(certificate(look, (name, kind, renew), limits, first))
}

/// A certificate by when it ends, in seconds since 1970, and the name of its file.
pub fn certificate<S>(
    look: &Look<S>,
    (name, kind, renew): (String, &str, fn(&str) -> &'static str),
    limits: CertificateLimits,
    (end, file): (f64, String),
) -> Dependency {
    let when = moment(end).unwrap_or_default();
    let (status, _) = limits.remaining().judge((end - look.seconds()) / DAY);
    let over = end <= look.seconds();
    let ends = if over { "has expired, at" } else { "expires at" };
    let why = (status != Status::Ok).then(|| format!("{file} {ends} {when}: {}", renew(&file)));
    judged(name, kind, (status, why))
        .with_description(format!("{file} {} good until {when}", if over { "was" } else { "is" }))
}
