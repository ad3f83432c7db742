//! The reference of all keys, as Markdown: `docs/configuration-reference.md` is this text.
//!
//! The tests check that each key is one that the reader knows, and that the sections list every key that the
//! environment can set.

use crate::checked::scheduler_values;
use scheduler::Settings;
use std::fmt::Write;

/// A key of a section.
struct Key {
    name: &'static str,
    /// The form of its value.
    form: &'static str,
    /// The default; empty if the key has no default.
    default: String,
    meaning: &'static str,
}

/// A section of the file.
struct Section {
    /// The heading, as in the file.
    heading: &'static str,
    /// The name of its keys' environment variables, between `POLLIWOG_` and the key; `None` if the environment cannot
    /// set them.
    variable: Option<&'static str>,
    meaning: &'static str,
    keys: Vec<Key>,
}

fn key(name: &'static str, form: &'static str, default: impl ToString, meaning: &'static str) -> Key {
    Key { name, form, default: default.to_string(), meaning }
}

fn settings_version() -> Key {
    let default = "that of the plugin that accepted them last, or 1";
    key("settings_version", "number", default, "The version of its kind's settings that they are written for.")
}

fn server() -> Section {
    let keys = vec![
        key("listen", "address:port", "127.0.0.1:7411", "Where pages and API listen."),
        key("time_zone", "IANA name", "that of the system", "The time zone that plugins see, as in `Europe/Zurich`."),
        key("metrics_listen", "address:port", "127.0.0.1:9091", "Where `/metrics` listens, without a token."),
        key(
            "hosts",
            "list of names",
            "",
            "Names by which this host may be addressed, in addition to its addresses and local names.",
        ),
        key(
            "proxy_user_header",
            "text",
            "",
            "The header in which a reverse proxy names the user that it authenticated.",
        ),
        key(
            "proxies",
            "list of networks",
            "",
            "The addresses from which that header counts, as in `[\"127.0.0.1/32\"]`.",
        ),
        key("proxy_scope", "read, operate or admin", "read", "The scope of the users of that proxy."),
    ];
    Section { heading: "[server]", variable: Some("SERVER"), meaning: "The host's own ports.", keys }
}

fn metrics() -> Section {
    let meaning = "The first word of the metrics' names: `polliwog` or `pulse_monitor`.";
    let keys = vec![key("prefix", "text", "polliwog", meaning)];
    Section { heading: "[metrics]", variable: Some("METRICS"), meaning: "Names of metrics.", keys }
}

fn store() -> Section {
    let keys = vec![
        key("path", "file", "polliwog.db in the data directory", "The database."),
        key("history_days", "number", 400, "History older than this many days is deleted."),
        key("history_rows", "number", 1_000_000, "Rows of each history beyond this number are deleted, oldest first."),
        key(
            "history_bytes",
            "number",
            2_u64 << 30,
            "Bytes of all histories beyond this number are deleted, oldest first.",
        ),
    ];
    Section { heading: "[store]", variable: Some("STORE"), meaning: "The database and its bounds.", keys }
}

fn egress() -> Section {
    let keys = vec![
        key("max_requests_per_host", "number", 20, "Requests in flight to one host."),
        key(
            "max_body_bytes_in_flight",
            "number",
            256 << 20,
            "Bytes of response bodies held at a time, over all polls.",
        ),
        key("api_target_cidrs", "list of networks", "", "Networks that targets made through the API may reach."),
    ];
    Section { heading: "[egress]", variable: Some("EGRESS"), meaning: "Bounds of requests.", keys }
}

fn plugins() -> Section {
    let keys = vec![
        key("dir", "folder", "plugins in the data directory", "Where plugins are dropped."),
        key("trust", "list of file names", "", "Files there that may take over a kind that has targets."),
        key("instance_slots", "number", 512, "Plugin instances at a time."),
    ];
    Section { heading: "[plugins]", variable: Some("PLUGINS"), meaning: "Plugins and their instances.", keys }
}

