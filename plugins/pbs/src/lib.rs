//! Kind `pbs`: a Proxmox Backup Server.
//!
//! | request | how often |
//! |---|---|
//! | `/version`, `/nodes/localhost/status`, `/admin/datastore`, `/status/datastore-usage` | each poll |
//! | `/admin/datastore/S/status` | each poll, if the list of all fails because one of them is broken, and for ten minutes after it hung |
//! | `/admin/gc`, `/admin/verify`, `/admin/prune`, `/admin/sync` | each minute |
//! | `/admin/datastore/S/namespace`, and `/admin/datastore/S/groups` of each namespace | every five minutes |
//! | `/nodes/localhost/tasks`, those that failed in the last day | every five minutes |
//! | `/admin/datastore/S/snapshots` of each namespace | each hour, a few in a poll if the lists are long |
//! | `/nodes/localhost/subscription`, optional | each hour |
//! | `/access/permissions` | each hour, for hidden sync jobs; and if the list of datastores is empty, which may be a missing privilege |
//!
//! Dependencies: `api`, `node`, `datastore/S`, `gc/S`, `verify/ID`, `sync/ID`, `prune/ID`, `groups/S` (whether the
//! groups of a datastore could be listed), `group/S/TYPE/ID` or `group/S/NAMESPACE/TYPE/ID` for each backup group,
//! `verification/S`, `tasks`, `certificate`, `subscription`.
//!
//! Invariant: a broken datastore never hides the others. Each is requested and evaluated separately.

#![deny(unsafe_code)]

mod backoff;
mod context;
mod datastores;
mod groups;
mod jobs;
mod memory;
mod settings;
mod setup;
mod tasks;
mod verification;

use context::{Memory, Permissions, PollContext};
use polliwog_sdk::lenient::{Field, Number};
use polliwog_sdk::prelude::*;
use polliwog_sdk::{Guide, SecretSpec, Setup, Status};
use proxmox::{Answer, Api, Error, Fact, Host, Part, Product, Space, connect, evaluated, hourly, run, subscription};
use serde::Deserialize;
use settings::Settings;
use std::time::Duration;

/// The plugin.
pub struct Pbs;

impl Poller for Pbs {
    type Settings = Settings;

    const INFO: Info = Info {
        kind: "pbs",
        title: "Proxmox Backup Server",
        version: env!("CARGO_PKG_VERSION"),
        summary: "A Proxmox Backup Server: datastores, jobs, and the newest backup of everything",
        default_interval: Duration::from_secs(10),
        default_timeout: Duration::from_secs(30),
        ..Info::SERVICE
    };

    fn secrets() -> Vec<SecretSpec> {
        let token = "An API token with the roles Audit on / and RemoteAudit on /remote, whole: USER@REALM!NAME:SECRET";
        let pattern = "[^@!=: \u{feff}]+@[A-Za-z][A-Za-z0-9._-]+![A-Za-z0-9_][A-Za-z0-9._-]*:[A-Za-z0-9-]{8,}";
        let hint = "write the whole token, as in monitor@pbs!polliwog:12345678-1234-1234-1234-123456789abc: user, realm, \
                    name of the token, and its secret after a colon (not =, as for Proxmox VE)";
        vec![SecretSpec::required("token", token).with_pattern(pattern, hint).with_example(setup::TOKEN_EXAMPLE)]
    }

    fn check(settings: &Settings) -> Vec<SettingsProblem> {
        settings.problems()
    }

    fn poll(target: &Endpoint, settings: Settings) -> Result<Report, CallError> {
        let authorize = |api: Api, _: &mut Memory| {
            Ok(api.with_header("authorization", format!("PBSAPIToken={}", http::secret("token"))))
        };
        let connect = |_: &Settings, memory: &mut Memory| {
            let first = first_paths(memory);
            connect(target, Product::Backup, memory, &first, authorize)
        };
        run(target, settings, connect, poll)
    }
}

impl Setup for Pbs {
    fn guide() -> Guide {
        setup::guide()
    }
}

polliwog_sdk::register!(Pbs with setup);

const NODE: Part<'_> = ("node", &[]);
const DATASTORES: Part<'_> = ("datastores", &["datastore/", "groups/", "group/", "verification/"]);

/// The paths that are requested at every poll, in addition to `/version`.
fn first_paths(memory: &Memory) -> Vec<&'static str> {
    let paths = ["/nodes/localhost/status", "/admin/datastore"];
    paths.into_iter().chain(datastores::usage_of_all(memory)).collect()
}

/// `answers` are the answers to [`first_paths`].
fn poll(context: &mut PollContext, answers: Vec<Answer>) {
    let mut answers = answers.into_iter();
    let mut next = || answers.next();
    let (Some(status), Some(list), usage) = (next(), next(), next()) else { return };
    node(context, status);
    let list = list.list(&mut context.diagnostics);
    let stores = context.part(DATASTORES, list).map(|list| {
        if list.is_empty() {
            rights(context);
        }
        let stores = datastores::report(context, list, usage);
        groups::report(context, &stores);
        stores
    });
    jobs::report(context, stores.as_deref().unwrap_or_default());
    tasks::report(context);
    certificate(context);
    if context.settings.subscription {
        let subscription = Fact::new("subscription", "/subscription", subscribed);
        hourly(context, &["localhost".to_owned()], false, &[subscription]);
    } else {
        context.report.remove("subscription");
    }
    if let Some(stores) = stores {
        verification::report(context, &stores);
    }
}

