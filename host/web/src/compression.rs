//! The compression of responses.

use tower_http::compression::CompressionLayer;

/// Compresses long responses for clients that accept it. Whole pages are not compressed: a page holds its CSRF token
/// next to text from others, and the compressed length would reveal it.
pub(crate) fn compressed() -> CompressionLayer {
    CompressionLayer::new().gzip(true)
}
