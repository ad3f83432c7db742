//! Reads of this host's API by the operator of its fleet, which has no token.

use crate::error::ApiError;
use crate::state::Shared;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

/// The maximum size of an answer in bytes.
const LARGEST: usize = 32 << 20;
/// An operator may read the targets of this host, and their dependencies.
const READABLE: [&str; 2] = ["/api/v1/targets", "/api/v1/dependencies"];

/// Answers reads of targets and dependencies without a token.
#[derive(Clone)]
pub struct Reads {
    routes: Router,
}

impl Reads {
    /// `routes` are those of the API that need a token.
    pub(crate) fn new(routes: Router<Shared>, shared: Shared) -> Self {
        Self { routes: routes.with_state(shared) }
    }

    /// Returns the status and the body of the answer to a read of a path, which may have a query.
    pub async fn read(&self, path: &str) -> (u16, String) {
        let is_readable = |uri: &Uri| {
            let rest = READABLE.iter().find_map(|readable| uri.path().strip_prefix(readable));
            uri.scheme().is_none() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let response = match path.parse::<Uri>().ok().filter(is_readable) {
            Some(uri) => {
                let mut request = Request::new(Body::empty());
                *request.uri_mut() = uri;
                match TowerToHyperService::new(self.routes.clone()).call(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }
            None => {
                let message = "the operator of a fleet reads targets and dependencies of a device, nothing else";
                ApiError::new(StatusCode::FORBIDDEN, "out_of_scope", message).into_response()
            }
        };
        let status = response.status().as_u16();
        match to_bytes(response.into_body(), LARGEST).await {
            Ok(body) => (status, String::from_utf8_lossy(&body).into_owned()),
            Err(_) => {
                let message = "the answer is larger than 32 MiB: read a page of it";
                let status = StatusCode::PAYLOAD_TOO_LARGE;
                let (_, body) = ApiError::new(status, "too_large", message).into_response().into_parts();
                let body = to_bytes(body, LARGEST).await.unwrap_or_default();
                (status.as_u16(), String::from_utf8_lossy(&body).into_owned())
            }
        }
    }
}
