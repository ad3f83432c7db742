//! Tests a target step by step: how its origins are reached, and one poll through the same path as every poll.
//!
//! The poll stores nothing, and the schedule does not know of it.

use crate::clock::Clock;
use crate::target::RuntimeTarget;
use catalog::Served;
use egress::{Egress, Exchange, Fingerprint, ProbeStep, Recorder, Tape};
use model::{Dependency, Outcome, Status, TestStep, TestedCertificate, Timestamp};
use sandbox::Sandbox;
use std::sync::Arc;
use std::time::Duration;

/// The longest time to reach one origin.
const REACHED: Duration = Duration::from_secs(10);
/// The maximum number of listed requests.
const REQUESTS: usize = 50;
/// The maximum number of listed dependencies.
const DEPENDENCIES: usize = 100;

/// The means of a test.
pub struct Examiner<'a> {
    /// The process's clock.
    pub clock: Clock,
    /// Runs the plugin.
    pub sandbox: &'a Sandbox,
    /// Reaches the origins.
    pub egress: &'a Egress,
}

impl Examiner<'_> {
    /// Tests a target with the plugin that serves its kind.
    pub async fn examine(&self, target: &RuntimeTarget, served: &Served) -> Vec<TestStep> {
        let mut steps = Vec::new();
        for (index, origin) in target.grant.origins.iter().enumerate() {
            let host = target.grant.host.as_deref().filter(|_| index == 0);
            let probed = self.egress.probe(origin, (host, &target.grant.reach), REACHED.min(target.timeout)).await;
            steps.extend(probed.into_iter().map(of_probe));
        }
        let recorder = Arc::new(Recorder::default());
        let job = target.job(&served.plugin, self.clock.wall(), Tape::Record(recorder.clone()));
        let done = self.sandbox.poll_apart(job).await;
        let exchanges = recorder.exchanges();
        steps.extend(exchanges.iter().take(REQUESTS).map(of_exchange));
        if exchanges.len() > REQUESTS {
            steps.push(passed("request", "others", None, format!("{} more requests", exchanges.len() - REQUESTS)));
        }
        let wall = Some(done.usage.wall);
        match target.judged(done.outcome) {
            Outcome::Success(report) => {
                let count = report.dependencies.len();
                let plural = if count == 1 { "dependency" } else { "dependencies" };
                steps.push(passed(
                    "report",
                    served.plugin.descriptor().kind.as_str(),
                    wall,
                    format!("{count} {plural}"),
                ));
                steps.extend(report.warnings.into_iter().map(|warning| passed("report", "warning", None, warning)));
                steps.extend(report.dependencies.iter().take(DEPENDENCIES).map(of_dependency));
            }
            Outcome::Failure(failure) => steps.push(TestStep {
                code: Some(failure.code),
                ..passed("report", served.plugin.descriptor().kind.as_str(), wall, failure.message)
            }),
            Outcome::Skipped => steps.push(TestStep {
                code: Some("host_busy".to_owned()),
                ..passed("report", "this host", wall, "no slot for a poll became free in time: try again".to_owned())
            }),
        }
        steps
    }
}

fn passed(name: &'static str, subject: &str, took: Option<Duration>, text: String) -> TestStep {
    TestStep { name, subject: subject.to_owned(), took, code: None, text, certificate: None }
}

fn of_probe(step: ProbeStep) -> TestStep {
    let certificate = step.certificate.map(|certificate| TestedCertificate {
        fingerprint: Fingerprint::parse(&certificate.fingerprint).map_or(certificate.fingerprint, |f| f.to_string()),
        subject: certificate.subject,
        issuer: certificate.issuer,
        not_after: Timestamp::from_millis(certificate.not_after),
    });
    let (code, text) = match step.result {
        Ok(text) => (None, text),
        Err(error) => (Some(error.code().to_owned()), error.to_string()),
    };
    // The verdict on an address takes no time.
    let took = (step.name != "address").then_some(step.took);
    TestStep { name: step.name, subject: step.subject, took, code, text, certificate }
}

fn of_exchange(exchange: &Exchange) -> TestStep {
    let request = &exchange.request;
    // A request whose body has a secret asks for a session.
    let logs_in = request.body.as_ref().is_some_and(|body| body.contains("${secret."));
    let name = if logs_in { "log-in" } else { "request" };
    let subject = format!("{} {}", request.method, request.url);
    match (&exchange.response, &exchange.error) {
        (Some(response), _) => {
            let took = Duration::try_from_secs_f64(response.total_ms / 1000.0).ok();
            let length = response.body.as_ref().map(String::len);
            let length = length.map(|length| format!(", {length} bytes")).unwrap_or_default();
            let text = format!("{} {}{length}", response.status, response.reason);
            let code = (response.status >= 400).then(|| format!("http_{}", response.status));
            TestStep { code, ..passed(name, &subject, took, text) }
        }
        (None, Some(error)) => {
            TestStep { code: Some(error.code.clone()), ..passed(name, &subject, None, error.message.clone()) }
        }
        (None, None) => passed(name, &subject, None, "no answer".to_owned()),
    }
}

fn of_dependency(dependency: &Dependency) -> TestStep {
    let status = dependency.status;
    let why = dependency.error_message.as_deref().or(dependency.description.as_deref()).unwrap_or_default();
    let text = if why.is_empty() { status.as_str().to_owned() } else { format!("{}: {why}", status.as_str()) };
    let took = dependency.latency_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
    let code = (status != Status::Ok).then(|| status.as_str().to_owned());
    TestStep { code, ..passed("dependency", dependency.title.as_deref().unwrap_or(&dependency.name), took, text) }
}
