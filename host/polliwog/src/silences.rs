//! Silences between the API and the notifier.

use engine::random_bytes;
use model::{AlertRecord, AlertState, NewSilence, SilencePeriod, SilenceState, Timestamp, hex};
use notify::{Attributes, Matcher, Matchers, Silence, SilenceTime};
use std::sync::Arc;

/// Describes a silence for readers.
pub(crate) fn state(silence: &Silence, is_in_file: bool, now: Timestamp) -> SilenceState {
    let conditions = silence.matchers.0.iter();
    let period = match &silence.time {
        SilenceTime::Once(start, end) => SilencePeriod::Once(*start, *end),
        SilenceTime::Recurring(window) => SilencePeriod::Recurring(window.text().to_owned(), window.zone().to_owned()),
    };
    SilenceState {
        id: silence.id.clone(),
        conditions: conditions.map(|matcher| (matcher.attribute().to_owned(), matcher.text())).collect(),
        period,
        is_active: silence.is_active(now),
        author: silence.author.clone(),
        comment: silence.comment.clone(),
        is_in_file,
    }
}

/// Reads the definition of a silence. Fails if a condition is not valid.
pub(crate) fn silence(id: String, new: NewSilence) -> Result<Silence, String> {
    let NewSilence { conditions, start, end, author, comment } = new;
    Ok(Silence { id, matchers: matchers(&conditions)?, time: SilenceTime::Once(start, end), author, comment })
}

/// A new id.
pub(crate) fn new_id() -> String {
    hex(&random_bytes::<4>())
}

/// The open alerts that match all conditions. Fails if a condition is not valid.
pub(crate) fn matching(
    alerts: Vec<Arc<AlertRecord>>,
    conditions: &[(String, String)],
) -> Result<Vec<Arc<AlertRecord>>, String> {
    let matchers = matchers(conditions)?;
    let matches = |record: &Arc<AlertRecord>| {
        let AlertRecord { subject, status, traits, .. } = &**record;
        let attributes = Attributes { subject, status: *status, traits };
        record.state != AlertState::Resolved && matchers.match_all(&attributes)
    };
    Ok(alerts.into_iter().filter(matches).collect())
}

fn matchers(conditions: &[(String, String)]) -> Result<Matchers, String> {
    let read = |(attribute, text): &(String, String)| Matcher::new(attribute, text).map_err(|error| error.to_string());
    conditions.iter().map(read).collect::<Result<Vec<_>, _>>().map(Matchers)
}
