//! Testing a target step by step in the API.

use crate::api::named;
use crate::definitions;
use crate::error::ApiError;
use crate::state::Shared;
use crate::wire::time;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use model::{TestStep, Tested};
use serde::Serialize;

/// The result of a test.
#[derive(Serialize)]
pub(crate) struct TestWire {
    /// Whether a poll returned a report. Its dependencies may be unhealthy.
    passed: bool,
    steps: Vec<StepWire>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StepWire {
    name: &'static str,
    subject: String,
    took_ms: Option<f64>,
    passed: bool,
    code: Option<String>,
    text: String,
    certificate: Option<CertificateWire>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateWire {
    fingerprint: String,
    subject: String,
    issuer: String,
    not_after: String,
}

fn wire(steps: Vec<TestStep>) -> Json<TestWire> {
    let passed = steps.iter().any(|step| step.name == "report" && step.code.is_none());
    let step = |step: TestStep| StepWire {
        name: step.name,
        subject: step.subject,
        took_ms: step.took.map(|took| took.as_secs_f64() * 1000.0),
        passed: step.code.is_none(),
        code: step.code,
        text: step.text,
        certificate: step.certificate.map(|certificate| CertificateWire {
            fingerprint: certificate.fingerprint,
            subject: certificate.subject,
            issuer: certificate.issuer,
            not_after: time(certificate.not_after),
        }),
    };
    Json(TestWire { passed, steps: steps.into_iter().map(step).collect() })
}

/// Tests a target that is polled.
pub(crate) async fn of_known(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Json<TestWire>, ApiError> {
    Ok(wire(shared.host.test(Tested::Known(named(id)?)).await?))
}

/// Tests a target that does not exist yet.
pub(crate) async fn of_defined(State(shared): State<Shared>, body: Bytes) -> Result<Json<TestWire>, ApiError> {
    let (id, definition) = definitions::sent(&body)?;
    Ok(wire(shared.host.test(Tested::Defined(id, definition)).await?))
}
