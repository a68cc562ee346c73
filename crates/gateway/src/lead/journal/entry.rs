//! The journal's entries, and how they are written to and read from the tables.

use super::digest::Digest;
use super::done::DoneColumns;
use crate::node::work::Unsynced;
use rusqlite::{CachedStatement, Connection, Row, Transaction, params};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tradewind_store::{Checksums, PartTag, PutOptions, UploadId, Written};

/// One entry. Entries about one object name it by destination and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A run begins that may write on a machine in this boot; empty when the boot is not known.
    Began {
        /// See [`Store::volatile_boot`](tradewind_store::Store::volatile_boot).
        boot: String,
        /// When, milliseconds since the Unix epoch.
        unix_ms: i64,
    },
    /// An upload is about to be opened. Must be durable before it is. Supersedes any earlier upload of the same key: its
    /// parts are forgotten, and it stays in the journal until it is [abandoned](Entry::Abandoned).
    Intent(Box<Intent>),
    /// The store has named the upload.
    Opened {
        /// Index of the destination.
        target: u16,
        /// Key there.
        target_key: String,
        /// The store's name for it.
        upload: UploadId,
        /// Whether the same intent may have opened others, whose names nobody learned. They stay in the journal as an
        /// intent of their own until they are [abandoned](Entry::Abandoned).
        has_unnamed: bool,
    },
    /// The store has a part, durably.
    Part {
        /// Index of the destination.
        target: u16,
        /// Key there.
        target_key: String,
        /// The answer of the store.
        part: PartTag,
    },
    /// The object is visible and proven; its upload, if it had one, is forgotten.
    Closed {
        /// Index of the destination.
        target: u16,
        /// Key there.
        target_key: String,
        /// [`super::fingerprint`] of the source object as the survey found it.
        fingerprint: u64,
        /// Length.
        size_bytes: u64,
        /// Set while a power loss may undo the write.
        unsynced: Option<Unsynced>,
        /// The destination store's description of it, where the source is to be deleted.
        written: Option<Box<Written>>,
    },
    /// An object that was closed no longer exists.
    Undone {
        /// Index of the destination.
        target: u16,
        /// Key there.
        target_key: String,
    },
    /// All objects are copied, and the sources are about to be deleted. Must be durable before the first deletion.
    Deleting {
        /// When, milliseconds since the Unix epoch.
        unix_ms: i64,
    },
    /// The only request to open an upload was refused, so there is none.
    NotOpened {
        /// Index of the destination.
        target: u16,
        /// Key there.
        target_key: String,
        /// When it was intended.
        intent_unix_ms: i64,
    },
    /// An upload was aborted or never opened: the store has no data of it.
    Abandoned {
        /// Index of the destination.
        target: u16,
        /// Key there.
        target_key: String,
        /// The store's name for it; `None` for all uploads of the key that the store has not named.
        upload: Option<UploadId>,
    },
}

/// An upload that is about to be opened, or that may have been.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Index of the destination.
    pub target: u16,
    /// Key there.
    pub target_key: String,
    /// Key at the source.
    pub source_key: String,
    /// Length of the object.
    pub size_bytes: u64,
    /// [`super::fingerprint`] of the source object as the survey found it.
    pub fingerprint: u64,
    /// Length of all parts but the last.
    pub chunk_bytes: u64,
    /// The attributes to write the object with.
    pub options: PutOptions,
    /// When it was decided, milliseconds since the Unix epoch: uploads of this key that are older are not ours.
    pub intent_unix_ms: i64,
}

/// An upload that an earlier run opened and did not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedUpload {
    /// The intent.
    pub intent: Intent,
    /// The store's name for it.
    pub upload: UploadId,
    /// Parts that the store has, ascending.
    pub parts: Vec<PartTag>,
}

/// Writes the entries of one transaction.
pub(super) struct Writing<'t> {
    transaction: &'t Transaction<'t>,
    done: CachedStatement<'t>,
    /// Whether the table of uploads has rows. Most jobs have no object in parts.
    has_uploads: bool,
}

impl<'t> Writing<'t> {
    pub(super) fn begin(transaction: &'t Transaction<'t>) -> rusqlite::Result<Self> {
        let sql = "INSERT OR REPLACE INTO done
                       (target, target_key, fingerprint, size_bytes, boot, crc64nvme, crc32c, written, digest)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let done = transaction.prepare_cached(sql)?;
        let sql = "SELECT EXISTS (SELECT 1 FROM upload)";
        let has_uploads = transaction.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        Ok(Self { transaction, done, has_uploads })
    }

