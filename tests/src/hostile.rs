//! The hostile suite: plugins with one misbehaviour each, next to an honest plugin.
//!
//! Each guest is loaded, its settings are checked, and it is polled, on the same lane as an honest target that is
//! polled every few milliseconds. [`expected`] has the expected result of each guest. A guest without an expected
//! result does not compile.

pub mod expected;

use crate::guests::{self, each_guest};
use crate::wat;
use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use egress::{Egress, Grant, Origin, OriginGrant, Secrets, Tape, Tls};
use expected::Expect;
use model::{
    AlertEvent, AlertProgress, Before, Notification, NotifiedAlert, Outcome, Status, Subject, TargetId, Timestamp,
};
use sandbox::{Attempt, Collected, Compiler, Done, Job, Limits, Plugin, Role, Sandbox, SettingsVersion, Target};
use secrecy::SecretString;
use std::convert::identity;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::Instant;
use url::Url;

/// A secret that must not be visible in any result.
pub const SECRET: &str = "hunter2/hunter2\"hunter2";
/// The CPU limit of a poll. It is lower than the default, so that a hundred endless loops end soon.
pub const CPU: Duration = Duration::from_millis(400);
/// The timeout of polls that are expected to time out.
pub const TIMEOUT: Duration = Duration::from_millis(2000);
/// The timeout of all other polls, so that the speed of the machine does not affect the result.
const AMPLE: Duration = Duration::from_secs(60);
/// The interval of the honest target's polls.
pub const HONEST: Duration = Duration::from_millis(5);

/// A guest and its expected result.
pub struct Case {
    /// The name of the guest's file.
    pub name: &'static str,
    /// The bytes of the component.
    pub component: Vec<u8>,
    /// The expected result.
    pub expect: Expect,
}

macro_rules! cases {
    ($($guest:ident $name:literal $kind:ident($source:expr);)*) => {
        /// Returns every guest with its expected result.
        pub fn cases() -> Vec<Case> {
            vec![$(Case { name: $name, component: $kind($name, $source), expect: expected::$guest() }),*]
        }
    };
}
each_guest!(cases);

fn compiled(_: &str, component: &[u8]) -> Vec<u8> {
    component.to_vec()
}

fn written(name: &str, text: &str) -> Vec<u8> {
    wat::plugin(name, "1.0.0", text)
}

/// The environment of the guests: a sandbox with one lane, a server, and an honest target.
pub struct World {
    sandbox: Arc<Sandbox>,
    url: String,
    honest: Plugin,
    /// The requests that the server has received: method, URL and headers.
    seen: Arc<Mutex<Vec<String>>>,
}

/// The result of a guest.
#[derive(Debug)]
pub struct Ended {
    /// The function that ended the guest and the reason, as text.
    pub verdict: String,
    /// The duration of the contained call.
    pub took: Duration,
    /// The delays of the honest target's polls during the run.
    pub lateness: Vec<Duration>,
}

impl World {
    /// Creates the environment. `compile` is a program that compiles plugins.
    ///
    /// # Panics
    /// Panics if the environment cannot be created, because this is for tests.
    pub async fn new(compile: &str) -> Self {
        let egress = Egress::new(egress::Config::default());
        let compiler = Compiler::temporary((compile, &[]), [7; 32], 2).expect("the temporary folder can be created");
        let slots = sandbox::Config { instance_slots: 16, lanes: NonZeroUsize::MIN, ..sandbox::Config::default() };
        let sandbox = Arc::new(Sandbox::new(slots, compiler, &egress).expect("the sandbox can be created"));
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let url = serve(seen.clone()).await;
        let honest = crate::built_in(&sandbox, "http").await;
        Self { sandbox, url, honest, seen }
    }

    /// Loads a guest, checks its settings and polls it once. Fails with a description of the first unexpected result.
    pub async fn run(&self, case: &Case) -> Result<Ended, String> {
        let watch = Watch::start(self);
        let ended = self.contain(case).await;
        let (lateness, failed) = watch.end().await;
        let (verdict, took) = ended.map_err(|why| format!("{}: {why}", case.name))?;
        if let Some(failed) = failed {
            return Err(format!("{}: a poll of the honest target failed: {failed}", case.name));
        }
        let requests = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        for request in &requests {
            if request.contains("x-evil") || (request.contains(SECRET) && !request.contains("/echo")) {
                return Err(format!("{}: the server received {request}", case.name));
            }
        }
        Ok(Ended { verdict, took, lateness })
    }

