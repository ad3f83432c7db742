//! Authentication that the host does: Basic (RFC 7617), Digest (RFC 7616) and Bearer (RFC 6750).

use crate::Error;
use crate::message::{Authentication, Credentials};
use crate::secrets::AvailableSecrets;
use crate::signed::Signed;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_auth::digest::Qop;
use http_auth::{ChallengeRef, DigestClient, ParamValue, PasswordParams, parse_challenges};
use hyper::Method;
use hyper::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// An authentication with its secrets.
pub(crate) enum Prepared {
    /// The value of the header `authorization`.
    Header(HeaderValue),
    /// The user and password that answer the challenges of a server.
    Digest(Login),
}

/// A user name and a password. They are never printed.
pub(crate) struct Login {
    user: String,
    password: SecretString,
}

/// Returns an authentication with its secrets.
pub(crate) fn prepare(known: &AvailableSecrets<'_>, authentication: &Authentication) -> Result<Prepared, Error> {
    let of = "the authentication";
    let login = |credentials: &Credentials| -> Result<Login, Error> {
        let user = known.expand_header(&Signed::default(), &credentials.user)?;
        Ok(Login { user, password: known.value(&credentials.password, of)?.clone() })
    };
    match authentication {
        Authentication::Basic(credentials) => {
            let Login { user, password } = login(credentials)?;
            if user.contains(':') {
                return Err(Error::BadRequest("the user name of Basic authentication has a colon".to_owned()));
            }
            let pair = format!("{user}:{}", password.expose_secret());
            authorization(&format!("Basic {}", STANDARD.encode(pair))).map(Prepared::Header)
        }
        Authentication::Digest(credentials) => login(credentials).map(Prepared::Digest),
        Authentication::Bearer(name) => {
            authorization(&format!("Bearer {}", known.value(name, of)?.expose_secret())).map(Prepared::Header)
        }
    }
}

/// Returns the header that authenticates a request.
pub(crate) fn authorization(value: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| Error::BadRequest("its authentication contains a line break or control character".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The newest challenge of each origin of a target, and how often it was answered.
#[derive(Default)]
pub(crate) struct Challenges(Mutex<BTreeMap<String, DigestClient>>);

impl std::fmt::Debug for Challenges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Challenges(..)")
    }
}

impl Challenges {
    /// Answers the challenge of an origin. `None` without one, or if it cannot be answered.
    pub(crate) fn answer(&self, origin: &str, login: &Login, request: (&Method, &str)) -> Option<Answer> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let header = responded(known.get_mut(origin)?, login, request).ok()?;
        Some(Answer { header })
    }

    /// Takes the challenge of a 401 answer. Returns whether it has one. Fails if none of them can be answered.
    pub(crate) fn learn(&self, origin: &str, headers: &[(String, String)]) -> Result<bool, Error> {
        let mut unusable = None;
        for (_, value) in headers.iter().filter(|(name, _)| name == "www-authenticate") {
            let challenges = match parse_challenges(value) {
                Ok(challenges) => challenges,
                Err(error) => {
                    unusable = Some(format!("its challenge cannot be read: {error}"));
                    continue;
                }
            };
            for challenge in challenges.iter().filter(|challenge| challenge.scheme.eq_ignore_ascii_case("digest")) {
                match client(challenge) {
                    Ok(client) => {
                        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(origin.to_owned(), client);
                        return Ok(true);
                    }
                    Err(why) => {
                        let shown = |name: &str| {
                            let found = challenge.params.iter().find(|(param, _)| param.eq_ignore_ascii_case(name));
                            found.map_or("none".to_owned(), |(_, value): &(_, ParamValue<'_>)| {
                                value.as_escaped().chars().take(64).collect()
                            })
                        };
                        unusable = Some(format!("algorithm {}, qop {} ({why})", shown("algorithm"), shown("qop")));
                    }
                }
            }
        }
        unusable.map_or(Ok(false), |why| Err(Error::Challenge(why)))
    }

    /// Forgets the challenge of an origin that did not accept the answer to it.
    pub(crate) fn forget(&self, origin: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(origin);
    }
}

/// The answer to a challenge.
pub(crate) struct Answer {
    /// The value of the header `authorization`.
    pub header: String,
}

impl Answer {
    /// Returns the parts that are derived from secrets: the response, and the hash of the user.
    pub(crate) fn derived(&self) -> impl Iterator<Item = &str> {
        let quoted = |name: &str| self.header.split_once(&format!("{name}=\""))?.1.split('"').next();
        let user = quoted("username").filter(|_| self.header.contains("userhash=true"));
        quoted(" response").into_iter().chain(user)
    }
}

/// Returns the client of a challenge. Fails if the challenge is malformed, or wants what the host does not have, for
/// example the protection of the body (`qop=auth-int`) alone.
fn client(challenge: &ChallengeRef<'_>) -> Result<DigestClient, String> {
    // The library compares the name of the algorithm exactly. RFC 2617 does not: some devices send `md5`.
    let name = |param: &str| param.eq_ignore_ascii_case("algorithm");
    let sent = challenge.params.iter().find(|(param, _)| name(param)).map_or("", |(_, value)| value.as_escaped());
    let algorithm = sent.to_ascii_uppercase().replace("-SESS", "-sess");
    let mut challenge = challenge.clone();
    for (_, value) in challenge.params.iter_mut().filter(|(param, _)| name(param)) {
        *value = ParamValue::try_from_escaped(&algorithm)?;
    }
    let client = DigestClient::try_from(&challenge)?;
    if client.qop() & Qop::Auth { Ok(client) } else { Err("no qop that the host has".to_owned()) }
}

fn responded(client: &mut DigestClient, login: &Login, (method, uri): (&Method, &str)) -> Result<String, String> {
    let (username, password) = (login.user.as_str(), login.password.expose_secret());
    client.respond(&PasswordParams { username, password, uri, method: method.as_str(), body: None })
}
