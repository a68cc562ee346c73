//! The objects that earlier runs have closed and proven. Looked up on disk, so their number is not limited by memory.

use super::digest::Digest;
use super::{JournalError, open_read_only};
use crate::background::Background;
use crate::node::work::Unsynced;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tradewind_store::{Checksums, KeyRange, ObjectInfo, Written};

/// The fields that must be equal for a source object to be the one that was copied: ETag (or version, or neither for
/// files), size and modification time, as the **survey** found them. Other requests may state more (a version), so
/// always take the fingerprint from the survey's description. For a file the fields include its inode and both times in
/// nanoseconds, but not its device, whose number may change with a mount.
pub fn fingerprint(info: &ObjectInfo) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&info.size_bytes.to_le_bytes());
    hasher.update(&info.modified_unix_ms.to_le_bytes());
    let state = info.etag.as_deref().or(info.version.as_deref());
    hasher.update(state.unwrap_or_default().as_bytes());
    if let Some(file) = &info.file {
        hasher.update(&file.inode.to_le_bytes());
        hasher.update(&file.modified_unix_ns.to_le_bytes());
        hasher.update(&file.changed_unix_ns.to_le_bytes());
    }
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// The record of earlier runs about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// Not done, or done with another state of the source.
    No,
    /// Done, and no power loss can undo it. Holds the destination store's description of the object, where the job
    /// deletes its sources and the version that wrote the row kept it.
    Yes(Option<Written>),
    /// Done, unless the machine that took the bytes lost power before they were on its disk.
    Unsynced(Unsynced),
}

/// The objects that are done. A clone reads the same journal.
#[derive(Clone, Debug)]
pub struct DoneSet {
    journal: Option<Arc<(PathBuf, Mutex<Connection>)>>,
    background: Background,
}

/// An object that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoneObject {
    /// Index of the destination.
    pub target: u16,
    /// Key there.
    pub target_key: String,
    /// Length.
    pub size_bytes: u64,
}

/// The total of the objects that are done at one destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoneTotals {
    /// Number of objects.
    pub objects: u64,
    /// Sum of their lengths.
    pub bytes: u64,
}

impl DoneSet {
    /// Returns an empty set, for a new job.
    pub fn empty() -> Self {
        Self { journal: None, background: Background::Threads }
    }

    /// Returns the totals by index of the destination, if an earlier run was about to delete the sources; else `None`.
    ///
    /// # Errors
    /// SQLite's error.
    pub async fn totals_before_deletion(&self) -> Result<Option<BTreeMap<u16, DoneTotals>>, JournalError> {
        self.ask(Ok(None), |connection| {
            let began: Option<i64> =
                connection.query_row("SELECT 1 FROM deletion LIMIT 1", [], |row| row.get(0)).optional()?;
            let sql = "SELECT target, count(*), sum(size_bytes) FROM done GROUP BY target";
            let mut statement = connection.prepare(sql)?;
            let totals = statement.query_map([], |row| {
                let (objects, bytes): (i64, i64) = (row.get(1)?, row.get(2)?);
                Ok((row.get(0)?, DoneTotals { objects: objects.cast_unsigned(), bytes: bytes.cast_unsigned() }))
            })?;
            began.map(|_| totals.collect()).transpose()
        })
        .await
    }

    /// Returns, for each (destination, key there), the length of the object written there, whatever the source is now.
    ///
    /// # Errors
    /// SQLite's error.
    pub async fn lengths(&self, objects: Vec<(u16, String)>) -> Result<Vec<Option<u64>>, JournalError> {
        self.ask(Ok(vec![None; objects.len()]), move |connection| {
            let sql = "SELECT size_bytes FROM done WHERE target = ?1 AND target_key = ?2";
            let mut statement = connection.prepare_cached(sql)?;
            let length = |row: &Row<'_>| row.get::<_, i64>(0).map(i64::cast_unsigned);
            objects.iter().map(|(target, key)| statement.query_row(params![target, key], length).optional()).collect()
        })
        .await
    }

