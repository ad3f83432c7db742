//! People's view: one page that shows every target with its dependencies and keeps itself up to date.

use crate::auth::Auth;
use crate::host::{DependencyView, Overview, SettingView, TargetView};
use crate::server::Shared;
use crate::status::TargetStatus;
use crate::wire::time;
use axum::Form;
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use maud::{DOCTYPE, Markup, html};
use model::{Status, Timestamp};
use serde::Deserialize;
use std::net::SocketAddr;

const STYLE: &str = include_str!("../assets/style.css");
const SCRIPT: &str = include_str!("../assets/app.js");
const STREAM: &str = include_str!("../assets/stream.js");

/// The icon of the tab: a disc in a colour.
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

/// The link of the first start carries the token; without one there is a form.
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
            let problem = "Too many wrong tokens come from there. Wait a moment.";
            return (StatusCode::TOO_MANY_REQUESTS, form(Some(problem))).into_response();
        }
        return (StatusCode::UNAUTHORIZED, form(Some("This is not the token."))).into_response();
    }
    // A proxy in front that speaks TLS says so; whoever says so without one only loses a cookie.
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
        None,
        &html! {
            main.login {
                h1 { "Polliwog" }
                p { "Paste the admin token. The first start printed it, with a link; " code { "POLLIWOG_ADMIN_TOKEN" } " sets another." }
                @if let Some(problem) = problem { p.problem role="alert" { (problem) } }
                form method="post" action="/login" {
                    label { "Token " input type="password" name="token" autocomplete="current-password" autofocus required; }
                    button { "Log in" }
                }
            }
        },
    )
}

