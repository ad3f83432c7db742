//! The running host, asked through its API. Leaves through `egress`, like everything that leaves.

use egress::{Egress, Grant, Limits, Origin, OriginGrant, Reach, Request, Secrets, Session, Tls};
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const URL: &str = "POLLIWOG_URL";
const TOKEN: &str = "POLLIWOG_TOKEN";
const TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER: usize = 64 << 20;

/// Why the running host did not answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Nobody is there.
    Nobody(String),
    /// Somebody is there and refuses.
    Refused(String),
}

/// GETs a path of the running host's API as JSON; `usual` is where it is when the environment says nothing.
pub(crate) async fn get(usual: &str, path: &str) -> Result<serde_json::Value, Unanswered> {
    let nobody = |error: &dyn std::fmt::Display| Unanswered::Nobody(error.to_string());
    let url = set(URL).unwrap_or_else(|| usual.to_owned());
    let (base, origin) = Origin::parse(&url).map_err(|error| Unanswered::Refused(format!("{URL}: {error}")))?;
    let tls = Tls::system().map_err(|error| nobody(&error))?;
    let token = set(TOKEN);
    let values: BTreeMap<_, _> =
        token.iter().map(|token| ("token".to_owned(), SecretString::from(token.as_str()))).collect();
    let secrets = Secrets::new(values).map_err(|error| Unanswered::Refused(format!("{TOKEN}: {error}")))?;
    let mut request = Request::get(path);
    if token.is_some() {
        request.headers.push(("authorization".to_owned(), "Bearer ${secret.token}".to_owned()));
    }
    let grant = Grant { base, origins: vec![OriginGrant { origin, tls }], reach: Reach::Everywhere, secrets };
    let limits = Limits { requests: 1, body: ANSWER, bodies: ANSWER };
    let lane = Egress::new(egress::Config::default()).lane(tokio::runtime::Handle::current());
    let session = Session::new(lane, Arc::new(grant), limits, Instant::now() + TIMEOUT);
    let response = session.fetch(request).await.map_err(|error| nobody(&error))?;
    match response.status {
        200 => serde_json::from_slice(&response.body)
            .map_err(|error| Unanswered::Refused(format!("{url} sent no JSON: {error}"))),
        401 | 403 if token.is_some() => {
            Err(Unanswered::Refused(format!("the host at {url} refuses the token in {TOKEN}: use its admin token")))
        }
        401 | 403 => Err(Unanswered::Refused(format!("the host at {url} wants its admin token: set {TOKEN}"))),
        status => Err(Unanswered::Refused(format!("the host at {url} answered {status}"))),
    }
}

/// A variable that is set to something.
fn set(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}
