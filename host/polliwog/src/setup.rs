//! The configuration as every command reads it: the file that counts, and the demo's targets where they are wanted.

use crate::config::{Config, Places, Problem, TargetConfig, TlsConfig, find};
use anyhow::{Context, bail};
use model::{Kind, TargetId};
use std::collections::BTreeMap;
use std::time::Duration;

/// The demo's targets are polled this often, at most and at least.
const DEMO_BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// The configuration, with the demo's targets where they are wanted.
pub(crate) fn read(places: &Places, demo: Option<u16>) -> anyhow::Result<Result<Config, Vec<Problem>>> {
    let environment = |name: &str| std::env::var(name).ok();
    let (file, text) = match find(places, &environment) {
        Ok(path) => {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("the configuration {} cannot be read", path.display()))?;
            (path.display().to_string(), text)
        }
        Err(_) if demo.is_some() => ("the demo".to_owned(), String::new()),
        Err(looked_at) => {
            let places: Vec<String> = looked_at.iter().map(|path| path.display().to_string()).collect();
            bail!(
                "there is no configuration ({}): write one, or look round with `polliwog run --demo`",
                places.join(", ")
            );
        }
    };
    let mut config = match Config::read((&file, &text), places, demo.is_some(), &environment) {
        Ok(config) => config,
        Err(problems) => return Ok(Err(problems)),
    };
    if let Some(port) = demo {
        add_demo(&mut config, port)?;
    }
    Ok(Ok(config))
}

/// An operator's own target keeps its id.
fn add_demo(config: &mut Config, port: u16) -> anyhow::Result<()> {
    for simulated in demo::targets(port) {
        if config.targets.iter().any(|target| target.id.as_str() == simulated.id) {
            continue;
        }
        config.targets.push(TargetConfig {
            id: TargetId::new(simulated.id)?,
            name: simulated.name.to_owned(),
            kind: Kind::new(simulated.kind)?,
            url: simulated.url.parse()?,
            also: Vec::new(),
            tls: TlsConfig::default(),
            interval: Some(simulated.interval),
            cadence: None,
            min_interval: Some(DEMO_BOUNDS.0),
            max_interval: Some(DEMO_BOUNDS.1),
            timeout: None,
            enabled: true,
            secrets: BTreeMap::new(),
            labels: BTreeMap::from([("estate".to_owned(), "demo".to_owned())]),
            settings: serde_json::from_str(simulated.settings)?,
            line: 0,
        });
    }
    Ok(())
}

/// `1 problem`, `2 problems`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
