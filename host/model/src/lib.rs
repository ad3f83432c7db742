//! The domain types of Polliwog.
//!
//! Every host crate may depend on this crate. It depends on no other host crate and has no serde, no I/O and no clock.
//! A boundary (API, database, WIT, file) has separate wire types and conversions.

#![forbid(unsafe_code)]

mod alert;
mod delivery;
mod event;
mod examination;
mod failure;
mod fleet;
mod history;
mod ids;
mod latency;
mod log_page;
mod outcome;
mod pulse;
mod replay;
mod report;
mod routing;
mod schedule;
mod state;
mod surface;
mod text;
mod time;
mod token;

pub use alert::{
    Acknowledgement, AlertEvent, AlertRecord, AlertState, Before, Class, LastNotified, LastPoller, MAYBE, NewSilence,
    Notification, NotifiedAlert, Resolution, SilencePeriod, SilenceState, Subject, TargetTraits, UnlistedAlert,
};
pub use delivery::{AlertChange, AlertProgress, ChannelState, Delivery, DeliveryFilter, DeliveryState};
pub use event::{Event, EventKind, SequencedEvent};
pub use examination::{TestStep, Tested, TestedCertificate};
pub use failure::{Cause, Failure, FailureCategory};
pub use fleet::{
    Acknowledged, DeploymentReport, FleetChange, FleetPlace, FleetRecord, KeptPlace, KeptRecord, Phase, QueuedRecord,
};
pub use history::{ErrorChange, History, PollChange, StatusChange};
pub use ids::{InvalidId, Kind, TargetId};
pub use latency::{LATENCY_WINDOW, LatencyPoint, LatencySummary, LatencyWindow, Sketch};
pub use log_page::LogPage;
pub use outcome::Outcome;
pub use pulse::{Alive, Pulse};
pub use replay::{Replay, ReplayRow};
pub use report::{Dependency, Json, Report, Sample, SampleKind, Status};
pub use routing::{RouteExplanation, RouteStep};
pub use schedule::{Breaker, BreakerState, Cadence, Counters, DeadLetter, DeadReason, Place, Rate, Rates, Schedule};
pub use state::{
    DependencyRecord, DependencyState, Observed, PluginValues, PollFailure, TargetInfo, TargetSource, TargetState,
    Volatile, nothing_checked,
};
pub use surface::{
    Ask, CommandError, Definition, Explanation, KindDescription, LoopState, Phases, PluginState, PluginUsage,
    PollMeasure, SchedulerState, SecretDescription, ServedPlugin, Setting, SettingSource, StatusPage, Term,
};
pub use text::{clean, cleaned, hex, is_invisible, short_duration};
pub use time::{Moment, Timestamp};
pub use token::{AccessChange, Scope, Session, Token};
