//! The first page: what is wrong, then all targets as rows, filtered, grouped and in pages.

use super::parts::{buttons, complaints, state};
use super::pictures::Picture;
use super::problem::table;
use super::shell::{Live, Place, live, problems};
use crate::chart;
use crate::condition::Condition;
use crate::error::ApiError;
use crate::filter::{Filter, Words};
use crate::pauses::WithPauses as _;
use crate::state::Shared;
use crate::status::TargetStatus;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use model::{TargetState, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The number of rows of a page.
const ROWS: usize = 50;

/// The query of the page.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Wanted {
    #[serde(skip_serializing_if = "is_empty")]
    text: Option<String>,
    #[serde(skip_serializing_if = "is_empty")]
    status: Option<String>,
    #[serde(skip_serializing_if = "is_empty")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "is_empty")]
    label: Option<String>,
    /// The name of the label that rows are grouped by.
    #[serde(skip_serializing_if = "is_empty")]
    group: Option<String>,
    /// The number of the page, from 1.
    #[serde(skip_serializing_if = "is_empty")]
    page: Option<String>,
}

fn is_empty(word: &Option<String>) -> bool {
    word.as_deref().is_none_or(str::is_empty)
}

impl Wanted {
    fn filter(&self) -> Result<Filter, ApiError> {
        let Self { text, status, kind, label, .. } = self;
        let (text, status) = (text.as_deref(), status.as_deref());
        Filter::new(Words { text, status, kind: kind.as_deref(), label: label.as_deref() })
    }

    fn query(&self) -> String {
        serde_urlencoded::to_string(self)
            .ok()
            .filter(|query| !query.is_empty())
            .map(|q| format!("?{q}"))
            .unwrap_or_default()
    }

    /// The same page with another status.
    fn with_status(&self, status: Option<TargetStatus>) -> String {
        let status = status.map(|status| status.as_str().to_owned());
        format!("/{}", Self { status, page: None, ..self.clone() }.query())
    }

    fn with_page(&self, page: usize) -> String {
        format!("/{}", Self { page: (page > 1).then(|| page.to_string()), ..self.clone() }.query())
    }
}

pub(super) async fn page(State(shared): State<Shared>, headers: HeaderMap, Query(wanted): Query<Wanted>) -> Response {
    let content = format!("/fragments/targets{}", wanted.query());
    let page = Live { title: "Targets", place: Some(Place::Targets), content: &content, ..Live::default() };
    match listing(&shared, &wanted).await {
        Ok(listing) => live(&shared, &headers, &page, &listing).into_response(),
        Err(error) => (error.status, live(&shared, &headers, &page, &refusal(&error))).into_response(),
    }
}

/// The part of the page that the script refreshes.
pub(super) async fn fragment(State(shared): State<Shared>, Query(wanted): Query<Wanted>) -> Response {
    match listing(&shared, &wanted).await {
        Ok(listing) => listing.into_response(),
        Err(error) => refusal(&error).into_response(),
    }
}

fn refusal(error: &ApiError) -> Markup {
    html! { p.problem role="alert" { (error.message) ". " a href="/" { "All targets" } } }
}

/// The targets that are chosen apart from their status, and the rows of the page.
struct View<'a> {
    wanted: &'a Wanted,
    all: &'a [Arc<TargetState>],
    chosen: Vec<(TargetStatus, &'a Arc<TargetState>)>,
    now: Timestamp,
}

