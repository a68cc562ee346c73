//! Deletes objects at the end of a job: extraneous objects at the destinations (`--delete`), or sources that have been
//! moved (`mv`).
//!
//! The keys wait in a temporary file, so memory does not limit their number. Nothing is deleted unless everything else
//! succeeded; [`refusal`] gives the reason. An object is deleted only if its state has not changed since it was seen. A
//! source is also kept if one of its [copies](crate::lead::copies) is missing just before its batch is deleted.

use crate::failure::{counted, failed_object, kind_name, object_url};
use crate::lead::copies::{NotThere, ProvenCopy, not_told_apart};
use crate::lead::names::Names;
use crate::lead::survey::SurveyEnd;
use crate::retry::{RetryPolicy, backoff};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tradewind_contract::{Deletion, FailedObject, ToDelete};
use tradewind_store::{
    ErrorKind, Identity, ListRequest, ObjectDeletion, ObjectInfo, Precondition, Result, Store, name_form, stays,
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

/// Keys to delete, in a temporary file that is removed when this is dropped.
#[derive(Debug)]
pub struct DeletionBacklog {
    writing: Mutex<Writing>,
    /// By index of the store; see [`DeletionBacklog::doubting_since`].
    doubted_since_unix_ms: Vec<Option<i64>>,
    /// The names that the job writes at the destinations, in the forms of servers that may treat two names as one.
    names: Arc<Names>,
}

#[derive(Debug)]
struct Writing {
    file: BufWriter<File>,
    /// By index of the store.
    totals: Vec<Totals>,
}

/// Totals of the keys queued for one store.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    keys: ToDelete,
    /// How many of these keys are empty folders.
    folders: u64,
}

/// One key, with the state of the object when it was queued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    store: u16,
    key: String,
    condition: Precondition,
    /// Not modified after this (`Precondition::not_after_unix_ms`, which is not serialized).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_after_unix_ms: Option<i64>,
    /// See [`DeletionBacklog::doubting_since`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    may_be_ours: bool,
    /// Copies that must all exist when the object is deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    copies: Vec<ProvenCopy>,
}

/// How closely an object must still match its description to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The object is no longer wanted. The listed ETag or version is enough, which clouds check without another
    /// request. A store that checks the object itself also requires that it is not newer than listed.
    Listed,
    /// The object was copied. Every known attribute must match, so that nothing uncopied is deleted, and these copies
    /// must exist.
    Copied(Vec<ProvenCopy>),
}

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

impl Entry {
    /// The entry without its time, if it is the marker of a folder that the job does not write: a server that keeps
    /// objects as files gives it the time at which the folder's contents last changed. All markers have the same bytes.
    fn without_time_of_folder(self, store: &dyn Store, names: &Names) -> Self {
        let Some(form) = name_form(store, &self.key).filter(|_| self.is_marker()) else { return self };
        if self.condition.etag.is_none() || names.may_have(self.store, &form) {
            return self;
        }
        let condition = Precondition { modified_unix_ms: None, ..self.condition };
        Self { may_be_ours: false, not_after_unix_ms: None, condition, ..self }
    }

    fn is_marker(&self) -> bool {
        self.key.ends_with('/') && self.condition.size_bytes == Some(0)
    }
}

impl DeletionBacklog {
    /// An empty backlog. Its unnamed file is in `dir`, or in the system's temporary directory.
    ///
    /// # Errors
    /// The file system's error.
    pub fn create(dir: Option<&Path>) -> io::Result<Self> {
        let file = match dir {
            Some(dir) => tempfile::tempfile_in(dir)?,
            None => tempfile::tempfile()?,
        };
        let writing = Writing { file: BufWriter::new(file), totals: Vec::new() };
        Ok(Self { writing: Mutex::new(writing), doubted_since_unix_ms: Vec::new(), names: Arc::default() })
    }

    /// Sets, for each store, the time from which an object may be this job's own work under another name: times are
    /// compared in whole seconds, and the job may have written in that very second. Objects listed as modified at that
    /// time or later are listed again right before they are deleted.
    pub fn doubting_since(self, doubted_since_unix_ms: Vec<Option<i64>>) -> Self {
        Self { doubted_since_unix_ms, ..self }
    }

    /// Sets the names that the job writes. The time of a folder's marker counts if it may be one of them.
    pub fn knowing(self, names: Arc<Names>) -> Self {
        Self { names, ..self }
    }

