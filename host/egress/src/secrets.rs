//! Secrets on their way out.
//!
//! `${secret.NAME}` in header values and bodies, `${basic.NAME}` in header values.

use crate::Error;
use crate::mask::Masker;
use crate::message::BodyEncoding;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Shorter values would star out half of every answer.
const SHORTEST: usize = 8;

/// A target's secrets by name. Never printed.
#[derive(Debug, Default)]
pub struct Secrets {
    values: BTreeMap<String, SecretString>,
    masker: Masker,
}

/// A value that cannot be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value of the secret {name:?} {why}")]
pub struct InvalidSecret {
    name: String,
    why: &'static str,
}

impl Secrets {
    /// Checks each value: at least 8 bytes, without CR, LF and NUL.
    pub fn new(values: BTreeMap<String, SecretString>) -> Result<Self, InvalidSecret> {
        values.iter().try_for_each(|(name, value)| Self::check(name, value.expose_secret()))?;
        let masker = Masker::new(values.values().map(ExposeSecret::expose_secret));
        Ok(Self { values, masker })
    }

    pub(crate) fn check(name: &str, value: &str) -> Result<(), InvalidSecret> {
        let why = if value.len() < SHORTEST {
            "is shorter than 8 bytes, too short to be masked in answers: use a longer one"
        } else if value.contains(['\r', '\n', '\0']) {
            "contains a line break or a NUL byte: remove it (a file may end in one line break)"
        } else {
            return Ok(());
        };
        Err(InvalidSecret { name: name.to_owned(), why })
    }

    /// Whether there is a secret of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// All secrets that a request may name, or that an answer is masked for: the operator's, and what was captured.
pub(crate) struct Known<'a>(pub &'a [&'a Secrets]);

impl Known<'_> {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|secrets| secrets.is_empty())
    }

    fn value(&self, name: &str) -> Option<&SecretString> {
        self.0.iter().find_map(|secrets| secrets.values.get(name))
    }

    /// Names of the secrets that a text refers to, those that are there.
    pub(crate) fn named_in<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let names = text.split("${").skip(1).filter_map(|rest| rest.split_once('}')?.0.split_once('.'));
        let known = names.filter(|(scheme, name)| matches!(*scheme, "secret" | "basic") && self.value(name).is_some());
        known.map(|(_, name)| name)
    }

    /// A header, a reason or an error as the plugin may see it.
    pub(crate) fn masked(&self, text: String) -> String {
        let masked = self.masked_by_each(text.into_bytes(), Masker::text);
        String::from_utf8(masked).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// A body as the plugin may see it.
    pub(crate) fn masked_body(&self, body: Vec<u8>) -> Vec<u8> {
        self.masked_by_each(body, Masker::body)
    }

    /// A secret may be a part of another one, or overlap it: each is looked for in the original, not in what the one before
    /// left of it.
    fn masked_by_each(&self, original: Vec<u8>, mask: impl Fn(&Masker, Vec<u8>) -> Vec<u8>) -> Vec<u8> {
        let mut maskers: Vec<&Masker> =
            self.0.iter().filter(|secrets| !secrets.is_empty()).map(|secrets| &secrets.masker).collect();
        if let [one] = maskers[..] {
            return mask(one, original);
        }
        let each: Vec<Vec<u8>> = maskers.iter().map(|masker| mask(masker, original.clone())).collect();
        if each.iter().any(|masked| masked.len() != original.len()) {
            // Stars are shorter than escapes that they stand for. Then those go first that others may be a part of.
            maskers.sort_by_key(|masker| Reverse(masker.longest()));
            return maskers.into_iter().fold(original, |masked, masker| mask(masker, masked));
        }
        let mut all = original.clone();
        for masked in each {
            for ((byte, masked), original) in all.iter_mut().zip(masked).zip(&original) {
                if masked != *original {
                    *byte = masked;
                }
            }
        }
        all
    }

    /// A header's value with its secrets filled in.
    pub(crate) fn expand_header(&self, value: &str) -> Result<String, Error> {
        self.expand(value, |scheme, secret| match scheme {
            "secret" => Some(secret.to_owned()),
            "basic" => Some(STANDARD.encode(secret)),
            _ => None,
        })
    }

    /// A body with its secrets filled in. One that is no UTF-8 names none.
    pub(crate) fn expand_body(&self, body: Vec<u8>, encoding: BodyEncoding) -> Result<Vec<u8>, Error> {
        let text = match String::from_utf8(body) {
            Ok(text) => text,
            Err(error) => return Ok(error.into_bytes()),
        };
        let expanded = self.expand(&text, |scheme, secret| (scheme == "secret").then(|| encoded(secret, encoding)))?;
        Ok(expanded.into_bytes())
    }

    /// Replaces each `${scheme.NAME}` whose scheme `render` knows.
    fn expand(&self, text: &str, render: impl Fn(&str, &str) -> Option<String>) -> Result<String, Error> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            expanded.push_str(&rest[..at]);
            rest = &rest[at..];
            let reference = rest.find('}').and_then(|end| Some((end, rest[2..end].split_once('.')?)));
            match reference {
                Some((end, (scheme @ ("secret" | "basic"), name))) => {
                    let value = self.value(name).ok_or_else(|| Error::SecretUnknown(name.to_owned()))?;
                    match render(scheme, value.expose_secret()) {
                        Some(value) => expanded.push_str(&value),
                        None => expanded.push_str(&rest[..=end]),
                    }
                    rest = &rest[end + 1..];
                }
                _ => {
                    expanded.push_str("${");
                    rest = &rest[2..];
                }
            }
        }
        expanded.push_str(rest);
        Ok(expanded)
    }
}

