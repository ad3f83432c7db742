//! The request, and where its answer sends it.

use crate::settings::{HttpMethod, Settings};
use polliwog_sdk::http::{BodyEncoding, HttpError, Method, Request, Response};
use polliwog_sdk::prelude::*;

/// Codes that say what is wrong with the configuration rather than with the server.
const OPERATOR_ERRORS: [&str; 3] = ["denied", "secret_unknown", "bad_request"];

/// Why there is no answer to judge.
pub(crate) enum Stopped {
    /// The operator has to mend something: nothing was sent.
    Unsent(HttpError),
    /// The server did not answer.
    Unanswered(HttpError),
    /// It was redirected to an address that the target may not reach.
    Elsewhere(String),
}

/// Asks, and follows redirects as far as the settings say. The last answer is the one that is judged.
pub(crate) fn followed(target: &Target, settings: &Settings) -> Result<Response, Stopped> {
    let mut method = settings.method;
    let mut url = target.url.clone();
    // The target's own URL goes out as it is written.
    let mut path = String::new();
    // A tenth of the time is kept back, so that silence becomes a report and not the end of the poll.
    let share = target.timeout_ms / 10 * 9 / (u32::from(settings.redirects) + 1);
    for hop in 0..=settings.redirects {
        let stopped = |error: HttpError| match OPERATOR_ERRORS.contains(&error.code.as_str()) {
            true if hop > 0 && error.code == "denied" => Stopped::Elsewhere(url.clone()),
            true => Stopped::Unsent(error),
            false => Stopped::Unanswered(error),
        };
        let response = request(settings, method, &path).timeout_ms(share).send().map_err(stopped)?;
        let location = response.header("location").map(|location| joined(&url, location));
        let Some(next) = location.filter(|_| hop < settings.redirects && (300..400).contains(&response.status()))
        else {
            return Ok(response);
        };
        // As browsers do: only 307 and 308 send the same again.
        if method == HttpMethod::Post && !matches!(response.status(), 307 | 308) {
            method = HttpMethod::Get;
        }
        (path, url) = (next.clone(), next);
    }
    unreachable!("the last hop returns its answer")
}

fn request(settings: &Settings, method: HttpMethod, path: &str) -> Request {
    let word = match method {
        HttpMethod::Get => Method::Get,
        HttpMethod::Head => Method::Head,
        HttpMethod::Post => Method::Post,
    };
    let mut request = Request::new(word, path);
    for (name, value) in &settings.headers {
        request = request.header(name, value);
    }
    if let Some(secret) = &settings.basic_auth {
        request = request.header("authorization", format!("Basic ${{basic.{secret}}}"));
    }
    let Some(body) = settings.body.as_ref().filter(|_| method == HttpMethod::Post) else { return request };
    let encoding = match settings.content_type.split(';').next().unwrap_or_default().trim() {
        "application/x-www-form-urlencoded" => BodyEncoding::Form,
        kind if kind == "application/json" || kind.ends_with("+json") => BodyEncoding::Json,
        _ => BodyEncoding::Raw,
    };
    request.header("content-type", &settings.content_type).body(body.as_bytes(), encoding)
}

/// Where a `Location` leads from a URL (RFC 3986, section 5.2, for http); the host resolves what is left of dots.
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
    fn locations_are_joined_as_rfc_3986_says() {
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
