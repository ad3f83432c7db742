//! Checks a request against the grant of its target, and inserts its secrets.

use crate::connect::Destination;
use crate::exchange::{Plan, Reading};
use crate::grant::path_and_query;
use crate::headers::header;
use crate::message::Request;
use crate::references::{Part, References};
use crate::secrets::AvailableSecrets;
use crate::{Error, Grant, InvalidUrl, Origin, OriginGrant};
use hyper::header::{HOST, HeaderMap, HeaderValue};
use std::sync::Arc;
use url::Url;

/// Maximum number of headers of one request.
const MAX_HEADERS: usize = 100;
/// Maximum size of the header names and values of one request in bytes.
const MAX_HEADER_BYTES: usize = 64 << 10;
/// Maximum size of one request's body in bytes, with its secrets inserted.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Maximum length of the path and query of a request, as the plugin writes it, in bytes.
const MAX_PATH_BYTES: usize = 8 << 10;

/// The parts that the requests of a call share.
pub(crate) struct Shared<'a> {
    pub grant: &'a Grant,
    /// The kind of the target.
    pub share: &'a Arc<str>,
    pub reading: &'a Arc<Reading>,
}

/// Checks a request against the grant and inserts its secrets.
pub(crate) fn plan(of: Shared<'_>, known: &AvailableSecrets<'_>, request: Request) -> Result<Plan, Error> {
    let Shared { grant, share, reading } = of;
    let url = address((grant, known.references), &request.path)?;
    let path_and_query = path_and_query(&url);
    grant.narrowing.check(request.method, &path_and_query)?;
    let path_and_query = if grant.expands_path { known.expand_path(&path_and_query)? } else { path_and_query };
    let OriginGrant { origin, tls } = granted(grant, &url)?;
    if request.headers.len() > MAX_HEADERS {
        let count = request.headers.len();
        return Err(Error::BadRequest(format!("it has {count} headers, more than {MAX_HEADERS}")));
    }
    let mut headers = HeaderMap::new();
    let mut bytes = 0;
    for (name, value) in &request.headers {
        let (name, value) = header(&grant.narrowing, known, name, value)?;
        bytes += name.as_str().len() + value.len();
        if bytes > MAX_HEADER_BYTES {
            return Err(Error::BadRequest(format!("its headers are longer than {MAX_HEADER_BYTES} bytes in total")));
        }
        headers.append(name, value);
    }
    if let Some(host) = grant.host.as_ref().filter(|_| grant.origins.first().is_some_and(|own| own.origin == *origin)) {
        let value = HeaderValue::from_str(host).map_err(|error| Error::BadRequest(error.to_string()))?;
        headers.insert(HOST, value);
    }
    let body = match request.body {
        Some(body) if body.len() <= MAX_BODY_BYTES => known.expand_body(body, request.body_encoding)?,
        Some(body) => body,
        None => Vec::new(),
    };
    if body.len() > MAX_BODY_BYTES {
        return Err(Error::BadRequest(format!("its body is longer than {MAX_BODY_BYTES} bytes")));
    }
    let destination = Destination { origin: origin.clone(), tls: tls.clone(), reach: grant.reach.clone() };
    // The answer contains a captured secret of this target, so other callers must not share it.
    let shared = request.captures.is_empty();
    let (share, reading) = (share.clone(), reading.clone());
    Ok(Plan { destination, method: request.method, path_and_query, headers, body: body.into(), shared, share, reading })
}

/// Returns the granted origin of a URL.
fn granted<'a>(grant: &'a Grant, url: &Url) -> Result<&'a OriginGrant, Error> {
    if let Some(granted) = grant.origins.iter().find(|granted| granted.origin.is_written_in(url)) {
        return Ok(granted);
    }
    let origin = Origin::of(url).map_err(bad_path)?;
    grant.origins.iter().find(|granted| granted.origin == origin).ok_or_else(|| {
        let what = format!("{origin} is not an origin of this target");
        Error::Denied { what, why: "requests may go only to the origins of the target's url and also" }
    })
}

pub(crate) fn bad_path(error: InvalidUrl) -> Error {
    Error::BadRequest(error.to_string())
}

/// Resolves the path of a request against the target's URL.
pub(crate) fn address((grant, references): (&Grant, &References), path: &str) -> Result<Url, Error> {
    // A URL parser silently drops or changes these characters. They are refused, so that the checked path is the sent
    // path.
    if let Some(odd) = path.chars().find(|c| c.is_control() || matches!(c, ' ' | '\\')) {
        return Err(Error::BadRequest(format!("its path has the character {odd:?}, which must be percent-encoded")));
    }
    if path.len() > MAX_PATH_BYTES {
        return Err(Error::BadRequest(format!("its path is longer than {MAX_PATH_BYTES} bytes")));
    }
    let refers = |text| references.parts(text).iter().any(|part| matches!(part, Part::Reference(_)));
    if !grant.expands_path && refers(path) {
        let why = "its path refers to a secret: servers and proxies log paths; send it in a header or the body";
        return Err(Error::BadRequest(why.to_owned()));
    }
    let joined = match grant.reference_in_base.as_deref() {
        Some(written) => Url::parse(&references.written(written)).and_then(|base| base.join(path)),
        None => grant.base.join(path),
    };
    joined.map_err(|error| Error::BadRequest(format!("its path {path:?}: {error}")))
}
