//! The arguments of `alerts`, `silence`, `channel` and `route`.

use super::Remote;
use clap::Subcommand;

/// The actions on alerts.
#[derive(Debug, Subcommand)]
pub(crate) enum AlertsCommand {
    /// List alerts
    List {
        /// Only those in this state
        #[arg(long, default_value = "open", value_parser = ["open", "pending", "firing", "resolved"])]
        state: String,
    },
    /// Acknowledge an alert: it is not repeated until it is over or gets worse
    Ack {
        /// The alert's id
        id: String,
        /// Your name [default: that of your login]
        #[arg(long)]
        by: Option<String>,
    },
    /// Take an acknowledgement back
    Unack {
        /// The alert's id
        id: String,
    },
}

/// The actions on silences.
#[derive(Debug, Subcommand)]
pub(crate) enum SilenceCommand {
    /// List silences that are active or to come, and recurring ones
    List,
    /// Silence the alerts that match all conditions, until an end
    Add {
        /// Conditions, as in target=nas, kind=~p(ve|bs) or label.site!=zurich
        #[arg(required = true, value_name = "CONDITION")]
        conditions: Vec<String>,
        /// How long, as in 2h
        #[arg(long = "for", value_name = "DURATION")]
        length: String,
        /// The reason
        #[arg(long, default_value = "")]
        comment: String,
        /// Your name [default: that of your login]
        #[arg(long)]
        by: Option<String>,
        /// Only show which alerts it would silence now
        #[arg(long)]
        preview: bool,
    },
    /// End a silence
    End {
        /// The silence's id
        id: String,
    },
}

/// The actions on channels.
#[derive(Debug, Subcommand)]
pub(crate) enum ChannelCommand {
    /// List channels, with what waits and what is wrong
    List,
    /// Send a test notification and wait for its outcome
    Test {
        /// The channel's name
        name: String,
    },
    /// List notifications, the newest first
    Deliveries {
        /// Only those of this channel
        #[arg(long)]
        channel: Option<String>,
        /// Only those in this state
        #[arg(long, value_parser = ["waiting", "delivered", "undeliverable", "replaced"])]
        state: Option<String>,
    },
    /// Try a notification again, at once
    Retry {
        /// The notification's number
        number: u64,
    },
}

/// The actions on routes.
#[derive(Debug, Subcommand)]
pub(crate) enum RouteCommand {
    /// Show which routes apply to an alert, which channels are notified, and why
    Explain {
        /// The target, or target/dependency
        #[arg(value_name = "TARGET[/DEPENDENCY]")]
        alert: String,
        #[command(flatten)]
        common: Remote,
    },
}
