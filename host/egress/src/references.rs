//! References: what stands in a request for a value that its author does not know, a secret or a signature.
//!
//! An operator writes `${secret.NAME}` or `${basic.NAME}`. A plugin asks the host for a reference instead, which
//! contains a random number of the call. So a text of a server that looks like a reference stays a text, whatever the
//! plugin puts it into. A reference consists of letters, digits, `.`, `_` and `-`, which every encoding of a text
//! leaves as they are.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// The beginning of each reference.
const BEGIN: &str = "polliwog.";
/// Maximum length of the name in a reference in bytes.
pub(crate) const LONGEST_NAME: usize = 64;

/// Returns whether a reference can have a name: 1 to 64 letters, digits, `_` and `-`.
pub(crate) fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(is_plain)
}

/// The value that a reference stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// The value of a secret.
    Secret,
    /// The base64 of a secret of the form `user:password`.
    Basic,
    /// The result of a signature of the request.
    Signature,
}

impl Scheme {
    /// All schemes with their names.
    const ALL: [(&str, Self); 3] = [("secret", Self::Secret), ("basic", Self::Basic), ("signature", Self::Signature)];

    pub(crate) fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, scheme)| *scheme == self).map_or("", |(word, _)| word)
    }
}

/// A reference: what it stands for, and the name of the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference<'t> {
    pub scheme: Scheme,
    pub name: &'t str,
}

impl<'t> Reference<'t> {
    /// Parses `secret.NAME`.
    fn parse(text: &'t str) -> Option<Self> {
        let (word, name) = text.split_once('.')?;
        let (_, scheme) = Scheme::ALL.into_iter().find(|(known, _)| *known == word)?;
        is_name(name).then_some(Self { scheme, name })
    }

    /// Parses the inner part of a reference that an operator wrote. Only a plugin knows the names of signatures.
    fn parse_written(text: &'t str) -> Option<Self> {
        Self::parse(text).filter(|reference| reference.scheme != Scheme::Signature)
    }
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'t> {
    Text(&'t str),
    Reference(Reference<'t>),
}

/// The references of one call.
#[derive(Debug, Default)]
pub(crate) struct References {
    /// The beginning of the references of this call. It is made with the first of them.
    mark: OnceLock<String>,
}

impl References {
    /// Returns the reference to `secret.NAME`, `basic.NAME` or `signature.NAME`. A request with the reference of any
    /// other text fails, because no secret has its name.
    pub(crate) fn of(&self, name: &str) -> String {
        if Reference::parse(name).is_none() {
            let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
            let plain: String = name.chars().chain(['_']).map(plain).take(LONGEST_NAME).collect();
            return self.of(&format!("secret.{plain}"));
        }
        // The keys of a state are random, and its hashes do not reveal them.
        let number = || RandomState::new().hash_one(BEGIN);
        let mark = self.mark.get_or_init(|| format!("{BEGIN}{:016x}{:016x}.", number(), number()));
        format!("{mark}{name}.")
    }

    /// Returns an operator's text with references in place of `${secret.NAME}` and `${basic.NAME}`, and `${` in place
    /// of `$${`. Any other `${` stays.
    pub(crate) fn written(&self, text: &str) -> String {
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            if let Some(before) = before.strip_suffix('$') {
                replaced.push_str(before);
                replaced.push_str("${");
                rest = &from[2..];
                continue;
            }
            replaced.push_str(before);
            match from[2..].split_once('}').filter(|(inner, _)| Reference::parse_written(inner).is_some()) {
                Some((inner, behind)) => {
                    replaced.push_str(&self.of(inner));
                    rest = behind;
                }
                None => {
                    replaced.push_str("${");
                    rest = &from[2..];
                }
            }
        }
        replaced.push_str(rest);
        replaced
    }

    /// Returns whether no text can contain a reference, because none was made in this call.
    pub(crate) fn is_empty(&self) -> bool {
        self.mark.get().is_none()
    }

    /// Returns the parts of a text.
    pub(crate) fn parts<'t>(&self, text: &'t str) -> Vec<Part<'t>> {
        let Some(mark) = self.mark.get() else { return vec![Part::Text(text)] };
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(mark.as_str()) {
            let inner = &rest[at + mark.len()..];
            // The name has no dot, so the second one is the end.
            let end = inner.match_indices('.').nth(1).map(|(end, _)| end);
            let found = end.and_then(|end| Some((end, Reference::parse(&inner[..end])?)));
            match found {
                Some((end, reference)) => {
                    parts.push(Part::Text(&rest[..at]));
                    parts.push(Part::Reference(reference));
                    rest = &inner[end + 1..];
                }
                None => {
                    parts.push(Part::Text(&rest[..at + mark.len()]));
                    rest = inner;
                }
            }
        }
        parts.push(Part::Text(rest));
        parts
    }

    /// Returns a text with `${secret.NAME}` in place of references, as recordings have it.
    pub(crate) fn shown(&self, text: &str) -> String {
        if self.mark.get().is_none() {
            return text.to_owned();
        }
        let shown = |part: Part<'_>| match part {
            Part::Text(text) => text.to_owned(),
            Part::Reference(Reference { scheme, name }) => format!("${{{}.{name}}}", scheme.word()),
        };
        self.parts(text).into_iter().map(shown).collect()
    }
}