    fn is_doubtful(&self, store: u16, object: &ObjectInfo) -> bool {
        let since = self.doubted_since_unix_ms.get(usize::from(store)).copied().flatten();
        since.is_some_and(|since| object.modified_unix_ms >= since)
    }

    /// Queues an object of the store with index `store` for deletion, in its described state. Blocks on a disk write
    /// now and then.
    ///
    /// # Errors
    /// The file system's error; the backlog must not be run after it.
    pub fn push(&self, store: u16, object: &ObjectInfo, seen: Seen) -> io::Result<()> {
        let exact = Precondition::exact(object);
        // A server that keeps objects as files may treat `a//b` as `a/b`. Without the time, an object that the job
        // wrote under one name would be deleted under the other if both have the same bytes.
        let (condition, not_after_unix_ms, copies) = match seen {
            Seen::Listed => (Precondition::listed(object), exact.modified_unix_ms, Vec::new()),
            Seen::Copied(copies) => (exact, None, copies),
        };
        let may_be_ours = self.is_doubtful(store, object);
        let entry = Entry { store, key: object.key.clone(), condition, not_after_unix_ms, may_be_ours, copies };
        // After a panic the file may end in half a line; `Reading::next` refuses it.
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        serde_json::to_writer(&mut writing.file, &entry).map_err(io::Error::from)?;
        writing.file.write_all(b"\n")?;
        let index = usize::from(store);
        if writing.totals.len() <= index {
            writing.totals.resize(index + 1, Totals::default());
        }
        let totals = &mut writing.totals[index];
        totals.keys.objects += 1;
        totals.keys.bytes += object.size_bytes;
        totals.folders += u64::from(is_folder(object));
        Ok(())
    }

    /// Keys queued so far.
    pub fn keys(&self) -> u64 {
        self.totals().objects
    }

    /// Number and total length of the objects queued so far.
    pub fn totals(&self) -> ToDelete {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        writing.totals.iter().fold(ToDelete::default(), |sum, one| ToDelete {
            objects: sum.objects + one.keys.objects,
            bytes: sum.bytes + one.keys.bytes,
        })
    }

    /// Objects queued so far at the store with index `store`, without empty folders.
    fn objects_at(&self, store: usize) -> u64 {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        writing.totals.get(store).map_or(0, |totals| totals.keys.objects - totals.folders)
    }

    fn read(self) -> io::Result<Reading> {
        let writing = self.writing.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut file = writing.file.into_inner().map_err(|error| error.into_error())?;
        file.rewind()?;
        Ok(Reading { lines: BufReader::new(file), ahead: None })
    }
}

/// Why nothing is deleted although `--delete` is set, and how to proceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The text after "nothing is deleted: ".
    pub why: String,
    /// One line of advice.
    pub hint: &'static str,
    /// The options that allow the deletion, if any do: a dry run then lists what would be deleted.
    pub allowed_by: Option<&'static str>,
}

impl Refusal {
    fn new(why: impl Into<String>, hint: &'static str) -> Self {
        Self { why: why.into(), hint, allowed_by: None }
    }

    fn until_agreed(why: String, hint: &'static str, allowed_by: &'static str) -> Self {
        Self { allowed_by: Some(allowed_by), ..Self::new(why, hint) }
    }
}

/// Advice for an empty source.
pub const EMPTY_SOURCE_HINT: &str =
    "--delete never empties a destination: check the name of the source, or delete with `tradewind rm -r`";
const CONSENT: &str = "pass -y or a higher --max-delete to allow it";
const CONSENT_HINT: &str = "list them with --dry-run; pass -y or a higher --max-delete to allow it";
const HIGHER_LIMIT: &str = "pass a higher --max-delete to allow it";
const MAX_DELETE_HINT: &str = "list them with --dry-run; pass a higher --max-delete to allow it";
const ALL_COPIED_HINT: &str =
    "fix the failures and sync again: --delete needs every object to be listed and copied first";

