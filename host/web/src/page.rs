//! The HTML pages: one shows every target with its dependencies and refreshes itself, one shows the settings.

use crate::auth::Auth;
use crate::condition::Condition;
use crate::pauses::WithPauses as _;
use crate::state::Shared;
use crate::status::TargetStatus;
use crate::wire::time;
use axum::Form;
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use maud::{DOCTYPE, Markup, html};
use model::{BreakerState, DependencyState, EventKind, Place, Setting, SettingSource, Status, TargetState, Timestamp};
use serde::Deserialize;
use std::net::SocketAddr;
use std::sync::Arc;

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

#[derive(Deserialize)]
pub(crate) struct Token {
    token: Option<String>,
}

/// Logs in with the token of the link that the first start prints; without a token, shows the log-in form.
pub(crate) async fn login(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Query(query): Query<Token>,
) -> Response {
    match query.token {
        Some(token) => admit(&shared, (peer, &headers), &token).await,
        None => form(None).into_response(),
    }
}

pub(crate) async fn log_in(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Form(form): Form<Token>,
) -> Response {
    admit(&shared, (peer, &headers), form.token.as_deref().unwrap_or_default().trim()).await
}

async fn admit(shared: &Shared, (peer, headers): (SocketAddr, &HeaderMap), token: &str) -> Response {
    if !shared.auth.is_right(token) {
        if !shared.auth.hold_back(peer.ip(), &shared.gauges).await {
            let problem = "Too many wrong tokens from this address. Wait a moment.";
            return (StatusCode::TOO_MANY_REQUESTS, form(Some(problem))).into_response();
        }
        return (StatusCode::UNAUTHORIZED, form(Some("This token is wrong."))).into_response();
    }
    // A TLS proxy sets this header. A client that sets it without TLS only loses its own cookie.
    let secure =
        headers.get("x-forwarded-proto").is_some_and(|scheme| scheme.as_bytes().eq_ignore_ascii_case(b"https"));
    let session = shared.auth.log_in(&shared.host.random_id(), secure, shared.host.now());
    if let Some(ended) = session.ended {
        shared.host.keep_session(ended, None);
    }
    shared.host.keep_session(session.hash, Some(session.until));
    ([(header::SET_COOKIE, session.cookie)], Redirect::to("/")).into_response()
}

pub(crate) async fn log_out(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if let Some(ended) = shared.auth.log_out(&headers) {
        shared.host.keep_session(ended, None);
    }
    let [plain, secure] = Auth::forgotten();
    let cookies = AppendHeaders([(header::SET_COOKIE, plain), (header::SET_COOKIE, secure)]);
    (StatusCode::NO_CONTENT, cookies).into_response()
}

fn form(problem: Option<&str>) -> Markup {
    document(
        "Polliwog",
        None,
        &html! {
            main.login {
                h1 { "Polliwog" }
                p { "Paste the admin token. The first start printed it with a link; " code { "POLLIWOG_ADMIN_TOKEN" } " sets another one." }
                @if let Some(problem) = problem { p.problem role="alert" { (problem) } }
                form method="post" action="/login" {
                    label { "Token " input type="password" name="token" autocomplete="current-password" autofocus required; }
                    button { "Log in" }
                }
            }
        },
    )
}