/// Returns a URL with its references as they were written: a URL parser replaces the braces of those in the path.
pub fn with_written_references(url: &str) -> String {
    let mut text = String::with_capacity(url.len());
    let mut rest = url;
    while let Some((before, after)) = rest.split_once("$%7B") {
        let Some((inner, behind)) = after.split_once("%7D") else { break };
        text.push_str(&format!("{before}${{{inner}}}"));
        rest = behind;
    }
    text + rest
}

/// Returns whether an operator's text has a reference to a secret.
pub fn has_references(text: &str) -> bool {
    References::default().written(text) != text.replace("$${", "${")
}

/// Returns the problems of an operator's text: references to secrets that do not exist, and texts that look like
/// references with a mistake. Each is one sentence.
pub fn reference_problems(text: &str, is_known: impl Fn(&str) -> bool) -> Vec<String> {
    let mut problems = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        rest = &from[2..];
        let Some((inner, behind)) = rest.split_once('}').filter(|_| !before.ends_with('$')) else { continue };
        match Reference::parse_written(inner) {
            Some(Reference { name, .. }) if !is_known(name) => {
                problems.push(format!("there is no secret {name:?}: add it to secrets, or correct the name"));
            }
            Some(_) => {}
            None => {
                let word = inner.trim_start().to_ascii_lowercase();
                let mut writable = Scheme::ALL.into_iter().filter(|(_, scheme)| *scheme != Scheme::Signature);
                if let Some((meant, _)) = writable.find(|(known, _)| word.starts_with(known)) {
                    let shown: String = inner.chars().take(LONGEST_NAME).collect();
                    problems.push(format!(
                        "${{{shown}}} is not a reference to a secret: write ${{{meant}.NAME}}, or $${{{shown}}} for this text"
                    ));
                }
            }
        }
        rest = behind;
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operators_references_are_replaced_and_other_texts_stay() {
        let references = References::default();
        let token = references.of("secret.token");
        for (written, expected) in [
            ("Bearer ${secret.token}!", format!("Bearer {token}!")),
            ("${basic.to-k_3}", references.of("basic.to-k_3")),
            ("${secret.token}${secret.token}", format!("{token}{token}")),
            ("$${secret.token} $${", "${secret.token} ${".to_owned()),
            ("$$${secret.token}", "$${secret.token}".to_owned()),
            ("${HOME} ${} ${ ${secret} ${secret.} ${secrets.a} ${secret.a b} ${signature.a} $x }", String::new()),
            ("${secret.token", String::new()),
            ("", String::new()),
        ] {
            let expected = if expected.is_empty() { written.to_owned() } else { expected };
            assert_eq!(references.written(written), expected, "{written}");
        }
    }

    #[test]
    fn the_braces_of_references_in_a_url_are_restored() {
        for (url, expected) in [
            ("http://a/bot$%7Bsecret.token%7D/x?y=${secret.z}", "http://a/bot${secret.token}/x?y=${secret.z}"),
            ("http://a/%7Bx%7D/$%7Bopen", "http://a/%7Bx%7D/$%7Bopen"),
        ] {
            assert_eq!(with_written_references(url), expected);
        }
    }

    #[test]
    fn only_references_of_the_call_are_found() {
        let (references, others) = (References::default(), References::default());
        assert_eq!(references.parts("a polliwog.x."), [Part::Text("a polliwog.x.")], "nothing was referred to");
        let token = references.of("secret.token");
        let reference = Part::Reference(Reference { scheme: Scheme::Secret, name: "token" });
        assert_eq!(references.parts(&format!("a {token}b")), [Part::Text("a "), reference, Part::Text("b")]);
        assert_eq!(references.shown(&format!("a {token}b${{x}}")), "a ${secret.token}b${x}");
        // Text that looks like one.
        let foreign = others.of("secret.token");
        assert_ne!(foreign, token);
        for text in [foreign.as_str(), "${secret.token}", &token[..token.len() - 1], &token[1..]] {
            assert!(references.parts(text).iter().all(|part| matches!(part, Part::Text(_))), "{text}");
            assert_eq!(references.shown(text), text);
        }
        for (odd, name) in
            [("secrets.a", "secrets_a_"), ("secret.", "secret__"), ("", "_"), ("secret.../é", "secret______")]
        {
            let found = references.shown(&references.of(odd));
            assert_eq!(found, format!("${{secret.{name}}}"), "{odd}");
        }
        assert!(references.of(&"x".repeat(1000)).len() < 200);
        assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)), "{token}");
    }
}
