//! Reads keys and notes every problem with its place: unknown keys and invalid values.

use crate::Problem;
use crate::value::{Entry, Node, Value, parse_duration, show_duration};
use model::SettingSource;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The minimum similarity of a suggested name.
const NEAR: f64 = 0.8;

/// Settings that were changed at run time, by key: `scheduler.cadence`, `target.ID.interval`.
pub type Overrides = BTreeMap<String, String>;

/// Collects problems, and holds the overrides of values.
pub(crate) struct Notes<'a> {
    /// The name of the file.
    pub file: String,
    pub problems: RefCell<Vec<Problem>>,
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    pub overrides: &'a Overrides,
    /// The sources of values that are not the default, by key.
    pub sources: RefCell<BTreeMap<String, SettingSource>>,
    /// All environment variables that could set a value.
    pub variables: RefCell<BTreeSet<String>>,
}

impl Notes<'_> {
    pub(crate) fn at(&self, line: usize, message: impl Into<String>) {
        self.note(format!("{}:{line}", self.file), message);
    }

    pub(crate) fn note(&self, place: String, message: impl Into<String>) {
        self.problems.borrow_mut().push(Problem { place, message: message.into() });
    }
}

/// A table whose keys are read one by one.
pub(crate) struct Section<'a> {
    notes: &'a Notes<'a>,
    /// The name in messages and variable names, such as `scheduler` or `target[2].tls`.
    name: String,
    entries: &'a [Entry],
    asked: RefCell<BTreeSet<&'static str>>,
    /// Whether `POLLIWOG_SECTION_KEY` overrides the keys.
    overridable: bool,
}

/// The source of a value.
pub(crate) enum Found<'a> {
    File(&'a Node),
    Setting(String, String),
    Variable(String, String),
}

impl Found<'_> {
    fn value(&self) -> Value {
        match self {
            Self::File(node) => node.value.clone(),
            Self::Setting(_, text) | Self::Variable(_, text) => Value::Text(text.clone()),
        }
    }

    fn source(&self) -> SettingSource {
        match self {
            Self::File(_) => SettingSource::File,
            Self::Setting(..) => SettingSource::Setting,
            Self::Variable(variable, _) => SettingSource::Environment(variable.clone()),
        }
    }
}

impl<'a> Section<'a> {
    /// Opens a top-level section. The environment can override its keys.
    pub(crate) fn top(notes: &'a Notes<'a>, document: &'a [Entry], name: &'static str) -> Self {
        let entries = match document.iter().find(|entry| entry.key == name).map(|entry| &entry.node) {
            Some(Node { value: Value::Table(entries), .. }) => entries,
            Some(node) => {
                notes.at(node.line, format!("{name} is {}, but should be a table: [{name}]", node.value.kind()));
                &[][..]
            }
            None => &[],
        };
        Self { notes, name: name.to_owned(), entries, asked: RefCell::default(), overridable: true }
    }

    /// Opens a table inside another table.
    pub(crate) fn inner(notes: &'a Notes<'a>, name: String, entries: &'a [Entry]) -> Self {
        Self { notes, name, entries, asked: RefCell::default(), overridable: false }
    }

