//! The targets of a device, which the device itself answers.

use super::parts::encoded;
use super::shell::{Live, failure, live, problems};
use crate::state::Shared;
use crate::status::TargetStatus;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde_json::Value;

/// The milliseconds between two refreshes: each asks the device.
const REFRESH: u32 = 10_000;
/// The maximum number of targets on the page.
const LISTED: usize = 500;

pub(super) async fn page(State(shared): State<Shared>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    match content(&shared, &id).await {
        Some(content) => {
            let path = format!("/fragments/fleet/devices/{}/targets", encoded(&id));
            let title = format!("Targets of device {id}");
            let page = Live { title: &title, content: &path, every: Some(REFRESH), ..Live::default() };
            live(&shared, &headers, &page, &content).into_response()
        }
        None => failure(&headers, StatusCode::NOT_FOUND, &format!("there is no device {id:?} in the fleet")),
    }
}

pub(super) async fn fragment(State(shared): State<Shared>, Path(id): Path<String>) -> Markup {
    let gone = || html! { p.problem role="alert" { "There is no device " (id) " in the fleet." } };
    content(&shared, &id).await.unwrap_or_else(gone)
}

async fn content(shared: &Shared, id: &str) -> Option<Markup> {
    let fleet = shared.host.fleet()?;
    let found = fleet.read(id.to_owned(), format!("/api/v1/targets?limit={LISTED}")).await?;
    let shown = found.and_then(|(status, body)| match serde_json::from_str::<Value>(&body) {
        Ok(found) if status == 200 => Ok(found),
        Ok(found) => Err(found["error"]["message"].as_str().unwrap_or("it answers something else").to_owned()),
        Err(error) => Err(format!("its answer is not JSON: {error}")),
    });
    Some(html! {
        (problems(shared))
        @match shown {
            Ok(found) => (table(&found)),
            Err(why) => p.problem role="alert" { "The targets cannot be read: " (why) },
        }
        p { a href={ "/fleet/devices/" (encoded(id)) } { "Device " (id) } }
    })
}

fn table(found: &Value) -> Markup {
    let all = found["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut targets: Vec<(Option<TargetStatus>, &Value)> =
        all.iter().map(|target| (target["status"].as_str().and_then(TargetStatus::from_word), target)).collect();
    // The most urgent first.
    targets.sort_by_key(|(status, _)| *status);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    html! {
        @if targets.is_empty() { p { "It has no targets." } } @else {
            div.scroll { table.numbers {
                thead { tr {
                    th scope="col" { "Target" } th scope="col" { "State" } th scope="col" { "Kind" } th scope="col" { "Source" }
                    th scope="col" { "Dependencies" } th scope="col" { "Critical" } th scope="col" { "Last polled" } th scope="col" { "Why" }
                } }
                tbody { @for (status, target) in &targets { tr {
                    th scope="row" { (text(&target["name"])) }
                    td { @if let Some(status) = status { span class={ "tag " (status.as_str()) } { (status.sign()) " " (status.as_str()) } } }
                    td { (text(&target["kind"])) }
                    td { (text(&target["source"])) }
                    td.number { (target["dependencies"]["total"]) }
                    td.number { (target["dependencies"]["critical"]) }
                    td { (text(&target["lastPolled"])) }
                    td { (text(&target["lastError"]["message"])) }
                } } }
            } }
            @if found["next"].is_string() { p.note { "The first " (LISTED) " of " (found["total"]) " targets." } }
        }
    }
}
