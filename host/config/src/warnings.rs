//! Configuration that is valid but probably a mistake.

use crate::Problem;
use crate::alerts::silence_name;
use crate::channels::route_name;
use crate::checked::Config;
use crate::target_config::TlsConfig;
use crate::value::show_duration;
use model::{Status, Subject, TargetId};
use notify::{Attributes, Matcher, Matchers};

/// The kinds of channels whose token is a part of their URL.
const TOKEN_IN_URL: [&str; 3] = ["discord", "slack", "teams"];

/// Returns a warning for each part of the configuration that is valid but probably a mistake.
pub fn warnings(config: &Config) -> Vec<Problem> {
    let mut found = Vec::new();
    for target in &config.targets {
        let mut note = |message: String| {
            let message = format!("target {:?}: {message}", target.id);
            found.push(Problem { place: format!("{}:{}", config.file, target.line), message });
        };
        if let (Some(interval), Some(timeout)) = (target.interval, target.timeout)
            && timeout > interval
        {
            note(format!(
                "its timeout ({}) is longer than its interval ({}): a poll that hangs delays the next one",
                show_duration(timeout),
                show_duration(interval)
            ));
        }
        let is_known = |id: &TargetId| config.targets.iter().any(|other| other.id == *id);
        for (needed, _) in target.alerts.depends_on.iter().filter(|(needed, _)| !is_known(needed)) {
            note(format!("it depends on {needed:?}, which is not a target: nothing follows from that"));
        }
        if target.url.scheme() == "http" && target.tls != TlsConfig::default() {
            note("it sets tls, but its url is http://: nothing is encrypted".to_owned());
        }
    }
    for channel in config.channels.iter().filter(|channel| TOKEN_IN_URL.contains(&channel.kind.as_str())) {
        if !channel.shown_url().contains("${secret.") {
            let message = format!(
                "channel {:?}: its url has no ${{secret.NAME}}: if it contains a token, pages and API show it",
                channel.id
            );
            found.push(Problem { place: format!("{}:{}", config.file, channel.line), message });
        }
    }
    // An operator and an agent of a fleet need none.
    if config.targets.is_empty() && config.fleet.is_none() {
        let message = "the configuration has no [[target]]: nothing would be polled".to_owned();
        found.push(Problem { place: config.file.clone(), message });
    }
    if config.sources.contains_key("plugins.dir") && !config.plugin_dir.is_dir() {
        let message = format!("no folder {}: no plugins are loaded from it", config.plugin_dir.display());
        found.push(Problem { place: format!("{}: [plugins] dir", config.file), message });
    }
    found
}

/// Returns a problem for each condition of a route or a silence that no target in the file meets. A target that is made
/// through the API or by a fleet may meet it.
pub fn unmet(config: &Config) -> Vec<Problem> {
    let is_of_target = |matcher: &&Matcher| {
        let attribute = matcher.attribute();
        ["target", "kind"].contains(&attribute) || attribute.starts_with("label.")
    };
    let is_met = |matcher: &Matcher| {
        let alone = Matchers(vec![matcher.clone()]);
        config.targets.iter().any(|target| {
            let (subject, traits) = (Subject::Target(target.id.clone()), target.traits());
            alone.match_all(&Attributes { subject: &subject, status: Status::Critical, traits: &traits })
        })
    };
    let routes = config.routes.iter().map(|route| (route_name(route), &route.matchers));
    let silences = config.silences.iter().map(|silence| (silence_name(silence), &silence.matchers));
    // Alerts of other classes, such as channels, have names that no target has.
    let of_targets = |(_, matchers): &(String, &Matchers)| matchers.0.iter().all(|of| of.attribute() != "class");
    let conditions = routes.chain(silences).filter(of_targets).flat_map(|(of, matchers)| {
        let place = match config.lines.get(&of) {
            Some(line) => format!("{}:{line}", config.file),
            None => config.file.clone(),
        };
        let unmet = matchers.0.iter().filter(is_of_target).filter(|matcher| !is_met(matcher));
        let problem = move |unmet: &Matcher| Problem {
            place: place.clone(),
            message: format!("{of}: no target meets {}{}", unmet.attribute(), unmet.text()),
        };
        unmet.map(problem).collect::<Vec<_>>()
    });
    // Without targets, there is a warning.
    conditions.filter(|_| !config.targets.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use crate::{Config, Places, unmet};

    #[test]
    fn conditions_that_no_target_meets_are_named() {
        let text = "[[target]]\nid = \"shop\"\nkind = \"http\"\nurl = \"http://a/\"\nlabels = { site = \"zurich\" }\n\
                    [[channel]]\nname = \"ops\"\nkind = \"ntfy\"\nurl = \"https://a/\"\n\
                    [[route]]\nmatch = { target = \"shpo\", kind = \"http\" }\nchannels = [\"ops\"]\n\
                    [[route]]\nmatch = { \"label.site\" = \"=~b.*\" }\nchannels = [\"ops\"]\n\
                    [[route]]\nmatch = { target = \"ops\", class = \"channel\" }\nchannels = [\"ops\"]\n";
        let config = Config::written(("p.toml", text), &Places::default(), &|_| None).unwrap();
        let found: Vec<String> = unmet(&config).iter().map(ToString::to_string).collect();
        let expected = [
            "p.toml:10: route \"route-1\": no target meets target=shpo",
            "p.toml:13: route \"route-2\": no target meets label.site=~b.*",
        ];
        assert_eq!(found, expected);
    }
}
