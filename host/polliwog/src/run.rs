//! `run`: the host, from its configuration to its end.

use crate::cli::RunArguments;
use crate::clock::{self, Clock, random_bytes};
use crate::common::{Document, compiler, complain, counted, print, unknown_variables};
use crate::configurator::{self, Checker, Configurator, DORMANT, Named};
use crate::driver::{Driver, MESSAGES, Message, Parts, saved};
use crate::estate::{self, Files, Target};
use crate::health::Health;
use crate::host::{ENDING, RunningHost};
use crate::logging::Log;
use crate::plugins::{Judging, Keeper, PluginSet, Trust, hex, keeper};
use crate::token;
use anyhow::{Context, bail};
use config::{Config, Overrides, Problem};
use egress::Egress;
use model::{Event, EventKind, Pulse, TargetId, Timestamp};
use sandbox::Sandbox;
use scheduler::{Saved, Scheduler};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use store::{FORGOTTEN, Known, Loaded, Opened, Schedule, Store};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use web::{Announcer, Auth, Listening, Metrics, Port};

/// Sets the admin token, for automation.
pub(crate) const ADMIN_TOKEN: &str = "POLLIWOG_ADMIN_TOKEN";

/// The exit code of a host that a second signal ended at once.
const INTERRUPTED: u8 = 130;

