//! Entity tags: a client that polls the API gets an answer without a body while nothing has changed.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

/// Adds an entity tag to answers of GET requests that are JSON; answers 304 if the client has the same answer already.
/// Tokens are not stored by clients, so their answers have none.
pub(crate) async fn tagged(request: Request, next: Next) -> Response {
    let is_read = *request.method() == Method::GET && !request.uri().path().starts_with("/api/v1/tokens");
    let known = request.headers().get(header::IF_NONE_MATCH).cloned();
    let response = next.run(request).await;
    if !is_read || response.status() != StatusCode::OK || !is_json(response.headers()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // The answer is in memory already, so there is no limit to its length.
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let digest = Sha256::digest(&bytes);
    let tag: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("W/\"{tag}\"");
    if let Ok(value) = HeaderValue::from_str(&tag) {
        parts.headers.insert(header::ETAG, value);
    }
    parts.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    if known.as_ref().and_then(|known| known.to_str().ok()).is_some_and(|known| matches(known, &tag)) {
        parts.headers.remove(header::CONTENT_LENGTH);
        parts.headers.remove(header::CONTENT_TYPE);
        parts.status = StatusCode::NOT_MODIFIED;
        return Response::from_parts(parts, Body::empty());
    }
    Response::from_parts(parts, Body::from(bytes))
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

/// Whether a list of tags contains this one. The comparison is weak (RFC 9110, section 8.8.3.2).
fn matches(known: &str, tag: &str) -> bool {
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    known.split(',').any(|one| one.trim() == "*" || opaque(one) == opaque(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_compared_weakly_in_lists() {
        for (known, expected) in
            [("W/\"a\"", true), ("\"a\"", true), ("\"b\", W/\"a\"", true), ("*", true), ("\"b\"", false), ("", false)]
        {
            assert_eq!(matches(known, "W/\"a\""), expected, "{known}");
        }
    }
}
