//! Refusals as HTTP answers: a status, and `{"error": …, "hint": …}`.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tradewind_contract::Refusal;

/// A request that gets an error answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) refusal: Refusal,
}

impl Refused {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { status, refusal: Refusal { error: error.into(), hint: Some(hint.into()) } }
    }

    /// The request is valid JSON but cannot be carried out.
    pub(crate) fn unprocessable(refusal: Refusal) -> Self {
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, refusal }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.status, Json(self.refusal)).into_response()
    }
}
