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
            is_continued: false,
        }
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
        if is_over {
            return RouteChoice::NotReached;
        }
        if let Some(matcher) = route.matchers.first_mismatch(attributes) {
            return RouteChoice::Mismatch(matcher.to_string());
        }
        is_over = !route.is_continued;
        RouteChoice::Applies
    };
    routes.iter().map(choice).collect()
}

/// Returns the routes that apply, in order.
pub(crate) fn applying<'a>(routes: &'a [Route], attributes: &Attributes<'_>) -> Vec<&'a Route> {
    let mut found = Vec::new();
    for route in routes.iter().filter(|route| route.matchers.match_all(attributes)) {
        found.push(route);
        if !route.is_continued {
            break;
        }
    }
    found
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
}
