//! Inserts secrets and signatures into requests.
//!
//! Header values may contain references to `secret.NAME` and `basic.NAME`, bodies and permitted paths to `secret.NAME`,
//! and all of them to `signature.NAME`.

use crate::Error;
use crate::mask::{Masker, SHORTEST};
use crate::message::BodyEncoding;
use crate::private_key;
use crate::references::{Part, Reference, References, Scheme};
use crate::signed::Signed;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Maximum number of references in one header, body or path.
const REFERENCES: usize = 16;

/// Values of secrets by name.
pub(crate) type Values = BTreeMap<String, SecretString>;

/// The secrets of a target by name. They are never printed.
#[derive(Debug, Default)]
pub struct Secrets {
    values: Values,
    /// The names of private keys. They sign, and are inserted nowhere.
    private_keys: BTreeSet<String>,
    masker: Masker,
}

/// The rules for the values of secrets, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretRules {
    /// Secrets that may be shorter than 8 bytes. Short values cannot be masked: the plugin sees them if a server sends
    /// them back.
    pub short: BTreeSet<String>,
    /// Private keys in PEM, which have several lines and are used for signatures only.
    pub private_keys: BTreeSet<String>,
}

/// An error for a value that cannot be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value of the secret {name:?} {why}")]
pub struct InvalidSecret {
    name: String,
    why: &'static str,
}

impl Secrets {
    /// Creates the secrets of a target. Fails if a value is shorter than 8 bytes or contains CR, LF or NUL.
    pub fn new(values: BTreeMap<String, SecretString>) -> Result<Self, InvalidSecret> {
        Self::with_rules(values, SecretRules::default())
    }

    /// Like [`Self::new`], with rules for single secrets.
    pub fn with_rules(values: BTreeMap<String, SecretString>, rules: SecretRules) -> Result<Self, InvalidSecret> {
        let SecretRules { short, private_keys } = rules;
        for (name, value) in &values {
            let value = value.expose_secret();
            let (is_short, may_be_short) = (value.len() < SHORTEST, short.contains(name));
            if private_keys.contains(name) {
                check_private_key(name, value)?;
            } else if is_short && may_be_short && !value.is_empty() {
                check_characters(name, value)?;
            } else {
                check_value(name, value)?;
            }
        }
        // A private key reaches no server, and its first line is not secret.
        let masked = values.iter().filter(|(name, _)| !private_keys.contains(*name));
        let masker = Masker::new(masked.map(|(_, value)| value.expose_secret()));
        Ok(Self { values, private_keys, masker })
    }

    /// Returns names and values, in the order of the names.
    pub(crate) fn exposed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.expose_secret()))
    }

    /// Returns whether there is a secret with this name.
    pub fn contains(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Returns the names of all secrets.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Masks the values in a text of a server, in the encodings that the module `mask` recognises.
    pub async fn masked(&self, text: String) -> String {
        self.masker.text(text).await
    }

    /// Returns what finds the values in answers.
    pub(crate) fn masker(&self) -> &Masker {
        &self.masker
    }
}

/// Checks that a value can be a secret: at least 8 bytes, without CR, LF and NUL.
fn check_value(name: &str, value: &str) -> Result<(), InvalidSecret> {
    if value.len() < SHORTEST {
        let why = "is shorter than 8 bytes, too short to be masked in answers: use a longer value, or write short = true \
                   next to its source (,short after it on the command line), which makes it visible in answers";
        return Err(InvalidSecret { name: name.to_owned(), why });
    }
    check_characters(name, value)
}

/// Checks that a value is a private key in PEM.
fn check_private_key(name: &str, value: &str) -> Result<(), InvalidSecret> {
    if private_key::is_valid(value) {
        return Ok(());
    }
    let why = "is not a private key in PEM: it must begin with a line like -----BEGIN PRIVATE KEY----- and must not be \
               encrypted";
    Err(InvalidSecret { name: name.to_owned(), why })
}

/// Checks that a value has no characters that end a header.
pub(crate) fn check_characters(name: &str, value: &str) -> Result<(), InvalidSecret> {
    if value.contains(['\r', '\n', '\0']) {
        let why = "contains a line break or a NUL byte: remove it (a file may end in one line break)";
        return Err(InvalidSecret { name: name.to_owned(), why });
    }
    Ok(())
}

/// The secrets that a request may use: the operator's and the captured ones, and its signatures.
pub(crate) struct AvailableSecrets<'a> {
    pub operators: &'a Secrets,
    pub captured: &'a Values,
    pub references: &'a References,
}

