//! Which routes an alert takes, and why.

use crate::{AlertRecord, Status};
use std::sync::Arc;

/// The way of an alert through the routes.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteExplanation {
    /// The alert, if it is open.
    pub alert: Option<Arc<AlertRecord>>,
    /// The status by which the routes were compared.
    pub status: Status,
    /// The routes in order, each with its outcome.
    pub routes: Vec<RouteStep>,
    /// The ids of the active silences that match.
    pub silenced_by: Vec<String>,
}

/// The comparison of an alert with one route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteStep {
    /// The name of the route.
    pub name: String,
    /// The conditions: attributes, and each with its condition as it was written.
    pub conditions: Vec<(String, String)>,
    /// The channels.
    pub channels: Vec<String>,
    /// Whether it applies.
    pub applies: bool,
    /// Why it does or does not.
    pub why: String,
}
