//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use config::{CHANGEABLE, Places};
use std::path::PathBuf;

/// The exit code of wrong usage (EX_USAGE of sysexits).
pub(crate) const USAGE: u8 = 64;

/// The command that this program starts itself with to compile a plugin.
pub(crate) const COMPILE_PLUGIN: &str = "compile-plugin";

/// Polls things and says how they are.
#[derive(Debug, Parser)]
#[command(name = "polliwog", version, about, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    /// What is to be done.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// What is logged on stderr: error, warn, info, debug (with what plugins print) or trace [default: info for run, else
    /// warn; POLLIWOG_LOG_LEVEL]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<tracing::Level>,
    /// How a line of the log is written [default: text; POLLIWOG_LOG_FORMAT]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the host
    Run(RunArguments),
    /// Validate configuration, plugins and settings: every problem with file, line and remedy
    ///
    /// Each target is polled as far as that goes without sending anything, so that a request that would be refused is found.
    Check {
        #[command(flatten)]
        common: Common,
        /// Accept kinds that no plugin serves yet
        #[arg(long)]
        allow_missing_plugins: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Poll once, now, in this process, storing nothing
    ///
    /// Exit code: 0 ok, 1 warning, 2 critical, 3 unknown or failed; of several, critical before unknown before warning.
    /// 64: wrong usage, or settings that the plugin does not take.
    Poll(PollArguments),
    /// Why a target of the running host is polled next when it is
    Explain {
        /// The target's id
        target: String,
        #[command(flatten)]
        common: Remote,
    },
    /// How the running host is doing
    Status {
        #[command(flatten)]
        common: Remote,
    },
    /// The targets of the running host
    Targets {
        /// What is to be done with them [default: list]
        #[command(subcommand)]
        command: Option<TargetsCommand>,
        #[command(flatten)]
        common: Remote,
    },
    /// Targets of the running host that have failed for long and are looked at rarely (dead letters)
    DeadLetter {
        /// What is to be done with them [default: list]
        #[command(subcommand)]
        command: Option<DeadLetterCommand>,
        #[command(flatten)]
        common: Remote,
    },
    /// Circuit breakers of the running host that are not closed, or count failures
    Breaker {
        /// What is to be done with them [default: list]
        #[command(subcommand)]
        command: Option<BreakerCommand>,
        #[command(flatten)]
        common: Remote,
    },
    /// Settings of the running host, with where each comes from
    Settings {
        /// What is to be done with them [default: get]
        #[command(subcommand)]
        command: Option<SettingsCommand>,
        #[command(flatten)]
        common: Remote,
    },
    /// How late each cadence sees changes on a made-up estate, at an equal number of polls
    ///
    /// The estate is JSON: `targets`, `classes` (each with `share`, `incidentsPerDay`, `incidentLength`, and where wanted
    /// `name`, `latency`, `failureRate`, `interval`), and where wanted `name`, `duration`, `targetsPerHost`,
    /// `baseInterval`, `minInterval`, `maxInterval`, `maxInFlight`, `maxPerHost` and `outages` (each with `at`, `length`,
    /// `share`). Durations are written "30s", "5m", "2h", "1d", or as seconds.
    Simulate {
        /// The estate's file
        #[arg(value_name = "ESTATE.json")]
        estate: PathBuf,
        /// What decides every chance
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// The admin token of the running host
    Token {
        /// What is to be done
        #[command(subcommand)]
        command: TokenCommand,
        #[command(flatten)]
        common: Remote,
    },
    /// Serve recorded bodies of Proxmox products from a directory, so that they can be polled
    ///
    /// A body is named by what it answers, with _ for / (pve/cluster_resources.json), and stands in a simulated estate that
    /// answers everything else. A recording, as poll --record writes it, answers what it holds. Each is served under its
    /// name; GET / lists them.
    Replay {
        /// The directory
        dir: PathBuf,
        /// Where to listen, on 127.0.0.1
        #[arg(long, default_value_t = demo::REPLAY_PORT)]
        port: u16,
    },
    /// How a Proxmox product becomes a target: its certificate to confirm, what to run there, what to paste here
    Setup(SetupArguments),
    /// For plugin authors
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Compile a plugin from stdin to stdout: what this program starts itself for
    #[command(name = COMPILE_PLUGIN, hide = true)]
    CompilePlugin,
}

/// Where things lie.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Common {
    /// The configuration [default: ./polliwog.toml, then the XDG place, then /etc/polliwog]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where data lies [default: the XDG place]
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl Common {
    /// The same for the configuration.
    pub(crate) fn places(&self) -> Places {
        Places { config: self.config.clone(), data_dir: self.data_dir.clone() }
    }
}

/// For commands that ask the running host: POLLIWOG_URL says where it is, POLLIWOG_TOKEN holds its admin token.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Remote {
    #[command(flatten)]
    pub common: Common,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// What is to be done with targets.
#[derive(Debug, Subcommand)]
pub(crate) enum TargetsCommand {
    /// Every target
    List,
    /// One target
    Show {
        /// Its id
        target: String,
    },
    /// Poll it now
    Poll {
        /// Its id
        target: String,
    },
    /// Forget dependencies that it reports no more: they are meant to be gone
    Dismiss {
        /// Its id
        target: String,
        /// One of them [default: all that are missing]
        dependency: Option<String>,
    },
    /// Poll it again
    Enable {
        /// Its id
        target: String,
    },
    /// Poll it no more; what is known of it stays
    Disable {
        /// Its id
        target: String,
    },
    /// Change its interval or cadence, until it is unset
    Set {
        /// Its id
        target: String,
        /// What is changed
        #[arg(value_parser = CHANGEABLE)]
        key: String,
        /// Its value: true or false, 30s, adaptive
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Take a change back
    Unset {
        /// Its id
        target: String,
        /// What was changed
        #[arg(value_parser = CHANGEABLE)]
        key: String,
    },
}

/// What is to be done with the admin token.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Print the admin token that the host made, from its data directory
    Show {
        /// From the demo's data directory
        #[arg(long)]
        demo: bool,
    },
    /// Make another one and print it; the one before is not right any more, and pages must log in again
    Rotate,
}

/// What is to be done with dead letters.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterCommand {
    /// Every dead letter
    List,
    /// Poll it now, like everybody
    Retry {
        /// The target's id
        #[arg(required_unless_present = "all")]
        target: Option<String>,
        /// Every one
        #[arg(long, conflicts_with = "target")]
        all: bool,
    },
    /// Look at it no more: its target is disabled, until it is enabled again
    Drop {
        /// The target's id
        target: String,
    },
}

