//! Secrets on their way back: stars of the same length.
//!
//! In a JSON body by string token, decoded, so that what was JSON stays JSON of the same shape; elsewhere in its raw,
//! JSON-escaped, percent-encoded and base64 forms; always over the whole body.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use std::fmt;
use std::ops::Range;

/// Finds the values of a target's secrets. Empty when it has none.
#[derive(Default)]
pub(crate) struct Masker {
    needles: Option<AhoCorasick>,
    longest: usize,
}

impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Masker(..)")
    }
}

impl Masker {
    pub(crate) fn new<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let mut longest = 0;
        let needles: Vec<Vec<u8>> =
            values.inspect(|value| longest = longest.max(value.len())).flat_map(forms).collect();
        // Each target has one. That of a ticket of 400 bytes is 32 kB in this form, and would be a megabyte in the fastest
        // one, which is no faster where nothing is found.
        let kind = Some(AhoCorasickKind::ContiguousNFA);
        let build = || AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).kind(kind).build(&needles);
        // Building fails only on more than 2^31 patterns' worth of states; there are a handful.
        Self { needles: (!needles.is_empty()).then(|| build().expect("a handful of short needles")), longest }
    }

    /// The length of the longest value, in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// A body as the plugin may see it.
    pub(crate) fn body(&self, body: Vec<u8>) -> Vec<u8> {
        let Some(needles) = &self.needles else { return body };
        // Nearly every body: no secret as it is, and nothing that could stand for one in another way.
        if !body.iter().any(is_escape) && !needles.is_match(&body) {
            return body;
        }
        if serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok() {
            let masked = json(needles, &body).unwrap_or(body);
            // A secret that holds quotes and commas can lie across tokens; then its shape cannot be kept.
            return raw(needles, masked);
        }
        text(needles, body)
    }

    /// A header, a reason or an error as the plugin may see it. Stars replace whole characters: a needle is text or ASCII.
    pub(crate) fn text(&self, value: Vec<u8>) -> Vec<u8> {
        match &self.needles {
            Some(needles) => text(needles, value),
            None => value,
        }
    }
}

/// A value as it is, and in base64 at each of the three offsets at which it can lie in a longer text.
fn forms(value: &str) -> Vec<Vec<u8>> {
    let mut forms = vec![value.as_bytes().to_vec()];
    for offset in 0..3 {
        let mut shifted = vec![0; offset];
        shifted.extend_from_slice(value.as_bytes());
        // Characters that also depend on what lies before or behind the value are left out.
        let start = (offset * 8).div_ceil(6);
        let end = shifted.len() * 8 / 6;
        forms.push(STANDARD_NO_PAD.encode(&shifted).as_bytes()[start..end].to_vec());
        forms.push(URL_SAFE_NO_PAD.encode(&shifted).as_bytes()[start..end].to_vec());
    }
    // By itself it is nobody's neighbour: then all of it goes, the padding too.
    forms.extend([STANDARD.encode(value), URL_SAFE.encode(value)].map(String::into_bytes));
    forms.extend([STANDARD_NO_PAD.encode(value), URL_SAFE_NO_PAD.encode(value)].map(String::into_bytes));
    forms.sort_unstable();
    forms.dedup();
    forms
}

fn raw(needles: &AhoCorasick, mut bytes: Vec<u8>) -> Vec<u8> {
    let spans: Vec<Range<usize>> = needles.find_iter(&bytes).map(|found| found.range()).collect();
    star(&mut bytes, spans);
    bytes
}

/// Whether a byte begins what stands for another one: in JSON, or in a percent-encoded text.
fn is_escape(byte: &u8) -> bool {
    matches!(byte, b'\\' | b'%' | b'+')
}

/// Stars out every form in text that has no structure.
fn text(needles: &AhoCorasick, bytes: Vec<u8>) -> Vec<u8> {
    let mut spans: Vec<Range<usize>> = needles.find_iter(&bytes).map(|found| found.range()).collect();
    let plus_is_space = [false, true].into_iter().filter(|_| bytes.contains(&b'%') || bytes.contains(&b'+'));
    for plus in plus_is_space {
        spans.extend(Decoded::percent(&bytes, plus).find(needles));
    }
    if bytes.contains(&b'\\') {
        spans.extend(Decoded::escapes(&bytes).find(needles));
    }
    let mut bytes = bytes;
    star(&mut bytes, spans);
    bytes
}

fn star(bytes: &mut [u8], spans: Vec<Range<usize>>) {
    for span in spans {
        bytes[span].fill(b'*');
    }
}

