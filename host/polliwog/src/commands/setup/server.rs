//! Requests to a server that is not a target yet, without credentials.

use super::recipe::Recipe;
use anyhow::anyhow;
use egress::{
    Certificate, Egress, Error, Exchanged, Grant, Limits, Origin, OriginGrant, Request, Response, Secrets, Session, Tls,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use url::Url;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of the answer in bytes.
const ANSWER: usize = 1 << 20;

/// The result of a request without credentials.
pub(super) struct Seen {
    /// `None` over plain HTTP.
    pub certificate: Option<Certificate>,
    /// Whether this machine trusts the issuer of the certificate.
    pub trusted: bool,
    /// The reason to doubt that the server is of the kind.
    pub doubt: Option<String>,
}

/// Requests the public path of a server and returns its certificate.
pub(super) async fn look(recipe: &Recipe, url: &Url) -> anyhow::Result<Seen> {
    let (answer, trusted) = match ask(recipe, url, Tls::system()?).await {
        Err(Error::Untrusted { .. } | Error::NameMismatch { .. } | Error::Expired { .. } | Error::TlsFailed { .. }) => {
            (ask(recipe, url, Tls::insecure()?).await, false)
        }
        answer => (answer, true),
    };
    let (answer, certificate) = answer.map_err(|error| {
        let usual = recipe
            .setup
            .port
            .map(|port| format!(" ({} listens on port {port} unless it is configured otherwise)", recipe.title));
        anyhow!("{url}: {error}{}", usual.unwrap_or_default())
    })?;
    let expected = match &recipe.setup.public_pointer {
        Some(pointer) => {
            let body = serde_json::from_slice::<serde_json::Value>(&answer.body);
            answer.status == 200 && body.is_ok_and(|body| body.pointer(pointer).is_some())
        }
        None => true,
    };
    let doubt = (!expected).then(|| {
        format!(
            "{url} does not answer as {} does ({} is answered {}): check that the address and the kind are correct",
            recipe.title, recipe.setup.public_path, answer.status
        )
    });
    Ok(Seen { certificate, trusted, doubt })
}

/// Returns the answer and the certificate of the server.
async fn ask(recipe: &Recipe, url: &Url, tls: Tls) -> Result<(Response, Option<Certificate>), Error> {
    let (base, origin) = Origin::parse(url.as_str()).map_err(|error| Error::BadRequest(error.to_string()))?;
    let grant = Grant::new(base, vec![OriginGrant { origin, tls }], Secrets::default());
    let limits = Limits { requests: 1, body: ANSWER, bodies: ANSWER };
    let lane = Egress::new(egress::Config::default()).lane(tokio::runtime::Handle::current());
    let session = Session::new(lane, Arc::new(grant), limits, Instant::now() + TIMEOUT);
    let Exchanged { number, result, .. } = session.exchange(Request::get(recipe.public_url(url))).await;
    let answer = result?;
    let tls = match number {
        Some(number) => session.tls_of(number).await,
        None => None,
    };
    Ok((answer, tls.and_then(|tls| tls.chain.into_iter().next())))
}
