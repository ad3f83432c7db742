//! The status of a target: what the API, a page, a metric, a command and a notification say of the same failure.

use crate::command_line::tls_server_with;
use crate::notifying::webhook;
use crate::receiver::Receiver;
use crate::support::{Answer, Host, Server, TOKEN, always, folder, get, ok, until};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A target that is not well, and what is expected of every surface.
struct Case {
    id: &'static str,
    kind: &'static str,
    settings: String,
    answer: Answer,
    /// The status of the target.
    status: &'static str,
    /// The part of the report that is notified, with its status; no name for the target itself.
    alert: (Option<&'static str>, &'static str),
    /// Words of the reason that the page and the notification give.
    reason: &'static str,
}

/// Reads the members below a key, as in the format of Spring Boot.
fn below(root: &str) -> String {
    format!("root = {root}\nfields = {{ name = \"$key\", healthy = \"status\" }}")
}

/// Reads the items of a list.
const ITEMS: &str = "fields = { name = \"n\", healthy = \"v\" }";

fn answered(status: &str, body: &str) -> Answer {
    always(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

/// A case whose server answers 200 with a body that `kind` reads with these settings.
fn case(id: &'static str, (kind, settings): (&'static str, &str), body: &str) -> Case {
    Case {
        id,
        kind,
        settings: settings.to_owned(),
        answer: always(ok(body)),
        status: "critical",
        alert: (Some("db"), "critical"),
        reason: "",
    }
}

fn repeated_and_unnamed() -> Vec<Case> {
    let (parts, deps) = (below("\"components\""), ("proactive-deps", ""));
    let down = |id, body, name| Case { alert: (Some(name), "critical"), ..case(id, deps, body) };
    vec![
        case("key-twice", ("mapping", &parts), r#"{"components":{"db":{"status":"DOWN"},"db":{"status":"UP"}}}"#),
        down("last-is-well", r#"[{"name":"db","healthy":false},{"name":"db","healthy":true}]"#, "db"),
        down("trimmed", r#"[{"name":"db","healthy":true},{"name":"db ","healthy":false}]"#, "db"),
        down("invisible", "[{\"name\":\"db\u{200b}\",\"healthy\":false},{\"name\":\"db\",\"healthy\":true}]", "db"),
        down("empty-name", r#"[{"name":"a","healthy":true},{"name":"","healthy":false}]"#, "item 2"),
        down("broken-line", r#"[{"name":"a\nb","healthy":false}]"#, "a b"),
        Case { alert: (Some("7"), "critical"), ..case("number", ("mapping", ITEMS), r#"[{"n":7,"v":"DOWN"}]"#) },
        Case { alert: (Some("item 1"), "critical"), ..case("no-name", ("mapping", ITEMS), r#"[{"v":"DOWN"}]"#) },
    ]
}

fn refused_and_vanished() -> Vec<Case> {
    let parts = below("\"components\"");
    let with_root = format!("overall = \"status\"\n{parts}");
    let (mapping, deps) = (("mapping", parts.as_str()), ("proactive-deps", ""));
    let up = r#"{"components":{"db":{"status":"UP"}}}"#;
    vec![
        Case {
            answer: answered("503 Service Unavailable", up),
            alert: (Some("http"), "critical"),
            reason: "503 Service Unavailable",
            ..case("well-but-503", mapping, "")
        },
        Case {
            answer: answered("503 Service Unavailable", r#"{"components":{"db":{"status":"DOWN"}}}"#),
            reason: "DOWN",
            ..case("down-at-503", mapping, "")
        },
        Case {
            answer: answered("502 Bad Gateway", "the proxy has no server"),
            status: "unreachable",
            alert: (None, "critical"),
            reason: "the proxy has no server",
            ..case("proxy", mapping, "")
        },
        Case {
            alert: (Some("status"), "critical"),
            reason: "OUT_OF_SERVICE",
            ..case(
                "root-and-parts",
                ("mapping", &with_root),
                r#"{"status":"OUT_OF_SERVICE","components":{"db":{"status":"UP"}}}"#,
            )
        },
        Case {
            answer: Arc::new(|number| match number {
                0..4 => ok(r#"[{"name":"a","healthy":true},{"name":"db","healthy":false}]"#),
                _ => ok(r#"[{"name":"a","healthy":true}]"#),
            }),
            status: "warning",
            reason: "no longer reported",
            ..case("vanished", deps, "")
        },
        Case {
            status: "unknown",
            alert: (Some("db"), "unknown"),
            reason: "CRASHED",
            ..case("odd-word", mapping, r#"{"components":{"db":{"status":"CRASHED"}}}"#)
        },
        Case {
            status: "unknown",
            alert: (None, "unknown"),
            reason: "its report has no dependency",
            ..case("empty", deps, "[]")
        },
        Case {
            status: "unknown",
            alert: (None, "unknown"),
            reason: "skips every check",
            ..case("all-skipped", deps, r#"[{"name":"db","health":{"state":"OK","skipped":true}}]"#)
        },
    ]
}

fn odd_formats() -> Vec<Case> {
    let bounds = "fields.name = \"n\"\nfields.severity.warning = { field = \"v\", atLeast = 80 }\n\
                  fields.severity.critical = { field = \"v\", atLeast = 90 }";
    let (quoted, arrays) = (below("'\"health.checks\"'"), below("\"checks\""));
    vec![
        case("dots", ("mapping", &quoted), r#"{"health.checks":{"db":{"status":"DOWN"}}}"#),
        Case {
            alert: (Some("cassandra/n2"), "critical"),
            ..case(
                "arrays",
                ("mapping", &arrays),
                r#"{"checks":{"cassandra":[{"componentId":"n1","status":"pass"},{"componentId":"n2","status":"fail"}]}}"#,
            )
        },
        Case { reason: "95", ..case("bound", ("mapping", bounds), r#"[{"n":"db","v":95}]"#) },
        case("numbers", ("mapping", ITEMS), r#"[{"n":"db","v":"DOWN","rate":1e400,"more":NaN}]"#),
        Case {
            answer: answered("503 Service Unavailable", "maintenance"),
            alert: (Some("response"), "critical"),
            reason: "answered 503",
            ..case("page-at-503", ("http", "body_contains = [\"welcome\"]"), "")
        },
    ]
}

/// A server whose own certificate is valid for long, and whose intermediate one for three days. Returns the port, and
/// the certificate that has to be trusted.
#[allow(clippy::disallowed_methods, reason = "the program under test judges certificates by the real date")]
fn ending_intermediate() -> (u16, String) {
    let key = || KeyPair::generate().unwrap();
    let mut of_root = CertificateParams::new(Vec::new()).unwrap();
    of_root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let mut of_intermediate = of_root.clone();
    of_intermediate.not_after = (SystemTime::now() + Duration::from_hours(72)).into();
    of_intermediate.distinguished_name.push(DnType::CommonName, "an intermediate authority");
    let (root_key, own) = (key(), key());
    let trusted = of_root.self_signed(&root_key).unwrap().pem();
    let root = Issuer::new(of_root, root_key);
    let intermediate = Issuer::new(of_intermediate.clone(), key());
    let between = of_intermediate.signed_by(intermediate.key(), &root).unwrap();
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&own, &intermediate).unwrap();
    (tls_server_with(vec![leaf.der().clone(), between.der().clone()], &own), trusted)
}

/// Returns the text between the first `start` and the next `end`, or an empty text.
fn part<'a>(page: &'a str, start: &str, end: &str) -> &'a str {
    page.split_once(start).and_then(|(_, rest)| rest.split_once(end)).map_or("", |(part, _)| part)
}

/// The statuses of all targets on each surface.
struct Surfaces {
    api: Value,
    overview: String,
    metrics: String,
    command: String,
    told: Vec<Value>,
}

impl Surfaces {
    fn read(host: &Host, folder: &Path, receiver: &Receiver) -> Self {
        let (_, overview) = get(&host.api, "/", Some(TOKEN));
        let (_, metrics) = get(&host.metrics, "/metrics", None);
        let (_, command, _) = host.command(folder, &["targets"]);
        Self { api: host.get("/api/v1/targets"), overview, metrics, command, told: receiver.alerts() }
    }

    /// Returns what is not as expected of a target.
    fn disagreements(&self, case: &Case) -> Vec<String> {
        let &Case { id, status, reason, alert, .. } = case;
        let targets = self.api["targets"].as_array().unwrap();
        let of_api = targets.iter().find(|target| target["id"] == id).map_or(&Value::Null, |target| &target["status"]);
        let row = part(&self.overview, &format!("id=\"t-{id}\""), "</article>");
        let mut listed = part(&self.overview, "id=\"wrong\"", "</section>").split("<tr>");
        let is_listed = |row: &str| row.contains(&format!("/targets/{id}\"")) && row.contains(reason);
        let mut metrics = self.metrics.lines().filter(|line| line.starts_with("polliwog_target_status{"));
        let metric = metrics.find(|line| line.contains(&format!("instance=\"{id}\""))).unwrap_or_default();
        let number = ["ok", "warning", "critical", "unknown", "unreachable"].iter().position(|found| *found == status);
        let mut lines = self.command.lines();
        let line = lines.find(|line| line.split_whitespace().next() == Some(id)).unwrap_or_default();
        let told: Vec<_> = self.told.iter().filter(|alert| alert["targetId"] == id).collect();
        let is_told = |told: &&Value| {
            // The alert about what is no longer reported was sent before, with the reason of then.
            let has_reason = status == "warning" || told["summary"].as_str().unwrap().contains(reason);
            told["event"] == "firing"
                && told["dependency"].as_str() == alert.0
                && told["status"] == alert.1
                && has_reason
        };
        let surfaces = [
            ("API", of_api.to_string(), *of_api == status),
            ("row of the page", row.to_owned(), row.contains(&format!("data-status=\"{status}\""))),
            ("what is wrong", String::new(), listed.any(is_listed)),
            ("metric", metric.to_owned(), metric.ends_with(&format!(" {}.0", number.unwrap()))),
            ("command", line.to_owned(), line.split_whitespace().nth(2) == Some(status)),
            ("notification", format!("{told:?}"), told.len() == 1 && told.iter().all(is_told)),
        ];
        let wrong = surfaces.into_iter().filter(|(_, _, is_right)| !is_right);
        wrong.map(|(surface, found, _)| format!("{id}: {surface}: {found}")).collect()
    }
}

#[test]
fn all_surfaces_say_the_same_of_a_target_that_is_not_well() {
    let (_keep, folder) = folder();
    let cases: Vec<Case> =
        [repeated_and_unnamed(), refused_and_vanished(), odd_formats()].into_iter().flatten().collect();
    let path = |id: &str| -> &'static str { format!("/{id}").leak() };
    let server = Server::start(cases.iter().map(|case| (path(case.id), case.answer.clone())).collect());
    let receiver = Receiver::patient();
    let of_case = |case: &Case| {
        let url = server.url(path(case.id));
        format!(
            "[[target]]\nid = \"{}\"\nkind = \"{}\"\nurl = \"{url}\"\n[target.settings]\n{}\n",
            case.id, case.kind, case.settings
        )
    };
    let certificate = Case {
        alert: (Some("certificate"), "critical"),
        reason: "an intermediate authority",
        ..case("ending-intermediate", ("http", ""), "")
    };
    let (port, trusted) = ending_intermediate();
    std::fs::write(folder.join("root.pem"), trusted).unwrap();
    let of_certificate = format!(
        "[[target]]\nid = \"{}\"\nkind = \"http\"\nurl = \"https://localhost:{port}/\"\n\
         tls = {{ ca_file = \"root.pem\" }}\n",
        certificate.id
    );
    let targets: String = cases.iter().map(of_case).collect();
    // More groups than ten at once would be a storm, which is notified after a minute.
    let config = format!(
        "[scheduler]\nmin_interval = \"200ms\"\nbase_interval = \"200ms\"\n[alerts]\nstartup_grace = \"0s\"\n\
         unknown_after = \"1s\"\n{targets}{of_certificate}{}[[route]]\nchannels = [\"ops\"]\ngroup_by = [\"kind\"]\n\
         group_wait = \"0s\"\ngroup_interval = \"0s\"\n",
        webhook(&receiver.url("/"))
    );
    let host = Host::start(&folder, &config);
    let cases: Vec<Case> = cases.into_iter().chain([certificate]).collect();
    let disagreements = || {
        let surfaces = Surfaces::read(&host, &folder, &receiver);
        cases.iter().flat_map(|case| surfaces.disagreements(case)).collect::<Vec<_>>()
    };
    until("all surfaces agree", disagreements, Vec::is_empty);
    // Nothing is over meanwhile, and nothing is sent twice.
    let polls = server.count("/vanished");
    until("more polls", || server.count("/vanished"), |count| *count > polls + 10);
    assert_eq!(disagreements(), Vec::<String>::new());
    assert_eq!(host.terminate(), 0);
}
