//! The hostile suite: plugins that misbehave, one way each, beside an honest one.
//!
//! Each guest is loaded, its settings are checked, and it is polled, on the lane on which an honest target is polled every
//! few milliseconds. What is expected of each stands in [`expected`]; a guest that is not there does not compile.

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
use model::{Outcome, TargetId, Timestamp};
use sandbox::{Compiler, Done, Job, Limits, Plugin, Sandbox, Target};
use secrecy::SecretString;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The value that must be seen nowhere.
pub const SECRET: &str = "hunter2/hunter2\"hunter2";
/// The CPU time of a poll: less than the contract's, so that a hundred endless loops do not take forever.
pub const CPU: Duration = Duration::from_millis(400);
/// A poll's time-out, of guests that are expected to reach it.
pub const TIMEOUT: Duration = Duration::from_millis(2000);
/// That of all others: how fast the machine is does not decide what becomes of them.
const AMPLE: Duration = Duration::from_secs(60);
/// How often the honest target is polled.
pub const HONEST: Duration = Duration::from_millis(5);

/// A guest.
pub struct Case {
    /// Its file.
    pub name: &'static str,
    /// What it is.
    pub component: Vec<u8>,
    /// What is to become of it.
    pub expect: Expect,
}

macro_rules! cases {
    ($($word:ident $name:literal $kind:ident($source:expr);)*) => {
        /// Every guest with what is to become of it.
        pub fn cases() -> Vec<Case> {
            vec![$(Case { name: $name, component: $kind($name, $source), expect: expected::$word() }),*]
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

/// What the guests run in: a sandbox with one lane, a server, and an honest target.
pub struct World {
    sandbox: Arc<Sandbox>,
    url: String,
    honest: Plugin,
    /// Requests that the server has seen: their first lines and headers.
    seen: Arc<Mutex<Vec<String>>>,
}

/// What became of a guest.
#[derive(Debug)]
pub struct Ended {
    /// In words: which function, and why.
    pub verdict: String,
    /// From the call that was contained to its end.
    pub took: Duration,
    /// How late the honest target's polls began meanwhile.
    pub lateness: Vec<Duration>,
}

impl World {
    /// With `compile`, a program that compiles plugins.
    ///
    /// # Panics
    /// When there is no such world: this is for tests.
    pub async fn new(compile: &str) -> Self {
        let egress = Egress::new(egress::Config::default());
        let compiler = Compiler::temporary((compile, &[]), [7; 32], 2).expect("a temporary folder");
        let slots = sandbox::Config { instance_slots: 16, lanes: NonZeroUsize::MIN, ..sandbox::Config::default() };
        let sandbox = Arc::new(Sandbox::new(slots, compiler, &egress).expect("a sandbox"));
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let url = serve(seen.clone()).await;
        let http = builtin::ALL.iter().find(|plugin| plugin.kind == "http").expect("a built-in plugin");
        let honest = sandbox.load(http.component).await.expect("a good plugin");
        Self { sandbox, url, honest, seen }
    }

    /// Loads, asks and polls a guest once, and says what is not as it should be.
    pub async fn run(&self, case: &Case) -> Result<Ended, String> {
        let watch = Watch::start(self);
        let ended = self.contain(case).await;
        let (lateness, failed) = watch.end().await;
        let (verdict, took) = ended.map_err(|why| format!("{}: {why}", case.name))?;
        if let Some(failed) = failed {
            return Err(format!("{}: the honest target was not polled as ever: {failed}", case.name));
        }
        let requests = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        for request in &requests {
            if request.contains("x-evil") || (request.contains(SECRET) && !request.contains("/echo")) {
                return Err(format!("{}: the server saw {request}", case.name));
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
        let problems = match self.sandbox.check_settings(&plugin, &serde_json::json!({})).await {
            Ok(problems) => problems.into_iter().map(|problem| problem.message).collect(),
            Err(why) => vec![why],
        };
        let took = began.elapsed();
        if let Some(verdict) = case.expect.checked(&problems)? {
            return Ok((verdict, took));
        }
        let began = Instant::now();
        let timeout = if case.expect.is_timeout() { TIMEOUT } else { AMPLE };
        let job = self.job((&plugin, "guest"), Limits { cpu: CPU, ..Limits::default() }, timeout);
        let done = self.on_the_lane(job).await;
        let took = began.elapsed();
        if format!("{done:?}").contains(SECRET) {
            return Err(format!("the secret is in what it told: {done:?}"));
        }
        case.expect.polled(&done).map(|verdict| (verdict, took))
    }

    async fn on_the_lane(&self, job: Job) -> Done {
        let (sandbox, (sender, receiver)) = (self.sandbox.clone(), oneshot::channel());
        let target = job.target.id.clone();
        self.sandbox.lanes().spawn(&target, async move { drop(sender.send(sandbox.poll(job).await)) });
        receiver.await.expect("a poll ends")
    }

    fn job(&self, (plugin, id): (&Plugin, &str), limits: Limits, timeout: Duration) -> Job {
        let (base, origin) = Origin::parse(&self.url).expect("our URL is one");
        let origins = vec![OriginGrant { origin, tls: Tls::system().expect("certificates") }];
        let secrets = [("token".to_owned(), SecretString::from(SECRET))].into();
        let target = Target {
            id: TargetId::new(id).expect("our id is one"),
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
            grant: Arc::new(Grant::new(base, origins, Secrets::new(secrets).expect("our secret is one"))),
            limits,
            timeout,
            now: Timestamp::from_millis(1_784_578_620_000),
            tape: Tape::Off,
        }
    }
}

/// The honest target's polls, one after another.
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
                world.job((&world.honest, "honest"), Limits::default(), AMPLE);
            move || Job {
                plugin: plugin.clone(),
                target: target.clone(),
                grant: grant.clone(),
                limits,
                timeout,
                now,
                tape: Tape::Off,
            }
        };
        let target = TargetId::new("honest").expect("our id is one");
        world.sandbox.lanes().spawn(&target, async move {
            let mut due = tokio::time::interval(HONEST);
            due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let (mut lateness, mut failed) = (Vec::new(), None);
            // At least one after the guest has ended.
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
        });
        Self { stop, done, ended }
    }

    async fn end(self) -> (Vec<Duration>, Option<String>) {
        self.stop.store(true, Ordering::SeqCst);
        let ended = self.ended.await.expect("the watch ends");
        assert!(self.done.load(Ordering::SeqCst) > 0, "the honest target was polled");
        ended
    }
}

/// A server that answers, never answers, redirects to where nobody may go, and sends back what it was sent.
async fn serve(seen: Arc<Mutex<Vec<String>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
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

/// The secret that came in a header, in some form.
fn echo(form: &str, headers: &HeaderMap) -> Response {
    let token = headers.get("x-token").and_then(|value| value.to_str().ok()).unwrap_or("nothing").to_owned();
    let percent = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    match form {
        "json" => serde_json::json!({ "token": token, "list": [token] }).to_string().into_response(),
        "base64" => STANDARD.encode(&token).into_response(),
        "percent" => percent(&token).into_response(),
        // Each letter as JSON may write it, and each escaped once more.
        "escapes" => "\\\\u0068\\\\u0075\\\\u006e".repeat((1 << 20) / 21).into_response(),
        "split" => format!("{}{token}{}", "a".repeat(65_530), "b".repeat(70_000)).into_response(),
        "header" => match HeaderValue::from_str(&token) {
            Ok(value) => ([("x-echo", value)], "").into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        },
        _ => token.into_response(),
    }
}
