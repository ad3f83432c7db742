//! `run`: starts the host, serves and shuts down.

mod ending;

use crate::admin::{self, ADMIN_TOKEN, AdminToken};
use crate::cli::RunArguments;
use crate::configuration::{demo, document, unknown_variables};
use crate::demo_fleet;
use crate::demo_past;
use crate::fleet_host::{self, Fleet};
use crate::means;
use crate::output::{complain, counted, print};
use crate::plugins;
use crate::telemetry::Telemetry;
use crate::troubles;
use crate::web_host::{ENDING, RunningHost, TESTS};
use anyhow::{Context, anyhow};
use catalog::{PluginSet, PluginWatcher, Uncompiled};
use config::{Config, Document, Overrides, Problem, ProxyConfig, Reading, STANDBY, made_by, needs_lease};
use egress::Egress;
use ending::{EndAsked, finish};
use engine::{
    AlertRules, Alerting, Bus, Candidate, Clock, Driver, Files, Fit, Health, Inbox, Initial, Log, Mailbox, NamedFiles,
    Parts, ReadModel, Reconfigurer, Restored, Targets, Validator, Wiring, keep_recent, misfit, random_bytes, restore,
    seconds, warn_about,
};
use fleet::wire::Deployment;
use metrics::Metrics;
use model::{Event, EventKind, Pulse, SequencedEvent, Timestamp};
use sandbox::{Plugin, Sandbox};
use scheduler::Scheduler;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use store::{Locked, Opened, Store};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use web::{Listening, Port};

/// The exit code after a second signal, which ends the host immediately.
const INTERRUPTED: u8 = 130;
/// The time after which a start is over.
const SETTLED: Duration = Duration::from_secs(10);
/// Further time until egress has closed the connections that only the first polls of all targets needed: 40 s after
/// these.
const CLOSED: Duration = Duration::from_secs(35);

/// Runs the host until a signal ends it.
pub(crate) async fn run(arguments: RunArguments, log: Arc<Log>) -> anyhow::Result<u8> {
    means::raise_descriptors()?;
    means::keep_private();
    let clock = Clock::start();
    let broker = arguments.fleet.then(demo_fleet::broker).transpose()?;
    let part = broker.as_ref().map(|broker| demo_fleet::operator(broker.url()));
    let extra = arguments.demo.then(|| demo(arguments.demo_port, part));
    let reading = Reading { places: arguments.common.places(), extra };
    let document = document(&reading.places, arguments.demo)?;
    let written = match document.parse(&reading) {
        Ok(written) => Arc::new(written),
        Err(invalid) => return Ok(refuse(&invalid.problems)),
    };
    let config = written.config();
    let named = NamedFiles::of(config);
    admin::from_environment()?;
    // Steps that can fail come first, because compiling plugins can take a minute.
    let ports =
        (Port::bind(config.listen, "server.listen")?, Port::bind(config.metrics_listen, "server.metrics_listen")?);
    if arguments.demo {
        let port = arguments.demo_port;
        demo::start(port, seconds).await?;
        tracing::info!("the notifications of the demo arrive at http://127.0.0.1:{port}{}", demo::RECEIVER);
    }
    let agents = match &broker {
        Some(broker) => demo_fleet::agents(broker, &config.data_dir)?,
        None => Vec::new(),
    };
    let agents: Vec<_> = agents.into_iter().map(|arguments| start_agent(arguments, log.clone())).collect();
    let bus = Bus::default();
    let locked = lock(config)?;
    let (announcing, now) = (bus.clone(), clock.wall());
    let announce = move |events: Vec<SequencedEvent>| events.into_iter().for_each(|event| announcing.announce(event));
    // A large database is read while the plugins are loaded.
    let opening = tokio::task::spawn_blocking(move || locked.open(now, Box::new(announce)));
    announce_start(config);
    make_plugin_dir(config);
    let egress = egress_of(config);
    let slots = sandbox::Config {
        instance_slots: config.instance_slots,
        zone: config.time_zone.clone(),
        durable: plugins::durable(&config.data_dir),
        ..sandbox::Config::default()
    };
    let sandbox = Arc::new(Sandbox::new(slots, plugins::compiler(&config.data_dir)?, &egress)?);
    let mut watcher = plugins::load(config, sandbox.clone(), Uncompiled::Defer).await;
    let validator = Validator { reading, sandbox: sandbox.clone() };
    let candidate = match first_candidate(&validator, written.clone(), &mut watcher).await {
        Ok(candidate) => candidate,
        Err(problems) => return Ok(refuse(&problems)),
    };
    let mut opened = opening.await??;
    let candidate = match with_settings(&validator, written.clone(), &watcher, candidate, &opened.store).await {
        Ok(candidate) => candidate,
        Err(problems) => return Ok(refuse(&problems)),
    };
    if let Some(days) = arguments.history {
        past_of_demo(&mut opened, &candidate, (&watcher, &sandbox), (&clock, days)).await?;
    }
    let start = Start { clock, document, candidate, watcher, opened, egress, sandbox, validator, bus, named, log };
    let occasion = Occasion {
        deployments: if arguments.fleet { demo_fleet::deployments(arguments.demo_port) } else { Vec::new() },
        is_embedded: arguments.is_embedded,
    };
    let code = start.serve(ports, occasion).await?;
    for agent in agents {
        // The signal that ended this host ends them too.
        agent.await??;
    }
    Ok(code)
}

