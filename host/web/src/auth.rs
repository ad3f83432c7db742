//! Authentication: tokens with scopes, sessions of pages, and CSRF tokens.
//!
//! Programs send a bearer token. A page logs in with a token once and gets a session with the token's scope: a random
//! id in a cookie that scripts cannot read and other sites do not send. A session ends after [`SESSION`], on log-out,
//! or with its token. Only hashes of tokens and sessions are stored. A page's request that changes something must also
//! send a CSRF token, which only our pages have.
//!
//! The answer to a wrong token is delayed, and each address has a limited number of such answers pending, so that
//! guessing is slow.

use crate::gauges::Gauges;
use crate::proxy::{self, Proxy};
use axum::http::{HeaderMap, Method, header};
use model::{Scope, Session, Timestamp, Token};
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

/// A token's use is noted again after this time.
const USED: Duration = Duration::from_secs(3600);

/// The tokens and the active sessions.
#[derive(Clone, Debug)]
pub struct Auth {
    state: Arc<Mutex<State>>,
    proxy: Option<Arc<Proxy>>,
}

#[derive(Debug)]
struct State {
    /// The hash of the token of the first start, which is not in `tokens`.
    admin: TokenHash,
    tokens: HashMap<TokenHash, Token>,
    sessions: HashMap<TokenHash, Session>,
    /// The number of pending answers to wrong tokens, by address.
    guesses: HashMap<IpAddr, usize>,
}

/// The result of checking a request's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    NoToken,
    /// A bearer token that is not valid.
    WrongToken,
    /// The token or session has this scope, which is too small for the request.
    OutOfScope(Scope),
    /// A session cookie without the CSRF token: another site may have sent the request.
    Forged,
}

/// A session that has begun.
#[derive(Debug)]
pub(crate) struct Begun {
    /// The cookie for the browser.
    pub cookie: String,
    /// The session, for the store.
    pub kept: Session,
    /// The hash of a session that ended because there were [`SESSIONS`] already.
    pub ended: Option<TokenHash>,
}

/// Besides targets, who operates changes these: dead letters, breakers, alerts, silences and notifications.
const OPERATED: [&str; 6] = [
    "/api/v1/dead-letters/",
    "/api/v1/breakers/",
    "/api/v1/alerts/",
    "/api/v1/silences",
    "/api/v1/channels/",
    "/api/v1/deliveries/",
];

/// Returns the scope that a request needs.
fn needed(method: &Method, path: &str) -> Scope {
    let of_target = path.strip_prefix("/api/v1/targets/").is_some_and(|rest| !rest.is_empty());
    let operates = of_target && *method != Method::DELETE && *method != Method::PUT
        || OPERATED.iter().any(|of| path.starts_with(of));
    match *method {
        _ if ["/wall", "/fragments/wall"].contains(&path) => Scope::Wall,
        _ if path.starts_with("/api/v1/tokens") => Scope::Admin,
        Method::GET | Method::HEAD => Scope::Read,
        Method::POST if path == "/logout" => Scope::Read,
        _ if operates => Scope::Operate,
        _ => Scope::Admin,
    }
}

impl Auth {
    /// Accepts the token of the first start with this hash, tokens with names, and sessions.
    pub fn new(
        admin: TokenHash,
        tokens: impl IntoIterator<Item = Token>,
        sessions: impl IntoIterator<Item = Session>,
    ) -> Self {
        let tokens = tokens.into_iter().map(|token| (token.hash, token)).collect();
        let sessions = sessions.into_iter().map(|session| (session.hash, session)).collect();
        let state = State { admin, tokens, sessions, guesses: HashMap::new() };
        Self { state: Arc::new(Mutex::new(state)), proxy: None }
    }

    /// Accepts the users that a reverse proxy names, too.
    #[must_use]
    pub fn behind(self, proxy: Option<Proxy>) -> Self {
        Self { proxy: proxy.map(Arc::new), ..self }
    }

    /// Marks a request from an address with the user that the reverse proxy names. Comes before all other functions.
    pub(crate) fn mark(&self, peer: IpAddr, headers: &mut HeaderMap) {
        Proxy::mark(self.proxy.as_deref(), peer, headers);
    }

    /// The hash of a token, as it is stored.
    pub fn hash(token: &str) -> TokenHash {
        Sha256::digest(token).into()
    }

