//! Checks written objects once more if they need it before they count as done.
//!
//! **Late writes.** When a sink or its answer is lost, its write may still be on its way to the store. The object is
//! written again over another route, and the late write may then replace it: with the same bytes or, if the source
//! changed meanwhile, with older ones. So the destination is asked at the end which object it has. Any object but the
//! one that was written, or one with the same bytes, fails as `overwritten`.
//!
//! **Copies in parts that the store made itself.** Their bytes do not pass through a gateway, and a store that ignores
//! the condition on the source may mix two versions. So the source is asked at the end whether it is still the version
//! that was to be copied. If not, the copy is removed.
//!
//! The objects wait in a [`Backlog`](crate::lead::backlog::Backlog), so memory does not limit their number. If its file
//! cannot be written, the job ends. An object that fails the check is not journalled as done, and a `mv` keeps its
//! source. Each check is one `HEAD`, and only few objects need one. A write that arrives after the check goes
//! undetected: see `docs/concepts/integrity.md`.

use super::context::Context;
use crate::failure::object_url;
use crate::lead::copies::is_as_written;
use crate::lead::deletion::delete_objects;
use crate::lead::survey::WorkItem;
use crate::node::work::{Failure, Placed, Side};
use serde::{Deserialize, Serialize};
use tradewind_store::{ErrorKind, ObjectDeletion, Precondition};
use tradewind_wire::Fault;

/// Maximum number of objects checked at once.
pub(super) const LOOKS_AT_ONCE_MAX: usize = 16;

/// An object that is written and proven.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Copied {
    pub(super) item: Box<WorkItem>,
    pub(super) placed: Placed,
    pub(super) retries: u64,
    /// The state in which the source must still be.
    pub(super) source: Option<Precondition>,
}

/// Returns whether the store may still carry out the write of an attempt that failed in this way.
pub(super) fn may_land_late(failure: &Failure) -> bool {
    // A write that the store refused because its condition was not met is over.
    !failure.is_unmet()
        && (failure.fault == Fault::Lost || failure.fault == Fault::Unavailable && failure.side != Some(Side::Source))
}

impl Context {
    /// Returns an error if the copy is missing or not the one that was written.
    pub(super) async fn look_again(&self, copied: &Copied) -> Result<(), Failure> {
        if let Some(condition) = &copied.source {
            let key = &copied.item.source_key;
            let look = self.policy.run("head", self.source.url(), || self.source.head(key)).await;
            let now = look.map_err(|error| Failure::of_store(&error, Side::Source))?;
            if let Some(difference) = condition.difference(&now) {
                return Err(self.take_back_mixed(copied, difference).await);
            }
        }
        let (store, key) = (&self.targets[usize::from(copied.item.target)], &copied.item.target_key);
        match self.policy.run("head", store.url(), || store.head(key)).await {
            Ok(now) if is_as_written(copied.placed.size_bytes, &copied.placed.written, &now) => Ok(()),
            // Credentials that may only write cannot check. The earlier proof still stands.
            Err(error) if error.kind == ErrorKind::Forbidden => Ok(()),
            Err(error) if error.kind != ErrorKind::NotFound => Err(Failure::of_store(&error, Side::Target)),
            _ => Err(Failure::overwritten(&object_url(store.as_ref(), key))),
        }
    }

    /// Removes a copy that may mix two versions.
    async fn take_back_mixed(&self, copied: &Copied, difference: &str) -> Failure {
        let (store, key) = (&self.targets[usize::from(copied.item.target)], &copied.item.target_key);
        let condition = Precondition::written(&copied.placed.written);
        let removed = if condition.is_any() {
            false
        } else {
            let deletion = vec![ObjectDeletion { key: key.clone(), condition }];
            delete_objects(store.as_ref(), deletion, self.policy).await.into_iter().all(|(_, verdict)| verdict.is_ok())
        };
        let then = if removed { "the copy was removed" } else { "the copy stays and may be a mixture of two versions" };
        let message = format!(
            "{}/{}: it changed while it was copied: {difference}; {then}",
            self.source.url(),
            copied.item.source_key
        );
        Failure::new(Fault::Changed, "changed", message)
    }
}
