//! What is recorded, and how it is written to and read from the tables.

use rusqlite::{Connection, Row, Transaction, params};
use std::collections::BTreeMap;
use tradewind_store::{Checksums, PartTag, PutOptions, UploadId};

/// One thing to remember. Entries about one object name it by destination and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An upload is about to be opened. Must be durable before it is. Takes the place of any earlier upload of the same
    /// object, whose parts are forgotten.
    Intent(Intent),
    /// The store has named the upload.
    Opened {
        /// Index of the destination.
        target: u16,
        /// Key there.
        target_key: String,
        /// The store's name for it.
        upload: UploadId,
    },
    /// The store has a part, durably.
    Part {
        /// Index of the destination.
        target: u16,
        /// Key there.
        target_key: String,
        /// What the store returned.
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
    },
    /// The upload was aborted or never opened: nothing of it is left in the store.
    Abandoned {
        /// Index of the destination.
        target: u16,
        /// Key there.
        target_key: String,
    },
}

/// An upload that is about to be opened, or that may have been.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// What the object is to be written with.
    pub options: PutOptions,
    /// When it was decided, milliseconds since the Unix epoch: uploads of this key that are older are not ours.
    pub intent_unix_ms: i64,
}

/// An upload that an earlier run has opened and not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedUpload {
    /// What was intended.
    pub intent: Intent,
    /// The store's name for it.
    pub upload: UploadId,
    /// Parts that the store has, ascending.
    pub parts: Vec<PartTag>,
}

/// Writes one entry. Entries about an upload that is not there are ignored: its object has been closed or given up.
pub(super) fn write(transaction: &Transaction<'_>, entry: &Entry) -> rusqlite::Result<()> {
    match entry {
        Entry::Intent(intent) => write_intent(transaction, intent),
        Entry::Opened { target, target_key, upload } => {
            let sql = "UPDATE upload SET upload_id = ?3 WHERE target = ?1 AND target_key = ?2";
            transaction.prepare_cached(sql)?.execute(params![target, target_key, upload.0]).map(drop)
        }
        Entry::Part { target, target_key, part } => {
            let sql = "INSERT OR REPLACE INTO part (upload, part, size_bytes, tag, crc64nvme, crc32c, md5)
                       SELECT id, ?3, ?4, ?5, ?6, ?7, ?8 FROM upload WHERE target = ?1 AND target_key = ?2";
            let sums = &part.checksums;
            let (crc64nvme, md5) = (sums.crc64nvme.map(u64::cast_signed), sums.md5.as_ref().map(|sum| &sum[..]));
            let size_bytes = part.size_bytes.cast_signed();
            let values = params![target, target_key, part.part, size_bytes, part.tag, crc64nvme, sums.crc32c, md5];
            transaction.prepare_cached(sql)?.execute(values).map(drop)
        }
        Entry::Closed { target, target_key, fingerprint, size_bytes } => {
            forget_upload(transaction, *target, target_key)?;
            let sql =
                "INSERT OR REPLACE INTO done (target, target_key, fingerprint, size_bytes) VALUES (?1, ?2, ?3, ?4)";
            let values = params![target, target_key, fingerprint.cast_signed(), size_bytes.cast_signed()];
            transaction.prepare_cached(sql)?.execute(values).map(drop)
        }
        Entry::Abandoned { target, target_key } => forget_upload(transaction, *target, target_key),
    }
}

fn forget_upload(transaction: &Transaction<'_>, target: u16, target_key: &str) -> rusqlite::Result<()> {
    let sql = "DELETE FROM upload WHERE target = ?1 AND target_key = ?2";
    transaction.prepare_cached(sql)?.execute(params![target, target_key]).map(drop)
}

fn write_intent(transaction: &Transaction<'_>, intent: &Intent) -> rusqlite::Result<()> {
    forget_upload(transaction, intent.target, &intent.target_key)?;
    let options = serde_json::to_string(&intent.options)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    let sql = "INSERT INTO upload
                   (target, target_key, source_key, size_bytes, fingerprint, chunk_bytes, options, intent_unix_ms)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let values = params![
        intent.target,
        intent.target_key,
        intent.source_key,
        intent.size_bytes.cast_signed(),
        intent.fingerprint.cast_signed(),
        intent.chunk_bytes.cast_signed(),
        options,
        intent.intent_unix_ms,
    ];
    transaction.prepare_cached(sql)?.execute(values).map(drop)
}

const INTENT_COLUMNS: &str =
    "id, target, target_key, source_key, size_bytes, fingerprint, chunk_bytes, options, intent_unix_ms, upload_id";

fn intent_of(row: &Row<'_>) -> rusqlite::Result<Intent> {
    let options: String = row.get(7)?;
    let options = serde_json::from_str(&options)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(7, rusqlite::types::Type::Text, Box::new(error)))?;
    Ok(Intent {
        target: row.get(1)?,
        target_key: row.get(2)?,
        source_key: row.get(3)?,
        size_bytes: row.get::<_, i64>(4)?.cast_unsigned(),
        fingerprint: row.get::<_, i64>(5)?.cast_unsigned(),
        chunk_bytes: row.get::<_, i64>(6)?.cast_unsigned(),
        options,
        intent_unix_ms: row.get(8)?,
    })
}

/// Uploads without an id, in the order of destination and key.
pub(super) fn read_pending_intents(connection: &Connection) -> rusqlite::Result<Vec<Intent>> {
    let sql = format!("SELECT {INTENT_COLUMNS} FROM upload WHERE upload_id IS NULL ORDER BY target, target_key");
    connection.prepare(&sql)?.query_map([], intent_of)?.collect()
}

/// Uploads with an id, in the order of destination and key.
pub(super) fn read_unfinished(connection: &Connection) -> rusqlite::Result<Vec<UnfinishedUpload>> {
    let mut parts = read_parts(connection)?;
    let sql = format!("SELECT {INTENT_COLUMNS} FROM upload WHERE upload_id IS NOT NULL ORDER BY target, target_key");
    let mut statement = connection.prepare(&sql)?;
    let uploads = statement.query_map([], |row| {
        let parts = parts.remove(&row.get(0)?).unwrap_or_default();
        Ok(UnfinishedUpload { intent: intent_of(row)?, upload: UploadId(row.get(9)?), parts })
    })?;
    uploads.collect()
}

fn read_parts(connection: &Connection) -> rusqlite::Result<BTreeMap<i64, Vec<PartTag>>> {
    let sql = "SELECT upload, part, size_bytes, tag, crc64nvme, crc32c, md5 FROM part ORDER BY upload, part";
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
        parts.entry(row.get(0)?).or_default().push(part);
    }
    Ok(parts)
}
