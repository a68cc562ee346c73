//! Inspects an object before its transfer begins, if the listing does not have enough data.

use super::context::Context;
use super::transfer::{ObjectTransfer, lead_reads_tags, needs_attributes, tag_rule};
use crate::failure::object_url;
use crate::lead::journal::UnfinishedUpload;
use crate::lead::survey::WorkItem;
use crate::node::work::{Failure, Side};
use crate::retry::{RetryPolicy, Unreachable};
use std::time::Duration;
use tokio::sync::mpsc;
use tradewind_store::{Error, ErrorKind, Expect, ObjectInfo, PartTag, Precondition, Store, Tags, UploadId};
use tradewind_wire::Fault;

/// Time limit of a look at a destination. The lead may have no network path to a store that its sinks write to.
const TARGET_LOOK_MAX: Duration = Duration::from_secs(5);

/// Pause before a look at an object that has changed while it was copied. A file that is rewritten is empty or short for
/// a moment, and may have its old time until it is longer.
const SETTLING: Duration = Duration::from_secs(1);

/// Why the transfer of an object begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    First,
    /// An attempt has failed.
    Again,
    /// The source has changed during an attempt.
    Changed,
}

/// A look at an object, for which the lead waits. If it is dropped before its end (its task has panicked), the object
/// fails.
pub(super) struct Look {
    looks: mpsc::Sender<Looked>,
    item: Option<Box<WorkItem>>,
}

impl Look {
    pub(super) fn begin(looks: mpsc::Sender<Looked>, item: &WorkItem) -> Self {
        Self { looks, item: Some(Box::new(item.clone())) }
    }

    pub(super) fn end(mut self, looked: Looked) {
        self.item = None;
        self.tell(looked);
    }

    /// The queue has a slot for each look. If the lead has ended, nobody needs the answer.
    fn tell(&self, looked: Looked) {
        self.looks.try_send(looked).ok();
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            let failure = Failure::new(Fault::Unavailable, "unavailable", "internal error of the gateway; see its log");
            self.tell(Looked::Failed(Box::new((item, failure))));
        }
    }
}

/// An object after a look.
pub(super) enum Looked {
    /// It can be transferred.
    Ready(Box<ObjectTransfer>),
    /// Its name leads to no object with another name. The flag says whether the destination already has it unchanged.
    Judged(Box<(Box<WorkItem>, bool)>),
    /// It cannot be transferred.
    Failed(Box<(Box<WorkItem>, Failure)>),
}

/// The extent of the parts that an upload of an earlier run must still hold.
pub(super) struct Extent {
    upload: UploadId,
    /// Offset of the end of its last part.
    end: u64,
    /// Total length of its parts.
    bytes: u64,
}

impl Extent {
    pub(super) fn of(unfinished: &UnfinishedUpload) -> Self {
        let chunk_bytes = unfinished.intent.chunk_bytes;
        let end_of = |part: &PartTag| {
            u64::from(part.part.saturating_sub(1)).saturating_mul(chunk_bytes).saturating_add(part.size_bytes)
        };
        let parts = &unfinished.parts;
        Self {
            upload: unfinished.upload.clone(),
            end: parts.iter().map(end_of).max().unwrap_or(0),
            bytes: parts.iter().map(|part| part.size_bytes).fold(0, u64::saturating_add),
        }
    }
}

