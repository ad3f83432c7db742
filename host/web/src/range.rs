//! The ranges of time that pages and API can show.

use crate::error::ApiError;
use axum::http::StatusCode;
use model::{DependencyState, LatencySummary, Sketch};
use std::collections::BTreeMap;
use std::time::Duration;

/// The times that pages and API can show, each with its word: they end now.
pub(crate) const RANGES: [(&str, Duration); 7] = [
    ("1h", Duration::from_secs(3_600)),
    ("6h", Duration::from_secs(6 * 3_600)),
    ("24h", Duration::from_secs(24 * 3_600)),
    ("7d", Duration::from_secs(7 * 86_400)),
    ("30d", Duration::from_secs(30 * 86_400)),
    ("90d", Duration::from_secs(90 * 86_400)),
    ("400d", Duration::from_secs(400 * 86_400)),
];

/// Returns the length of a range; the default is a day.
pub(crate) fn length(range: Option<&str>) -> Result<(&'static str, Duration), ApiError> {
    let wanted = range.unwrap_or("24h");
    RANGES.into_iter().find(|(word, _)| *word == wanted).ok_or_else(|| {
        let known = RANGES.map(|(word, _)| word).join(", ");
        let message = format!("the range must be one of {known}");
        ApiError { field: Some("range"), ..ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message) }
    })
}

/// Returns true if the latencies of a range of this length are those of hours. Five minutes are stored for 14 days.
pub(crate) fn is_coarse(length: Duration) -> bool {
    length > Duration::from_secs(7 * 86_400)
}

/// Returns the latencies of a dependency: the stored ones, and the current five minutes.
pub(crate) fn with_current(
    stored: &BTreeMap<u32, Vec<LatencySummary>>,
    dependency: &DependencyState,
) -> Vec<LatencySummary> {
    let stored = stored.get(&dependency.record.slot).map(Vec::as_slice).unwrap_or_default();
    let current = dependency.volatile.window.map(|point| LatencySummary::of(&point, &Sketch::default()));
    stored.iter().copied().chain(current).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_of_the_known_words() {
        assert_eq!(length(None).ok(), Some(("24h", Duration::from_secs(86_400))));
        assert_eq!(length(Some("7d")).ok().map(|(_, length)| length.as_secs()), Some(604_800));
        let error = length(Some("2 weeks")).err().unwrap();
        assert_eq!((error.status, error.field), (StatusCode::BAD_REQUEST, Some("range")));
        assert_eq!(error.message, "the range must be one of 1h, 6h, 24h, 7d, 30d, 90d, 400d");
    }
}
