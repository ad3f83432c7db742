//! `plugin list`: lists the plugins, their kinds and their usage.

use crate::cli::Common;
use crate::client::{self, Unanswered};
use crate::configuration::{defaults, read};
use crate::output::{complain, print, print_json};
use crate::plugins::{compiling, load, sandbox};
use catalog::Uncompiled;
use egress::Method;
use serde_json::Value;
use std::collections::BTreeMap;

/// Lists the plugins of the running host with counters or, if no host answers, those that the configuration would load.
pub(crate) async fn list(common: &Common, as_json: bool) -> anyhow::Result<u8> {
    let (from, plugins) = match client::call(common, Method::GET, "/api/v1/plugins", None).await {
        Ok(answer) => ("the running host", answer["plugins"].clone()),
        Err(Unanswered::Refused(why)) => {
            complain(format_args!("polliwog: {why}"));
            return Ok(1);
        }
        Err(Unanswered::Unreachable(why)) => {
            complain(format_args!(
                "no running host answers ({why}); listing the plugins that the configuration would load"
            ));
            ("the configuration", would_load(common).await?)
        }
    };
    if as_json {
        print_json(&serde_json::json!({ "from": from, "plugins": plugins }))?;
        return Ok(0);
    }
    let all: Vec<&Value> = plugins.as_array().into_iter().flatten().collect();
    let (served, refused): (Vec<&Value>, Vec<&Value>) = all.into_iter().partition(|plugin| plugin["refusal"].is_null());
    print(&format!(
        "{:<16} {:<10} {:>9} {:>7} {:>10} {:>10} {:>9} {:>9} {:>10}  SOURCE",
        "KIND", "VERSION", "POLLS", "FAULTS", "CPU/POLL", "WALL/POLL", "PEAK", "REQUESTS", "BODIES"
    ))?;
    for plugin in &served {
        print(&row(plugin))?;
        for line in notes(plugin) {
            print(&format!("{:<16} {line}", ""))?;
        }
    }
    for plugin in &refused {
        print(&format!("refused: {}: {}", text(plugin, "source"), text(plugin, "refusal")))?;
    }
    Ok(0)
}

fn text<'a>(plugin: &'a Value, key: &str) -> &'a str {
    plugin[key].as_str().unwrap_or("-")
}

fn row(plugin: &Value) -> String {
    let number = |key: &str| plugin[key].as_u64().unwrap_or(0);
    let polls = number("polls");
    let each = |key: &str| match plugin[key].as_f64() {
        Some(all) if polls > 0 => format!("{:.2} ms", all / polls as f64),
        _ => "-".to_owned(),
    };
    format!(
        "{:<16} {:<10} {polls:>9} {:>7} {:>10} {:>10} {:>9} {:>9} {:>10}  {}",
        text(plugin, "kind"),
        text(plugin, "version"),
        number("faults"),
        each("cpuMs"),
        each("wallMs"),
        bytes(number("peakMemoryBytes")),
        number("requests"),
        bytes(number("bodyBytes")),
        text(plugin, "source")
    )
}

/// Returns the lines below a plugin's row: quarantine, faults by reason, used secrets, log lines.
fn notes(plugin: &Value) -> Vec<String> {
    let counts = |key: &str| {
        let all = plugin[key].as_object().into_iter().flatten();
        all.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    let mut notes = Vec::new();
    if let Some(until) = plugin["quarantinedUntil"].as_str() {
        notes.push(format!("in quarantine: probed at {until} and when its file changes"));
    }
    for (what, counts) in [("faults", counts("faultsByReason")), ("secrets used", counts("secrets"))] {
        if !counts.is_empty() {
            notes.push(format!("{what}: {counts}"));
        }
    }
    if let Some(lines @ 1..) = plugin["logLines"].as_u64() {
        notes.push(format!("log lines: {lines}"));
    }
    notes
}

/// Formats a number of bytes.
pub(super) fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{} kB", count / 1000),
        _ => format!("{} MB", count / 1_000_000),
    }
}

async fn would_load(common: &Common) -> anyhow::Result<Value> {
    let places = common.places();
    let config = match config::find(&places, &config::environment) {
        Ok(_) => read(&places)?,
        Err(_) => defaults(&places),
    };
    let config = config.map_err(|problems| anyhow::anyhow!("{}", problems[0]))?;
    let watcher = load(&config, sandbox(&config)?, Uncompiled::Compile(compiling)).await;
    let plugins: Vec<_> = watcher.set().states(&BTreeMap::new()).iter().map(web::PluginWire::from).collect();
    Ok(serde_json::to_value(plugins)?)
}
