//! Deletes objects at the end of a job: extraneous objects at the destinations (`--delete`), or sources that have been
//! moved (`mv`).
//!
//! The keys wait in a temporary file, so memory does not limit their number. Nothing is deleted unless everything else
//! succeeded; [`refusal`] gives the reason. An object is deleted only if its state has not changed since it was seen. A
//! source is also kept if one of its [copies](crate::lead::copies) is missing just before its batch is deleted.

mod backlog;
mod origin;
mod refusal;

use crate::failure::{failed_object, kind_name, object_url};
use crate::lead::copies::{NotThere, ProvenCopy, not_told_apart};
use crate::lead::names::Names;
use crate::retry::{RetryPolicy, backoff};
use backlog::Entry;
pub use backlog::{DeletionBacklog, Seen, is_folder};
use futures::StreamExt;
pub use origin::Origin;
pub use refusal::{EMPTY_SOURCE_HINT, Refusal, refusal};
use std::io;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tradewind_contract::FailedObject;
use tradewind_store::{
    ErrorKind, Identity, ListRequest, ObjectDeletion, ObjectInfo, Precondition, Result, Store, stays,
};

/// Maximum delete requests in flight, over all stores.
pub const BATCHES_AT_ONCE_MAX: usize = 4;
/// Maximum keys in one delete request, whatever the store allows.
pub const BATCH_KEYS_MAX: usize = 1000;
/// Maximum keys in one request whose objects must be in a known state. It is small because some stores check each
/// object before the request, and a write between the check and the request is lost.
pub const CONDITIONAL_KEYS_MAX: usize = 100;
/// Copies of one batch's objects that are checked at once. With [`BATCHES_AT_ONCE_MAX`] batches that is 128 in all.
pub const LOOKS_AT_ONCE_MAX: usize = 32;

/// The outcome for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// The object is deleted, or would be (dry run).
    Gone {
        /// Index of the store.
        store: u16,
        /// Its key.
        key: String,
        /// URL of the object.
        url: String,
    },
    /// The object could not be deleted. `source` is empty.
    Failed(FailedObject),
    /// The object was not deleted because copies of it are missing. `source` is empty.
    Kept {
        /// The object, and the reason.
        failed: FailedObject,
        /// Destination and key of each missing copy.
        lost: Vec<(u16, String)>,
    },
}

/// A pass over a [`DeletionBacklog`].
#[derive(Debug)]
pub struct DeletionRun {
    /// The stores, at the indices that the backlog uses.
    pub stores: Vec<Arc<dyn Store>>,
    /// The destinations that hold the copies.
    pub targets: Vec<Arc<dyn Store>>,
    /// For each destination, whether its name proves that it is not the source.
    pub proven_apart: Vec<bool>,
    /// The source that must lack the objects; `None` if they are its own.
    pub origin: Option<Origin>,
    /// Retry policy of a request.
    pub policy: RetryPolicy,
    /// Report what would be deleted, and delete nothing.
    pub dry_run: bool,
    /// Whether this run has written anything, possibly to a key that is to be deleted.
    pub has_written: bool,
    /// Cancelled when the job should stop. No request begins after that; [`drained`](crate::drain) limits the wait for
    /// those in flight.
    pub stop: CancellationToken,
}

impl DeletionRun {
    /// Deletes all queued objects and reports the outcome for each key. Returns how many are deleted (or would be).
    /// After a stop it reports nothing for keys that were not tried or whose answer did not arrive.
    ///
    /// # Errors
    /// The backlog cannot be read. An object that a store refuses to delete is a [`Deleted::Failed`].
    pub async fn run(self, backlog: DeletionBacklog, out: mpsc::Sender<Deleted>) -> io::Result<u64> {
        let names = backlog.names();
        let reading = backlog.read()?;
        let key_limits: Vec<usize> =
            self.stores.iter().map(|store| store.limits().delete_keys_max.clamp(1, CONDITIONAL_KEYS_MAX)).collect();
        let batches = futures::stream::try_unfold((reading, key_limits), |(mut reading, key_limits)| async move {
            let batch = reading.next_batch(&key_limits)?;
            Ok::<_, io::Error>(batch.map(|batch| (batch, (reading, key_limits))))
        });
        let runs = batches.map(|batch| async { Ok::<u64, io::Error>(self.run_batch(batch?, &names, &out).await) });
        let mut runs = std::pin::pin!(runs.buffer_unordered(BATCHES_AT_ONCE_MAX));
        let mut gone = 0;
        while let Some(batch) = runs.next().await {
            gone += batch?;
        }
        Ok(gone)
    }

