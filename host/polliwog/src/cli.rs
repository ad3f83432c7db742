//! The command line.

mod alerts;
mod fleet;
mod plugin;
mod targets;

pub(crate) use alerts::{AlertsCommand, ChannelCommand, RouteCommand, SilenceCommand};
use clap::{Args, Parser, Subcommand, ValueEnum};
use config::Places;
pub(crate) use fleet::{FleetCommand, FleetDevices};
pub(crate) use plugin::{Language, PluginCommand, SendArguments};
use std::path::PathBuf;
pub(crate) use targets::{AddArguments, DefinitionArguments, TargetsCommand, TestArguments};

/// The exit code for wrong usage (EX_USAGE of sysexits).
pub(crate) const USAGE: u8 = 64;

/// The subcommand with which this program starts itself to compile a plugin.
pub(crate) const COMPILE_PLUGIN: &str = "compile-plugin";

/// Polls services and reports their status.
#[derive(Debug, Parser)]
#[command(name = "polliwog", version, about, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// The log level on stderr: error, warn, info, debug (with plugins' output) or trace [default: info for run, else
    /// warn; POLLIWOG_LOG_LEVEL]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<tracing::Level>,
    /// The format of log lines [default: text; POLLIWOG_LOG_FORMAT]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Readable text
    Text,
    /// One JSON object per line
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the host
    Run(RunArguments),
    /// Validate configuration, plugins and settings: print every problem with file, line and remedy
    ///
    /// Each target is polled without sending anything, to find requests that would be refused.
    Check {
        #[command(flatten)]
        common: Common,
        /// Accept kinds that no plugin serves yet
        #[arg(long)]
        allow_missing_plugins: bool,
        /// Accept routes and silences that no target in the file meets
        #[arg(long)]
        allow_missing_targets: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check another configuration, print what it would change, and replace the present file by it
    Apply(ApplyArguments),
    /// Print the targets of a Prometheus service discovery file (file_sd, as JSON) as configuration
    Import {
        /// The file
        file: PathBuf,
        /// The kind of the targets
        #[arg(long, default_value = "http")]
        kind: String,
    },
    /// Poll once, now, in this process, without storing anything
    ///
    /// Exit code: 0 ok, 1 warning, 2 critical, 3 unknown or failed. Critical takes precedence over unknown, unknown
    /// over warning. 64: wrong usage, or settings that the plugin refuses.
    Poll(PollArguments),
    /// Explain the time of a target's next poll
    Explain {
        /// The target's id
        target: String,
        #[command(flatten)]
        common: Remote,
    },
    /// Show what happened to a target: its availability, changes of status, and failed polls
    History {
        /// The target's id
        target: String,
        /// The time until now: 1h, 6h, 24h, 7d, 30d, 90d or 400d
        #[arg(long, default_value = "24h")]
        range: String,
        #[command(flatten)]
        common: Remote,
    },
    /// Show what happened on the running host: the stored events, oldest first
    Events {
        #[command(flatten)]
        arguments: EventsArguments,
        #[command(flatten)]
        common: Remote,
    },
    /// Show the status of the running host
    Status {
        #[command(flatten)]
        common: Remote,
    },
    /// List, show and change the targets of the running host
    Targets {
        /// The action [default: list]
        #[command(subcommand)]
        command: Option<TargetsCommand>,
        #[command(flatten)]
        common: Remote,
    },
    /// List and acknowledge alerts: what is wrong, since when, and why
    Alerts {
        /// The action [default: list those that are open]
        #[command(subcommand)]
        command: Option<AlertsCommand>,
        #[command(flatten)]
        common: Remote,
    },
    /// List, add and end silences: alerts are recorded and not notified
    Silence {
        /// The action [default: list]
        #[command(subcommand)]
        command: Option<SilenceCommand>,
        #[command(flatten)]
        common: Remote,
    },
    /// List and test channels, and the notifications sent to them
    Channel {
        /// The action [default: list]
        #[command(subcommand)]
        command: Option<ChannelCommand>,
        #[command(flatten)]
        common: Remote,
    },
    /// Explain which routes alerts take
    #[command(subcommand)]
    Route(RouteCommand),
    /// List, retry and drop dead letters: targets that have failed for long and are polled rarely
    DeadLetter {
        /// The action [default: list]
        #[command(subcommand)]
        command: Option<DeadLetterCommand>,
        #[command(flatten)]
        common: Remote,
    },
    /// List and reset circuit breakers that are not closed or count failures
    Breaker {
        /// The action [default: list]
        #[command(subcommand)]
        command: Option<BreakerCommand>,
        #[command(flatten)]
        common: Remote,
    },
    /// Show and change the settings of the running host, with the source of each
    Settings {
        /// The action [default: get]
        #[command(subcommand)]
        command: Option<SettingsCommand>,
        #[command(flatten)]
        common: Remote,
    },
    /// Compare how late each cadence detects changes, on a simulated estate or on what the running host recorded
    ///
    /// An estate is JSON. Required: `targets`, and `classes`, each with `share`, `incidentsPerDay`, `incidentLength`
    /// and optionally `name`, `latency`, `failureRate`, `interval`. Optional: `name`, `duration`, `targetsPerHost`,
    /// `baseInterval`, `minInterval`, `maxInterval`, `maxInFlight`, `maxPerHost`, and `outages`, each with `at`,
    /// `length`, `share`. Durations are written "30s", "5m", "2h", "1d", or as seconds.
    Simulate(SimulateArguments),
    /// Show or replace the admin token of the running host; list, make and revoke further tokens
    Token {
        /// The action
        #[command(subcommand)]
        command: TokenCommand,
        #[command(flatten)]
        common: Remote,
    },
    /// Show the fleet of the running host: its devices and deployments; make and delete deployments
    Fleet {
        /// The action
        #[command(subcommand)]
        command: FleetCommand,
        #[command(flatten)]
        common: Remote,
    },
    /// Serve recorded bodies of Proxmox products from a directory, for polling
    ///
    /// A body's file name is its API path with _ for / (pve/cluster_resources.json). A simulated estate answers all
    /// other paths. A recording from poll --record answers its own requests only. Each file is served under its name;
    /// GET / lists all names.
    Replay {
        /// The directory
        dir: PathBuf,
        /// The port to listen on, on 127.0.0.1
        #[arg(long, default_value_t = demo::REPLAY_PORT)]
        port: u16,
    },
    /// Prepare a server as a target: print its certificate, the commands to run there, and the configuration
    Setup(SetupArguments),
    /// Commands for plugin authors
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Compile a plugin from stdin to stdout; this program starts itself with this command
    #[command(name = COMPILE_PLUGIN, hide = true)]
    CompilePlugin,
}

