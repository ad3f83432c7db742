//! Commands to the scheduler, and answers that resources share.

use super::query::named;
use crate::error::ApiError;
use crate::state::Shared;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::Ask;
use serde::Serialize;
use utoipa::ToSchema;

/// A command was accepted.
#[derive(Serialize, ToSchema)]
#[schema(as = Accepted)]
pub(super) struct AcceptedWire {
    accepted: bool,
}

/// The deletion of something.
#[derive(Serialize, ToSchema)]
#[schema(as = Deleted)]
pub(super) struct DeletedWire {
    pub(super) deleted: String,
}

/// Applies a command to the schedule of the target with this id.
pub(super) async fn ask(shared: &Shared, id: String, ask: Ask) -> Result<Response, ApiError> {
    shared.host.ask(&named(id)?, ask).await?;
    Ok((StatusCode::ACCEPTED, Json(AcceptedWire { accepted: true })).into_response())
}
