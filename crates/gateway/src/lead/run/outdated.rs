//! A look at each source file when its copy in an object store is complete.
//!
//! A file that is rewritten between its last read and the end of its write has an older copy with a younger time: the
//! store gives a copy the time of its writing. No later `sync` would notice, for it takes a destination that is not older
//! for the same. So the file is looked at once more, with one `stat`. If it changed, it is copied again once, and then
//! reported as `changed`.
//!
//! No other copies need this. Between file systems a copy keeps its source's time. `mv` looks at each source before it
//! deletes it. A `HEAD` for each object of a store costs money, so for those `docs/concepts/integrity.md` names the gap.

use super::doubted::Copied;
use super::{Running, Shared};
use crate::failure::object_url;
use crate::lead::journal::Entry;
use crate::lead::survey::{SurveyError, WorkItem};
use crate::node::work::{Failure, Placed, Side};
use std::sync::Arc;
use tokio::sync::mpsc;
use tradewind_store::{Error, Expect, ObjectInfo, Precondition, UploadId};
use tradewind_wire::Fault;

/// An object that is written and proven, whose source may have changed meanwhile.
pub(super) struct Fresh {
    pub(super) item: WorkItem,
    pub(super) placed: Placed,
    pub(super) retries: u64,
    /// State in which the source was read.
    pub(super) condition: Precondition,
    pub(super) may_restart: bool,
    /// Bytes that were counted as acked.
    pub(super) acked_bytes: u64,
    /// Of these, what earlier runs had acked.
    pub(super) earlier_bytes: u64,
    /// The upload that made the object, if it was written in parts.
    pub(super) upload: Option<UploadId>,
}

/// A look that has ended.
pub(super) struct Looked {
    fresh: Fresh,
    now: Result<ObjectInfo, Error>,
}

/// The looks under way. There are no more than the state machine lets objects finish at once.
pub(super) struct Outdated {
    under_way: u64,
    ended: (mpsc::UnboundedSender<Looked>, mpsc::UnboundedReceiver<Looked>),
}

impl Outdated {
    pub(super) fn new() -> Self {
        Self { under_way: 0, ended: mpsc::unbounded_channel() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Looks at the source of an object. The task cannot panic: the store's own work runs on another thread.
    pub(super) fn look(&mut self, setup: Arc<Shared>, fresh: Fresh) {
        self.under_way += 1;
        let ended = self.ended.0.clone();
        tokio::spawn(async move {
            let key = &fresh.item.source_key;
            let now = setup.policy.run("head", setup.source.url(), || setup.source.head(key)).await;
            // If the lead is gone, so is the job.
            ended.send(Looked { fresh, now }).ok();
        });
    }

    /// The next look that has ended.
    pub(super) async fn next(&mut self) -> Option<Looked> {
        self.ended.1.recv().await
    }
}

impl Running {
    /// Whether no later `sync` would notice that the source changed before its copy was complete.
    pub(super) fn may_be_outdated(&self, item: &WorkItem) -> bool {
        let is_file = |store: &str| store.starts_with("file:");
        let target = &self.setup.targets[usize::from(item.target)];
        is_file(self.setup.source.url())
            && !is_file(target.url())
            && !self.setup.job.delete_source
            && item.check.is_none()
            && !item.source_key.ends_with('/')
    }

    /// Concludes an object whose source is as it was read; another one is copied again, or fails.
    pub(super) async fn looked(&mut self, looked: Looked) -> Result<(), SurveyError> {
        self.outdated.under_way -= 1;
        let Looked { fresh, now } = looked;
        let failure = match &now {
            Ok(now) => match fresh.condition.difference(now) {
                None => return self.settle(fresh).await,
                Some(difference) => {
                    changed(&object_url(self.setup.source.as_ref(), &fresh.item.source_key), difference)
                }
            },
            Err(error) => Failure::of_store(error, Side::Source),
        };
        let Fresh { mut item, placed, retries, acked_bytes, earlier_bytes, may_restart, upload, .. } = fresh;
        self.tally.unacked(item.target, acked_bytes, earlier_bytes);
        if upload.is_some() {
            // It is complete, so there is nothing to resume.
            let (target, target_key) = (item.target, item.target_key.clone());
            self.journal.record(Entry::Abandoned { target, target_key, upload }).await?;
        }
        if now.is_ok() && may_restart && self.stopping.is_none() {
            self.tally.retried();
            let own_copy = Precondition::written(&placed.written);
            item.expect = (!own_copy.is_any()).then_some(Expect::Is(own_copy));
            self.load(item, true);
        } else {
            self.object_failed(&item, &failure, retries).await;
        }
        Ok(())
    }

    async fn settle(&mut self, fresh: Fresh) -> Result<(), SurveyError> {
        let Fresh { item, placed, retries, .. } = fresh;
        let copied = Copied { item, placed, retries, source: None };
        if copied.item.may_land_late { self.doubt(copied).await } else { self.conclude(copied).await }
    }
}

fn changed(url: &str, difference: &str) -> Failure {
    let message = format!("{url}: it changed while it was copied: {difference}");
    let failure = Failure::new(Fault::Changed, "changed", message);
    Failure { hint: Some("copy it again when nobody writes to it".to_owned()), side: Some(Side::Source), ..failure }
}
