//! The list of targets that depend on something.

use crate::dependants::Dependant;
use crate::status::TargetStatus;
use maud::{Markup, html};

/// The maximum number of listed targets.
const LISTED: usize = 50;

pub(super) fn list(all: &[Dependant<'_>]) -> Markup {
    html! {
        ul.plain {
            @for Dependant { target, through } in all.iter().take(LISTED) {
                @let status = TargetStatus::of(target);
                li {
                    span class={ "tag " (status.as_str()) } { (status.sign()) " " (status.as_str().replace('_', " ")) } " "
                    a href={ "/targets/" (target.info.id) } { (target.info.name) }
                    @if let Some(through) = through { small { " through " (through.info.name) } }
                }
            }
        }
        @if all.len() > LISTED { p.note { "and " (all.len() - LISTED) " more" } }
    }
}
