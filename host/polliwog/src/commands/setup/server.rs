//! Asking a server that is no target yet.

use super::product::Product;
use anyhow::bail;
use egress::{Certificate, Egress, Error, Grant, Limits, Origin, OriginGrant, Request, Secrets, Session, Tls};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use url::Url;

const TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER: usize = 1 << 20;
/// A log-in and what it is for.
const REQUESTS: u32 = 4;

/// What is known of the server after a look at it.
pub(super) struct Seen {
    /// Nothing over plain HTTP.
    pub certificate: Option<Certificate>,
    /// Whether this machine trusts who signed it.
    pub trusted: bool,
    /// Why it may be something else than what it should be.
    pub doubt: Option<String>,
}

/// Looks at a server's certificate; what is asked for, everybody may see.
pub(super) async fn look(product: &Product, url: &Url) -> anyhow::Result<Seen> {
    let ask = async |tls: Tls| open(url, tls, Secrets::default())?.fetch(Request::get(at(url, product.public))).await;
    let (answer, trusted) = match ask(Tls::system()?).await {
        Err(Error::Untrusted { .. } | Error::NameMismatch { .. } | Error::Expired { .. } | Error::TlsFailed { .. }) => {
            (ask(Tls::insecure()?).await?, false)
        }
        Ok(answer) => (answer, true),
        Err(error) => {
            bail!(
                "{url}: {error} ({} listens on port {} unless it is configured otherwise)",
                product.name,
                product.port
            )
        }
    };
    let is_json =
        serde_json::from_slice::<serde_json::Value>(&answer.body).is_ok_and(|body| body.get("data").is_some());
    let doubt = (answer.status != 200 || !is_json).then(|| {
        format!(
            "{url} does not answer as {} does ({} is answered {}): check that the address is the right one, and the product",
            product.name, product.public, answer.status
        )
    });
    Ok(Seen { certificate: answer.tls, trusted, doubt })
}

/// A few requests to a server, within ten seconds.
pub(super) fn open(url: &Url, tls: Tls, secrets: Secrets) -> Result<Session, Error> {
    let (base, origin) = Origin::parse(url.as_str()).map_err(|error| Error::BadRequest(error.to_string()))?;
    let grant = Grant::new(base, vec![OriginGrant { origin, tls }], secrets);
    let limits = Limits { requests: REQUESTS, body: ANSWER, bodies: ANSWER };
    let lane = Egress::new(egress::Config::default()).lane(tokio::runtime::Handle::current());
    Ok(Session::new(lane, Arc::new(grant), limits, Instant::now() + TIMEOUT))
}

/// A path of the API behind the URL's own.
pub(super) fn at(url: &Url, path: &str) -> String {
    format!("{}{path}", url.path().trim_end_matches('/'))
}