fn document(csrf: Option<&str>, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                @if let Some(csrf) = csrf { meta name="csrf-token" content=(csrf); }
                title { "Polliwog" }
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
    let overview = shared.host.overview().await;
    let body = html! {
        header.top {
            h1 { "Polliwog" }
            nav { a href="/settings" { "Settings" } " " button #logout type="button" { "Log out" } }
            p #connection role="status" { "connecting" }
        }
        main #targets { (problems(&shared)) (listing(&overview)) }
    };
    document(Some(&csrf), &body)
}

/// Every setting with its value and where that comes from.
pub(crate) async fn settings(State(shared): State<Shared>) -> Markup {
    let settings = shared.host.settings();
    let body = html! {
        header.top {
            h1 { "Settings" }
            nav { a href="/" { "Targets" } }
        }
        main {
            (problems(&shared))
            p.summary {
                "Change one with " code { "polliwog settings set KEY VALUE" }
                @if settings.file.ends_with(".toml") { ", or in " code { (settings.file) } ", which is watched" }
                ". A changed setting wins over the file until it is unset; the environment wins over both. "
                "Of targets, only what somebody decided is shown."
            }
            table.settings {
                thead { tr { th { "Setting" } th { "Value" } th { "From" } } }
                tbody {
                    @for setting in settings.settings.iter().filter(|setting| tells_something(setting)) {
                        tr data-source=(setting.source) {
                            td { code { (setting.key) } }
                            td { (setting.value.as_deref().unwrap_or("–")) }
                            td { (setting.from) }
                        }
                    }
                }
            }
        }
    };
    document(None, &body)
}

/// Of thousands of targets, what nobody decided is not worth a row.
fn tells_something(setting: &SettingView) -> bool {
    setting.key.starts_with("scheduler.") || setting.source != "default"
}

/// A configuration that is not in force is said on every page.
fn problems(shared: &Shared) -> Markup {
    let settings = shared.host.settings();
    html! {
        @if let Err(why) = shared.host.readiness() {
            div.problem role="alert" { strong { "This host does not work as it should: " } (why) }
        }
        @if !settings.problems.is_empty() {
            div.problem role="alert" {
                strong { "Not all that is configured is in force; the host goes on as it was:" }
                ul { @for problem in settings.problems.iter().take(20) { li { (problem) } } }
            }
        }
    }
}

/// The part of the page that changes.
pub(crate) async fn targets(State(shared): State<Shared>) -> Markup {
    let overview = shared.host.overview().await;
    html! { (problems(&shared)) (listing(&overview)) }
}

fn listing(overview: &Overview) -> Markup {
    let all =
        || overview.targets.iter().flat_map(|target| target.dependencies.iter().map(move |d| Look::of(target, d)));
    let mut targets: Vec<&TargetView> = overview.targets.iter().collect();
    targets.sort_by_key(|target| target.status());
    let count = |status| targets.iter().filter(|target| target.status() == status).count();
    let worst = targets.first().map_or(TargetStatus::Ok, |target| target.status());
    let bad = targets.iter().filter(|target| target.status().is_bad()).count();
    html! {
        p.summary.headline data-worst=(worst.as_str()) data-bad=(bad) data-now=(overview.at.as_millis()) {
            (overview.targets.len()) " targets: "
            @for status in TargetStatus::ALL.into_iter().filter(|status| count(*status) > 0 || status.is_always_told()) {
                span class={ "tag " (status.as_str()) @if count(status) == 0 { " none" } } {
                    (status.sign()) " " (count(status)) " " (status.as_str().replace('_', " "))
                }
                " "
            }
        }
        p.summary {
            (all().count()) " dependencies: "
            @for look in Look::ALL {
                span class={ "tag " (look.class()) } { (look.sign()) " " (all().filter(|l| *l == look).count()) " " (look.class()) }
                " "
            }
        }
        @if overview.targets.is_empty() {
            p.empty { "No targets yet. Add a [[target]] to polliwog.toml, or start with --demo." }
        }
        @for target in targets { (section(target)) }
    }
}

fn section(target: &TargetView) -> Markup {
    let status = target.status();
    html! {
        section.target id={ "t-" (target.id) } data-state=(target.place) data-status=(status.as_str()) {
            h2 {
                span class={ "tag " (status.as_str()) } { (status.sign()) " " (status.as_str().replace('_', " ")) }
                " " (target.name) " " small { (target.kind) " · " (target.url) }
            }
            p.state {
                (state(target)) " "
                @if target.enabled {
                    button.poll type="button" data-poll=(target.id) { "Poll now" }
                } @else {
                    button.poll type="button" data-enable=(target.id) { "Enable" }
                }
                @if target.dependencies.iter().any(|dependency| dependency.missing_since.is_some()) {
                    " " button.poll type="button" data-dismiss=(target.id) title="What is missing is meant to be gone" { "Dismiss missing" }
                }
            }
            @if let Some(error) = &target.last_error {
                p.problem { strong { (error.code) } ": " (error.message) }
            }
            @for warning in target.warnings.iter().take(5) { p.note { "⚠ " (warning) } }
            @if target.warnings.len() > 5 { p.note { "and " (target.warnings.len() - 5) " more warnings" } }
            ul.dependencies { @for dependency in &target.dependencies { (item(target, dependency)) } }
        }
    }
}

/// What is going on with a target, in words.
fn state(target: &TargetView) -> Markup {
    let is_fresh = target.failures == 0 && target.stale_since.is_none();
    html! {
        @match (target.last_success, target.place) {
            (_, "disabled") => "disabled",
            (_, "no_plugin") => {
                "no plugin serves kind " (target.kind) ": drop its .wasm into the plugin directory"
            }
            (_, "quarantined") => {
                "the plugin of kind " (target.kind) " is in quarantine: it is tried every 5 min, and when its file changes"
            }
            (Some(at), _) if is_fresh => { "polled " (age(at)) " ago" }
            (None, _) if is_fresh => "not polled yet",
            (Some(at), _) => { "last success " (age(at)) " ago" }
            (None, _) => "never answered",
        }
        @match target.failures {
            0 => {}
            1 => ", 1 failure",
            failures => { ", " (failures) " failures in a row" }
        }
        @match (&target.dead, target.breaker.state) {
            (Some(dead), _) => { ", dead letter (" (dead.reason.replace('_', " ")) ")" }
            (None, "closed") => {}
            (None, state) => { ", breaker " (state.replace('_', "-")) }
        }
        @if let Some(at) = target.next_run { ", next look in " (age(at)) }
    }
}

/// How long something is ago, or ahead. The page counts it, so that it goes on while nothing else changes; where no script
/// runs, the time itself stands there.
fn age(at: Timestamp) -> Markup {
    html! { time data-at=(at.as_millis()) { (time(at)) } }
}

fn item(target: &TargetView, dependency: &DependencyView) -> Markup {
    let look = Look::of(target, dependency);
    let name = dependency.title.as_deref().unwrap_or(&dependency.name);
    html! {
        li class={ "dependency " (look.class()) } data-status=(dependency.status.as_str()) title=(time(dependency.checked_at)) {
            span.sign aria-hidden="true" { (look.sign()) }
            " " span.name { (name) }
            @if dependency.title.is_some() { " " small { (dependency.name) } }
            " " span.word { (look.word(dependency.status)) }
            @if let Some(ms) = dependency.latency_ms { " " small { (format!("{ms:.0} ms")) } }
            @if let Some(since) = dependency.missing_since { " " small { "for " (age(since)) } }
            @if let Some(message) = &dependency.error_message { span.message { (message) } }
            @if let Some(description) = &dependency.description { span.note { (description) } }
            @if let Some(impact) = dependency.impact.as_ref().filter(|_| dependency.status != Status::Ok) {
                span.note { "impact: " (impact) }
            }
        }
    }
}

/// How a dependency looks. Each look has a colour, a sign and a word of its own, so that none depends on the colour.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Ok,
    Warning,
    Critical,
    Unknown,
    Stale,
    Missing,
    Skipped,
}

impl Look {
    const ALL: [Self; 7] =
        [Self::Ok, Self::Warning, Self::Critical, Self::Unknown, Self::Stale, Self::Missing, Self::Skipped];

    fn of(target: &TargetView, dependency: &DependencyView) -> Self {
        match dependency.status {
            _ if dependency.missing_since.is_some() => Self::Missing,
            _ if target.is_stale() => Self::Stale,
            _ if dependency.skipped => Self::Skipped,
            Status::Ok => Self::Ok,
            Status::Warning => Self::Warning,
            Status::Critical => Self::Critical,
            Status::Unknown => Self::Unknown,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Unknown => "unknown",
            Self::Stale => "stale",
            Self::Missing => "missing",
            Self::Skipped => "skipped",
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Self::Ok => "✓",
            Self::Warning => "!",
            Self::Critical => "✗",
            Self::Unknown => "?",
            Self::Stale => "⏱",
            Self::Missing => "∅",
            Self::Skipped => "»",
        }
    }

    /// What was known last stays to be seen in what is stale or missing.
    fn word(self, status: Status) -> String {
        match self {
            Self::Stale | Self::Missing => format!("{}, was {}", self.class(), status.as_str()),
            _ => self.class().to_owned(),
        }
    }
}
