//! The settings of a target: their values and sources, and forms for those that can be changed while it runs.

use super::parts::Command;
use super::scheduler::meaning;
use maud::{Markup, html};
use model::{Cadence, Setting, SettingSource, TargetState};

pub(super) fn settings(target: &TargetState, settings: &[Setting], is_admin: bool) -> Markup {
    let prefix = format!("target.{}.", target.info.id);
    let is_set = |key: &str| {
        settings
            .iter()
            .any(|setting| setting.key.strip_prefix(&prefix) == Some(key) && setting.source == SettingSource::Setting)
    };
    html! {
        section #settings.target {
            h2 { "Settings" }
            div.scroll { table.settings {
                thead { tr { th scope="col" { "Setting" } th scope="col" { "Value" } th scope="col" { "From" } } }
                tbody {
                    @for setting in settings {
                        tr data-source=(setting.source.as_str()) {
                            th scope="row" { code { (setting.key.strip_prefix(&prefix).unwrap_or(&setting.key)) } }
                            td { (setting.value.as_deref().unwrap_or("–")) }
                            td { (setting.source.to_string()) @if setting.source == SettingSource::Setting { " (wins over the file)" } }
                        }
                    }
                }
            } }
            @if is_admin && ["interval", "cadence"].iter().any(|key| is_set(key)) {
                p {
                    @for key in ["interval", "cadence"].into_iter().filter(|key| is_set(key)) {
                        (Command::new(&format!("Unset {key}"), "DELETE", &format!("/api/v1/settings/{prefix}{key}"))
                            .title("Returns to the value of the file, or to the default")
                            .button()) " "
                    }
                }
            }
        }
        @if is_admin { (forms(&prefix)) }
    }
}

/// The forms that change a setting. The script sends them. They are a part of the page apart from the values, so that a
/// refresh does not clear what is being entered.
fn forms(prefix: &str) -> Markup {
    html! {
        section #change-settings.target {
            h2 { "Change how often it is polled" }
            form.filter data-path={ "/api/v1/settings/" (prefix) "interval" } {
                label { "Interval " input name="value" required autocomplete="off" placeholder="30s, 5m or 1h"; }
                button data-method="PUT" { "Set the interval" }
            }
            form.filter data-path={ "/api/v1/settings/" (prefix) "cadence" } {
                label { "Cadence " select name="value" {
                    @for cadence in Cadence::ALL {
                        option value=(cadence.as_str()) { (cadence.as_str()) ": " (meaning(cadence)) }
                    }
                } }
                button data-method="PUT" { "Set the cadence" }
            }
            p.made role="status" {}
        }
    }
}
