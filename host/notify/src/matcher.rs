//! Matchers: conditions on the attributes of an alert, as in Alertmanager.

use model::{Class, Status, Subject, TargetTraits};
use regex::{Regex, RegexBuilder};
use thiserror::Error;

/// The attributes of an alert except its labels, which are `label.NAME`.
pub const ATTRIBUTES: [&str; 6] = ["status", "class", "kind", "target", "name", "dependency"];

/// The limit on a compiled regular expression, in bytes. One for every letter of Unicode takes a tenth of it.
const REGEX_SIZE: usize = 1 << 20;

/// The attributes of one alert.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// The subject.
    pub subject: &'a Subject,
    /// The alert's status.
    pub status: Status,
    /// The properties of the target; empty if the alert is not about one.
    pub traits: &'a TargetTraits,
}

impl<'a> Attributes<'a> {
    /// Returns the value of an attribute; the empty text if the alert does not have it, as in Alertmanager.
    pub fn get(&self, attribute: &str) -> &'a str {
        match attribute {
            "status" => self.status.as_str(),
            "class" => self.subject.class().as_str(),
            "kind" => &self.traits.kind,
            "target" => self.subject.name(),
            "name" => &self.traits.name,
            "dependency" => self.subject.dependency_name().unwrap_or_default(),
            other => other.strip_prefix("label.").and_then(|name| self.label(name)).unwrap_or_default(),
        }
    }

    fn label(&self, name: &str) -> Option<&'a str> {
        self.traits.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }
}

/// A condition on one attribute.
#[derive(Clone, Debug)]
pub struct Matcher {
    attribute: String,
    text: String,
    test: Test,
    negated: bool,
}

#[derive(Clone, Debug)]
enum Test {
    Equal(String),
    Regex(Regex),
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        (&self.attribute, &self.text) == (&other.attribute, &other.text)
    }
}

/// A condition that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidMatcher {
    /// The attribute does not exist.
    #[error("unknown attribute {0:?}; use status, class, kind, target, name, dependency or label.NAME")]
    Attribute(String),
    /// The value is not among those that the attribute can have.
    #[error("{attribute} is never {value:?}; use {known}")]
    Value {
        /// The attribute.
        attribute: String,
        /// The value.
        value: String,
        /// The possible values.
        known: String,
    },
    /// The value begins like an operator.
    #[error("{0:?} begins with {1}, which is no operator: write =, !=, =~ or !~ before the value")]
    Operator(String, char),
    /// The regular expression is not valid, or too large.
    #[error("the regular expression {text:?} cannot be used: {why}")]
    Regex {
        /// The regular expression.
        text: String,
        /// The reason in one line.
        why: String,
    },
}

impl Matcher {
    /// Parses a condition. `text` begins with `=`, `!=`, `=~` or `!~`; without one of them it is the value itself.
    /// Regular expressions match whole values.
    pub fn new(attribute: &str, text: &str) -> Result<Self, InvalidMatcher> {
        let is_label = attribute.strip_prefix("label.").is_some_and(|name| !name.is_empty());
        if !is_label && !ATTRIBUTES.contains(&attribute) {
            return Err(InvalidMatcher::Attribute(attribute.to_owned()));
        }
        let (negated, is_regex, value) = match text {
            _ if text.starts_with("=~") => (false, true, &text[2..]),
            _ if text.starts_with("!~") => (true, true, &text[2..]),
            _ if text.starts_with("!=") => (true, false, &text[2..]),
            _ if text.starts_with(['~', '!']) => {
                let first = text.chars().next().unwrap_or_default();
                return Err(InvalidMatcher::Operator(text.to_owned(), first));
            }
            _ if text.starts_with('=') => (false, false, &text[1..]),
            _ => (false, false, text),
        };
        let test = if is_regex { Test::Regex(regex(value)?) } else { Test::Equal(possible(attribute, value)?) };
        Ok(Self { attribute: attribute.to_owned(), text: text.to_owned(), test, negated })
    }

    /// Returns the name of the attribute.
    pub fn attribute(&self) -> &str {
        &self.attribute
    }

    /// Returns the condition with its operator, which may be missing where it was written.
    pub fn text(&self) -> String {
        let sign = if self.text.starts_with(['=', '!']) { "" } else { "=" };
        format!("{sign}{}", self.text)
    }

    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        let value = attributes.get(&self.attribute);
        let found = match &self.test {
            Test::Equal(wanted) => value == wanted,
            Test::Regex(regex) => regex.is_match(value),
        };
        found != self.negated
    }
}

