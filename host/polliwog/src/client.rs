//! The client of the running host's API. Requests go through `egress`, like all outgoing requests.

use crate::cli::Common;
use crate::configuration;
use egress::{Egress, Grant, Limits, Method, Origin, OriginGrant, Request, Secrets, Session, Tls};
use secrecy::SecretString;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const URL: &str = "POLLIWOG_URL";
const TOKEN: &str = "POLLIWOG_TOKEN";
const TIMEOUT: Duration = Duration::from_secs(10);
/// The test of a target waits for the target's server, and a replay computes for seconds. The API answers each request
/// within this time.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);
const ANSWER: usize = 64 << 20;

/// Why a call to the running host failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// No host answered.
    Unreachable(String),
    /// The host refused the request.
    Refused(String),
}

/// The URL of this configuration's host. Fails if the token would be sent to an address that only a file in the current
/// directory names, because anyone may have written that file.
fn usual_url(common: &Common) -> Result<String, Unanswered> {
    let places = common.places();
    let usual = configuration::defaults(&places)
        .map_or_else(|_| SocketAddr::from(([127, 0, 0, 1], 7411)), |config| config.listen);
    let found = config::find(&places, &config::environment);
    let unknown = |why: String| {
        Err(Unanswered::Refused(format!("{why}; the address of the host is not known: correct the file, or set {URL}")))
    };
    let listen = match configuration::examine(&places) {
        Ok((Some(config), _)) => config.listen,
        Ok((None, problems)) => return unknown(problems.first().map(ToString::to_string).unwrap_or_default()),
        // Without a file the host listens at the usual address.
        Err(_) if found.is_err() => usual,
        Err(error) => return unknown(error.to_string()),
    };
    let is_named = places.config.is_some() || found.is_ok_and(|path| path.is_absolute());
    if set(TOKEN).is_some() && listen != usual && !is_named {
        return Err(Unanswered::Refused(format!(
            "polliwog.toml in this directory names the host {listen}, but {TOKEN} is not sent to a host that only such a file \
             names: if the file is yours, use --config polliwog.toml, or set {URL}"
        )));
    }
    Ok(format!("http://{listen}"))
}

/// Calls the running host's API and returns its answer as JSON. The environment or, if it is not set there, the
/// configuration provides the URL.
pub(crate) async fn call(
    common: &Common,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Result<Value, Unanswered> {
    let unreachable = |error: &dyn std::fmt::Display| Unanswered::Unreachable(error.to_string());
    let url = match set(URL) {
        Some(url) => url,
        None => usual_url(common)?,
    };
    let (base, origin) = Origin::parse(&url).map_err(|error| Unanswered::Refused(format!("{URL}: {error}")))?;
    let tls = Tls::system().map_err(|error| unreachable(&error))?;
    let token = set(TOKEN);
    let values: BTreeMap<_, _> =
        token.iter().map(|token| ("token".to_owned(), SecretString::from(token.as_str()))).collect();
    let secrets = Secrets::new(values)
        .map_err(|_| Unanswered::Refused(format!("{TOKEN} is not a valid token: it is too short")))?;
    let mut request = Request { method, ..Request::get(path) };
    if let Some(body) = body {
        request.headers.push(("content-type".to_owned(), "application/json".to_owned()));
        request.body = Some(body.to_string().into_bytes());
    }
    let origins = vec![OriginGrant { origin, tls }];
    let grant = Grant::new(base, origins, secrets);
    let is_long =
        path.ends_with("/test") || path.ends_with("/target-tests") || path.starts_with("/api/v1/scheduler/replay");
    let timeout = if is_long { LONG_TIMEOUT } else { TIMEOUT };
    let limits = Limits { requests: 1, body: ANSWER, bodies: ANSWER };
    let lane = Egress::new(egress::Config::default()).lane(tokio::runtime::Handle::current());
    let session = Session::new(lane, Arc::new(grant), limits, Instant::now() + timeout);
    if token.is_some() {
        request.headers.push(("authorization".to_owned(), format!("Bearer {}", session.reference("secret.token"))));
    }
    let response = session.fetch(request).await.map_err(|error| unreachable(&error))?;
    let answer = serde_json::from_slice::<Value>(&response.body);
    match (response.status, answer) {
        (200..=299, Ok(answer)) => Ok(answer),
        (200..=299, Err(error)) => Err(Unanswered::Refused(format!("{url} did not answer with JSON: {error}"))),
        (401, _) if token.is_some() => {
            Err(Unanswered::Refused(format!("the host at {url} refuses the token in {TOKEN}: use its admin token")))
        }
        (401, _) => Err(Unanswered::Refused(format!(
            "the host at {url} requires its admin token: set {TOKEN} (`polliwog token show` prints it)"
        ))),
        (status, answer) => {
            let message = answer.ok().and_then(|answer| Some(answer["error"]["message"].as_str()?.to_owned()));
            Err(Unanswered::Refused(message.unwrap_or_else(|| format!("the host at {url} answered {status}"))))
        }
    }
}

/// Returns an environment variable; `None` if it is unset or empty.
fn set(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}
