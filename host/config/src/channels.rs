//! Reads `[[channel]]` and `[[route]]`: where notifications go, and which alerts are notified there.

use crate::alerts::{matchers, report_count};
use crate::reader::{Notes, Section, suggestion, text, words};
use crate::target_config::TargetConfig;
use crate::target_parts::{secrets, tls};
use crate::targets::{PluginSettings, TIMEOUT, note_references, settings};
use crate::value::{Entry, Node, Value, parse_duration};
use egress::Origin;
use model::{Kind, TargetId};
use notify::{ATTRIBUTES, Matchers, Route};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of channels, and of routes.
const MOST: usize = 200;
/// The longest time of a group, and between repetitions.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// The shortest time between repetitions.
const SHORTEST_REPEAT: Duration = Duration::from_secs(60);

fn items<'a>(notes: &Notes<'_>, document: &'a [Entry], key: &str) -> Vec<(&'a Node, &'a [Entry])> {
    let form = format!("a {key} is written as [[{key}]], with two brackets");
    let Some(entry) = document.iter().find(|entry| entry.key == key) else { return Vec::new() };
    let Value::Array(items) = &entry.node.value else {
        notes.at(entry.line, form);
        return Vec::new();
    };
    if items.len() > MOST {
        notes.at(entry.line, format!("there are more than {MOST} {key}s"));
    }
    let table = |item: &'a Node| match &item.value {
        Value::Table(entries) => Some((item, entries.as_slice())),
        _ => {
            notes.at(item.line, form.as_str());
            None
        }
    };
    items.iter().filter_map(table).collect()
}

/// Reads the channels. A channel is a target that is not polled.
pub(crate) fn channels(notes: &Notes<'_>, document: &[Entry]) -> Vec<Arc<TargetConfig>> {
    let mut lines: HashMap<TargetId, usize> = HashMap::new();
    let mut found = Vec::new();
    for (item, entries) in items(notes, document, "channel") {
        let Some(channel) = channel(notes, item.line, entries) else { continue };
        if let Some(earlier) = lines.insert(channel.id.clone(), channel.line) {
            let message = format!("there are two channels {:?} (the other is on line {earlier})", channel.id);
            notes.at(channel.line, message);
        }
        found.push(Arc::new(channel));
    }
    found
}

fn channel(notes: &Notes<'_>, line: usize, entries: &[Entry]) -> Option<TargetConfig> {
    let written = entries.iter().find(|entry| entry.key == "name").map(|entry| &entry.node.value);
    let shown = if let Some(Value::Text(name)) = written { format!("channel {name:?}") } else { "channel".to_owned() };
    let section = Section::inner(notes, shown.clone(), entries);
    let has = |key: &str| entries.iter().any(|entry| entry.key == key);
    let missing = ["name", "kind", "url"].into_iter().filter(|key| !has(key));
    missing.for_each(|key| notes.at(line, format!("{shown} has no {key}")));
    let name = section.get("name", |value| {
        let rule = "a channel's name is 1 to 63 characters of a-z, 0-9, '_' and '-', and begins with a letter or digit";
        TargetId::new(&text(value)?).map_err(|error| format!("{:?}: {rule}", error.text))
    });
    let kind = section.get("kind", |value| Kind::new(&text(value)?).map_err(|error| error.to_string()));
    let is_email = kind.as_ref().is_some_and(Kind::is_email);
    let parse = if is_email { Origin::parse_mail } else { Origin::parse };
    let url = section.get("url", |value| {
        let url = text(value)?;
        parse(&url).map_err(|error| match url.starts_with("smtp") && !is_email {
            true => format!("{url:?} is a mail server: it needs kind = \"email\""),
            false => error.to_string(),
        })
    });
    let tls = section.table("tls").map(|entries| tls(notes, entries)).unwrap_or_default();
    let (secrets, short_secrets) = secrets(notes, section.table("secrets").unwrap_or_default());
    let timeout = section.duration("timeout");
    if timeout.is_some_and(|timeout| timeout < TIMEOUT.0 || timeout > TIMEOUT.1) {
        notes.at(section.line("timeout"), "timeout: use 100ms to 5m");
    }
    let PluginSettings { settings, settings_version, setting_lines } = settings(&section, entries);
    let line = section.line("name");
    section.finish();
    let channel = TargetConfig::new(name?, kind?, url?.0);
    let channel = TargetConfig {
        tls,
        timeout,
        secrets,
        short_secrets,
        settings,
        settings_version,
        line,
        setting_lines,
        is_channel: true,
        ..channel
    };
    note_references(notes, &channel);
    Some(channel)
}

