//! The keys that wait to be deleted, in a temporary file, each with the state in which its object was seen.

use crate::lead::copies::ProvenCopy;
use crate::lead::names::Names;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tradewind_contract::ToDelete;
use tradewind_store::{ObjectInfo, Precondition, Store, name_form};

/// Keys to delete, in a temporary file that is removed when this is dropped.
#[derive(Debug)]
pub struct DeletionBacklog {
    writing: Mutex<Writing>,
    /// By index of the store; see [`DeletionBacklog::doubting_since`].
    doubted_since_unix_ms: Vec<Option<i64>>,
    /// By index of the store; see [`DeletionBacklog::written_before`].
    written_before_unix_ms: Vec<Option<i64>>,
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
pub(super) struct Entry {
    pub(super) store: u16,
    pub(super) key: String,
    pub(super) condition: Precondition,
    /// Not modified after this (`Precondition::not_after_unix_ms`, which is not serialized).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) not_after_unix_ms: Option<i64>,
    /// See [`DeletionBacklog::written_before`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) written_before_unix_ms: Option<i64>,
    /// See [`DeletionBacklog::doubting_since`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) may_be_ours: bool,
    /// Copies that must all exist when the object is deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) copies: Vec<ProvenCopy>,
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

impl Entry {
    /// The entry without its time, if it is the marker of a folder that the job does not write: a server that keeps
    /// objects as files gives it the time at which the folder's contents last changed. All markers have the same bytes.
    pub(super) fn without_time_of_folder(self, store: &dyn Store, names: &Names) -> Self {
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
        Ok(Self {
            writing: Mutex::new(writing),
            doubted_since_unix_ms: Vec::new(),
            written_before_unix_ms: Vec::new(),
            names: Arc::default(),
        })
    }

    /// Sets, for each store, the time from which an object may be this job's own work under another name: times are
    /// compared in whole seconds, and the job may have written in that very second. Objects listed as modified at that
    /// time or later are listed again right before they are deleted.
    pub fn doubting_since(self, doubted_since_unix_ms: Vec<Option<i64>>) -> Self {
        Self { doubted_since_unix_ms, ..self }
    }

    /// Sets, for each store, the time before the listing, by the store's clock: an object that the store says was written
    /// before is the one that was listed, even if its listing states another time. `rclone serve s3` lists the time of
    /// the file, which its writer sets.
    pub fn written_before(self, written_before_unix_ms: Vec<Option<i64>>) -> Self {
        Self { written_before_unix_ms, ..self }
    }

    /// Sets the names that the job writes. The time of a folder's marker counts if it may be one of them.
    pub fn knowing(self, names: Arc<Names>) -> Self {
        Self { names, ..self }
    }

    /// Returns the backlog without the keys that `is_spared` names by the index of their store.
    ///
    /// # Errors
    /// The file system's error.
    pub fn sparing(self, dir: Option<&Path>, is_spared: impl Fn(u16, &str) -> bool) -> io::Result<Self> {
        let (doubted, written_before) = (self.doubted_since_unix_ms.clone(), self.written_before_unix_ms.clone());
        let left = Self::create(dir)?.doubting_since(doubted).written_before(written_before).knowing(self.names());
        let mut reading = self.read()?;
        while let Some(entry) = reading.next()? {
            if !is_spared(entry.store, &entry.key) {
                left.push_entry(&entry)?;
            }
        }
        Ok(left)
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
        let written_before_unix_ms = self.written_before_unix_ms.get(usize::from(store)).copied().flatten();
        let key = object.key.clone();
        self.push_entry(&Entry {
            store,
            key,
            condition,
            not_after_unix_ms,
            written_before_unix_ms,
            may_be_ours,
            copies,
        })
    }

    fn push_entry(&self, entry: &Entry) -> io::Result<()> {
        // After a panic the file may end in half a line; `Reading::next` refuses it.
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        serde_json::to_writer(&mut writing.file, entry).map_err(io::Error::from)?;
        writing.file.write_all(b"\n")?;
        let index = usize::from(entry.store);
        if writing.totals.len() <= index {
            writing.totals.resize(index + 1, Totals::default());
        }
        let totals = &mut writing.totals[index];
        totals.keys.objects += 1;
        totals.keys.bytes += entry.condition.size_bytes.unwrap_or(0);
        totals.folders += u64::from(entry.is_marker());
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
    pub(super) fn objects_at(&self, store: usize) -> u64 {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        writing.totals.get(store).map_or(0, |totals| totals.keys.objects - totals.folders)
    }

    /// The names that the job writes.
    pub(super) fn names(&self) -> Arc<Names> {
        Arc::clone(&self.names)
    }

    pub(super) fn read(self) -> io::Result<Reading> {
        let writing = self.writing.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut file = writing.file.into_inner().map_err(|error| error.into_error())?;
        file.rewind()?;
        Ok(Reading { lines: BufReader::new(file), ahead: None })
    }
}

/// Returns whether the object is the marker of a folder. Deleting it loses no data.
pub fn is_folder(object: &ObjectInfo) -> bool {
    object.key.ends_with('/') && object.size_bytes == 0
}

/// A backlog that is read from its beginning.
pub(super) struct Reading {
    lines: BufReader<File>,
    ahead: Option<Entry>,
}

impl Reading {
    /// Returns the next consecutive keys of one store, up to its limit; `None` at the end.
    pub(super) fn next_batch(&mut self, key_limits: &[usize]) -> io::Result<Option<Vec<Entry>>> {
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