    async fn contain(&self, case: &Case) -> Result<(String, Duration), String> {
        let began = Instant::now();
        let plugin = match self.sandbox.load(&case.component).await {
            Ok(plugin) => plugin,
            Err(refusal) => {
                let took = began.elapsed();
                return case.expect.refused(refusal.code, &refusal.message).map(|verdict| (verdict, took));
            }
        };
        let began = Instant::now();
        let (settings, version) = (serde_json::json!({}), SettingsVersion::Written(1));
        let problems = match self.sandbox.accept_settings(&plugin, &settings, version).await {
            Ok(Ok(_)) => Vec::new(),
            Ok(Err(problems)) => problems.into_iter().map(|problem| problem.message).collect(),
            Err(why) => vec![why],
        };
        let took = began.elapsed();
        if let Some(verdict) = case.expect.checked(&problems)? {
            return Ok((verdict, took));
        }
        let began = Instant::now();
        let timeout = if case.expect.is_timeout() { TIMEOUT } else { AMPLE };
        let job = self.job(&plugin, "guest", Limits { cpu: CPU, ..Limits::default() }, timeout);
        let done = match plugin.descriptor().role {
            Role::Poller => self.poll_on_lane(job).await,
            Role::Notifier { .. } => self.send_on_lane(job).await,
        };
        let took = began.elapsed();
        if format!("{done:?}").contains(SECRET) {
            return Err(format!("the secret is visible in the result: {done:?}"));
        }
        case.expect.polled(&done).map(|verdict| (verdict, took))
    }

    async fn poll_on_lane(&self, job: Job) -> Done {
        let (sandbox, (sender, receiver)) = (self.sandbox.clone(), oneshot::channel());
        let target = job.target.id.clone();
        let poll = async move { drop(sender.send(sandbox.poll(job).await)) };
        self.sandbox.lanes().spawn_all([(target, poll)], identity);
        receiver.await.expect("a poll ends")
    }

    async fn send_on_lane(&self, mut job: Job) -> Done {
        // As for a channel.
        let Job { grant, .. } = &job;
        let grant = Grant { expands_path: true, ..self.grant(grant.base.clone(), grant.origins.clone()) };
        job.grant = Arc::new(grant);
        let (sandbox, (sender, receiver)) = (self.sandbox.clone(), oneshot::channel());
        let channel = job.target.id.clone();
        let progress = Arc::new(Collected::default());
        let attempt = Attempt::first(notification(), job.now, progress.clone());
        let send = async move { drop(sender.send(sandbox.send(job, attempt).await)) };
        self.sandbox.lanes().spawn_all([(channel, send)], identity);
        let sent = receiver.await.expect("an attempt ends");
        let told = progress.take();
        // Each alert of the notification has one outcome, with a message that is fit to be shown.
        let reason = |alert: &AlertProgress| alert.refused.as_deref().unwrap_or_default().to_owned();
        assert!(told.len() <= 1 && told.iter().all(|alert| alert.fingerprint == FINGERPRINT), "{told:?}");
        assert!(told.iter().map(reason).all(|why| why.len() <= 1024 && !why.chars().any(char::is_control)), "{told:?}");
        expected::sent(sent)
    }

    fn grant(&self, base: Url, origins: Vec<OriginGrant>) -> Grant {
        let secrets = [("token".to_owned(), SecretString::from(SECRET))].into();
        Grant::new(base, origins, Secrets::new(secrets).expect("the secret is valid"))
    }

    fn job(&self, plugin: &Plugin, id: &str, limits: Limits, timeout: Duration) -> Job {
        let (base, origin) = Origin::parse(&self.url).expect("the server's URL is valid");
        let origins =
            vec![OriginGrant { origin, tls: Tls::system().expect("the system's certificates can be loaded") }];
        let target = Target {
            id: TargetId::new(id).expect("the id is valid"),
            name: id.to_owned(),
            url: self.url.clone(),
            also: Vec::new(),
            labels: Vec::new(),
            settings: "{}".to_owned(),
            secrets: vec!["token".to_owned()],
        };
        Job {
            plugin: plugin.clone(),
            target: Arc::new(target),
            grant: Arc::new(self.grant(base, origins)),
            limits,
            timeout,
            now: Timestamp::from_millis(1_784_578_620_000),
            tape: Tape::Off,
            zone: None,
            stored: model::PluginValues::default(),
        }
    }
}

/// The fingerprint of the alert of each notification.
const FINGERPRINT: &str = "f00d";