    async fn run_batch(&self, batch: Vec<Entry>, names: &Names, out: &mpsc::Sender<Deleted>) -> u64 {
        let Some(index) = batch.first().map(|entry| entry.store) else { return 0 };
        let store = &self.stores[usize::from(index)];
        let looking = async {
            let batch = batch.into_iter().map(|entry| entry.without_time_of_folder(store.as_ref(), names)).collect();
            let batch = self.keep_what_lost_its_copies(store.as_ref(), batch, out).await;
            let batch = self.keep_what_may_be_ours(store.as_ref(), batch, out).await;
            self.keep_what_the_source_has(store.as_ref(), batch, out).await
        };
        let Some(batch) = self.stop.run_until_cancelled(looking).await else { return 0 };
        let verdicts = self.verdicts(store.as_ref(), batch).await;
        let mut gone = 0;
        for (key, verdict) in verdicts {
            let url = object_url(store.as_ref(), &key);
            let deleted = match verdict {
                Ok(()) => {
                    gone += 1;
                    Deleted::Gone { store: index, key, url }
                }
                Err(error) => Deleted::Failed(failed_object(String::new(), url, &error)),
            };
            // If nobody receives the outcome, the object is still deleted.
            out.send(deleted).await.ok();
        }
        gone
    }

    /// Checks the copies right before the deletion, and reports each object that must stay with the reason. Returns the
    /// others.
    async fn keep_what_lost_its_copies(
        &self,
        store: &dyn Store,
        batch: Vec<Entry>,
        out: &mpsc::Sender<Deleted>,
    ) -> Vec<Entry> {
        if self.dry_run {
            return batch;
        }
        let looks = futures::stream::iter(batch.into_iter().map(|entry| async {
            let missing = self.missing_copies(store, &entry).await;
            (entry, missing)
        }));
        let mut looks = std::pin::pin!(looks.buffered(LOOKS_AT_ONCE_MAX));
        let mut whole = Vec::with_capacity(CONDITIONAL_KEYS_MAX);
        while let Some((entry, missing)) = looks.next().await {
            match missing {
                Missing { first: None, .. } => whole.push(entry),
                Missing { first: Some(first), lost } => {
                    let failed = kept(object_url(store, &entry.key), first);
                    // If nobody receives the outcome, the copy is still missing.
                    out.send(Deleted::Kept { failed, lost }).await.ok();
                }
            }
        }
        whole
    }

    /// Lists again the objects that this job may have written, and reports each that must stay with the reason. Returns
    /// the others.
    async fn keep_what_may_be_ours(
        &self,
        store: &dyn Store,
        batch: Vec<Entry>,
        out: &mpsc::Sender<Deleted>,
    ) -> Vec<Entry> {
        if self.dry_run || !self.has_written {
            return batch;
        }
        let looks = batch.into_iter().map(|entry| async {
            let seen = if entry.may_be_ours { self.list_again(store, &entry).await } else { Ok(()) };
            (entry, seen)
        });
        certain(store, looks, out).await
    }

