//! The tables of a journal.

use super::JournalError;
use rusqlite::Connection;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Marks an SQLite file as ours ("TWjn").
const APPLICATION_ID: i64 = 0x5457_6a6e;
/// Schema version; increases when the tables change.
pub(super) const SCHEMA: i64 = 5;
/// The oldest schema that can be migrated.
const SCHEMA_MIN: i64 = 1;
/// Journals up to this size are checked page by page when they are opened; larger ones as they are read.
const CHECKED_BYTES_MAX: u64 = 64 << 20;

/// `done` holds objects × destinations that are closed and proven. `boot` is the boot of the machine that may still hold
/// the bytes in memory only. It is NULL if they were durable before the row was written, and empty if an older version
/// wrote the row without it. `upload` holds multipart uploads from the intent to the end; `upload_id` is empty until
/// the store has returned it. A `superseded` row belongs to an earlier state of its object and stays until the upload
/// is aborted. Checksums are stored as the signed integers of the same bits. `written` is the destination store's
/// description of the object (JSON of [`Written`](tradewind_store::Written)); NULL unless the job deletes its sources,
/// or if an older version wrote the row. `digest` is the [checksum](super::digest) of the row, here and in the other
/// tables; NULL if an older version wrote it.
const DONE: &str = "
    CREATE TABLE done (
        target INTEGER NOT NULL,
        target_key TEXT NOT NULL,
        fingerprint INTEGER NOT NULL,
        size_bytes INTEGER NOT NULL,
        boot TEXT,
        crc64nvme INTEGER,
        crc32c INTEGER,
        written TEXT,
        digest INTEGER,
        PRIMARY KEY (target, target_key)
    ) WITHOUT ROWID;
";
/// `boot` holds the boots of the machines that earlier runs may have written on, and when the first run in each began.
/// The empty string stands for boots that were not recorded.
const BOOT: &str = "
    CREATE TABLE boot (
        boot TEXT PRIMARY KEY,
        began_unix_ms INTEGER NOT NULL
    ) WITHOUT ROWID;
";
/// `deletion` has a row once a run was about to delete the sources of a move, when all of them were in `done`. A source
/// that is missing after that was moved.
const DELETION: &str = "
    CREATE TABLE deletion (
        began_unix_ms INTEGER NOT NULL
    );
";
const PART: &str = "
    CREATE TABLE part (
        upload INTEGER NOT NULL REFERENCES upload (id) ON DELETE CASCADE,
        part INTEGER NOT NULL,
        size_bytes INTEGER NOT NULL,
        tag TEXT NOT NULL,
        crc64nvme INTEGER,
        crc32c INTEGER,
        md5 BLOB,
        digest INTEGER,
        PRIMARY KEY (upload, part)
    ) WITHOUT ROWID;
";
const UPLOAD_COLUMNS: &str = "
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
        superseded INTEGER NOT NULL DEFAULT 0,
        digest INTEGER";
const INDICES: &str = "
    CREATE UNIQUE INDEX upload_current ON upload (target, target_key) WHERE superseded = 0;
    CREATE INDEX upload_of_key ON upload (target, target_key);
";
/// Migrates from schema 1. SQLite drops a UNIQUE constraint only with its table.
const UPLOADS_OF_1: &str = "
    INSERT INTO upload_new
        SELECT id, target, target_key, source_key, size_bytes, fingerprint, chunk_bytes, options, intent_unix_ms,
               upload_id, 0, NULL FROM upload;
    DROP TABLE upload;
    ALTER TABLE upload_new RENAME TO upload;
    ALTER TABLE done ADD COLUMN boot TEXT;
    ALTER TABLE done ADD COLUMN crc64nvme INTEGER;
    ALTER TABLE done ADD COLUMN crc32c INTEGER;
    UPDATE done SET boot = '';
    INSERT INTO boot (boot, began_unix_ms) VALUES ('', 0);
";
/// Migrates from schema 2.
const COPIES_OF_2: &str = "ALTER TABLE done ADD COLUMN written TEXT;";
/// Migrates from schema 4.
const DIGESTS_OF_4: &str = "
    ALTER TABLE done ADD COLUMN digest INTEGER;
    ALTER TABLE part ADD COLUMN digest INTEGER;
";
/// Migrates from schemas 2 to 4; schema 1 gets another table of uploads.
const UPLOADS_OF_4: &str = "ALTER TABLE upload ADD COLUMN digest INTEGER;";

