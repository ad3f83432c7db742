//! Reads what decides alerts: `[alerts]`, recurring `[[silence]]`s, and the keys of a target.

use crate::reader::{Notes, Section, count, suggestion, text, words};
use crate::value::{Entry, Node, Value};
use egress::Origin;
use model::{TargetId, Timestamp};
use notify::{InvalidMatcher, Matcher, Matchers, Silence, SilenceTime, Window};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The maximum number of reports that confirm or end an alert.
const MOST_REPORTS: u64 = 100;
/// The maximum number of silences in the file.
const SILENCES: usize = 1_000;
const NO_CONDITIONS: &str = "a silence without conditions would silence everything: name the alerts that it matches";
/// How long something is unknown or missing before that alerts, unless the file says otherwise.
const VAGUE_AFTER: Duration = Duration::from_secs(15 * 60);
/// The range of that.
const LASTING: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(30 * 24 * 3600);
/// The longest wait of a message for what may explain it.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// The maximum number of targets that one target needs.
const NEEDS: usize = 100;

/// The rules of alerts that targets do not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertsConfig {
    /// The number of reports in a row that confirm an alert.
    pub confirm: u32,
    /// The number of reports in a row that end an alert.
    pub recover: u32,
    /// Whether dependencies with a warning alert, too.
    pub warnings: bool,
    /// How long a dependency is unknown, or a report empty, before that alerts; `None` if it never does.
    pub unknown_after: Option<Duration>,
    /// How long a dependency is missing before that alerts; `None` if it never does.
    pub missing_after: Option<Duration>,
    /// How long an alert waits for the alert of a target that its own target needs.
    pub parent_wait: Duration,
    /// How long after the start of the host a failure needs one more report, and all alerts of a route are one message.
    pub startup_grace: Duration,
    /// The channel that is notified if another one does not deliver.
    pub fallback: Option<String>,
    /// The address of this host for links, without a slash at its end.
    pub address: Option<String>,
}

impl Default for AlertsConfig {
    fn default() -> Self {
        Self {
            confirm: 2,
            recover: 2,
            warnings: false,
            unknown_after: Some(VAGUE_AFTER),
            missing_after: Some(VAGUE_AFTER),
            parent_wait: Duration::from_secs(30),
            startup_grace: Duration::from_secs(120),
            fallback: None,
            address: None,
        }
    }
}

/// The rules of a target's alerts; `None` for those of `[alerts]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetAlerts {
    /// The number of reports in a row that confirm an alert.
    pub confirm: Option<u32>,
    /// The number of reports in a row that end an alert.
    pub recover: Option<u32>,
    /// Whether dependencies with a warning alert, too.
    pub warnings: Option<bool>,
    /// How long a dependency is unknown, or a report empty, before that alerts; `Some(None)` if it never does.
    pub unknown_after: Option<Option<Duration>>,
    /// How long a dependency is missing before that alerts; `Some(None)` if it never does.
    pub missing_after: Option<Option<Duration>>,
    /// The targets, or single dependencies of them, that the target needs.
    pub depends_on: Vec<(TargetId, Option<String>)>,
}

pub(crate) fn alerts(notes: &Notes<'_>, document: &[Entry], channels: &[&str]) -> AlertsConfig {
    let section = Section::top(notes, document, "alerts");
    let TargetAlerts { confirm, recover, warnings, unknown_after, missing_after, .. } = rules(&section);
    let fallback = section.get("fallback", |value| {
        let name = text(value)?;
        match channels.contains(&name.as_str()) {
            true => Ok(name),
            false => Err(format!("there is no [[channel]] {name:?}{}", suggestion(&name, channels))),
        }
    });
    let address = section.get("address", |value| {
        let (url, _) = Origin::parse(&text(value)?).map_err(|error| error.to_string())?;
        Ok(url.as_str().trim_end_matches('/').to_owned())
    });
    let (parent_wait, startup_grace) =
        (section.duration_up_to("parent_wait", LONGEST_WAIT), section.duration_up_to("startup_grace", LONGEST_WAIT));
    section.finish();
    let defaults = AlertsConfig::default();
    AlertsConfig {
        confirm: confirm.unwrap_or(defaults.confirm),
        recover: recover.unwrap_or(defaults.recover),
        warnings: warnings.unwrap_or(defaults.warnings),
        unknown_after: unknown_after.unwrap_or(defaults.unknown_after),
        missing_after: missing_after.unwrap_or(defaults.missing_after),
        parent_wait: parent_wait.unwrap_or(defaults.parent_wait),
        startup_grace: startup_grace.unwrap_or(defaults.startup_grace),
        fallback,
        address,
    }
}

/// Reads the keys of a target.
pub(crate) fn target_alerts(section: &Section<'_>) -> TargetAlerts {
    TargetAlerts { depends_on: section.get("depends_on", needs).unwrap_or_default(), ..rules(section) }
}

/// Reads a number of reports in a row.
pub(crate) fn report_count(section: &Section<'_>, key: &'static str) -> Option<u32> {
    section.get(key, |value| match count(value)? {
        number @ 1..=MOST_REPORTS => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
        number => Err(format!("{number} is not a number of reports: use 1 to {MOST_REPORTS}")),
    })
}

