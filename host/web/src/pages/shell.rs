//! Parts of every page: the document, the navigation, and problems of the host.

use super::parts::age;
use crate::auth::Auth;
use crate::chart::duration;
use crate::state::Shared;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};
use model::{EventKind, TargetId};

/// A whole page. `csrf` is the token of the session, for pages with a script.
pub(super) fn document(title: &str, csrf: Option<&str>, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                @if let Some(csrf) = csrf {
                    meta name="csrf-token" content=(csrf);
                    meta name="events" content=(EventKind::NAMES.join(" "));
                }
                title { (title) }
                link rel="stylesheet" href="/assets/style.css";
                link #icon rel="icon" href="/assets/icon-ok.svg";
                @if csrf.is_some() { script src="/assets/app.js" defer {} }
            }
            body { (body) }
        }
    }
}

/// A page of the navigation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Targets,
    Alerts,
    Graph,
    Events,
    Scheduler,
    Plugins,
    Fleet,
    Settings,
}

impl Place {
    pub(super) const ALL: [Self; 8] = [
        Self::Targets,
        Self::Alerts,
        Self::Graph,
        Self::Events,
        Self::Scheduler,
        Self::Plugins,
        Self::Fleet,
        Self::Settings,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Targets => "Targets",
            Self::Alerts => "Alerts",
            Self::Graph => "Graph",
            Self::Events => "Events",
            Self::Scheduler => "Scheduler",
            Self::Plugins => "Plugins",
            Self::Fleet => "Fleet",
            Self::Settings => "Settings",
        }
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Targets => "/",
            Self::Alerts => "/alerts",
            Self::Graph => "/graph",
            Self::Events => "/events",
            Self::Scheduler => "/scheduler",
            Self::Plugins => "/plugins",
            Self::Fleet => "/fleet",
            Self::Settings => "/settings",
        }
    }
}

/// A page whose content the script keeps up to date.
#[derive(Default)]
pub(super) struct Live<'a> {
    pub title: &'a str,
    /// `None` for a page that is not in the navigation.
    pub place: Option<Place>,
    /// The path of the content.
    pub content: &'a str,
    /// The target that the page is about: it ignores events about others.
    pub target: Option<&'a TargetId>,
    /// Milliseconds between two refreshes, if the page does not wait for events.
    pub every: Option<u32>,
}

/// A page with its content.
pub(super) fn live(shared: &Shared, headers: &HeaderMap, page: &Live<'_>, content: &Markup) -> Markup {
    let csrf = Auth::csrf_of(headers).unwrap_or_default();
    let body = html! {
        (banner(page.title, page.place, shared.host.fleet().is_some()))
        main #content tabindex="-1" data-live=(page.content) data-target=[page.target] data-every=[page.every] data-title=(page.title) { (content) }
    };
    document(&format!("{} – Polliwog", page.title), Some(&csrf), &body)
}

/// A page that cannot be shown, with the reason.
pub(crate) fn failure(headers: &HeaderMap, status: StatusCode, message: &str) -> Response {
    let csrf = Auth::csrf_of(headers).unwrap_or_default();
    let body = html! {
        (banner("Polliwog", None, false))
        main #content tabindex="-1" { p.problem role="alert" { (message) } p { a href="/" { "All targets" } } }
    };
    (status, document("Polliwog", Some(&csrf), &body)).into_response()
}

/// The top of a page. The navigation has the fleet only if the host is in one.
pub(super) fn banner(title: &str, here: Option<Place>, has_fleet: bool) -> Markup {
    html! {
        a.skip href="#content" { "Skip to the content" }
        header.top {
            h1 { (title) }
            nav aria-label="pages" {
                @for place in Place::ALL.into_iter().filter(|place| has_fleet || *place != Place::Fleet) {
                    a href=(place.path()) aria-current=[(here == Some(place)).then_some("page")] { (place.title()) } " "
                }
                button #scheme type="button" { "Colours: system" } " "
                button #logout type="button" { "Log out" }
            }
            p #connection role="status" { "connecting" }
        }
    }
}

/// Problems of the host and of its configuration, shown on every page.
pub(super) fn problems(shared: &Shared) -> Markup {
    let problems = shared.host.problems();
    html! {
        @if let Some((at, by)) = shared.host.clock_set() {
            div.problem role="status" {
                strong {
                    "The clock of this machine was set " (if by < 0 { "back" } else { "forward" }) " by "
                    (duration((by.unsigned_abs() + 500) / 1000)) ", " (age(at)) " ago. "
                }
                "Polls continue as planned. Times from before then are those of the earlier clock, and nothing is deleted as old for an hour."
            }
        }
        @if let Err(why) = shared.host.readiness() {
            div.problem role="alert" { strong { "This host does not work correctly: " } (why) }
        }
        @if !problems.is_empty() {
            div.problem role="alert" {
                strong { "Some of the configuration could not be applied; the previous one is still active:" }
                ul { @for problem in problems.iter().take(20) { li { (problem) } } }
            }
        }
    }
}
