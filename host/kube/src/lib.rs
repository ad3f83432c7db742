//! Deployments of a fleet as custom resources of Kubernetes: the operator takes its deployments from them, and writes
//! what it counts into their status.
//!
//! The four requests that this needs (list, watch, and the application of a status and of a finalizer) are made here
//! instead of by a client for everything that a cluster can do, which would be a second HTTP client in addition to
//! that of `egress`, with 27 to 50 further crates. Reference: <https://kubernetes.io/docs/reference/using-api/api-concepts/>
//! and <https://kubernetes.io/docs/reference/using-api/server-side-apply/>.
//!
//! Invariant: a deployment ends when its resource is deleted, also if the operator was away at that time. A finalizer
//! keeps the resource until the operator has seen the deletion.

#![forbid(unsafe_code)]

mod client;
mod controller;
mod resource;

pub use client::Settings;
pub use controller::{Controller, Deployments};
pub use resource::CRD;