    /// Writes one entry. Ignores entries about an upload that is not in the journal: its object was closed or abandoned.
    pub(super) fn write(&mut self, entry: &Entry) -> rusqlite::Result<()> {
        match entry {
            Entry::Closed { target, target_key, fingerprint, size_bytes, unsynced, written } => {
                if self.has_uploads {
                    forget_uploads(self.transaction, *target, target_key)?;
                }
                let boot = unsynced.as_ref().map(|unsynced| unsynced.boot.as_str());
                let sums = unsynced.as_ref().map(|unsynced| unsynced.checksums).unwrap_or_default();
                let (size_bytes, crc64nvme) = (size_bytes.cast_signed(), sums.crc64nvme.map(u64::cast_signed));
                let (fingerprint, crc32c) = (fingerprint.cast_signed(), sums.crc32c);
                let written = written.as_ref().map(to_json).transpose()?;
                let (target, written) = (*target, written.as_deref());
                let columns =
                    DoneColumns { target, target_key, fingerprint, size_bytes, boot, crc64nvme, crc32c, written };
                let digest = columns.digest().sum();
                let values =
                    params![target, target_key, fingerprint, size_bytes, boot, crc64nvme, crc32c, written, digest];
                self.done.execute(values).map(drop)
            }
            Entry::Intent(intent) => {
                self.has_uploads = true;
                write_intent(self.transaction, intent)
            }
            _ => write_other(self.transaction, entry),
        }
    }
}

/// Forgets the uploads of an object that is done. The sink has aborted those that the same intent may have opened
/// without a name.
fn forget_uploads(transaction: &Transaction<'_>, target: u16, target_key: &str) -> rusqlite::Result<()> {
    let sql = "DELETE FROM upload
               WHERE target = ?1 AND target_key = ?2 AND upload_id IS NULL AND intent_unix_ms =
                   (SELECT intent_unix_ms FROM upload
                    WHERE target = ?1 AND target_key = ?2 AND superseded = 0 AND upload_id IS NOT NULL)";
    transaction.prepare_cached(sql)?.execute(params![target, target_key])?;
    let sql = "DELETE FROM upload WHERE target = ?1 AND target_key = ?2 AND superseded = 0";
    transaction.prepare_cached(sql)?.execute(params![target, target_key]).map(drop)
}

fn write_other(transaction: &Transaction<'_>, entry: &Entry) -> rusqlite::Result<()> {
    match entry {
        Entry::Closed { .. } | Entry::Intent(_) => Ok(()),
        Entry::Began { boot, unix_ms } => {
            let sql = "INSERT OR IGNORE INTO boot (boot, began_unix_ms) VALUES (?1, ?2)";
            transaction.prepare_cached(sql)?.execute(params![boot, unix_ms]).map(drop)
        }
        Entry::Opened { target, target_key, upload, has_unnamed } => {
            write_opened(transaction, *target, target_key, upload, *has_unnamed)
        }
        Entry::Part { target, target_key, part } => {
            let sql = "INSERT OR REPLACE INTO part (upload, part, size_bytes, tag, crc64nvme, crc32c, md5, digest)
                       SELECT id, ?3, ?4, ?5, ?6, ?7, ?8, ?9 FROM upload
                       WHERE target = ?1 AND target_key = ?2 AND superseded = 0";
            let sums = &part.checksums;
            let (crc64nvme, md5) = (sums.crc64nvme.map(u64::cast_signed), sums.md5.as_ref().map(|sum| &sum[..]));
            let size_bytes = part.size_bytes.cast_signed();
            let digest = part_digest(*target, target_key, part).sum();
            let values =
                params![target, target_key, part.part, size_bytes, part.tag, crc64nvme, sums.crc32c, md5, digest];
            transaction.prepare_cached(sql)?.execute(values).map(drop)
        }
        Entry::Undone { target, target_key } => {
            let sql = "DELETE FROM done WHERE target = ?1 AND target_key = ?2";
            transaction.prepare_cached(sql)?.execute(params![target, target_key]).map(drop)
        }
        Entry::Deleting { unix_ms } => {
            let sql = "INSERT INTO deletion (began_unix_ms) VALUES (?1)";
            transaction.prepare_cached(sql)?.execute(params![unix_ms]).map(drop)
        }
        Entry::NotOpened { target, target_key, intent_unix_ms } => {
            let sql = "DELETE FROM upload
                       WHERE target = ?1 AND target_key = ?2 AND upload_id IS NULL AND intent_unix_ms = ?3
                             AND superseded = 0";
            transaction.prepare_cached(sql)?.execute(params![target, target_key, intent_unix_ms]).map(drop)
        }
        Entry::Abandoned { target, target_key, upload } => {
            let sql = "DELETE FROM upload WHERE target = ?1 AND target_key = ?2 AND upload_id IS ?3";
            let upload = upload.as_ref().map(|upload| &upload.0);
            transaction.prepare_cached(sql)?.execute(params![target, target_key, upload]).map(drop)
        }
    }
}

