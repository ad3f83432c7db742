//! Kind `pmg`: a Proxmox Mail Gateway, or a cluster of them.
//!
//! | request | how often |
//! |---|---|
//! | `/access/ticket` | each hour |
//! | `/version`, `/config/cluster/status` | each poll |
//! | `/nodes/N/postfix/queue/Q` of each node, for four queues one after the other: for each, the node lists all its mail | each minute |
//! | `/nodes/N/services` of each node | each minute |
//! | `/statistics/mail`, `/quarantine/spamstatus`, `/quarantine/virusstatus` | each poll, for samples |
//! | `/nodes/N/clamav/database`, `/nodes/N/spamassassin/rules`, `/nodes/N/certificates/info`, and optionally `/nodes/N/subscription` | each hour |
//! | `/nodes`, `/nodes/N/status` of each node | if the cluster's list does not come because a node in it is down; then for five minutes |
//!
//! Dependencies: `api`, `cluster`, `node/N`, `queue/Q` and `service/S` (the worst node counts), `clamav`,
//! `spamassassin`, `certificate/N`, `subscription/N`.

#![deny(unsafe_code)]

mod context;
mod filters;
mod login;
mod memory;
mod nodes;
mod queues;
mod services;
mod settings;
mod setup;
mod statistics;

use context::{Memory, PollContext};
use polliwog_sdk::prelude::*;
use polliwog_sdk::{Guide, Member, SecretSpec, Setup};
use proxmox::{Answer, Error, Fact, certificates, hourly, run, subscription};
use settings::Settings;
use std::time::Duration;

/// The plugin.
pub struct Pmg;

impl Poller for Pmg {
    type Settings = Settings;

    const INFO: Info = Info {
        kind: "pmg",
        title: "Proxmox Mail Gateway",
        version: env!("CARGO_PKG_VERSION"),
        summary: "A Proxmox Mail Gateway: nodes, cluster, mail queues, services",
        default_interval: Duration::from_secs(10),
        default_timeout: Duration::from_secs(30),
        ..Info::SERVICE
    };

    fn secrets() -> Vec<SecretSpec> {
        let password = "The password of the account that the setting \"username\" names";
        vec![SecretSpec::required("password", password).with_example(setup::PASSWORD_EXAMPLE)]
    }

    fn check(settings: &Settings) -> Vec<SettingsProblem> {
        settings.problems()
    }

    fn poll(target: &Endpoint, settings: Settings) -> Result<Report, CallError> {
        if let Some(problem) = settings.problems().into_iter().next() {
            return Err(problem.into());
        }
        let log_in = |settings: &Settings, memory: &mut Memory| login::log_in(target, &settings.username, memory);
        run(target, settings, log_in, poll)
    }
}

impl Setup for Pmg {
    fn guide() -> Guide {
        setup::guide()
    }

    fn members(target: &Endpoint, settings: Settings) -> Result<Vec<Member>, CallError> {
        Ok(setup::members(target, &settings.username)?)
    }
}

polliwog_sdk::register!(Pmg with setup);

/// `answers` are the answers to [`nodes::first_path`].
fn poll(context: &mut PollContext, answers: Vec<Answer>) {
    let nodes = nodes::report(context, answers);
    queues::report(context, &nodes.answering);
    services::report(context, &nodes);
    filters::report(context, &nodes.answering);
    statistics::report(context);
    let certificate = Fact::new("certificate", "/certificates/info", certificate);
    let subscription = Fact::new("subscription", "/subscription", subscribed);
    let facts = match context.settings.subscription {
        true => vec![certificate, subscription],
        false => {
            context.report.remove("subscription/");
            vec![certificate]
        }
    };
    hourly(context, &nodes.answering, true, &facts);
}

fn certificate(context: &mut PollContext, name: String, answer: Answer) -> Result<Dependency, Error> {
    let renew = |file: &str| match file {
        "pmg-tls.pem" => {
            "renew it where it was bought or with ACME; the gateway's own certificate is created again with \
             \"pmgconfig tlscert --force 1\" and \"systemctl reload postfix\" on the node"
        }
        _ => {
            "renew it where it was bought or with ACME; the gateway's own certificate is created again with \
             \"pmgconfig apicert --force 1\" and \"systemctl restart pmgproxy\" on the node, and in a cluster then \
             \"pmgcm update-fingerprints\" on the master; update the fingerprint wherever it is pinned"
        }
    };
    certificates(context, (name, "pmg-certificate", renew), context.settings.certificates, answer)
}

fn subscribed(context: &mut PollContext, name: String, answer: Answer) -> Result<Dependency, Error> {
    subscription(context, name, "pmg-subscription", answer)
}
