//! Checks a request against the grant of its target, computes its signatures, and inserts its secrets.

use crate::authentication::{self, Login, Prepared};
use crate::connect::Destination;
use crate::grant::{NARROWED, path_and_query, server_name};
use crate::headers::header;
use crate::in_flight::{Plan, Reading};
use crate::maskers::Maskers;
use crate::message::{BodyReading, Request, is_never_sent};
use crate::reading::{self, Visible};
use crate::references::{Part, References, Scheme};
use crate::secrets::AvailableSecrets;
use crate::signatures::{Signing, sign};
use crate::signed::Signed;
use crate::{Error, Grant, InvalidUrl, Origin, OriginGrant, Tls};
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
    /// Boxed, as it is moved through several futures.
    pub plan: Box<Plan>,
    /// How much of the answer's body to read.
    pub reading: BodyReading,
    /// The results of signatures in the request. They are masked in the answer by their value, which a plugin can guess
    /// only as a whole. That must not be done with a text of which a plugin can choose a part, such as `user:password`.
    pub derived: Vec<String>,
    /// The user and password that answer a challenge of the server.
    pub login: Option<Login>,
}

/// Checks a request against the grant and inserts its secrets and signatures.
pub(crate) async fn plan(
    of: Shared<'_>,
    known: &AvailableSecrets<'_>,
    request: Box<Request>,
) -> Result<Planned, Error> {
    let Shared { grant, share, reading, signing } = of;
    let url = address((grant, known.references), &request.path)?;
    let path_and_query = path_and_query(&url);
    if is_never_sent(&request.method) {
        let what = format!("the method {}", request.method);
        return Err(Error::Denied { what, why: "it would leave the protection of the target's secrets" });
    }
    grant.narrowing.check(&request.method, &path_and_query)?;
    reading::check(&request.reading)?;
    let Granted { origin, tls, is_renamed } = granted(grant, &url)?;
    let request = if is_renamed { without_secrets(known, request, &origin)? } else { request };
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
    let host = grant.host.as_ref().filter(|_| grant.origins.first().is_some_and(|own| own.origin == origin));
    if let Some(host) = host {
        let value = HeaderValue::from_str(host).map_err(|error| Error::BadRequest(error.to_string()))?;
        headers.insert(HOST, value);
    }
    let server_name = host.filter(|_| origin.https).map(|host| server_name(host));
    let derived: Vec<String> = signed.into_texts().collect();
    let visible = Arc::new(Visible::of(&request.reading, Maskers::new(grant, &derived)));
    let destination = Destination { origin, server_name, tls, reach: grant.reach.clone() };
    // The answer contains a captured secret of this target, or belongs to its nonce, or ends where this target says:
    // other callers must not share it.
    let ends_alike = visible.is_whole() || visible.is_nothing();
    let shared = request.captures.is_empty() && login.is_none() && ends_alike;
    let (share, bytes) = (share.clone(), reading.clone());
    let Request { method, reading, .. } = *request;
    let body = body.into();
    let plan = Plan { destination, method, path_and_query, headers, body, shared, share, reading: bytes, visible };
    Ok(Planned { plan: Box::new(plan), reading, derived, login })
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
        signed = Box::pin(sign(known, &request.signatures, None, signing)).await?;
    }
    let body = known.expand_body(&signed, body, request.body_encoding)?;
    if body.len() > MAX_BODY_BYTES {
        return Err(too_long());
    }
    // Boxed, because few requests are signed: the future of each request would be larger.
    if !refers && !request.signatures.is_empty() {
        signed = Box::pin(sign(known, &request.signatures, Some(&body), signing)).await?;
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

/// An origin that a request may go to.
struct Granted {
    origin: Origin,
    tls: Tls,
    /// Whether it is granted only because its host has the same name with or without `www.` as one that is.
    is_renamed: bool,
}

/// Returns the granted origin of a URL: one of the target, or another one of its site.
fn granted(grant: &Grant, url: &Url) -> Result<Granted, Error> {
    let of = |found: &OriginGrant| Granted { origin: found.origin.clone(), tls: found.tls.clone(), is_renamed: false };
    if let Some(granted) = grant.origins.iter().find(|granted| granted.origin.is_written_in(url)) {
        return Ok(of(granted));
    }
    let origin = Origin::of(url).map_err(bad_path)?;
    if let Some(granted) = grant.origins.iter().find(|granted| granted.origin == origin) {
        return Ok(of(granted));
    }
    let of_site = grant.origins.iter().filter(|granted| granted.origin.has_in_site(&origin));
    // The same name counts first: it gets the secrets.
    match of_site.min_by_key(|found| found.origin.host != origin.host) {
        Some(found) => Ok(Granted { is_renamed: found.origin.host != origin.host, tls: found.tls.clone(), origin }),
        None => {
            let what = format!("{origin} is not an origin of this target");
            let why = "requests may go only to the origins of the target's url and also, and to their sites";
            Err(Error::Denied { what, why })
        }
    }
}

/// Returns a request to a host of another name without the headers that contain secrets, and without authentication.
///
/// # Errors
/// If another part of the request contains a secret.
fn without_secrets(
    known: &AvailableSecrets<'_>,
    mut request: Box<Request>,
    origin: &Origin,
) -> Result<Box<Request>, Error> {
    let has_secret = |text: &str| known.named_in(text).next().is_some();
    let body = request.body.as_deref().map(String::from_utf8_lossy);
    if !request.signatures.is_empty() || has_secret(&request.path) || body.is_some_and(|body| has_secret(&body)) {
        let what = format!("a request with secrets to {origin}");
        return Err(Error::Denied { what, why: "that host is not in the target's url and also" });
    }
    request.headers.retain(|(_, value)| !has_secret(value));
    request.authentication = None;
    Ok(request)
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
    if !grant.expands_path && !references.is_empty() && references.parts(path).iter().any(is_secret) {
        let why = "its path refers to a secret: servers and proxies log paths; send it in a header or the body";
        return Err(Error::BadRequest(why.to_owned()));
    }
    let joined = match grant.reference_in_base.as_deref() {
        Some(written) => Url::parse(&references.written(written)).and_then(|base| base.join(path)),
        None => grant.base.join(path),
    };
    joined.map_err(|error| Error::BadRequest(format!("its path {path:?}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secrets;
    use crate::message::{Authentication, Method};
    use crate::tests::{grant, secrets};
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicU64;

    async fn planned(grant: &Arc<Grant>, request: impl Fn(&References) -> Request) -> Result<Planned, Error> {
        let references = References::default();
        let captured = Arc::new(BTreeMap::new());
        let known = AvailableSecrets { operators: &grant.secrets, captured: &captured, references: &references };
        let work = AtomicU64::new(0);
        let signing = Signing { work: &work, now: 0, is_replayed: false };
        let (share, reading) = ("http".into(), Arc::new(Reading::default()));
        let shared = Shared { grant, share: &share, reading: &reading, signing };
        plan(shared, &known, Box::new(request(&references))).await
    }

    #[tokio::test]
    async fn secrets_do_not_go_to_another_name_of_a_site() {
        let key = || secrets(&[("key", "sesame-sesame")]);
        for (url, to, expected) in [
            ("https://a.example/", "/x", Ok(true)),
            ("http://a.example/", "https://a.example/x", Ok(true)),
            ("http://a.example/", "https://www.a.example/x", Ok(false)),
            ("https://www.a.example/", "https://a.example/x", Ok(false)),
            ("https://a.example/", "http://a.example/x", Err("denied")),
            ("https://a.example/", "https://b.example/x", Err("denied")),
            ("http://a.example:81/", "https://a.example/x", Err("denied")),
        ] {
            let grant = grant(url, Tls::system().unwrap(), key());
            let request = |references: &References| Request {
                headers: vec![
                    ("accept".to_owned(), "text/html".to_owned()),
                    ("x-key".to_owned(), references.of("secret.key")),
                ],
                authentication: Some(Authentication::Bearer("key".to_owned())),
                ..Request::get(to)
            };
            let found = planned(&grant, request).await.map(|planned| {
                let headers = planned.plan.headers;
                assert!(headers.contains_key("accept"));
                assert_eq!(headers.contains_key("x-key"), headers.contains_key(AUTHORIZATION));
                headers.contains_key("x-key")
            });
            assert_eq!(found.map_err(|error| error.code().to_owned()), expected.map_err(str::to_owned), "{url} {to}");
        }
        let grant = grant("https://a.example/", Tls::system().unwrap(), key());
        let with_body = |references: &References| Request {
            method: Method::POST,
            body: Some(references.of("secret.key").into_bytes()),
            ..Request::get("https://www.a.example/")
        };
        let error = planned(&grant, with_body).await.map(drop).unwrap_err();
        assert!(error.to_string().contains("a request with secrets to https://www.a.example"), "{error}");
    }

    #[tokio::test]
    async fn the_origins_of_a_target_come_before_its_site() {
        let plain = grant("http://a.example/", Tls::system().unwrap(), Secrets::default());
        let (_, also) = Origin::parse("https://www.a.example/").unwrap();
        let mut origins = plain.origins.clone();
        origins.push(OriginGrant { origin: also, tls: Tls::insecure().unwrap() });
        let own = Arc::new(Grant::new(plain.base.clone(), origins, secrets(&[("key", "sesame-sesame")])));
        let request = |references: &References| Request {
            headers: vec![("x-key".to_owned(), references.of("secret.key"))],
            ..Request::get("https://www.a.example/")
        };
        let planned = planned(&own, request).await.map_err(|error| error.to_string()).unwrap();
        assert!(planned.plan.headers.contains_key("x-key") && !planned.plan.destination.tls.verifies());
    }
}
