//! GET requests whose answers are kept until they change (RFC 9110, section 13: conditional requests).

use super::{Header, HttpError, Request, Response};
use crate::cache;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The status of an answer that did not change.
pub(super) const NOT_MODIFIED: u16 = 304;
/// The headers that ask whether an answer changed (RFC 9110, section 13.1).
pub(super) const CONDITIONS: [&str; 2] = ["if-none-match", "if-modified-since"];

/// The head of an answer in the cache. A line break and the body follow.
#[derive(Serialize, Deserialize)]
struct Head {
    status: u16,
    reason: String,
    headers: Vec<(String, String)>,
}

impl Request {
    /// Sends the request. If the cache has an earlier 2xx answer with an `ETag` or `Last-Modified` header, the request
    /// asks only whether it changed, and if it did not (304), the earlier answer is returned. An answer stays in the
    /// cache for `ttl`, at most a week, and only for this target; a plugin must work without it at any time.
    ///
    /// ```no_run
    /// # use polliwog_sdk::http::Request;
    /// # use std::time::Duration;
    /// let inventory = Request::get("/inventory").send_cached(Duration::from_secs(3600))?;
    /// # Ok::<(), polliwog_sdk::http::HttpError>(())
    /// ```
    ///
    /// # Errors
    /// If there is no response.
    pub fn send_cached(self, ttl: Duration) -> Result<Response, HttpError> {
        let key = self.key();
        let kept = cache::get(&key).and_then(|kept| parse(&kept));
        let validators = kept.iter().flat_map(|(head, _)| validators(head));
        let conditional = validators.fold(self, |request, (name, value)| request.header(name, value));
        let mut response = conditional.send()?;
        match kept {
            Some((Head { status, reason, headers }, body)) if response.status() == NOT_MODIFIED => {
                let headers = headers.into_iter().map(|(name, value)| Header { name, value }).collect();
                let inner = &mut response.inner;
                (inner.status, inner.reason, inner.headers, inner.body) = (status, reason, headers, body);
            }
            _ => keep(&key, &response, ttl),
        }
        Ok(response)
    }

    /// Returns the key of its answer: a hash of what the answer depends on (FNV-1a, 64 bits).
    fn key(&self) -> String {
        let request = &self.0;
        let headers = request.headers.iter().flat_map(|header| [header.name.clone(), super::stable(&header.value)]);
        let parts: Vec<String> =
            [request.method.clone(), super::stable(&request.path)].into_iter().chain(headers).collect();
        let hash =
            parts.iter().flat_map(|part| part.bytes().chain([0])).fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        format!("http/{hash:016x}")
    }
}

/// Returns the headers that ask whether an answer changed.
fn validators(head: &Head) -> Vec<(&'static str, String)> {
    let value = |name: &str| head.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name));
    let of = |name, from| value(from).map(|(_, value)| (name, value.clone()));
    [of(CONDITIONS[0], "etag"), of(CONDITIONS[1], "last-modified")].into_iter().flatten().collect()
}

/// Keeps a whole 2xx answer that the server can compare. Another answer replaces nothing.
fn keep(key: &str, response: &Response, ttl: Duration) {
    let inner = &response.inner;
    let headers = inner.headers.iter().map(|header| (header.name.clone(), header.value.clone())).collect();
    let head = Head { status: inner.status, reason: inner.reason.clone(), headers };
    if !inner.body_complete || !(200..300).contains(&head.status) || validators(&head).is_empty() {
        return;
    }
    let Ok(mut kept) = serde_json::to_vec(&head) else { return };
    kept.push(b'\n');
    kept.extend_from_slice(&inner.body);
    // An answer that is too large for the cache is requested again.
    if cache::set(key, &kept, ttl).is_err() {
        cache::remove(key);
    }
}

fn parse(kept: &[u8]) -> Option<(Head, Vec<u8>)> {
    let end = kept.iter().position(|byte| *byte == b'\n')?;
    Some((serde_json::from_slice(&kept[..end]).ok()?, kept[end + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use crate::testing::{self, Recording};

    struct Twice;

    impl Poller for Twice {
        type Settings = NoSettings;
        const INFO: Info =
            Info { kind: "twice", title: "Twice", version: "0.1.0", summary: "Requests twice", ..Info::SERVICE };

        fn poll(_: &Endpoint, _: NoSettings) -> Result<Report, CallError> {
            let get = || http::get_cached("/items", Duration::from_secs(60));
            let texts = [get()?, get()?].map(|response| format!("{} {}", response.status(), response.text()));
            Ok(texts.map(Dependency::ok).into_iter().collect())
        }
    }

    #[test]
    fn json_is_requested_without_an_operators_condition() {
        let headers = [("If-None-Match", "a"), ("if-modified-since", "b"), ("If-Match", "c"), ("x-a", "d")];
        let headers: Vec<(String, String)> = headers.map(|(name, value)| (name.into(), value.into())).into();
        let request = Request::get_json("", headers.iter().map(|(name, value)| (name, value)));
        let names: Vec<&str> = request.0.headers.iter().map(|header| header.name.as_str()).collect();
        assert_eq!(names, ["accept", "If-Match", "x-a"]);
    }

    /// Polls with two answers. Returns the status and the text of each, as the plugin sees them.
    fn polled(first: &str, second: &str) -> Vec<String> {
        let exchange =
            |response: &str| format!(r#"{{"request": {{"method": "GET", "url": "/items"}}, "response": {response}}}"#);
        let recording = format!("[{}, {}]", exchange(first), exchange(second));
        let target = testing::target("{}");
        cache::remove(&Request::get("/items").key());
        let report = testing::poll::<Twice>(Recording::parse(&recording), target);
        report.map_or_else(
            |error| vec![error.failure().code.clone()],
            |report| report.dependencies.into_iter().map(|dependency| dependency.name).collect(),
        )
    }

    #[test]
    fn an_answer_that_did_not_change_is_the_kept_one() {
        let unchanged = r#"{"status": 304}"#;
        let tagged = r#"{"status": 200, "headers": [["ETag", "\"a\""]], "body": "one\ntwo"}"#;
        let dated = r#"{"status": 200, "headers": [["last-modified", "Sun, 29 Nov 2026 03:00:00 GMT"]], "body": "x"}"#;
        let changed = r#"{"status": 200, "headers": [["etag", "\"b\""]], "body": "three"}"#;
        assert_eq!(polled(tagged, unchanged), ["200 one\ntwo", "200 one\ntwo"]);
        assert_eq!(polled(dated, unchanged), ["200 x", "200 x"]);
        assert_eq!(polled(tagged, changed), ["200 one\ntwo", "200 three"]);
        // Without a kept answer, 304 is not an answer to this request.
        assert_eq!(polled(unchanged, changed), ["not_modified"]);
        assert_eq!(polled(r#"{"status": 200, "body": "x"}"#, unchanged), ["not_modified"]);
        assert_eq!(polled(tagged, r#"{"status": 500}"#), ["server_error"]);
    }
}
