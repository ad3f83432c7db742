//! The API's error responses.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::CommandError;
use serde::Serialize;
use utoipa::ToSchema;

/// An error response: status, a code for programs, a message, and the field at fault if there is one.
pub(crate) struct ApiError {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
    pub field: Option<&'static str>,
}

/// An error.
#[derive(Serialize, ToSchema)]
#[schema(as = Error)]
pub(crate) struct ErrorWire {
    error: ProblemWire,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
struct ProblemWire {
    /// A word for programs.
    code: &'static str,
    /// One sentence: what is wrong, and what to do.
    message: String,
    /// The field at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'static str>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), field: None }
    }

    pub(crate) fn too_many_guesses() -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too_many_guesses",
            "too many wrong tokens from this address: wait a moment",
        )
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self { status, code, message, field } = self;
        (status, Json(ErrorWire { error: ProblemWire { code, message, field } })).into_response()
    }
}

impl From<CommandError> for ApiError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::NoTarget(_) | CommandError::Missing(_) => {
                Self::new(StatusCode::NOT_FOUND, "not_found", error.to_string())
            }
            CommandError::Conflict(_) => Self::new(StatusCode::CONFLICT, "conflict", error.to_string()),
            CommandError::InFile(_) => Self::new(StatusCode::CONFLICT, "defined_in_file", error.to_string()),
            CommandError::Invalid(_) => Self::new(StatusCode::BAD_REQUEST, "bad_request", error.to_string()),
        }
    }
}
