//! Answers made of arbitrary bytes, for the fuzzer: what an origin may send, and what must hold of what a plugin sees.

use crate::captures::{Answer, Captured, Place, Sent};
use crate::mask::Masker;
use crate::message::{Capture, CaptureSource};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::sync::LazyLock;
use std::time::Duration;

/// Two secrets of one length, and a value of the same length that nobody hides. No two begin alike, and none repeats itself.
const SECRETS: [&str; 2] = ["q8Zk3mWx0pTy7LnA", "vB5rHj1sUe6iOc2K"];
const NEUTRAL: &str = "Gw4Vu-9fSd+2h.tQ";

/// Stands for the secret in an answer; the byte behind it chooses the form.
const HERE: u8 = 1;

/// Puts a secret where the answer has it, and compares what a plugin sees of two secrets.
///
/// # Panics
/// When the two look different, when a secret is seen, or when JSON is JSON no more.
pub fn mask(answer: &[u8]) {
    static MASKERS: LazyLock<[Masker; 2]> = LazyLock::new(|| SECRETS.map(|secret| Masker::new([secret].into_iter())));
    let maskers = &*MASKERS;
    // What knows a secret by itself may tell the two apart; nobody can prevent that.
    let neutral = filled(answer, NEUTRAL);
    if maskers.iter().any(|masker| wait(masker.body(neutral.clone())) != neutral) {
        return;
    }
    let [first, second] = [0, 1].map(|which| {
        let sent = filled(answer, SECRETS[which]);
        let seen = wait(maskers[which].body(sent.clone()));
        assert!(!contains(&seen, SECRETS[which].as_bytes()), "the secret is seen in {:?}", sent.escape_ascii());
        assert!(!is_json(&sent) || is_json(&seen), "no JSON any more: {:?}", sent.escape_ascii());
        seen
    });
    assert_eq!(first.escape_ascii().to_string(), second.escape_ascii().to_string());
}

/// Captures what the first line points at in the rest.
///
/// # Panics
/// When what was captured is still seen in its place, or when JSON is JSON no more.
pub fn captures(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (pointer, body) = bytes.split_at(end);
    let mut body = body.to_vec();
    let pointer = String::from_utf8_lossy(pointer).into_owned();
    let mut headers = vec![("set-cookie".to_owned(), format!("{pointer}; path=/"))];
    let capture = |name: &str, source| Capture { name: name.to_owned(), source, ttl: Duration::from_secs(60) };
    let captures = [
        capture("pointed", CaptureSource::JsonPointer(pointer.clone())),
        capture("cookie", CaptureSource::Cookie("session".to_owned())),
    ];
    let captured = Captured::default();
    let answer = Answer { status: 200, headers: &headers, body: &body };
    let Ok(places) = captured.keep((&captures, &Sent::default()), &answer) else { return };
    let (was_json, kept) = (is_json(&body), captured.good().contains_key("pointed"));
    let before = body.clone();
    Place::star(places, &mut headers, &mut body);
    assert!(headers[0].1.bytes().all(|byte| byte == b'*'), "a cookie is seen: {headers:?}");
    assert!(!was_json || is_json(&body), "no JSON any more: {:?}", before.escape_ascii());
    // A value of stars alone looks the same afterwards.
    let stars = before.contains(&b'*');
    assert!(!kept || stars || body != before, "what was captured is seen in {:?}", before.escape_ascii());
}

/// The answer with `secret` in it, each time in the form that the byte behind the mark chooses, and apart from the rest.
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
