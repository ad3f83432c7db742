//! The arguments of `targets`.

use clap::{Args, Subcommand};
use config::CHANGEABLE;

/// The actions on targets.
#[derive(Debug, Subcommand)]
pub(crate) enum TargetsCommand {
    /// List every target
    List,
    /// Show one target
    Show {
        /// The target's id
        target: String,
    },
    /// Poll a target now
    Poll {
        /// The target's id
        target: String,
    },
    /// Forget missing dependencies that were removed on purpose
    Dismiss {
        /// The target's id
        target: String,
        /// The dependency's name [default: all missing dependencies]
        dependency: Option<String>,
    },
    /// Enable polling of a target
    Enable {
        /// The target's id
        target: String,
    },
    /// Disable polling of a target; its last known state is kept
    Disable {
        /// The target's id
        target: String,
    },
    /// Change a target's setting until it is unset
    Set {
        /// The target's id
        target: String,
        /// The setting
        #[arg(value_parser = CHANGEABLE)]
        key: String,
        /// The value, for example true, 30s or adaptive
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Revert a change
    Unset {
        /// The target's id
        target: String,
        /// The setting
        #[arg(value_parser = CHANGEABLE)]
        key: String,
    },
    /// Make a target while the host runs. Private addresses need `[egress] api_target_cidrs` in the file
    Add(AddArguments),
    /// Test a target step by step, on the running host: name, addresses, connection, certificate, requests, report
    ///
    /// With --kind and --url, a target that does not exist yet.
    Test(TestArguments),
    /// Delete a target that was made while the host runs
    Remove {
        /// The target's id
        target: String,
    },
}

/// The arguments of `targets test`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TestArguments {
    /// The target's id
    pub target: String,
    /// The kind of a target that does not exist yet
    #[arg(long, requires = "url")]
    pub kind: Option<String>,
    /// Its URL
    #[arg(long, requires = "kind")]
    pub url: Option<String>,
    #[command(flatten)]
    pub definition: DefinitionArguments,
}

/// The arguments of `targets add`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AddArguments {
    /// The new target's id
    pub target: String,
    /// The kind
    #[arg(long)]
    pub kind: String,
    /// The URL
    #[arg(long)]
    pub url: String,
    #[command(flatten)]
    pub definition: DefinitionArguments,
}

/// The optional parts of a target's definition.
#[derive(Clone, Debug, Args)]
pub(crate) struct DefinitionArguments {
    /// The display name [default: the id]
    #[arg(long)]
    pub name: Option<String>,
    /// The settings of the kind, as JSON
    #[arg(long, value_name = "JSON")]
    pub settings: Option<String>,
    /// A secret of the section `[secrets]` of the file, by the name that the kind uses: NAME=SECRET
    #[arg(long, value_name = "NAME=SECRET")]
    pub secret: Vec<String>,
    /// A label: NAME=VALUE
    #[arg(long, value_name = "NAME=VALUE")]
    pub label: Vec<String>,
    /// The base interval, for example 30s
    #[arg(long)]
    pub interval: Option<String>,
    /// The SHA-256 fingerprint of the certificate
    #[arg(long, value_name = "H", conflicts_with = "insecure")]
    pub fingerprint: Option<String>,
    /// Accept any certificate
    #[arg(long)]
    pub insecure: bool,
}