/// Evaluates the certificate that the server presents. Listing its files needs Sys.Modify (proxmox-backup:
/// api2/node/certificates.rs), which an auditor does not have.
fn certificate(context: &mut PollContext) {
    const NAME: &str = "certificate";
    const RENEW: &str = "renew it where it was bought or with ACME; the server's own certificate is created again \
                         with \"proxmox-backup-manager cert update --force true\" and \"systemctl reload \
                         proxmox-backup-proxy\" on the server; then update the fingerprint wherever it is pinned, such \
                         as in storages of Proxmox VE";
    let limits = context.settings.certificates;
    let dependency = match context.api.certificate_ends() {
        Some(end) => {
            let shown = (end, "the server's certificate".to_owned());
            proxmox::certificate(context, (NAME.to_owned(), "pbs-certificate", |_| RENEW), limits, vec![shown])
        }
        None => Dependency::skipped(NAME)
            .with_kind("pbs-certificate")
            .with_description("The connection is not encrypted, so there is no certificate"),
    };
    context.add(dependency);
}

fn subscribed(context: &mut PollContext, name: String, answer: Answer) -> Result<Dependency, Error> {
    subscription(context, name, "pbs-subscription", answer)
}

/// `/nodes/localhost/status`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    cpu: Field<Number>,
    memory: Space,
    root: Space,
}

fn node(context: &mut PollContext, answer: Answer) {
    let Some(node) = context.part(NODE, answer.read::<NodeStatus>()) else { return };
    let diagnostics = &mut context.diagnostics;
    let host = Host {
        cpu: Host::cpu(diagnostics.number(&node.cpu, || "cpu of the server".to_owned())),
        memory: node.memory.percent("memory of the server", diagnostics),
        root: node.root.percent("root file system of the server", diagnostics),
    };
    let verdict = if host == Host::default() {
        (Status::Unknown, Some("the server does not report its memory, root file system and CPU".to_owned()))
    } else {
        host.evaluate(&context.settings.usage, "node", &mut context.hysteresis)
    };
    context.add(Dependency { description: host.description(), ..evaluated("node", "pbs-node", verdict) });
}

/// Explains an empty list of datastores. Backup Server hides what a token may not see, so there may be datastores.
fn rights(context: &mut PollContext) {
    let [answer] = context.api.ask(["/access/permissions"]);
    let why = match answer.read::<Permissions>() {
        Ok(permissions) if permissions.values().any(|held| held.contains_key("Datastore.Audit")) => {
            "there is no datastore yet".to_owned()
        }
        Ok(_) => {
            for members in DATASTORES.1 {
                context.mark_unknown(*members, "the token lacks Datastore.Audit, so it is hidden: see \"api\"");
            }
            format!(
                "the token lacks Datastore.Audit, so datastores are hidden from it: {}",
                context.api.product().grant_rights()
            )
        }
        Err(error) => {
            format!("no datastore is visible, and it is not known whether there is one: {}", error.message)
        }
    };
    context.warn_of_api(&why);
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing::{Recording, TIME, poll, target};

    /// Only evaluates the certificate.
    struct Shown;

    impl Poller for Shown {
        type Settings = Settings;

        const INFO: Info = Pbs::INFO;

        fn poll(target: &Endpoint, settings: Settings) -> Result<Report, CallError> {
            let connect =
                |_: &Settings, memory: &mut Memory| connect(target, Product::Backup, memory, &[], |api, _| Ok(api));
            run(target, settings, connect, |context, _| super::certificate(context))
        }
    }

    /// Returns the dependency for a certificate that expires this many days after the poll.
    fn certificate(days: i64) -> Dependency {
        let now = TIME;
        let recording = serde_json::json!([{
            "request": { "method": "GET", "url": "/api2/json/version" },
            "response": {
                "status": 200, "body": r#"{"data":{"version":"4.2","release":"0"}}"#,
            },
            "tls": {
                "serverName": "pbs",
                "chain": [{
                    "fingerprint": "ab".repeat(32), "subject": "CN=pbs", "issuer": "CN=pbs", "notBefore": 0,
                    "notAfter": now + days * 24 * 3600 * 1000,
                }],
            },
        }]);
        let report = poll::<Shown>(Recording::parse(&recording.to_string()), target("{}")).expect("it answers");
        report.dependencies.into_iter().find(|found| found.name == "certificate").expect("it is reported")
    }

    #[test]
    fn the_certificate_of_the_connection_is_evaluated() {
        for (days, status, says) in [
            (300, Status::Ok, None),
            (5, Status::Warning, Some("the server's certificate expires at 2026-07-25")),
            (-1, Status::Critical, Some("the server's certificate has expired")),
        ] {
            let found = certificate(days);
            let message = found.error_message.unwrap_or_default();
            assert!(found.status == status && message.starts_with(says.unwrap_or_default()), "{days}: {message}");
        }
        assert!(
            certificate(-1)
                .error_message
                .is_some_and(|message| message.contains("systemctl reload proxmox-backup-proxy"))
        );
    }
}
