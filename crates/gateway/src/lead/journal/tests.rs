use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tradewind_store::{Checksums, ObjectInfo, PartTag, PutOptions, UploadId};

const TARGETS: u16 = 2;
const KEYS: [&str; 4] = ["a", "a/b", "a//b", "übung \u{1F30A}"];

fn intent(target: u16, key: &str, fingerprint: u64) -> Intent {
    Intent {
        target,
        target_key: key.to_owned(),
        source_key: format!("source/{key}"),
        size_bytes: u64::MAX - 1,
        fingerprint,
        chunk_bytes: 16 << 20,
        options: PutOptions { storage_class: Some("COLD".into()), ..PutOptions::default() },
        intent_unix_ms: 1_700_000_000_000,
    }
}

fn part(number: u32, crc64nvme: Option<u64>) -> PartTag {
    let checksums = Checksums { crc64nvme, crc32c: Some(u32::MAX), md5: crc64nvme.map(|sum| [sum as u8; 16]) };
    PartTag { part: number, size_bytes: 5 << 20, tag: format!("etag-{number}"), checksums }
}

fn state_dir() -> (tempfile::TempDir, StateDir) {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::create(dir.path()).unwrap();
    (dir, state)
}

/// An upload as recorded: intent, name, parts.
type Known = (Intent, Option<UploadId>, BTreeMap<u32, PartTag>);

/// What a journal must know after a sequence of entries.
#[derive(Default)]
struct Model {
    done: BTreeMap<(u16, String), u64>,
    uploads: BTreeMap<(u16, String), Known>,
}

impl Model {
    fn apply(&mut self, entry: &Entry) {
        match entry.clone() {
            Entry::Intent(intent) => {
                let name = (intent.target, intent.target_key.clone());
                self.uploads.insert(name, (intent, None, BTreeMap::new()));
            }
            Entry::Opened { target, target_key, upload } => {
                if let Some(known) = self.uploads.get_mut(&(target, target_key)) {
                    known.1 = Some(upload);
                }
            }
            Entry::Part { target, target_key, part } => {
                if let Some(known) = self.uploads.get_mut(&(target, target_key)) {
                    known.2.insert(part.part, part);
                }
            }
            Entry::Closed { target, target_key, fingerprint, .. } => {
                self.uploads.remove(&(target, target_key.clone()));
                self.done.insert((target, target_key), fingerprint);
            }
            Entry::Abandoned { target, target_key } => {
                self.uploads.remove(&(target, target_key));
            }
        }
    }

    fn unfinished(&self) -> Vec<UnfinishedUpload> {
        let opened = self.uploads.values().filter_map(|(intent, upload, parts)| {
            let (intent, parts) = (intent.clone(), parts.values().cloned().collect());
            upload.clone().map(|upload| UnfinishedUpload { intent, upload, parts })
        });
        opened.collect()
    }

    fn pending(&self) -> Vec<Intent> {
        let pending = self.uploads.values().filter(|(_, upload, _)| upload.is_none());
        pending.map(|(intent, ..)| intent.clone()).collect()
    }
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let name = (0..TARGETS, prop::sample::select(KEYS.to_vec()));
    (name, 0..5, any::<u64>(), 1..4u32, any::<Option<u64>>()).prop_map(|((target, key), kind, number, index, sum)| {
        let target_key = key.to_owned();
        match kind {
            0 => Entry::Intent(intent(target, key, number)),
            1 => Entry::Opened { target, target_key, upload: UploadId(format!("upload-{number}")) },
            2 => Entry::Part { target, target_key, part: part(index, sum) },
            3 => Entry::Closed { target, target_key, fingerprint: number, size_bytes: number },
            _ => Entry::Abandoned { target, target_key },
        }
    })
}

