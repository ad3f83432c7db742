//! The subcommands of `plugin`.

use super::{Common, Remote};
use clap::{Args, Subcommand, ValueEnum};
use model::AlertEvent;
use std::path::PathBuf;

/// A programming language for plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// Rust with the SDK
    Rust,
    /// JavaScript with componentize-js
    Js,
    /// Python with componentize-py
    Python,
}

/// The commands for plugin authors.
#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// List the plugins of the running host or, if no host answers, those that the configuration would load
    List {
        #[command(flatten)]
        common: Common,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Allow a file of the plugin directory to take over a kind that has targets
    ///
    /// Only the file's present content is allowed. The running host loads it within seconds.
    Accept {
        /// The file's name in the plugin directory, or its path
        file: PathBuf,
        #[command(flatten)]
        common: Common,
    },
    /// Create a plugin project that builds, passes its test and can poll the demo
    New {
        /// The plugin's kind and the name of the new folder
        name: String,
        /// The language
        #[arg(long, value_enum, default_value_t = Language::Rust)]
        lang: Language,
        /// A plugin that sends notifications, instead of one that polls targets
        #[arg(long)]
        notifier: bool,
    },
    /// Send one notification of a made-up alert, as a host does, and show the answer
    Send(SendArguments),
    /// Replay recordings and compare the reports with the golden reports
    ///
    /// A recording is a file in the project's folder `recordings`, written by `poll --record` or `plugin send
    /// --record`. Its golden report is the file NAME.report.json next to it.
    Test {
        /// The project's folder, or a plugin file with a folder `recordings` next to it
        #[arg(default_value = ".")]
        path: PathBuf,
        /// Write the golden reports again
        #[arg(long)]
        update: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Build a project's plugin and poll with it, each time a source file is saved, until Ctrl-C
    Watch {
        /// The project's folder
        #[arg(default_value = ".")]
        path: PathBuf,
        /// The URL to poll
        #[arg(long)]
        url: String,
        /// The target's settings, as JSON
        #[arg(long, value_name = "JSON")]
        settings: Option<String>,
        /// A secret: NAME=env:VARIABLE or NAME=file:PATH, with ,short after it for a value under 8 bytes
        #[arg(long, value_name = "NAME=SOURCE")]
        secret: Vec<String>,
    },
    /// Write the contract between host and plugins (WIT) into a folder
    Wit {
        /// The folder
        dir: PathBuf,
    },
    /// Update a project's copy of the SDK or helpers, and of the contract, to this program's version
    Update {
        /// The project's folder
        #[arg(default_value = ".")]
        path: PathBuf,
    },
    /// Probe a quarantined plugin now: poll one of its targets; a success ends the quarantine
    Retry {
        /// The plugin's kind
        kind: String,
        #[command(flatten)]
        common: Remote,
    },
    /// Measure the cost of a plugin's polls over a recording: CPU, wall-clock time and memory
    Bench {
        /// The plugin file or its project's folder
        path: PathBuf,
        /// The recording [default: the project's first recording]
        #[arg(long, value_name = "FILE")]
        recording: Option<PathBuf>,
        /// The number of polls
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        polls: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a plugin file's description, settings and imports, and whether this host accepts it
    Inspect {
        /// The plugin file, or the kind of a built-in plugin
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The arguments of `plugin send`.
#[derive(Debug, Args)]
pub(crate) struct SendArguments {
    /// The project's folder, a plugin file, or a built-in kind
    #[arg(default_value = ".")]
    pub path: PathBuf,
    /// Where it is sent, as the url of a channel
    #[arg(long)]
    pub url: String,
    /// Settings of the channel, as JSON
    #[arg(long)]
    pub settings: Option<String>,
    /// A secret: NAME=env:VARIABLE or NAME=file:PATH, with ,short after it for a value under 8 bytes
    #[arg(long, value_name = "NAME=SOURCE")]
    pub secret: Vec<String>,
    /// The event that the notification is about
    #[arg(long, value_enum, default_value = "test")]
    pub event: SampleEvent,
    /// The number of alerts in the notification; the summary of the second one is long
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub alerts: u32,
    /// Write the exchanges into a file, which `plugin test` replays
    #[arg(long, value_name = "FILE.json")]
    pub record: Option<PathBuf>,
}

/// The event of a made-up alert.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SampleEvent {
    /// A test of the channel
    Test,
    /// A dependency is critical
    Firing,
    /// It still is, after the interval of repetitions
    Repeated,
    /// It fires and resolves repeatedly
    Flapping,
    /// It is over
    Resolved,
}

impl From<SampleEvent> for AlertEvent {
    fn from(event: SampleEvent) -> Self {
        match event {
            SampleEvent::Test => Self::Test,
            SampleEvent::Firing => Self::Firing,
            SampleEvent::Repeated => Self::Repeated,
            SampleEvent::Flapping => Self::Flapping,
            SampleEvent::Resolved => Self::Resolved,
        }
    }
}