fn limits() -> Section {
    let limits = sandbox::Limits::default();
    let cpu = format!("{} ms", limits.cpu.as_millis());
    let keys = vec![
        key("memory_bytes", "number", limits.memory, "Memory of one poll; it can only be lowered."),
        key("cpu", "duration", cpu, "CPU time of one poll."),
        key("requests", "number", limits.requests, "Requests of one poll."),
        key("body_bytes", "number", limits.body, "Bytes of one response body."),
        key("bodies_bytes", "number", limits.bodies, "Bytes of all response bodies of one poll."),
        key("dependencies", "number", limits.dependencies, "Dependencies in one report."),
        key("samples", "number", limits.samples, "Samples in one report."),
        key("warnings", "number", limits.warnings, "Warnings in one report."),
        key("report_bytes", "number", limits.report, "Bytes of one report."),
        key("log_lines", "number", limits.log_lines, "Log lines of one poll."),
        key("methods", "list of methods", "all", "The only methods that the kind's requests may use."),
        key("path_prefixes", "list of paths", "all", "The only beginnings of paths that the kind's requests may have."),
    ];
    Section { heading: "[plugins.limits.KIND]", variable: None, meaning: "Limits for the polls of one kind.", keys }
}

fn scheduler() -> Section {
    let forms = [
        ("profile", "`standard`, `pulse` or `depsera`", "How failures are retried."),
        ("cadence", "`adaptive`, `pulse` or `fixed`", "How the next interval follows from a success."),
        ("base_interval", "duration", "The base interval of targets without one; otherwise their kind's."),
        ("min_interval", "duration", "The shortest interval."),
        ("max_interval", "duration", "The longest interval; without it, a target's base interval is the longest."),
        ("dead_letter_interval", "duration", "How often a dead letter is polled."),
        ("max_in_flight", "number", "Polls in flight."),
        ("max_per_host", "number", "Polls in flight to one host."),
        ("rate_per_second", "number", "Polls started in a second; 0 for no limit."),
    ];
    let defaults = scheduler_values(&Settings::default());
    let keys = forms
        .into_iter()
        .zip(defaults)
        .map(|((name, form, meaning), (_, default))| key(name, form, default.unwrap_or_default(), meaning));
    let meaning = "When targets are polled. These keys are also settings: `polliwog settings set scheduler.KEY VALUE` \
                   changes them while the host runs.";
    Section { heading: "[scheduler]", variable: Some("SCHEDULER"), meaning, keys: keys.collect() }
}

fn alerts() -> Section {
    let keys = vec![
        key("confirm", "number, 1 to 100", 2, "Reports in a row that confirm an alert."),
        key("recover", "number, 1 to 100", 2, "Reports in a row that end an alert."),
        key("warnings", "true or false", false, "Whether dependencies with a warning alert, too."),
        key(
            "unknown_after",
            "duration or `never`",
            "15m",
            "How long a dependency is unknown, or a report has none, before that alerts.",
        ),
        key(
            "missing_after",
            "duration or `never`",
            "15m",
            "How long a dependency is no longer reported before that alerts. An alert that fires stays anyway.",
        ),
        key(
            "parent_wait",
            "duration",
            "30s",
            "How long an alert of a target with `depends_on` waits for an alert that explains it.",
        ),
        key(
            "startup_grace",
            "duration",
            "2m",
            "How long after the start of the host a failure needs one more report, and all alerts of a route are one message.",
        ),
        key("fallback", "name of a channel", "", "The channel that is notified if another one does not deliver."),
        key("address", "URL", "", "The address of this host, for links in notifications."),
    ];
    Section {
        heading: "[alerts]",
        variable: Some("ALERTS"),
        meaning: "The rules of alerts. See [alerts](alerts.md).",
        keys,
    }
}

