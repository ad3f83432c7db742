//! Parts of the page of a target about its definition: its test, and its change or deletion if the API made it.

use super::parts::Command;
use maud::{Markup, html};
use model::{TargetSource, TargetState};

/// The commands for a target that was made through the API.
pub(super) fn definition(target: &TargetState) -> Markup {
    let info = &target.info;
    let question = format!("Delete {}? Its history is kept until it expires.", info.name);
    html! {
        @if info.source == TargetSource::Api {
            " " a href={ "/targets/new?from=" (info.id) } { "Change" } " "
            (Command::new("Delete", "DELETE", &format!("/api/v1/targets/{}", info.id)).question(&question).button())
        }
    }
}

/// The test of a target, whose steps the script shows.
pub(super) fn test_form(target: &TargetState) -> Markup {
    html! {
        section #test.target {
            h2 { "Test" }
            form data-path={ "/api/v1/targets/" (target.info.id) "/test" } {
                p.note { "One poll step by step: the name, each address, the connection, the certificate, the requests, the report. It changes nothing." }
                button { "Test now" }
            }
            div.made role="status" {}
        }
    }
}
