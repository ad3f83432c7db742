//! Reads `[otlp]`: a collector of OpenTelemetry that takes events and metrics.

use crate::reader::{Notes, Section, text};
use crate::target_config::{SecretSource, TargetConfig};
use crate::target_parts::{secrets, tls};
use crate::value::{Entry, Value, parse_duration};
use egress::Origin;
use model::{Kind, TargetId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The shortest and the longest interval of metrics.
const INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// The name of the collector in messages.
const NAME: &str = "otlp";

/// A collector, and what it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpConfig {
    /// The URL, TLS and secrets of the collector, as of a channel.
    pub collector: Arc<TargetConfig>,
    /// The headers of requests. Values may contain references to secrets.
    pub headers: Vec<(String, String)>,
    /// The interval of metrics; `None` to send none.
    pub metrics: Option<Duration>,
    /// Whether changes are sent as log records.
    pub logs: bool,
    /// Whether each poll is a log record as well.
    pub polls: bool,
}

pub(crate) fn otlp(notes: &Notes<'_>, document: &[Entry]) -> Option<OtlpConfig> {
    let entry = document.iter().find(|entry| entry.key == "otlp")?;
    let Value::Table(entries) = &entry.node.value else {
        notes.at(entry.line, "otlp is written as [otlp]");
        return None;
    };
    let section = Section::inner(notes, "[otlp]".to_owned(), entries);
    let url = section.get("url", |value| {
        let (url, origin) = Origin::parse(&text(value)?).map_err(|error| error.to_string())?;
        match ["/v1/logs", "/v1/metrics"].iter().find(|end| url.path().trim_end_matches('/').ends_with(**end)) {
            Some(end) => Err(format!("leave out {end}, which is added")),
            None if url.query().is_some() => Err("the URL of a collector has no query: use headers".to_owned()),
            None => Ok((url, origin)),
        }
    });
    if !entries.iter().any(|entry| entry.key == "url") {
        notes.at(entry.line, "[otlp] has no url: the collector's, such as http://localhost:4318");
    }
    let tls = section.table("tls").map(|entries| tls(notes, entries)).unwrap_or_default();
    let (secrets, short_secrets) = secrets(notes, section.table("secrets").unwrap_or_default());
    let headers = section.table("headers").unwrap_or_default().iter();
    let headers = headers.filter_map(|Entry { key, node, line }| match text(&node.value) {
        Ok(value) => {
            if let Some(why) = wrong_header(key, &value, &secrets) {
                notes.at(*line, format!("headers.{key}: {why}"));
            }
            Some((key.to_ascii_lowercase(), value))
        }
        Err(why) => {
            notes.at(*line, format!("headers.{key}: {why}"));
            None
        }
    });
    let headers = headers.collect();
    let metrics = section.get("metrics", |value| match value {
        Value::Boolean(false) => Ok(None),
        value => match parse_duration(&text(value)?)? {
            found if found < INTERVAL.0 || found > INTERVAL.1 => Err("use 1s to 1h, or false".to_owned()),
            found => Ok(Some(found)),
        },
    });
    let (logs, polls) = (section.boolean("logs").unwrap_or(true), section.boolean("polls").unwrap_or(false));
    if polls && !logs {
        notes.at(section.line("polls"), "polls are log records: they need logs = true");
    }
    section.finish();
    if !logs && metrics == Some(None) {
        notes.at(entry.line, "[otlp] sends nothing: logs and metrics are both false");
    }
    let (id, kind) = (TargetId::new(NAME).ok()?, Kind::new(NAME).ok()?);
    let collector = TargetConfig {
        tls,
        secrets,
        short_secrets,
        line: entry.line,
        is_channel: true,
        ..TargetConfig::new(id, kind, url?.0)
    };
    let metrics = metrics.unwrap_or(Some(Duration::from_secs(60)));
    Some(OtlpConfig { collector: Arc::new(collector), headers, metrics, logs, polls })
}

/// Returns why a header cannot be sent.
fn wrong_header(name: &str, value: &str, secrets: &BTreeMap<String, SecretSource>) -> Option<String> {
    /// The headers that the push itself sets.
    const OWN: [&str; 2] = ["content-type", "user-agent"];
    if OWN.contains(&name.to_ascii_lowercase().replace('_', "-").as_str()) {
        return Some(format!("the header {name} is set by Polliwog itself"));
    }
    if let Err(why) = egress::settable_header(name, value) {
        return Some(why);
    }
    egress::reference_problems(value, |name| secrets.contains_key(name)).into_iter().next()
}

#[cfg(test)]
mod tests {
    use crate::{Config, Places};
    use std::time::Duration;

    fn read(text: &str) -> Result<Config, String> {
        Config::written(("p.toml", text), &Places::default(), &|_| None)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn a_collector_is_read_and_absent_by_default() {
        assert_eq!(read("").unwrap().otlp, None);
        let found = read("[otlp]\nurl = \"http://localhost:4318\"").unwrap().otlp.unwrap();
        assert_eq!((found.logs, found.polls, found.metrics), (true, false, Some(Duration::from_secs(60))));
        let text = "[otlp]\nurl = \"https://a/otlp\"\nmetrics = false\npolls = true\n\
                    headers = { Authorization = \"Bearer ${secret.token}\" }\nsecrets = { token = { env = \"T\" } }";
        let found = read(text).unwrap().otlp.unwrap();
        assert_eq!((found.metrics, found.polls), (None, true));
        assert_eq!(found.headers, [("authorization".to_owned(), "Bearer ${secret.token}".to_owned())]);
        assert!(found.collector.secrets.contains_key("token"));
    }

    #[test]
    fn problems_are_named_with_their_place() {
        for (text, expected) in [
            ("[otlp]\nlogs = true", "p.toml:1: [otlp] has no url"),
            ("[otlp]\nurl = \"localhost:4318\"", "p.toml:2: url: "),
            ("[otlp]\nurl = \"http://a\"\nmetrics = \"2h\"", "p.toml:3: metrics: use 1s to 1h, or false"),
            ("[otlp]\nurl = \"http://a\"\nheaders = { a = 1 }", "p.toml:3: headers.a: "),
            ("[otlp]\nurl = \"http://a\"\nlogs = false\npolls = true", "p.toml:4: polls are log records"),
            ("[otlp]\nurl = \"http://a/v1/logs\"", "p.toml:2: url: leave out /v1/logs, which is added"),
            ("[otlp]\nurl = \"http://a?b\"", "has no query"),
            ("[otlp]\nurl = \"http://a\"\nlogs = false\nmetrics = false", "p.toml:1: [otlp] sends nothing"),
            ("[otlp]\nurl = \"http://a\"\nheaders = { \"a b\" = \"c\" }", "is not the name of a header"),
            ("[otlp]\nurl = \"http://a\"\nheaders = { Host = \"c\" }", "the header host is set by Polliwog itself"),
            ("[otlp]\nurl = \"http://a\"\nheaders = { a = \"b\\nc\" }", "has a line break"),
            ("[otlp]\nurl = \"http://a\"\nheaders = { a = \"${secret.t}\" }", "there is no secret \"t\""),
            ("[otlp]\nurl = \"http://a\"\nintervall = \"1s\"", "unknown key"),
            ("otlp = 3", "p.toml:1: otlp is written as [otlp]"),
        ] {
            let problems = read(text).unwrap_err();
            assert!(problems.contains(expected), "{text}: {problems}");
        }
    }
}