fn encoded(secret: &str, encoding: BodyEncoding) -> String {
    match encoding {
        BodyEncoding::Raw => secret.to_owned(),
        BodyEncoding::Form => secret.bytes().fold(String::new(), |form, byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => form + &char::from(byte).to_string(),
            _ => form + &format!("%{byte:02X}"),
        }),
        BodyEncoding::Json => {
            let quoted = serde_json::Value::from(secret).to_string();
            quoted[1..quoted.len() - 1].to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        let values = [("token", "s3cr\"t &val"), ("login", "user:password")];
        Secrets::new(values.map(|(name, value)| (name.to_owned(), SecretString::from(value))).into()).unwrap()
    }

    #[test]
    fn a_secret_inside_or_across_another_one_is_masked_with_it() {
        let of = |value: &str| Secrets::new([("x".to_owned(), SecretString::from(value))].into()).unwrap();
        let (password, ticket, other) = (of("monitor1"), of("PMG:monitor1@pmg:SIGNED"), of("SIGNED-AND-MORE"));
        let (empty, body) =
            (Secrets::default(), r#"["PMG:monitor1@pmg:SIGNED-AND-MORE", "\u0050MG:monitor1@pmg:SIGNED"]"#);
        let stars = |count: usize| "*".repeat(count);
        for all in [[&password, &ticket, &other, &empty], [&other, &empty, &ticket, &password]] {
            let seen = Known(&all).masked_body(body.as_bytes().to_vec());
            let seen = String::from_utf8(seen).unwrap();
            assert!(!seen.contains("SIGNED") && !seen.contains("monitor"), "{seen}");
            assert!(serde_json::from_str::<Vec<String>>(&seen).is_ok(), "{seen}");
            assert_eq!(Known(&all).masked("PMG:monitor1@pmg:SIGNED-AND-MORE!".to_owned()), stars(32) + "!");
        }
    }

    #[test]
    fn references_are_filled_in() {
        let (operators, captured) = (secrets(), Secrets::default());
        let all = [&captured, &operators];
        let secrets = Known(&all);
        for (text, expected) in [
            ("plain", "plain"),
            ("Bearer ${secret.token}!", "Bearer s3cr\"t &val!"),
            ("Basic ${basic.login}", "Basic dXNlcjpwYXNzd29yZA=="),
            ("${other.x} ${ $ ${secret", "${other.x} ${ $ ${secret"),
            ("${secret.token}${secret.token}", "s3cr\"t &vals3cr\"t &val"),
        ] {
            assert_eq!(secrets.expand_header(text).unwrap(), expected);
        }
        assert_eq!(secrets.expand_header("${secret.nobody}"), Err(Error::SecretUnknown("nobody".to_owned())));
        for (encoding, expected) in [
            (BodyEncoding::Raw, "p=s3cr\"t &val ${basic.login}"),
            (BodyEncoding::Form, "p=s3cr%22t%20%26val ${basic.login}"),
            (BodyEncoding::Json, "p=s3cr\\\"t &val ${basic.login}"),
        ] {
            let body = secrets.expand_body(b"p=${secret.token} ${basic.login}".to_vec(), encoding).unwrap();
            assert_eq!(String::from_utf8(body).unwrap(), expected);
        }
        assert_eq!(secrets.expand_body(vec![0xff, b'$'], BodyEncoding::Raw).unwrap(), vec![0xff, b'$']);
    }

    #[test]
    fn bad_values_are_refused_and_never_printed() {
        for bad in ["tiny", "with\nbreak", "with\0nul!", "with\rreturn"] {
            let error = Secrets::new([("t".to_owned(), SecretString::from(bad))].into()).unwrap_err();
            assert!(!error.to_string().contains(bad), "{error}");
        }
        assert!(!format!("{:?}", secrets()).contains("password"));
    }
}