/// Writes the name of an upload. `has_unnamed`: the same intent may have opened others, which keep an entry without a name.
fn write_opened(
    transaction: &Transaction<'_>,
    target: u16,
    target_key: &str,
    upload: &UploadId,
    has_unnamed: bool,
) -> rusqlite::Result<()> {
    if has_unnamed {
        let sql = "INSERT INTO upload (target, target_key, source_key, size_bytes, fingerprint, chunk_bytes,
                                       options, intent_unix_ms, digest, superseded)
                   SELECT target, target_key, source_key, size_bytes, fingerprint, chunk_bytes,
                          options, intent_unix_ms, digest, 1
                   FROM upload AS this
                   WHERE target = ?1 AND target_key = ?2 AND superseded = 0
                         AND NOT EXISTS (SELECT 1 FROM upload WHERE target = ?1 AND target_key = ?2
                             AND superseded = 1 AND upload_id IS NULL
                             AND intent_unix_ms = this.intent_unix_ms)";
        transaction.prepare_cached(sql)?.execute(params![target, target_key])?;
    }
    let sql = "UPDATE upload SET upload_id = ?3 WHERE target = ?1 AND target_key = ?2 AND superseded = 0";
    transaction.prepare_cached(sql)?.execute(params![target, target_key, upload.0]).map(drop)
}

fn to_json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// An intent that is repeated because the answer to an open was lost is one row; anything else is another upload.
fn supersede(transaction: &Transaction<'_>, intent: &Intent) -> rusqlite::Result<()> {
    let (target, target_key) = (intent.target, &intent.target_key);
    let sql = "DELETE FROM upload WHERE target = ?1 AND target_key = ?2 AND upload_id IS NULL AND intent_unix_ms = ?3";
    transaction.prepare_cached(sql)?.execute(params![target, target_key, intent.intent_unix_ms])?;
    let sql = "DELETE FROM part WHERE upload IN
                   (SELECT id FROM upload WHERE target = ?1 AND target_key = ?2 AND superseded = 0)";
    transaction.prepare_cached(sql)?.execute(params![target, target_key])?;
    let sql = "UPDATE upload SET superseded = 1 WHERE target = ?1 AND target_key = ?2 AND superseded = 0";
    transaction.prepare_cached(sql)?.execute(params![target, target_key]).map(drop)
}

fn write_intent(transaction: &Transaction<'_>, intent: &Intent) -> rusqlite::Result<()> {
    supersede(transaction, intent)?;
    let options = to_json(&intent.options)?;
    let sql = "INSERT INTO upload
                   (target, target_key, source_key, size_bytes, fingerprint, chunk_bytes, options, intent_unix_ms,
                    digest)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let values = params![
        intent.target,
        intent.target_key,
        intent.source_key,
        intent.size_bytes.cast_signed(),
        intent.fingerprint.cast_signed(),
        intent.chunk_bytes.cast_signed(),
        options,
        intent.intent_unix_ms,
        intent_digest(intent, &options).sum(),
    ];
    transaction.prepare_cached(sql)?.execute(values).map(drop)
}

/// The checksum of an upload. It has no name until the store has returned one, and a wrong name is one that the store
/// does not know.
fn intent_digest(intent: &Intent, options: &str) -> Digest {
    Digest::new()
        .number(i64::from(intent.target))
        .text(intent.target_key.as_str())
        .text(intent.source_key.as_str())
        .number(intent.size_bytes.cast_signed())
        .number(intent.fingerprint.cast_signed())
        .number(intent.chunk_bytes.cast_signed())
        .text(options)
        .number(intent.intent_unix_ms)
}

