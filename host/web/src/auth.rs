//! Authentication: the admin token, sessions of pages, and CSRF tokens.
//!
//! Programs send a bearer token. A page logs in with the token once and gets a session: a random id in a cookie that
//! scripts cannot read and other sites do not send. A session ends after [`SESSION`] or on log-out. Only hashes of
//! tokens and sessions are stored. A page's request that changes something must also send a CSRF token, which only our
//! pages have.
//!
//! The answer to a wrong token is delayed, and each address has a limited number of such answers pending, so that
//! guessing is slow.

use crate::gauges::Gauges;
use axum::http::{HeaderMap, Method, header};
use model::Timestamp;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const COOKIE: &str = "polliwog_session";
/// The cookie's name behind TLS. A browser accepts a cookie with this prefix only from this host, over TLS.
const SECURE_COOKIE: &str = "__Host-polliwog_session";
/// How long a session lasts.
const SESSION: Duration = Duration::from_secs(30 * 24 * 3600);
/// Most concurrent sessions. A further log-in ends the session that expires first.
const SESSIONS: usize = 1000;
/// Delay of the answer to a wrong token.
const DELAY: Duration = Duration::from_secs(1);
/// Most pending answers to wrong tokens, for one address and in total. Further attempts are refused at once.
const GUESSES: (usize, usize) = (8, 64);

/// The SHA-256 of a token or of a session's id.
pub type TokenHash = [u8; 32];

/// The admin token's hash and the active sessions.
#[derive(Clone, Debug)]
pub struct Auth {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    token: TokenHash,
    sessions: HashMap<TokenHash, Timestamp>,
    /// The number of pending answers to wrong tokens, by address.
    guesses: HashMap<IpAddr, usize>,
}

/// The result of checking a request's credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    NoToken,
    /// A bearer token that differs from the admin token.
    WrongToken,
    /// A session cookie without the CSRF token: another site may have sent the request.
    Forged,
}

/// A new session: the cookie for the browser, and the hash and expiry for the store.
#[derive(Debug)]
pub(crate) struct Session {
    pub cookie: String,
    pub hash: TokenHash,
    pub until: Timestamp,
    /// The hash of a session that ended because there were [`SESSIONS`] already.
    pub ended: Option<TokenHash>,
}

impl Auth {
    /// Accepts the token with this hash and these sessions, each with its expiry.
    pub fn new(token: TokenHash, sessions: impl IntoIterator<Item = (TokenHash, Timestamp)>) -> Self {
        let state = State { token, sessions: sessions.into_iter().collect(), guesses: HashMap::new() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The hash of a token, as it is stored.
    pub fn hash(token: &str) -> TokenHash {
        Sha256::digest(token).into()
    }

    /// Replaces the admin token's hash and ends every session. Returns the hashes of the ended sessions.
    pub fn replace(&self, token: TokenHash) -> Vec<TokenHash> {
        let mut state = self.state();
        state.token = token;
        state.sessions.drain().map(|(hash, _)| hash).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_right(&self, token: &str) -> bool {
        // The comparison's time reveals only a prefix of the hash, which does not help in guessing the token.
        Self::hash(token) == self.state().token
    }

    pub(crate) fn judge(&self, method: &Method, headers: &HeaderMap, now: Timestamp) -> Verdict {
        if let Some(token) = bearer(headers) {
            return if self.is_right(token) { Verdict::Allowed } else { Verdict::WrongToken };
        }
        let Some(id) = cookie(headers).filter(|id| self.is_logged_in(id, now)) else { return Verdict::NoToken };
        let safe = matches!(*method, Method::GET | Method::HEAD);
        let shown = headers.get("x-csrf-token").and_then(|value| value.to_str().ok());
        if safe || shown == Some(csrf(id).as_str()) { Verdict::Allowed } else { Verdict::Forged }
    }

    fn is_logged_in(&self, id: &str, now: Timestamp) -> bool {
        self.state().sessions.get(&Self::hash(id)).is_some_and(|until| now < *until)
    }

    /// Starts a session with a random id. `secure` is true if the page was requested over TLS.
    pub(crate) fn log_in(&self, id: &str, secure: bool, now: Timestamp) -> Session {
        let (hash, until) = (Self::hash(id), now.after(SESSION));
        let mut state = self.state();
        state.sessions.retain(|_, until| now < *until);
        let first = state.sessions.iter().min_by_key(|(_, until)| **until).map(|(hash, _)| *hash);
        let ended = first.filter(|_| state.sessions.len() >= SESSIONS);
        if let Some(ended) = &ended {
            state.sessions.remove(ended);
        }
        state.sessions.insert(hash, until);
        let (name, more) = if secure { (SECURE_COOKIE, "; Secure") } else { (COOKIE, "") };
        let age = SESSION.as_secs();
        let cookie = format!("{name}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}{more}");
        Session { cookie, hash, until, ended }
    }

    /// Ends a request's session and returns its hash; `None` if the request has no session.
    pub(crate) fn log_out(&self, headers: &HeaderMap) -> Option<TokenHash> {
        let hash = Self::hash(cookie(headers)?);
        self.state().sessions.remove(&hash).map(|_| hash)
    }

    /// The `Set-Cookie` values that make a browser delete its session cookies.
    pub(crate) fn forgotten() -> [String; 2] {
        let gone = "=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0";
        [format!("{COOKIE}{gone}"), format!("{SECURE_COOKIE}{gone}; Secure")]
    }

    /// The CSRF token of a request's session; `None` without a session cookie.
    pub(crate) fn csrf_of(headers: &HeaderMap) -> Option<String> {
        cookie(headers).map(csrf)
    }

    /// Delays the answer to a wrong token. Returns false at once if too many answers are pending.
    pub(crate) async fn hold_back(&self, peer: IpAddr, gauges: &Gauges) -> bool {
        let wrong = gauges.wrong_tokens.fetch_add(1, Ordering::Relaxed) + 1;
        // Logs the 1st, 2nd, 4th, 8th … wrong token, so that a guessing client cannot fill the log.
        if wrong.is_power_of_two() {
            tracing::warn!("wrong token from {peer}; {wrong} since the start");
        }
        {
            let mut state = self.state();
            let (each, all) = GUESSES;
            let waiting: usize = state.guesses.values().sum();
            let own = state.guesses.entry(peer).or_default();
            if *own >= each || waiting >= all {
                return false;
            }
            *own += 1;
        }
        let _waiting = Waiting { auth: self, peer };
        tokio::time::sleep(DELAY).await;
        true
    }
}

/// A pending answer to a wrong token; removed from the count when dropped.
struct Waiting<'a> {
    auth: &'a Auth,
    peer: IpAddr,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.auth.state();
        if let Some(own) = state.guesses.get_mut(&self.peer) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                state.guesses.remove(&self.peer);
            }
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs: Vec<(&str, &str)> =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('=')).collect();
    // A page on the same host name without TLS cannot set the secure cookie.
    let named = |wanted| pairs.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
    named(SECURE_COOKIE).or_else(|| named(COOKIE))
}

