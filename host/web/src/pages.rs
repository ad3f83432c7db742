//! The HTML pages. They work without the script, which keeps their content up to date.

mod alerts;
mod channels;
mod definition;
mod dependants;
mod dependency;
mod device_targets;
mod events;
mod fleet;
mod form;
mod graph;
mod kept;
mod login;
mod new_target;
mod overview;
mod parts;
mod pictures;
mod plugins;
mod polls;
mod problem;
mod replay;
mod reported;
mod scheduler;
mod settings;
mod shell;
mod status;
mod target;
mod target_settings;
mod wall;

use crate::compression::compressed;
use crate::state::Shared;
use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
pub(crate) use kept::Kept;
pub(crate) use login::{ask_to_log_in, log_in, log_out, login};
pub(crate) use parts::encoded;
pub(crate) use pictures::Pictures;
use shell::Place;
pub(crate) use shell::failure;
pub(crate) use status::{badge, page as public_status};
pub(crate) use wall::refused as refuse_wall;

const STYLE: &str = include_str!("../assets/style.css");
const SCRIPT: &str = include_str!("../assets/app.js");
const STREAM: &str = include_str!("../assets/stream.js");

/// The browser tab's icon: a coloured disc.
macro_rules! icon {
    ($colour:literal) => {
        concat!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill=""#,
            $colour,
            r#""/></svg>"#
        )
    };
}

pub(crate) async fn asset(Path(file): Path<String>) -> Response {
    let (kind, body) = match file.as_str() {
        "style.css" => ("text/css; charset=utf-8", STYLE),
        "app.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "stream.js" => ("text/javascript; charset=utf-8", STREAM),
        "icon-ok.svg" => ("image/svg+xml", icon!("#1a7f42")),
        "icon-attention.svg" => ("image/svg+xml", icon!("#e3a83b")),
        "icon-bad.svg" => ("image/svg+xml", icon!("#c02033")),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "max-age=60")], body).into_response()
}

/// Whether a path is that of a page. A browser without a session is sent to the log-in.
pub(crate) fn is_page(path: &str) -> bool {
    ["/wall", "/channels"].contains(&path)
        || Place::ALL.iter().any(|place| place.path() == path)
        || ["/targets/", "/dependencies/", "/fleet/"].iter().any(|of| path.starts_with(of))
}

/// The pages, and the parts of them that the script fetches.
pub(crate) fn routes() -> Router<Shared> {
    let fragments = Router::new()
        .route("/targets", get(overview::fragment))
        .route("/targets/{id}", get(target::fragment))
        .route("/dependencies/{name}", get(dependency::fragment))
        .route("/alerts", get(alerts::fragment))
        .route("/channels", get(channels::fragment))
        .route("/graph", get(graph::fragment))
        .route("/events", get(events::fragment))
        .route("/scheduler", get(scheduler::fragment))
        .route("/plugins", get(plugins::fragment))
        .route("/settings", get(settings::fragment))
        .route("/fleet", get(fleet::fragment))
        .route("/fleet/deployments/{name}", get(fleet::deployment_fragment))
        .route("/fleet/devices/{id}", get(fleet::device_fragment))
        .route("/fleet/devices/{id}/targets", get(device_targets::fragment))
        .route("/wall", get(wall::fragment));
    Router::new()
        .route("/", get(overview::page))
        .route("/targets/new", get(new_target::page))
        .route("/targets/{id}", get(target::page))
        .route("/dependencies/{name}", get(dependency::page))
        .route("/alerts", get(alerts::page))
        .route("/channels", get(channels::page))
        .route("/graph", get(graph::page))
        .route("/events", get(events::page))
        .route("/scheduler", get(scheduler::page))
        .route("/scheduler/replay", get(replay::page))
        .route("/plugins", get(plugins::page))
        .route("/settings", get(settings::page))
        .route("/fleet", get(fleet::page))
        .route("/fleet/deployments/{name}", get(fleet::deployment))
        .route("/fleet/devices/{id}", get(fleet::device))
        .route("/fleet/devices/{id}/targets", get(device_targets::page))
        .route("/wall", get(wall::page))
        .nest("/fragments", fragments.layer(compressed()))
}