/// Stars out secrets in the tokens of valid JSON; nothing when there is none.
fn json(needles: &AhoCorasick, body: &[u8]) -> Option<Vec<u8>> {
    let mut masked = Vec::new();
    let mut copied = 0;
    for token in tokens(body) {
        let original = &body[token.clone()];
        let replaced = if original[0] == b'"' { string(needles, original) } else { number(needles, original) };
        if let Some(replaced) = replaced {
            masked.extend_from_slice(&body[copied..token.start]);
            masked.extend_from_slice(&replaced);
            copied = token.end;
        }
    }
    (copied > 0).then(|| {
        masked.extend_from_slice(&body[copied..]);
        masked
    })
}

/// Strings with their quotes, and numbers, of valid JSON.
fn tokens(body: &[u8]) -> Vec<Range<usize>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let start = at;
        match body[at] {
            b'"' => {
                at += 1;
                while at < body.len() && body[at] != b'"' {
                    at += if body[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                while at < body.len() && matches!(body[at], b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9') {
                    at += 1;
                }
            }
            _ => {
                at += 1;
                continue;
            }
        }
        tokens.push(start..at.min(body.len()));
    }
    tokens
}

fn string(needles: &AhoCorasick, token: &[u8]) -> Option<Vec<u8>> {
    if !token.iter().any(is_escape) && !needles.is_match(token) {
        return None;
    }
    // A lone surrogate is valid JSON and no text; such a token is judged as it stands.
    let decoded = match serde_json::from_slice::<String>(token) {
        Ok(decoded) => decoded.into_bytes(),
        Err(_) => {
            let masked = text(needles, token.to_vec());
            return (masked != token).then_some(masked);
        }
    };
    let masked = text(needles, decoded.clone());
    if masked == decoded {
        return None;
    }
    Some(serde_json::Value::from(String::from_utf8_lossy(&masked)).to_string().into_bytes())
}

/// A number cannot hold stars: one that holds a secret becomes 0, padded to its length.
fn number(needles: &AhoCorasick, token: &[u8]) -> Option<Vec<u8>> {
    needles.is_match(token).then(|| {
        let mut zero = vec![b' '; token.len()];
        zero[0] = b'0';
        zero
    })
}

/// Text decoded in one way, and where each decoded byte came from: the start and the length of its escape.
struct Decoded {
    bytes: Vec<u8>,
    from: Vec<(u32, u8)>,
}

impl Decoded {
    fn find(&self, needles: &AhoCorasick) -> Vec<Range<usize>> {
        let start = |at: usize| self.from[at].0 as usize;
        let end = |at: usize| start(at) + usize::from(self.from[at].1);
        needles.find_iter(&self.bytes).map(|found| start(found.start())..end(found.end() - 1)).collect()
    }