/// The names of all channels, also of those that are not valid.
pub(crate) fn channel_names(document: &[Entry]) -> Vec<&str> {
    let all = document.iter().find(|entry| entry.key == "channel").map(|entry| &entry.node.value);
    let Some(Value::Array(items)) = all else { return Vec::new() };
    let tables =
        items.iter().filter_map(|item| if let Value::Table(entries) = &item.value { Some(entries) } else { None });
    let names = tables.filter_map(|entries| entries.iter().find(|entry| entry.key == "name"));
    names
        .filter_map(|entry| if let Value::Text(name) = &entry.node.value { Some(name.as_str()) } else { None })
        .collect()
}

/// Reads the routes between alerts and these channels, with their lines.
pub(crate) fn routes(notes: &Notes<'_>, document: &[Entry], channels: &[&str]) -> Vec<(Route, usize)> {
    let numbered = items(notes, document, "route").into_iter().enumerate();
    let routes: Vec<(Route, usize)> = numbered
        .filter_map(|(place, (item, entries))| {
            Some((route(notes, (place + 1, item.line), entries, channels)?, item.line))
        })
        .collect();
    let mut last: Option<usize> = None;
    for (route, line) in &routes {
        if let Some(earlier) = last.filter(|_| route.unless_acknowledged.is_none()) {
            let message = format!(
                "the route {:?} is never reached: the one on line {earlier} matches every alert: write continue = true \
                 there, or move it to the end",
                route.name
            );
            notes.at(*line, message);
        }
        if route.matchers.0.is_empty() && route.is_last() {
            last = last.or(Some(*line));
        }
    }
    for (place, (route, line)) in routes.iter().enumerate() {
        if routes[..place].iter().any(|(other, _)| other.name == route.name) {
            notes.at(*line, format!("there are two routes {:?}: choose another name for one of them", route.name));
        }
    }
    routes
}

/// Returns the name of a route in messages.
pub(crate) fn route_name(route: &Route) -> String {
    format!("route {:?}", route.name)
}

fn route(notes: &Notes<'_>, (number, line): (usize, usize), entries: &[Entry], known: &[&str]) -> Option<Route> {
    let section = Section::inner(notes, "route".to_owned(), entries);
    let name = section.text("name").unwrap_or_else(|| format!("route-{number}"));
    let matchers = section.table("match").map_or(Some(Matchers(Vec::new())), |entries| matchers(notes, entries));
    let channels = section.get("channels", |value| {
        let names = words(value)?;
        match names.iter().find(|name| !known.contains(&name.as_str())) {
            Some(unknown) => Err(format!("there is no [[channel]] {unknown:?}{}", suggestion(unknown, known))),
            None => Ok(names),
        }
    });
    let is_empty = channels.as_ref().is_some_and(Vec::is_empty);
    if is_empty || !entries.iter().any(|entry| entry.key == "channels") {
        notes.at(line, "a route has channels, as in channels = [\"ops\"]");
    }
    let group_by = section.get("group_by", |value| {
        let attributes = words(value)?;
        let is_known =
            |name: &str| ATTRIBUTES.contains(&name) || name.strip_prefix("label.").is_some_and(|n| !n.is_empty());
        match attributes.iter().find(|name| !is_known(name)) {
            Some(unknown) => Err(format!("unknown attribute {unknown:?}: use {} or label.NAME", ATTRIBUTES.join(", "))),
            None => Ok(attributes),
        }
    });
    let within = |key: &'static str, shortest: Duration| {
        section.get(key, move |value| match parse_duration(&text(value)?)? {
            found if found < shortest || found > LONGEST => Err("this is out of range: use at most 30 days".to_owned()),
            found => Ok(found),
        })
    };
    let unless_acknowledged = within("unless_acknowledged", Duration::from_secs(1));
    let (wait, interval) = (within("group_wait", Duration::ZERO), within("group_interval", Duration::ZERO));
    let repeat = section.duration_or_never("repeat_interval", SHORTEST_REPEAT..=LONGEST);
    let (confirm, recover) = (report_count(&section, "confirm"), report_count(&section, "recover"));
    let is_continued = section.boolean("continue").unwrap_or(false);
    section.finish();
    let defaults = Route::new(name, matchers?, channels?);
    Some(Route {
        group_by: group_by.unwrap_or_else(|| defaults.group_by.clone()),
        group_wait: wait.unwrap_or(defaults.group_wait),
        group_interval: interval.unwrap_or(defaults.group_interval),
        repeat_interval: repeat.unwrap_or(defaults.repeat_interval),
        confirm,
        recover,
        unless_acknowledged,
        is_continued,
        ..defaults
    })
}

