//! Refusals as HTTP answers: a status, and `{"error": …, "hint": …}`.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tradewind_contract::Refusal;

/// A request that is not answered with a success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) refusal: Refusal,
}

impl Refused {
    pub(super) fn new(status: StatusCode, error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { status, refusal: Refusal { error: error.into(), hint: Some(hint.into()) } }
    }

    /// The request makes sense as JSON and none as a demand.
    pub(super) fn unprocessable(refusal: Refusal) -> Self {
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, refusal }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.status, Json(self.refusal)).into_response()
    }
}