/// The arguments of `apply`.
#[derive(Args, Debug)]
pub(crate) struct ApplyArguments {
    /// The directory with the other polliwog.toml
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Print the changes only
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub common: Common,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `simulate`.
#[derive(Args, Debug)]
pub(crate) struct SimulateArguments {
    /// The estate file
    #[arg(value_name = "ESTATE.json", required_unless_present = "history", conflicts_with = "history")]
    pub estate: Option<PathBuf>,
    /// The seed of the random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Replay what the running host recorded
    #[arg(long)]
    pub history: bool,
    /// The time until now that is replayed: 1h, 6h, 24h, 7d, 30d, 90d or 400d
    #[arg(long, default_value = "7d", requires = "history")]
    pub range: String,
    #[command(flatten)]
    pub common: Remote,
}

/// The choice of events.
#[derive(Args, Clone, Debug)]
pub(crate) struct EventsArguments {
    /// Print new events until the program is ended
    #[arg(long, short)]
    pub follow: bool,
    /// The number of events of the past
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub last: u32,
    /// Only events of this target
    #[arg(long, value_name = "ID")]
    pub target: Option<String>,
    /// Only events with this name, such as status:change
    #[arg(long, value_name = "NAME")]
    pub event: Option<String>,
}

/// The locations of the configuration and the data.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Common {
    /// The configuration file [default: ./polliwog.toml, then the XDG configuration directory, then /etc/polliwog]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The data directory [default: the XDG data directory]
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl Common {
    /// Converts the locations for the configuration.
    pub(crate) fn places(&self) -> Places {
        Places { config: self.config.clone(), data_dir: self.data_dir.clone() }
    }
}

/// Options of commands that call the running host: POLLIWOG_URL is its URL, POLLIWOG_TOKEN its admin token.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Remote {
    #[command(flatten)]
    pub common: Common,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// The actions on tokens.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Print the generated admin token from the data directory
    Show {
        /// Use the demo's data directory
        #[arg(long)]
        demo: bool,
    },
    /// Generate and print a new admin token; the old one becomes invalid, and pages must log in again
    Rotate,
    /// List the further tokens
    List,
    /// Make a further token and print it. It is not shown again
    Create {
        /// A name that says who uses it
        name: String,
        /// The permission: wall, read, operate or admin; each includes those before it
        #[arg(long, default_value = "read")]
        scope: String,
        /// Days until it expires; without, it is valid until it is revoked
        #[arg(long)]
        days: Option<u32>,
    },
    /// Revoke a further token. Programs, browsers and screens with it are shut out at once
    Revoke {
        /// The name
        name: String,
    },
}

/// The actions on dead letters.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterCommand {
    /// List every dead letter
    List,
    /// Poll a dead letter now, and at its normal interval again
    Retry {
        /// The target's id
        #[arg(required_unless_present = "all")]
        target: Option<String>,
        /// Every dead letter
        #[arg(long, conflicts_with = "target")]
        all: bool,
    },
    /// Drop a dead letter: disable its target until it is enabled again
    Drop {
        /// The target's id
        target: String,
    },
}