    /// Looks for the objects at the source, and reports each that it has. Returns the others.
    async fn keep_what_the_source_has(
        &self,
        store: &dyn Store,
        batch: Vec<Entry>,
        out: &mpsc::Sender<Deleted>,
    ) -> Vec<Entry> {
        let Some(origin) = self.origin.as_ref().filter(|_| !self.dry_run) else { return batch };
        let looks = batch.into_iter().map(|entry| async {
            let wanted = origin.refuse_wanted(&entry, object_url(store, &entry.key), self.policy).await;
            (entry, wanted)
        });
        certain(store, looks, out).await
    }

    /// Lists an object that may be ours again, because a listing has milliseconds where `HEAD` has seconds. Returns an
    /// error if the object must stay.
    async fn list_again(&self, store: &dyn Store, entry: &Entry) -> Result<()> {
        let Some(modified_unix_ms) = self.listed_unix_ms(store, &entry.key).await? else { return Ok(()) };
        let why = match entry.not_after_unix_ms {
            Some(listed) if listed != modified_unix_ms => "its modification time differs",
            Some(listed) if listed % 1000 != 0 => return Ok(()),
            _ => {
                "it was written in the second in which this job started, so this job may have written it under another name"
            }
        };
        Err(stays(object_url(store, &entry.key), why))
    }

    async fn missing_copies(&self, source: &dyn Store, entry: &Entry) -> Missing {
        let mut missing = Missing { first: None, lost: Vec::new() };
        for copy in &entry.copies {
            let store = &self.targets[usize::from(copy.target)];
            let found = match copy.look(store.as_ref(), self.policy).await {
                Ok(now) if self.may_be_source(source, entry, copy, &now).await => {
                    Err(NotThere::Lost(not_told_apart(&object_url(store.as_ref(), &copy.key))))
                }
                found => found,
            };
            if let Err(found) = found {
                if matches!(found, NotThere::Lost(_)) {
                    missing.lost.push((copy.target, copy.key.clone()));
                }
                missing.first.get_or_insert(found);
            }
        }
        missing
    }

    /// Returns whether a copy, which its store describes as `now`, may be the source under another name. Two writes of
    /// the same bytes in one second differ only in the milliseconds of listings.
    async fn may_be_source(&self, source: &dyn Store, entry: &Entry, copy: &ProvenCopy, now: &ObjectInfo) -> bool {
        let target = self.targets[usize::from(copy.target)].as_ref();
        let is_proven = self.proven_apart.get(usize::from(copy.target)).copied().unwrap_or(false);
        let is_bucket = |store: &dyn Store| matches!(store.identity(), Identity::Bucket(_));
        // If the source were a file and the copy that same file, the file's identity would show it.
        if is_proven || !is_bucket(source) || !is_bucket(target) || entry.condition.difference(now).is_some() {
            return false;
        }
        let times = futures::join!(self.listed_unix_ms(source, &entry.key), self.listed_unix_ms(target, &copy.key));
        !matches!(times, (Ok(Some(ours)), Ok(Some(theirs))) if ours != theirs)
    }

    /// Returns the object's modification time according to a listing, in milliseconds since the Unix epoch.
    async fn listed_unix_ms(&self, store: &dyn Store, key: &str) -> Result<Option<i64>> {
        let request = ListRequest { prefix: key.to_owned(), max_keys: Some(1), ..ListRequest::default() };
        let page = self.policy.run("list", store.url(), || store.list(&request)).await?;
        Ok(page.objects.into_iter().find(|object| object.key == key).map(|object| object.modified_unix_ms))
    }

    async fn verdicts(&self, store: &dyn Store, batch: Vec<Entry>) -> Vec<(String, Result<()>)> {
        if self.dry_run {
            return batch.into_iter().map(|entry| (entry.key, Ok(()))).collect();
        }
        let batch =
            batch.into_iter().map(|Entry { key, condition, not_after_unix_ms, written_before_unix_ms, .. }| {
                ObjectDeletion {
                    key,
                    condition: Precondition { not_after_unix_ms, written_before_unix_ms, ..condition },
                }
            });
        delete_until_stopped(&self.stop, store, batch.collect(), self.policy).await
    }
}