#[cfg(test)]
mod tests {
    use crate::{Config, Places};
    use std::time::Duration;

    fn read(text: &str) -> Result<Config, String> {
        let text = format!("{text}\n[[target]]\nid = \"shop\"\nkind = \"http\"\nurl = \"http://a/\"\n");
        Config::written(("p.toml", &text), &Places::default(), &|_| None)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    const CHANNEL: &str = "[[channel]]\nname = \"ops\"\nkind = \"slack\"\nurl = \"https://a/${secret.path}\"\n\
                           secrets = { path = { env = \"P\" } }\n";

    #[test]
    fn channels_and_routes_are_read() {
        let route = "[[route]]\nmatch = { status = \"critical\", \"label.site\" = \"=~z.*\" }\nchannels = [\"ops\"]\n\
                     group_by = [\"label.site\"]\ngroup_wait = \"1s\"\nrepeat_interval = \"never\"\ncontinue = true\n\
                     [[route]]\nname = \"rest\"\nchannels = [\"ops\"]\n\
                     [[route]]\nchannels = [\"ops\"]\nunless_acknowledged = \"15m\"\n";
        let text = format!("[alerts]\nfallback = \"ops\"\naddress = \"https://polliwog.lan/\"\n{CHANNEL}{route}");
        let config = read(&text).unwrap();
        let channel = &config.channels[0];
        assert!(channel.is_channel && channel.id.as_str() == "ops" && channel.secrets.contains_key("path"));
        let [first, rest, late] = &config.routes[..] else { panic!("{:?}", config.routes) };
        assert_eq!((&*first.name, first.matchers.0.len(), first.is_continued), ("route-1", 2, true));
        assert_eq!((first.group_wait, first.repeat_interval), (Duration::from_secs(1), None));
        assert_eq!((&*rest.name, rest.repeat_interval), ("rest", Some(Duration::from_secs(4 * 3600))));
        assert_eq!(late.unless_acknowledged, Some(Duration::from_secs(900)), "it is reached behind the others");
        assert_eq!(config.alerts.fallback.as_deref(), Some("ops"));
        assert_eq!(config.alerts.address.as_deref(), Some("https://polliwog.lan"));
    }

    #[test]
    fn problems_are_named_with_their_place() {
        let route = |more: &str| format!("{CHANNEL}[[route]]\n{more}\n");
        for (text, expected) in [
            ("channel = 3".to_owned(), "p.toml:1: a channel is written as [[channel]]"),
            (
                "[[channel]]\nname = \"Ops\"\nkind = \"a\"\nurl = \"http://a/\"".to_owned(),
                "a channel's name is 1 to 63",
            ),
            ("[[channel]]\nname = \"ops\"".to_owned(), "p.toml:1: channel \"ops\" has no kind"),
            (format!("{CHANNEL}{CHANNEL}"), "there are two channels"),
            (
                "[[channel]]\nname = \"mail\"\nkind = \"email\"\nurl = \"https://a/\"".to_owned(),
                "a mail server is written as smtp://host:587 or smtps://host:465",
            ),
            (route("channels = [\"osp\"]"), "p.toml:7: channels: there is no [[channel]] \"osp\""),
            (route("match = { status = \"critical\" }"), "p.toml:6: a route has channels"),
            (route("channels = []"), "p.toml:6: a route has channels"),
            (route("channels = [\"ops\"]\ngroup_by = [\"sight\"]"), "unknown attribute \"sight\""),
            (route("channels = [\"ops\"]\nrepeat_interval = \"1s\""), "use 1m to 30 days, or \"never\""),
            (route("channels = [\"ops\"]\nmatch = { kind = \"=~((((a{99}){99}){99})\" }"), "regular expression"),
            (
                route("channels = [\"ops\"]\n[[route]]\nchannels = [\"ops\"]\nname = \"b\""),
                "p.toml:8: the route \"b\" is never reached: the one on line 6 matches every alert",
            ),
            ("[alerts]\nfallback = \"mail\"".to_owned(), "p.toml:2: fallback: there is no [[channel]] \"mail\""),
            ("[alerts]\naddress = \"polliwog.lan\"".to_owned(), "address: "),
        ] {
            let problems = read(&text).unwrap_err();
            assert!(problems.contains(expected), "{text}: {problems}");
        }
    }
}
