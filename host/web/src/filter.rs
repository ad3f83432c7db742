//! The words that choose targets, the same in pages and API. Pure.

use crate::error::ApiError;
use crate::status::TargetStatus;
use axum::http::StatusCode;
use model::TargetState;

/// Chooses targets. An empty word chooses all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// In lower case: part of the id, name, kind or URL, of a label, or of the name of a dependency.
    text: String,
    statuses: Vec<TargetStatus>,
    kind: String,
    /// The name and the value of a label; without a value, any value.
    label: Option<(String, Option<String>)>,
}

/// The words of a filter, as they are in a query.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Words<'a> {
    pub text: Option<&'a str>,
    /// Statuses of targets, separated by commas.
    pub status: Option<&'a str>,
    pub kind: Option<&'a str>,
    /// `NAME` or `NAME=VALUE`.
    pub label: Option<&'a str>,
}

impl Filter {
    /// Parses the words. Fails if a status is unknown.
    pub(crate) fn new(words: Words<'_>) -> Result<Self, ApiError> {
        let given = |word: Option<&str>| word.unwrap_or_default().trim().to_owned();
        let statuses = given(words.status);
        let statuses = statuses.split(',').map(str::trim).filter(|word| !word.is_empty());
        let label = given(words.label);
        let label = match label.split_once('=') {
            None if label.is_empty() => None,
            None => Some((label, None)),
            Some((name, value)) => Some((name.to_owned(), Some(value.to_owned()))),
        };
        Ok(Self {
            text: given(words.text).to_lowercase(),
            statuses: statuses.map(status).collect::<Result<_, _>>()?,
            kind: given(words.kind),
            label,
        })
    }

    /// Whether a target with this status is chosen, apart from its status.
    pub(crate) fn matches_besides_status(&self, target: &TargetState) -> bool {
        let info = &target.info;
        let has = |(name, value): &(String, Option<String>)| {
            let of_name = info.labels.iter().find(|(other, _)| other == name);
            of_name.is_some_and(|(_, other)| value.as_ref().is_none_or(|value| value == other))
        };
        (self.kind.is_empty() || info.kind.as_str() == self.kind)
            && self.label.as_ref().is_none_or(has)
            && (self.text.is_empty() || self.is_in(target))
    }

    /// Whether a status is chosen.
    pub(crate) fn has_status(&self, status: TargetStatus) -> bool {
        self.statuses.is_empty() || self.statuses.contains(&status)
    }

    fn is_in(&self, target: &TargetState) -> bool {
        let info = &target.info;
        let is_in = |text: &str| text.to_lowercase().contains(&self.text);
        is_in(info.id.as_str())
            || is_in(&info.name)
            || is_in(info.kind.as_str())
            || is_in(&info.url)
            || info.labels.iter().any(|(name, value)| is_in(&format!("{name}={value}")))
            || target.observed.dependencies.iter().any(|dependency| {
                let record = &dependency.record;
                let canonical = record.canonical.as_deref();
                is_in(&record.reported.name)
                    || [record.reported.title.as_deref(), canonical].into_iter().flatten().any(is_in)
            })
    }
}

fn status(word: &str) -> Result<TargetStatus, ApiError> {
    TargetStatus::from_word(word).ok_or_else(|| {
        let known = TargetStatus::ALL.map(TargetStatus::as_str).join(", ");
        let message = format!("the status of a target must be one of {known}");
        ApiError { field: Some("status"), ..ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::{dependency, target, with};
    use model::{Status, TargetInfo};
    use std::sync::Arc;

    #[test]
    fn words_choose_targets() {
        let found = with(target("shop"), |observed| {
            observed.dependencies = Arc::new(vec![dependency("PostgreSQL", Status::Ok)]);
        });
        let labels = vec![("site".to_owned(), "zurich".to_owned())];
        let info = TargetInfo { labels, url: "https://shop.example".to_owned(), ..(*found.info).clone() };
        let found = TargetState { info: Arc::new(info), ..found };
        let kind = found.info.kind.as_str().to_owned();
        let cases = [
            (Words::default(), true),
            (Words { text: Some("  "), kind: Some(""), label: Some(""), status: Some(",") }, true),
            (Words { text: Some("SHO"), ..Words::default() }, true),
            (Words { text: Some("postgres"), ..Words::default() }, true),
            (Words { text: Some("site=zur"), ..Words::default() }, true),
            (Words { text: Some("other"), ..Words::default() }, false),
            (Words { kind: Some(&kind), ..Words::default() }, true),
            (Words { kind: Some("pve"), ..Words::default() }, false),
            (Words { label: Some("site"), ..Words::default() }, true),
            (Words { label: Some("site=zurich"), ..Words::default() }, true),
            (Words { label: Some("site=bern"), ..Words::default() }, false),
            (Words { label: Some("zurich"), ..Words::default() }, false),
        ];
        for (words, expected) in cases {
            assert_eq!(Filter::new(words).ok().unwrap().matches_besides_status(&found), expected, "{words:?}");
        }
        let filter = Filter::new(Words { status: Some("critical, ok"), ..Words::default() }).ok().unwrap();
        assert!(filter.has_status(TargetStatus::Critical) && !filter.has_status(TargetStatus::Unknown));
        let error = Filter::new(Words { status: Some("critical,bad"), ..Words::default() }).err().unwrap();
        assert_eq!((error.status, error.field), (StatusCode::BAD_REQUEST, Some("status")));
    }
}
