//! Decides who is notified of what, and when.
//!
//! [`Notifier`] is sans-I/O: call `apply(input, now)`, then drain the actions. [`Notifier::next_wakeup`] returns the
//! time at which the next action follows from time alone. It has no clock, no randomness and no tokio.
//!
//! It confirms alerts, suppresses those that another alert explains, silences, groups and repeats them, and holds them
//! back while the host itself cannot reach the network. It does not send anything: a [`model::Notification`] is an
//! action, which the caller stores together with the records of its alerts.
//!
//! The rules are level-triggered: for each alert and channel the notifier compares the last message, which is part of
//! the alert's record, with the alert's state. A restart therefore loses nothing and repeats nothing.
//!
//! Invariant: a channel that was notified of an alert is notified of its end.
//! Invariant: the alert that explains all others is never suppressed.
//! Invariant: the same inputs with the same times give the same actions.

#![forbid(unsafe_code)]

mod alert;
mod blind;
mod groups;
mod input;
mod matcher;
mod message;
mod notifier;
mod ranks;
mod route;
mod silence;
mod window;

pub use blind::NETWORK;
pub use groups::MAX_OPEN;
pub use input::{
    Action, ChannelTraits, Finding, Health, Input, Now, Outcome, Polled, Reading, Settings, TakenOver, TargetSpec,
    Trouble, Unsent,
};
pub use matcher::{ATTRIBUTES, Attributes, InvalidMatcher, Matcher, Matchers};
pub use notifier::{LISTED, Notifier};
pub use route::{Route, RouteChoice, choose};
pub use silence::{Silence, SilenceTime};
pub use window::{InvalidWindow, Window};
