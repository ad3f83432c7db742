//! Parsing of bodies as JSON.

use crate::CallError;
use serde::Deserialize;
use std::cell::OnceCell;

/// The most bytes of a body that an error shows on each side of a place.
const SHOWN: usize = 30;
/// The most bytes of the beginning of a body that an error shows.
const START: usize = 60;

/// Parses a body as JSON.
///
/// # Errors
/// If it is not JSON, or has another shape. The failure is transient (`not_json`, `unexpected_shape`), because proxies
/// and gateways answer 200 with their own pages. Its message quotes the place.
///
/// ```
/// # use polliwog_sdk::json;
/// let waiting: u64 = json(b"12")?;
/// assert_eq!(json::<u64>(b"<html>").unwrap_err().failure().code, "not_json");
/// # Ok::<(), polliwog_sdk::CallError>(())
/// ```
pub fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, CallError> {
    parsed(body).map_err(|error| failure(body, &error))
}

/// Parses a body as JSON, with the numbers that JSON does not have, and bytes that are not UTF-8. `readable` keeps the
/// copy without these.
pub(crate) fn tolerant<'a, T: Deserialize<'a>>(body: &'a [u8], readable: &'a OnceCell<String>) -> Result<T, CallError> {
    let error = match parsed(body) {
        Ok(value) => return Ok(value),
        Err(error) if error.is_data() => return Err(failure(body, &error)),
        Err(error) => error,
    };
    let text = readable.get_or_init(|| repaired(&String::from_utf8_lossy(body)));
    serde_json::from_str(text).map_err(|again| match again.is_data() {
        true => failure(body, &again),
        false => failure(body, &error),
    })
}

fn parsed<'a, T: Deserialize<'a>>(body: &'a [u8]) -> serde_json::Result<T> {
    // The body is checked for UTF-8 once, instead of each text in it.
    std::str::from_utf8(body).map_or_else(|_| serde_json::from_slice(body), serde_json::from_str)
}

/// Returns the failure for a body that cannot be parsed, with the place.
fn failure(body: &[u8], error: &serde_json::Error) -> CallError {
    let (code, problem) = match error.is_data() {
        true => ("unexpected_shape", "the body has an unexpected shape"),
        false => ("not_json", "the body is not JSON"),
    };
    if body.trim_ascii().is_empty() {
        return CallError::transient(code, "the answer has no body: check that the URL is correct");
    }
    let begins_as_json = body.trim_ascii_start().first().is_some_and(|first| b"{[\"".contains(first));
    let lines = body.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1));
    let at = (lines.map(<[u8]>::len).sum::<usize>() + error.column()).min(body.len());
    let message = if at > START && begins_as_json {
        let text = |from: usize, to: usize| String::from_utf8_lossy(&body[from..to]).into_owned();
        let (before, after) = (text(at.saturating_sub(SHOWN), at), text(at, body.len().min(at + SHOWN)));
        format!("{problem} ({error}): there is {before:?}, then {after:?}")
    } else {
        let start = String::from_utf8_lossy(&body[..body.len().min(START)]).into_owned();
        let advice = match body {
            // RFC 1952, section 2.3.
            [0x1f, 0x8b, ..] => ": it is compressed with gzip, and its headers do not say so",
            _ if begins_as_json => "",
            _ => ": check that the URL is correct",
        };
        format!("{problem} ({error}); it starts with {start:?}{advice}")
    };
    CallError::transient(code, message)
}

/// Returns a JSON text without what many writers emit and JSON does not have, so that a field that is not read does not
/// fail a poll. `NaN`, `Infinity` and numbers beyond the range of `f64` become texts; in texts, control characters are
/// escaped, and halves of surrogate pairs replaced. Everything else is unchanged.
fn repaired(text: &str) -> String {
    let mut readable = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' => end_of_string(rest),
            _ if is_of_word(first) => rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()),
            _ => rest.find(|c| c == '"' || is_of_word(c)).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(end);
        match first {
            '"' => repair_string(token, &mut readable),
            _ if is_odd_number(token) => readable.extend(["\"", token, "\""]),
            _ => readable.push_str(token),
        }
        rest = after;
    }
    readable
}

