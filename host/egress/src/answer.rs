//! The answers that a plugin sees.

use crate::captures::Place;
use crate::in_flight::Raw;
use crate::message::Response;
use crate::reading::Visible;

/// Returns the answer to an exchange with all secrets masked.
pub(crate) async fn response(visible: &Visible, exchange: u32, raw: Raw) -> Response {
    let (body, is_complete) = visible.body(raw.body, raw.is_complete).await;
    let maskers = visible.maskers();
    let (mut headers, mut reason) = (raw.headers, raw.reason);
    if !maskers.is_empty() {
        for text in headers.iter_mut().flat_map(|(name, value)| [name, value]).chain([&mut reason]) {
            *text = maskers.text(std::mem::take(text)).await;
        }
    }
    if !maskers.is_empty() && (body.is_empty() || !is_complete) {
        // The length of a body that the plugin does not see would reveal how many characters of a secret are
        // escaped.
        headers.retain(|(name, value)| name != "content-length" || value == "0");
    }
    Response { exchange, status: raw.status, reason, headers, body, is_complete, timing: raw.timing, _held: raw.held }
}

/// Replaces captured values by stars, and corrects the length: the one before masking would reveal how many characters
/// of a secret are escaped.
pub(crate) fn finished(mut response: Response, captured: Vec<Place>) -> Response {
    Place::star(captured, &mut response.headers, &mut response.body);
    if response.is_complete && !response.body.is_empty() {
        for (_, value) in response.headers.iter_mut().filter(|(name, _)| name == "content-length") {
            *value = response.body.len().to_string();
        }
    }
    response
}