fn rules(section: &Section<'_>) -> TargetAlerts {
    let (confirm, recover) = (report_count(section, "confirm"), report_count(section, "recover"));
    let (unknown_after, missing_after) =
        (section.duration_or_never("unknown_after", LASTING), section.duration_or_never("missing_after", LASTING));
    let warnings = section.boolean("warnings");
    TargetAlerts { confirm, recover, warnings, unknown_after, missing_after, depends_on: Vec::new() }
}

fn needs(value: &Value) -> Result<Vec<(TargetId, Option<String>)>, String> {
    let words = words(value)?;
    if words.len() > NEEDS {
        return Err(format!("there are more than {NEEDS}"));
    }
    let need = |word: &String| {
        let (target, dependency) = word.split_once('/').map_or((word.as_str(), None), |(id, part)| (id, Some(part)));
        let id = TargetId::new(target).map_err(|error| format!("{word:?}: {error}"))?;
        if dependency == Some("") {
            return Err(format!("{word:?} names no dependency after the slash: write \"target/dependency\""));
        }
        Ok((id, dependency.map(ToOwned::to_owned)))
    };
    words.iter().map(need).collect()
}

/// Reads conditions on the attributes of alerts.
pub(crate) fn matchers(notes: &Notes<'_>, entries: &[Entry]) -> Option<Matchers> {
    let read = |entry: &Entry| {
        let found = text(&entry.node.value)
            .and_then(|text| Matcher::new(&entry.key, &text).map_err(|error: InvalidMatcher| error.to_string()));
        found.map_err(|why| notes.at(entry.line, format!("match: {why}"))).ok()
    };
    let all: Vec<Option<Matcher>> = entries.iter().map(read).collect();
    all.into_iter().collect::<Option<Vec<_>>>().map(Matchers)
}

/// A silence that was made while the host ran, as its setting holds it.
#[derive(Serialize, Deserialize)]
struct SilenceText {
    /// The conditions, by attribute.
    r#match: BTreeMap<String, String>,
    /// Milliseconds since the epoch.
    start: i64,
    end: i64,
    author: String,
    comment: String,
}

/// Reads the definition of a silence with an end. Fails if a condition is not valid.
pub fn stored_silence(id: &str, text: &str) -> Result<Silence, String> {
    let read: SilenceText = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let matchers = read.r#match.iter().map(|(attribute, text)| Matcher::new(attribute, text));
    let matchers = matchers.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    if matchers.is_empty() {
        return Err(NO_CONDITIONS.to_owned());
    }
    let (start, end) = (Timestamp::from_millis(read.start), Timestamp::from_millis(read.end));
    if end <= start {
        return Err("a silence ends after its start".to_owned());
    }
    let (matchers, time) = (Matchers(matchers), SilenceTime::Once(start, end));
    Ok(Silence { id: id.to_owned(), matchers, time, author: read.author, comment: read.comment })
}

/// Returns the text that [`stored_silence`] reads; `None` for a recurring silence.
pub fn silence_text(silence: &Silence) -> Option<String> {
    let SilenceTime::Once(start, end) = &silence.time else { return None };
    let conditions = silence.matchers.0.iter();
    let text = SilenceText {
        r#match: conditions.map(|matcher| (matcher.attribute().to_owned(), matcher.text())).collect(),
        start: start.as_millis(),
        end: end.as_millis(),
        author: silence.author.clone(),
        comment: silence.comment.clone(),
    };
    serde_json::to_string(&text).ok()
}

/// Reads the recurring silences, with their lines.
pub(crate) fn silences(notes: &Notes<'_>, document: &[Entry]) -> Vec<(Silence, usize)> {
    const FORM: &str = "a silence is written as [[silence]], with two brackets";
    let Some(entry) = document.iter().find(|entry| entry.key == "silence") else { return Vec::new() };
    let Value::Array(items) = &entry.node.value else {
        notes.at(entry.line, FORM);
        return Vec::new();
    };
    if items.len() > SILENCES {
        notes.at(entry.line, format!("there are more than {SILENCES} silences"));
    }
    let numbered = items.iter().enumerate();
    numbered
        .filter_map(|(number, item)| {
            let silence = silence(notes, number + 1, item).or_else(|| note_form(notes, item, FORM));
            silence.map(|silence| (silence, item.line))
        })
        .collect()
}

/// Returns the name of a silence in messages.
pub(crate) fn silence_name(silence: &Silence) -> String {
    format!("silence {}", silence.id)
}

fn note_form(notes: &Notes<'_>, item: &Node, form: &str) -> Option<Silence> {
    if !matches!(item.value, Value::Table(_)) {
        notes.at(item.line, form);
    }
    None
}