/// What is to be done with breakers.
#[derive(Debug, Subcommand)]
pub(crate) enum BreakerCommand {
    /// Every breaker that is not closed, or counts failures
    List,
    /// Close it, forget the failures, and poll now
    Reset {
        /// The target's id
        target: String,
    },
}

/// What is to be done with settings.
#[derive(Debug, Subcommand)]
pub(crate) enum SettingsCommand {
    /// One setting, or all
    Get {
        /// Its key, as scheduler.cadence or target.ID.interval
        key: Option<String>,
    },
    /// Change one; it stays changed, and wins over the file, until it is unset
    Set {
        /// Its key
        key: String,
        /// Its value, as it is written in the file
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Take a change back
    Unset {
        /// Its key
        key: String,
    },
}

/// What `run` is told.
#[derive(Args, Debug)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub common: Common,
    /// Add simulated services to poll; needs no configuration
    #[arg(long)]
    pub demo: bool,
    /// Where the simulated services listen (they take this port and the next)
    #[arg(long, value_name = "PORT", default_value_t = demo::PORT, requires = "demo")]
    pub demo_port: u16,
}

/// What `setup` is told.
#[derive(Args, Debug)]
pub(crate) struct SetupArguments {
    /// Which product
    pub product: ProductName,
    /// Where it is: a URL, or a host's name alone
    pub url: String,
    /// The fingerprint that was confirmed: it is compared, and a cluster is asked for its members only where it is the same
    #[arg(long, value_name = "SHA256")]
    pub fingerprint: Option<String>,
    /// The token, or password, for that: token=env:VARIABLE or token=file:PATH
    #[arg(long, value_name = "NAME=SOURCE")]
    pub secret: Option<String>,
    /// The account that the password is of, for pmg: polliwog@pmg unless told otherwise
    #[arg(long, value_name = "USER@REALM")]
    pub username: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A Proxmox product.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ProductName {
    /// Proxmox VE
    Pve,
    /// Proxmox Backup Server
    Pbs,
    /// Proxmox Mail Gateway
    Pmg,
}

/// What `poll` is told.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct PollArguments {
    /// A target of the configuration
    #[arg(required_unless_present_any = ["kind", "plugin"], conflicts_with_all = ["kind", "plugin", "url", "settings", "secret", "fingerprint", "insecure"])]
    pub target: Option<String>,
    /// The kind of something that is in no configuration
    #[arg(long, requires = "url")]
    pub kind: Option<String>,
    /// A plugin's file, which polls it instead of those that would serve its kind
    #[arg(long, value_name = "FILE", requires = "url", conflicts_with = "kind")]
    pub plugin: Option<PathBuf>,
    /// Its URL
    #[arg(long)]
    pub url: Option<String>,
    /// Its settings, as JSON
    #[arg(long, value_name = "JSON")]
    pub settings: Option<String>,
    /// A secret: NAME=env:VARIABLE or NAME=file:PATH
    #[arg(long, value_name = "NAME=SOURCE")]
    pub secret: Vec<String>,
    /// The SHA-256 of its certificate
    #[arg(long, value_name = "H", conflicts_with = "insecure")]
    pub fingerprint: Option<String>,
    /// Take any certificate
    #[arg(long)]
    pub insecure: bool,
    /// Write every exchange to this file, secrets masked, for `plugin test` and `plugin bench`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub common: Common,
}