impl AvailableSecrets<'_> {
    /// Returns whether no secret is available.
    pub(crate) fn is_empty(&self) -> bool {
        self.operators.values.is_empty() && self.captured.is_empty()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn find(&self, name: &str) -> Option<&SecretString> {
        self.operators.values.get(name).or_else(|| self.captured.get(name))
    }

    /// Returns a secret that may be inserted. `of` names its user in errors.
    pub(crate) fn value(&self, name: &str, of: &str) -> Result<&SecretString, Error> {
        if self.operators.private_keys.contains(name) {
            let why = format!("{of} uses it, and a private key only signs");
            return Err(Error::SecretUnusable { name: name.to_owned(), why });
        }
        self.find(name).ok_or_else(|| Error::SecretUnknown(name.to_owned()))
    }

    /// Returns a secret for signatures with a private key.
    pub(crate) fn private_key(&self, name: &str) -> Result<&SecretString, Error> {
        self.find(name).ok_or_else(|| Error::SecretUnknown(name.to_owned()))
    }

    /// Returns the names of the available secrets that a text refers to.
    pub(crate) fn named_in<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let name = |part| match part {
            Part::Reference(Reference { scheme: Scheme::Secret | Scheme::Basic, name }) => Some(name),
            _ => None,
        };
        let names = self.references.parts(text).into_iter().filter_map(name);
        names.filter(|name| self.contains(name)).take(REFERENCES)
    }

    /// Returns the first name that bytes refer to, for example `secret.key`.
    pub(crate) fn referred(&self, bytes: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(bytes).ok().filter(|_| !self.references.is_empty())?;
        self.references.parts(text).into_iter().find_map(|part| match part {
            Part::Reference(Reference { scheme, name }) => Some(format!("{}.{name}", scheme.word())),
            Part::Text(_) => None,
        })
    }

    /// Returns whether a text refers to a signature.
    pub(crate) fn refers_to_signature(&self, text: &[u8]) -> bool {
        let is_signature =
            |part: &Part<'_>| matches!(part, Part::Reference(found) if found.scheme == Scheme::Signature);
        !self.references.is_empty()
            && std::str::from_utf8(text).is_ok_and(|text| self.references.parts(text).iter().any(is_signature))
    }

    /// Returns a header value with its secrets inserted.
    pub(crate) fn expand_header(&self, signed: &Signed, value: &str) -> Result<String, Error> {
        self.expand(signed, value, "a header", |reference, value| match reference.scheme {
            Scheme::Secret | Scheme::Signature => Some(value.to_owned()),
            Scheme::Basic => Some(STANDARD.encode(value)),
        })
    }

    /// Returns a body with its secrets inserted. A body that is not UTF-8 is returned unchanged.
    pub(crate) fn expand_body(&self, signed: &Signed, body: Vec<u8>, encoding: BodyEncoding) -> Result<Vec<u8>, Error> {
        if self.references.is_empty() {
            return Ok(body);
        }
        let text = match String::from_utf8(body) {
            Ok(text) => text,
            Err(error) => return Ok(error.into_bytes()),
        };
        let render = |reference: Reference<'_>, value: &str| {
            (reference.scheme != Scheme::Basic).then(|| encoded(value, encoding))
        };
        Ok(self.expand(signed, &text, "its body", render)?.into_bytes())
    }

    /// Returns a path and query with its secrets inserted. A secret of an operator may contain several segments of the
    /// path, and no query. A captured value or a signature is one segment, or one value of the query.
    pub(crate) fn expand_path(&self, signed: &Signed, path_and_query: &str) -> Result<String, Error> {
        self.expand(signed, path_and_query, "its path", |Reference { scheme, name }, value| match scheme {
            Scheme::Secret if self.operators.contains(name) => Some(in_path(value)),
            Scheme::Secret | Scheme::Signature => Some(percent_encoded(value, b"")),
            Scheme::Basic => None,
        })
    }

    /// Replaces each reference by the text that `render` returns. `of` names the text in errors.
    fn expand(
        &self,
        signed: &Signed,
        text: &str,
        of: &str,
        render: impl Fn(Reference<'_>, &str) -> Option<String>,
    ) -> Result<String, Error> {
        if self.references.is_empty() {
            return Ok(text.to_owned());
        }
        let parts = self.references.parts(text);
        if parts.iter().filter(|part| matches!(part, Part::Reference(_))).count() > REFERENCES {
            return Err(Error::BadRequest(format!("{of} refers to secrets more than {REFERENCES} times")));
        }
        let mut expanded = String::with_capacity(text.len());
        for part in parts {
            match part {
                Part::Text(text) => expanded.push_str(text),
                Part::Reference(Reference { scheme, name }) => {
                    let value = match scheme {
                        Scheme::Signature => signed.text(name)?,
                        Scheme::Secret | Scheme::Basic => self.value(name, of)?.expose_secret(),
                    };
                    let rendered = render(Reference { scheme, name }, value);
                    expanded.push_str(&rendered.ok_or_else(|| {
                        Error::BadRequest(format!("{of} refers to basic.{name}, which only a header can have"))
                    })?);
                }
            }
        }
        Ok(expanded)
    }
}

/// Percent-encodes a text, except letters, digits, `-._~` and the bytes in `plain`.
fn percent_encoded(text: &str, plain: &[u8]) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            byte if plain.contains(&byte) => encoded.push(byte.into()),
            _ => write!(encoded, "%{byte:02X}").expect("writing to a string never fails"),
        }
        encoded
    })
}