fn channel() -> Section {
    let keys = vec![
        key("name", "`[a-z0-9_-]`, at most 63", "required", "Unique; names it in routes, API and pages."),
        key("kind", "text", "required", "The receiver, such as `slack`: see [channels](channels.md)."),
        key("url", "URL", "required", "Where notifications are sent. `${secret.NAME}` in its path is replaced."),
        key("secrets", "`{ NAME = { env or file } }`", "", "Where its secrets come from."),
        key(
            "tls",
            "`{ fingerprint, ca_file, insecure, http2 }`",
            "",
            "The certificate of the receiver, as for a target.",
        ),
        key("timeout", "duration", "15s; 30s for `email`", "The time limit of one attempt."),
        key("settings", "table", "", "Settings of its kind."),
        settings_version(),
    ];
    let meaning = "Where notifications go. See [channels](channels.md).";
    Section { heading: "[[channel]]", variable: None, meaning, keys }
}

fn route() -> Section {
    let keys = vec![
        key("name", "text", "`route-1`, `route-2`, …", "Names it in explanations."),
        key("match", "`{ ATTRIBUTE = \"condition\" }`", "every alert", "The alerts that it applies to."),
        key("channels", "list of names", "required", "The channels that are notified."),
        key("group_by", "list of attributes", "`[\"target\"]`", "The alerts that share a notification."),
        key("group_wait", "duration", "10s", "How long the first notification of a group waits for more alerts."),
        key("group_interval", "duration", "5m", "The shortest time between two notifications of a group."),
        key("repeat_interval", "duration or `never`", "4h", "When an alert that still fires is notified again."),
        key("confirm", "number", "that of `[alerts]`", "Reports in a row that confirm an alert."),
        key("recover", "number", "that of `[alerts]`", "Reports in a row that end an alert."),
        key(
            "unless_acknowledged",
            "duration",
            "",
            "The route applies only to alerts that have fired for so long without an acknowledgement, in addition to the other routes.",
        ),
        key("continue", "true or false", false, "Whether later routes apply as well."),
    ];
    let meaning = "Which alerts are notified where: the first that matches applies. See [alerts](alerts.md).";
    Section { heading: "[[route]]", variable: None, meaning, keys }
}

fn silence() -> Section {
    let keys = vec![
        key("match", "`{ ATTRIBUTE = \"condition\" }`", "required", "The alerts that it silences."),
        key("every", "days and times", "required", "When, as in `Sunday 02:00-04:00`."),
        key("time_zone", "IANA name", "required", "The time zone of these times, as in `Europe/Zurich`."),
        key("comment", "text", "", "The reason."),
    ];
    let meaning = "A recurring maintenance window. See [alerts](alerts.md).";
    Section { heading: "[[silence]]", variable: None, meaning, keys }
}

fn otlp() -> Section {
    let keys = vec![
        key(
            "url",
            "URL",
            "required",
            "The collector's, such as `http://localhost:4318`. `/v1/logs` and `/v1/metrics` are added.",
        ),
        key("metrics", "duration, or `false`", "60s", "The interval at which all metrics are sent, 1s to 1h."),
        key("logs", "true or false", true, "Whether changes are sent as log records."),
        key("polls", "true or false", false, "Whether each poll is a log record as well."),
        key("headers", "`{ NAME = \"text\" }`", "", "Headers of the requests. `${secret.NAME}` is replaced."),
        key("secrets", "`{ NAME = { env or file } }`", "", "Where its secrets come from."),
        key("tls", "`{ fingerprint, ca_file }`", "", "The certificate of the collector, as for a target."),
    ];
    let meaning = "A collector of OpenTelemetry; without it, nothing is pushed. See [metrics](metrics.md).";
    Section { heading: "[otlp]", variable: None, meaning, keys }
}