/// The actions on breakers.
#[derive(Debug, Subcommand)]
pub(crate) enum BreakerCommand {
    /// List every breaker that is not closed or counts failures
    List,
    /// Close a breaker, forget its failures, and poll now
    Reset {
        /// The target's id
        target: String,
    },
}

/// The actions on settings.
#[derive(Debug, Subcommand)]
pub(crate) enum SettingsCommand {
    /// Show one setting or all
    Get {
        /// The key, for example scheduler.cadence or target.ID.interval
        key: Option<String>,
    },
    /// Change a setting; the change is stored and overrides the file until it is unset
    Set {
        /// The key
        key: String,
        /// The value, as it is written in the file
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Revert a change
    Unset {
        /// The key
        key: String,
    },
}

/// The arguments of `run`.
#[derive(Args, Debug, Default)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub common: Common,
    /// Add simulated services to poll; works without a configuration
    #[arg(long)]
    pub demo: bool,
    /// The port of the simulated services, which also use the next port
    #[arg(long, value_name = "PORT", default_value_t = demo::PORT, requires = "demo")]
    pub demo_port: u16,
    /// Simulate a past of this length for the demo, for example 400d; only at its first start
    #[arg(long, value_name = "TIME", requires = "demo", value_parser = past)]
    pub history: Option<i64>,
    /// Add a fleet to the demo: a broker (nats-server must be installed), and five agents
    #[arg(long, requires = "demo")]
    pub fleet: bool,
    /// Whether it is an agent of the demo, in the process of its operator.
    #[arg(skip)]
    pub is_embedded: bool,
}

/// Parses the length of a past, in days.
fn past(text: &str) -> Result<i64, String> {
    const LONGEST: u64 = 400;
    let days = config::parse_duration(text)?.as_secs().div_ceil(86_400);
    if days > LONGEST {
        return Err(format!("history is kept for {LONGEST} days: use at most {LONGEST}d"));
    }
    Ok(i64::try_from(days).unwrap_or_default())
}

/// The arguments of `setup`.
#[derive(Args, Debug)]
pub(crate) struct SetupArguments {
    #[command(flatten)]
    pub common: Common,
    /// The kind of the target: pve, pbs, pmg, or the kind of any other plugin
    pub kind: String,
    /// The server: a URL or a host name
    pub url: String,
    /// The fingerprint of the certificate that you confirmed; no secret is sent if the certificate is another
    #[arg(long, value_name = "SHA256")]
    pub fingerprint: Option<String>,
    /// A secret for listing the other members of a cluster: token=env:VARIABLE or token=file:PATH; repeatable
    #[arg(long, value_name = "NAME=SOURCE")]
    pub secret: Vec<String>,
    /// The name of the account, if not the one that the plugin suggests
    #[arg(long, value_name = "ACCOUNT")]
    pub username: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `poll`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct PollArguments {
    /// The id of a configured target
    #[arg(required_unless_present_any = ["kind", "plugin"], conflicts_with_all = ["kind", "plugin", "url", "settings", "secret", "fingerprint", "insecure"])]
    pub target: Option<String>,
    /// The kind of a target that is not configured
    #[arg(long, requires = "url")]
    pub kind: Option<String>,
    /// A plugin file to poll with, instead of the plugin that serves the kind
    #[arg(long, value_name = "FILE", requires = "url", conflicts_with = "kind")]
    pub plugin: Option<PathBuf>,
    /// The target's URL
    #[arg(long)]
    pub url: Option<String>,
    /// The target's settings, as JSON
    #[arg(long, value_name = "JSON")]
    pub settings: Option<String>,
    /// A secret: NAME=env:VARIABLE or NAME=file:PATH, with ,short after it for a value under 8 bytes
    #[arg(long, value_name = "NAME=SOURCE")]
    pub secret: Vec<String>,
    /// The SHA-256 fingerprint of the target's certificate
    #[arg(long, value_name = "H", conflicts_with = "insecure")]
    pub fingerprint: Option<String>,
    /// Accept any certificate
    #[arg(long)]
    pub insecure: bool,
    /// Write every exchange to this file, with secrets masked, for `plugin test` and `plugin bench`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Poll this many times in a row, so that the plugin has what it kept at the poll before
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub polls: u32,
    /// Print JSON; of several polls, a list
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub common: Common,
}

impl PollArguments {
    /// Arguments for a target that is not configured. The caller sets the plugin later.
    pub(crate) fn of(url: String, settings: Option<String>, secret: Vec<String>) -> Self {
        Self { url: Some(url), settings, secret, polls: 1, ..Self::default() }
    }
}