/// Runs the host until it is told to end.
pub(crate) async fn run(arguments: RunArguments, log: Arc<Log>) -> anyhow::Result<u8> {
    crate::means::raise_descriptors()?;
    crate::means::keep_private();
    let clock = Clock::start();
    let (places, demo) = (arguments.common.places(), arguments.demo.then_some(arguments.demo_port));
    let document = Document::find(&places, arguments.demo)?;
    let config = match document.config(&places, demo, &Overrides::new()) {
        Ok(config) => config,
        Err(problems) => return Ok(refuse(&problems)),
    };
    let named = Named::by(&config);
    // What a start can fail for comes first, before plugins are compiled, which can take a minute.
    let ports =
        (Port::bind(config.listen, "server.listen")?, Port::bind(config.metrics_listen, "server.metrics_listen")?);
    if arguments.demo {
        demo::start(arguments.demo_port, clock::seconds).await?;
    }
    let (sender, messages) = sync_channel(MESSAGES);
    let Opened { store, targets: loaded, forgotten_until } = open(&config, clock.wall(), &sender)?;
    let store = Arc::new(store);
    tracing::info!(
        "Polliwog {} starts: configuration {}, data in {}, plugins in {}",
        env!("CARGO_PKG_VERSION"),
        config.file,
        config.data_dir.display(),
        config.plugin_dir.display()
    );
    warn_of_variables(&config);
    let egress = Egress::new(egress::Config {
        max_requests_per_host: config.max_requests_per_host,
        max_body_bytes_in_flight: config.max_body_bytes_in_flight,
        max_connections: crate::means::connections(),
        own_listeners: vec![config.listen, config.metrics_listen],
    });
    let slots = sandbox::Config { instance_slots: config.instance_slots, ..sandbox::Config::default() };
    let sandbox = Arc::new(Sandbox::new(slots, compiler(&config.data_dir)?, &egress)?);
    let mut keeper =
        Keeper::start(sandbox.clone(), (&config.plugin_dir, &config.data_dir), Trust::of(&config), Judging::Known)
            .await;
    let checker = Checker { places, demo, sandbox: sandbox.clone(), plugins: RwLock::default() };
    // As it is written, before anything that was set is looked at.
    let written = match keeper.hold_against(&checker, &document).await {
        Ok(written) => written,
        Err(problems) => return Ok(refuse(&problems)),
    };
    let plugins = checker.plugins();

    let overrides = store.reader().settings()?;
    let fitted = if overrides.is_empty() {
        Ok(written)
    } else {
        checker.fit(&document, overrides, (&written.targets, Files::Kept)).await
    };
    let fitted = match fitted {
        Ok(fitted) => fitted,
        Err(problems) => return Ok(refuse(&problems)),
    };
    for (key, problem) in &fitted.parked {
        tracing::error!("the setting {key} does not fit the configuration and is not in force: {problem}");
    }
    let (config, targets) = (fitted.config.clone(), fitted.targets.values().cloned().collect::<Vec<_>>());
    warn_of_addresses(&config);
    estate::warn_of(targets.iter(), &plugins);
    let (auth, token) = admin(&store, &config.data_dir, &clock)?;
    tell_of_plugins(&plugins, &store, &clock);
    let (restored, dormant) = restore(&targets, (loaded, forgotten_until), &clock);
    let dormant = keep_lately(dormant, &config, &store, clock.wall());

    let announcer = Announcer::default();
    let metrics = Arc::new(Metrics::new(&config.metrics_prefix));
    let seed = u64::from_le_bytes(random_bytes());
    tracing::info!("the scheduler's seed is {seed}");
    let parts = Parts {
        clock,
        sandbox: sandbox.clone(),
        plugins: plugins.clone(),
        store: store.clone(),
        announcer: announcer.clone(),
        metrics: metrics.clone(),
        aliases: Arc::new(config.aliases.clone()),
        sender: sender.clone(),
    };
    let scheduler = Scheduler::new(config.scheduler.clone(), seed);
    let needed = configurator::Parts { clock, checker, store: store.clone(), sender: sender.clone() };
    let configurator = Arc::new(Configurator::new(needed, document, fitted, dormant));
    let web_gauges = Arc::new(web::Gauges::default());
    let pulse = Pulse::new("driver");
    let lanes = sandbox.lanes().pulses().iter().cloned();
    let health = Health::new(lanes.chain([pulse.clone(), store.writer().pulse().clone()]).collect());
    let host = Arc::new(RunningHost {
        clock,
        sandbox,
        store: store.clone(),
        configurator: configurator.clone(),
        egress,
        health: health.clone(),
        web: web_gauges.clone(),
        log,
        data_dir: config.data_dir.clone(),
        sender: sender.clone(),
    });
    // Before anybody can see that it runs: who ends it then has it saved all the same.
    let mut asked = EndAsked::listen()?;
    let hangup = signal(SignalKind::hangup())?;
    let ending = CancellationToken::new();
    let both = Listening {
        hosts: config.hosts.clone(),
        connections: crate::means::served(),
        gauges: web_gauges,
        ending: ending.clone(),
    };
    let listening = web::serve(ports.0, host.clone(), (announcer, auth), both.clone())?;
    let measured = web::serve_metrics(ports.1, host, metrics, both)?;
    greet(listening, measured, targets.len(), &token);
    let driver = Driver::new(parts, scheduler, restored);
    let thread = std::thread::Builder::new().name("driver".to_owned()).spawn(move || driver.run(&messages, &pulse))?;
    health.clone().watch(clock)?;

    let needed = keeper::Parts { configurator: configurator.clone(), store: store.clone(), clock };
    let keeping = tokio::spawn(keeper.watch(needed, ending.clone()));
    let watching = tokio::spawn(configurator.watch(named, hangup, ending.clone()));
    asked.wait().await;
    health.end();
    tracing::info!("ending: nothing more is started; what is under way has 15 s, unless a second signal comes");
    ending.cancel();
    let in_order = async {
        // It holds the database; what it is doing is done first, unless that takes too long.
        let _ = tokio::time::timeout(ENDING.0, async { tokio::join!(watching, keeping) }).await;
        finish(sender, thread, store, clock).await
    };
    tokio::select! {
        ended = in_order => ended,
        () = asked.wait() => {
            // What was told is on disk; what is under way is polled again at the next start.
            tracing::warn!("a second signal: it ends at once");
            Ok(INTERRUPTED)
        }
    }
}

/// HTTP has stopped; polls under way end, results are saved, the database is closed.
async fn finish(
    sender: SyncSender<Message>,
    driver: std::thread::JoinHandle<()>,
    store: Arc<Store>,
    clock: Clock,
) -> anyhow::Result<u8> {
    let (reply, ended) = oneshot::channel();
    let sent = tokio::task::spawn_blocking(move || sender.send(Message::Shutdown(reply)));
    tokio::time::timeout(ENDING.1, sent).await.context("the driver did not take the order to end")???;
    tokio::time::timeout(ENDING.1, ended).await.context("the driver did not end in time")??;
    tokio::task::spawn_blocking(move || {
        let _ = driver.join();
        store.close(clock.wall());
    })
    .await?;
    tracing::info!("everything is saved");
    Ok(0)
}

/// The signals that ask the host to end.
struct EndAsked {
    terminate: Signal,
    interrupt: Signal,
}

