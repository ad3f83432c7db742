//! A receiver of notifications: it takes those of the demo's channel, and shows them as a phone does.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Html;
use axum::routing::get;
use serde::Deserialize;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The path of the receiver.
pub const RECEIVER: &str = "/receiver";
/// The number of messages that it shows.
const SHOWN: usize = 50;

/// The parts of the body of kind `webhook` that are shown.
#[derive(Clone, Deserialize)]
struct Message {
    title: String,
    text: String,
    status: String,
}

type Messages = Arc<Mutex<VecDeque<Message>>>;

pub(crate) fn router() -> Router {
    Router::new().route(RECEIVER, get(page).post(take)).with_state(Messages::default())
}

async fn take(State(messages): State<Messages>, body: String) -> StatusCode {
    let Ok(message) = serde_json::from_str(&body) else { return StatusCode::BAD_REQUEST };
    let mut messages = messages.lock().unwrap_or_else(PoisonError::into_inner);
    messages.push_front(message);
    messages.truncate(SHOWN);
    StatusCode::OK
}

async fn page(State(messages): State<Messages>) -> Html<String> {
    let messages = messages.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let card = |message: &Message| {
        let color = match message.status.as_str() {
            "critical" => "#c62828",
            "ok" => "#2e7d32",
            _ => "#ef8f00",
        };
        let (title, text) = (escaped(&message.title), escaped(&message.text).replace('\n', "<br>"));
        format!("<article style=\"border-left-color:{color}\"><h2>{title}</h2><p>{text}</p></article>")
    };
    let cards: String = messages.iter().map(card).collect();
    let none = if cards.is_empty() {
        "<p>Nothing was sent yet. The first alert of the demo follows within a minute.</p>"
    } else {
        ""
    };
    Html(format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"2\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Notifications of the demo</title><style>\
         body{{max-width:26rem;margin:1rem auto;padding:0 .5rem;font:16px/1.4 system-ui,sans-serif;background:#f2f2f2;color:#222}}\
         article{{background:#fff;border-left:6px solid;border-radius:8px;margin:.6rem 0;padding:.6rem .9rem}}\
         h1{{font-size:1.2rem}}h2{{font-size:1rem;margin:0}}p{{margin:.2rem 0}}</style></head><body>\
         <h1>Notifications of the demo</h1>{none}{cards}</body></html>"
    ))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