/// Asks the source for data that a listing lacks: attributes and checksums, and the present state after a change.
/// Asks the destination whether it can still have the parts that an `earlier` run sent.
///
/// With `looks_at_target`, also asks the destination for its present object.
pub(super) async fn look(
    item: Box<WorkItem>,
    beginning: Beginning,
    earlier: Option<Extent>,
    looks_at_target: bool,
    context: &Context,
) -> Looked {
    if beginning == Beginning::Changed {
        tokio::time::sleep(SETTLING).await;
    }
    let restarted = beginning != Beginning::First;
    let target = &context.targets[usize::from(item.target)];
    let key = item.target_key.clone();
    let target_state =
        async { if looks_at_target { state_of(target.as_ref(), &key, context.policy).await } else { None } };
    let parts_are_doubtful = match earlier {
        Some(Extent { upload, end, bytes }) => !target.may_hold_parts(&item.target_key, &upload, end, bytes).await,
        None => false,
    };
    let source = async {
        let needs_no_look = !restarted && !needs_attributes(&item, context);
        match needs_no_look {
            true => Looked::Ready(ObjectTransfer::whole(item, context)),
            false => look_at_source(item, restarted, context).await,
        }
    };
    let (mut prepared, target_state) = futures::join!(source, target_state);
    if let Looked::Ready(transfer) = &mut prepared {
        transfer.parts_are_doubtful = parts_are_doubtful;
        transfer.looked_at_target = looks_at_target;
        transfer.item.expect = target_state.or(transfer.item.expect.take());
    }
    prepared
}

/// Returns the state of `key` at a destination; `None` if the destination does not answer.
async fn state_of(store: &dyn Store, key: &str, policy: RetryPolicy) -> Option<Expect> {
    let policy = RetryPolicy { unreachable: Unreachable::AtMost(policy.total_max), ..policy };
    let look = tokio::time::timeout(TARGET_LOOK_MAX, policy.run("head", store.url(), || store.head(key)));
    match look.await {
        Ok(Ok(now)) => Some(Expect::seen(Some(&now))),
        Ok(Err(error)) if error.kind == ErrorKind::NotFound => Some(Expect::Absent),
        Ok(Err(error)) if error.kind == ErrorKind::BucketNotFound && store.makes_root() => Some(Expect::Absent),
        Ok(Err(_)) | Err(_) => None,
    }
}

async fn look_at_source(mut item: Box<WorkItem>, restarted: bool, context: &Context) -> Looked {
    let url = object_url(context.source.as_ref(), &item.info.key);
    match context.policy.run("head", &url, || context.source.head(&item.info.key)).await {
        Ok(now) if !restarted && changed(&item.info, &now) => {
            let seen = Box::new(WorkItem { info: now.clone(), ..*item });
            ready(seen, &now, true, context).await
        }
        Ok(now) => {
            // The survey's description stays unless the object has changed, because the journal's fingerprint is
            // computed from it.
            if changed(&item.info, &now) {
                item.info = now.clone();
            }
            ready(item, &now, restarted, context).await
        }
        Err(error) => {
            let failure = Failure::of_store(&error, Side::Source);
            Looked::Failed(Box::new((item, failure)))
        }
    }
}

/// The transfer of an object that the source has just described as `now`, with its tags.
async fn ready(item: Box<WorkItem>, now: &ObjectInfo, restarted: bool, context: &Context) -> Looked {
    let tags = if lead_reads_tags(&item, context) { Some(tags_of(&item, now, context).await) } else { None };
    let mut transfer = ObjectTransfer::looked_at(item, now, restarted, context);
    match tags.map(|read| transfer.settle_tags(read, now)) {
        None | Some(Ok(())) => Looked::Ready(transfer),
        Some(Err(error)) => Looked::Failed(Box::new((transfer.item, Failure::of_store(&error, Side::Source)))),
    }
}

/// Asks the source for the tags of an object; `None` if it has none to keep.
async fn tags_of(item: &WorkItem, now: &ObjectInfo, context: &Context) -> Option<Result<Tags, Error>> {
    let source = &context.source;
    if !tag_rule(item, context).reads(now, source.as_ref()) {
        return None;
    }
    let (url, condition) = (object_url(source.as_ref(), &item.info.key), Precondition::exact(now));
    Some(context.policy.run("get tags", &url, || source.tags(&item.info.key, &condition)).await)
}

fn changed(listed: &ObjectInfo, now: &ObjectInfo) -> bool {
    Precondition::listed(listed).difference(now).is_some()
}
