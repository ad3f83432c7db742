//! How a target is, in one word: what headlines, lists, metrics and the API count.

use crate::host::TargetView;
use model::Status;

/// How a target is. In the order in which people want to see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TargetStatus {
    /// It cannot be polled: two failures in a row, or one before any success.
    Unreachable,
    /// The worst of its dependencies is critical.
    Critical,
    /// No plugin serves its kind, or that plugin is in quarantine.
    NoPlugin,
    /// The worst is a warning, or a dependency is missing.
    Warning,
    /// The worst is unknown, or it reports nothing.
    Unknown,
    /// It was not polled yet.
    Pending,
    /// All is well.
    Ok,
    /// An operator disabled it.
    Disabled,
}

impl TargetStatus {
    pub(crate) const ALL: [Self; 8] = [
        Self::Unreachable,
        Self::Critical,
        Self::NoPlugin,
        Self::Warning,
        Self::Unknown,
        Self::Pending,
        Self::Ok,
        Self::Disabled,
    ];

    /// The word used on every surface.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Critical => "critical",
            Self::NoPlugin => "no_plugin",
            Self::Warning => "warning",
            Self::Unknown => "unknown",
            Self::Pending => "pending",
            Self::Ok => "ok",
            Self::Disabled => "disabled",
        }
    }

    /// A sign beside the word, so that nothing depends on a colour.
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::Unreachable => "⚡",
            Self::Critical => "✗",
            Self::NoPlugin => "⊘",
            Self::Warning => "!",
            Self::Unknown => "?",
            Self::Pending => "…",
            Self::Ok => "✓",
            Self::Disabled => "‖",
        }
    }

    /// The status that `word` names.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether somebody has to do something now.
    pub(crate) const fn is_bad(self) -> bool {
        matches!(self, Self::Unreachable | Self::Critical | Self::NoPlugin)
    }

    /// Whether a headline counts it even where there is none.
    pub(crate) const fn is_always_told(self) -> bool {
        matches!(self, Self::Unreachable | Self::Critical | Self::Warning | Self::Ok)
    }

    /// The value of the metric `target_status`: 0 ok, 1 warning, 2 critical, 3 unknown, 4 cannot be polled. None while
    /// nothing can be said.
    pub(crate) const fn number(self) -> Option<f64> {
        match self {
            Self::Ok => Some(0.0),
            Self::Warning => Some(1.0),
            Self::Critical => Some(2.0),
            Self::Unknown => Some(3.0),
            Self::Unreachable | Self::NoPlugin => Some(4.0),
            Self::Pending | Self::Disabled => None,
        }
    }
}

impl TargetView {
    /// How it is.
    pub(crate) fn status(&self) -> TargetStatus {
        let (missing, reported): (Vec<_>, Vec<_>) =
            self.dependencies.iter().partition(|dependency| dependency.missing_since.is_some());
        let worst = reported.iter().map(|dependency| match dependency.status {
            Status::Ok => TargetStatus::Ok,
            Status::Warning => TargetStatus::Warning,
            Status::Critical => TargetStatus::Critical,
            Status::Unknown => TargetStatus::Unknown,
        });
        let missing = missing.first().map(|_| TargetStatus::Warning);
        if !self.enabled {
            TargetStatus::Disabled
        } else if self.has_no_plugin() {
            TargetStatus::NoPlugin
        } else if self.unreachable {
            TargetStatus::Unreachable
        } else if self.last_success.is_none() {
            TargetStatus::Pending
        } else {
            worst.chain(missing).min().unwrap_or(TargetStatus::Unknown)
        }
    }

    /// Whether what is known of its dependencies says nothing of now.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale_since.is_some() || self.has_no_plugin()
    }

    fn has_no_plugin(&self) -> bool {
        matches!(self.place, "no_plugin" | "quarantined")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::{dependency, target};
    use model::Timestamp;

    #[test]
    fn a_target_is_what_people_would_say_it_is() {
        let seen = Some(Timestamp::from_millis(5));
        let with = |statuses: &[Status]| {
            let named = statuses.iter().enumerate().map(|(n, status)| dependency(&format!("d{n}"), *status));
            TargetView { last_success: seen, dependencies: named.collect(), ..target("a") }
        };
        let ok = with(&[Status::Ok]);
        let mut missing = with(&[Status::Ok, Status::Critical]);
        missing.dependencies[1].missing_since = seen;
        let cases = [
            (target("a"), "pending"),
            (with(&[]), "unknown"),
            (ok.clone(), "ok"),
            (with(&[Status::Ok, Status::Unknown]), "unknown"),
            (with(&[Status::Warning, Status::Unknown]), "warning"),
            (with(&[Status::Warning, Status::Critical]), "critical"),
            (missing, "warning"),
            (TargetView { failures: 1, stale_since: seen, ..ok.clone() }, "ok"),
            (TargetView { unreachable: true, stale_since: seen, ..ok.clone() }, "unreachable"),
            (TargetView { unreachable: true, ..target("a") }, "unreachable"),
            (TargetView { place: "no_plugin", unreachable: true, ..ok.clone() }, "no_plugin"),
            (TargetView { place: "quarantined", ..ok.clone() }, "no_plugin"),
            (TargetView { enabled: false, unreachable: true, ..ok }, "disabled"),
        ];
        for (view, expected) in cases {
            assert_eq!(view.status().as_str(), expected, "{view:?}");
            assert_eq!(TargetStatus::from_word(expected), Some(view.status()));
        }
    }
}
