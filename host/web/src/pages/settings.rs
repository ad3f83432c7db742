//! The page of settings.

use super::shell::{Place, banner, document, problems};
use crate::auth::Auth;
use crate::state::Shared;
use axum::extract::State;
use axum::http::HeaderMap;
use maud::{Markup, html};
use model::{Setting, SettingSource};

/// Every setting with its value and source.
pub(super) async fn page(State(shared): State<Shared>, headers: HeaderMap) -> Markup {
    let csrf = Auth::csrf_of(&headers).unwrap_or_default();
    let (settings, file) = (shared.host.settings(), shared.host.settings_file());
    let body = html! {
        (banner("Settings", Some(Place::Settings)))
        main #content tabindex="-1" {
            (problems(&shared))
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
        }
    };
    document("Settings – Polliwog", Some(&csrf), &body)
}

/// Whether the settings page shows a setting: true for the scheduler's, and for a target's if it is not the default.
/// There may be thousands of targets.
fn has_row(setting: &Setting) -> bool {
    setting.key.starts_with("scheduler.") || setting.source != SettingSource::Default
}