/// Makes the default directory for plugins, into which users copy them. Another one that was configured may be
/// misspelt.
fn make_plugin_dir(config: &Config) {
    if !config.sources.contains_key("plugins.dir")
        && let Err(error) = std::fs::create_dir_all(&config.plugin_dir)
    {
        tracing::warn!("the plugin directory {} cannot be created ({error})", config.plugin_dir.display());
    }
}

fn egress_of(config: &Config) -> Egress {
    Egress::new(egress::Config {
        max_requests_per_host: config.max_requests_per_host,
        max_body_bytes_in_flight: config.max_body_bytes_in_flight,
        max_connections: means::connections(),
        own_listeners: vec![config.listen, config.metrics_listen],
    })
}

/// Starts another host in this process, on a thread of its runtime.
fn start_agent(arguments: RunArguments, log: Arc<Log>) -> JoinHandle<anyhow::Result<u8>> {
    let runtime = tokio::runtime::Handle::current();
    // The compiler cannot show that the future may move between threads.
    tokio::task::spawn_blocking(move || runtime.block_on(Box::pin(run(arguments, log))))
}

/// The difference between a start and that of a host with its own configuration.
struct Occasion {
    /// Deployments of the demo.
    deployments: Vec<(&'static str, Deployment)>,
    /// Whether it is an agent in the process of its operator.
    is_embedded: bool,
}

/// Simulates a past of the demo, unless there is a true one.
async fn past_of_demo(
    opened: &mut Opened,
    candidate: &Candidate,
    (watcher, sandbox): (&PluginWatcher, &Sandbox),
    (clock, days): (&Clock, i64),
) -> anyhow::Result<()> {
    if !opened.targets.is_empty() {
        tracing::warn!(
            "--history is ignored, because the demo has a past already: use another --data-dir for a new one"
        );
        return Ok(());
    }
    tracing::info!("simulating a past of {}", counted(usize::try_from(days)?, "day"));
    demo_past::simulate(opened, (&candidate.prepared.targets, watcher.set(), sandbox), (clock, days)).await
}

/// Prepares the configuration for the start as it is written, so that plugins that do not fit it are refused.
async fn first_candidate(
    validator: &Validator,
    written: Arc<config::Written>,
    watcher: &mut PluginWatcher,
) -> Result<Candidate, Vec<Problem>> {
    let none = Targets::new();
    let fit = async |plugins: Arc<PluginSet>| {
        let (overrides, files) = (Overrides::new(), &Files::All);
        let fit = Fit { written: written.clone(), overrides, plugins: &plugins, before: &none, channels: &none, files };
        validator.fit(fit).await
    };
    watcher.fit(&fit, misfit).await
}

/// Applies the settings that were changed in earlier runs to the configuration for the start.
async fn with_settings(
    validator: &Validator,
    written: Arc<config::Written>,
    watcher: &PluginWatcher,
    candidate: Candidate,
    store: &Store,
) -> Result<Candidate, Vec<Problem>> {
    let mut overrides = match store.reader().settings() {
        Ok(overrides) => overrides,
        Err(error) => return Err(vec![Problem { place: "the database".to_owned(), message: error.to_string() }]),
    };
    // Another host may have the lease by now. The agent polls these again once it has it.
    for (key, text) in overrides.iter_mut().filter(|(key, text)| needs_lease(key, text)) {
        STANDBY.clone_into(text);
        drop(store.writer().settings(vec![(key.clone(), Some(text.clone()))], Vec::new(), Timestamp::default()));
    }
    if overrides.is_empty() {
        return Ok(candidate);
    }
    let files = &Files::none();
    let (before, channels) = (&candidate.prepared.targets, &candidate.channels.targets);
    let fit = Fit { written: written.clone(), overrides, plugins: watcher.set(), before, channels, files };
    let candidate = validator.fit(fit).await?;
    for (key, problem) in &candidate.inactive {
        match made_by(key) {
            Some(made) => tracing::error!("the {made}, made through the API, is not active: {problem}"),
            None => tracing::error!("the setting {key} does not fit the configuration and is not active: {problem}"),
        }
    }
    Ok(candidate)
}

/// The prepared parts of the host.
struct Start {
    clock: Clock,
    document: Document,
    candidate: Candidate,
    watcher: PluginWatcher,
    opened: Opened,
    egress: Egress,
    sandbox: Arc<Sandbox>,
    validator: Validator,
    bus: Bus,
    named: NamedFiles,
    log: Arc<Log>,
}

impl Start {
    /// Connects the parts and serves until a signal ends the host.
    async fn serve(self, ports: (Port, Port), occasion: Occasion) -> anyhow::Result<u8> {
        let Self { clock, document, candidate, watcher, opened, egress, sandbox, validator, bus, named, log } = self;
        let Opened { store, targets: loaded, forgotten_until } = opened;
        let (store, plugins) = (Arc::new(store), Arc::new(watcher.set().clone()));
        let (config, targets) = (candidate.config.clone(), candidate.prepared.targets.clone());
        let telemetry = config.otlp.as_ref().map(Telemetry::prepare).transpose().map_err(|why| anyhow!(why))?;
        warn_about_addresses(&config);
        warn_about(targets.values(), &plugins);
        let admin = admin::start(&store, &config.data_dir, &clock)?;
        record_refusals(&plugins, &store, &clock);
        let Restored { targets: restored, dormant } = restore(&targets, loaded, forgotten_until, &clock);
        let dormant = keep_recent(dormant, &config, &store, clock.wall());

        let (metrics, read_model) = (Arc::new(Metrics::new(&config.metrics_prefix)), Arc::new(ReadModel::default()));
        let ((mailbox, inbox), reported) = (engine::channel(clock), Arc::new(Notify::new()));
        let wiring = Wiring {
            clock,
            sandbox: sandbox.clone(),
            egress: egress.clone(),
            plugins: plugins.clone(),
            store: store.clone(),
            bus: bus.clone(),
            metrics: metrics.clone(),
            read_model: read_model.clone(),
            aliases: Arc::new(config.aliases.clone()),
            mailbox: mailbox.clone(),
            reported: reported.clone(),
        };
        fleet_host::begin(&config, &store);
        let alerting = Alerting::restored(AlertRules::of(&config, candidate.channels.targets.clone()), &store)?;
        let driver = Driver::new(wiring, scheduler(&config), restored, alerting)
            .deployed(config.deployments.clone(), store.reader().fleet_reports()?);
        let outbox = driver.outbox();
        let parts =
            Parts { clock, validator, store: store.clone(), mailbox: mailbox.clone(), metrics: metrics.clone() };
        let initial = Initial { document, candidate, plugins, dormant };
        let reconfigurer = Arc::new(Reconfigurer::new(parts, initial));
        let pulse = Pulse::new("driver");
        let lanes = sandbox.lanes().pulses().iter().cloned();
        let health = Health::new(lanes.chain([pulse.clone(), store.writer().pulse().clone()]).collect());
        let (gauges, ending) = (Arc::new(web::Gauges::default()), CancellationToken::new());
        let parts = (store.clone(), reconfigurer.clone());
        let fleet = Fleet::start(&config, parts, (reported, log.clone(), clock), &ending).await?;
        fleet.iter().for_each(|fleet| fleet.introduce(&occasion.deployments));
        let host = Arc::new(RunningHost {
            clock,
            sandbox,
            store: store.clone(),
            reconfigurer: reconfigurer.clone(),
            read_model,
            bus,
            egress,
            health: health.clone(),
            web: gauges.clone(),
            log,
            data_dir: config.data_dir.clone(),
            plugin_dir: config.plugin_dir.clone(),
            mailbox: mailbox.clone(),
            tests: Semaphore::new(TESTS),
            replays: Semaphore::new(1),
            fleet,
            outbox,
            telemetry: telemetry.as_ref().map(|telemetry| telemetry.counters.clone()),
        });
        let running =
            Running { ending, clock, store, mailbox, driver, inbox, pulse, health, reconfigurer, watcher, named };
        let auth = admin.auth.behind(config.proxy.as_ref().map(proxy));
        let (targets, is_embedded, token) = (targets.len(), occasion.is_embedded, admin.token);
        let surfaces = Surfaces { host, metrics, auth, token, gauges, config, targets, is_embedded, telemetry };
        running.until_asked(ports, surfaces).await
    }
}

fn scheduler(config: &Config) -> Scheduler {
    let seed = u64::from_le_bytes(random_bytes());
    tracing::info!("the scheduler's seed is {seed}");
    Scheduler::new(config.scheduler.clone(), seed)
}

/// The reverse proxy whose users are accepted.
fn proxy(config: &ProxyConfig) -> web::Proxy {
    let ProxyConfig { header, scope, from } = config.clone();
    let header = header.parse().expect("the configuration was checked");
    web::Proxy { header, scope, trusts: Box::new(move |peer| from.iter().any(|network| network.contains(peer))) }
}

/// The parts of a host whose threads are about to start.
struct Running {
    clock: Clock,
    store: Arc<Store>,
    mailbox: Mailbox,
    driver: Driver,
    inbox: Inbox,
    pulse: Arc<Pulse>,
    health: Arc<Health>,
    reconfigurer: Arc<Reconfigurer>,
    watcher: PluginWatcher,
    named: NamedFiles,
    /// Ends everything that runs besides the loop.
    ending: CancellationToken,
}

/// The data for pages, API and metrics.
struct Surfaces {
    host: Arc<RunningHost>,
    metrics: Arc<Metrics>,
    auth: web::Auth,
    token: AdminToken,
    gauges: Arc<web::Gauges>,
    config: Arc<Config>,
    /// The number of targets.
    targets: usize,
    /// Whether the host is an agent in the process of its operator.
    is_embedded: bool,
    telemetry: Option<Telemetry>,
}

impl Running {
    /// Listens, polls and watches until a signal asks for the end; then shuts down gracefully.
    async fn until_asked(self, ports: (Port, Port), surfaces: Surfaces) -> anyhow::Result<u8> {
        let Self { clock, store, mailbox, driver, inbox, pulse, health, reconfigurer, watcher, named, ending } = self;
        let Surfaces { host, metrics, auth, token, gauges, config, targets, is_embedded, telemetry } = surfaces;
        // Install the signal handlers before the host is visible, so that an early signal saves everything as well.
        let mut asked = EndAsked::listen()?;
        let hangup = signal(SignalKind::hangup())?;
        let both =
            Listening { hosts: config.hosts.clone(), connections: means::served(), gauges, ending: ending.clone() };
        let (listening, reads) = web::serve(ports.0, host.clone(), auth, both.clone())?;
        host.fleet.iter().for_each(|fleet| fleet.answer_with(reads.clone()));
        let (outbox, watched) = (host.outbox.clone(), host.clone());
        let pushing = telemetry.map(|push| push.start(host.clone(), metrics.clone(), ending.clone())).transpose()?;
        let measured = web::serve_metrics(ports.1, host, metrics, both)?;
        if !is_embedded {
            greet(listening, measured, targets, &token);
        } else {
            let device = config.fleet.as_ref().map_or("", |fleet| &fleet.device);
            tracing::info!("the pages of device {device} are at http://{listening}/");
        }
        let thread = std::thread::Builder::new().name("driver".to_owned()).spawn(move || driver.run(&inbox, &pulse))?;
        health.clone().watch(clock)?;

        let loaded: Vec<Plugin> = watcher.set().served().map(|served| served.plugin.clone()).collect();
        let watching_plugins = tokio::spawn(watcher.watch(reconfigurer.clone(), ending.clone()));
        let notifying = tokio::spawn(outbox.run(ending.clone()));
        tokio::spawn(troubles::watch(watched, ending.clone()));
        let watching_files = tokio::spawn(reconfigurer.watch(named, hangup, ending.clone()));
        tokio::spawn(async move {
            tokio::time::sleep(SETTLED).await;
            means::rest_unused(&loaded, &config);
            means::release_start(&loaded);
            drop((loaded, config));
            tokio::time::sleep(CLOSED).await;
            means::trim_heap();
        });
        asked.wait().await;
        health.end();
        tracing::info!("shutting down: no new polls start; polls in flight have 15 s, unless a second signal comes");
        ending.cancel();
        let in_order = async {
            // Wait for a change that is being applied, unless it takes too long.
            let pushed = async {
                if let Some(ended) = pushing {
                    let _ = ended.await;
                }
            };
            let others = async { tokio::join!(watching_files, watching_plugins, pushed) };
            let _ = tokio::join!(tokio::time::timeout(ENDING.0, others), notifying);
            finish(mailbox, thread, store, clock).await
        };
        tokio::select! {
            ended = in_order => ended,
            () = asked.wait() => {
                // Announced events are stored; targets with a poll in flight are polled again at the next start.
                tracing::warn!("a second signal: the host exits immediately");
                Ok(INTERRUPTED)
            }
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

fn warn_about_addresses(config: &Config) {
    for address in [config.listen, config.metrics_listen] {
        if !address.ip().is_loopback() {
            tracing::warn!(
                "{address} can be reached from other machines, without encryption: put a TLS proxy in front"
            );
        }
    }
}

fn announce_start(config: &Config) {
    tracing::info!(
        "Polliwog {} starts: configuration {}, data in {}, plugins in {}",
        env!("CARGO_PKG_VERSION"),
        config.file,
        config.data_dir.display(),
        config.plugin_dir.display()
    );
    // A misspelt variable would be ignored silently.
    for problem in unknown_variables(config) {
        tracing::warn!("{problem}");
    }
}

fn record_refusals(plugins: &PluginSet, store: &Store, clock: &Clock) {
    for refused in plugins.refused() {
        tracing::warn!("{} is refused: {}", refused.file, refused.reason);
        let kind = EventKind::PluginRefused { file: refused.file.clone(), reason: refused.reason.clone() };
        store.writer().event(Event { at: clock.wall(), kind });
    }
}

/// Creates the data directory and locks the database.
fn lock(config: &Config) -> anyhow::Result<Locked> {
    use std::os::unix::fs::DirBuilderExt;
    let mut private = std::fs::DirBuilder::new();
    private.recursive(true).mode(0o700);
    private
        .create(&config.data_dir)
        .with_context(|| format!("cannot create the data directory {}", config.data_dir.display()))?;
    Ok(Store::lock(&config.store)?)
}

fn greet(listening: SocketAddr, measured: SocketAddr, targets: usize, token: &AdminToken) {
    tracing::info!(
        "polling {}; pages and API at http://{listening}/, metrics at http://{measured}/metrics",
        counted(targets, "target")
    );
    let text = match token {
        AdminToken::Made(token) => format!(
            "The admin token was generated (`polliwog token show` prints it again):\n  {token}\nLog in with it:\n  \
             http://{listening}/login?token={token}"
        ),
        AdminToken::Kept => {
            format!("Log in at http://{listening}/login with the admin token, which `polliwog token show` prints.")
        }
        AdminToken::Hashed => {
            format!("Log in at http://{listening}/login with the admin token ({ADMIN_TOKEN} sets another one).")
        }
    };
    // The host must not block if its output is not read.
    tokio::task::spawn_blocking(move || {
        if let Err(error) = print(&text) {
            tracing::warn!("{error:#}");
        }
    });
}