async fn listing(shared: &Shared, wanted: &Wanted) -> Result<Markup, ApiError> {
    let filter = wanted.filter()?;
    let (all, now) = (shared.host.targets(), shared.host.now());
    let matching = all.iter().with_pauses().filter(|target| filter.matches_besides_status(target));
    let chosen = matching.map(|target| (TargetStatus::of(target), target)).collect();
    let view = View { wanted, all: &all, chosen, now };
    let of_status = view.chosen.iter().filter(|(status, _)| filter.has_status(*status));
    let mut rows: Vec<(String, TargetStatus, &Arc<TargetState>)> =
        of_status.map(|(status, target)| (group_of(target, wanted), *status, *target)).collect();
    rows.sort_by(|left, right| (&left.0, left.1, &left.2.info.name).cmp(&(&right.0, right.1, &right.2.info.name)));
    let pages = rows.len().div_ceil(ROWS).max(1);
    let page = wanted.page.as_deref().and_then(|page| page.parse().ok()).unwrap_or(1).clamp(1, pages);
    let shown: Vec<_> = rows.iter().skip((page - 1) * ROWS).take(ROWS).collect();
    let targets: Vec<Arc<TargetState>> = shown.iter().map(|(.., target)| Arc::clone(target)).collect();
    let pictures = shared.pictures.of(&*shared.host, &targets, now).await;
    let mut last = None;
    Ok(html! {
        (problems(shared))
        (headline(&view))
        @if all.is_empty() || !view.chosen.is_empty() { (table(&view.chosen, view.chosen.len() < all.len())) }
        (controls(&view))
        @if all.is_empty() {
            p.empty { "No targets yet. " a href="/targets/new" { "Add a target" } ", write a [[target]] in polliwog.toml, or start with --demo." }
        } @else if rows.is_empty() {
            p.empty { "No target matches. " a href="/" { "All targets" } }
        }
        @for ((group, status, target), picture) in shown.iter().zip(&pictures) {
            @if last.replace(group) != Some(group) && !is_empty(&wanted.group) {
                h2.group id={ "g-" (group) } {
                    @if group.is_empty() { "without a label " (wanted.group.as_deref().unwrap_or_default()) } @else { (group) }
                    " " small { (rows.iter().filter(|(other, ..)| other == group).count()) " targets" }
                }
            }
            (row(target, *status, picture))
        }
        (paging(wanted, page, pages, rows.len()))
    })
}

/// The value of the label that rows are grouped by.
fn group_of(target: &TargetState, wanted: &Wanted) -> String {
    let name = wanted.group.as_deref().unwrap_or_default();
    let value = target.info.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.clone());
    value.unwrap_or_default()
}

/// The counts, each a link to the targets that it counts.
fn headline(view: &View<'_>) -> Markup {
    let count = |wanted| view.chosen.iter().filter(|(status, _)| *status == wanted).count();
    let worst = view.chosen.iter().map(|(status, _)| *status).min().unwrap_or(TargetStatus::Ok);
    let bad = view.chosen.iter().filter(|(status, _)| status.is_bad()).count();
    let is_current = |status: Option<TargetStatus>| {
        let word = status.map(TargetStatus::as_str).unwrap_or_default();
        (view.wanted.status.as_deref().unwrap_or_default() == word).then_some("true")
    };
    let conditions: Vec<Condition> = (view.chosen.iter().with_pauses())
        .flat_map(|(_, target)| target.observed.dependencies.iter().map(|d| Condition::of(target, d)))
        .collect();
    html! {
        p #headline.summary.headline data-worst=(worst.as_str()) data-bad=(bad) data-now=(view.now.as_millis()) {
            a href=(view.wanted.with_status(None)) aria-current=[is_current(None)] { (view.chosen.len()) " targets" } " "
            @for status in TargetStatus::ALL.into_iter().filter(|status| count(*status) > 0 || status.is_always_shown()) {
                a class={ "tag " (status.as_str()) @if count(status) == 0 { " none" } }
                    href=(view.wanted.with_status(Some(status))) aria-current=[is_current(Some(status))] {
                    (status.sign()) " " (count(status)) " " (status.as_str().replace('_', " "))
                }
                " "
            }
        }
        p #conditions.summary {
            (conditions.len()) " dependencies: "
            @for condition in Condition::ALL {
                @let count = conditions.iter().filter(|other| **other == condition).count();
                span class={ "tag " (condition.class()) @if count == 0 { " none" } } {
                    (condition.sign()) " " (count) " " (condition.class())
                }
                " "
            }
        }
    }
}