    fn find(&self, key: &'static str) -> Option<Found<'a>> {
        self.asked.borrow_mut().insert(key);
        let found = self.look(key)?;
        if self.overridable {
            self.notes.sources.borrow_mut().insert(format!("{}.{key}", self.name), found.source());
        }
        Some(found)
    }

    fn look(&self, key: &'static str) -> Option<Found<'a>> {
        if self.overridable {
            let own = format!("POLLIWOG_{}_{}", self.name.to_uppercase(), key.to_uppercase());
            self.notes.variables.borrow_mut().insert(own.clone());
            for variable in [own.as_str()].into_iter().chain(alias(&self.name, key)) {
                if let Some(text) = (self.notes.environment)(variable) {
                    return Some(Found::Variable(variable.to_owned(), text));
                }
            }
            let setting = format!("{}.{key}", self.name);
            if let Some(text) = self.notes.overrides.get(&setting) {
                return Some(Found::Setting(setting, text.clone()));
            }
        }
        self.entries.iter().find(|entry| entry.key == key).map(|entry| Found::File(&entry.node))
    }

    /// Whether a key is written, in the file or the environment.
    pub(crate) fn has(&self, key: &'static str) -> bool {
        self.look(key).is_some()
    }

    /// Returns the value of a key, converted by `parse`. Notes a problem if `parse` fails.
    pub(crate) fn get<T>(&self, key: &'static str, parse: impl FnOnce(&Value) -> Result<T, String>) -> Option<T> {
        let found = self.find(key)?;
        match parse(&found.value()) {
            Ok(value) => Some(value),
            Err(why) => {
                match found {
                    Found::File(node) => self.notes.at(node.line, format!("{key}: {why}")),
                    Found::Setting(setting, _) => self.notes.note(format!("setting {setting}"), why),
                    Found::Variable(variable, _) => self.notes.note(format!("environment {variable}"), why),
                }
                None
            }
        }
    }

    pub(crate) fn text(&self, key: &'static str) -> Option<String> {
        self.get(key, text)
    }

    pub(crate) fn duration(&self, key: &'static str) -> Option<Duration> {
        self.get(key, |value| parse_duration(&time(value)?))
    }

    /// Reads a duration of at most `longest`.
    pub(crate) fn duration_up_to(&self, key: &'static str, longest: Duration) -> Option<Duration> {
        self.get(key, |value| match parse_duration(&text(value)?)? {
            found if found > longest => Err(format!("this is out of range: use at most {}", show_duration(longest))),
            found => Ok(found),
        })
    }

    /// Reads a duration within a range, or "never", which is `None` like the number 0.
    pub(crate) fn duration_or_never(
        &self,
        key: &'static str,
        range: RangeInclusive<Duration>,
    ) -> Option<Option<Duration>> {
        self.get(key, |value| match value {
            Value::Text(word) if word == "never" => Ok(None),
            Value::Integer(0) => Ok(None),
            value => match parse_duration(&text(value)?)? {
                found if range.contains(&found) => Ok(Some(found)),
                _ => {
                    let (least, days) = (show_duration(*range.start()), range.end().as_secs() / 86_400);
                    Err(format!("this is out of range: use {least} to {days} days, or \"never\""))
                }
            },
        })
    }

    pub(crate) fn count(&self, key: &'static str) -> Option<u64> {
        self.get(key, count)
    }

    pub(crate) fn boolean(&self, key: &'static str) -> Option<bool> {
        self.get(key, boolean)
    }

    /// Returns a table inside this one, unparsed.
    pub(crate) fn table(&self, key: &'static str) -> Option<&'a [Entry]> {
        match self.find(key)? {
            Found::File(Node { value: Value::Table(entries), .. }) => Some(entries),
            Found::File(node) => {
                self.notes.at(node.line, format!("{key} is {}, but should be a table: {{ … }}", node.value.kind()));
                None
            }
            Found::Variable(name, _) | Found::Setting(name, _) => {
                self.notes.note(name, "a table can only be written in the file");
                None
            }
        }
    }

    /// Notes a problem with a combination of keys, at the key whose source has the highest precedence: the environment,
    /// then a setting, then the file.
    pub(crate) fn blame(&self, keys: &[&str], message: impl Into<String>) {
        let sources = self.notes.sources.borrow();
        let of = |key: &&&str| Some((format!("{}.{key}", self.name), sources.get(&format!("{}.{key}", self.name))?));
        let decided =
            |wanted: fn(&SettingSource) -> bool| keys.iter().filter_map(|key| of(&key)).find(|(_, s)| wanted(s));
        let place = decided(|source| matches!(source, SettingSource::Environment(_)))
            .map(|(_, source)| source.to_string())
            .or_else(|| decided(|source| *source == SettingSource::Setting).map(|(key, _)| format!("setting {key}")));
        drop(sources);
        match place {
            Some(place) => self.notes.note(place, message),
            None => self.notes.at(self.line(keys.first().copied().unwrap_or_default()), message),
        }
    }

    /// Returns the line of a key, or of the first key of the section.
    pub(crate) fn line(&self, key: &str) -> usize {
        let own = self.entries.iter().find(|entry| entry.key == key);
        own.or(self.entries.first()).map_or(1, |entry| entry.line)
    }

    /// Notes every unknown key, with a similar known key as a suggestion.
    pub(crate) fn finish(self) {
        let known = self.asked.borrow();
        for entry in self.entries.iter().filter(|entry| !known.contains(entry.key.as_str())) {
            let known: Vec<&str> = known.iter().copied().collect();
            self.notes.at(
                entry.line,
                format!("unknown key {:?} in {}{}", entry.key, self.name, suggestion(&entry.key, &known)),
            );
        }
    }
}

/// Returns "did you mean …?" for a similar name, or the list of all names.
pub fn suggestion(key: &str, known: &[&str]) -> String {
    let near = known.iter().map(|name| (strsim::jaro_winkler(key, name), name)).filter(|(score, _)| *score >= NEAR);
    match near.max_by(|(a, _), (b, _)| a.total_cmp(b)) {
        Some((_, name)) => format!(": did you mean {name:?}?"),
        None if known.is_empty() => ": none is defined".to_owned(),
        None if known.len() == 1 => format!(": there is only {}", known[0]),
        None => format!(": there are {}", known.join(", ")),
    }
}

/// Returns a problem for each `POLLIWOG_…` variable that is set and unknown, because it is probably misspelt.
///
/// Kubernetes sets variables for every service; a service named polliwog sets POLLIWOG_SERVICE_HOST, POLLIWOG_PORT and
/// similar ones, which are ignored.
pub fn misspelt<'a>(set: impl Iterator<Item = &'a str>, known: &BTreeSet<String>) -> Vec<Problem> {
    /// Variables that are read outside the configuration.
    const OTHERS: [&str; 5] =
        ["POLLIWOG_ADMIN_TOKEN", "POLLIWOG_LOG_FORMAT", "POLLIWOG_LOG_LEVEL", "POLLIWOG_TOKEN", "POLLIWOG_URL"];
    let known: Vec<&str> = known.iter().map(String::as_str).chain(OTHERS).collect();
    let of_kubernetes = |name: &str| {
        let rest = name.trim_start_matches("POLLIWOG_");
        rest.contains("SERVICE_") || rest == "PORT" || rest.starts_with("PORT_") || rest.contains("_PORT")
    };
    set.filter(|name| name.starts_with("POLLIWOG_") && !known.contains(name) && !of_kubernetes(name))
        .map(|name| {
            let near =
                known.iter().max_by(|a, b| strsim::jaro_winkler(name, a).total_cmp(&strsim::jaro_winkler(name, b)));
            let near = near.copied().unwrap_or_default();
            Problem {
                place: format!("environment {name}"),
                message: format!("unknown variable, which has no effect: did you mean {near}?"),
            }
        })
        .collect()
}

/// Returns the name that the reference documents use for some variables.
fn alias(section: &str, key: &str) -> Option<&'static str> {
    match (section, key) {
        ("scheduler", "base_interval") => Some("ADAPTIVE_POLLING_BASE_INTERVAL"),
        ("scheduler", "min_interval") => Some("ADAPTIVE_POLLING_MIN_INTERVAL"),
        ("scheduler", "max_interval") => Some("ADAPTIVE_POLLING_MAX_INTERVAL"),
        ("scheduler", "max_per_host") => Some("POLL_MAX_CONCURRENT_PER_HOST"),
        _ => None,
    }
}

pub(crate) fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        other => Err(format!("this is {}, but should be text in quotes", other.kind())),
    }
}

