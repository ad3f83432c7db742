//! The API's error responses.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::CommandError;
use serde_json::json;

/// An error response: status, a code for programs, a message, and the field at fault if there is one.
pub(crate) struct ApiError {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
    pub field: Option<&'static str>,
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
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(field) = self.field {
            error["field"] = field.into();
        }
        (self.status, Json(json!({ "error": error }))).into_response()
    }
}

impl From<CommandError> for ApiError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::NoTarget(_) => Self::new(StatusCode::NOT_FOUND, "not_found", error.to_string()),
            CommandError::NoSetting(_) => Self::new(StatusCode::NOT_FOUND, "not_found", error.to_string()),
            CommandError::Conflict(_) => Self::new(StatusCode::CONFLICT, "conflict", error.to_string()),
            CommandError::InFile(_) => Self::new(StatusCode::CONFLICT, "defined_in_file", error.to_string()),
            CommandError::Invalid(_) => Self::new(StatusCode::BAD_REQUEST, "bad_request", error.to_string()),
        }
    }
}