/// The filter. Without the script, a button applies it.
fn controls(view: &View<'_>) -> Markup {
    let kinds: BTreeSet<&str> = view.all.iter().map(|target| target.info.kind.as_str()).collect();
    let labels: BTreeSet<(&str, &str)> = (view.all.iter())
        .flat_map(|target| target.info.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())))
        .collect();
    let names: BTreeSet<&str> = labels.iter().map(|(name, _)| *name).collect();
    let Wanted { text, status, kind, label, group, .. } = view.wanted;
    let is = |wanted: &Option<String>, value: &str| wanted.as_deref().unwrap_or_default() == value;
    html! {
        form #filter.filter method="get" action="/" role="search" {
            label { "Search " input type="search" name="text" value=(text.as_deref().unwrap_or_default()) placeholder="name, URL, label, dependency"; }
            label { "Kind " select name="kind" {
                option value="" { "all" }
                @if let Some(unknown) = kind.as_deref().filter(|kind| !kind.is_empty() && !kinds.contains(kind)) {
                    option value=(unknown) selected { (unknown) " (no target)" }
                }
                @for known in kinds { option value=(known) selected[is(kind, known)] { (known) } }
            } }
            @if !labels.is_empty() {
                label { "Label " select name="label" {
                    option value="" { "all" }
                    @for (name, value) in labels.iter().take(500) {
                        @let word = format!("{name}={value}");
                        option value=(word) selected[is(label, &word)] { (word) }
                    }
                } }
                label { "Group by " select name="group" {
                    option value="" { "nothing" }
                    @for name in names { option value=(name) selected[is(group, name)] { (name) } }
                } }
            }
            @if let Some(status) = status { input type="hidden" name="status" value=(status); }
            button { "Apply" }
            @if !view.wanted.query().is_empty() { " " a href="/" { "Reset" } }
            " " a href="/targets/new" { "Add a target" }
        }
    }
}

fn row(target: &TargetState, status: TargetStatus, picture: &Picture) -> Markup {
    let info = &target.info;
    let conditions: Vec<Condition> = target.observed.dependencies.iter().map(|d| Condition::of(target, d)).collect();
    let slowest = target.observed.dependencies.iter().filter_map(|d| d.volatile.latency_ms).max_by(f64::total_cmp);
    html! {
        article.row id={ "t-" (info.id) } data-state=(target.place.as_str()) data-status=(status.as_str()) {
            p.row-status { span class={ "tag " (status.as_str()) } { (status.sign()) " " (status.as_str().replace('_', " ")) } }
            h3 { a href={ "/targets/" (info.id) } { (info.name) } " " small { (info.kind) } }
            div.row-strip title="the last 24 hours" { (picture.strip) }
            p.row-latency { (picture.line) @if let Some(ms) = slowest { span.number { (chart::milliseconds(ms)) } } }
            p.row-counts {
                @for condition in Condition::ALL {
                    @let count = conditions.iter().filter(|c| **c == condition).count();
                    @if count > 0 {
                        span class={ "count " (condition.class()) } title={ (count) " " (condition.class()) } { (condition.sign()) (count) } " "
                    }
                }
            }
            div.row-state { p.state { (state(target)) } @if !status.is_bad() { (complaints(target, 1)) } }
            p.row-commands { (buttons(target)) }
        }
    }
}

fn paging(wanted: &Wanted, page: usize, pages: usize, rows: usize) -> Markup {
    html! {
        @if pages > 1 {
            nav #paging.paging aria-label="pages of the list" {
                @if page > 1 { a rel="prev" href=(wanted.with_page(page - 1)) { "← previous" } " " }
                "page " (page) " of " (pages) ", " (rows) " targets "
                @if page < pages { a rel="next" href=(wanted.with_page(page + 1)) { "next →" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_keep_the_rest_of_the_query() {
        let wanted = Wanted { text: Some("a b&c".to_owned()), page: Some("3".to_owned()), ..Wanted::default() };
        assert_eq!(wanted.with_page(2), "/?text=a+b%26c&page=2");
        assert_eq!(wanted.with_page(1), "/?text=a+b%26c");
        assert_eq!(wanted.with_status(Some(TargetStatus::Critical)), "/?text=a+b%26c&status=critical");
        assert_eq!(Wanted::default().with_status(None), "/");
    }
}