/// Returns why nothing is deleted at the destinations although `--delete` is set, or `None` if deleting is safe.
/// `failed` counts the object copies that failed, over all destinations; `url` names a destination by its index.
pub fn refusal(rules: &Deletion, end: &SurveyEnd, failed: u64, url: impl Fn(usize) -> String) -> Option<Refusal> {
    let keys = end.extraneous.as_ref().map_or(0, DeletionBacklog::keys);
    if keys == 0 {
        return None;
    }
    if !end.listed_to_the_end {
        return Some(Refusal::new("the source was not listed completely", ALL_COPIED_HINT));
    }
    if end.source_objects == 0 {
        return Some(Refusal::new("the source is empty", EMPTY_SOURCE_HINT));
    }
    if failed > 0 {
        return Some(Refusal::new(
            format!("{} could not be copied", counted(failed, "object", "objects")),
            ALL_COPIED_HINT,
        ));
    }
    match rules.keys_max {
        Some(keys_max) if keys > keys_max => {
            let why =
                format!("{} would be deleted, but --max-delete allows {keys_max}", counted(keys, "object", "objects"));
            Some(Refusal::until_agreed(why, MAX_DELETE_HINT, HIGHER_LIMIT))
        }
        _ => over_half(rules, end, url),
    }
}

/// Returns whether the object is the marker of a folder. Deleting it loses no data.
pub fn is_folder(object: &ObjectInfo) -> bool {
    object.key.ends_with('/') && object.size_bytes == 0
}

/// Refuses to delete more than half of a destination's objects: more often a wrong source than an intention.
fn over_half(rules: &Deletion, end: &SurveyEnd, url: impl Fn(usize) -> String) -> Option<Refusal> {
    let backlog = end.extraneous.as_ref().filter(|_| !rules.over_half && !rules.ask)?;
    end.target_objects.iter().enumerate().find_map(|(index, held)| {
        let keys = backlog.objects_at(index);
        (keys > held / 2).then(|| {
            let why = format!("{keys} of the {held} objects in {} would be deleted, more than half", url(index));
            Refusal::until_agreed(why, CONSENT_HINT, CONSENT)
        })
    })
}

impl DeletionRun {
    /// Deletes all queued objects and reports the outcome for each key. Returns how many are deleted (or would be).
    /// After a stop it reports nothing for keys that were not tried or whose answer did not arrive.
    ///
    /// # Errors
    /// The backlog cannot be read. An object that a store refuses to delete is a [`Deleted::Failed`].
    pub async fn run(self, backlog: DeletionBacklog, out: mpsc::Sender<Deleted>) -> io::Result<u64> {
        let names = Arc::clone(&backlog.names);
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
            self.keep_what_may_be_ours(store.as_ref(), batch, out).await
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
        let looks = futures::stream::iter(batch.into_iter().map(|entry| async {
            let seen = if entry.may_be_ours { self.list_again(store, &entry).await } else { Ok(()) };
            (entry, seen)
        }));
        let mut looks = std::pin::pin!(looks.buffered(LOOKS_AT_ONCE_MAX));
        let mut certain = Vec::with_capacity(CONDITIONAL_KEYS_MAX);
        while let Some((entry, seen)) = looks.next().await {
            match seen {
                Ok(()) => certain.push(entry),
                Err(error) => {
                    let failed = failed_object(String::new(), object_url(store, &entry.key), &error);
                    // If nobody receives the outcome, the object is still unsafe to delete.
                    out.send(Deleted::Failed(failed)).await.ok();
                }
            }
        }
        certain
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
        let batch = batch.into_iter().map(|Entry { key, condition, not_after_unix_ms, .. }| ObjectDeletion {
            key,
            condition: Precondition { not_after_unix_ms, ..condition },
        });
        delete_until_stopped(&self.stop, store, batch.collect(), self.policy).await
    }
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

struct Reading {
    lines: BufReader<File>,
    ahead: Option<Entry>,
}

impl Reading {
    /// Returns the next consecutive keys of one store, up to its limit; `None` at the end.
    fn next_batch(&mut self, key_limits: &[usize]) -> io::Result<Option<Vec<Entry>>> {
        let first = match self.ahead.take() {
            Some(first) => first,
            None => match self.next()? {
                Some(first) => first,
                None => return Ok(None),
            },
        };
        let store = first.store;
        let limit =
            *key_limits.get(usize::from(store)).ok_or_else(|| io::Error::other("the backlog names no store"))?;
        let mut batch = vec![first];
        while batch.len() < limit {
            match self.next()? {
                Some(entry) if entry.store == store => batch.push(entry),
                other => {
                    self.ahead = other;
                    break;
                }
            }
        }
        Ok(Some(batch))
    }

    fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut line = Vec::new();
        if self.lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        serde_json::from_slice(&line).map(Some).map_err(io::Error::from)
    }
}

#[cfg(test)]
mod tests;
