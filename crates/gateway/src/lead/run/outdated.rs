//! Checks some sources again when their copies are complete: files that were copied to an object store, and objects that
//! had changed while they were copied before.
//!
//! If a file is rewritten between its last read and the end of the copy's write, the copy is older than the file but
//! has a later time, because the store sets the time of the write. No later `sync` would notice, because it treats a
//! destination that is not older as the same. So the file is checked once more, with one `stat`. If it has changed, it
//! is copied again once, and after that reported as `changed`.
//!
//! An object that has changed once is probably still being written: the version that is copied then may be half of what
//! is meant, for example a file that was just emptied. So it is checked once more in every kind of store.
//!
//! No other copies need this. Between file systems a copy keeps its source's time. `mv` checks each source before it
//! deletes it. Between object stores, a `HEAD` per object would cost money, so `docs/concepts/integrity.md` documents
//! the gap instead.

use super::context::Context;
use crate::lead::survey::WorkItem;
use crate::node::work::{Failure, Placed, Side};
use std::sync::Arc;
use tokio::sync::mpsc;
use tradewind_store::{Error, ObjectInfo, Precondition, UploadId};
use tradewind_wire::Fault;

/// An object that is written and proven, but whose source may have changed meanwhile.
pub(super) struct Fresh {
    pub(super) item: Box<WorkItem>,
    pub(super) placed: Box<Placed>,
    pub(super) retries: u64,
    /// The state in which the source was read.
    pub(super) condition: Precondition,
    pub(super) may_restart: bool,
    /// Bytes that were counted as acknowledged.
    pub(super) acked_bytes: u64,
    /// The part of these that earlier runs transferred.
    pub(super) earlier_bytes: u64,
    /// The upload that made the object, if it was written in parts.
    pub(super) upload: Option<UploadId>,
}

/// A completed check.
pub(super) struct Rechecked {
    pub(super) fresh: Fresh,
    pub(super) now: Result<ObjectInfo, Error>,
}

/// The checks in progress. The state machine bounds them by the number of objects that it lets finish at once.
pub(super) struct Outdated {
    in_progress: u64,
    ended: (mpsc::UnboundedSender<Rechecked>, mpsc::UnboundedReceiver<Rechecked>),
}

impl Outdated {
    pub(super) fn new() -> Self {
        Self { in_progress: 0, ended: mpsc::unbounded_channel() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_progress == 0
    }

    /// Checks the source of an object. The task cannot panic: the store's own work runs on another thread.
    pub(super) fn look(&mut self, context: Arc<Context>, fresh: Fresh) {
        self.in_progress += 1;
        let ended = self.ended.0.clone();
        tokio::spawn(async move {
            let key = &fresh.item.info.key;
            let now = context.policy.run("head", context.source.url(), || context.source.head(key)).await;
            // If the lead has ended, nobody needs the answer.
            ended.send(Rechecked { fresh, now }).ok();
        });
    }

    /// Returns the next completed check.
    pub(super) async fn next(&mut self) -> Option<Rechecked> {
        let rechecked = self.ended.1.recv().await;
        self.in_progress -= u64::from(rechecked.is_some());
        rechecked
    }
}

/// Returns whether the source must be checked again: it `has_changed` before, or no later `sync` would notice that it
/// changed before its copy was complete.
pub(super) fn may_be_outdated(item: &WorkItem, has_changed: bool, context: &Context) -> bool {
    let is_file = |store: &str| store.starts_with("file:");
    let target = &context.targets[usize::from(item.target)];
    (has_changed || is_file(context.source.url()) && !is_file(target.url()))
        && !context.job.delete_source
        && item.check.is_none()
        && !item.info.key.ends_with('/')
}

/// The failure of an object that differs from the one that was read.
pub(super) fn changed(url: &str, difference: &str) -> Failure {
    let message = format!("{url}: it changed while it was copied: {difference}");
    let failure = Failure::new(Fault::Changed, "changed", message);
    Failure { hint: Some("copy it again when no process writes to it".to_owned()), side: Some(Side::Source), ..failure }
}