/// Adds a JSON string, with control characters escaped, and `\ufffd` for halves of surrogate pairs.
fn repair_string(token: &str, readable: &mut String) {
    let unit = |at: usize| {
        let digits = token.get(at..at + 6).and_then(|escape| escape.strip_prefix("\\u"))?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut at = 0;
    while let Some(first) = token[at..].chars().next() {
        let length = match (first, unit(at)) {
            ('\\', Some(0xd800..=0xdbff)) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => 12,
            ('\\', Some(0xd800..=0xdfff)) => {
                readable.push_str("\\ufffd");
                at += 6;
                continue;
            }
            // The character behind a backslash does not begin an escape.
            ('\\', _) => 1 + token[at + 1..].chars().next().map_or(0, char::len_utf8),
            (first, _) if first < ' ' => {
                readable.push_str(&format!("\\u{:04x}", u32::from(first)));
                at += 1;
                continue;
            }
            (first, _) => first.len_utf8(),
        };
        readable.push_str(&token[at..at + length]);
        at += length;
    }
}

/// Returns the length of the string at the beginning of a text, with its quotes.
fn end_of_string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')
}

fn is_odd_number(token: &str) -> bool {
    let word = token.trim_start_matches(['+', '-']);
    if ["nan", "inf", "infinity"].iter().any(|odd| word.eq_ignore_ascii_case(odd)) {
        return token.len() <= word.len() + 1;
    }
    let is_number = token.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    is_number && token.parse::<f64>().is_ok_and(f64::is_infinite)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(body: &[u8]) -> Result<Value, CallError> {
        tolerant(body, &OnceCell::new())
    }

    #[test]
    fn numbers_that_json_does_not_have_do_not_fail_a_body() {
        for (number, expected) in [
            ("NaN", json!("NaN")),
            ("nan", json!("nan")),
            ("-nan", json!("-nan")),
            ("Infinity", json!("Infinity")),
            ("-Infinity", json!("-Infinity")),
            ("+inf", json!("+inf")),
            ("1e400", json!("1e400")),
            ("-1E+999", json!("-1E+999")),
            ("1e-400", json!(0.0)),
            ("123456789012345678901234567890", json!(1.234_567_890_123_456_8e29)),
        ] {
            let body = format!("{{\"status\": \"N\\\"aN\", \"rate\":{number},\"list\":[{number} , true]}}");
            let expected = json!({ "status": "N\"aN", "rate": expected, "list": [expected, true] });
            assert_eq!(read(body.as_bytes()).unwrap(), expected, "{number}");
        }
        for (text, expected) in [
            (r#""cut \ud83d""#, "cut \u{fffd}"),
            (r#""\udc00\ud83d\ude00\ud83d\u0041""#, "\u{fffd}😀\u{fffd}A"),
            (r#""\\ud83d""#, "\\ud83d"),
            ("\"a\tb\nc\"", "a\tb\nc"),
        ] {
            assert_eq!(read(format!("[{text}]").as_bytes()).unwrap(), json!([expected]), "{text}");
        }
        assert_eq!(read(b"{\"name\": \"Z\xfcrich\"}").unwrap(), json!({ "name": "Z\u{fffd}rich" }));
        for body in ["{\"a\": nope}", "{\"a\": +-nan}", "{\"a\": .5}", "{\"a\": 01}", "[\"NaN", "[1e400", "", "\\"] {
            assert_eq!(read(body.as_bytes()).unwrap_err().failure().code, "not_json", "{body}");
        }
    }

    #[test]
    fn an_error_quotes_the_place() {
        let long = format!("[\n{}\n{{\"rate\": nope}}]", "\"filler\",".repeat(20));
        for (body, quoted) in [
            (long.as_str(), "expected"),
            (long.as_str(), "{\\\"rate\\\": n"),
            ("<html>", "it starts with \"<html>\": check that the URL is correct"),
            ("{\"a\": nope}", "it starts with \"{\\\"a\\\": nope}\""),
        ] {
            let message = read(body.as_bytes()).unwrap_err().failure().message.clone();
            assert!(message.contains(quoted), "{message}");
        }
        let of_json = read(b"{\"a\": nope}").unwrap_err();
        assert!(!of_json.failure().message.contains("URL"), "{of_json:?}");
        let shape = tolerant::<Vec<u8>>(b"{\"a\": NaN}", &OnceCell::new()).unwrap_err();
        assert_eq!(shape.failure().code, "unexpected_shape");
    }
}
