//! The journal: finished and unfinished work, so that a job killed at any moment can resume.
//!
//! Participants: the lead [records](Journal::record) entries; a thread of the journal's own writes them to SQLite, many
//! to a transaction; after a restart the lead reads [`Journal::unfinished`], [`Journal::pending_intents`] and the
//! [`DoneSet`].
//!
//! Guarantees: entries become visible in the order given and never partly; what [`Journal::record_durably`] or
//! [`Journal::flush`] has returned for survives a power cut, the rest survives the death of the process once its batch
//! is written ([`BATCH_MS_MAX`]). Losing a tail of entries costs only work done twice: an object is recorded as done
//! after it is proven, never before, and an upload's intent is durable before the upload is opened. A row that was
//! changed by anything but the journal is an error.
//!
//! No secret is ever recorded.

mod digest;
mod done;
mod entry;
mod schema;
mod writer;

pub use done::{Done, DoneObject, DoneSet, DoneTotals, fingerprint};
pub use entry::{Entry, Intent, UnfinishedUpload};
pub use writer::{BATCH_ENTRIES_MAX, BATCH_MS_MAX, QUEUE_MAX};

use crate::background::Background;
use crate::lead::state_dir::StateDir;
use digest::RowDamaged;
use rusqlite::{Connection, OpenFlags};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use writer::Writer;

/// Name of the journal in the job's folder.
pub const JOURNAL_FILE: &str = "journal.sqlite";

/// The lead's record of its work, which outlives the process. A disabled journal keeps nothing and never fails.
#[derive(Clone, Debug)]
pub struct Journal {
    open: Option<Arc<Open>>,
}

#[derive(Debug)]
struct Open {
    path: PathBuf,
    writer: Writer,
    background: Background,
}

/// Why a journal cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// A new job finds another job's journal.
    #[error("the journal {} belongs to a job that has already started", .0.display())]
    Exists(PathBuf),
    /// There is no journal to resume from.
    #[error("the journal {} does not exist", .0.display())]
    Missing(PathBuf),
    /// The file is not a journal, or is damaged.
    #[error("the journal {} is damaged: {message}", .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The fault.
        message: String,
    },
    /// Written by another version.
    #[error("the journal {} has schema {found}, but this version reads schema {expected}", .path.display())]
    OtherSchema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The schema that this version writes.
        expected: i64,
    },
    /// The checksums of earlier runs cannot be read.
    #[error("cannot read {}, so the cost of earlier runs is unknown: {message}", .path.display())]
    Spent {
        /// The file.
        path: PathBuf,
        /// The reason.
        message: String,
    },
    /// The journal cannot be read or written now.
    #[error("cannot use the journal {}: {message}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        message: String,
    },
}

impl JournalError {
    /// Returns one line of advice.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Exists(_) => "resume the job with `tradewind jobs resume`",
            Self::Missing(_) => "start the transfer again",
            Self::Corrupt { .. } | Self::Spent { .. } => {
                "start the transfer again; `tradewind sync` skips what is already there"
            }
            Self::OtherSchema { .. } => "finish the job with the version that started it, or start it again",
            Self::Io { .. } => "check the folder's owner and mode, and the free space on its disk",
        }
    }

    fn from_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        let message = match error {
            FromSqlConversionFailure(_, _, cause) if cause.is::<RowDamaged>() => cause.to_string(),
            _ => error.to_string(),
        };
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(DatabaseCorrupt | NotADatabase) => Self::Corrupt { path, message },
            // A row that no version of Tradewind has written.
            None if matches!(
                error,
                FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..)
            ) =>
            {
                Self::Corrupt { path, message }
            }
            _ => Self::Io { path, message },
        }
    }
}

impl Journal {
    /// Returns a journal that keeps nothing.
    pub fn disabled() -> Self {
        Self { open: None }
    }

    /// Begins the journal of a new job.
    ///
    /// # Errors
    /// [`JournalError::Exists`] when the folder has one, or SQLite's error.
    pub fn create(dir: &StateDir) -> Result<Self, JournalError> {
        let path = dir.path().join(JOURNAL_FILE);
        if path.exists() {
            return Err(JournalError::Exists(path));
        }
        schema::create_file(&path)?;
        Self::start(path, dir.background(), |_, _| Ok(()))
    }

    /// Opens the journal of a job that has begun.
    ///
    /// # Errors
    /// [`JournalError::Missing`], [`JournalError::Corrupt`], [`JournalError::OtherSchema`], or SQLite's error.
    pub fn open_existing(dir: &StateDir) -> Result<Self, JournalError> {
        let path = dir.path().join(JOURNAL_FILE);
        if !path.exists() {
            return Err(JournalError::Missing(path));
        }
        Self::start(path, dir.background(), schema::check)
    }