    /// `decode` is given what is left, and gives the length of an escape and the character that it stands for.
    fn build(text: &[u8], decode: impl Fn(&[u8]) -> Option<(u8, Escaped)>) -> Self {
        let mut decoded = Self { bytes: Vec::with_capacity(text.len()), from: Vec::with_capacity(text.len()) };
        let mut at = 0;
        while at < text.len() {
            let (length, escaped) = decode(&text[at..]).unwrap_or((1, Escaped::Byte(text[at])));
            match escaped {
                Escaped::Byte(byte) => decoded.bytes.push(byte),
                Escaped::Character(c) => decoded.bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
            // Bodies are capped far below 4 GiB.
            decoded.from.resize(decoded.bytes.len(), (at as u32, length));
            at += usize::from(length);
        }
        decoded
    }

    fn percent(text: &[u8], plus_is_space: bool) -> Self {
        Self::build(text, |rest| match rest {
            [b'%', high, low, ..] => hex(&[*high, *low]).map(|byte| (3, Escaped::Byte(byte as u8))),
            [b'+', ..] if plus_is_space => Some((1, Escaped::Byte(b' '))),
            _ => None,
        })
    }

    /// The escapes of JSON strings.
    fn escapes(text: &[u8]) -> Self {
        Self::build(text, |rest| match rest {
            [b'\\', b'u', digits @ ..] if digits.len() >= 4 => unicode(digits),
            [b'\\', b'n', ..] => Some((2, Escaped::Byte(b'\n'))),
            [b'\\', b't', ..] => Some((2, Escaped::Byte(b'\t'))),
            [b'\\', b'r', ..] => Some((2, Escaped::Byte(b'\r'))),
            [b'\\', b'b', ..] => Some((2, Escaped::Byte(8))),
            [b'\\', b'f', ..] => Some((2, Escaped::Byte(12))),
            [b'\\', byte @ (b'"' | b'\\' | b'/'), ..] => Some((2, Escaped::Byte(*byte))),
            _ => None,
        })
    }
}

/// What an escape stands for.
enum Escaped {
    Byte(u8),
    Character(char),
}

/// What follows `\u`: four digits, or a pair of surrogates.
fn unicode(digits: &[u8]) -> Option<(u8, Escaped)> {
    let high = hex(&digits[..4])?;
    let (length, code) = match digits.get(4..10) {
        Some([b'\\', b'u', low @ ..]) if (0xd800..0xdc00).contains(&high) => {
            (12, 0x10000 + ((high - 0xd800) << 10) + hex(low)?.checked_sub(0xdc00)?)
        }
        _ => (6, high),
    };
    Some((length, Escaped::Character(char::from_u32(code)?)))
}

fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, &digit| Some(value * 16 + char::from(digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    const SECRET: &str = "s3cr\"t/ü &val";

    fn masked(body: &str) -> String {
        String::from_utf8(Masker::new([SECRET, "12345678"].into_iter()).body(body.as_bytes().to_vec())).unwrap()
    }

    #[test]
    fn json_keeps_its_shape() {
        let stars = "*".repeat(SECRET.len());
        for (body, expected) in [
            (r#"{"a":"s3cr\"t/ü &val","b":1}"#.to_owned(), format!(r#"{{"a":"{stars}","b":1}}"#)),
            (r#"{"s3cr\"t\/\u00fc \u0026val":[]}"#.to_owned(), format!(r#"{{"{stars}":[]}}"#)),
            (r#"["x s3cr\"t/ü &val y"]"#.to_owned(), format!(r#"["x {stars} y"]"#)),
            ("[12345678, 1]".to_owned(), "[0       , 1]".to_owned()),
            ("[\"12345678\"]".to_owned(), "[\"********\"]".to_owned()),
            (r#"["nothing \n here"]"#.to_owned(), r#"["nothing \n here"]"#.to_owned()),
        ] {
            assert_eq!(masked(&body), expected);
        }
    }

    #[test]
    fn every_form_is_starred_in_other_text() {
        for form in [
            SECRET.to_owned(),
            r#"s3cr\"t/ü &val"#.to_owned(),
            r#"s3cr\u0022t\/\u00FC\u0020&val"#.to_owned(),
            "s3cr%22t%2F%C3%BC%20%26val".to_owned(),
            "s3cr%22t%2f%c3%bc+%26val".to_owned(),
            "%73%33cr%22t/%C3%BC%20&%76al".to_owned(),
        ] {
            assert_eq!(masked(&format!("<p>{form}</p>")), format!("<p>{}</p>", "*".repeat(form.len())), "{form}");
        }
        for before in ["", "u", "us", "use"] {
            let encoded = STANDARD.encode(format!("{before}{SECRET}"));
            let seen = masked(&format!("Basic {encoded}"));
            assert!(seen.matches('*').count() + 6 >= SECRET.len() * 4 / 3, "{seen}");
        }
    }

    #[test]
    fn a_secret_across_tokens_is_starred_at_the_cost_of_shape() {
        let masker = Masker::new(["a\",\"bcdef"].into_iter());
        assert_eq!(masker.body(br#"["a","bcdef"]"#.to_vec()), br#"["*********"]"#);
    }

    proptest! {
        /// Whatever the secret and wherever it is put, it is not in what comes out, and JSON stays JSON.
        #[test]
        fn never_in_the_output(secret in "[a-zA-Z0-9!#$%&()+,./:;<=>?@_{|}~ üß-]{8,20}", before in "[a-z*]{0,3}", after in ".{0,3}") {
            let masker = Masker::new([secret.as_str()].into_iter());
            let bodies = [
                serde_json::json!({ "k": format!("{before}{secret}{after}"), &secret: 1 }).to_string(),
                format!("{before}{secret}{after}"),
                format!("<{}>", serde_json::Value::from(secret.as_str())),
            ];
            for body in bodies {
                let json = serde_json::from_str::<serde_json::Value>(&body).is_ok();
                let seen = masker.body(body.into_bytes());
                let seen = String::from_utf8(seen).unwrap();
                prop_assert!(!seen.contains(&secret), "{seen}");
                prop_assert!(!json || serde_json::from_str::<serde_json::Value>(&seen).is_ok());
            }
        }
    }
}
