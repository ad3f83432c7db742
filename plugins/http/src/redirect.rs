//! Sends the request and follows redirects.

use crate::settings::{HttpMethod, Settings};
use polliwog_sdk::http::{BodyEncoding, HttpError, HttpErrorClass, Request, Response};
use polliwog_sdk::prelude::*;
use std::time::Duration;

/// The longest text that ends the reading of a body, in bytes.
const LONGEST_SOUGHT: usize = 256;

/// Why there is no answer to check.
pub(crate) enum Stopped {
    /// The configuration is wrong, and the request was not sent.
    Unsent(HttpError),
    /// The server did not answer.
    Unanswered(HttpError),
    /// The server redirected to this URL, and the host refused to request it.
    Elsewhere(String, HttpError),
}

/// Sends the request and follows at most the configured number of redirects. Returns the last answer.
pub(crate) fn followed(target: &Endpoint, settings: &Settings) -> Result<Response, Stopped> {
    let mut method = settings.method;
    let mut url = target.url.clone();
    // An empty path sends the target's own URL unchanged.
    let mut path = String::new();
    // Reserve a tenth of the time, so that a request that times out becomes a report and not a failed poll.
    let share = target.timeout_ms / 10 * 9 / (u32::from(settings.redirects) + 1);
    for hop in 0..=settings.redirects {
        let stopped = |error: HttpError| match error.class {
            HttpErrorClass::Denied | HttpErrorClass::InvalidArgument if hop > 0 => {
                Stopped::Elsewhere(url.clone(), error)
            }
            HttpErrorClass::Denied | HttpErrorClass::InvalidArgument => Stopped::Unsent(error),
            _ => Stopped::Unanswered(error),
        };
        let request = reading(settings, request(settings, method, &path));
        let response = request.timeout(Duration::from_millis(share.into())).send().map_err(stopped)?;
        let location = response.header("location").map(|location| joined(&url, location));
        let Some(next) = location.filter(|_| hop < settings.redirects && (300..400).contains(&response.status()))
        else {
            return Ok(response);
        };
        // Like browsers: only 307 and 308 repeat the POST.
        if method == HttpMethod::Post && !matches!(response.status(), 307 | 308) {
            method = HttpMethod::Get;
        }
        (path, url) = (next.clone(), next);
    }
    unreachable!("the last hop returns its answer")
}

/// Sets how much of the body is read. One that nothing is checked in is not waited for: a stream has no end. One in
/// which a single text must be is read up to it.
fn reading(settings: &Settings, request: Request) -> Request {
    match (settings.body_contains.as_slice(), settings.body_excludes.as_slice()) {
        ([], []) => request.read_nothing(),
        ([wanted], []) if wanted.len() <= LONGEST_SOUGHT => request.read_until([wanted.as_str()]),
        _ => request,
    }
}

fn request(settings: &Settings, method: HttpMethod, path: &str) -> Request {
    let method_on_wire = match method {
        HttpMethod::Get => "GET",
        HttpMethod::Head => "HEAD",
        HttpMethod::Post => "POST",
    };
    let mut request = Request::new(method_on_wire, path);
    if let Some(secret) = &settings.basic_auth {
        request = request.header("authorization", format!("Basic {}", http::basic(secret)));
    }
    let Some(body) = settings.body.as_ref().filter(|_| method == HttpMethod::Post) else {
        return request.configured_headers(&settings.headers);
    };
    let encoding = match settings.content_type.split(';').next().unwrap_or_default().trim() {
        "application/x-www-form-urlencoded" => BodyEncoding::Form,
        kind if kind == "application/json" || kind.ends_with("+json") => BodyEncoding::Json,
        _ => BodyEncoding::Raw,
    };
    let request = request.header("content-type", &settings.content_type).body(body.as_bytes(), encoding);
    request.configured_headers(&settings.headers)
}

/// Returns the scheme, host and port of a URL. `None` if it is not one of http.
pub(crate) fn origin(url: &str) -> Option<&str> {
    let host = url.find("://").filter(|end| matches!(&url[..*end], "http" | "https"))? + 3;
    let length = url[host..].find(['/', '?', '#']).unwrap_or(url.len() - host);
    (length > 0).then_some(&url[..host + length])
}

/// Resolves a `Location` against a URL (RFC 3986, section 5.2, for http). The host resolves dot segments.
fn joined(url: &str, location: &str) -> String {
    let location = location.split('#').next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    if location.contains("://") {
        return location.to_owned();
    }
    if let Some(rest) = location.strip_prefix("//") {
        return format!("{scheme}://{rest}");
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let folder = path.rfind('/').map_or("/", |slash| &path[..=slash]);
    match location.chars().next() {
        None => url.to_owned(),
        Some('/') => format!("{scheme}://{authority}{location}"),
        Some('?') => format!("{scheme}://{authority}{}{location}", if path.is_empty() { "/" } else { path }),
        Some(_) => format!("{scheme}://{authority}{folder}{location}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_resolved_according_to_rfc_3986() {
        for (url, location, expected) in [
            ("http://a/b/c?q", "d", "http://a/b/d"),
            ("http://a/b/c", "/d?x=1#part", "http://a/d?x=1"),
            ("http://a", "d", "http://a/d"),
            ("http://a?q=/x/", "d", "http://a/d"),
            ("https://a:8443/b/", "../d", "https://a:8443/b/../d"),
            ("https://a/b", "//c/d", "https://c/d"),
            ("https://a/b", "http://c/d", "http://c/d"),
            ("http://a/b/c", "?y", "http://a/b/c?y"),
            ("http://a/b", "", "http://a/b"),
        ] {
            assert_eq!(joined(url, location), expected, "{url} {location}");
        }
    }
}