    /// Replaces the hash of the token of the first start and ends its sessions. Returns their hashes.
    pub fn replace(&self, admin: TokenHash) -> Vec<TokenHash> {
        let mut state = self.state();
        state.admin = admin;
        state.end_sessions(None)
    }

    /// Returns the tokens with names, by name.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        let mut tokens: Vec<Token> = self.state().tokens.values().cloned().collect();
        tokens.sort_by(|left, right| left.name.cmp(&right.name));
        tokens
    }

    /// Returns the number of sessions of the token with a hash; `None` for that of the first start.
    pub(crate) fn sessions(&self, token: Option<TokenHash>, now: Timestamp) -> usize {
        self.state().sessions.values().filter(|session| session.token == token && now < session.until).count()
    }

    /// Adds a token. Returns false if one has its name already.
    pub(crate) fn grant(&self, token: Token) -> bool {
        let mut state = self.state();
        let is_new = state.tokens.values().all(|held| held.name != token.name);
        if is_new {
            state.tokens.insert(token.hash, token);
        }
        is_new
    }

    /// Removes the token with a name and its sessions. Returns its hash; `None` if the name is unknown.
    pub(crate) fn revoke(&self, name: &str) -> Option<TokenHash> {
        let mut state = self.state();
        let hash = state.tokens.values().find(|token| token.name == name)?.hash;
        state.tokens.remove(&hash);
        state.end_sessions(Some(hash));
        Some(hash)
    }

    /// Notes that the token of a request is used. Returns the token if that should be stored.
    pub(crate) fn used(&self, headers: &HeaderMap, key: Option<&str>, now: Timestamp) -> Option<Token> {
        let mut state = self.state();
        let hash = match bearer(headers).or(key) {
            Some(secret) => Self::hash(secret),
            None => state.sessions.get(&Self::hash(cookie(headers)?))?.token?,
        };
        let token = state.tokens.get_mut(&hash)?;
        let is_due = token.last_used.is_none_or(|last| now.since(last) >= USED);
        is_due.then(|| {
            token.last_used = Some(now);
            token.clone()
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges a request with a method, a path, headers, and the key in the address of the page for a wall.
    pub(crate) fn judge(
        &self,
        (method, path): (&Method, &str),
        (headers, key): (&HeaderMap, Option<&str>),
        now: Timestamp,
    ) -> Verdict {
        let needed = needed(method, path);
        let enough = |scope: Scope| if scope >= needed { Verdict::Allowed } else { Verdict::OutOfScope(scope) };
        if let Some(secret) = bearer(headers).or_else(|| key.filter(|_| needed == Scope::Wall)) {
            return self.state().scope_of(&Self::hash(secret), now).map_or(Verdict::WrongToken, enough);
        }
        let Some(scope) = self.scope(headers, now) else { return Verdict::NoToken };
        let safe = matches!(*method, Method::GET | Method::HEAD);
        let shown = headers.get("x-csrf-token").and_then(|value| value.to_str().ok());
        if safe || shown.is_some() && shown == Self::csrf_of(headers).as_deref() {
            enough(scope)
        } else {
            Verdict::Forged
        }
    }

    /// Returns the scope of a request's session, or of the proxy's users; `None` without one.
    pub(crate) fn scope(&self, headers: &HeaderMap, now: Timestamp) -> Option<Scope> {
        let session = cookie(headers).and_then(|id| self.scope_of_session(id, now));
        let proxied = || proxy::user(headers).and(self.proxy.as_ref()).map(|proxy| proxy.scope);
        session.or_else(proxied)
    }

    fn scope_of_session(&self, id: &str, now: Timestamp) -> Option<Scope> {
        let state = self.state();
        let session = state.sessions.get(&Self::hash(id)).filter(|session| now < session.until)?;
        session.token.map_or(Some(Scope::Admin), |token| state.scope_of(&token, now))
    }

    /// Starts a session with a token and a random id; `None` if the token is wrong, or only for a wall. `secure` is
    /// true if the page was requested over TLS.
    pub(crate) fn log_in(&self, (secret, id): (&str, &str), secure: bool, now: Timestamp) -> Option<Begun> {
        let mut state = self.state();
        let token = Self::hash(secret);
        state.scope_of(&token, now).filter(|scope| *scope >= Scope::Read)?;
        let token = Some(token).filter(|token| *token != state.admin);
        let kept = Session { hash: Self::hash(id), until: now.after(SESSION), token };
        state.sessions.retain(|_, session| now < session.until);
        let first = state.sessions.values().min_by_key(|session| session.until).map(|session| session.hash);
        let ended = first.filter(|_| state.sessions.len() >= SESSIONS);
        if let Some(ended) = &ended {
            state.sessions.remove(ended);
        }
        state.sessions.insert(kept.hash, kept);
        let (name, more) = if secure { (SECURE_COOKIE, "; Secure") } else { (COOKIE, "") };
        let age = SESSION.as_secs();
        let cookie = format!("{name}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}{more}");
        Some(Begun { cookie, kept, ended })
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
        // Another site cannot send this header, whatever its value, without a permission that this host does not give.
        cookie(headers).or_else(|| proxy::user(headers)).map(csrf)
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

impl State {
    /// Returns the scope of the token with a hash; `None` if it is unknown or has expired. The comparison's time
    /// reveals only a prefix of the hash, which does not help in guessing the token.
    fn scope_of(&self, hash: &TokenHash, now: Timestamp) -> Option<Scope> {
        if *hash == self.admin {
            return Some(Scope::Admin);
        }
        self.tokens.get(hash).filter(|token| token.is_valid(now)).map(|token| token.scope)
    }

    /// Ends the sessions of a token; `None` for that of the first start. Returns their hashes.
    fn end_sessions(&mut self, token: Option<TokenHash>) -> Vec<TokenHash> {
        let of_token = self.sessions.values().filter(|session| session.token == token);
        let ended: Vec<TokenHash> = of_token.map(|session| session.hash).collect();
        self.sessions.retain(|_, session| session.token != token);
        ended
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

    fn judged(auth: &Auth, method: &Method, pairs: &[(&'static str, &str)], now: Timestamp) -> Verdict {
        auth.judge((method, "/api/v1/settings/x"), (&headers(pairs), None), now)
    }

    #[test]
    fn a_scope_bounds_what_a_token_and_its_sessions_may_do() {
        let token = |name: &str, scope| Token {
            hash: Auth::hash(name),
            name: name.to_owned(),
            scope,
            created: at(0),
            expires: Some(at(9)),
            last_used: None,
        };
        let tokens = Scope::ALL.map(|scope| token(scope.as_str(), scope));
        let auth = Auth::new(Auth::hash("first"), tokens, []);
        let post = Method::POST;
        for (method, path, least) in [
            (Method::GET, "/wall", Scope::Wall),
            (Method::GET, "/", Scope::Read),
            (Method::GET, "/api/v1/settings", Scope::Read),
            (Method::GET, "/api/v1/tokens", Scope::Admin),
            (post.clone(), "/api/v1/targets/a/poll", Scope::Operate),
            (post.clone(), "/api/v1/dead-letters/a/retry", Scope::Operate),
            (post.clone(), "/api/v1/breakers/a/reset", Scope::Operate),
            (Method::PUT, "/api/v1/alerts/a/acknowledgement", Scope::Operate),
            (post.clone(), "/api/v1/silences", Scope::Operate),
            (Method::DELETE, "/api/v1/silences/a", Scope::Operate),
            (post.clone(), "/api/v1/channels/a/test", Scope::Operate),
            (post.clone(), "/api/v1/deliveries/1/retry", Scope::Operate),
            (Method::GET, "/api/v1/deliveries", Scope::Read),
            (Method::PATCH, "/api/v1/targets/a", Scope::Operate),
            (Method::DELETE, "/api/v1/targets/a", Scope::Admin),
            (Method::PUT, "/api/v1/settings/x", Scope::Admin),
            (post.clone(), "/api/v1/tokens/rotate", Scope::Admin),
            (post, "/api/v1/targets", Scope::Admin),
        ] {
            for scope in Scope::ALL {
                let bearer = format!("Bearer {}", scope.as_str());
                let verdict = auth.judge((&method, path), (&headers(&[("authorization", &bearer)]), None), at(1));
                let expected = if scope >= least { Verdict::Allowed } else { Verdict::OutOfScope(scope) };
                assert_eq!(verdict, expected, "{method} {path} with {scope:?}");
            }
        }
        let of_wall = |path, key| auth.judge((&Method::GET, path), (&headers(&[]), Some(key)), at(1));
        assert_eq!(of_wall("/wall", "wall"), Verdict::Allowed);
        assert_eq!(of_wall("/wall", "guess"), Verdict::WrongToken);
        assert_eq!(of_wall("/", "admin"), Verdict::NoToken, "a key in an address opens the wall only");
        assert!(auth.log_in(("wall", "id"), false, at(1)).is_none());

        let session = auth.log_in(("read", "id"), false, at(1)).unwrap();
        assert_eq!(session.kept.token, Some(Auth::hash("read")));
        let cookie = [("cookie", "polliwog_session=id")];
        let page = |now| auth.judge((&Method::GET, "/"), (&headers(&cookie), None), now);
        assert_eq!((page(at(2)), page(at(9))), (Verdict::Allowed, Verdict::NoToken), "it ends with its token");
        assert_eq!(auth.used(&headers(&cookie), None, at(2)).unwrap().last_used, Some(at(2)));
        assert!(auth.used(&headers(&cookie), None, at(2)).is_none(), "noted once an hour");
        assert!(!auth.grant(token("read", Scope::Admin)), "the name is taken");
        assert_eq!(auth.revoke("read"), Some(Auth::hash("read")));
        assert_eq!((page(at(2)), auth.revoke("read")), (Verdict::NoToken, None));
        assert!(auth.grant(token("read", Scope::Read)));
    }

    #[test]
    fn requests_need_a_token_or_a_session_and_changes_from_pages_need_a_csrf_token() {
        let auth = Auth::new(Auth::hash("right-token"), [], []);
        let session = auth.log_in(("right-token", "random-id"), false, at(0)).unwrap();
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
            assert_eq!(judged(&auth, &method, &pairs, at(29)), expected, "{method} {pairs:?}");
        }
        assert_eq!(judged(&auth, &Method::GET, &[cookie], at(30)), Verdict::NoToken, "the session has expired");
    }

    #[test]
    fn a_session_ends_on_log_out_and_when_the_token_is_replaced() {
        let auth = Auth::new(
            Auth::hash("right-token"),
            [],
            [Session { hash: Auth::hash("earlier"), until: at(5), token: None }],
        );
        let logged_in = |id: &str| {
            let cookie = format!("{SECURE_COOKIE}={id}; {COOKIE}=other");
            judged(&auth, &Method::GET, &[("cookie", &cookie)], at(1)) == Verdict::Allowed
        };
        assert!(logged_in("earlier"), "the session survives a restart");
        let session = auth.log_in(("right-token", "second"), true, at(1)).unwrap();
        assert!(session.cookie.starts_with("__Host-") && session.cookie.ends_with("; Secure"), "{}", session.cookie);
        assert!(logged_in("second"));
        let cookie = format!("{SECURE_COOKIE}=earlier");
        assert_eq!(auth.log_out(&headers(&[("cookie", &cookie)])), Some(Auth::hash("earlier")));
        assert!(!logged_in("earlier") && logged_in("second"));
        assert_eq!(auth.replace(Auth::hash("another-token")), [Auth::hash("second")]);
        assert!(!logged_in("second"));
        assert!(auth.log_in(("right-token", "third"), true, at(1)).is_none());
        assert!(auth.log_in(("another-token", "third"), true, at(1)).is_some());
    }

    #[test]
    fn a_log_in_above_the_session_limit_ends_the_oldest_session() {
        let auth = Auth::new(Auth::hash("right-token"), [], []);
        for number in 0..SESSIONS {
            let now = at(0).after(Duration::from_secs(number as u64));
            assert_eq!(auth.log_in(("right-token", &number.to_string()), false, now).unwrap().ended, None);
        }
        assert_eq!(auth.log_in(("right-token", "more"), false, at(1)).unwrap().ended, Some(Auth::hash("0")));
        assert_eq!(auth.state().sessions.len(), SESSIONS);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_to_wrong_tokens_are_delayed_and_limited_for_each_address() {
        let (auth, gauges) = (Auth::new(Auth::hash("right-token"), [], []), Gauges::default());
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