    /// Opens the journal, or begins one where the job died before it created one.
    ///
    /// # Errors
    /// As [`Journal::open_existing`], but never [`JournalError::Missing`].
    pub fn open_or_create(dir: &StateDir) -> Result<Self, JournalError> {
        match Self::open_existing(dir) {
            Err(JournalError::Missing(_)) => Self::create(dir),
            other => other,
        }
    }

    fn start(
        path: PathBuf,
        background: Background,
        prepare: fn(&Path, &mut Connection) -> Result<(), JournalError>,
    ) -> Result<Self, JournalError> {
        let sqlite = |error: rusqlite::Error| JournalError::from_sqlite(&path, &error);
        // SQLite gives its other files the mode of this one.
        let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        made.map_err(|error| JournalError::Io { path: path.clone(), message: error.to_string() })?;
        let mut connection = Connection::open(&path).map_err(sqlite)?;
        prepare(&path, &mut connection)?;
        schema::configure(&connection).map_err(sqlite)?;
        let writer = Writer::spawn(path.clone(), connection, background)?;
        Ok(Self { open: Some(Arc::new(Open { path, writer, background })) })
    }

    /// Returns whether this journal keeps entries.
    pub fn is_enabled(&self) -> bool {
        self.open.is_some()
    }

    /// Hands an entry to the writer; waits only while [`QUEUE_MAX`] entries are not yet written.
    ///
    /// # Errors
    /// An earlier entry could not be written; nothing is recorded from then on.
    pub async fn record(&self, entry: Entry) -> Result<(), JournalError> {
        match &self.open {
            Some(open) => open.writer.record(entry).await,
            None => Ok(()),
        }
    }

    /// Records an entry and waits until it, and all before it, would survive a power cut.
    ///
    /// # Errors
    /// As [`Journal::record`].
    pub async fn record_durably(&self, entry: Entry) -> Result<(), JournalError> {
        self.record(entry).await?;
        self.flush().await
    }

    /// Waits until all entries recorded so far would survive a power cut. Concurrent calls share one write.
    ///
    /// # Errors
    /// As [`Journal::record`].
    pub async fn flush(&self) -> Result<(), JournalError> {
        match &self.open {
            Some(open) => open.writer.flush().await,
            None => Ok(()),
        }
    }

    /// Returns uploads that were opened and neither closed nor abandoned, with the parts that the store has.
    ///
    /// # Errors
    /// SQLite's error.
    pub async fn unfinished(&self) -> Result<Vec<UnfinishedUpload>, JournalError> {
        self.read(entry::read_unfinished).await
    }

    /// Returns uploads for earlier states of their objects that were never aborted.
    ///
    /// # Errors
    /// SQLite's error.
    pub async fn superseded(&self) -> Result<Vec<UnfinishedUpload>, JournalError> {
        self.read(entry::read_superseded).await
    }

    /// Returns the intents of uploads that may have been opened without our learning their ids.
    ///
    /// # Errors
    /// SQLite's error.
    pub async fn pending_intents(&self) -> Result<Vec<Intent>, JournalError> {
        self.read(entry::read_pending_intents).await
    }

    /// Returns the boots in which earlier runs may have written, and when the first run in each began (Unix ms). Empty
    /// when no run recorded its boot, or the row was lost.
    ///
    /// # Errors
    /// SQLite's error.
    pub async fn boots(&self) -> Result<Vec<(String, i64)>, JournalError> {
        self.read(entry::read_boots).await
    }

    /// Returns the objects that earlier runs have closed and proven.
    ///
    /// # Errors
    /// SQLite's error.
    pub fn done_set(&self) -> Result<DoneSet, JournalError> {
        match &self.open {
            Some(open) => DoneSet::open(&open.path, open.background),
            None => Ok(DoneSet::empty()),
        }
    }

    async fn read<T, F>(&self, query: F) -> Result<Vec<T>, JournalError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<Vec<T>> + Send + 'static,
    {
        let Some(open) = &self.open else { return Ok(Vec::new()) };
        // A reader sees what is committed; whether it survives a power cut is the concern of who acts on it.
        open.writer.commit().await?;
        let path = open.path.clone();
        let reading = open.background.run(move || {
            let connection = open_read_only(&path)?;
            query(&connection).map_err(|error| JournalError::from_sqlite(&path, &error))
        });
        match reading.await {
            Ok(rows) => rows,
            Err(error) => Err(JournalError::Io { path: open.path.clone(), message: error.to_string() }),
        }
    }
}

fn open_read_only(path: &Path) -> Result<Connection, JournalError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(|error| JournalError::from_sqlite(path, &error))
}

#[cfg(test)]
mod tests;
