//! The headers of requests: those that a request may set, and their values.

use crate::error::Error;
use crate::grant::Narrowing;
use crate::secrets::AvailableSecrets;
use crate::signed::Signed;
use hyper::header::{HeaderName, HeaderValue};

/// Headers that only the host sets. A plugin's value could break the connection or a guarantee. For example, the answer
/// to a request for a range, a difference or a character set can contain a secret in an encoding that masking does not
/// recognise.
const FORBIDDEN_HEADERS: [&str; 16] = [
    "a-im",
    "accept-charset",
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "if-range",
    "keep-alive",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-connection",
];

/// Returns the name, and the name with hyphens for underscores, which rules use. Fails with one sentence if it is not a
/// name, or if only the host may set the header.
fn header_name(text: &str) -> Result<(HeaderName, String), String> {
    let bad = || format!("{:?} is not the name of a header", text.chars().take(60).collect::<String>());
    let name: HeaderName = text.parse().map_err(|_| bad())?;
    // Some servers treat underscores as hyphens.
    let normalized = name.as_str().replace('_', "-");
    if FORBIDDEN_HEADERS.contains(&normalized.as_str()) || normalized.starts_with("proxy-") {
        return Err(format!("the header {name} is set by Polliwog itself"));
    }
    Ok((name, normalized))
}

/// Checks that requests may have a header, before its value's references to secrets are replaced. The error is one
/// sentence.
pub fn settable_header(name: &str, value: &str) -> Result<(), String> {
    let (name, _) = header_name(name)?;
    match HeaderValue::from_str(value) {
        Ok(_) => Ok(()),
        Err(_) => Err(bad_value(&name)),
    }
}

fn bad_value(name: &HeaderName) -> String {
    format!("the value of header {name} has a line break or control character")
}

/// Checks a header of a request, and replaces the references in its value.
pub(crate) fn header(
    narrowing: &Narrowing,
    (known, signed): (&AvailableSecrets<'_>, &Signed),
    name: &str,
    value: &str,
) -> Result<(HeaderName, HeaderValue), Error> {
    let (name, normalized) = header_name(name).map_err(|why| {
        let remedy = if name.eq_ignore_ascii_case("host") { ": set host_header of the target instead" } else { "" };
        Error::BadRequest(format!("{why}{remedy}"))
    })?;
    narrowing.check_header(&normalized)?;
    let expanded = known.expand_header(signed, value)?;
    let mut value = HeaderValue::from_bytes(expanded.as_bytes()).map_err(|_| Error::BadRequest(bad_value(&name)))?;
    value.set_sensitive(true);
    Ok((name, value))
}
