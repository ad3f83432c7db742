//! Health of the process, without authentication.

use crate::state::Shared;
use crate::status::TargetStatus;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Longest wait for the scheduling loop to answer a ping. A loop that works answers within milliseconds.
const ANSWERED: Duration = Duration::from_secs(2);

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz))
}

/// Whether the process works.
#[utoipa::path(
    get, path = "/healthz", tag = "health", security(()),
    responses((status = 200, body = String, description = "It works."), (status = 503, body = String, description = "Why it should be restarted."))
)]
pub(crate) async fn healthz(State(shared): State<Shared>) -> Response {
    match shared.host.health() {
        Ok(()) => "ok\n".into_response(),
        Err(why) => unavailable(&why),
    }
}

/// Whether polls run and results are stored.
#[utoipa::path(
    get, path = "/readyz", tag = "health", security(()),
    responses((status = 200, body = String, description = "They do."), (status = 503, body = String, description = "Why not."))
)]
pub(crate) async fn readyz(State(shared): State<Shared>) -> Response {
    if let Err(why) = shared.host.readiness() {
        return unavailable(&why);
    }
    if !timeout(ANSWERED, shared.host.loop_answers()).await.unwrap_or(false) {
        return unavailable("the scheduling thread does not answer: polls may have stopped");
    }
    let mut answer = "ready\n".to_owned();
    // The caller is not authenticated, and a problem may quote the configuration: give the count only.
    match shared.host.problems().len() {
        0 => {}
        count => answer.push_str(&format!(
            "but not all of the configuration is active: {}; see the log or `polliwog status`\n",
            if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") }
        )),
    }
    let targets = shared.host.targets();
    let unserved = targets.iter().filter(|target| TargetStatus::of(target) == TargetStatus::NoPlugin);
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    unserved.for_each(|target| *kinds.entry(target.info.kind.as_str()).or_default() += 1);
    for (kind, count) in kinds {
        let targets = if count == 1 { "target is" } else { "targets are" };
        answer.push_str(&format!(
            "but {count} {targets} not polled: no plugin serves kind {kind}, or it is in quarantine\n"
        ));
    }
    answer.into_response()
}

fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}