/// A secret as a part of a path: the characters of a path (RFC 3986, section 3.3) stay as they are. A `%` stays too,
/// because operators copy such secrets from URLs.
fn in_path(secret: &str) -> String {
    percent_encoded(secret, b"/:@!$&'()*+,;=%")
}

fn encoded(secret: &str, encoding: BodyEncoding) -> String {
    match encoding {
        BodyEncoding::Raw => secret.to_owned(),
        BodyEncoding::Form => percent_encoded(secret, b""),
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
    fn references_are_replaced_by_secrets() {
        let (operators, references) = (secrets(), References::default());
        let secrets = AvailableSecrets { operators: &operators, captured: &Values::new(), references: &references };
        let header = |text: &str| secrets.expand_header(&Signed::default(), &references.written(text));
        for (text, expected) in [
            ("plain", "plain"),
            ("Bearer ${secret.token}!", "Bearer s3cr\"t &val!"),
            ("Basic ${basic.login}", "Basic dXNlcjpwYXNzd29yZA=="),
            ("${other.x} ${ $ ${secret", "${other.x} ${ $ ${secret"),
            ("${secret.token}${secret.token}", "s3cr\"t &vals3cr\"t &val"),
        ] {
            assert_eq!(header(text).unwrap(), expected);
            assert_eq!(
                secrets.expand_header(&Signed::default(), text).unwrap(),
                text,
                "a plugin's own text has no references"
            );
        }
        assert_eq!(header("${secret.missing}"), Err(Error::SecretUnknown("missing".to_owned())));
        let body = |text: &str, encoding| {
            secrets.expand_body(&Signed::default(), references.written(text).into_bytes(), encoding)
        };
        for (encoding, expected) in [
            (BodyEncoding::Raw, "p=s3cr\"t &val"),
            (BodyEncoding::Form, "p=s3cr%22t%20%26val"),
            (BodyEncoding::Json, "p=s3cr\\\"t &val"),
        ] {
            assert_eq!(String::from_utf8(body("p=${secret.token}", encoding).unwrap()).unwrap(), expected);
        }
        assert_eq!(body("${basic.login}", BodyEncoding::Raw).unwrap_err().code(), "bad_request");
        assert_eq!(
            secrets.expand_body(&Signed::default(), vec![0xff, b'$'], BodyEncoding::Raw).unwrap(),
            vec![0xff, b'$']
        );
        let many = |count: usize| body(&"${secret.token}".repeat(count), BodyEncoding::Raw);
        assert!(many(REFERENCES).is_ok());
        assert_eq!(many(REFERENCES + 1).unwrap_err().code(), "bad_request");
    }

    #[test]
    fn references_in_a_path_are_replaced_by_segments() {
        let values = [("token", "123456:ABC-d"), ("path", "T00/B00/x?y z#%2F")];
        let values = values.map(|(name, value)| (name.to_owned(), SecretString::from(value)));
        let (operators, references) = (Secrets::new(values.into()).unwrap(), References::default());
        let secrets = AvailableSecrets { operators: &operators, captured: &Values::new(), references: &references };
        let expanded = |url: &str| {
            let (_, path) = crate::requested(&url::Url::parse(&references.written(url)).unwrap()).unwrap();
            secrets.expand_path(&Signed::default(), &path)
        };
        for (url, expected) in [
            ("http://a/plain?x=1", "/plain?x=1"),
            ("http://a/bot${secret.token}/send", "/bot123456:ABC-d/send"),
            ("http://a/services/${secret.path}", "/services/T00/B00/x%3Fy%20z%23%2F"),
            ("http://a/%7Bx%7D/$%7Bopen", "/%7Bx%7D/$%7Bopen"),
            ("http://a/?key=${secret.token}", "/?key=123456:ABC-d"),
        ] {
            assert_eq!(expanded(url).unwrap(), expected, "{url}");
        }
        assert_eq!(expanded("http://a/${secret.no}"), Err(Error::SecretUnknown("no".to_owned())));
        assert_eq!(expanded("http://a/${basic.token}").unwrap_err().code(), "bad_request");
    }

    #[test]
    fn invalid_values_are_refused_and_never_printed() {
        for bad in ["tiny", "with\nbreak", "with\0nul!", "with\rreturn"] {
            let error = Secrets::new([("t".to_owned(), SecretString::from(bad))].into()).unwrap_err();
            assert!(!error.to_string().contains(bad), "{error}");
        }
        assert!(!format!("{:?}", secrets()).contains("password"));
        let rules = SecretRules { short: BTreeSet::from(["pin".to_owned()]), ..SecretRules::default() };
        let with = |name: &str, value: &str| {
            Secrets::with_rules([(name.to_owned(), SecretString::from(value))].into(), rules.clone()).is_ok()
        };
        for (name, value, expected) in
            [("pin", "1234", true), ("pin", "", false), ("pin", "1\n2", false), ("other", "1234", false)]
        {
            assert_eq!(with(name, value), expected, "{name} {value:?}");
        }
    }
}
