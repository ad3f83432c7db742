//! A TOML document as a tree with line numbers, and the conversion of its values.

use serde_json::Value as Json;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and its first line.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub line: usize,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Array(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub key: String,
    pub line: usize,
    pub node: Node,
}

/// Parses a document. Fails with the line and the message.
pub(crate) fn parse(text: &str) -> Result<Vec<Entry>, (usize, String)> {
    parse_part(text, 0)
}

/// Parses a part of a document that comes after this number of lines. Fails with the line and the message.
pub(crate) fn parse_part(text: &str, lines_before: usize) -> Result<Vec<Entry>, (usize, String)> {
    let lines = Lines::of(text, lines_before);
    match DeTable::parse(text) {
        Ok(table) => Ok(entries(&lines, table.get_ref())),
        Err(error) => {
            let line = error.span().map_or(1, |span| lines.at(span.start));
            Err((line, error.message().to_owned()))
        }
    }
}

/// The lines of a text.
struct Lines {
    /// The byte offset of each line except the first.
    starts: Vec<usize>,
    /// The number of the first line.
    first: usize,
}

impl Lines {
    fn of(text: &str, lines_before: usize) -> Self {
        Self { starts: text.match_indices('\n').map(|(end, _)| end + 1).collect(), first: lines_before + 1 }
    }

    /// Returns the line number, from 1, of a byte offset.
    fn at(&self, byte: usize) -> usize {
        self.starts.partition_point(|start| *start <= byte) + self.first
    }
}

fn entries(lines: &Lines, table: &DeTable<'_>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            line: lines.at(key.span().start),
            node: node(lines, value),
        })
        .collect();
    entries.sort_by_key(|entry| entry.line);
    entries
}

fn node(lines: &Lines, spanned: &Spanned<DeValue<'_>>) -> Node {
    let value = match spanned.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => Value::Integer(integer),
            Err(_) => Value::Text(integer.as_str().to_owned()),
        },
        DeValue::Float(float) => {
            float.as_str().parse().map_or_else(|_| Value::Text(float.as_str().to_owned()), Value::Float)
        }
        DeValue::Boolean(boolean) => Value::Boolean(*boolean),
        DeValue::Datetime(datetime) => Value::Text(datetime.to_string()),
        DeValue::Array(items) => Value::Array(items.iter().map(|item| node(lines, item)).collect()),
        DeValue::Table(table) => Value::Table(entries(lines, table)),
    };
    Node { line: lines.at(spanned.span().start), value }
}

impl Value {
    /// Returns the type of the value for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Boolean(_) => "true or false",
            Self::Array(_) => "a list",
            Self::Table(_) => "a table",
        }
    }

    /// Converts the value to JSON.
    /// Converts JSON. Members with the value null are absent.
    pub(crate) fn from_json(json: Json) -> Self {
        let node = |json| Node { line: 0, value: Self::from_json(json) };
        match json {
            Json::Null => Self::Text(String::new()),
            Json::Bool(boolean) => Self::Boolean(boolean),
            Json::Number(number) => match number.as_i64() {
                Some(integer) => Self::Integer(integer),
                None => Self::Float(number.as_f64().unwrap_or(f64::MAX)),
            },
            Json::String(text) => Self::Text(text),
            Json::Array(items) => Self::Array(items.into_iter().map(node).collect()),
            Json::Object(members) => {
                let present = members.into_iter().filter(|(_, value)| !value.is_null());
                Self::Table(present.map(|(key, value)| Entry { key, line: 0, node: node(value) }).collect())
            }
        }
    }

    pub(crate) fn to_json(&self) -> Json {
        match self {
            Self::Text(text) => Json::from(text.as_str()),
            Self::Integer(integer) => Json::from(*integer),
            Self::Float(float) => Json::from(*float),
            Self::Boolean(boolean) => Json::from(*boolean),
            Self::Array(items) => items.iter().map(|item| item.value.to_json()).collect(),
            Self::Table(entries) => {
                Json::Object(entries.iter().map(|entry| (entry.key.clone(), entry.node.value.to_json())).collect())
            }
        }
    }
}

/// Parses a duration such as `10s`, `5m`, `1h30m` or `250ms`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || match text.trim() {
        // The unit is missing; seconds is the most likely one.
        number if number.parse::<f64>().is_ok_and(|number| number >= 0.0) => {
            format!("{text:?} has no unit: write \"{number}s\" for seconds")
        }
        _ => format!("{text:?} is not a duration: write a number and a unit, as in 250ms, 10s, 5m, 1h or 1d"),
    };
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let seconds = match &rest[..unit_end] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(wrong()),
        };
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = &rest[unit_end..];
    }
    Ok(total)
}

/// Formats a duration in the form that [`parse_duration`] reads.
pub fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => "0s".to_owned(),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ if millis.is_multiple_of(1000) => format!("{}s", millis / 1000),
        _ => format!("{millis}ms"),
    }
}

/// Returns a table as TOML, with its place. TOML has no null: entries without a value are left out.
pub fn toml_of(place: &[&str], table: &serde_json::Value) -> String {
    fn without_null(value: &serde_json::Value) -> serde_json::Value {
        match value {
            serde_json::Value::Array(items) => items.iter().map(without_null).collect(),
            serde_json::Value::Object(table) => {
                let some = table.iter().filter(|(_, value)| !value.is_null());
                some.map(|(key, value)| (key.clone(), without_null(value))).collect()
            }
            other => other.clone(),
        }
    }
    let whole = place.iter().rev().fold(without_null(table), |inner, key| serde_json::json!({ *key: inner }));
    toml::to_string(&whole).unwrap_or_else(|_| table.to_string())
}

#[cfg(test)]
mod tests {
    use super::toml_of;
    use serde_json::json;

    #[test]
    fn settings_are_written_as_toml() {
        let settings = json!({ "branch": "main", "none": null, "list": [1, 2], "inner": { "on": true } });
        let expected = "[target.settings]\nbranch = \"main\"\nlist = [1, 2]\n\n[target.settings.inner]\non = true\n";
        assert_eq!(toml_of(&["target", "settings"], &settings), expected);
    }
}
