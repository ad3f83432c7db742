//! Paths to values: keys and indexes with dots between them.

use crate::tree::Node;
use polliwog_sdk::prelude::*;
use polliwog_sdk::schemars::{Schema, SchemaGenerator, json_schema};
use polliwog_sdk::serde::de::Deserializer;
use std::borrow::Cow;

/// A path: its steps with dots between them, a step that has dots itself in quotes (`"health.checks".db`), or a list of
/// its steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path {
    /// As the operator wrote it.
    pub(crate) written: String,
    pub(crate) steps: Vec<String>,
    /// Why it is not a path.
    pub(crate) problem: Option<String>,
}

/// The end of a path: a value, or the `length` of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'n, 'a> {
    Value(&'n Node<'a>),
    Length(usize),
}

impl<'n, 'a> Found<'n, 'a> {
    pub(crate) fn node(self) -> Option<&'n Node<'a>> {
        if let Self::Value(node) = self { Some(node) } else { None }
    }

    pub(crate) fn is_null(self) -> bool {
        self.node().is_some_and(Node::is_null)
    }

    /// Whether it is a text, a number or a boolean, or a list of such.
    pub(crate) fn is_plain(self) -> bool {
        let is_scalar = |node: &Node<'_>| matches!(node, Node::Text(_) | Node::Number(_) | Node::Bool(_));
        match self {
            Self::Value(Node::List(items)) => items.iter().all(is_scalar),
            Self::Value(node) => is_scalar(node),
            Self::Length(_) => true,
        }
    }

    pub(crate) fn as_number(self) -> Option<f64> {
        match self {
            Self::Value(node) => node.as_number(),
            Self::Length(length) => Some(length as f64),
        }
    }

    pub(crate) fn to_js(self) -> Option<String> {
        match self {
            Self::Value(node) => node.to_js(),
            Self::Length(length) => Some(length.to_string()),
        }
    }

    /// Returns the JSON text.
    pub(crate) fn to_json(self) -> String {
        match self {
            Self::Value(node) => node.to_json(),
            Self::Length(length) => length.to_string(),
        }
    }
}

impl Path {
    /// Parses a path as text. A path with a problem has no steps.
    pub(crate) fn parse(text: &str) -> Self {
        match steps(text) {
            Ok(steps) => Self { written: text.to_owned(), steps, problem: None },
            Err(problem) => Self { written: text.to_owned(), steps: Vec::new(), problem: Some(problem) },
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns the key if the path is one.
    pub(crate) fn as_key(&self) -> Option<&str> {
        match self.steps.as_slice() {
            [key] => Some(key),
            _ => None,
        }
    }

    /// Whether the path is only this step.
    pub(crate) fn is_step(&self, step: &str) -> bool {
        self.steps.as_slice() == [step]
    }

    /// Calls a function with each value at the path: several, if a key is repeated. `$value` is the value itself,
    /// unless it is an object.
    pub(crate) fn each<'n, 'a>(&self, node: &'n Node<'a>, found: &mut dyn FnMut(Found<'n, 'a>)) {
        if self.is_step("$value") && !node.is_object() {
            return found(Found::Value(node));
        }
        walk(node, &self.steps, found);
    }

    /// Returns the last value at the path.
    pub(crate) fn last<'n, 'a>(&self, node: &'n Node<'a>) -> Option<Found<'n, 'a>> {
        let mut last = None;
        self.each(node, &mut |found| last = Some(found));
        last
    }

    /// Returns how to write the path if a key with dots has the name of several steps.
    pub(crate) fn as_one_key(&self, node: &Node<'_>) -> Option<String> {
        let key = self.steps.join(".");
        let exists = self.steps.len() > 1 && node.members(&key).next().is_some();
        exists.then(|| format!("a key with dots is written in quotes, as '{key:?}', or as a list, as [{key:?}]"))
    }
}

fn walk<'n, 'a>(node: &'n Node<'a>, steps: &[String], found: &mut dyn FnMut(Found<'n, 'a>)) {
    let Some((step, rest)) = steps.split_first() else { return found(Found::Value(node)) };
    match node {
        Node::Object(_) => node.members(step).for_each(|member| walk(member, rest, found)),
        Node::List(items) if step == "length" && rest.is_empty() => found(Found::Length(items.len())),
        Node::List(items) => {
            let index = step.parse::<usize>().ok().filter(|index| index.to_string() == *step);
            if let Some(item) = index.and_then(|index| items.get(index)) {
                walk(item, rest, found);
            }
        }
        _ => {}
    }
}

/// Splits a path. A step in quotes may contain dots; `\"` and `\\` are a quote and a backslash in it.
fn steps(text: &str) -> Result<Vec<String>, String> {
    if let Some(problem) = foreign(text) {
        return Err(problem);
    }
    let mut steps = Vec::new();
    let mut rest = Some(text).filter(|text| !text.is_empty());
    while let Some(from) = rest {
        let Some(quoted) = from.strip_prefix('"') else {
            let (step, after) = from.split_once('.').map_or((from, None), |(step, after)| (step, Some(after)));
            steps.push(step.to_owned());
            rest = after;
            continue;
        };
        let (step, after) = unquoted(quoted).ok_or_else(|| format!("{text:?} has a quote without an end"))?;
        steps.push(step);
        rest = match after.strip_prefix('.') {
            Some(after) => Some(after),
            None if after.is_empty() => None,
            None => return Err(format!("in {text:?}, a dot or the end must follow the closing quote")),
        };
    }
    Ok(steps)
}

/// Returns the text up to the closing quote, and what follows it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut step = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((step, &text[at + 1..])),
            '\\' => step.push(chars.next()?.1),
            c => step.push(c),
        }
    }
    None
}

