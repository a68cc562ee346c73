//! The tables of a journal.

use super::JournalError;
use rusqlite::Connection;
use std::path::Path;

/// Marks an SQLite file as ours ("TWjn").
const APPLICATION_ID: i64 = 0x5457_6a6e;
/// Grows when the tables change.
pub(super) const SCHEMA: i64 = 1;
/// Journals up to this size are checked page by page when they are opened; larger ones as they are read.
const CHECKED_BYTES_MAX: u64 = 64 << 20;

/// `done` holds objects × destinations that are closed and proven. `upload` holds multipart uploads from the intent to
/// the end; `upload_id` is empty until the store has named it. Checksums are stored as the signed integers of the same bits.
const TABLES: &str = "
    CREATE TABLE done (
        target INTEGER NOT NULL,
        target_key TEXT NOT NULL,
        fingerprint INTEGER NOT NULL,
        size_bytes INTEGER NOT NULL,
        PRIMARY KEY (target, target_key)
    ) WITHOUT ROWID;
    CREATE TABLE upload (
        id INTEGER PRIMARY KEY,
        target INTEGER NOT NULL,
        target_key TEXT NOT NULL,
        source_key TEXT NOT NULL,
        size_bytes INTEGER NOT NULL,
        fingerprint INTEGER NOT NULL,
        chunk_bytes INTEGER NOT NULL,
        options TEXT NOT NULL,
        intent_unix_ms INTEGER NOT NULL,
        upload_id TEXT,
        UNIQUE (target, target_key)
    );
    CREATE TABLE part (
        upload INTEGER NOT NULL REFERENCES upload (id) ON DELETE CASCADE,
        part INTEGER NOT NULL,
        size_bytes INTEGER NOT NULL,
        tag TEXT NOT NULL,
        crc64nvme INTEGER,
        crc32c INTEGER,
        md5 BLOB,
        PRIMARY KEY (upload, part)
    ) WITHOUT ROWID;
";

/// Makes the tables in a new file.
pub(super) fn create(path: &Path, connection: &mut Connection) -> Result<(), JournalError> {
    let make = |connection: &mut Connection| -> rusqlite::Result<()> {
        connection.pragma_update(None, "journal_mode", "wal")?;
        let transaction = connection.transaction()?;
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA)?;
        transaction.commit()
    };
    make(connection).map_err(|error| JournalError::from_sqlite(path, &error))
}

/// Refuses a file that is not a whole journal of this schema.
pub(super) fn check(path: &Path, connection: &mut Connection) -> Result<(), JournalError> {
    let sqlite = |error: rusqlite::Error| JournalError::from_sqlite(path, &error);
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(sqlite);
    if number("application_id")? != APPLICATION_ID {
        return Err(JournalError::Corrupt { path: path.to_owned(), message: "it is no journal".to_owned() });
    }
    let found = number("user_version")?;
    if found != SCHEMA {
        return Err(JournalError::OtherSchema { path: path.to_owned(), found, expected: SCHEMA });
    }
    let size_bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if size_bytes <= CHECKED_BYTES_MAX {
        let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(sqlite)?;
        if verdict != "ok" {
            return Err(JournalError::Corrupt { path: path.to_owned(), message: verdict });
        }
    }
    Ok(())
}

/// Settings of a writing connection. `NORMAL` does not wait for the disk at each commit; a flush does
/// (see `writer::commit`).
pub(super) fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "normal")?;
    connection.pragma_update(None, "foreign_keys", "on")?;
    connection.set_prepared_statement_cache_capacity(16);
    Ok(())
}
