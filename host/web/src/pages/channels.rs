//! The page of channels: where notifications go, which routes lead there, and what became of each notification.

use super::parts::{Command, age};
use super::shell::{Live, Place, live, problems};
use crate::state::Shared;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use model::{ChannelState, Delivery, DeliveryFilter, DeliveryState, RouteStep};

/// The number of notifications on the page.
const SHOWN: u32 = 100;

pub(super) async fn page(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let page =
        Live { title: "Channels", place: Some(Place::Alerts), content: "/fragments/channels", ..Live::default() };
    live(&shared, &headers, &page, &content(&shared).await).into_response()
}

pub(super) async fn fragment(State(shared): State<Shared>) -> Markup {
    content(&shared).await
}

async fn content(shared: &Shared) -> Markup {
    let (channels, routes) = (shared.host.channels(), shared.host.routes());
    let deliveries = shared.host.deliveries(DeliveryFilter::default(), SHOWN).await;
    html! {
        (problems(shared))
        @if channels.is_empty() {
            p { "No channel is configured: alerts are shown and sent nowhere. A " code { "[[channel]]" } " and a "
                code { "[[route]]" } " in the configuration make notifications." }
        } @else {
            (table(&channels))
            @if routes.is_empty() {
                p.bad { "No route leads to a channel: alerts are shown and sent nowhere. Add a " code { "[[route]]" } "." }
            } @else {
                h2 { "Routes" }
                (table_of_routes(&routes))
            }
        }
        @match &deliveries {
            Err(why) => p.bad { "The notifications cannot be read: " (why) },
            Ok(deliveries) if deliveries.is_empty() => {}
            Ok(deliveries) => {
                h2 { "Notifications" }
                (table_of_deliveries(deliveries))
                @if deliveries.len() == usize::try_from(SHOWN).unwrap_or(usize::MAX) { p.note { "The last " (SHOWN) "." } }
            }
        }
    }
}

fn table(channels: &[ChannelState]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="channels" { table.numbers {
            thead { tr {
                th scope="col" { "Channel" } th scope="col" { "Kind" } th scope="col" { "Address" }
                th scope="col" { "State" } th scope="col" { "Waiting" }
                th scope="col" { "Delivered" } th scope="col" { "Given up" } th scope="col" { "Last delivery" }
                th scope="col" { "Actions" }
            } }
            tbody { @for channel in channels { tr {
                th scope="row" { (channel.name) }
                td { (channel.kind) }
                td { code { (channel.url) } }
                td {
                    @match &channel.problem {
                        Some(problem) => { span.tag.critical { "does not deliver" } " " (problem) }
                        None => "ready"
                    }
                }
                td.number {
                    (channel.waiting)
                    @if let Some(oldest) = channel.oldest { ", the oldest for " (age(oldest)) }
                }
                td.number { (channel.delivered) }
                td.number { (channel.undeliverable) }
                td { @match channel.last_success { Some(at) => { (age(at)) " ago" } None => "none yet" } }
                td {
                    (Command::new("Test", "POST", &format!("/api/v1/channels/{}/test", channel.name))
                        .title("Send a test notification").button())
                }
            } } }
        } }
    }
}

fn table_of_routes(routes: &[RouteStep]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="routes" { table.numbers {
            thead { tr { th scope="col" { "Route" } th scope="col" { "Alerts" } th scope="col" { "Channels" } } }
            tbody { @for route in routes { tr {
                th scope="row" { (route.name) }
                td {
                    @if route.conditions.is_empty() { "all" }
                    @for (attribute, condition) in &route.conditions { (attribute) (condition) " " }
                }
                td { (route.channels.join(", ")) }
            } } }
        } }
    }
}

fn table_of_deliveries(deliveries: &[Delivery]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="notifications" { table.numbers {
            thead { tr {
                th scope="col" { "Notification" } th scope="col" { "Channel" } th scope="col" { "Made" } th scope="col" { "State" }
                th scope="col" { "Attempts" } th scope="col" { "Alerts" } th scope="col" { "Actions" }
            } }
            tbody { @for delivery in deliveries { tr {
                th scope="row" { (delivery.notification.number) }
                td { (delivery.notification.channel) }
                td { (age(delivery.created)) " ago" }
                td { (state(delivery)) }
                td.number { (delivery.attempts) }
                td { (alerts(delivery)) }
                td {
                    @if matches!(delivery.state, DeliveryState::Waiting | DeliveryState::Undeliverable) {
                        (Command::new("Retry", "POST", &format!("/api/v1/deliveries/{}/retry", delivery.notification.number))
                            .title("Try it again now").button())
                    }
                }
            } } }
        } }
    }
}

fn state(delivery: &Delivery) -> Markup {
    let class = match delivery.state {
        DeliveryState::Delivered => "ok",
        DeliveryState::Replaced => "unknown",
        DeliveryState::Waiting if delivery.error.is_none() => "unknown",
        DeliveryState::Waiting => "warning",
        DeliveryState::Undeliverable => "critical",
    };
    html! {
        span class={ "tag " (class) } { (delivery.state.as_str()) }
        @if let Some(error) = &delivery.error { " " (error) }
    }
}

/// The first alert of a notification, and the number of the others.
fn alerts(delivery: &Delivery) -> Markup {
    let notification = &delivery.notification;
    let more = notification.alerts.len().saturating_sub(1) + usize::try_from(notification.omitted).unwrap_or(0);
    html! {
        @if let Some(first) = notification.alerts.first() {
            (first.event.as_str()) ": " (first.title)
            @if !first.target_name.is_empty() && first.title != first.target_name { " of " (first.target_name) }
        }
        @if more > 0 { " and " (more) " more" }
    }
}
