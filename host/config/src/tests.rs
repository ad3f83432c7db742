use super::value::{parse_duration, show_duration};
use super::*;
use std::collections::HashMap;
use std::time::Duration;

fn read_with(text: &str, variables: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    let variables: HashMap<String, String> = variables.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let environment = |name: &str| variables.get(name).cloned();
    let places = Places { data_dir: Some("/data".into()), ..Places::default() };
    Config::written(("p.toml", text), &places, &environment)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

const WHOLE: &str = r#"
[server]
listen = "127.0.0.1:1"
[metrics]
prefix = "pulse_monitor"
[store]
history_days = 7
[egress]
max_requests_per_host = 3
api_target_cidrs = ["10.0.0.0/8"]
[plugins]
instance_slots = 16
[plugins.limits.pve]
cpu = "2s"
requests = 99
[scheduler]
profile = "depsera"
cadence = "fixed"
base_interval = "20s"
max_interval = "10m"
[secrets]
shared = { env = "S", kinds = ["pve"], origins = ["https://a"] }

[[target]]
id = "pve-core"
name = "PVE core"
kind = "pve"
url = "https://pve1.example:8006"
also = [{ url = "https://pve2.example:8006", tls = { insecure = true } }]
tls = { fingerprint = "abababababababababababababababababababababababababababababababab" }
interval = "1m30s"
timeout = "30s"
secrets = { token = { env = "PVE_TOKEN" }, other = { file = "/run/secret" } }
labels = { site = "zurich" }
[target.settings]
threshold = 5
list = [1.5, true, "x"]

[[alias]]
name = "PostgreSQL main"
canonical = "postgres"
"#;

#[test]
fn every_documented_key_is_read() {
    let config = read_with(WHOLE, &[]).unwrap();
    assert_eq!((config.listen.port(), config.metrics_listen.port()), (1, 9091));
    assert_eq!(config.scheduler.base, Some(Duration::from_secs(20)));
    assert_eq!(config.store.path, std::path::Path::new("/data/polliwog.db"));
    assert_eq!(config.aliases["PostgreSQL main"], "postgres");
    let limits = config.limits.values().next().unwrap();
    assert_eq!((limits.poll.cpu, limits.poll.requests, limits.poll.memory), (Duration::from_secs(2), 99, 64 << 20));
    let target = &config.targets[0];
    assert_eq!((target.name.as_str(), target.interval), ("PVE core", Some(Duration::from_secs(90))));
    assert_eq!(target.settings, serde_json::json!({ "threshold": 5, "list": [1.5, true, "x"] }));
    assert_eq!(target.secrets["other"], SecretSource::File("/run/secret".into()));
    assert!(target.also[0].tls.insecure && target.tls.fingerprints.len() == 1 && target.enabled);
}

#[test]
fn the_environment_overrides_the_file_and_is_checked() {
    let variables = [
        ("POLLIWOG_SERVER_LISTEN", "127.0.0.1:2"),
        ("ADAPTIVE_POLLING_MAX_INTERVAL", "20m"),
        ("POLLIWOG_SCHEDULER_MIN_INTERVAL", "200ms"),
        ("POLL_MAX_CONCURRENT_PER_HOST", "9"),
        ("ADAPTIVE_POLLING_ENABLED", "false"),
    ];
    let config = read_with("[server]\nlisten = \"127.0.0.1:1\"", &variables).unwrap();
    let scheduler = &config.scheduler;
    assert_eq!(
        (config.listen.port(), scheduler.max, scheduler.min),
        (2, Some(Duration::from_secs(1200)), Duration::from_millis(200))
    );
    assert_eq!((scheduler.max_per_host, scheduler.cadence), (9, model::Cadence::Fixed));
    let problems = read_with("", &[("POLLIWOG_STORE_HISTORY_DAYS", "many")]).unwrap_err();
    assert!(problems[0].starts_with("environment POLLIWOG_STORE_HISTORY_DAYS: "), "{problems:?}");
}

#[test]
fn every_problem_is_reported_with_its_place() {
    let text = r#"
[sever]
[server]
lisen = "127.0.0.1:1"
listen = "here"
[scheduler]
min_interval = "10ms"
cadence = "adaptiv"
max_in_flight = 0
[[target]]
id = "A B"
kind = "http"
url = "ftp://x"
intervall = "10s"
secrets = { token = "literal" }
[[target]]
id = "a"
kind = "http"
url = "http://a"
interval = "1s"
tls = { fingerprint = "12", insecure = true }
[[target]]
id = "a"
kind = "http"
url = "http://a"
[[target]]
kind = "http"
[[target]]
id = "new"
kind = "http"
url = "http://a"
"#;
    let problems = read_with(text, &[]).unwrap_err();
    let expected = [
        ("p.toml:2", "did you mean \"server\"?"),
        ("p.toml:4", "did you mean \"listen\"?"),
        ("p.toml:5", "127.0.0.1:7411"),
        ("p.toml:7", "100ms to 24h"),
        ("p.toml:8", "did you mean \"adaptive\"?"),
        ("p.toml:9", "use 1 or more"),
        ("p.toml:11", "a target id"),
        ("p.toml:13", "http and https"),
        ("p.toml:14", "did you mean \"interval\"?"),
        ("p.toml:15", "never as a value"),
        ("p.toml:20", "5s to 24h"),
        ("p.toml:21", "64 hex digits"),
        ("p.toml:23", "two targets a"),
        ("p.toml:26", "no id"),
        ("p.toml:26", "no url"),
        ("p.toml:29", "is reserved"),
    ];
    for (place, words) in expected {
        let found =
            problems.iter().any(|problem| problem.starts_with(&format!("{place}: ")) && problem.contains(words));
        assert!(found, "{place} {words} is not among {problems:#?}");
    }
    assert!(!problems.iter().any(|problem| problem.contains("literal")), "a secret is never printed: {problems:?}");
    let problems = read_with("[server\n", &[]).unwrap_err();
    assert!(problems.len() == 1 && problems[0].starts_with("p.toml:1: this is not TOML"), "{problems:?}");
}

#[test]
fn durations_are_parsed_and_formatted() {
    for (text, seconds) in
        [("10s", 10.0), ("250ms", 0.25), ("5m", 300.0), ("1h30m", 5400.0), ("1.5s", 1.5), ("1d", 86_400.0)]
    {
        assert_eq!(parse_duration(text).unwrap(), Duration::from_secs_f64(seconds), "{text}");
    }
    for bad in ["", "10", "s", "-1s", "1x", "1s2", "1e9s", "999999999999999999999999h", "1..5s"] {
        assert!(parse_duration(bad).is_err(), "{bad}");
    }
    for text in ["10s", "250ms", "5m", "2h", "90s"] {
        assert_eq!(show_duration(parse_duration(text).unwrap()), text);
    }
}