/// The checksum of a part of an object. It has the object's name, so the part belongs to no other upload.
fn part_digest(target: u16, target_key: &str, part: &PartTag) -> Digest {
    let sums = &part.checksums;
    Digest::new()
        .number(i64::from(target))
        .text(target_key)
        .number(i64::from(part.part))
        .number(part.size_bytes.cast_signed())
        .text(part.tag.as_str())
        .number(sums.crc64nvme.map(u64::cast_signed))
        .number(sums.crc32c.map(i64::from))
        .bytes(sums.md5)
}

const INTENT_COLUMNS: &str = "id, target, target_key, source_key, size_bytes, fingerprint, chunk_bytes, options, \
                              intent_unix_ms, upload_id, digest";

fn intent_of(row: &Row<'_>) -> rusqlite::Result<Intent> {
    let text: String = row.get(7)?;
    let options = serde_json::from_str(&text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(7, rusqlite::types::Type::Text, Box::new(error)))?;
    let intent = Intent {
        target: row.get(1)?,
        target_key: row.get(2)?,
        source_key: row.get(3)?,
        size_bytes: row.get::<_, i64>(4)?.cast_unsigned(),
        fingerprint: row.get::<_, i64>(5)?.cast_unsigned(),
        chunk_bytes: row.get::<_, i64>(6)?.cast_unsigned(),
        options,
        intent_unix_ms: row.get(8)?,
    };
    intent_digest(&intent, &text).check("upload", row.get(10)?)?;
    Ok(intent)
}

/// Returns the boots in which earlier runs may have written, and when the first run in each began (Unix ms).
pub(super) fn read_boots(connection: &Connection) -> rusqlite::Result<Vec<(String, i64)>> {
    let sql = "SELECT boot, began_unix_ms FROM boot ORDER BY began_unix_ms, boot";
    connection.prepare(sql)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Returns uploads without an id, superseded ones too, in the order of destination, key and intent.
pub(super) fn read_pending_intents(connection: &Connection) -> rusqlite::Result<Vec<Intent>> {
    let sql = format!("SELECT {INTENT_COLUMNS} FROM upload WHERE upload_id IS NULL ORDER BY target, target_key, id");
    connection.prepare(&sql)?.query_map([], intent_of)?.collect()
}

/// Returns uploads with an id that may be resumed, in the order of destination and key.
pub(super) fn read_unfinished(connection: &Connection) -> rusqlite::Result<Vec<UnfinishedUpload>> {
    read_uploads(connection, "superseded = 0")
}

/// Returns uploads with an id that were superseded and not aborted, in the order of destination, key and intent.
pub(super) fn read_superseded(connection: &Connection) -> rusqlite::Result<Vec<UnfinishedUpload>> {
    read_uploads(connection, "superseded != 0")
}

fn read_uploads(connection: &Connection, which: &str) -> rusqlite::Result<Vec<UnfinishedUpload>> {
    let mut parts = read_parts(connection)?;
    let sql = format!(
        "SELECT {INTENT_COLUMNS} FROM upload WHERE upload_id IS NOT NULL AND {which} ORDER BY target, target_key, id"
    );
    let mut statement = connection.prepare(&sql)?;
    let uploads = statement.query_map([], |row| {
        let parts = parts.remove(&row.get(0)?).unwrap_or_default();
        Ok(UnfinishedUpload { intent: intent_of(row)?, upload: UploadId(row.get(9)?), parts })
    })?;
    uploads.collect()
}

fn read_parts(connection: &Connection) -> rusqlite::Result<BTreeMap<i64, Vec<PartTag>>> {
    let sql = "SELECT upload, part, part.size_bytes, tag, crc64nvme, crc32c, md5, target, target_key, part.digest
               FROM part JOIN upload ON upload.id = part.upload ORDER BY upload, part";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut parts: BTreeMap<i64, Vec<PartTag>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let checksums = Checksums {
            crc64nvme: row.get::<_, Option<i64>>(4)?.map(i64::cast_unsigned),
            crc32c: row.get(5)?,
            md5: row.get(6)?,
        };
        let size_bytes = row.get::<_, i64>(2)?.cast_unsigned();
        let part = PartTag { part: row.get(1)?, size_bytes, tag: row.get(3)?, checksums };
        part_digest(row.get(7)?, row.get_ref(8)?.as_str()?, &part).check("part", row.get(9)?)?;
        parts.entry(row.get(0)?).or_default().push(part);
    }
    Ok(parts)
}
