//! Fuzz entry points: builds answers from arbitrary bytes and checks the promises about what a plugin sees.

use crate::captures::{Answer, Captured, Matches, Place, Sent};
use crate::mask::Masker;
use crate::message::{Capture, CaptureSource};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::sync::LazyLock;
use std::time::Duration;

/// Two secrets of equal length, and a value of the same length that is not a secret. All three have different
/// beginnings, and none contains a repetition.
const SECRETS: [&str; 2] = ["q8Zk3mWx0pTy7LnA", "vB5rHj1sUe6iOc2K"];
const NEUTRAL: &str = "Gw4Vu-9fSd+2h.tQ";

/// Marks the position of the secret in an answer. The next byte selects the encoding.
const HERE: u8 = 1;

/// Inserts each secret at the marks of the answer and compares the masked results.
///
/// # Panics
/// Panics if the results differ, if a secret is visible, or if masking breaks valid JSON.
pub fn mask(answer: &[u8]) {
    static MASKERS: LazyLock<[Masker; 2]> = LazyLock::new(|| SECRETS.map(|secret| Masker::new([secret].into_iter())));
    let maskers = &*MASKERS;
    // An answer that already contains a secret can distinguish the two. Masking cannot prevent that.
    let neutral = filled(answer, NEUTRAL);
    if maskers.iter().any(|masker| wait(masker.body(neutral.clone())) != neutral) {
        return;
    }
    let [first, second] = [0, 1].map(|which| {
        let sent = filled(answer, SECRETS[which]);
        let seen = wait(maskers[which].body(sent.clone()));
        assert!(!contains(&seen, SECRETS[which].as_bytes()), "the secret is visible in {:?}", sent.escape_ascii());
        assert!(!is_json(&sent) || is_json(&seen), "masking broke the JSON: {:?}", sent.escape_ascii());
        seen
    });
    assert_eq!(first.escape_ascii().to_string(), second.escape_ascii().to_string());
}

/// Captures the value at the JSON pointer in the first line from the remaining lines.
///
/// # Panics
/// Panics if a captured value is still visible, or if masking breaks valid JSON.
pub fn captures(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (pointer, body) = bytes.split_at(end);
    let mut body = body.to_vec();
    let pointer = String::from_utf8_lossy(pointer).into_owned();
    let cookie = format!("{pointer}; path=/");
    let mut headers = vec![("set-cookie".to_owned(), cookie.clone())];
    let capture = |name: &str, source| Capture::new(name, source, Duration::from_secs(60));
    let captures = [
        capture("pointed", CaptureSource::JsonPointer(pointer.clone())),
        capture("cookie", CaptureSource::Cookie("session".to_owned())),
    ];
    let captured = Captured::default();
    let answer = Answer {
        status: 200,
        headers: &headers,
        body: &body,
        is_masked: false,
        permits_short: false,
        is_replayed: false,
        matches: &Matches::new(),
    };
    let Ok(places) = captured.keep(&captures, &Sent::default(), &answer) else { return };
    let (was_json, kept) = (is_json(&body), captured.valid().contains_key("pointed"));
    let before = body.clone();
    Place::star(places, &mut headers, &mut body);
    let (pair, attributes) = headers[0].1.split_once(';').expect("attributes stay");
    let value = pair.split_once('=').map_or(pair, |(_, value)| value).trim().trim_matches('"');
    assert!(value.bytes().all(|byte| byte == b'*'), "a cookie is visible: {headers:?}");
    assert_eq!(Some(attributes), cookie.split_once(';').map(|(_, attributes)| attributes));
    assert!(!was_json || is_json(&body), "masking broke the JSON: {:?}", before.escape_ascii());
    // Masking does not change a value that consists of stars.
    let stars = before.contains(&b'*');
    assert!(!kept || stars || body != before, "the captured value is visible in {:?}", before.escape_ascii());
}

/// Returns the answer with `secret` at each mark, in the encoding that the byte after the mark selects, between
/// delimiters.
fn filled(answer: &[u8], secret: &str) -> Vec<u8> {
    let mut parts = answer.split(|byte| *byte == HERE);
    let mut filled = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let (form, rest) = part.split_first().unwrap_or((&0, &[]));
        filled.extend_from_slice(format!("|{}|", in_form(*form, secret)).as_bytes());
        filled.extend_from_slice(rest);
    }
    filled
}

fn in_form(form: u8, secret: &str) -> String {
    let each = |of: fn(u8) -> String| secret.bytes().map(of).collect::<String>();
    match form % 9 {
        0 => secret.to_owned(),
        1 => secret.to_ascii_uppercase(),
        2 => each(|byte| format!("%{byte:02x}")),
        3 => each(|byte| format!("%25{byte:02X}")),
        4 => each(|byte| format!("\\u{byte:04x}")),
        5 => each(|byte| format!("&#{byte};")),
        6 => each(|byte| format!("{byte:02x}")),
        7 => STANDARD.encode(secret),
        _ => STANDARD.encode(format!("user:{secret}")),
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime of one thread").block_on(future)
}
