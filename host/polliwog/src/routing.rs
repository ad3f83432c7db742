//! Explains the way of an alert through the routes.

use config::Config;
use model::{AlertRecord, AlertState, RouteExplanation, RouteStep, Status, Subject, TargetId, Timestamp};
use notify::{Attributes, Route, RouteChoice, Silence, choose};
use std::sync::Arc;

/// Describes a route for readers.
pub(crate) fn step(route: &Route) -> RouteStep {
    let conditions = route.matchers.0.iter();
    RouteStep {
        name: route.name.clone(),
        conditions: conditions.map(|matcher| (matcher.attribute().to_owned(), matcher.text())).collect(),
        channels: route.channels.clone(),
        applies: false,
        why: String::new(),
    }
}

/// Compares an alert of a target, or of a dependency of it, with the routes. Without such an alert, a critical one is
/// assumed. `None` if there is no such target.
pub(crate) fn explain(
    config: &Config,
    alerts: Vec<Arc<AlertRecord>>,
    (silences, now): (Vec<Silence>, Timestamp),
    (target, dependency): (&TargetId, Option<&str>),
) -> Option<RouteExplanation> {
    let written = config.targets.iter().find(|written| written.id == *target)?;
    let subject = match dependency {
        Some(dependency) => Subject::dependency(target, dependency),
        None => Subject::Target(target.clone()),
    };
    let is_open = |record: &Arc<AlertRecord>| record.subject == subject && record.state != AlertState::Resolved;
    let alert = alerts.into_iter().find(is_open);
    let status = alert.as_ref().map_or(Status::Critical, |record| record.status);
    let traits = written.traits();
    let attributes = Attributes { subject: &subject, status, traits: &traits };
    let explained = |(route, choice): (&Route, RouteChoice)| {
        let (applies, why) = match (choice, route.unless_acknowledged) {
            (RouteChoice::Applies, Some(after)) => {
                let after = model::short_duration(after);
                (
                    true,
                    format!(
                        "it matches, and applies to an alert that has fired for {after} without an acknowledgement"
                    ),
                )
            }
            (RouteChoice::Applies, None) if route.is_continued => {
                (true, "it matches, and later routes apply as well".to_owned())
            }
            (RouteChoice::Applies, None) => (true, "it matches".to_owned()),
            (RouteChoice::Mismatch(condition), _) => (false, format!("{condition} does not hold")),
            (RouteChoice::NotReached, _) => (false, "an earlier route applies".to_owned()),
        };
        RouteStep { applies, why, ..step(route) }
    };
    let active = silences.iter().filter(|silence| silence.is_active(now) && silence.matchers.match_all(&attributes));
    Some(RouteExplanation {
        routes: config.routes.iter().zip(choose(&config.routes, &attributes)).map(explained).collect(),
        silenced_by: active.map(|silence| silence.id.clone()).collect(),
        alert,
        status,
    })
}