fn fleet() -> Section {
    let keys = vec![
        key("role", "agent, operator or both", "required", "Whether this host reports, assigns and counts, or both."),
        key(
            "url",
            "URL",
            "required",
            "The broker: `nats://HOST:4222`, or `tls://HOST:4222`; those of several servers with commas.",
        ),
        key("device", "`[a-z0-9-]`, at most 63", "required for an agent", "The id of this host, unique in the fleet."),
        key("labels", "`{ NAME = \"text\" }`", "", "Labels of this host, by which deployments choose it."),
        key("credentials", "file", "", "A TOML file of `polliwog fleet credentials`: user, password and key."),
        key(
            "tls",
            "`{ fingerprint, ca_file }`",
            "",
            "The broker's certificate, as for a target; without it, the system's authorities.",
        ),
        key(
            "plugins",
            "true or false",
            false,
            "Whether an agent takes the plugins that its operator offers, for kinds that it lacks.",
        ),
        key("replicas", "1, 3 or 5", 1, "The number of the broker's servers that keep each record; for an operator."),
        key(
            "kubernetes",
            "`{ url, namespace, ca_file, token_file }`",
            "",
            "Takes deployments from a cluster, for an operator; what is left out is that of its pod.",
        ),
    ];
    let meaning = "The part of this host in a fleet; without it, it has none. See [fleet](fleet.md).";
    Section { heading: "[fleet]", variable: Some("FLEET"), meaning, keys }
}

fn target() -> Section {
    let keys = vec![
        key("id", "`[a-z0-9][a-z0-9_-]{0,62}`", "required", "The target's id."),
        key("kind", "text", "required", "Its kind, which one plugin serves."),
        key("url", "URL", "required", "Where it answers."),
        key("name", "text", "its id", "Its name for people."),
        key("also", "list of `{ url, tls }`", "", "Other origins of the same thing, for kinds that use them."),
        key(
            "tls",
            "`{ fingerprint, ca_file, insecure, http2 }`",
            "the system's authorities",
            "How its certificate is verified.",
        ),
        key("host_header", "name", "its URL's", "The `Host` that is sent."),
        key("interval", "duration", "`base_interval`", "Its base interval; a setting can change it."),
        key("min_interval", "duration", "the scheduler's", "Its shortest interval."),
        key("max_interval", "duration", "the scheduler's", "Its longest interval."),
        key("cadence", "as in `[scheduler]`", "the scheduler's", "Its cadence; a setting can change it."),
        key("timeout", "duration, 100 ms to 5 min", "its kind's", "The timeout of a poll."),
        key("enabled", "true or false", true, "Whether it is polled; a setting can change it."),
        key(
            "secrets",
            "`{ NAME = { env } or { file }, short }`",
            "",
            "Where its secrets come from. A value is never written here.",
        ),
        key(
            "secrets_in_path",
            "true or false",
            false,
            "Whether requests may have secrets in paths, which servers log.",
        ),
        key("short_captures", "true or false", false, "Whether secrets from answers may be too short to be masked."),
        key("labels", "`{ NAME = \"text\" }`", "", "Labels for metrics and events."),
        key("confirm", "number", "that of `[alerts]`", "Reports in a row that confirm an alert."),
        key("recover", "number", "that of `[alerts]`", "Reports in a row that end an alert."),
        key("warnings", "true or false", "that of `[alerts]`", "Whether dependencies with a warning alert, too."),
        key("unknown_after", "duration or `never`", "that of `[alerts]`", "How long before what is unknown alerts."),
        key("missing_after", "duration or `never`", "that of `[alerts]`", "How long before what is missing alerts."),
        key(
            "depends_on",
            "list of `target` or `target/dependency`",
            "",
            "What it needs: an alert there explains the alerts of this target.",
        ),
        key("settings", "table", "", "Settings of its kind: see the page of the kind."),
        settings_version(),
    ];
    Section { heading: "[[target]]", variable: None, meaning: "One target.", keys }
}

fn alias() -> Section {
    let keys = vec![
        key("name", "text", "required", "The name of a dependency in reports."),
        key("canonical", "text", "required", "The name that dependencies of several targets share."),
    ];
    Section { heading: "[[alias]]", variable: None, meaning: "A canonical name for dependencies.", keys }
}