/// Creates the file of a new journal.
///
/// It is completed under another name, so SQLite need not sync its steps: after a power cut the journal's own name has
/// all of it, or nothing. It gets its log last, because closing a connection does not report that a log could not be
/// moved into the file, for example on a full disk. The name itself is durable with the first entry, because SQLite
/// then creates its log and syncs the folder. Until then the journal holds nothing, and a resumed job begins another one.
pub(super) fn create_file(path: &Path) -> Result<(), JournalError> {
    let failed = |error: io::Error| JournalError::Io { path: path.to_owned(), message: error.to_string() };
    let sqlite = |error: rusqlite::Error| JournalError::from_sqlite(path, &error);
    let fresh = path.with_extension("sqlite.new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).map_err(failed)?;
    let mut connection = Connection::open(&fresh).map_err(sqlite)?;
    connection.pragma_update(None, "synchronous", "off").map_err(sqlite)?;
    connection.pragma_update(None, "journal_mode", "memory").map_err(sqlite)?;
    create(path, &mut connection)?;
    begin_log(path, &connection)?;
    connection.close().map_err(|(_, error)| sqlite(error))?;
    file.sync_all().map_err(failed)?;
    fs::rename(&fresh, path).map_err(failed)
}

/// Writes to a log (WAL) from now on.
fn begin_log(path: &Path, connection: &Connection) -> Result<(), JournalError> {
    let wal = connection.pragma_update(None, "journal_mode", "wal");
    wal.map_err(|error| JournalError::from_sqlite(path, &error))
}

/// Creates the tables in an empty file.
fn create(path: &Path, connection: &mut Connection) -> Result<(), JournalError> {
    let make = |connection: &mut Connection| -> rusqlite::Result<()> {
        let transaction = connection.transaction()?;
        transaction.execute_batch(&format!(
            "{DONE} {BOOT} {DELETION} CREATE TABLE upload ({UPLOAD_COLUMNS}); {PART} {INDICES}"
        ))?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA)?;
        transaction.commit()
    };
    make(connection).map_err(|error| JournalError::from_sqlite(path, &error))
}

/// Refuses a file that is not a complete journal, and migrates an older schema.
pub(super) fn check(path: &Path, connection: &mut Connection) -> Result<(), JournalError> {
    let sqlite = |error: rusqlite::Error| JournalError::from_sqlite(path, &error);
    let number = |connection: &Connection, name: &str| {
        connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(sqlite)
    };
    if is_empty(connection).map_err(sqlite)? {
        // The lead died, or the power failed, before the tables were created.
        begin_log(path, connection)?;
        return create(path, connection);
    }
    if number(connection, "application_id")? != APPLICATION_ID {
        return Err(JournalError::Corrupt { path: path.to_owned(), message: "it is not a journal".to_owned() });
    }
    let found = number(connection, "user_version")?;
    if !(SCHEMA_MIN..=SCHEMA).contains(&found) {
        return Err(JournalError::OtherSchema { path: path.to_owned(), found, expected: SCHEMA });
    }
    let size_bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if size_bytes <= CHECKED_BYTES_MAX {
        let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(sqlite)?;
        if verdict != "ok" {
            return Err(JournalError::Corrupt { path: path.to_owned(), message: verdict });
        }
    }
    if found == SCHEMA { Ok(()) } else { migrate(connection, found).map_err(sqlite) }
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
}

/// Migrates from the schema `found`, in one transaction. Foreign keys are not enforced yet, so dropping `upload` keeps
/// `part`.
fn migrate(connection: &mut Connection, found: i64) -> rusqlite::Result<()> {
    connection.pragma_update(None, "foreign_keys", "off")?;
    let transaction = connection.transaction()?;
    if found == 1 {
        let tables = format!("{BOOT} CREATE TABLE upload_new ({UPLOAD_COLUMNS}); {UPLOADS_OF_1} {INDICES}");
        transaction.execute_batch(&tables)?;
    }
    if found <= 2 {
        transaction.execute_batch(COPIES_OF_2)?;
    }
    if found <= 3 {
        transaction.execute_batch(DELETION)?;
    }
    if found > 1 {
        transaction.execute_batch(UPLOADS_OF_4)?;
    }
    transaction.execute_batch(DIGESTS_OF_4)?;
    transaction.pragma_update(None, "user_version", SCHEMA)?;
    transaction.commit()
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
