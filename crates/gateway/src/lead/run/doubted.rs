//! Objects that are written, but must be looked at once more before they count as done.
//!
//! **Late writes.** When a sink or its answer is lost, nobody knows whether its write is still on its way to the store.
//! The object is written again over another route, and the late write may then replace it: with the same bytes, or, if
//! the source changed meanwhile, with older ones. So the destination is asked at the end which object it has. Anything
//! but the object that was written, or its bytes, fails as `overwritten`.
//!
//! **Copies in parts that the store made itself.** No byte passes us, and a store that ignores the condition on the
//! source may mix two versions. So the source is asked at the end whether it is still the version that was to be
//! copied. If not, the copy is removed.
//!
//! What fails here is not journalled as done, and keeps its source in a `mv`. Each look is one `HEAD` of one of the few
//! objects that are doubted. What arrives after it is not seen: see `docs/concepts/integrity.md`.

use super::{Running, Shared};
use crate::lead::deletion::delete_objects;
use crate::lead::failure::object_url;
use crate::lead::survey::{SurveyError, WorkItem};
use crate::node::work::{Failure, Placed, Side};
use futures::StreamExt;
use std::collections::HashSet;
use tradewind_store::{Doomed, ErrorKind, ObjectInfo, Precondition};
use tradewind_wire::Fault;

/// Destinations asked at once.
const LOOKS_AT_ONCE_MAX: usize = 16;

/// An object that is written and proven.
pub(super) struct Copied {
    pub(super) item: WorkItem,
    pub(super) placed: Placed,
    pub(super) retries: u64,
    /// State in which the source must still be.
    pub(super) source: Option<Precondition>,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Doubted {
    /// Destination and key of each object that a lost write was meant for.
    keys: HashSet<(u16, String)>,
    copied: Vec<Copied>,
}

impl Doubted {
    /// Something of the object failed. Remembers the object if the store may have been asked to write it.
    pub(super) fn failed(&mut self, item: &WorkItem, failure: &Failure) {
        let unknown =
            failure.fault == Fault::Lost || failure.fault == Fault::Unavailable && failure.side != Some(Side::Source);
        if unknown {
            self.keys.insert((item.target, item.target_key.clone()));
        }
    }

    pub(super) fn is_doubted(&self, item: &WorkItem) -> bool {
        !self.keys.is_empty() && self.keys.contains(&(item.target, item.target_key.clone()))
    }

    /// Keeps an object until the end.
    pub(super) fn keep(&mut self, copied: Copied) {
        self.copied.push(copied);
    }
}

impl Running {
    /// Concludes what was doubted and is as it should be; the rest fails. To be called when no request is in flight.
    pub(super) async fn settle_doubted(&mut self) -> Result<(), SurveyError> {
        let (setup, doubted) = (self.setup.clone(), std::mem::take(&mut self.doubted));
        let looks = futures::stream::iter(doubted.copied.into_iter().map(|copied| {
            let setup = setup.clone();
            async move {
                let verdict = setup.look_again(&copied).await;
                (copied, verdict)
            }
        }));
        let mut looks = std::pin::pin!(looks.buffered(LOOKS_AT_ONCE_MAX));
        while let Some((copied, verdict)) = looks.next().await {
            match verdict {
                Ok(()) => self.conclude(copied).await?,
                Err(failure) => self.object_failed(&copied.item, &failure, copied.retries).await,
            }
        }
        Ok(())
    }
}

impl Shared {
    async fn look_again(&self, copied: &Copied) -> Result<(), Failure> {
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
            Ok(now) if is_what_was_written(&copied.placed, &now) => Ok(()),
            // Who may only write cannot look. What was proven stays proven.
            Err(error) if error.kind == ErrorKind::Forbidden => Ok(()),
            Err(error) if error.kind != ErrorKind::NotFound => Err(Failure::of_store(&error, Side::Target)),
            _ => Err(Failure::overwritten(&object_url(store.as_ref(), key))),
        }
    }

    /// Removes a copy that may be of two versions.
    async fn take_back_mixed(&self, copied: &Copied, difference: &str) -> Failure {
        let (store, key) = (&self.targets[usize::from(copied.item.target)], &copied.item.target_key);
        let condition = Precondition::written(&copied.placed.written);
        let removed = if condition.is_any() {
            false
        } else {
            let doomed = vec![Doomed { key: key.clone(), condition }];
            delete_objects(store.as_ref(), doomed, self.policy).await.into_iter().all(|(_, verdict)| verdict.is_ok())
        };
        let then = if removed { "the copy was removed" } else { "the copy stays, and may be of two versions" };
        let message = format!(
            "{}/{}: it changed while it was copied: {difference}; {then}",
            self.source.url(),
            copied.item.source_key
        );
        Failure::new(Fault::Changed, "changed", message)
    }
}

/// A late write of the same bytes makes another version that is as good.
fn is_what_was_written(placed: &Placed, now: &ObjectInfo) -> bool {
    let same_bytes = placed.written.checksums.agrees_with(&now.checksums) == Some(true);
    let written = Precondition { size_bytes: Some(placed.size_bytes), ..Precondition::written(&placed.written) };
    now.size_bytes == placed.size_bytes && (same_bytes || written.difference(now).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::work::Proof;
    use tradewind_store::{Checksums, Written};

    fn placed(version: &str, crc32c: Option<u32>) -> Placed {
        let checksums = Checksums { crc32c, ..Checksums::default() };
        let written = Written { version: Some(version.to_owned()), checksums, ..Written::default() };
        Placed { written, source_proof: Proof::Crc32c, target_proof: Proof::Crc32c, size_bytes: 5, unsynced: None }
    }

    fn now(version: &str, size_bytes: u64, crc32c: Option<u32>) -> ObjectInfo {
        let checksums = Checksums { crc32c, ..Checksums::default() };
        ObjectInfo { version: Some(version.to_owned()), size_bytes, checksums, ..ObjectInfo::default() }
    }

    #[test]
    fn only_the_object_that_was_written_or_its_bytes_will_do() {
        assert!(is_what_was_written(&placed("2", Some(7)), &now("2", 5, Some(7))));
        assert!(is_what_was_written(&placed("2", Some(7)), &now("1", 5, Some(7))), "the same bytes, late");
        assert!(!is_what_was_written(&placed("2", Some(7)), &now("1", 5, Some(8))));
        assert!(!is_what_was_written(&placed("2", None), &now("1", 5, None)));
        assert!(!is_what_was_written(&placed("2", None), &now("2", 6, None)));
    }
}