/// Waits for checks of objects, and reports each that must stay with the reason. Returns the others.
async fn certain(
    store: &dyn Store,
    looks: impl Iterator<Item = impl Future<Output = (Entry, Result<()>)>>,
    out: &mpsc::Sender<Deleted>,
) -> Vec<Entry> {
    let mut looks = std::pin::pin!(futures::stream::iter(looks).buffered(LOOKS_AT_ONCE_MAX));
    let mut left = Vec::with_capacity(CONDITIONAL_KEYS_MAX);
    while let Some((entry, seen)) = looks.next().await {
        match seen {
            Ok(()) => left.push(entry),
            Err(error) => {
                let failed = failed_object(String::new(), object_url(store, &entry.key), &error);
                // If nobody receives the outcome, the object is still unsafe to delete.
                out.send(Deleted::Failed(failed)).await.ok();
            }
        }
    }
    left
}

/// The result of checking the copies of one object.
struct Missing {
    first: Option<NotThere>,
    lost: Vec<(u16, String)>,
}

/// The record of an object at `url` that is kept because of its copies.
fn kept(url: String, why: NotThere) -> FailedObject {
    let (kind, message, hint) = match why {
        NotThere::Lost(failure) => (failure.kind, failure.message, failure.hint),
        NotThere::Unknown(error) => {
            let message = format!("cannot check its copy, so the source was kept: {error}");
            let hint = "`mv` needs permission to read the attributes of its copies: grant it and resume the job";
            (kind_name(error.kind).to_owned(), message, Some(hint.to_owned()))
        }
    };
    FailedObject { source: String::new(), message: format!("delete {url}: {message}"), destination: url, kind, hint }
}

/// Deletes the keys (at most the store's `delete_keys_max`), whatever objects they name now. The answer has every key
/// once, in no particular order.
pub async fn delete_keys(store: &dyn Store, keys: Vec<String>, policy: RetryPolicy) -> Vec<(String, Result<()>)> {
    delete_objects(store, keys.into_iter().map(ObjectDeletion::any).collect(), policy).await
}

/// Deletes the objects (at most the store's `delete_keys_max`) whose state meets their condition, and retries transient
/// failures. The answer has every key once, in no particular order.
pub async fn delete_objects(
    store: &dyn Store,
    objects: Vec<ObjectDeletion>,
    policy: RetryPolicy,
) -> Vec<(String, Result<()>)> {
    delete_until_stopped(&CancellationToken::new(), store, objects, policy).await
}

/// As [`delete_objects`], until `stop` is cancelled. The answer lacks keys that were not tried by then, and those whose
/// answer did not arrive.
pub async fn delete_until_stopped(
    stop: &CancellationToken,
    store: &dyn Store,
    mut objects: Vec<ObjectDeletion>,
    policy: RetryPolicy,
) -> Vec<(String, Result<()>)> {
    let mut verdicts = Vec::with_capacity(objects.len());
    let mut tries = 0;
    while !objects.is_empty() {
        tries += 1;
        let ended = policy.run_until_stopped(stop, "delete", store.url(), || store.delete(&objects)).await;
        let answers = match ended {
            None => break,
            Some(Ok(answers)) => answers,
            // The retries are used up.
            Some(Err(error)) => {
                verdicts.extend(objects.into_iter().map(|entry| (entry.key, Err(error.clone()))));
                break;
            }
        };
        let mut again = Vec::new();
        let mut slowest = ErrorKind::Server;
        for (entry, answer) in objects.into_iter().zip(answers) {
            match answer {
                Err(error) if error.kind.is_transient() && tries < policy.tries_max => {
                    slowest = error.kind;
                    again.push(entry);
                }
                answer => verdicts.push((entry.key, answer)),
            }
        }
        objects = again;
        if !objects.is_empty() {
            stop.run_until_cancelled(tokio::time::sleep(backoff(tries, slowest))).await;
        }
    }
    verdicts
}

#[cfg(test)]
mod tests;
