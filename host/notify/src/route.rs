//! Routes: which channels are notified of an alert.

use crate::matcher::{Attributes, Matchers};
use std::time::Duration;

/// A route from alerts to channels.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// A name for messages and explanations, unique among the routes.
    pub name: String,
    /// The conditions.
    pub matchers: Matchers,
    /// The names of the channels.
    pub channels: Vec<String>,
    /// The attributes by which alerts are grouped into one notification.
    pub group_by: Vec<String>,
    /// How long the first notification of a group waits for more alerts.
    pub group_wait: Duration,
    /// The shortest time between two notifications of a group.
    pub group_interval: Duration,
    /// The time after which an alert that still fires is notified again; `None` if it is not.
    pub repeat_interval: Option<Duration>,
    /// The number of reports in a row that confirm an alert; `None` for the default.
    pub confirm: Option<u32>,
    /// The number of reports in a row that end an alert; `None` for the default.
    pub recover: Option<u32>,
    /// How long an alert fires without an acknowledgement before this route applies; `None` for a usual route. Such a
    /// route applies in addition to the others, wherever it is in the order.
    pub unless_acknowledged: Option<Duration>,
    /// Whether later routes apply as well.
    pub is_continued: bool,
}

impl Route {
    /// The wait of a group, unless the route says otherwise.
    pub const GROUP_WAIT: Duration = Duration::from_secs(10);
    /// The interval of a group, unless the route says otherwise.
    pub const GROUP_INTERVAL: Duration = Duration::from_secs(300);
    /// The interval of repetitions, unless the route says otherwise.
    pub const REPEAT_INTERVAL: Duration = Duration::from_secs(4 * 3600);

    /// Creates a route with default times, grouped by target.
    pub fn new(name: impl Into<String>, matchers: Matchers, channels: Vec<String>) -> Self {
        Self {
            name: name.into(),
            matchers,
            channels,
            group_by: vec!["target".to_owned()],
            group_wait: Self::GROUP_WAIT,
            group_interval: Self::GROUP_INTERVAL,
            repeat_interval: Some(Self::REPEAT_INTERVAL),
            confirm: None,
            recover: None,
            unless_acknowledged: None,
            is_continued: false,
        }
    }

    /// Whether routes after this one are not reached by an alert that matches.
    pub fn is_last(&self) -> bool {
        !self.is_continued && self.unless_acknowledged.is_none()
    }

    /// Returns the attributes of an alert by which it is grouped, with their values.
    pub fn group(&self, attributes: &Attributes<'_>) -> Vec<(String, String)> {
        self.group_by.iter().map(|name| (name.clone(), attributes.get(name).to_owned())).collect()
    }
}

/// The result of comparing an alert with one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteChoice {
    /// The route applies.
    Applies,
    /// A condition does not hold; it is shown as written.
    Mismatch(String),
    /// An earlier route applies and does not continue.
    NotReached,
}

/// Compares an alert with each route, in order.
pub fn choose(routes: &[Route], attributes: &Attributes<'_>) -> Vec<RouteChoice> {
    let mut is_over = false;
    let choice = |route: &Route| {
        if is_over && route.unless_acknowledged.is_none() {
            return RouteChoice::NotReached;
        }
        if let Some(matcher) = route.matchers.first_mismatch(attributes) {
            return RouteChoice::Mismatch(matcher.to_string());
        }
        is_over |= route.is_last();
        RouteChoice::Applies
    };
    routes.iter().map(choice).collect()
}

/// Returns the routes that apply, in order. Those for alerts without an acknowledgement come last.
pub(crate) fn applying<'a>(routes: &'a [Route], attributes: &Attributes<'_>) -> Vec<&'a Route> {
    let matching = routes.iter().filter(|route| route.matchers.match_all(attributes));
    let (escalating, usual): (Vec<_>, Vec<_>) = matching.partition(|route| route.unless_acknowledged.is_some());
    let last = usual.iter().position(|route| route.is_last()).map_or(usual.len(), |last| last + 1);
    usual.into_iter().take(last).chain(escalating).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matcher;
    use model::{Class, Status, Subject, TargetTraits};

    #[test]
    fn the_first_route_that_matches_applies_and_continued_ones_pass_the_alert_on() {
        let route = |name: &str, text: &str, is_continued| {
            let matchers = Matchers(vec![Matcher::new("target", text).unwrap()]);
            Route { is_continued, ..Route::new(name, matchers, vec![]) }
        };
        let routes =
            [route("a", "=~x.*", true), route("b", "y", false), route("c", "=~.*", false), route("d", "x1", false)];
        let check = |name: &str, expected: [&str; 4]| {
            let (subject, traits) = (Subject::Other(Class::Plugin, name.into()), TargetTraits::default());
            let attributes = Attributes { subject: &subject, status: Status::Critical, traits: &traits };
            let words = choose(&routes, &attributes).into_iter().map(|choice| match choice {
                RouteChoice::Applies => "yes".to_owned(),
                RouteChoice::Mismatch(matcher) => matcher,
                RouteChoice::NotReached => "-".to_owned(),
            });
            assert_eq!(words.collect::<Vec<_>>(), expected, "{name}");
            let applying = applying(&routes, &attributes).len();
            assert_eq!(applying, expected.iter().filter(|word| **word == "yes").count(), "{name}");
        };
        check("x1", ["yes", "target=y", "yes", "-"]);
        check("y", ["target=~x.*", "yes", "-", "-"]);
        check("z", ["target=~x.*", "target=y", "yes", "-"]);
    }

    #[test]
    fn routes_for_alerts_without_an_acknowledgement_apply_in_addition() {
        let route = |name: &str, text: &str, after: Option<u64>| {
            let matchers = Matchers(vec![Matcher::new("target", text).unwrap()]);
            Route { unless_acknowledged: after.map(Duration::from_secs), ..Route::new(name, matchers, vec![]) }
        };
        let routes = [
            route("early", "=~.*", Some(60)),
            route("a", "x", None),
            route("b", "=~.*", None),
            route("late", "x", Some(9)),
        ];
        for (name, expected) in [("x", &["a", "early", "late"][..]), ("y", &["b", "early"])] {
            let (subject, traits) = (Subject::Other(Class::Plugin, name.into()), TargetTraits::default());
            let attributes = Attributes { subject: &subject, status: Status::Critical, traits: &traits };
            let names: Vec<&str> = applying(&routes, &attributes).iter().map(|route| route.name.as_str()).collect();
            assert_eq!(names, expected);
            let chosen = choose(&routes, &attributes).into_iter().filter(|choice| *choice == RouteChoice::Applies);
            assert_eq!(chosen.count(), expected.len());
        }
    }
}