fn csrf(id: &str) -> String {
    let digest = Sha256::digest(format!("csrf:{id}"));
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse::<header::HeaderName>().unwrap(), value.parse().unwrap()))
            .collect()
    }

    fn at(days: u64) -> Timestamp {
        Timestamp::default().after(Duration::from_secs(days * 24 * 3600))
    }

    #[test]
    fn requests_need_a_token_or_a_session_and_changes_from_pages_need_a_csrf_token() {
        let auth = Auth::new(Auth::hash("right-token"), []);
        let session = auth.log_in("random-id", false, at(0));
        assert!(!session.cookie.contains("right-token") && !session.cookie.contains("Secure"));
        let csrf = csrf("random-id");
        let cookie = ("cookie", "a=b; polliwog_session=random-id");
        for (method, pairs, expected) in [
            (Method::GET, vec![], Verdict::NoToken),
            (Method::GET, vec![("authorization", "Bearer right-token")], Verdict::Allowed),
            (Method::POST, vec![("authorization", "bearer right-token")], Verdict::Allowed),
            (Method::GET, vec![("authorization", "Bearer wrong-token")], Verdict::WrongToken),
            (Method::GET, vec![("authorization", "Basic right-token")], Verdict::NoToken),
            (Method::GET, vec![cookie], Verdict::Allowed),
            (Method::GET, vec![("cookie", "polliwog_session=right-token")], Verdict::NoToken),
            (Method::POST, vec![cookie], Verdict::Forged),
            (Method::POST, vec![cookie, ("x-csrf-token", "guess")], Verdict::Forged),
            (Method::POST, vec![cookie, ("x-csrf-token", csrf.as_str())], Verdict::Allowed),
        ] {
            assert_eq!(auth.judge(&method, &headers(&pairs), at(29)), expected, "{method} {pairs:?}");
        }
        assert_eq!(auth.judge(&Method::GET, &headers(&[cookie]), at(30)), Verdict::NoToken, "the session has expired");
    }

    #[test]
    fn a_session_ends_on_log_out_and_when_the_token_is_replaced() {
        let auth = Auth::new(Auth::hash("right-token"), [(Auth::hash("earlier"), at(5))]);
        let logged_in = |id: &str| {
            let cookie = format!("{SECURE_COOKIE}={id}; {COOKIE}=other");
            auth.judge(&Method::GET, &headers(&[("cookie", &cookie)]), at(1)) == Verdict::Allowed
        };
        assert!(logged_in("earlier"), "the session survives a restart");
        let session = auth.log_in("second", true, at(1));
        assert!(session.cookie.starts_with("__Host-") && session.cookie.ends_with("; Secure"), "{}", session.cookie);
        assert!(logged_in("second"));
        let cookie = format!("{SECURE_COOKIE}=earlier");
        assert_eq!(auth.log_out(&headers(&[("cookie", &cookie)])), Some(Auth::hash("earlier")));
        assert!(!logged_in("earlier") && logged_in("second"));
        assert_eq!(auth.replace(Auth::hash("another-token")), [Auth::hash("second")]);
        assert!(!logged_in("second") && !auth.is_right("right-token") && auth.is_right("another-token"));
    }

    #[test]
    fn a_log_in_above_the_session_limit_ends_the_oldest_session() {
        let auth = Auth::new(Auth::hash("right-token"), []);
        for number in 0..SESSIONS {
            assert_eq!(
                auth.log_in(&number.to_string(), false, at(0).after(Duration::from_secs(number as u64))).ended,
                None
            );
        }
        assert_eq!(auth.log_in("more", false, at(1)).ended, Some(Auth::hash("0")));
        assert_eq!(auth.state().sessions.len(), SESSIONS);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_to_wrong_tokens_are_delayed_and_limited_for_each_address() {
        let (auth, gauges) = (Auth::new(Auth::hash("right-token"), []), Gauges::default());
        let (peer, other): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let begun = tokio::time::Instant::now();
        let guesses = (0..20).map(|_| auth.hold_back(peer, &gauges));
        let (heard, other) = tokio::join!(futures_util::future::join_all(guesses), auth.hold_back(other, &gauges));
        assert_eq!(heard.into_iter().filter(|heard| *heard).count(), GUESSES.0);
        assert!(other && begun.elapsed() >= DELAY);
        assert!(auth.state().guesses.is_empty());
        assert_eq!(gauges.wrong_tokens.load(Ordering::Relaxed), 21);
    }
}