impl EndAsked {
    /// From here on they do not end it by themselves.
    fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn refuse(problems: &[Problem]) -> u8 {
    for problem in problems {
        complain(problem);
    }
    complain(format_args!(
        "polliwog: {} in the configuration; nothing was started",
        counted(problems.len(), "problem")
    ));
    1
}

fn warn_of_addresses(config: &Config) {
    for address in [config.listen, config.metrics_listen] {
        if !address.ip().is_loopback() {
            tracing::warn!(
                "{address} can be reached from other machines, without encryption: put a TLS proxy in front"
            );
        }
    }
}

/// A variable that is misspelt changes nothing, and would do so silently.
fn warn_of_variables(config: &Config) {
    for problem in unknown_variables(config) {
        tracing::warn!("{problem}");
    }
}

fn tell_of_plugins(plugins: &PluginSet, store: &Store, clock: &Clock) {
    for refused in plugins.refused() {
        tracing::warn!("{} is refused: {}", refused.file, refused.reason);
        let kind = EventKind::PluginRefused { file: refused.file.clone(), reason: refused.reason.clone() };
        store.writer().event(Event { at: clock.wall(), kind });
    }
}

fn open(config: &Config, now: Timestamp, sender: &SyncSender<Message>) -> anyhow::Result<Opened> {
    use std::os::unix::fs::DirBuilderExt;
    let mut private = std::fs::DirBuilder::new();
    private.recursive(true).mode(0o700);
    private
        .create(&config.data_dir)
        .with_context(|| format!("the data directory {} cannot be made", config.data_dir.display()))?;
    let sender = sender.clone();
    // When the driver has ended, nobody is left to be told.
    let acknowledge = move |committed| drop(sender.send(Message::Committed(committed)));
    Ok(Store::open(&config.store, now, Box::new(acknowledge))?)
}

/// What is known of the admin token when the host starts.
enum AdminToken {
    /// It was made now.
    Made(String),
    /// The data directory holds it.
    Kept,
    /// Only its hash is known.
    Hashed,
}

/// The admin token: from the environment, in the place of any earlier one, or made at the first start. The database knows its
/// hash; one that was made lies in the data directory too, for its owner.
fn admin(store: &Store, data_dir: &Path, clock: &Clock) -> anyhow::Result<(Auth, AdminToken)> {
    let now = clock.wall();
    let kept = store.reader().admin_token()?;
    if let Some(token) = crate::common::environment(ADMIN_TOKEN) {
        if token.len() < 16 || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!(
                "{ADMIN_TOKEN} is shorter than 16 characters or has others than visible ASCII: use a long random one, as from \
                 `openssl rand -hex 32`"
            );
        }
        let hash = Auth::hash(&token);
        let sessions = store.reader().sessions(now)?;
        if kept == Some(hash) {
            return Ok((Auth::new(hash, sessions), AdminToken::Hashed));
        }
        // Sessions that began with the previous token end.
        sessions.into_iter().for_each(|(session, _)| store.writer().session(session, None));
        store.writer().admin_token(hash, now);
        token::forget(data_dir);
        return Ok((Auth::new(hash, []), AdminToken::Hashed));
    }
    if let Some(hash) = kept {
        let auth = Auth::new(hash, store.reader().sessions(now)?);
        let shown = token::read(data_dir).is_ok_and(|token| token.is_some_and(|token| Auth::hash(&token) == hash));
        if !shown {
            // It is that of another database, or was replaced.
            token::forget(data_dir);
        }
        return Ok((auth, if shown { AdminToken::Kept } else { AdminToken::Hashed }));
    }
    let token = hex(&random_bytes::<32>());
    store.writer().admin_token(Auth::hash(&token), now);
    token::keep(data_dir, &token);
    Ok((Auth::new(Auth::hash(&token), []), AdminToken::Made(token)))
}

/// A poll that found nothing new just before a kill may have been forgotten. Its target is taken to have been polled when
/// it was due, so that it is early by no more than what a kill may cost.
fn not_early(mut schedule: Schedule, forgotten_until: Option<Timestamp>, now: Timestamp) -> Schedule {
    /// The most that jitter adds to an interval.
    const JITTER: f64 = 1.05;
    let healthy =
        schedule.failures == 0 && schedule.plugin_faults == 0 && !schedule.breaker_open && schedule.dead.is_none();
    if healthy && forgotten_until.is_some_and(|until| schedule.due <= until.min(now)) {
        let interval = schedule.interval.unwrap_or_default().mul_f64(JITTER);
        schedule.due = schedule.due.after(interval.saturating_sub(FORGOTTEN));
    }
    schedule
}