async fn assert_knows(journal: &Journal, model: &Model) {
    assert_eq!(journal.unfinished().await.unwrap(), model.unfinished());
    assert_eq!(journal.pending_intents().await.unwrap(), model.pending());
    let done = journal.done_set().unwrap();
    assert_eq!(done.is_empty(), model.done.is_empty());
    for target in 0..TARGETS {
        for key in KEYS {
            let fingerprint = model.done.get(&(target, key.to_owned())).copied();
            let asked = vec![
                (target, key.to_owned(), fingerprint.unwrap_or(7)),
                (target, key.to_owned(), fingerprint.unwrap_or(7).wrapping_add(1)),
            ];
            assert_eq!(done.contains(asked).await.unwrap(), [fingerprint.is_some(), false]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is recorded, in whatever batches, is known then and after reopening.
    #[test]
    fn what_is_read_back_is_what_was_recorded(
        entries in prop::collection::vec((any_entry(), prop::bool::weighted(0.2)), 0..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_dir, state) = state_dir();
            let journal = Journal::create(&state).unwrap();
            let mut model = Model::default();
            for (entry, is_flushed) in entries {
                model.apply(&entry);
                journal.record(entry).await.unwrap();
                if is_flushed {
                    journal.flush().await.unwrap();
                }
            }
            assert_knows(&journal, &model).await;
            drop(journal);
            assert_knows(&Journal::open_existing(&state).unwrap(), &model).await;
        });
    }
}

#[tokio::test]
async fn entries_that_nobody_flushed_are_written_when_the_journal_is_dropped() {
    let (_dir, state) = state_dir();
    let journal = Journal::create(&state).unwrap();
    for index in 0..3 * BATCH_ENTRIES_MAX {
        let closed = Entry::Closed { target: 0, target_key: index.to_string(), fingerprint: 1, size_bytes: 0 };
        journal.record(closed).await.unwrap();
    }
    drop(journal);
    let done = Journal::open_existing(&state).unwrap().done_set().unwrap();
    let asked = (0..3 * BATCH_ENTRIES_MAX).map(|index| (0, index.to_string(), 1)).collect();
    assert!(done.contains(asked).await.unwrap().into_iter().all(|is_done| is_done));
}

#[test]
fn a_journal_is_neither_begun_twice_nor_resumed_from_nothing() {
    let (_dir, state) = state_dir();
    assert!(matches!(Journal::open_existing(&state), Err(JournalError::Missing(_))));
    drop(Journal::open_or_create(&state).unwrap());
    assert!(matches!(Journal::create(&state), Err(JournalError::Exists(_))));
    drop(Journal::open_or_create(&state).unwrap());
}

#[test]
fn damage_and_other_schemas_are_told_apart() {
    let (_dir, state) = state_dir();
    let path = state.path().join(JOURNAL_FILE);
    std::fs::write(&path, b"garbage, and more of it than an SQLite header is long").unwrap();
    assert!(matches!(Journal::open_existing(&state), Err(JournalError::Corrupt { .. })));
    std::fs::remove_file(&path).unwrap();

    drop(Journal::create(&state).unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(Journal::open_existing(&state), Err(JournalError::Corrupt { .. })));
    std::fs::remove_file(&path).unwrap();

    drop(Journal::create(&state).unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = Journal::open_existing(&state).unwrap_err();
    assert!(matches!(error, JournalError::OtherSchema { found: 99, .. }), "{error}");
}

#[tokio::test]
async fn a_write_that_fails_is_told_to_all_who_record_or_wait() {
    let (_dir, state) = state_dir();
    let journal = Journal::create(&state).unwrap();
    let path = state.path().join(JOURNAL_FILE);
    Connection::open(path).unwrap().execute_batch("DROP TABLE done").unwrap();
    let closed = Entry::Closed { target: 0, target_key: "a".into(), fingerprint: 1, size_bytes: 1 };
    let error = journal.record_durably(closed.clone()).await.unwrap_err();
    assert!(error.to_string().contains("no such table: done"), "{error}");
    assert!(journal.record_durably(closed).await.is_err());
}

#[tokio::test]
async fn a_disabled_journal_keeps_nothing_and_never_fails() {
    let journal = Journal::disabled();
    journal.record_durably(Entry::Intent(intent(0, "a", 1))).await.unwrap();
    assert!(journal.unfinished().await.unwrap().is_empty() && journal.done_set().unwrap().is_empty());
}

#[test]
fn a_fingerprint_tells_states_apart() {
    let state = ObjectInfo { size_bytes: 1, etag: Some("a".into()), modified_unix_ms: 5, ..ObjectInfo::default() };
    let others = [
        ObjectInfo { size_bytes: 2, ..state.clone() },
        ObjectInfo { etag: Some("b".into()), ..state.clone() },
        ObjectInfo { modified_unix_ms: 6, ..state.clone() },
    ];
    for other in others {
        assert_ne!(fingerprint(&state), fingerprint(&other));
    }
    assert_eq!(fingerprint(&state), fingerprint(&ObjectInfo { version: Some("v".into()), ..state.clone() }));
}
