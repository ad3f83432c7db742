//! Checks a request against the grant of its target, computes its signatures, and inserts its secrets.

use crate::authentication::{self, Login, Prepared};
use crate::connect::Destination;
use crate::exchange::{Plan, Reading};
use crate::grant::{NARROWED, path_and_query};
use crate::headers::header;
use crate::maskers::Maskers;
use crate::message::{BodyReading, Request, is_never_sent};
use crate::reading::{self, Visible};
use crate::references::{Part, References, Scheme};
use crate::secrets::AvailableSecrets;
use crate::signatures::{Signing, sign};
use crate::signed::Signed;
use crate::{Error, Grant, InvalidUrl, Origin, OriginGrant};
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue};
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
    pub grant: &'a Arc<Grant>,
    /// The kind of the target.
    pub share: &'a Arc<str>,
    pub reading: &'a Arc<Reading>,
    pub signing: Signing<'a>,
}

/// A request that is ready to be sent.
pub(crate) struct Planned {
    pub plan: Plan,
    /// How much of the answer's body to read.
    pub reading: BodyReading,
    /// The results of signatures in the request. They are masked in the answer by their value, which a plugin can guess
    /// only as a whole. That must not be done with a text of which a plugin can choose a part, such as `user:password`.
    pub derived: Vec<String>,
    /// The user and password that answer a challenge of the server.
    pub login: Option<Login>,
}

/// Checks a request against the grant and inserts its secrets and signatures.
pub(crate) async fn plan(of: Shared<'_>, known: &AvailableSecrets<'_>, request: Request) -> Result<Planned, Error> {
    let Shared { grant, share, reading, signing } = of;
    let url = address((grant, known.references), &request.path)?;
    let path_and_query = path_and_query(&url);
    if is_never_sent(&request.method) {
        let what = format!("the method {}", request.method);
        return Err(Error::Denied { what, why: "it would leave the protection of the target's secrets" });
    }
    grant.narrowing.check(&request.method, &path_and_query)?;
    reading::check(&request.reading)?;
    let OriginGrant { origin, tls } = granted(grant, &url)?;
    if request.headers.len() > MAX_HEADERS {
        let count = request.headers.len();
        return Err(Error::BadRequest(format!("it has {count} headers, more than {MAX_HEADERS}")));
    }
    let (signed, body) = signed_body((known, signing), &request).await?;
    let written = path_and_query;
    let path_and_query = known.expand_path(&signed, &written)?;
    if path_and_query != written && grant.narrowing.check(&request.method, &path_and_query).is_err() {
        let what = "the path, with its secrets inserted,".to_owned();
        return Err(Error::Denied { what, why: NARROWED });
    }
    let mut headers = headers((grant, known, &signed), &request)?;
    let mut login = None;
    if let Some(authentication) = &request.authentication {
        if headers.contains_key(AUTHORIZATION) {
            let why = "it has both an authentication and a header authorization";
            return Err(Error::BadRequest(why.to_owned()));
        }
        match authentication::prepare(known, authentication)? {
            Prepared::Header(value) => drop(headers.insert(AUTHORIZATION, value)),
            Prepared::Digest(found) => login = Some(found),
        }
    }
    if let Some(host) = grant.host.as_ref().filter(|_| grant.origins.first().is_some_and(|own| own.origin == *origin)) {
        let value = HeaderValue::from_str(host).map_err(|error| Error::BadRequest(error.to_string()))?;
        headers.insert(HOST, value);
    }
    let derived: Vec<String> = signed.into_texts().collect();
    let visible = Arc::new(Visible::of(&request.reading, Maskers::new(grant, &derived)));
    let destination = Destination { origin: origin.clone(), tls: tls.clone(), reach: grant.reach.clone() };
    // The answer contains a captured secret of this target, or belongs to its nonce: other callers must not share it.
    let shared = request.captures.is_empty() && login.is_none() && visible.is_whole();
    let (share, bytes) = (share.clone(), reading.clone());
    let (method, body) = (request.method, body.into());
    let plan = Plan { destination, method, path_and_query, headers, body, shared, share, reading: bytes, visible };
    Ok(Planned { plan, reading: request.reading, derived, login })
}

/// Returns the signatures of a request, and its body with its secrets and signatures inserted.
async fn signed_body(
    (known, signing): (&AvailableSecrets<'_>, Signing<'_>),
    request: &Request,
) -> Result<(Signed, Vec<u8>), Error> {
    let too_long = || Error::BadRequest(format!("its body is longer than {MAX_BODY_BYTES} bytes"));
    let body = request.body.clone().unwrap_or_default();
    if body.len() > MAX_BODY_BYTES {
        return Err(too_long());
    }
    let refers = known.refers_to_signature(&body);
    let mut signed = Signed::default();
    if refers {
        signed = sign(known, &request.signatures, None, signing).await?;
    }
    let body = known.expand_body(&signed, body, request.body_encoding)?;
    if body.len() > MAX_BODY_BYTES {
        return Err(too_long());
    }
    if !refers {
        signed = sign(known, &request.signatures, Some(&body), signing).await?;
    }
    Ok((signed, body))
}

/// Returns the headers of a request with their secrets and signatures inserted.
fn headers(
    (grant, known, signed): (&Grant, &AvailableSecrets<'_>, &Signed),
    request: &Request,
) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    let mut bytes = 0;
    for (name, value) in &request.headers {
        let (name, value) = header(&grant.narrowing, (known, signed), name, value)?;
        bytes += name.as_str().len() + value.len();
        if bytes > MAX_HEADER_BYTES {
            return Err(Error::BadRequest(format!("its headers are longer than {MAX_HEADER_BYTES} bytes in total")));
        }
        headers.append(name, value);
    }
    Ok(headers)
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
    let is_secret = |part: &Part<'_>| matches!(part, Part::Reference(found) if found.scheme != Scheme::Signature);
    if !grant.expands_path && references.parts(path).iter().any(is_secret) {
        let why = "its path refers to a secret: servers and proxies log paths; send it in a header or the body";
        return Err(Error::BadRequest(why.to_owned()));
    }
    let joined = match grant.reference_in_base.as_deref() {
        Some(written) => Url::parse(&references.written(written)).and_then(|base| base.join(path)),
        None => grant.base.join(path),
    };
    joined.map_err(|error| Error::BadRequest(format!("its path {path:?}: {error}")))
}
