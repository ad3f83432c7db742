//! Which devices a deployment is for.

use crate::labels::{InvalidLabel, Labels, check_key, check_value};
use std::fmt;

/// Chooses devices by their labels: all requirements must hold. Without requirements, it chooses all devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Labels that a device must have (`matchLabels`).
    pub labels: Labels,
    /// Further requirements (`matchExpressions`).
    pub requirements: Vec<Requirement>,
}

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The label has one of these values.
    In(String, Vec<String>),
    /// The label has none of these values, or is missing.
    NotIn(String, Vec<String>),
    /// The label is there.
    Exists(String),
    /// The label is missing.
    DoesNotExist(String),
}

impl Selector {
    /// Whether a device with these labels is chosen. The definition; [`crate::Aggregator`] uses an index instead.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.requirements.iter().all(|requirement| match requirement {
                Requirement::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
                Requirement::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
                Requirement::Exists(key) => labels.contains_key(key),
                Requirement::DoesNotExist(key) => !labels.contains_key(key),
            })
    }

    /// Checks keys and values.
    ///
    /// # Errors
    /// If a key or a value breaks a rule, or a requirement with values has none.
    pub fn check(&self) -> Result<(), InvalidLabel> {
        for (key, value) in &self.labels {
            check_key(key)?;
            check_value(value)?;
        }
        for requirement in &self.requirements {
            match requirement {
                Requirement::Exists(key) | Requirement::DoesNotExist(key) => check_key(key)?,
                Requirement::In(key, values) | Requirement::NotIn(key, values) => {
                    check_key(key)?;
                    values.iter().try_for_each(|value| check_value(value))?;
                    if values.is_empty() {
                        let rule = "a requirement with In or NotIn needs at least one value";
                        return Err(InvalidLabel { text: key.clone(), rule });
                    }
                }
            }
        }
        Ok(())
    }
}

/// The notation of kubectl: `env=prod,site in (a,b),!maintenance`.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equal = self.labels.iter().map(|(key, value)| format!("{key}={value}"));
        let others = self.requirements.iter().map(|requirement| match requirement {
            Requirement::In(key, values) => format!("{key} in ({})", values.join(",")),
            Requirement::NotIn(key, values) => format!("{key} notin ({})", values.join(",")),
            Requirement::Exists(key) => key.clone(),
            Requirement::DoesNotExist(key) => format!("!{key}"),
        });
        f.write_str(&equal.chain(others).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(all: &[(&str, &str)]) -> Labels {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn requirements_mean_what_they_mean_in_kubernetes() {
        let values = |all: &[&str]| all.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        let device = labels(&[("env", "prod"), ("site", "a")]);
        let cases = [
            (Selector::default(), true, ""),
            (Selector { labels: labels(&[("env", "prod")]), ..Selector::default() }, true, "env=prod"),
            (Selector { labels: labels(&[("env", "dev")]), ..Selector::default() }, false, "env=dev"),
        ];
        let requirements = [
            (Requirement::In("site".to_owned(), values(&["a", "b"])), true, "site in (a,b)"),
            (Requirement::In("row".to_owned(), values(&["a"])), false, "row in (a)"),
            (Requirement::NotIn("site".to_owned(), values(&["a"])), false, "site notin (a)"),
            (Requirement::NotIn("row".to_owned(), values(&["a"])), true, "row notin (a)"),
            (Requirement::Exists("site".to_owned()), true, "site"),
            (Requirement::Exists("row".to_owned()), false, "row"),
            (Requirement::DoesNotExist("site".to_owned()), false, "!site"),
            (Requirement::DoesNotExist("row".to_owned()), true, "!row"),
        ];
        let one = |requirement| Selector { requirements: vec![requirement], ..Selector::default() };
        let requirements = requirements.map(|(requirement, holds, text)| (one(requirement), holds, text));
        for (selector, holds, text) in cases.into_iter().chain(requirements) {
            assert_eq!((selector.matches(&device), selector.to_string().as_str()), (holds, text));
            assert_eq!(selector.check(), Ok(()));
        }
        assert!(one(Requirement::In("site".to_owned(), Vec::new())).check().is_err());
        assert!(one(Requirement::Exists("a.*.b".to_owned())).check().is_err());
    }
}
