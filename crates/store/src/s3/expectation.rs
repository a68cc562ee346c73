//! Conditions on what a write replaces.
//!
//! Amazon S3 and many compatible servers check `If-None-Match: *` and `If-Match`, Google a generation. A server that
//! refuses them (501, or 403 where `If-Match` needs the right to read) gets the write without, and is remembered. One that
//! ignores them cannot be told from one that checks.

use super::Bucket;
use super::errors::may_refuse_condition;
use super::send::Refusal;
use crate::rest::Call;
use crate::{ErrorKind, Expect, Result};
use http::{Response, StatusCode};
use hyper::body::Incoming;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which conditions a server takes, until it is seen to refuse them.
#[derive(Debug, Default)]
pub(super) struct Taken {
    refuses_all: AtomicBool,
    /// `If-Match` may need more rights than `If-None-Match`.
    refuses_match: AtomicBool,
}

/// A header that makes a write conditional.
pub(super) struct Condition {
    name: &'static str,
    value: String,
    is_match: bool,
}

impl Bucket {
    /// How to say `expect` to this server; `None` if it cannot be said.
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

    /// Sends the call that `make` makes, on `condition`. If the server refuses it perhaps because of the condition, it is
    /// sent without; where that works, the condition was the reason, and the server gets none any more.
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
        // The answer of Amazon S3 to `If-Match` where there is no object. To a copy it may also mean the original.
        if refusal.code == "NoSuchKey" && refusal.error.operation != "copy" {
            refusal.error.kind = ErrorKind::PreconditionFailed;
        }
        Err(refusal)
    }
}