impl std::fmt::Display for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.attribute, self.text())
    }
}

fn regex(text: &str) -> Result<Regex, InvalidMatcher> {
    let anchored = format!("^(?:{text})$");
    RegexBuilder::new(&anchored).size_limit(REGEX_SIZE).build().map_err(|error| {
        let why = match error {
            regex::Error::CompiledTooBig(_) => format!("it takes more than {REGEX_SIZE} bytes when it is compiled"),
            // The last line says what is wrong; those above it show where, in the anchored text.
            error => error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
        };
        InvalidMatcher::Regex { text: text.to_owned(), why }
    })
}

/// Returns the value if the attribute can have it.
fn possible(attribute: &str, value: &str) -> Result<String, InvalidMatcher> {
    let known: Vec<&str> = match attribute {
        "status" => vec![Status::Warning.as_str(), Status::Critical.as_str()],
        "class" => Class::ALL.map(Class::as_str).to_vec(),
        _ => return Ok(value.to_owned()),
    };
    if known.contains(&value) {
        return Ok(value.to_owned());
    }
    let (attribute, value) = (attribute.to_owned(), value.to_owned());
    Err(InvalidMatcher::Value { attribute, value, known: known.join(", ") })
}

/// Conditions that must all hold. Without conditions, every alert matches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matchers(pub Vec<Matcher>);

impl Matchers {
    /// Returns whether every condition holds.
    pub fn match_all(&self, attributes: &Attributes<'_>) -> bool {
        self.0.iter().all(|matcher| matcher.matches(attributes))
    }

    /// Returns the first condition that does not hold; `None` if all hold.
    pub fn first_mismatch(&self, attributes: &Attributes<'_>) -> Option<&Matcher> {
        self.0.iter().find(|matcher| !matcher.matches(attributes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::TargetId;

    fn check(attribute: &str, text: &str, expected: Result<bool, &str>) {
        let subject = Subject::dependency(&TargetId::new("pve").unwrap(), "vm/100");
        let labels = vec![("site".to_owned(), "zurich".to_owned())];
        let traits = TargetTraits { name: "Cluster".to_owned(), kind: "pve".to_owned(), labels, shared_by: None };
        let attributes = Attributes { subject: &subject, status: Status::Critical, traits: &traits };
        let found = Matcher::new(attribute, text).map(|matcher| matcher.matches(&attributes));
        assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(ToOwned::to_owned), "{attribute}{text}");
    }

    #[test]
    fn conditions_compare_whole_values() {
        check("target", "pve", Ok(true));
        check("target", "=pve", Ok(true));
        check("target", "!=pve", Ok(false));
        check("target", "pv", Ok(false));
        check("dependency", "=~vm/.*", Ok(true));
        check("dependency", "=~vm", Ok(false));
        check("dependency", "!~vm|ct", Ok(true));
        check("dependency", "=~node/.*|vm/1.*", Ok(true));
        check("class", "dependency", Ok(true));
        check("kind", "=~p(ve|bs)", Ok(true));
        check("name", "Cluster", Ok(true));
        check("status", "!=warning", Ok(true));
        check("label.site", "zurich", Ok(true));
        check("label.rack", "", Ok(true));
        check("label.rack", "!=a", Ok(true));
    }

    #[test]
    fn conditions_that_can_never_hold_are_refused() {
        let known = "use status, class, kind, target, name, dependency or label.NAME";
        check("labels.site", "x", Err(&format!("unknown attribute \"labels.site\"; {known}")));
        check("label.", "x", Err(&format!("unknown attribute \"label.\"; {known}")));
        check("status", "down", Err("status is never \"down\"; use warning, critical"));
        check(
            "class",
            "vm",
            Err("class is never \"vm\"; use dependency, unreachable, plugin, host, deployment, device, channel"),
        );
        check("kind", "=~(", Err("the regular expression \"(\" cannot be used: unclosed group"));
        let large = "=~(\\pL{1000}){1000}";
        let why = "it takes more than 1048576 bytes when it is compiled";
        check("kind", large, Err(&format!("the regular expression {:?} cannot be used: {why}", &large[2..])));
    }
}
