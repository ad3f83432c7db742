//! Sends the request and follows redirects.

use crate::settings::{HttpMethod, Settings};
use polliwog_sdk::http::{BodyEncoding, HttpError, HttpErrorClass, Request, Response, TlsSession};
use polliwog_sdk::prelude::*;
use std::time::Duration;

/// The longest text that ends the reading of a body, in bytes.
const LONGEST_SOUGHT: usize = 256;
/// Number of redirects that are followed if the operator does not say how many.
const USUAL_REDIRECTS: u8 = 3;
/// The length of a URL in a message, in characters.
const LONGEST_SHOWN: usize = 120;

/// Why there is no answer to check.
pub(crate) enum Stopped {
    /// The configuration is wrong, and the request was not sent.
    Unsent(HttpError),
    /// The server did not answer.
    Unanswered(HttpError),
    /// The server redirected to this URL, and the host refused to request it.
    Elsewhere(String, HttpError),
}

/// The answer to check.
pub(crate) struct Answered {
    pub response: Response,
    /// Whether it came over TLS.
    pub is_secure: bool,
    /// Why its redirect was not followed, for the message about its status.
    pub stopped: Option<String>,
}

/// The redirects that were followed.
#[derive(Default)]
pub(crate) struct Redirects {
    /// The servers that redirected over TLS.
    pub servers: Vec<Server>,
    /// The time until they had answered.
    pub took: Duration,
}

/// A server that redirected.
pub(crate) struct Server {
    pub origin: String,
    pub session: TlsSession,
}

/// Sends the request and follows redirects, which it notes. Returns the last answer.
pub(crate) fn followed(target: &Endpoint, settings: &Settings, redirects: &mut Redirects) -> Result<Answered, Stopped> {
    let most = settings.redirects.unwrap_or(USUAL_REDIRECTS);
    // Reserve a tenth of the time, so that a request that times out becomes a report and not a failed poll.
    let reserve = Duration::from_millis((target.timeout_ms / 10).into());
    // An empty path sends the target's own URL unchanged.
    let mut hop = Hop { method: settings.method, url: target.url.clone(), path: String::new(), keeps_secrets: true };
    let mut way = vec![hop.url.clone()];
    loop {
        let is_first = way.len() == 1;
        let stopped = |error: HttpError| match error.class {
            HttpErrorClass::Denied | HttpErrorClass::InvalidArgument if !is_first => {
                Stopped::Elsewhere(hop.url.clone(), error)
            }
            HttpErrorClass::Denied | HttpErrorClass::InvalidArgument => Stopped::Unsent(error),
            _ => Stopped::Unanswered(error),
        };
        let timeout = clock::remaining().saturating_sub(reserve);
        let response = reading(settings, request(settings, &hop)).timeout(timeout).send().map_err(stopped)?;
        let is_secure = hop.url.starts_with("https:");
        let answered = |response, stopped| Ok(Answered { response, is_secure, stopped });
        let status = response.status();
        let is_wanted = settings.redirects.is_none() && settings.expects(status);
        let location = response.header("location").filter(|_| (300..400).contains(&status) && !is_wanted && most > 0);
        let Some(next) = location.map(|location| without_user(joined(&hop.url, location))) else {
            let way = (!is_first).then(|| format!("after a redirect to {}", shortened(&hop.url)));
            return answered(response, way);
        };
        // Like browsers: only 307 and 308 repeat the POST.
        let method = match (hop.method, status) {
            (HttpMethod::Post, 307 | 308) => HttpMethod::Post,
            (HttpMethod::Post, _) => HttpMethod::Get,
            (method, _) => method,
        };
        let is_circle = method == hop.method && way.contains(&next);
        if is_circle || way.len() > most.into() {
            let how = if is_circle { "in a circle".to_owned() } else { format!("after {most} redirects") };
            let shown: Vec<String> = way.iter().chain([&next]).map(|url| shortened(url)).collect();
            return answered(response, Some(format!("{how}: {}", shown.join(" → "))));
        }
        // A server that was asked over TLS does not choose to be asked without, also where the first request was.
        let keeps_secrets = hop.keeps_secrets && keeps_secrets(&target.url, &next) && keeps_secrets(&hop.url, &next);
        if !keeps_secrets && method == HttpMethod::Post && settings.body.as_deref().is_some_and(http::has_reference) {
            let why = format!("its redirect to {} is not followed, because the body has secrets", shortened(&next));
            return answered(response, Some(why));
        }
        redirects.took += response.latency();
        let session = is_secure.then(|| response.tls()).flatten();
        let server = |session| Server { origin: origin(&hop.url).unwrap_or_default().to_owned(), session };
        redirects.servers.extend(session.map(server));
        way.push(next.clone());
        hop = Hop { method, url: next.clone(), path: next, keeps_secrets };
    }
}

/// A request on the way.
struct Hop {
    method: HttpMethod,
    url: String,
    path: String,
    /// Whether it may contain secrets. They stay with the server that they were configured for.
    keeps_secrets: bool,
}

/// Returns whether secrets for a URL may be sent to another one: to the same host, and not without TLS instead of with.
fn keeps_secrets(from: &str, to: &str) -> bool {
    let host = |url: &str| {
        let authority = origin(url).and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
        let name = authority.map(|authority| match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => authority,
        });
        name.map(str::to_ascii_lowercase)
    };
    host(from).is_some_and(|from| Some(from) == host(to)) && (to.starts_with("https:") || from.starts_with("http:"))
}

/// Whether a header says as whom this host asks, also if its value is written in the configuration.
fn is_credential(name: &str) -> bool {
    ["authorization", "cookie", "proxy-authorization"].iter().any(|secret| name.eq_ignore_ascii_case(secret))
}

