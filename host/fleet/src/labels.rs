//! Labels of devices, with the rules of Kubernetes.

use std::collections::BTreeMap;
use std::fmt;

/// The labels of a device, by key.
pub type Labels = BTreeMap<String, String>;

/// A label that Kubernetes would refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidLabel {
    /// The rejected key or value, shortened for display.
    pub text: String,
    /// The rule in words.
    pub rule: &'static str,
}

impl fmt::Display for InvalidLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} does not fit: {}", self.text, self.rule)
    }
}

impl std::error::Error for InvalidLabel {}

fn refused(text: &str, rule: &'static str) -> Result<(), InvalidLabel> {
    Err(InvalidLabel { text: text.chars().take(80).collect(), rule })
}

/// Checks a key: a name of at most 63 characters, with an optional DNS name and a slash before it.
pub(crate) fn check_key(key: &str) -> Result<(), InvalidLabel> {
    const RULE: &str = "the key of a label is 1 to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends; \
                        a DNS name of at most 253 characters and '/' may come before it";
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_dns = |prefix: &str| {
        prefix.len() <= 253
            && prefix
                .split('.')
                .all(|part| is_word(part) && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')))
    };
    if is_word(name) && prefix.is_none_or(is_dns) { Ok(()) } else { refused(key, RULE) }
}

/// Checks a value: empty, or like a key's name.
pub(crate) fn check_value(value: &str) -> Result<(), InvalidLabel> {
    const RULE: &str =
        "the value of a label is at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends";
    if value.is_empty() || is_word(value) { Ok(()) } else { refused(value, RULE) }
}

/// Checks the labels of a device.
///
/// # Errors
/// If a key or a value breaks a rule, or there are more than 64 labels.
pub fn check(labels: &Labels) -> Result<(), InvalidLabel> {
    /// Most labels of a device. A record must fit into a message.
    const MOST: usize = 64;
    if labels.len() > MOST {
        return refused(&labels.len().to_string(), "a device has at most 64 labels");
    }
    labels.iter().try_for_each(|(key, value)| check_key(key).and_then(|()| check_value(value)))
}

fn is_word(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_follow_the_rules_of_kubernetes() {
        for good in ["site", "app.kubernetes.io/name", "a", "A-1_b.c", &"x".repeat(63)] {
            assert_eq!(check_key(good), Ok(()), "{good}");
        }
        for bad in ["", "-a", "a-", "a/", "/a", "a/b/c", "A.b/c", "x..y/z", "a b", "*", ">", "é", &"x".repeat(64)] {
            assert!(check_key(bad).is_err(), "{bad:?}");
        }
        for good in ["", "0", "v1.2.3", "Site_A"] {
            assert_eq!(check_value(good), Ok(()), "{good}");
        }
        for bad in ["-", ".", "a/b", "a b", "a>", &"x".repeat(64)] {
            assert!(check_value(bad).is_err(), "{bad:?}");
        }
        let many: Labels = (0..65).map(|n| (format!("k{n}"), String::new())).collect();
        assert!(check(&many).unwrap_err().to_string().contains("at most 64"));
    }
}
