//! The origins of a target, in the order in which they are tried.

use crate::expiring::{ExpiringMap, now};
use polliwog_sdk::Endpoint;
use serde::{Deserialize, Serialize};

/// The root of the API.
pub(crate) const ROOT: &str = "/api2/json";

/// An origin that did not answer.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct SilentOrigin {
    /// When it was tried, in milliseconds since 1970.
    pub since: u64,
    /// Why there was no answer.
    pub why: String,
}

/// Returns each origin once, with its index in the target. Origins that did not answer a moment ago come last. Among
/// them, the one that was tried longest ago comes first, so that each is tried in turn.
pub(crate) fn in_order(target: &Endpoint, silent: &ExpiringMap<SilentOrigin>) -> Vec<(usize, String)> {
    let mut bases: Vec<(usize, String)> = Vec::new();
    for (origin, url) in std::iter::once(&target.url).chain(&target.also).enumerate() {
        let base = base(url);
        if bases.iter().all(|(_, known)| *known != base) {
            bases.push((origin, base));
        }
    }
    bases.sort_by_cached_key(|(_, base)| silent.get(base, now()).map_or(0, |silent| silent.since));
    bases
}

/// Returns a URL without its query, a slash at the end, and the path of the API, which people copy with it.
pub(crate) fn base(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    url.strip_suffix(ROOT).or_else(|| url.strip_suffix("/api2")).unwrap_or(url).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_paths_and_queries_are_not_part_of_the_address() {
        for (url, expected) in [
            ("https://a:8006/", "https://a:8006"),
            ("https://a:8006/api2/json", "https://a:8006"),
            ("https://a:8006/api2/json/?x=1#v1:0", "https://a:8006"),
            ("https://a/pve/", "https://a/pve"),
        ] {
            assert_eq!(base(url), expected);
        }
    }
}
