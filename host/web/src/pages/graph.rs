//! The page of the graph: targets and what they depend on, as a picture and as a list.

use super::dependency::path_of;
use super::parts::encoded;
use super::shell::{Live, Place, live, problems};
use crate::graph::{Graph, Health, Node, Of};
use crate::state::Shared;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The maximum number of nodes in the picture.
const NODES: usize = 150;
/// How far from a node its surroundings reach.
const DISTANCE: usize = 3;
/// The size of a node, in units of the picture.
const WIDTH: usize = 190;
const HEIGHT: usize = 26;
/// The distances from one node to the next.
const COLUMN: usize = 260;
const ROW: usize = 34;
/// The maximum number of characters of a label.
const LABEL: usize = 24;

/// The query of the page.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Wanted {
    /// The id of a target, or the name of a dependency, whose surroundings are shown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    around: String,
}

pub(super) async fn page(State(shared): State<Shared>, headers: HeaderMap, Query(wanted): Query<Wanted>) -> Markup {
    let path = format!("/fragments/graph?{}", serde_urlencoded::to_string(&wanted).unwrap_or_default());
    let page = Live { title: "Graph", place: Some(Place::Graph), content: &path, ..Live::default() };
    live(&shared, &headers, &page, &content(&shared, &wanted))
}

/// The part of the page that the script refreshes.
pub(super) async fn fragment(State(shared): State<Shared>, Query(wanted): Query<Wanted>) -> Markup {
    content(&shared, &wanted)
}

fn content(shared: &Shared, wanted: &Wanted) -> Markup {
    let targets = shared.host.targets();
    let graph = Graph::new(&targets);
    let around = wanted.around.trim();
    let centre = graph.find(around);
    let shown = centre.map_or_else(|| graph.important(NODES), |node| graph.around(node, DISTANCE, NODES));
    let layers = graph.layers(&shown);
    let left_out = graph.nodes.len() - shown.len();
    let bad = shown.iter().filter(|place| graph.nodes[**place].health == Health::Bad).count();
    html! {
        (problems(shared))
        form #filter.filter method="get" action="/graph" role="search" {
            label { "Around " input type="search" name="around" value=(around) placeholder="target or dependency"; }
            button { "Apply" }
            @if !around.is_empty() { " " a href="/graph" { "The whole graph" } }
        }
        @if !around.is_empty() && centre.is_none() {
            p.problem role="alert" {
                "There is no target or dependency " (around) "."
                @let similar = graph.similar(around);
                @if !similar.is_empty() { " Similar: " @for (n, label) in similar.iter().enumerate() { @if n > 0 { ", " } a href={ "/graph?around=" (encoded(label)) } { (label) } } }
            }
        }
        p #legend.note data-bad=(bad) data-worst=(if bad > 0 { "critical" } else { "ok" }) {
            (shown.len()) " of " (graph.nodes.len()) " targets and dependencies. Each depends on what is to its right; what does not work is emphasised."
            @if left_out > 0 && centre.is_none() { " Those that are fine, and that only one target reports, are left out: look around one of them." }
        }
        div #picture.scroll.graph { (picture(&graph, &layers, centre)) }
        section #list.target { details {
            summary { "The same as a list" }
            ul.plain { @for place in layers.concat() { (item(&graph, place)) } }
        } }
    }
}

/// The address that a node leads to.
fn address(node: &Node<'_>) -> String {
    match &node.of {
        Of::Target(id) => format!("/targets/{id}"),
        Of::Shared(name) | Of::Dependency(_, name) => path_of(name),
    }
}

fn picture(graph: &Graph<'_>, layers: &[Vec<usize>], centre: Option<usize>) -> Markup {
    let tallest = layers.iter().map(Vec::len).max().unwrap_or(0);
    let mut at: HashMap<usize, (usize, usize)> = HashMap::new();
    for (column, layer) in layers.iter().enumerate() {
        for (row, place) in layer.iter().enumerate() {
            at.insert(*place, (column * COLUMN + 2, row * ROW + 4));
        }
    }
    let (width, height) = (layers.len().max(1) * COLUMN, tallest * ROW + 8);
    let edges = at.keys().flat_map(|from| graph.needs(*from).iter().map(move |to| (*from, *to)));
    let mut edges: Vec<(usize, usize)> = edges.filter(|(_, to)| at.contains_key(to)).collect();
    edges.sort_unstable_by_key(|(from, to)| (std::cmp::Reverse(graph.nodes[*to].health), *from, *to));
    html! {
        svg width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="group" aria-label="what depends on what; the list below says the same" {
            @for (from, to) in edges {
                @let ((x, y), (end, below)) = (at[&from], at[&to]);
                @let (x, y, below) = (x + WIDTH, y + HEIGHT / 2, below + HEIGHT / 2);
                path.edge.bad[graph.nodes[to].health == Health::Bad] d={ "M" (x) " " (y) "C" (x + 35) " " (y) " " (end.saturating_sub(35)) " " (below) " " (end) " " (below) } {}
            }
            @for place in layers.iter().flatten() {
                @let (node, (x, y)) = (&graph.nodes[*place], at[place]);
                a href=(address(node)) class={ "node " (node.status.0) @if centre == Some(*place) { " centre" } @if matches!(node.of, Of::Target(_)) { " is-target" } } {
                    title { (node.label) ": " (node.status.2.replace('_', " ")) }
                    rect x=(x) y=(y) width=(WIDTH) height=(HEIGHT) rx="5" {}
                    text x=(x + 8) y=(y + 18) { (node.status.1) " " (shortened(node.label)) }
                }
            }
        }
    }
}

fn shortened(label: &str) -> String {
    if label.chars().count() <= LABEL {
        return label.to_owned();
    }
    label.chars().take(LABEL - 1).chain(['…']).collect()
}

fn item(graph: &Graph<'_>, place: usize) -> Markup {
    let node = &graph.nodes[place];
    html! {
        li {
            span class={ "tag " (node.status.0) } { (node.status.1) " " (node.status.2.replace('_', " ")) } " "
            a href=(address(node)) { (node.label) }
            @if !graph.needs(place).is_empty() {
                " depends on "
                @for (n, needed) in graph.needs(place).iter().take(NODES).enumerate() {
                    @if n > 0 { ", " }
                    (graph.nodes[*needed].label)
                }
            }
        }
    }
}
