//! Public pages and badges of chosen targets, without a log-in. They show names, states and availability only: no
//! addresses, no messages, no dependencies.

use super::kept::KEPT;
use super::shell::document;
use crate::chart;
use crate::error::ApiError;
use crate::state::Shared;
use crate::status::TargetStatus;
use crate::timeline::{Availability, Past};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use model::{StatusPage, TargetId, TargetState, Timestamp};
use std::time::Duration;

/// The times whose availability is shown, in days.
const DAYS: [u64; 3] = [1, 30, 90];
const DAY: Duration = Duration::from_secs(86_400);

pub(crate) async fn page(State(shared): State<Shared>, Path(name): Path<String>) -> Response {
    let Some(wanted) = shared.host.status_pages().into_iter().find(|page| page.name == name) else {
        let body = html! { main.wall { h1.screen { "There is no such status page" } } };
        return (StatusCode::NOT_FOUND, document("Status", None, &body)).into_response();
    };
    let now = shared.host.now();
    let text = match shared.kept.get(&name, now) {
        Some(text) => text,
        None => {
            let text = made(&shared, &wanted, now).await.into_string();
            shared.kept.keep(name, text.clone(), now);
            text
        }
    };
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CACHE_CONTROL, "max-age=20")];
    (kind, text).into_response()
}

/// A status in words for people who do not know this host.
fn word(status: TargetStatus) -> &'static str {
    match status {
        TargetStatus::Ok => "works",
        TargetStatus::Warning => "works, with warnings",
        TargetStatus::Critical | TargetStatus::Unreachable => "does not work",
        TargetStatus::Unknown | TargetStatus::NoPlugin | TargetStatus::Pending => "not known",
        TargetStatus::Disabled => "not monitored",
    }
}

async fn made(shared: &Shared, page: &StatusPage, now: Timestamp) -> Markup {
    let mut rows = Vec::new();
    for id in &page.targets {
        // A target that does not exist is shown as such, so that a misspelt id is noticed.
        rows.push((
            id,
            match shared.host.target(id) {
                Some(target) => Some((row(shared, &target, now).await, TargetStatus::of(&target))),
                None => None,
            },
        ));
    }
    let is = |wanted: fn(TargetStatus) -> bool| {
        rows.iter().filter(|(_, row)| row.as_ref().is_some_and(|(_, status)| wanted(*status))).count()
    };
    let down = is(|status| matches!(status, TargetStatus::Critical | TargetStatus::Unreachable));
    let unsure = rows.len() - down - is(|status| matches!(status, TargetStatus::Ok | TargetStatus::Warning));
    let body = html! {
        main #content.public tabindex="-1" {
            h1 { (page.title) }
            p #headline role="status" class={ "tag " (if down > 0 { "critical" } else if unsure > 0 { "unknown" } else { "ok" }) } {
                @if down > 0 { "✗ " (down) " of " (rows.len()) @if down == 1 { " does not work" } @else { " do not work" } }
                @else if unsure > 0 { "? The state of " (unsure) " of " (rows.len()) " is not known" }
                @else { "✓ Everything works" }
            }
            ul.plain {
                @for (id, row) in &rows {
                    @match row {
                        Some((row, _)) => (row),
                        None => li.target { h2 { (id) } p.note { "There is no target with this id." } },
                    }
                }
            }
            p.note { "As of " time datetime=(crate::wire::time(now)) { (minute(now)) } ". The page is up to " (KEPT.as_secs()) " seconds old." }
        }
    };
    document(&page.title, None, &body)
}

/// A time to the minute, in UTC. The page has no script that would show the local time.
fn minute(at: Timestamp) -> String {
    let text = crate::wire::time(at);
    format!("{} {} UTC", text.get(..10).unwrap_or_default(), text.get(11..16).unwrap_or_default())
}

async fn row(shared: &Shared, target: &TargetState, now: Timestamp) -> Markup {
    let status = TargetStatus::of(target);
    let longest = DAYS.into_iter().max().map_or(DAY, |days| DAY * days as u32);
    let span = (now.before(longest), now);
    let periods = match shared.host.history(&target.info.id, span.0).await {
        Ok(history) => Past::new(target, &history, now).of_target(),
        Err(_) => Vec::new(),
    };
    html! {
        li.target {
            h2 { (target.info.name) " " span class={ "tag " (status.as_str()) } { (status.sign()) " " (word(status)) } }
            @if periods.is_empty() { p.note { "The past cannot be read at the moment." } } @else {
                (chart::strip(&target.info.name, &periods, span))
                p.note {
                    "The last 90 days. Available: "
                    @for days in DAYS {
                        @let found = Availability::of(&periods, (now.before(DAY * days as u32), now));
                        (match found.share() {
                            Some(share) => format!("{:.2} % in {}", share * 100.0, if days == 1 { "24 hours".to_owned() } else { format!("{days} days") }),
                            None => format!("not known in {days} days"),
                        })
                        @if days != 90 { "; " }
                    }
                }
            }
        }
    }
}

/// A badge of a target that is on a status page.
pub(crate) async fn badge(State(shared): State<Shared>, Path(file): Path<String>) -> Response {
    let id = file.strip_suffix(".svg").and_then(|id| TargetId::new(id).ok());
    let listed = id.filter(|id| shared.host.status_pages().iter().any(|page| page.targets.contains(id)));
    let Some(target) = listed.and_then(|id| shared.host.target(&id)) else {
        let message = "there is no such badge: a target has one if it is on a status page";
        return ApiError::new(StatusCode::NOT_FOUND, "not_found", message).into_response();
    };
    let status = TargetStatus::of(&target);
    let colour = match status {
        TargetStatus::Ok => "#1a7f42",
        TargetStatus::Warning => "#8a5a00",
        TargetStatus::Critical | TargetStatus::Unreachable => "#b01c30",
        _ => "#5a6069",
    };
    let kind = [(header::CONTENT_TYPE, "image/svg+xml"), (header::CACHE_CONTROL, "max-age=20")];
    (kind, drawn(&target.info.name, word(status), colour).into_string()).into_response()
}

fn drawn(name: &str, word: &str, colour: &str) -> Markup {
    /// About the width of a letter, and the margin of a text.
    const LETTER: usize = 7;
    const MARGIN: usize = 12;
    const LONGEST: usize = 40;
    let name: String = name.chars().take(LONGEST).collect();
    let widths = [name.as_str(), word].map(|text| text.chars().count() * LETTER + MARGIN);
    let width = widths[0] + widths[1];
    html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height="20" role="img" aria-label={ (name) ": " (word) } {
            title { (name) ": " (word) }
            rect width=(width) height="20" rx="3" fill="#32383f" {}
            path d={ "M" (widths[0]) " 0h" (widths[1] - 3) "a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-" (widths[1] - 3) "z" } fill=(colour) {}
            g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle" {
                text x=(widths[0] / 2) y="14" { (name) }
                text x=(widths[0] + widths[1] / 2) y="14" { (word) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_badge_escapes_its_text_and_is_as_wide_as_it() {
        let text = drawn("a <b> & \u{5d0}", "works", "#000").into_string();
        assert!(text.contains("a &lt;b&gt; &amp; \u{5d0}: works") && text.contains("width=\"122\""), "{text}");
        assert!(drawn(&"x".repeat(4_096), "works", "#000").into_string().len() < 1_000);
    }
}
