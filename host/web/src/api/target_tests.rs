//! Testing a target step by step.

use super::definitions::{self, DefinitionWire};
use super::query::{TargetPath, named};
use crate::error::ApiError;
use crate::state::Shared;
use crate::wire::Time;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use model::{TestStep, Tested};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(of_known)).routes(routes!(of_defined))
}

/// The result of a test.
#[derive(Serialize, ToSchema)]
#[schema(as = TargetTest)]
struct TestWire {
    /// Whether a poll returned a report. Its dependencies may be unhealthy.
    passed: bool,
    steps: Vec<StepWire>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TestStep)]
struct StepWire {
    name: &'static str,
    subject: String,
    took_ms: Option<f64>,
    passed: bool,
    code: Option<String>,
    text: String,
    certificate: Option<CertificateWire>,
}

/// A certificate that the server sent, also if it was refused.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Certificate)]
struct CertificateWire {
    fingerprint: String,
    subject: String,
    issuer: String,
    not_after: Time,
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
            not_after: Time::new(certificate.not_after),
        }),
    };
    Json(TestWire { passed, steps: steps.into_iter().map(step).collect() })
}

/// Tests a target that is polled.
#[utoipa::path(
    post, path = "/api/v1/targets/{id}/test", tag = "targets", params(TargetPath),
    responses((status = 200, body = TestWire, description = "The steps, up to one that failed."))
)]
async fn of_known(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Json<TestWire>, ApiError> {
    Ok(wire(shared.host.test(Tested::Known(named(id)?)).await?))
}

/// Tests a target that does not exist yet.
#[utoipa::path(
    post, path = "/api/v1/target-tests", tag = "targets", request_body = DefinitionWire,
    responses((status = 200, body = TestWire, description = "The steps, up to one that failed."))
)]
async fn of_defined(State(shared): State<Shared>, body: Bytes) -> Result<Json<TestWire>, ApiError> {
    let (id, definition) = definitions::sent(&body)?;
    Ok(wire(shared.host.test(Tested::Defined(id, definition)).await?))
}