    /// Returns the next objects after `last`, `objects_max` at most, in the order of the journal.
    ///
    /// # Errors
    /// SQLite's error.
    pub async fn objects_after(
        &self,
        last: Option<DoneObject>,
        objects_max: usize,
    ) -> Result<Vec<DoneObject>, JournalError> {
        self.ask(Ok(Vec::new()), move |connection| {
            let sql = "SELECT target, target_key, size_bytes FROM done WHERE (target, target_key) > (?1, ?2)
                       ORDER BY target, target_key LIMIT ?3";
            let mut statement = connection.prepare_cached(sql)?;
            let (target, target_key) = last.map_or((-1, String::new()), |last| (last.target.into(), last.target_key));
            let object = |row: &Row<'_>| {
                let size_bytes = row.get::<_, i64>(2)?.cast_unsigned();
                Ok(DoneObject { target: row.get(0)?, target_key: row.get(1)?, size_bytes })
            };
            let objects_max = i64::try_from(objects_max).unwrap_or(i64::MAX);
            statement.query_map(params![target, target_key, objects_max], object)?.collect()
        })
        .await
    }

    /// Returns the last key in `range` that is done at a destination.
    ///
    /// # Errors
    /// SQLite's error.
    pub async fn last_key(&self, target: u16, range: KeyRange) -> Result<Option<String>, JournalError> {
        self.ask(Ok(None), move |connection| {
            // The greatest character stands for an open end.
            let sql = "SELECT max(target_key) FROM done
                       WHERE target = ?1 AND target_key > ifnull(?2, '') AND target_key <= ifnull(?3, char(1114111))";
            connection.query_row(sql, params![target, range.after, range.until], |row| row.get(0))
        })
        .await
    }

    /// Tells every key that is done, with the index of its destination.
    ///
    /// # Errors
    /// SQLite's error.
    pub async fn each_key(&self, mut tell: impl FnMut(u16, &str) + Send + 'static) -> Result<(), JournalError> {
        self.ask(Ok(()), move |connection| {
            let mut statement = connection.prepare("SELECT target, target_key FROM done")?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                tell(row.get(0)?, row.get_ref(1)?.as_str()?);
            }
            Ok(())
        })
        .await
    }

    pub(super) fn open(path: &Path, background: Background) -> Result<Self, JournalError> {
        let sqlite = |error: rusqlite::Error| JournalError::from_sqlite(path, &error);
        let connection = open_read_only(path)?;
        let any: Option<i64> =
            connection.query_row("SELECT 1 FROM done LIMIT 1", [], |row| row.get(0)).optional().map_err(sqlite)?;
        let journal = any.map(|_| Arc::new((path.to_owned(), Mutex::new(connection))));
        Ok(Self { journal, background })
    }

    /// Returns whether the set is empty; then no lookup is needed.
    pub fn is_empty(&self) -> bool {
        self.journal.is_none()
    }

    /// Returns, for each (destination, key there, fingerprint of the source object now), whether it is done.
    ///
    /// # Errors
    /// SQLite's error.
    pub async fn contains(&self, objects: Vec<(u16, String, u64)>) -> Result<Vec<Done>, JournalError> {
        self.ask(Ok(vec![Done::No; objects.len()]), move |connection| ask(connection, &objects)).await
    }

    /// Queries the journal; without one the answer is `of_none`.
    async fn ask<T: Send + 'static>(
        &self,
        of_none: Result<T, JournalError>,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, JournalError> {
        let Some(journal) = self.journal.clone() else { return of_none };
        let path = journal.0.clone();
        let asking = self.background.run(move || {
            // A panic elsewhere cannot leave a read-only connection in a bad state.
            let connection = journal.1.lock().unwrap_or_else(PoisonError::into_inner);
            query(&connection).map_err(|error| JournalError::from_sqlite(&journal.0, &error))
        });
        asking.await.unwrap_or_else(|error| Err(JournalError::Io { path, message: error.to_string() }))
    }
}

fn ask(connection: &Connection, objects: &[(u16, String, u64)]) -> rusqlite::Result<Vec<Done>> {
    let sql = "SELECT fingerprint, size_bytes, boot, crc64nvme, crc32c, written, digest FROM done
               WHERE target = ?1 AND target_key = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let verdicts = objects.iter().map(|(target, target_key, fingerprint)| {
        let done_of = |row: &Row<'_>| done_of(*target, target_key, row);
        let found = statement.query_row(params![target, target_key], done_of).optional()?;
        Ok(found.filter(|(found, _)| found == fingerprint).map_or(Done::No, |(_, done)| done))
    });
    verdicts.collect()
}

fn done_of(target: u16, target_key: &str, row: &Row<'_>) -> rusqlite::Result<(u64, Done)> {
    let columns = DoneColumns {
        target,
        target_key,
        fingerprint: row.get(0)?,
        size_bytes: row.get(1)?,
        boot: row.get_ref(2)?.as_str_or_null()?,
        crc64nvme: row.get(3)?,
        crc32c: row.get(4)?,
        written: row.get_ref(5)?.as_str_or_null()?,
    };
    columns.digest().check("done", row.get(6)?)?;
    let fingerprint = columns.fingerprint.cast_unsigned();
    let Some(boot) = columns.boot else {
        let written = columns.written.map(serde_json::from_str).transpose();
        let written =
            written.map_err(|error| rusqlite::Error::FromSqlConversionFailure(5, Type::Text, Box::new(error)))?;
        return Ok((fingerprint, Done::Yes(written)));
    };
    let crc64nvme = columns.crc64nvme.map(i64::cast_unsigned);
    let checksums = Checksums { crc64nvme, crc32c: columns.crc32c, md5: None };
    Ok((fingerprint, Done::Unsynced(Unsynced { boot: boot.to_owned(), checksums })))
}

/// A row of `done`.
pub(super) struct DoneColumns<'a> {
    pub(super) target: u16,
    pub(super) target_key: &'a str,
    pub(super) fingerprint: i64,
    pub(super) size_bytes: i64,
    pub(super) boot: Option<&'a str>,
    pub(super) crc64nvme: Option<i64>,
    pub(super) crc32c: Option<u32>,
    pub(super) written: Option<&'a str>,
}

impl DoneColumns<'_> {
    pub(super) fn digest(&self) -> Digest {
        Digest::new()
            .number(i64::from(self.target))
            .text(self.target_key)
            .number(self.fingerprint)
            .number(self.size_bytes)
            .text(self.boot)
            .number(self.crc64nvme)
            .number(self.crc32c.map(i64::from))
            .text(self.written)
    }
}
