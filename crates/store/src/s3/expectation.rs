//! Conditions on what a write replaces.
//!
//! Amazon S3 and many compatible servers check `If-None-Match: *` and `If-Match`, Google a generation. If a server
//! refuses them (501, or 403 where `If-Match` needs the right to read), the write is sent without, and the refusal is
//! remembered. A server that ignores conditions cannot be distinguished from one that checks them.

use super::Bucket;
use super::errors::may_refuse_condition;
use super::send::Refusal;
use crate::rest::Call;
use crate::{ErrorKind, Expect, Result};
use http::{Response, StatusCode};
use hyper::body::Incoming;
use std::sync::atomic::{AtomicBool, Ordering};

/// Conditions that a server has refused so far.
#[derive(Debug, Default)]
pub(super) struct Taken {
    refuses_all: AtomicBool,
    /// Separate, because `If-Match` may need more rights than `If-None-Match`.
    refuses_match: AtomicBool,
}

/// A header that makes a write conditional.
pub(super) struct Condition {
    name: &'static str,
    value: String,
    is_match: bool,
}

impl Condition {
    pub(super) fn value(&self) -> &str {
        &self.value
    }
}

impl Bucket {
    /// The header that expresses `expect` to this server; `None` if there is none.
    pub(super) fn condition(&self, expect: Option<&Expect>) -> Option<Condition> {
        let taken = &self.write_conditions;
        if taken.refuses_all.load(Ordering::Relaxed) {
            return None;
        }
        match (expect?, self.dialect.if_version) {
            (Expect::Absent, Some(name)) => Some(Condition { name, value: "0".to_owned(), is_match: false }),
            (Expect::Absent, None) => Some(Condition { name: "if-none-match", value: "*".to_owned(), is_match: false }),
            (Expect::Is(_), _) if taken.refuses_match.load(Ordering::Relaxed) => None,
            (Expect::Is(state), Some(name)) => {
                state.version.clone().map(|value| Condition { name, value, is_match: true })
            }
            // A weak ETag matches nothing (RFC 9110 §13.1.1).
            (Expect::Is(state), None) => state.etag.as_ref().filter(|etag| !etag.contains('"')).map(|etag| Condition {
                name: "if-match",
                value: format!("\"{etag}\""),
                is_match: true,
            }),
        }
    }

    /// Sends the call from `make` with `condition`. If the server's refusal may be due to the condition, the call is
    /// sent again without it. If that succeeds, the condition was the reason, and the server gets no more of them.
    pub(super) async fn send_on(
        &self,
        condition: Option<&Condition>,
        make: impl Fn() -> Result<Call>,
    ) -> Result<Response<Incoming>, Refusal> {
        let mut call = make()?;
        let Some(condition) = condition else { return self.send(call).await };
        call.set(condition.name, &condition.value)?;
        let mut refusal = match self.send(call).await {
            Err(refusal) => refusal,
            done => return done,
        };
        let is_forbidden = condition.is_match && refusal.status == StatusCode::FORBIDDEN;
        if is_forbidden || may_refuse_condition(refusal.status, &refusal.code) {
            let response = self.send(make()?).await?;
            let taken = &self.write_conditions;
            let refused = if is_forbidden { &taken.refuses_match } else { &taken.refuses_all };
            refused.store(true, Ordering::Relaxed);
            tracing::debug!(store = %self.url, header = condition.name, "the server refuses conditions on writes");
            return Ok(response);
        }
        // Amazon S3 answers `If-Match` this way if the object does not exist. For a copy, it may also mean that the
        // source is missing.
        if refusal.code == "NoSuchKey" && refusal.error.operation != "copy" {
            refusal.error.kind = ErrorKind::PreconditionFailed;
        }
        Err(refusal)
    }
}