fn status_page() -> Section {
    let keys = vec![
        key("name", "text", "required", "The last part of its address: `/status/NAME`."),
        key("title", "text", "the name", "Its heading."),
        key("targets", "list of ids", "required", "The targets that it shows, in this order."),
    ];
    let meaning = "A public page, without a log-in: names, states and availability of its targets.";
    Section { heading: "[[status_page]]", variable: None, meaning, keys }
}

fn secrets() -> Section {
    let keys = vec![
        key("env", "variable", "", "The environment variable with the value."),
        key("file", "path", "", "The file with the value; one line break at its end is ignored."),
        key("short", "true or false", false, "Whether the value may be too short to be masked."),
        key("kinds", "list of kinds", "required", "The kinds that may use it."),
        key("origins", "list of origins", "required", "The origins that it may be sent to."),
    ];
    let meaning = "Secrets that targets made through the API may name.";
    Section { heading: "[secrets.NAME]", variable: None, meaning, keys }
}

fn sections() -> Vec<Section> {
    vec![
        server(),
        metrics(),
        store(),
        egress(),
        plugins(),
        limits(),
        scheduler(),
        alerts(),
        fleet(),
        otlp(),
        target(),
        alias(),
        status_page(),
        channel(),
        route(),
        silence(),
        secrets(),
    ]
}

/// The reference as Markdown.
pub fn reference() -> String {
    let mut text = "# Configuration reference\n\nThis page is generated from the code: \
        `UPDATE=1 cargo test -p config reference` writes it. What the keys are for, how files, settings and environment \
        are combined, and the form of durations: [configuration](configuration.md).\n"
        .to_owned();
    for Section { heading, variable, meaning, keys } in sections() {
        let by_variable = match variable {
            Some(name) => format!(" The environment variable `POLLIWOG_{name}_KEY` wins over the file."),
            None => String::new(),
        };
        // Writing to a string never fails.
        let _ = write!(
            text,
            "\n## `{heading}`\n\n{meaning}{by_variable}\n\n| key | value | default | meaning |\n|---|---|---|---|\n"
        );
        for Key { name, form, default, meaning } in keys {
            let _ = writeln!(text, "| `{name}` | {form} | {default} | {meaning} |");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Places};
    use std::path::Path;

    #[test]
    fn the_reference_page_is_this_text() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration-reference.md");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, reference()).unwrap();
        }
        let page = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(page == reference(), "{} is out of date: UPDATE=1 cargo test -p config reference", file.display());
    }

    #[test]
    fn the_reference_lists_every_key_that_the_environment_can_set() {
        let config = Config::written(("p.toml", ""), &Places::default(), &|_| None).unwrap();
        let documented = sections().into_iter().filter_map(|section| Some((section.variable?, section.keys)));
        let documented: std::collections::BTreeSet<String> = documented
            .flat_map(|(variable, keys)| {
                keys.into_iter().map(move |key| format!("POLLIWOG_{variable}_{}", key.name.to_uppercase()))
            })
            .collect();
        let read = config.variables.iter().filter(|variable| {
            ["SERVER", "METRICS", "STORE", "EGRESS", "PLUGINS", "SCHEDULER", "ALERTS", "FLEET"]
                .iter()
                .any(|section| variable.starts_with(&format!("POLLIWOG_{section}_")))
                // A table, which the environment cannot set.
                && *variable != "POLLIWOG_PLUGINS_LIMITS"
        });
        assert_eq!(documented, read.cloned().collect());
    }

    #[test]
    fn the_reader_knows_every_key_of_the_reference() {
        for Section { heading, keys, .. } in sections() {
            let heading = heading.replace("KIND", "http").replace("NAME", "name");
            for Key { name, .. } in keys {
                // A value of no key's type: the problem must be about the value, not about the key.
                let text = format!("{heading}\n{name} = 1979-05-27\n");
                let problems = Config::written(("p.toml", &text), &Places::default(), &|_| None).err();
                let unknown = problems.into_iter().flatten().find(|problem| problem.message.contains("unknown key"));
                assert_eq!(unknown, None, "{heading} {name}");
            }
        }
    }
}