/// A target, with its schedule where it has one.
type Restored = (Arc<Target>, Option<Saved>);

/// What was known is known again; a schedule of what is another target now is not taken up.
fn restore(
    targets: &[Arc<Target>],
    (mut loaded, forgotten_until): (HashMap<TargetId, Loaded>, Option<Timestamp>),
    clock: &Clock,
) -> (Vec<Restored>, HashMap<TargetId, Known>) {
    let take_up = |target: &Arc<Target>| {
        let loaded = loaded.remove(target.id())?;
        target.restore(loaded.known);
        let same = loaded.schedule.filter(|schedule| schedule.identity == target.identity);
        same.map(|schedule| saved(&not_early(schedule, forgotten_until, clock.wall()), clock))
    };
    let schedules: Vec<Option<Saved>> = targets.iter().map(take_up).collect();
    let dormant = loaded.into_iter().map(|(id, loaded)| (id, loaded.known)).collect();
    (targets.iter().cloned().zip(schedules).collect(), dormant)
}

/// What is known of targets that are in the file no more is kept as long as history is, in case they come back.
fn keep_lately(
    mut dormant: HashMap<TargetId, Known>,
    config: &Config,
    store: &Store,
    now: Timestamp,
) -> HashMap<TargetId, Known> {
    let oldest = Duration::from_secs(u64::from(config.store.history_days) * 86_400);
    let mut reports: Vec<_> = dormant.values().map(|known| known.last_report).collect();
    reports.sort_unstable();
    // The latest of them, where there are too many.
    let enough = reports.len().checked_sub(DORMANT).map(|surplus| reports[surplus.min(reports.len() - 1)]);
    dormant.retain(|id, known| {
        let lately = known.last_report.is_some_and(|at| now.since(at) <= oldest);
        let keep = lately && enough.is_none_or(|enough| known.last_report >= enough);
        if !keep {
            store.writer().forget(id.clone(), now);
        }
        keep
    });
    dormant
}

fn greet(listening: SocketAddr, measured: SocketAddr, targets: usize, token: &AdminToken) {
    tracing::info!(
        "polling {}; pages and API at http://{listening}/, metrics at http://{measured}/metrics",
        counted(targets, "target")
    );
    let text = match token {
        AdminToken::Made(token) => format!(
            "The admin token was made (`polliwog token show` shows it again):\n  {token}\nLog in with it:\n  \
             http://{listening}/login?token={token}"
        ),
        AdminToken::Kept => {
            format!("Log in at http://{listening}/login with the admin token, which `polliwog token show` shows.")
        }
        AdminToken::Hashed => {
            format!("Log in at http://{listening}/login with the admin token ({ADMIN_TOKEN} sets another).")
        }
    };
    // A host runs on when its output is not read or cannot be written.
    tokio::task::spawn_blocking(move || {
        if let Err(error) = print(&text) {
            tracing::warn!("{error:#}");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(due: i64, failures: u32) -> Schedule {
        Schedule {
            identity: 0,
            due: Timestamp::from_millis(due * 1000),
            interval: Some(Duration::from_secs(100)),
            failures,
            first_failure: None,
            last_cause: None,
            plugin_faults: 0,
            breaker_open: false,
            breaker_since: None,
            open_for: None,
            dead: None,
            revived: false,
            last_success: None,
            last_polled: None,
            last_change: None,
            critical: false,
            rates: [0.0; 4],
        }
    }

    #[test]
    fn after_a_kill_nobody_is_early_by_more_than_a_kill_may_cost() {
        let killed = Some(Timestamp::from_millis(1_000_000));
        let now = Timestamp::from_millis(1_010_000);
        for (due, failures, forgotten_until, expected) in [
            // It may have been polled at 990, unseen: then it is due at 1095 at the latest, and 30 s early is allowed.
            (990, 0, killed, 1065),
            (1000, 0, killed, 1075),
            // Nobody was polled after the last word of the host before, nor in the future.
            (1001, 0, killed, 1001),
            (1020, 0, Some(Timestamp::from_millis(1_030_000)), 1020),
            (990, 0, None, 990),
            // A failure is committed at once: nothing of it was forgotten.
            (990, 1, killed, 990),
        ] {
            let found = not_early(schedule(due, failures), forgotten_until, now);
            assert_eq!(found.due, Timestamp::from_millis(expected * 1000), "{due} {failures} {forgotten_until:?}");
        }
    }
}
