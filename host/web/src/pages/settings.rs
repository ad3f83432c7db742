//! The page of settings and tokens.

use super::parts::{Command, age, encoded};
use super::shell::{Live, Place, live, problems};
use crate::state::Shared;
use axum::extract::State;
use axum::http::HeaderMap;
use maud::{Markup, html};
use model::{Scope, Setting, SettingSource};

/// The maximum number of listed settings.
const ROWS: usize = 300;
/// The time between two refreshes in milliseconds. Settings have no events.
const REFRESH_MS: u32 = 15_000;

pub(super) async fn page(State(shared): State<Shared>, headers: HeaderMap) -> Markup {
    let content = "/fragments/settings";
    let page =
        Live { title: "Settings", place: Some(Place::Settings), content, every: Some(REFRESH_MS), ..Live::default() };
    live(&shared, &headers, &page, &content_of(&shared, &headers))
}

/// The part of the page that the script refreshes.
pub(super) async fn fragment(State(shared): State<Shared>, headers: HeaderMap) -> Markup {
    content_of(&shared, &headers)
}

/// Every setting with its value and source; for an administrator, the tokens.
fn content_of(shared: &Shared, headers: &HeaderMap) -> Markup {
    let (settings, file) = (shared.host.settings(), shared.host.settings_file());
    let rows: Vec<&Setting> = settings.iter().filter(|setting| has_row(setting)).collect();
    html! {
        (problems(shared))
        @if shared.auth.scope(headers, shared.host.now()) == Some(Scope::Admin) {
            (tokens(shared))
            (new_token())
        }
        section #settings.target {
            h2 { "Settings" }
            p.summary {
                "Change a setting with " code { "polliwog settings set KEY VALUE" }
                @if file.ends_with(".toml") { ", or edit " code { (file) } ", which the host watches" }
                ". A changed setting overrides the file until it is unset; the environment overrides both. "
                "For targets, only settings that differ from the default are shown."
            }
            div.scroll tabindex="0" role="region" aria-label="all settings" {
                table.settings {
                    thead { tr { th scope="col" { "Setting" } th scope="col" { "Value" } th scope="col" { "From" } } }
                    tbody {
                        @for setting in rows.iter().take(ROWS) {
                            tr data-source=(setting.source.as_str()) {
                                td { code { (setting.key) } }
                                td { (setting.value.as_deref().unwrap_or("–")) }
                                td { (setting.source.to_string()) }
                            }
                        }
                    }
                }
            }
            @if rows.len() > ROWS {
                p.note { "and " (rows.len() - ROWS) " more: the page of each target has its settings, " code { "polliwog settings" } " lists all" }
            }
        }
    }
}

/// The tokens, and who is logged in with them.
fn tokens(shared: &Shared) -> Markup {
    let now = shared.host.now();
    let logged_in = |count: usize| match count {
        0 => "–".to_owned(),
        1 => "1 browser".to_owned(),
        count => format!("{count} browsers"),
    };
    html! {
        section #tokens.target {
            h2 { "Tokens" }
            p.note { "Scope wall sees the page for a wall, read sees everything but tokens, operate also polls, pauses and retries, admin does everything." }
            div.scroll tabindex="0" role="region" aria-label="all tokens" {
                table.settings {
                    thead { tr {
                        @for column in ["Name", "Scope", "Last used", "Expires", "Logged in", "Command"] { th scope="col" { (column) } }
                    } }
                    tbody {
                        tr {
                            th scope="row" { "the token of the first start" } td { "admin" } td { "–" } td { "never" }
                            td { (logged_in(shared.auth.sessions(None, now))) }
                            td { code { "polliwog token rotate" } }
                        }
                        @for token in shared.auth.tokens() {
                            tr {
                                th scope="row" { (token.name) }
                                td { (token.scope.as_str()) }
                                td { @match token.last_used { Some(at) => { (age(at)) " ago" } None => "never" } }
                                td {
                                    @match token.expires {
                                        Some(at) if token.is_valid(now) => { "in " (age(at)) }
                                        Some(at) => { "expired " (age(at)) " ago" }
                                        None => "never",
                                    }
                                }
                                td { (logged_in(shared.auth.sessions(Some(token.hash), now))) }
                                td {
                                    (Command::new("Revoke", "DELETE", &format!("/api/v1/tokens/{}", encoded(&token.name)))
                                        .title("Programs, browsers and screens with this token are shut out at once")
                                        .question(&format!("Revoke the token {}?", token.name))
                                        .button())
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The form for a token. The script sends it, and shows the secret once.
fn new_token() -> Markup {
    html! {
        section #new-token.target {
            h2 { "New token" }
            form.filter data-path="/api/v1/tokens" {
                label { "Name " input name="name" required maxlength="64" autocomplete="off" placeholder="wall in the office"; }
                label { "Scope " select name="scope" {
                    option value="wall" { "wall: a link for a screen" }
                    option value="read" { "read" }
                    option value="operate" { "operate" }
                    option value="admin" { "admin" }
                } }
                label { "Valid for days " input name="days" type="number" min="1" max="36500" placeholder="until revoked"; }
                button { "Make" }
            }
            p.made role="status" {}
        }
    }
}

/// Whether the settings page shows a setting: true for the scheduler's, and for a target's if it is not the default.
/// There may be thousands of targets.
fn has_row(setting: &Setting) -> bool {
    setting.key.starts_with("scheduler.") || setting.source != SettingSource::Default
}
