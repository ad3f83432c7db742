//! The page for a screen on a wall: the counts and the problems in large letters, without controls.
//!
//! A link with the key of a token of scope `wall` opens it without a log-in.

use super::parts::age;
use super::problem::{Chosen, found, row};
use super::shell::{document, problems};
use crate::auth::Auth;
use crate::pauses::WithPauses as _;
use crate::state::Shared;
use crate::status::TargetStatus;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

/// The maximum number of problems, so that they fit on a screen.
const PROBLEMS: usize = 15;
/// The time between two refreshes in milliseconds. The stream of events needs a larger scope.
const REFRESH_MS: u32 = 5_000;

/// The query of the page.
#[derive(Default, Deserialize, Serialize)]
pub(super) struct Key {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

pub(super) async fn page(State(shared): State<Shared>, headers: HeaderMap, Query(key): Query<Key>) -> Markup {
    let content = match serde_urlencoded::to_string(&key) {
        Ok(query) if !query.is_empty() => format!("/fragments/wall?{query}"),
        _ => "/fragments/wall".to_owned(),
    };
    let body = html! {
        header.top { h1 { "Polliwog" } p #connection role="status" { "connecting" } }
        main #content.wall tabindex="-1" data-live=(content) data-every=(REFRESH_MS) { (screen(&shared)) }
    };
    document("Polliwog", Some(&Auth::csrf_of(&headers).unwrap_or_default()), &body)
}

/// The problems are in smaller letters if there are more than this.
const LARGE: usize = 6;

/// The part of the page that the script refreshes.
pub(super) async fn fragment(State(shared): State<Shared>) -> Markup {
    screen(&shared)
}

/// The answer to a link whose token was revoked or has expired.
pub(crate) fn refused() -> Response {
    let body = html! {
        main.wall {
            h1.screen { "This link is no longer valid" }
            p { "Its token was revoked or has expired. An administrator makes a new link on the page of settings." }
        }
    };
    (StatusCode::UNAUTHORIZED, document("Polliwog", None, &body)).into_response()
}

fn screen(shared: &Shared) -> Markup {
    let (all, now) = (shared.host.targets(), shared.host.now());
    let chosen: Vec<Chosen<'_>> = all.iter().with_pauses().map(|target| (TargetStatus::of(target), target)).collect();
    let found = found(&chosen);
    let count = |wanted| chosen.iter().filter(|(status, _)| *status == wanted).count();
    let worst = chosen.iter().map(|(status, _)| *status).min().unwrap_or(TargetStatus::Ok);
    let bad = chosen.iter().filter(|(status, _)| status.is_bad()).count();
    let last = all.iter().filter_map(|target| target.schedule.last_success).max();
    html! {
        (problems(shared))
        h2 #headline.screen data-worst=(worst.as_str()) data-bad=(bad) data-now=(now.as_millis()) {
            @if chosen.is_empty() { "No targets yet" }
            @else if found.is_empty() { "Nothing is wrong" }
            @else { (found.len()) @if found.len() == 1 { " problem" } @else { " problems" } }
        }
        p #counts.screen {
            @for status in TargetStatus::ALL.into_iter().filter(|status| count(*status) > 0) {
                span class={ "tag " (status.as_str()) } {
                    (status.sign()) " " (count(status)) " " (status.as_str().replace('_', " "))
                }
                " "
            }
        }
        @if !found.is_empty() {
            table #problems.wrong.many[found.len() > LARGE] {
                thead { tr { th scope="col" { "Status" } th scope="col" { "For" } th scope="col" { "What" } th scope="col" { "Why" } } }
                tbody { @for problem in found.iter().take(PROBLEMS) { (row(problem, false)) } }
            }
            @if found.len() > PROBLEMS { p #more { "and " (found.len() - PROBLEMS) " more, which are not worse" } }
        }
        @if let Some(last) = last { p #last.note { "The last successful poll was " (age(last)) " ago." } }
    }
}