/// A notification about an alert whose text names the secret.
fn notification() -> Notification {
    let target = TargetId::new("guest").expect("the id is valid");
    let now = Timestamp::from_millis(1_784_578_620_000);
    let alert = NotifiedAlert {
        fingerprint: FINGERPRINT.to_owned(),
        event: AlertEvent::Firing,
        subject: Subject::Target(target),
        status: Status::Critical,
        target_name: "guest".to_owned(),
        kind: "http".to_owned(),
        title: "${secret.token}".to_owned(),
        summary: "${secret.token}".to_owned(),
        since: now,
        resolved_at: None,
        labels: Vec::new(),
        link: None,
        object_link: None,
        suppresses: 0,
        before: Before::Unknown,
    };
    Notification {
        number: 1,
        id: "1".to_owned(),
        channel: "guest".to_owned(),
        route: "all".to_owned(),
        group: Vec::new(),
        alerts: vec![alert],
        omitted: 0,
        unlisted: Vec::new(),
        link: None,
    }
}

/// Polls the honest target repeatedly in the background.
struct Watch {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    ended: oneshot::Receiver<(Vec<Duration>, Option<String>)>,
}

impl Watch {
    fn start(world: &World) -> Self {
        let (stop, done, (sender, ended)) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), oneshot::channel());
        let (sandbox, stopped, counted) = (world.sandbox.clone(), stop.clone(), done.clone());
        let job = {
            let Job { plugin, target, grant, limits, timeout, now, .. } =
                world.job(&world.honest, "honest", Limits::default(), AMPLE);
            move || Job {
                plugin: plugin.clone(),
                target: target.clone(),
                grant: grant.clone(),
                limits,
                timeout,
                now,
                tape: Tape::Off,
                zone: None,
                stored: model::PluginValues::default(),
            }
        };
        let target = TargetId::new("honest").expect("the id is valid");
        let polls = async move {
            let mut due = tokio::time::interval(HONEST);
            due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let (mut lateness, mut failed) = (Vec::new(), None);
            // Poll at least once after the guest has ended.
            loop {
                let last = stopped.load(Ordering::SeqCst);
                let wanted = due.tick().await;
                lateness.push(wanted.elapsed());
                let done = sandbox.poll(job()).await;
                if !matches!(&done.outcome, Outcome::Success(report) if report.dependencies.len() == 1) {
                    failed.get_or_insert(format!("{:?}", done.outcome));
                }
                counted.fetch_add(1, Ordering::SeqCst);
                if last {
                    break;
                }
            }
            let _ = sender.send((lateness, failed));
        };
        world.sandbox.lanes().spawn_all([(target, polls)], identity);
        Self { stop, done, ended }
    }

    async fn end(self) -> (Vec<Duration>, Option<String>) {
        self.stop.store(true, Ordering::SeqCst);
        let ended = self.ended.await.expect("the watch ends");
        assert!(self.done.load(Ordering::SeqCst) > 0, "the honest target was polled");
        ended
    }
}

/// Starts a server with one path each that answers, never answers, redirects to a forbidden address, and echoes a
/// header.
async fn serve(seen: Arc<Mutex<Vec<String>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}/", listener.local_addr().expect("the listener has an address"));
    let note = move |method: axum::http::Method, uri: axum::http::Uri, headers: HeaderMap| {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if headers.len() > 2 || uri.path() != "/" {
            seen.push(format!("{method} {uri} {headers:?}"));
        }
    };
    let elsewhere = || (StatusCode::FOUND, [("location", "http://169.254.169.254/latest/meta-data/")]);
    let routes = Router::new()
        .route("/", get(async || "fine").post(async || "fine"))
        .route("/never", get(std::future::pending::<()>))
        .route("/redirect", get(async move || elsewhere()))
        .route("/echo/{form}", get(async |Path(form): Path<String>, headers: HeaderMap| echo(&form, &headers)))
        .layer(axum::middleware::from_fn(move |request: axum::extract::Request, next: axum::middleware::Next| {
            note(request.method().clone(), request.uri().clone(), request.headers().clone());
            next.run(request)
        }));
    tokio::spawn(async { axum::serve(listener, routes).await });
    url
}

/// Returns the secret from a header in the requested encoding.
fn echo(form: &str, headers: &HeaderMap) -> Response {
    let token = headers.get("x-token").and_then(|value| value.to_str().ok()).unwrap_or("nothing").to_owned();
    let percent = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    match form {
        "json" => serde_json::json!({ "token": token, "list": [token] }).to_string().into_response(),
        "base64" => STANDARD.encode(&token).into_response(),
        "percent" => percent(&token).into_response(),
        // Letters as JSON escapes, each escaped again.
        "escapes" => "\\\\u0068\\\\u0075\\\\u006e".repeat((1 << 20) / 21).into_response(),
        "split" => format!("{}{token}{}", "a".repeat(65_530), "b".repeat(70_000)).into_response(),
        "header" => match HeaderValue::from_str(&token) {
            Ok(value) => ([("x-echo", value)], "").into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        },
        _ => token.into_response(),
    }
}