/// Removes a user and a password from a URL: a server does not choose as whom this host logs in.
fn without_user(url: String) -> String {
    let Some(begin) = origin(&url).and_then(|_| url.find("://")).map(|at| at + 3) else { return url };
    let authority = url[begin..].find(['/', '?', '#']).map_or(url.len(), |end| begin + end);
    match url[begin..authority].rfind('@') {
        Some(at) => format!("{}{}", &url[..begin], &url[begin + at + 1..]),
        None => url,
    }
}

/// Shortens a URL for a message.
fn shortened(url: &str) -> String {
    match url.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}…", &url[..end]),
        None => url.to_owned(),
    }
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

fn request(settings: &Settings, hop: &Hop) -> Request {
    let &Hop { method, ref path, keeps_secrets, .. } = hop;
    let method_on_wire = match method {
        HttpMethod::Get => "GET",
        HttpMethod::Head => "HEAD",
        HttpMethod::Post => "POST",
    };
    let mut request = Request::new(method_on_wire, path);
    let is_secret = |name: &str, value: &str| is_credential(name) || http::has_reference(value);
    let headers = settings.sent_headers().filter(|(name, value)| keeps_secrets || !is_secret(name, value));
    if let Some(secret) = settings.basic_auth.as_ref().filter(|_| keeps_secrets) {
        request = request.header("authorization", format!("Basic {}", http::basic(secret)));
    }
    let Some(body) = settings.body.as_ref().filter(|_| method == HttpMethod::Post) else {
        return request.configured_headers(headers);
    };
    let encoding = match settings.content_type.split(';').next().unwrap_or_default().trim() {
        "application/x-www-form-urlencoded" => BodyEncoding::Form,
        kind if kind == "application/json" || kind.ends_with("+json") => BodyEncoding::Json,
        _ => BodyEncoding::Raw,
    };
    let request = request.header("content-type", &settings.content_type).body(body.as_bytes(), encoding);
    request.configured_headers(headers)
}

/// Returns the scheme, host and port of a URL. `None` if it is not one of http.
pub(crate) fn origin(url: &str) -> Option<&str> {
    let host = url.find("://").filter(|end| matches!(&url[..*end], "http" | "https"))? + 3;
    let length = url[host..].find(['/', '?', '#']).unwrap_or(url.len() - host);
    (length > 0).then_some(&url[..host + length])
}

/// Resolves a `Location` against a URL (RFC 3986, section 5.2, for http), with the characters that browsers correct. The
/// host resolves dot segments and encodes the others.
fn joined(url: &str, location: &str) -> String {
    let location = corrected(location);
    let location = location.split('#').next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let of_other = location.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| is_scheme(scheme));
    if let Some(other) = of_other {
        return format!("{}{}", other.to_ascii_lowercase(), &location[other.len()..]);
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

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Corrects a `Location` as browsers do (URL Standard, section 4.4): blanks and control characters around it and line
/// breaks and tabs in it go, backslashes are slashes, and other blanks and control characters are percent-encoded.
fn corrected(location: &str) -> String {
    let mut is_path = true;
    let mut corrected = String::with_capacity(location.len());
    for c in location.trim_matches(|c: char| c <= ' ').chars() {
        is_path &= !matches!(c, '?' | '#');
        match c {
            '\t' | '\n' | '\r' => {}
            '\\' if is_path => corrected.push('/'),
            '\\' => corrected.push_str("%5C"),
            c if c <= ' ' || c == '\x7f' => corrected.push_str(&format!("%{:02X}", u32::from(c))),
            c => corrected.push(c),
        }
    }
    corrected
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
            ("http://a/b", "/login?back=https://c/d", "http://a/login?back=https://c/d"),
            ("http://a/b", "HTTPS://c/d", "https://c/d"),
            ("http://a/b", "mailto:c@d", "mailto:c@d"),
            ("http://a/b/", "c:d/e", "c:d/e"),
            ("http://a/b", "/c:d", "http://a/c:d"),
            ("http://a/b", "  /c d\te?f g\\h\t", "http://a/c%20de?f%20g%5Ch"),
            ("http://a/b", "\\\\c\\d", "http://c/d"),
            ("http://a/b", "/x\\y\u{1}\u{7f}é\"", "http://a/x/y%01%7Fé\""),
        ] {
            assert_eq!(joined(url, location), expected, "{url} {location}");
        }
    }

    #[test]
    fn a_server_does_not_choose_as_whom_the_host_logs_in() {
        for (url, expected) in [
            ("http://admin:pass@a.example/ok?x=@", "http://a.example/ok?x=@"),
            ("https://a@b@c.example", "https://c.example"),
            ("http://a.example/x@y", "http://a.example/x@y"),
            ("mailto:a@b.example", "mailto:a@b.example"),
        ] {
            assert_eq!(without_user(url.to_owned()), expected);
        }
    }

    #[test]
    fn secrets_stay_with_their_server() {
        for (from, to, expected) in [
            ("http://a.example/x", "http://A.example/y", true),
            ("http://a.example/x", "https://a.example:8443/y", true),
            ("https://a.example", "https://a.example", true),
            ("https://[::1]/x", "https://[::1]:8443", true),
            ("https://a.example/x", "http://a.example/x", false),
            ("https://a.example/x", "https://www.a.example/x", false),
            ("https://a.example", "https://b.example", false),
            ("https://a.example", "mailto:a.example", false),
        ] {
            assert_eq!(keeps_secrets(from, to), expected, "{from} {to}");
        }
    }
}