fn silence(notes: &Notes<'_>, number: usize, item: &Node) -> Option<Silence> {
    let Value::Table(entries) = &item.value else { return None };
    let section = Section::inner(notes, "silence".to_owned(), entries);
    let conditions = section.table("match");
    let zone = section.text("time_zone");
    let window = section.get("every", |value| {
        // An unknown zone is reported at its own key.
        let (every, zone) = (text(value)?, zone.as_deref().unwrap_or("UTC"));
        Window::new(&every, zone).map_err(|error| error.to_string())
    });
    let comment = section.text("comment").unwrap_or_default();
    section.finish();
    let has = |key: &str| entries.iter().any(|entry| entry.key == key);
    for (key, remedy) in [
        ("match", "as in match = { kind = \"pve\" }"),
        ("every", "as in every = \"Sunday 02:00-04:00\""),
        ("time_zone", "as in time_zone = \"Europe/Zurich\""),
    ] {
        if !has(key) {
            notes.at(item.line, format!("a silence has {key}, {remedy}"));
        }
    }
    let matchers = matchers(notes, conditions?)?;
    if matchers.0.is_empty() {
        notes.at(item.line, NO_CONDITIONS);
        return None;
    }
    Some(Silence {
        id: format!("file-{number}"),
        matchers,
        time: SilenceTime::Recurring(window.filter(|_| has("time_zone"))?),
        author: notes.file.clone(),
        comment,
    })
}

#[cfg(test)]
mod tests {
    use crate::{Config, Places};

    fn read(text: &str) -> Result<Config, String> {
        let text = format!("{text}\n[[target]]\nid = \"shop\"\nkind = \"http\"\nurl = \"http://a/\"\n");
        Config::written(("p.toml", &text), &Places::default(), &|_| None)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn alerts_and_silences_are_read() {
        let silence = "[[silence]]\nmatch = { kind = \"pve\", \"label.site\" = \"=~zur.*\" }\nevery = \"Sunday 02:00-04:00\"\n\
                       time_zone = \"Europe/Zurich\"\ncomment = \"updates\"\n";
        let config =
            read(&format!("[alerts]\nconfirm = 3\nwarnings = true\nmissing_after = \"never\"\n{silence}")).unwrap();
        assert_eq!((config.alerts.unknown_after, config.alerts.missing_after), (Some(super::VAGUE_AFTER), None));
        assert_eq!((config.alerts.confirm, config.alerts.recover, config.alerts.warnings), (3, 2, true));
        let silence = &config.silences[0];
        assert_eq!((&*silence.id, &*silence.comment, silence.matchers.0.len()), ("file-1", "updates", 2));
        let config = read(
            "[[target]]\nid = \"b\"\nkind = \"http\"\nurl = \"http://b/\"\ndepends_on = [\"shop\", \"shop/a/b\"]\n",
        );
        let needs = &config.unwrap().targets[0].alerts.depends_on;
        assert_eq!(needs[1].1.as_deref(), Some("a/b"));
    }

    #[test]
    fn problems_are_named_with_their_place() {
        let silence = |more: &str| format!("[[silence]]\n{more}\n");
        let rest = "every = \"day 1:00-2:00\"\ntime_zone = \"UTC\"";
        for (text, expected) in [
            ("[alerts]\nconfirm = 0".to_owned(), "p.toml:2: confirm: 0 is not a number of reports: use 1 to 100"),
            ("[alerts]\nconfrim = 2".to_owned(), "did you mean \"confirm\""),
            (
                "[alerts]\nunknown_after = \"40d\"".to_owned(),
                "unknown_after: this is out of range: use 0s to 30 days, or \"never\"",
            ),
            ("[alerts]\nunknown_after = \"soon\"".to_owned(), "is not a duration"),
            ("[alerts]\nparent_wait = \"2h\"".to_owned(), "parent_wait: this is out of range: use at most 1h"),
            ("silence = 3".to_owned(), "p.toml:1: a silence is written as [[silence]]"),
            (silence(rest), "p.toml:1: a silence has match"),
            (silence(&format!("match = {{}}\n{rest}")), "a silence without conditions would silence everything"),
            (silence(&format!("match = {{ knd = \"a\" }}\n{rest}")), "p.toml:2: match: unknown attribute \"knd\""),
            (
                silence(&format!("match = {{ kind = \"=~(\" }}\n{rest}")),
                "p.toml:2: match: the regular expression \"(\"",
            ),
            (
                silence("match = { kind = \"a\" }\nevery = \"Sunday\"\ntime_zone = \"UTC\""),
                "p.toml:3: every: \"Sunday\" is not a window",
            ),
            (silence("match = { kind = \"a\" }\nevery = \"day 1:00-2:00\""), "p.toml:1: a silence has time_zone"),
            (
                silence("match = { kind = \"a\" }\nevery = \"day 1:00-2:00\"\ntime_zone = \"Mars\""),
                "unknown time zone \"Mars\"",
            ),
            (
                "[[target]]\nid = \"b\"\nkind = \"http\"\nurl = \"http://b/\"\ndepends_on = [\"shop/\"]".to_owned(),
                "p.toml:5: depends_on: \"shop/\" names no dependency after the slash",
            ),
        ] {
            let problems = read(&text).unwrap_err();
            assert!(problems.contains(expected), "{text}: {problems}");
        }
    }
}
