//! A job's journal: the SQLite file, and each row in it. A copied, cut or edited file may hold anything.

use rusqlite::Connection;
use rusqlite::types::Value;
use std::path::Path;
use std::sync::OnceLock;
use tradewind_gateway::lead::journal::{Entry, JOURNAL_FILE, Journal, JournalError, UnfinishedUpload};
use tradewind_gateway::lead::state_dir::StateDir;

/// Tables with the number of their columns.
const TABLES: [(&str, usize); 4] = [("done", 7), ("upload", 11), ("part", 7), ("boot", 2)];
/// Longest text or blob in a row.
const VALUE_BYTES_MAX: usize = 4096;

/// Reads `data` as a journal: an even first byte is followed by the file, an odd one by rows. Nothing may panic, and what
/// is read must be the same after it is written to a new journal.
pub(crate) fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join(JOURNAL_FILE);
    if kind % 2 == 0 {
        std::fs::write(&path, rest).expect("the file can be written");
    } else {
        std::fs::write(&path, good_journal()).expect("the file can be written");
        insert_rows(&path, rest);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    if let Ok(uploads) = runtime.block_on(read_all(dir.path())) {
        runtime.block_on(write_and_compare(uploads));
    }
}

/// The file of a journal without rows.
pub(crate) fn good_journal() -> &'static [u8] {
    static GOOD: OnceLock<Vec<u8>> = OnceLock::new();
    GOOD.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a temporary folder");
        drop(Journal::create(&StateDir::create(dir.path()).expect("a folder")).expect("a journal"));
        std::fs::read(dir.path().join(JOURNAL_FILE)).expect("its file")
    })
}

async fn read_all(dir: &Path) -> Result<Vec<UnfinishedUpload>, JournalError> {
    let journal = Journal::open_existing(&StateDir::create(dir).expect("a folder"))?;
    journal.pending_intents().await?;
    journal.superseded().await?;
    journal.boots().await?;
    let asked = (0..4).map(|key| (key % 2, "abcd"[usize::from(key)..=usize::from(key)].to_owned(), 1)).collect();
    journal.done_set()?.contains(asked).await?;
    journal.unfinished().await
}

async fn write_and_compare(uploads: Vec<UnfinishedUpload>) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let journal = Journal::create(&StateDir::create(dir.path()).expect("a folder")).expect("a journal");
    for UnfinishedUpload { intent, upload, parts } in uploads.clone() {
        let (target, target_key) = (intent.target, intent.target_key.clone());
        let opened = Entry::Opened { target, target_key: target_key.clone(), upload, has_unnamed: false };
        let parts = parts.into_iter().map(|part| Entry::Part { target, target_key: target_key.clone(), part });
        for entry in [Entry::Intent(Box::new(intent)), opened].into_iter().chain(parts) {
            journal.record(entry).await.expect("what was read can be written");
        }
    }
    assert_eq!(journal.unfinished().await.expect("what was written can be read"), uploads);
}

/// Rows of any types, because SQLite stores any type. A row that a table refuses is left out.
fn insert_rows(path: &Path, mut data: &[u8]) {
    let connection = Connection::open(path).expect("a good journal opens");
    while let Some(&table) = data.first() {
        data = &data[1..];
        let (table, columns) = TABLES[usize::from(table) % TABLES.len()];
        let values: Vec<Value> = (0..columns).map(|_| value(&mut data)).collect();
        let marks = vec!["?"; columns].join(", ");
        let sql = format!("INSERT OR REPLACE INTO {table} VALUES ({marks})");
        connection.execute(&sql, rusqlite::params_from_iter(values)).ok();
    }
}

fn value(data: &mut &[u8]) -> Value {
    let Some((&kind, rest)) = data.split_first() else { return Value::Null };
    *data = rest;
    match kind % 6 {
        0 => Value::Null,
        1 => Value::Integer(take(data, 1).first().copied().unwrap_or_default().into()),
        2 => Value::Integer(i64::from_le_bytes(padded(take(data, 8)))),
        3 => Value::Real(f64::from_le_bytes(padded(take(data, 8)))),
        kind => {
            let bytes = padded::<2>(take(data, 2));
            let bytes = take(data, usize::from(u16::from_le_bytes(bytes)) % VALUE_BYTES_MAX).to_vec();
            match kind {
                4 => Value::Text(String::from_utf8_lossy(&bytes).into_owned()),
                _ => Value::Blob(bytes),
            }
        }
    }
}

fn take<'a>(data: &mut &'a [u8], bytes: usize) -> &'a [u8] {
    let (taken, rest) = data.split_at(bytes.min(data.len()));
    *data = rest;
    taken
}

fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut padded = [0; N];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}
