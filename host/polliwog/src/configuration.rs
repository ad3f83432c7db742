//! Reading the configuration for commands, and the demo's targets.

use crate::cli::Common;
use anyhow::{anyhow, bail};
use config::{
    Config, Document, Extra, FleetConfig, Invalid, Places, Problem, Reading, SecretSource, TargetConfig, Written,
    environment, find, misspelt,
};
use model::{Kind, TargetId};
use notify::{Matchers, Route};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The shortest and the longest interval of the demo's targets.
const DEMO_BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Finds and reads the configuration file. In the demo the file is optional.
pub(crate) fn document(places: &Places, demo: bool) -> anyhow::Result<Document> {
    match Document::find(places).map_err(|why| anyhow!(why))? {
        Some(document) => Ok(document),
        None if demo => Ok(Document::without_file("the demo")),
        None => {
            let tried = find(places, &environment).err().unwrap_or_default();
            let tried: Vec<String> = tried.iter().map(|path| path.display().to_string()).collect();
            bail!("no configuration found ({}): write one, or try `polliwog run --demo`", tried.join(", "));
        }
    }
}

/// Reads the configuration, without settings that were changed at run time.
pub(crate) fn read(places: &Places) -> anyhow::Result<Result<Config, Vec<Problem>>> {
    Ok(parse(&document(places, false)?, places).map(|written| written.config().clone()))
}

/// Parses a document without the demo.
pub(crate) fn parse(document: &Document, places: &Places) -> Result<Written, Vec<Problem>> {
    let reading = Reading { places: places.clone(), extra: None };
    document.parse(&reading).map_err(|invalid| invalid.problems)
}

/// Reads the configuration. Returns its valid parts and every problem.
pub(crate) fn examine(places: &Places) -> anyhow::Result<(Option<Config>, Vec<Problem>)> {
    let reading = Reading { places: places.clone(), extra: None };
    Ok(match document(places, false)?.parse(&reading) {
        Ok(written) => (Some(written.config().clone()), Vec::new()),
        Err(Invalid { problems, rest }) => (rest.map(|rest| *rest), problems),
    })
}

/// Returns the configuration without a file.
pub(crate) fn defaults(places: &Places) -> Result<Config, Vec<Problem>> {
    Config::written(("the defaults", ""), places, &environment)
}

/// Why a command cannot use its arguments.
pub(crate) enum Unusable {
    /// The arguments are wrong.
    Usage(anyhow::Error),
    /// The configuration is invalid.
    Other(anyhow::Error),
}

impl Unusable {
    /// Returns an error for every problem of a configuration, one per line.
    pub(crate) fn listed(problems: Vec<Problem>) -> Self {
        let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Self::Other(anyhow!("{}", all.join("\n")))
    }
}

/// Returns the configuration for a command that works without one. A file that was passed must be valid. A file that
/// was only found may be invalid.
pub(crate) fn nearby(common: &Common) -> Result<Config, Unusable> {
    let places = common.places();
    if let Some(named) = &common.config {
        let document = Document::read(named.clone()).map_err(|why| Unusable::Usage(anyhow!("--config: {why}")))?;
        return parse(&document, &places).map(|written| written.config().clone()).map_err(Unusable::listed);
    }
    let text = find(&places, &environment).ok().and_then(|path| std::fs::read_to_string(path).ok());
    let read = |text: &str| Config::written(("the configuration", text), &places, &environment);
    let found = text.and_then(|text| read(&text).ok());
    found.map_or_else(|| defaults(&places), Ok).map_err(Unusable::listed)
}

/// Returns a problem for each environment variable that resembles a setting but does not set one.
pub(crate) fn unknown_variables(config: &Config) -> Vec<Problem> {
    let set: Vec<String> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    misspelt(set.iter().map(String::as_str), &config.variables)
}

/// The demo's targets and aliases, and its part in a fleet, if it has one.
pub(crate) fn demo(port: u16, fleet: Option<FleetConfig>) -> Arc<Extra> {
    let target = |simulated: demo::DemoTarget| TargetConfig {
        name: simulated.name.to_owned(),
        interval: Some(simulated.interval),
        min_interval: Some(DEMO_BOUNDS.0),
        max_interval: Some(DEMO_BOUNDS.1),
        secrets: (simulated.secrets.iter())
            .map(|(name, value)| ((*name).to_owned(), SecretSource::Simulated(value)))
            .collect(),
        labels: BTreeMap::from([
            ("estate".to_owned(), "demo".to_owned()),
            ("site".to_owned(), simulated.site.to_owned()),
        ]),
        settings: serde_json::from_str(simulated.settings).expect("the demo's settings are JSON"),
        ..TargetConfig::new(
            TargetId::new(simulated.id).expect("the demo's ids are ids"),
            Kind::new(simulated.kind).expect("the demo's kinds are kinds"),
            simulated.url.parse().expect("the demo's URLs are URLs"),
        )
    };
    let alias = |(name, canonical): (&str, &str)| (name.to_owned(), canonical.to_owned());
    Arc::new(Extra {
        targets: demo::targets(port).into_iter().map(target).collect(),
        aliases: demo::ALIASES.into_iter().map(alias).collect(),
        channels: vec![demo_channel(port)],
        routes: vec![demo_route()],
        fleet,
    })
}

/// The name of the demo's channel, and of its route.
const DEMO_CHANNEL: &str = "demo";

/// The channel to the demo's receiver.
fn demo_channel(port: u16) -> TargetConfig {
    let url = format!("http://127.0.0.1:{port}{}", demo::RECEIVER);
    let channel = TargetConfig::new(
        TargetId::new(DEMO_CHANNEL).expect("the constant is an id"),
        Kind::new("webhook").expect("the constant is a kind"),
        url.parse().expect("the demo's URLs are URLs"),
    );
    TargetConfig { is_channel: true, ..channel }
}

/// The route to the demo's channel. It waits for less than others, so that the first notification comes soon.
fn demo_route() -> Route {
    let short = |seconds| Duration::from_secs(seconds);
    let (group_wait, group_interval) = (short(2), short(30));
    let channels = vec![DEMO_CHANNEL.to_owned()];
    Route { group_wait, group_interval, ..Route::new(DEMO_CHANNEL, Matchers(Vec::new()), channels) }
}
