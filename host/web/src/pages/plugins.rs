//! The page of plugins: what serves each kind, what a poll costs, and which files were refused.

use super::parts::{Command, age, encoded};
use super::shell::{Live, Place, live, problems};
use crate::chart::milliseconds;
use crate::state::Shared;
use axum::extract::State;
use axum::http::HeaderMap;
use maud::{Markup, html};
use model::{PluginState, Scope, ServedPlugin};
use std::time::Duration;

pub(super) async fn page(State(shared): State<Shared>, headers: HeaderMap) -> Markup {
    let page = Live { title: "Plugins", place: Some(Place::Plugins), content: "/fragments/plugins", ..Live::default() };
    live(&shared, &headers, &page, &content(&shared, &headers))
}

/// The part of the page that the script refreshes.
pub(super) async fn fragment(State(shared): State<Shared>, headers: HeaderMap) -> Markup {
    content(&shared, &headers)
}

fn content(shared: &Shared, headers: &HeaderMap) -> Markup {
    let is_admin = shared.auth.scope(headers, shared.host.now()) == Some(Scope::Admin);
    let (plugins, targets) = (shared.host.plugins(), shared.host.targets());
    let refused: Vec<(&PluginState, &String)> =
        plugins.iter().filter_map(|plugin| Some((plugin, plugin.served.as_ref().err()?))).collect();
    html! {
        (problems(shared))
        @if !refused.is_empty() {
            section #refused.target {
                h2 { "Refused files: " (refused.len()) }
                ul.plain { @for (plugin, why) in refused { li {
                        strong { (plugin.source) } " " @if is_admin { (remove(plugin)) }
                        p.problem { (why) }
                    } } }
            }
        }
        section #served.target {
            h2 { "What serves each kind" }
            div.scroll { table.numbers {
                thead { tr {
                    th scope="col" { "Kind" } th scope="col" { "Version" } th scope="col" { "Source" } th scope="col" { "Targets" }
                    th scope="col" { "Polls" } th scope="col" { "CPU a poll" } th scope="col" { "Time a poll" }
                    th scope="col" { "Requests a poll" } th scope="col" { "Most memory" } th scope="col" { "Faults" }
                } }
                tbody {
                    @for (plugin, served) in plugins.iter().filter_map(|plugin| Some((plugin, plugin.served.as_ref().ok()?))) {
                        @let count = targets.iter().filter(|target| target.info.kind == served.kind).count();
                        (row(plugin, served, count, is_admin))
                    }
                }
            } }
            p.note {
                "To serve a new kind, copy its " code { ".wasm" } " into the plugin directory: it is loaded within seconds. "
                code { "polliwog plugin test" } " tries a file before."
            }
        }
        @if is_admin { (add()) }
    }
}

/// The form that adds a file. The script sends it.
fn add() -> Markup {
    html! {
        section #add-plugin.target {
            h2 { "Add a plugin" }
            p.note {
                "Choose a " code { ".wasm" } " file, or drop it here. A file with the name of an earlier one replaces it; if it is refused, the "
                "earlier version continues to serve."
            }
            form.filter data-path="/api/v1/plugins/" {
                label { "File " input name="file" type="file" accept=".wasm" required; }
                button data-method="PUT" { "Add" }
            }
            p.made role="status" {}
        }
    }
}

/// The command that removes a plugin's file; nothing for a built-in plugin.
fn remove(plugin: &PluginState) -> Markup {
    let Some((_, file)) = plugin.source.rsplit_once('/') else { return html! {} };
    let (path, question) =
        (format!("/api/v1/plugins/{}", encoded(file)), format!("Delete {file} from the plugin directory?"));
    Command::new("Remove", "DELETE", &path)
        .title("Deletes the file; the built-in plugin of the kind takes over, if there is one")
        .question(&question)
        .button()
}

fn row(plugin: &PluginState, served: &ServedPlugin, targets: usize, is_admin: bool) -> Markup {
    let usage = &served.usage;
    let each = |total: Duration| {
        let polls = u32::try_from(usage.polls).unwrap_or(u32::MAX);
        total.checked_div(polls).map(|mean| milliseconds(mean.as_secs_f64() * 1000.0))
    };
    let requests = (usage.polls > 0).then(|| format!("{:.1}", usage.requests as f64 / usage.polls as f64));
    html! {
        tr {
            th scope="row" { a href={ "/?kind=" (served.kind) } { (served.kind) } }
            td { (served.version) }
            td title={ "SHA-256 " (served.digest) } { (plugin.source) " " @if is_admin { (remove(plugin)) } }
            td.number { (targets) }
            td.number { (usage.polls) }
            td.number { (each(usage.cpu).unwrap_or_default()) }
            td.number { (each(usage.wall).unwrap_or_default()) }
            td.number { (requests.unwrap_or_default()) }
            td.number { @if usage.peak_memory > 0 { (format!("{:.1} MB", usage.peak_memory as f64 / 1e6)) } }
            td {
                (usage.faults)
                @for (reason, count) in &usage.faults_by_reason { p.note { (count) " × " (reason) } }
                @if let Some(until) = served.quarantined_until {
                    p.problem { "in quarantine; the next probe is in " (age(until)) }
                }
            }
        }
    }
}