/// A whole page. `csrf` is the token of the session, for pages with a script.
pub(crate) fn document(title: &str, csrf: Option<&str>, body: &Markup) -> Markup {
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

pub(crate) async fn index(State(shared): State<Shared>, headers: HeaderMap) -> Markup {
    let csrf = Auth::csrf_of(&headers).unwrap_or_default();
    let (targets, now) = (shared.host.targets(), shared.host.now());
    let body = html! {
        (banner("Polliwog"))
        main #targets data-live="/fragments/targets" { (problems(&shared)) (listing(&targets, now)) }
    };
    document("Polliwog", Some(&csrf), &body)
}

/// The top of a page that is updated while it is open.
pub(crate) fn banner(title: &str) -> Markup {
    html! {
        header.top {
            h1 { (title) }
            nav { a href="/" { "Targets" } " " a href="/settings" { "Settings" } " " button #logout type="button" { "Log out" } }
            p #connection role="status" { "connecting" }
        }
    }
}

/// The settings page: every setting with its value and source.
pub(crate) async fn settings(State(shared): State<Shared>) -> Markup {
    let (settings, file) = (shared.host.settings(), shared.host.settings_file());
    let body = html! {
        header.top {
            h1 { "Settings" }
            nav { a href="/" { "Targets" } }
        }
        main {
            (problems(&shared))
            p.summary {
                "Change a setting with " code { "polliwog settings set KEY VALUE" }
                @if file.ends_with(".toml") { ", or edit " code { (file) } ", which the host watches" }
                ". A changed setting overrides the file until it is unset; the environment overrides both. "
                "For targets, only settings that differ from the default are shown."
            }
            table.settings {
                thead { tr { th { "Setting" } th { "Value" } th { "From" } } }
                tbody {
                    @for setting in settings.iter().filter(|setting| has_row(setting)) {
                        tr data-source=(setting.source.as_str()) {
                            td { code { (setting.key) } }
                            td { (setting.value.as_deref().unwrap_or("–")) }
                            td { (setting.source.to_string()) }
                        }
                    }
                }
            }
        }
    };
    document("Settings", None, &body)
}

/// Whether the settings page shows a setting: true for the scheduler's, and for a target's if it is not the default.
/// There may be thousands of targets.
fn has_row(setting: &Setting) -> bool {
    setting.key.starts_with("scheduler.") || setting.source != SettingSource::Default
}

/// Problems of the host and of its configuration, shown on every page.
pub(crate) fn problems(shared: &Shared) -> Markup {
    let problems = shared.host.problems();
    html! {
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

/// The part of the page that the script refreshes.
pub(crate) async fn targets(State(shared): State<Shared>) -> Markup {
    let (targets, now) = (shared.host.targets(), shared.host.now());
    html! { (problems(&shared)) (listing(&targets, now)) }
}

fn listing(all: &[Arc<TargetState>], now: Timestamp) -> Markup {
    let shown = || {
        let of = |target: &Arc<TargetState>| {
            target.observed.dependencies.iter().map(|d| Condition::of(target, d)).collect::<Vec<_>>()
        };
        all.iter().with_pauses().flat_map(of)
    };
    let mut targets: Vec<(TargetStatus, &TargetState)> =
        all.iter().with_pauses().map(|target| (TargetStatus::of(target), &**target)).collect();
    targets.sort_by_key(|(status, _)| *status);
    let count = |wanted| targets.iter().filter(|(status, _)| *status == wanted).count();
    let worst = targets.first().map_or(TargetStatus::Ok, |(status, _)| *status);
    let bad = targets.iter().filter(|(status, _)| status.is_bad()).count();
    html! {
        p.summary.headline data-worst=(worst.as_str()) data-bad=(bad) data-now=(now.as_millis()) {
            (targets.len()) " targets: "
            @for status in TargetStatus::ALL.into_iter().filter(|status| count(*status) > 0 || status.is_always_shown()) {
                span class={ "tag " (status.as_str()) @if count(status) == 0 { " none" } } {
                    (status.sign()) " " (count(status)) " " (status.as_str().replace('_', " "))
                }
                " "
            }
        }
        p.summary {
            (shown().count()) " dependencies: "
            @for condition in Condition::ALL {
                span class={ "tag " (condition.class()) } {
                    (condition.sign()) " " (shown().filter(|c| *c == condition).count()) " " (condition.class())
                }
                " "
            }
        }
        @if targets.is_empty() {
            p.empty { "No targets yet. Add a [[target]] to polliwog.toml, or start with --demo." }
        }
        @for (status, target) in targets.into_iter().with_pauses() { (section(target, status)) }
    }
}

fn section(target: &TargetState, status: TargetStatus) -> Markup {
    let (info, observed) = (&*target.info, &*target.observed);
    html! {
        section.target id={ "t-" (info.id) } data-state=(target.place.as_str()) data-status=(status.as_str()) {
            h2 {
                span class={ "tag " (status.as_str()) } { (status.sign()) " " (status.as_str().replace('_', " ")) }
                " " a href={ "/targets/" (info.id) } { (info.name) } " " small { (info.kind) " · " (info.url) }
            }
            p.state { (state(target)) " " (buttons(target)) }
            (complaints(target, 5))
            ul.dependencies { @for dependency in &observed.dependencies { (item(target, dependency)) } }
        }
    }
}

/// The commands for a target.
pub(crate) fn buttons(target: &TargetState) -> Markup {
    let id = &target.info.id;
    let is_missing = |dependency: &DependencyState| dependency.record.missing_since.is_some();
    html! {
        @if target.enabled {
            button.poll type="button" data-poll=(id) { "Poll now" }
        } @else {
            button.poll type="button" data-enable=(id) { "Enable" }
        }
        @if target.observed.dependencies.iter().any(is_missing) {
            " " button.poll type="button" data-dismiss=(id) title="Forget the missing dependencies" { "Dismiss missing" }
        }
    }
}

/// The failure of the last poll, and at most `most` warnings.
pub(crate) fn complaints(target: &TargetState, most: usize) -> Markup {
    let observed = &target.observed;
    html! {
        @if let Some(error) = &observed.failure {
            p.problem { strong { (error.code) } ": " (error.message) }
        }
        @for warning in observed.warnings.iter().take(most) { p.note { "⚠ " (warning) } }
        @if observed.warnings.len() > most { p.note { "and " (observed.warnings.len() - most) " more warnings" } }
    }
}

/// A target's state as text.
pub(crate) fn state(target: &TargetState) -> Markup {
    let (schedule, kind) = (&target.schedule, &target.info.kind);
    let is_fresh = schedule.failures == 0 && target.observed.stale_since.is_none();
    html! {
        @match (schedule.last_success, target.place) {
            (_, Place::Disabled) => "disabled",
            (_, Place::NoPlugin) => {
                "no plugin serves kind " (kind) ": copy its .wasm into the plugin directory"
            }
            (_, Place::Quarantined) => {
                "the plugin of kind " (kind) " is in quarantine: it is probed every 5 min and when its file changes"
            }
            (Some(at), _) if is_fresh => { "polled " (age(at)) " ago" }
            (None, _) if is_fresh => "not polled yet",
            (Some(at), _) => { "last success " (age(at)) " ago" }
            (None, _) => "never polled successfully",
        }
        @match schedule.failures {
            0 => {}
            1 => ", 1 failure",
            failures => { ", " (failures) " failures in a row" }
        }
        @match (&schedule.dead, target.breaker_state()) {
            (Some(dead), _) => { ", dead letter (" (dead.reason.as_str().replace('_', " ")) ")" }
            (None, BreakerState::Closed) => {}
            (None, state) => { ", breaker " (state.as_str().replace('_', "-")) }
        }
        @if let Some(at) = target.next_run() { ", next poll in " (age(at)) }
    }
}

/// The time between now and `at`. A script computes and updates it; without a script, the page shows the time itself.
pub(crate) fn age(at: Timestamp) -> Markup {
    html! { time data-at=(at.as_millis()) { (time(at)) } }
}

fn item(target: &TargetState, dependency: &DependencyState) -> Markup {
    let (record, volatile) = (&*dependency.record, &dependency.volatile);
    let reported = &record.reported;
    let condition = Condition::of(target, dependency);
    let name = reported.title.as_deref().unwrap_or(&reported.name);
    html! {
        li class={ "dependency " (condition.class()) } data-status=(reported.status.as_str()) title=(time(volatile.checked_at)) {
            span.sign aria-hidden="true" { (condition.sign()) }
            " " span.name { (name) }
            @if reported.title.is_some() { " " small { (reported.name) } }
            " " span.word { (condition.word(reported.status)) }
            @if let Some(ms) = volatile.latency_ms { " " small { (format!("{ms:.0} ms")) } }
            @if let Some(since) = record.missing_since { " " small { "for " (age(since)) } }
            @if let Some(message) = &reported.error_message { span.message { (message) } }
            @if let Some(description) = &reported.description { span.note { (description) } }
            @if let Some(impact) = reported.impact.as_ref().filter(|_| reported.status != Status::Ok) {
                span.note { "impact: " (impact) }
            }
        }
    }
}
