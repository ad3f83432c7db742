//! `import`: prints the targets of a Prometheus service discovery file as configuration.

use crate::output::print;
use anyhow::{anyhow, bail};
use config::read_text;
use model::TargetId;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use toml::Table;
use url::Url;

/// The size limit of the file, in bytes.
const FILE: u64 = 16 << 20;

/// Prints a `[[target]]` of this kind for each address in a file in the form of Prometheus's `file_sd_configs`.
pub(crate) fn import(file: &Path, kind: &str) -> anyhow::Result<u8> {
    let wrong = |why: String| anyhow!("{}: {why}", file.display());
    let text = read_text(file, FILE).map_err(wrong)?;
    let groups: Vec<Value> = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("this is not a JSON list of groups, each with targets and labels: {error}")))?;
    let mut ids = BTreeSet::new();
    // Nothing is printed of a file with an error, because the output is usually appended to a configuration.
    let mut all = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let place = |why: &str| wrong(format!("group {}: {why}", number + 1));
        let labels = labels(group).map_err(|why| place(&why))?;
        let Some(targets) = group["targets"].as_array() else { bail!(place("it has no list of targets")) };
        for target in targets {
            let address = target.as_str().ok_or_else(|| place("a target is not a text"))?;
            let url = url(address, &labels).ok_or_else(|| place(&format!("{address:?} is not an address")))?;
            all.push(definition((kind, &url), &labels, &mut ids));
        }
    }
    if all.is_empty() {
        bail!(wrong("it has no targets".to_owned()));
    }
    print(all.join("\n").trim_end())?;
    Ok(0)
}

fn labels(group: &Value) -> Result<BTreeMap<String, String>, String> {
    let labels = match &group["labels"] {
        Value::Null => return Ok(BTreeMap::new()),
        Value::Object(labels) => labels,
        _ => return Err("its labels are not an object".to_owned()),
    };
    let label = |(name, value): (&String, &Value)| match value.as_str() {
        Some(value) => Ok((name.clone(), value.to_owned())),
        None => Err(format!("the label {name:?} is not a text")),
    };
    labels.iter().map(label).collect()
}

/// The URL of a target: an address, or a URL as for the blackbox exporter. Prometheus takes scheme and path from
/// labels.
fn url(address: &str, labels: &BTreeMap<String, String>) -> Option<Url> {
    if address.starts_with("http://") || address.starts_with("https://") {
        return Url::parse(address).ok();
    }
    if address.contains("://") {
        return None;
    }
    let scheme = labels.get("__scheme__").map_or("http", String::as_str);
    let path = labels.get("__metrics_path__").map_or("/", String::as_str);
    let url = Url::parse(&format!("{scheme}://{address}{path}")).ok()?;
    (["http", "https"].contains(&url.scheme()) && url.has_host()).then_some(url)
}

fn definition((kind, url): (&str, &Url), labels: &BTreeMap<String, String>, ids: &mut BTreeSet<String>) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map(|port| format!("-{port}")).unwrap_or_default();
    let base = slug(&format!("{host}{port}"));
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    let id = [base.clone()].into_iter().chain(numbered).find(|id| !ids.contains(id)).unwrap_or_default();
    ids.insert(id.clone());
    let mut target = Table::new();
    target.insert("id".to_owned(), id.into());
    target.insert("kind".to_owned(), kind.into());
    target.insert("url".to_owned(), url.as_str().into());
    // Labels with two underscores are instructions to Prometheus.
    let own = labels.iter().filter(|(name, _)| !name.starts_with("__"));
    let own: Table = own.map(|(name, value)| (name.clone(), value.clone().into())).collect();
    if !own.is_empty() {
        target.insert("labels".to_owned(), own.into());
    }
    let document = Table::from_iter([("target".to_owned(), vec![target].into())]);
    toml::to_string(&document).unwrap_or_default()
}

/// Turns a name into a target id.
fn slug(name: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let text: String = name.chars().map(letter).collect();
    let text: String = text.trim_matches('-').chars().take(55).collect();
    if TargetId::new(&text).is_ok() { text } else { "target".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Config, Places};

    #[test]
    fn targets_of_prometheus_become_valid_configuration() {
        let group = serde_json::json!({
            "targets": ["db1.example:9100", "https://shop.example/health", "[2001:db8::1]:80", "db1.example:9100"],
            "labels": { "site": "zurich \"1\"", "__metrics_path__": "/metrics", "__scheme__": "https" },
        });
        let (labels, mut ids) = (labels(&group).unwrap(), BTreeSet::new());
        let text: String = (group["targets"].as_array().unwrap().iter())
            .map(|target| definition(("http", &url(target.as_str().unwrap(), &labels).unwrap()), &labels, &mut ids))
            .collect();
        let config = Config::written(("p.toml", &text), &Places::default(), &|_| None).unwrap();
        let found: Vec<(&str, &str)> =
            config.targets.iter().map(|target| (target.id.as_str(), target.url.as_str())).collect();
        let expected = [
            ("db1-example-9100", "https://db1.example:9100/metrics"),
            ("shop-example", "https://shop.example/health"),
            ("2001-db8--1--80", "https://[2001:db8::1]:80/metrics"),
            ("db1-example-9100-2", "https://db1.example:9100/metrics"),
        ];
        assert_eq!(found, expected);
        assert!(
            config.targets.iter().all(|target| target.labels["site"] == "zurich \"1\"" && target.labels.len() == 1)
        );
        for address in ["", "a b", "ftp://x"] {
            assert!(url(address, &BTreeMap::new()).is_none(), "{address}");
        }
    }
}