impl PollArguments {
    /// For something that is in no configuration; by which plugin is said later.
    pub(crate) fn of(url: String, settings: Option<String>, secret: Vec<String>) -> Self {
        Self { url: Some(url), settings, secret, ..Self::default() }
    }
}

/// A language that plugins are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// With the SDK
    Rust,
    /// With componentize-js
    Js,
    /// With componentize-py
    Python,
}

/// What is to be done for the author of a plugin.
#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// The plugins of the running host; where none answers, those that this configuration would load
    List {
        #[command(flatten)]
        common: Common,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Allow a file of the plugin directory to take over a kind that has targets
    ///
    /// What is allowed are these very bytes; the running host takes them within seconds.
    Accept {
        /// Its name in the plugin directory, or its path
        file: PathBuf,
        #[command(flatten)]
        common: Common,
    },
    /// Make a project for a plugin, which builds, passes its test and polls the demo
    New {
        /// What operators will write as `kind`, and the folder that is made
        name: String,
        /// The language
        #[arg(long, value_enum, default_value_t = Language::Rust)]
        lang: Language,
    },
    /// Replay recordings and compare what comes of them with their golden reports
    ///
    /// A recording is a file in the project's folder `recordings`, as `poll --record` writes it; its golden report lies
    /// beside it as NAME.report.json.
    Test {
        /// The project's folder, or a plugin's file with a folder `recordings` beside it
        #[arg(default_value = ".")]
        path: PathBuf,
        /// Write the golden reports anew
        #[arg(long)]
        update: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Build a project's plugin and poll with it, again each time that a source of it is saved; Ctrl-C ends it
    Watch {
        /// The project's folder
        #[arg(default_value = ".")]
        path: PathBuf,
        /// What is polled
        #[arg(long)]
        url: String,
        /// Its settings, as JSON
        #[arg(long, value_name = "JSON")]
        settings: Option<String>,
        /// A secret: NAME=env:VARIABLE or NAME=file:PATH
        #[arg(long, value_name = "NAME=SOURCE")]
        secret: Vec<String>,
    },
    /// Write the contract between host and plugins (WIT) into a folder
    Wit {
        /// The folder
        dir: PathBuf,
    },
    /// Bring what a project holds of Polliwog (SDK or helpers, and contract) up to what this program has
    Update {
        /// The project's folder
        #[arg(default_value = ".")]
        path: PathBuf,
    },
    /// Try a plugin that is in quarantine now: one of its targets is polled, and a success ends the quarantine
    Retry {
        /// The kind that it serves
        kind: String,
        #[command(flatten)]
        common: Remote,
    },
    /// What each poll of a plugin costs: CPU, wall clock and memory, over a recording
    Bench {
        /// The plugin's file, or its project's folder
        path: PathBuf,
        /// The recording [default: the first of the project's]
        #[arg(long, value_name = "FILE")]
        recording: Option<PathBuf>,
        /// How many polls
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        polls: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Who a plugin's file says it is, its settings, what it imports, and whether this host would take it
    Inspect {
        /// The file, or the kind of a plugin that comes with this program
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