/// Returns a problem if the path is a JSON pointer or JSONPath, which would never find a value.
fn foreign(path: &str) -> Option<String> {
    let is_pointer = path.starts_with('/');
    let is_json_path = path.starts_with("$.")
        || path.starts_with("$[")
        || (path.contains('[') && !path.contains('"'))
        || path.starts_with('[');
    if !is_pointer && !is_json_path {
        return None;
    }
    let syntax = if is_pointer { "a JSON pointer" } else { "JSONPath" };
    let keys = if is_pointer { pointer_keys(path) } else { json_path_keys(path) };
    let shown = keys.iter().map(|key| if key.contains(['.', '"']) { format!("{key:?}") } else { key.clone() });
    let shown = shown.collect::<Vec<_>>().join(".");
    let shown = if shown.contains('"') { format!("'{shown}'") } else { format!("{shown:?}") };
    Some(format!("it is {syntax}, {path:?}: paths are written with dots, as {shown}"))
}

fn pointer_keys(path: &str) -> Vec<String> {
    let keys = path.split('/').filter(|key| !key.is_empty());
    keys.map(|key| key.replace("~1", "/").replace("~0", "~")).collect()
}

/// Returns the keys of a JSONPath: with dots, or in brackets with quotes. `*` is omitted: elements are mapped anyway.
fn json_path_keys(path: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut rest = path.trim_start_matches('$');
    while !rest.is_empty() {
        let (key, after) = match rest.strip_prefix('[') {
            Some(inside) => {
                let inside_quotes = ['"', '\'']
                    .into_iter()
                    .find_map(|quote| inside.strip_prefix(quote)?.split_once(&format!("{quote}]")));
                inside_quotes.or_else(|| inside.split_once(']')).unwrap_or((inside, ""))
            }
            None => {
                let bare = rest.trim_start_matches('.');
                bare.split_at(bare.find(['.', '[']).unwrap_or(bare.len()))
            }
        };
        keys.push(key.to_owned());
        rest = after;
    }
    keys.retain(|key| !key.is_empty() && key != "*");
    keys
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a path is a text, or a list of keys")]
        enum Written {
            Text(String),
            Steps(Vec<String>),
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Text(text) => Self::parse(&text),
            Written::Steps(steps) => Self { written: steps.join("."), steps, problem: None },
        })
    }
}

impl JsonSchema for Path {
    fn schema_name() -> Cow<'static, str> {
        "Path".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A path: keys with dots between them, one that has dots itself in quotes, or a list of keys.",
            "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_separated_by_dots_and_may_be_quoted() {
        for (text, expected) in [
            ("", &[][..]),
            ("a", &["a"]),
            ("a.b.0", &["a", "b", "0"]),
            ("a..b", &["a", "", "b"]),
            (r#""health.checks""#, &["health.checks"]),
            (r#"a."b.c".d"#, &["a", "b.c", "d"]),
            (r#""say \"hi\".\\""#, &[r#"say "hi".\"#]),
            (r#"a"b.c"#, &["a\"b", "c"]),
            (r#""a[0]""#, &["a[0]"]),
            ("$key", &["$key"]),
        ] {
            assert_eq!(Path::parse(text).steps, expected, "{text}");
        }
        for (text, problem) in [
            (r#""a.b"#, "a quote without an end"),
            (r#""a"b"#, "must follow the closing quote"),
            ("/a/b~1c/0", "as \"a.b/c.0\""),
            ("$.a[0].b", "as \"a.0.b\""),
            ("$['health.checks'].db", r#"as '"health.checks".db'"#),
            (r#"["health.checks"]"#, r#"as '"health.checks"'"#),
            ("a[*].b", "as \"a.b\""),
        ] {
            let found = Path::parse(text).problem.unwrap_or_default();
            assert!(found.contains(problem), "{text}: {found}");
        }
    }
}
