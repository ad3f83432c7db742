//! The configuration as every command reads it: the file that counts, and the demo's targets where they are wanted.

use crate::config::{Config, Overrides, Places, Problem, TargetConfig, TlsConfig, find};
use anyhow::{Context, bail};
use model::{Kind, TargetId};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::time::Duration;

/// The longest configuration, in bytes.
const CONFIG: u64 = 16 << 20;
/// The demo's targets are polled this often, at most and at least.
const DEMO_BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// The configuration as it is written, with the demo's targets where they are wanted.
pub(crate) fn read(places: &Places, demo: Option<u16>) -> anyhow::Result<Result<Config, Vec<Problem>>> {
    read_with(places, demo, &Overrides::new())
}

/// The configuration with settings that were changed while the host ran.
pub(crate) fn read_with(
    places: &Places,
    demo: Option<u16>,
    overrides: &Overrides,
) -> anyhow::Result<Result<Config, Vec<Problem>>> {
    let environment = |name: &str| std::env::var(name).ok();
    let (file, text) = match find(places, &environment) {
        Ok(path) => {
            let text = read_text(&path, CONFIG).map_err(|why| anyhow::anyhow!("the configuration: {why}"))?;
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
    let mut config = match Config::read((&file, &text), (places, demo.is_some()), overrides, &environment) {
        Ok(config) => config,
        Err(problems) => return Ok(Err(problems)),
    };
    if let Some(port) = demo {
        let problems = add_demo(&mut config, port, overrides)?;
        if !problems.is_empty() {
            return Ok(Err(problems));
        }
    }
    Ok(Ok(config))
}

/// An operator's own target keeps its id.
fn add_demo(config: &mut Config, port: u16, overrides: &Overrides) -> anyhow::Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for simulated in demo::targets(port) {
        if config.targets.iter().any(|target| target.id.as_str() == simulated.id) {
            continue;
        }
        let mut target = TargetConfig {
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
        };
        let found = target.override_with(overrides, &config.scheduler, &mut config.sources);
        problems.extend(found.into_iter().map(|message| Problem { place: "the demo".to_owned(), message }));
        config.targets.push(target);
    }
    Ok(problems)
}

/// `1 problem`, `2 problems`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Prints a line of data. Whoever reads may have read enough; a disk that is full is an error.
pub(crate) fn print(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("writing to stdout"),
        _ => Ok(()),
    }
}

/// A text file of at most `longest` bytes; in one sentence, why not.
pub(crate) fn read_text(file: &std::path::Path, longest: u64) -> Result<String, String> {
    use std::io::Read;
    let name = file.display();
    let why = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => format!("there is no file {name}: check its path"),
        ErrorKind::PermissionDenied => format!("{name} may not be read by this user: change its permissions"),
        ErrorKind::InvalidData => format!("{name} is no UTF-8 text: check that it is the right file"),
        _ => format!("{name} cannot be read ({error})"),
    };
    if !std::fs::metadata(file).map_err(why)?.is_file() {
        return Err(format!("{name} is no ordinary file: give the path of one"));
    }
    let mut text = String::new();
    let mut opened = std::fs::File::open(file).map_err(why)?.take(longest + 1);
    opened.read_to_string(&mut text).map_err(why)?;
    if text.len() as u64 > longest {
        return Err(format!("{name} is longer than {longest} bytes: check that it is the right file"));
    }
    Ok(text)
}
