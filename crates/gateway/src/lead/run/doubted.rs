//! Checks written objects once more if they need it before they count as done.
//!
//! **Late writes.** When a sink or its answer is lost, its write may still be on its way to the store. A hostile relay may
//! even claim that a request failed, and deliver it later. The object is written again, perhaps over another route, and
//! the late write may then replace it: with the same bytes or, if the source changed meanwhile, with older ones. So the
//! destination is asked at the end which object it has. Any object but the one that was written, or one with the same
//! bytes, fails as `overwritten`. Where the store states no checksum, another object of the same length is read. A store
//! that keeps nothing (`mem:`) is not asked.
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
use crate::lead::local_sums;
use crate::lead::survey::WorkItem;
use crate::node::sink::written_as;
use crate::node::work::{Failure, Placed, Side};
use crate::retry::RetryPolicy;
use serde::{Deserialize, Serialize};
use tradewind_store::{Checksums, ErrorKind, ObjectDeletion, Precondition, Store, Written};
use tradewind_wire::Fault;

/// Maximum number of objects checked at once.
pub(super) const LOOKS_AT_ONCE_MAX: usize = 16;

/// An object that is written and proven.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Copied {
    pub(super) item: Box<WorkItem>,
    pub(super) placed: Box<Placed>,
    pub(super) retries: u64,
    /// The state in which the source must still be.
    pub(super) source: Option<Precondition>,
}

/// Returns whether the store may still carry out the write of an attempt that was sent and failed in this way.
pub(super) fn may_land_late(failure: &Failure) -> bool {
    let may_land = match failure.fault {
        // A relay can claim both, and deliver the request later.
        Fault::Lost | Fault::RouteDown => true,
        Fault::Unavailable => failure.side != Some(Side::Source),
        _ => false,
    };
    // A write that the store refused because its condition was not met is over.
    may_land && !failure.is_unmet()
}

impl Context {
    /// Returns an error if the copy is missing, or is another object with other bytes. Otherwise records in `copied` which
    /// object it is now.
    pub(super) async fn look_again(&self, copied: &mut Copied) -> Result<(), Failure> {
        if let Some(condition) = &copied.source {
            let key = &copied.item.info.key;
            let look = self.policy.run("head", self.source.url(), || self.source.head(key)).await;
            let now = look.map_err(|error| Failure::of_store(&error, Side::Source))?;
            if let Some(difference) = condition.difference(&now) {
                return Err(self.take_back_mixed(copied, difference).await);
            }
        }
        let (store, key) = (&self.targets[usize::from(copied.item.target)], &copied.item.target_key);
        copied.placed.written = written_now(store.as_ref(), key, &copied.placed, self.policy).await?;
        Ok(())
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
            copied.item.info.key
        );
        Failure::new(Fault::Changed, "changed", message)
    }
}

/// Returns what is at `key`, if it is the object that was `placed` or has the same bytes. If only the bytes can tell,
/// reads them: file systems and Azure state no checksum, and every write there makes another object.
async fn written_now(store: &dyn Store, key: &str, placed: &Placed, policy: RetryPolicy) -> Result<Written, Failure> {
    if !store.keeps_objects() {
        return Ok(placed.written.clone());
    }
    let overwritten = || Failure::overwritten(&object_url(store, key));
    let now = match policy.run("head", store.url(), || store.head(key)).await {
        Ok(now) if is_as_written(placed.size_bytes, &placed.written, &now) => return Ok(placed.written.clone()),
        Ok(now) if now.size_bytes == placed.size_bytes => now,
        // Credentials that may only write cannot check. The earlier proof still stands.
        Err(error) if error.kind == ErrorKind::Forbidden => return Ok(placed.written.clone()),
        Err(error) if error.kind != ErrorKind::NotFound => return Err(Failure::of_store(&error, Side::Target)),
        _ => return Err(overwritten()),
    };
    if placed.sent == Checksums::default() {
        return Err(overwritten());
    }
    match local_sums::read(store, &now, &placed.sent, policy).await {
        Ok(read) if read.agrees_with(&placed.sent) == Some(true) => Ok(written_as(now)),
        Err(error) if error.kind.is_transient() => Err(Failure::of_store(&error, Side::Target)),
        _ => Err(overwritten()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory_tree::DirectoryTree;
    use crate::node::work::Proof;
    use bytes::Bytes;
    use tradewind_contract::{Limits, StoreSpec};
    use tradewind_store::{Payload, PutOptions};

    const KEY: &str = "folder/object";

    fn payload(bytes: &'static [u8]) -> Payload {
        Payload::from(Bytes::from_static(bytes))
    }

    async fn place(store: &dyn Store, bytes: &'static [u8]) -> Placed {
        let (payload, proof) = (payload(bytes), Proof::Length);
        let (sent, size_bytes) = (Checksums::of_segments(payload.segments()), payload.len());
        let written = store.put(KEY, payload, &sent, &PutOptions::default()).await.unwrap();
        Placed {
            written,
            source_proof: proof,
            target_proof: proof,
            size_bytes,
            sent,
            tags_dropped: false,
            attributes_ignored: false,
            unsynced: None,
        }
    }

    async fn look(store: &dyn Store, placed: &Placed) -> Result<Written, String> {
        let policy = RetryPolicy::from(&Limits::default());
        written_now(store, KEY, placed, policy).await.map_err(|failure| failure.kind)
    }

    #[tokio::test]
    async fn a_file_written_twice_is_the_second_one_if_the_bytes_are_the_same() {
        let tree = DirectoryTree::new();
        let store = tree.store.as_ref();
        let first = place(store, b"bytes").await;
        assert_eq!(look(store, &first).await, Ok(first.written.clone()));
        let second = place(store, b"bytes").await;
        assert_ne!(second.written, first.written);
        assert_eq!(look(store, &first).await, Ok(second.written));
    }

    #[tokio::test]
    async fn no_other_bytes_are_taken_for_the_written_ones() {
        let tree = DirectoryTree::new();
        let store = tree.store.as_ref();
        let placed = place(store, b"bytes").await;
        let unknown = Placed { sent: Checksums::default(), ..placed.clone() };
        for other in [b"other".as_slice(), b"longer bytes", b""] {
            place(store, other).await;
            assert_eq!(look(store, &placed).await, Err("overwritten".to_owned()));
        }
        place(store, b"bytes").await;
        assert_eq!(look(store, &unknown).await, Err("overwritten".to_owned()));
        std::fs::remove_file(tree.path(KEY)).unwrap();
        assert_eq!(look(store, &placed).await, Err("overwritten".to_owned()));
    }

    #[tokio::test]
    async fn a_store_that_keeps_nothing_is_not_asked() {
        let store = crate::stores::open(&StoreSpec { url: "mem:".to_owned(), ..StoreSpec::default() }).unwrap();
        let placed = place(store.as_ref(), b"bytes").await;
        assert_eq!(look(store.as_ref(), &placed).await, Ok(placed.written));
    }
}