/// Reads a duration as text. For a number without a unit the message suggests one.
fn time(value: &Value) -> Result<String, String> {
    match value {
        Value::Integer(number) if *number >= 0 => Err(format!("{number} has no unit: write \"{number}s\" for seconds")),
        other => text(other),
    }
}

/// Upper bound on every interval.
pub(crate) const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Reads a list of texts. An environment variable has them separated by commas.
pub(crate) fn words(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(items) => items.iter().map(|item| text(&item.value)).collect(),
        Value::Text(list) => {
            Ok(list.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect())
        }
        other => Err(format!("this is {}, but should be a list of texts", other.kind())),
    }
}

/// Reads an interval and checks its bounds.
pub(crate) fn interval(value: &Value, shortest: Duration) -> Result<Duration, String> {
    let duration = parse_duration(&time(value)?)?;
    let show = crate::value::show_duration;
    if duration < shortest || duration > LONGEST {
        return Err(format!("{} is out of range: use {} to {}", show(duration), show(shortest), show(LONGEST)));
    }
    Ok(duration)
}

pub(crate) fn count(value: &Value) -> Result<u64, String> {
    let wrong = || "this should be a whole number that is not negative".to_owned();
    match value {
        Value::Integer(integer) => u64::try_from(*integer).map_err(|_| wrong()),
        Value::Text(text) => text.trim().parse().map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

pub(crate) fn boolean(value: &Value) -> Result<bool, String> {
    match value {
        Value::Boolean(boolean) => Ok(*boolean),
        Value::Text(text) if ["true", "1", "yes", "on"].contains(&text.trim().to_lowercase().as_str()) => Ok(true),
        Value::Text(text) if ["false", "0", "no", "off"].contains(&text.trim().to_lowercase().as_str()) => Ok(false),
        _ => Err("this should be true or false".to_owned()),
    }
}
