//! Configuration that is valid but probably a mistake.

use crate::Problem;
use crate::checked::Config;
use crate::target_config::TlsConfig;
use crate::value::show_duration;
use model::TargetId;

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
