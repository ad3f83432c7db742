//! Who may see.
//!
//! Programs send a bearer token; pages carry it in a cookie that scripts cannot read and other sites do not send. What is
//! kept is the token's hash. A page's request that changes something must also show a token that only our pages know.

use axum::http::{HeaderMap, Method, header};
use sha2::{Digest, Sha256};

const COOKIE: &str = "polliwog_session";

/// The SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// The admin token's hash.
#[derive(Clone, Debug)]
pub struct Auth {
    hash: TokenHash,
}

/// What a request showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    NoToken,
    /// A cookie without the page's own token: another site may be behind it.
    Forged,
}

impl Auth {
    /// For the token with this hash.
    pub fn new(hash: TokenHash) -> Self {
        Self { hash }
    }

    /// The hash under which a token is kept.
    pub fn hash(token: &str) -> TokenHash {
        Sha256::digest(token).into()
    }

    pub(crate) fn is_right(&self, token: &str) -> bool {
        // Hashes of unknown tokens tell nothing of the right one, however long comparing them takes.
        Self::hash(token) == self.hash
    }

    pub(crate) fn judge(&self, method: &Method, headers: &HeaderMap) -> Verdict {
        if let Some(token) = bearer(headers) {
            return if self.is_right(token) { Verdict::Allowed } else { Verdict::NoToken };
        }
        let Some(token) = cookie(headers).filter(|token| self.is_right(token)) else { return Verdict::NoToken };
        let safe = matches!(*method, Method::GET | Method::HEAD);
        let shown = headers.get("x-csrf-token").and_then(|value| value.to_str().ok());
        if safe || shown == Some(csrf(token).as_str()) { Verdict::Allowed } else { Verdict::Forged }
    }

    /// What our pages show when they change something.
    pub(crate) fn csrf_of(headers: &HeaderMap) -> Option<String> {
        cookie(headers).map(csrf)
    }

    /// The cookie that a log-in sets.
    pub(crate) fn cookie(token: &str) -> String {
        format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000")
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

fn csrf(token: &str) -> String {
    let digest = Sha256::digest(format!("csrf:{token}"));
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(method: Method, pairs: &[(&'static str, &str)]) -> Verdict {
        let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        Auth::new(Auth::hash("right-token")).judge(&method, &headers)
    }

    #[test]
    fn a_token_or_a_cookie_is_needed_and_pages_prove_that_they_are_ours() {
        let csrf = csrf("right-token");
        let cookie = ("cookie", "a=b; polliwog_session=right-token");
        for (method, headers, expected) in [
            (Method::GET, vec![], Verdict::NoToken),
            (Method::GET, vec![("authorization", "Bearer right-token")], Verdict::Allowed),
            (Method::POST, vec![("authorization", "bearer right-token")], Verdict::Allowed),
            (Method::GET, vec![("authorization", "Bearer wrong-token")], Verdict::NoToken),
            (Method::GET, vec![("authorization", "Basic right-token")], Verdict::NoToken),
            (Method::GET, vec![cookie], Verdict::Allowed),
            (Method::GET, vec![("cookie", "polliwog_session=wrong")], Verdict::NoToken),
            (Method::POST, vec![cookie], Verdict::Forged),
            (Method::POST, vec![cookie, ("x-csrf-token", "guess")], Verdict::Forged),
            (Method::POST, vec![cookie, ("x-csrf-token", csrf.as_str())], Verdict::Allowed),
        ] {
            assert_eq!(judge(method.clone(), &headers), expected, "{method} {headers:?}");
        }
    }
}
