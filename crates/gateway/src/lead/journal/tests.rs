use super::*;
use crate::node::work::Unsynced;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use tradewind_store::{Checksums, FileIdentity, ObjectInfo, PartTag, PutOptions, UploadId, Written};

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

#[tokio::test]
async fn what_a_lead_left_that_died_while_it_created_the_journal_is_replaced() {
    let (dir, state) = state_dir();
    std::fs::write(dir.path().join("journal.sqlite.new"), "half a journal").unwrap();
    let journal = Journal::create(&state).unwrap();
    journal.record_durably(Entry::Intent(Box::new(intent(0, "a", 1)))).await.unwrap();
    // Nothing new: neither a flush nor a reader changes the log.
    let log = || std::fs::metadata(dir.path().join("journal.sqlite-wal")).unwrap().len();
    let before = log();
    journal.flush().await.unwrap();
    assert_eq!(journal.pending_intents().await.unwrap().len(), 1);
    assert_eq!(log(), before);
    drop(journal);
    let names: BTreeSet<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, BTreeSet::from(["journal.sqlite".into(), "lock".into()]));
}

/// An upload as recorded: intent, name, parts.
type Known = (Intent, Option<UploadId>, BTreeMap<u32, PartTag>);

/// The state that a journal must have after a sequence of entries.
#[derive(Default)]
struct Model {
    done: BTreeMap<(u16, String), (u64, Done)>,
    uploads: BTreeMap<(u16, String), Known>,
    superseded: BTreeMap<(u16, String), Vec<Known>>,
}

impl Model {
    fn apply(&mut self, entry: &Entry) {
        match entry.clone() {
            Entry::Intent(intent) => {
                let name = (intent.target, intent.target_key.clone());
                let again = |known: &Known| known.1.is_none() && known.0.intent_unix_ms == intent.intent_unix_ms;
                let superseded = self.superseded.entry(name.clone()).or_default();
                superseded.retain(|known| !again(known));
                let earlier = self.uploads.remove(&name).filter(|known| !again(known));
                superseded.extend(earlier.map(|(intent, upload, _)| (intent, upload, BTreeMap::new())));
                self.uploads.insert(name, (*intent, None, BTreeMap::new()));
            }
            Entry::Opened { target, target_key, upload, has_unnamed } => {
                let name = (target, target_key);
                if let Some(known) = self.uploads.get_mut(&name) {
                    known.1 = Some(upload);
                    let unnamed = (known.0.clone(), None, BTreeMap::new());
                    let superseded = self.superseded.entry(name).or_default();
                    let again = |other: &Known| other.1.is_none() && other.0.intent_unix_ms == unnamed.0.intent_unix_ms;
                    if has_unnamed && !superseded.iter().any(again) {
                        superseded.push(unnamed);
                    }
                }
            }
            Entry::Part { target, target_key, part } => {
                if let Some(known) = self.uploads.get_mut(&(target, target_key)) {
                    known.2.insert(part.part, part);
                }
            }
            Entry::Closed { target, target_key, fingerprint, unsynced, written, .. } => {
                let name = (target, target_key.clone());
                if let Some((intent, Some(_), _)) = self.uploads.remove(&name) {
                    let same = |known: &Known| known.1.is_none() && known.0.intent_unix_ms == intent.intent_unix_ms;
                    self.superseded.entry(name).or_default().retain(|known| !same(known));
                }
                let done = unsynced.map_or(Done::Yes(written.map(|written| *written)), Done::Unsynced);
                self.done.insert((target, target_key), (fingerprint, done));
            }
            Entry::Undone { target, target_key } => drop(self.done.remove(&(target, target_key))),
            Entry::NotOpened { target, target_key, intent_unix_ms } => {
                let is_it = |known: &Known| known.1.is_none() && known.0.intent_unix_ms == intent_unix_ms;
                self.uploads.retain(|of, known| *of != (target, target_key.clone()) || !is_it(known));
            }
            Entry::Abandoned { target, target_key, upload } => {
                let name = (target, target_key);
                self.uploads.retain(|of, known| *of != name || known.1 != upload);
                self.superseded.entry(name).or_default().retain(|known| known.1 != upload);
            }
            Entry::Began { .. } | Entry::Deleting { .. } => {}
        }
    }

    fn superseded(&self) -> Vec<UnfinishedUpload> {
        let named = self.superseded.values().flatten().filter_map(|(intent, upload, _)| {
            let (intent, parts) = (intent.clone(), Vec::new());
            upload.clone().map(|upload| UnfinishedUpload { intent, upload, parts })
        });
        named.collect()
    }

    fn unfinished(&self) -> Vec<UnfinishedUpload> {
        let opened = self.uploads.values().filter_map(|(intent, upload, parts)| {
            let (intent, parts) = (intent.clone(), parts.values().cloned().collect());
            upload.clone().map(|upload| UnfinishedUpload { intent, upload, parts })
        });
        opened.collect()
    }

    fn pending(&self) -> Vec<Intent> {
        let names: BTreeSet<_> = self.uploads.keys().chain(self.superseded.keys()).collect();
        let known = names.into_iter().flat_map(|name| {
            let superseded = self.superseded.get(name).into_iter().flatten();
            superseded.chain(self.uploads.get(name))
        });
        known.filter(|(_, upload, _)| upload.is_none()).map(|(intent, ..)| intent.clone()).collect()
    }
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let name = (0..TARGETS, prop::sample::select(KEYS.to_vec()));
    (name, 0..7, any::<u64>(), 1..4u32, any::<Option<u64>>()).prop_map(|((target, key), kind, number, index, sum)| {
        let target_key = key.to_owned();
        match kind {
            0 => {
                let intent = Intent { intent_unix_ms: i64::from(index), ..intent(target, key, number) };
                Entry::Intent(Box::new(intent))
            }
            1 => {
                let upload = UploadId(format!("upload-{}", number % 3));
                Entry::Opened { target, target_key, upload, has_unnamed: sum.is_some() }
            }
            2 => Entry::Part { target, target_key, part: part(index, sum) },
            3 => {
                let checksums = Checksums { crc64nvme: sum, crc32c: Some(index), md5: None };
                let unsynced = sum.map(|_| Unsynced { boot: format!("boot-{index}"), checksums });
                let etag = number.is_multiple_of(2).then(|| number.to_string());
                let written = (number % 3 > 0).then(|| Box::new(Written { etag, checksums, ..Written::default() }));
                Entry::Closed { target, target_key, fingerprint: number, size_bytes: number, unsynced, written }
            }
            4 => Entry::Undone { target, target_key },
            5 => Entry::NotOpened { target, target_key, intent_unix_ms: i64::from(index) },
            _ => {
                let upload = sum.map(|_| UploadId(format!("upload-{}", number % 3)));
                Entry::Abandoned { target, target_key, upload }
            }
        }
    })
}

async fn assert_knows(journal: &Journal, model: &Model) {
    assert_eq!(journal.unfinished().await.unwrap(), model.unfinished());
    assert_eq!(journal.superseded().await.unwrap(), model.superseded());
    assert_eq!(journal.pending_intents().await.unwrap(), model.pending());
    let done = journal.done_set().unwrap();
    assert_eq!(done.is_empty(), model.done.is_empty());
    for target in 0..TARGETS {
        for key in KEYS {
            let known = model.done.get(&(target, key.to_owned())).cloned();
            let fingerprint = known.as_ref().map(|(fingerprint, _)| *fingerprint);
            let asked = vec![
                (target, key.to_owned(), fingerprint.unwrap_or(7)),
                (target, key.to_owned(), fingerprint.unwrap_or(7).wrapping_add(1)),
            ];
            let is_done = known.map_or(Done::No, |(_, done)| done);
            assert_eq!(done.contains(asked).await.unwrap(), [is_done, Done::No]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The journal knows every recorded entry, however entries are batched, at once and after reopening.
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
        let target_key = index.to_string();
        let closed =
            Entry::Closed { target: 0, target_key, fingerprint: 1, size_bytes: 0, unsynced: None, written: None };
        journal.record(closed).await.unwrap();
    }
    drop(journal);
    let done = Journal::open_existing(&state).unwrap().done_set().unwrap();
    let asked = (0..3 * BATCH_ENTRIES_MAX).map(|index| (0, index.to_string(), 1)).collect();
    assert!(done.contains(asked).await.unwrap().into_iter().all(|done| done == Done::Yes(None)));
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
    let closed = Entry::Closed {
        target: 0,
        target_key: "a".into(),
        fingerprint: 1,
        size_bytes: 1,
        unsynced: None,
        written: None,
    };
    let error = journal.record_durably(closed.clone()).await.unwrap_err();
    assert!(error.to_string().contains("no such table: done"), "{error}");
    assert!(journal.record_durably(closed).await.is_err());
}

#[tokio::test]
async fn a_disabled_journal_keeps_nothing_and_never_fails() {
    let journal = Journal::disabled();
    journal.record_durably(Entry::Intent(Box::new(intent(0, "a", 1)))).await.unwrap();
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
    let identity = FileIdentity { device: 1, inode: 2, modified_unix_ns: 3, changed_unix_ns: 4, links: 1 };
    let file = |identity| fingerprint(&ObjectInfo { file: Some(identity), ..state.clone() });
    assert_eq!(file(identity), file(FileIdentity { device: 9, ..identity }), "another mount of the same disk");
    for other in [
        FileIdentity { inode: 9, ..identity },
        FileIdentity { modified_unix_ns: 9, ..identity },
        FileIdentity { changed_unix_ns: 9, ..identity },
    ] {
        assert_ne!(file(identity), file(other));
    }
}

/// The tables of schema 1, with one row each.
const SCHEMA_1: &str = "
    CREATE TABLE done (target INTEGER NOT NULL, target_key TEXT NOT NULL, fingerprint INTEGER NOT NULL,
        size_bytes INTEGER NOT NULL, PRIMARY KEY (target, target_key)) WITHOUT ROWID;
    CREATE TABLE upload (id INTEGER PRIMARY KEY, target INTEGER NOT NULL, target_key TEXT NOT NULL,
        source_key TEXT NOT NULL, size_bytes INTEGER NOT NULL, fingerprint INTEGER NOT NULL,
        chunk_bytes INTEGER NOT NULL, options TEXT NOT NULL, intent_unix_ms INTEGER NOT NULL, upload_id TEXT,
        UNIQUE (target, target_key));
    CREATE TABLE part (upload INTEGER NOT NULL REFERENCES upload (id) ON DELETE CASCADE, part INTEGER NOT NULL,
        size_bytes INTEGER NOT NULL, tag TEXT NOT NULL, crc64nvme INTEGER, crc32c INTEGER, md5 BLOB,
        PRIMARY KEY (upload, part)) WITHOUT ROWID;
    INSERT INTO done VALUES (0, 'a', 7, 5);
    INSERT INTO upload VALUES (3, 0, 'b', 's/b', 20, 8, 10, '{\"attributes\":{\"content_type\":null,
        \"content_encoding\":null,\"content_language\":null,\"content_disposition\":null,\"cache_control\":null,
        \"metadata\":{}},\"storage_class\":null,\"tags\":{},\"modified_unix_ms\":5,\"size_bytes\":20}', 1000, 'u');
    INSERT INTO part VALUES (3, 1, 10, '0', -1, 2, NULL);
    PRAGMA application_id = 0x54576a6e;
    PRAGMA user_version = 1;
";

#[tokio::test]
async fn a_journal_of_an_older_version_is_read_and_what_it_does_not_say_is_not_believed() {
    let (_dir, state) = state_dir();
    Connection::open(state.path().join(JOURNAL_FILE)).unwrap().execute_batch(SCHEMA_1).unwrap();
    for _ in 0..2 {
        let journal = Journal::open_existing(&state).unwrap();
        let done = journal.done_set().unwrap().contains(vec![(0, "a".into(), 7)]).await.unwrap();
        assert_eq!(done, [Done::Unsynced(Unsynced::default())], "no boot, no checksums");
        let (upload, ..) = (journal.unfinished().await.unwrap().remove(0),);
        assert_eq!((upload.intent.intent_unix_ms, upload.upload.0.as_str(), upload.parts.len()), (1000, "u", 1));
        assert_eq!(upload.parts[0].checksums.crc64nvme, Some(u64::MAX));
        assert_eq!(journal.boots().await.unwrap(), [(String::new(), 0)]);
    }
    let journal = Journal::open_existing(&state).unwrap();
    journal
        .record_durably(Entry::Closed {
            target: 0,
            target_key: "b".into(),
            fingerprint: 8,
            size_bytes: 20,
            unsynced: None,
            written: None,
        })
        .await
        .unwrap();
    assert!(journal.unfinished().await.unwrap().is_empty());
    let connection = Connection::open(state.path().join(JOURNAL_FILE)).unwrap();
    let parts: i64 = connection.query_row("SELECT count(*) FROM part", [], |row| row.get(0)).unwrap();
    assert_eq!(parts, 0, "parts go with their upload, also after the migration");
}

#[tokio::test]
async fn a_journal_without_tables_is_begun_anew() {
    let (_dir, state) = state_dir();
    std::fs::write(state.path().join(JOURNAL_FILE), b"").unwrap();
    let journal = Journal::open_or_create(&state).unwrap();
    journal.record_durably(Entry::Intent(Box::new(intent(0, "a", 1)))).await.unwrap();
    assert_eq!(journal.pending_intents().await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_upload_stays_known_until_it_is_aborted_whatever_is_begun_after_it() {
    let (_dir, state) = state_dir();
    let journal = Journal::create(&state).unwrap();
    let name = |name: &str| UploadId(name.to_owned());
    let opened = |upload| Entry::Opened { target: 0, target_key: "a".into(), upload, has_unnamed: false };
    journal.record(Entry::Intent(Box::new(intent(0, "a", 1)))).await.unwrap();
    journal.record(opened(name("first"))).await.unwrap();
    let later = Intent { intent_unix_ms: 1_700_000_000_001, ..intent(0, "a", 2) };
    journal.record(Entry::Intent(Box::new(later.clone()))).await.unwrap();
    journal.record(opened(name("second"))).await.unwrap();
    drop(journal);
    let journal = Journal::open_existing(&state).unwrap();
    let names = |uploads: Vec<UnfinishedUpload>| uploads.into_iter().map(|one| one.upload).collect::<Vec<_>>();
    assert_eq!(names(journal.unfinished().await.unwrap()), [name("second")]);
    assert_eq!(names(journal.superseded().await.unwrap()), [name("first")]);
    let abandoned = Entry::Abandoned { target: 0, target_key: "a".into(), upload: Some(name("first")) };
    journal.record(abandoned).await.unwrap();
    assert_eq!(names(journal.unfinished().await.unwrap()), [name("second")]);
    assert!(journal.superseded().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_intent_that_was_refused_is_forgotten_and_earlier_ones_are_not() {
    let (_dir, state) = state_dir();
    let journal = Journal::create(&state).unwrap();
    let at = |intent_unix_ms| Intent { intent_unix_ms, ..intent(0, "a", 1) };
    for intent_unix_ms in [1, 2] {
        journal.record(Entry::Intent(Box::new(at(intent_unix_ms)))).await.unwrap();
    }
    for intent_unix_ms in [1, 2] {
        journal.record(Entry::NotOpened { target: 0, target_key: "a".into(), intent_unix_ms }).await.unwrap();
    }
    assert_eq!(journal.pending_intents().await.unwrap(), [at(1)]);
}

#[tokio::test]
async fn what_was_done_is_told_once_a_deletion_has_begun() {
    let (_dir, state) = state_dir();
    let journal = Journal::create(&state).unwrap();
    assert_eq!(journal.done_set().unwrap().totals_before_deletion().await.unwrap(), None);
    for (target, key, size_bytes) in [(0, "a", 5), (0, "b", 7), (1, "a", 5)] {
        let (target_key, unsynced, written) = (key.to_owned(), None, Some(Box::default()));
        journal
            .record(Entry::Closed { target, target_key, fingerprint: 1, size_bytes, unsynced, written })
            .await
            .unwrap();
    }
    journal.flush().await.unwrap();
    let done = journal.done_set().unwrap();
    assert_eq!(done.totals_before_deletion().await.unwrap(), None);
    journal.record_durably(Entry::Deleting { unix_ms: 1 }).await.unwrap();
    let totals = done.totals_before_deletion().await.unwrap().unwrap();
    assert_eq!(totals[&0], DoneTotals { objects: 2, bytes: 12 });
    assert_eq!(totals[&1], DoneTotals { objects: 1, bytes: 5 });
    let lengths = done.lengths(vec![(0, "b".into()), (1, "b".into())]).await.unwrap();
    assert_eq!(lengths, [Some(7), None]);
}

/// A journal on a clock that stands still while anything is to be done.
fn journal_in_stepped_time() -> (tempfile::TempDir, Journal) {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::create(dir.path()).unwrap().with_background(Background::Inline);
    let journal = Journal::create(&state).unwrap();
    (dir, journal)
}

fn closed(key: usize) -> Entry {
    let (target_key, size_bytes) = (key.to_string(), 1);
    Entry::Closed { target: 0, target_key, fingerprint: 1, size_bytes, unsynced: None, written: None }
}

#[tokio::test(start_paused = true)]
async fn neither_a_flush_nor_a_full_batch_waits_for_more_entries() {
    let (_dir, journal) = journal_in_stepped_time();
    let began = tokio::time::Instant::now();
    for round in 0..3 {
        journal.record(closed(round)).await.unwrap();
        // The writer begins to gather.
        tokio::task::yield_now().await;
        journal.flush().await.unwrap();
    }
    for key in 0..2 * QUEUE_MAX {
        journal.record(closed(key)).await.unwrap();
    }
    assert_eq!(began.elapsed().as_millis(), 0);
}

#[tokio::test(start_paused = true)]
async fn entries_that_nobody_flushes_are_readable_after_the_longest_wait() {
    let (dir, journal) = journal_in_stepped_time();
    journal.record(closed(0)).await.unwrap();
    tokio::task::yield_now().await;
    journal.record(closed(1)).await.unwrap();
    let count = || -> i64 {
        let reader = open_read_only(&dir.path().join(JOURNAL_FILE)).unwrap();
        reader.query_row("SELECT count(*) FROM done", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count(), 0);
    tokio::time::sleep(std::time::Duration::from_millis(BATCH_MS_MAX + 1)).await;
    assert_eq!(count(), 2);
}

/// Keys whose objects and uploads are in the journal that is damaged.
const DAMAGED_KEYS: [&str; 2] = ["a6", "a7"];

/// The file of a journal that holds objects, uploads and parts, all of it moved out of the log.
async fn bytes_of_full_journal(state: &StateDir) -> Vec<u8> {
    let journal = Journal::create(state).unwrap();
    for (number, key) in DAMAGED_KEYS.into_iter().enumerate() {
        let unsynced = Unsynced { boot: "boot".to_owned(), checksums: part(1, Some(9)).checksums };
        let entries = [
            Entry::Intent(Box::new(intent(0, key, 5))),
            Entry::Opened {
                target: 0,
                target_key: key.to_owned(),
                upload: UploadId(format!("u{number}")),
                has_unnamed: true,
            },
            Entry::Part { target: 0, target_key: key.to_owned(), part: part(6, Some(3)) },
            Entry::Part { target: 0, target_key: key.to_owned(), part: part(8, None) },
            Entry::Closed {
                target: 1,
                target_key: key.to_owned(),
                fingerprint: 7,
                size_bytes: 20,
                unsynced: number.is_multiple_of(2).then_some(unsynced),
                written: Some(Box::new(Written { etag: Some("tag".to_owned()), ..Written::default() })),
            },
        ];
        for entry in entries {
            journal.record(entry).await.unwrap();
        }
    }
    journal.flush().await.unwrap();
    drop(journal);
    std::fs::read(state.path().join(JOURNAL_FILE)).unwrap()
}

/// The entries of a journal that a resumed job believes.
type Believed = (Vec<UnfinishedUpload>, Vec<Intent>, Vec<Done>);

async fn believed(state: &StateDir) -> Result<Believed, JournalError> {
    let journal = Journal::open_existing(state)?;
    let asked = DAMAGED_KEYS.into_iter().map(|key| (1, key.to_owned(), 7)).collect();
    let done = journal.done_set()?.contains(asked).await?;
    Ok((journal.unfinished().await?, journal.pending_intents().await?, done))
}

/// SQLite has no checksums of its own, so a changed bit in the file may leave valid tables.
#[tokio::test]
async fn a_row_that_was_changed_is_not_believed() {
    let (_dir, state) = state_dir();
    let whole = bytes_of_full_journal(&state).await;
    let (uploads, intents, done) = believed(&state).await.unwrap();
    assert_eq!((uploads.len(), intents.len(), done.len()), (2, 2, 2));
    let path = state.path().join(JOURNAL_FILE);
    for change in [
        "UPDATE part SET part = 7 WHERE part = 6",
        "UPDATE OR REPLACE part SET upload = (SELECT max(upload) FROM part) WHERE part = 8",
        "UPDATE part SET size_bytes = size_bytes + 1",
        "UPDATE part SET tag = 'etag-9' WHERE part = 8",
        "UPDATE part SET crc64nvme = 4 WHERE crc64nvme = 3",
        "UPDATE part SET crc64nvme = 0 WHERE crc64nvme IS NULL",
        "UPDATE part SET crc32c = 1",
        "UPDATE part SET md5 = NULL",
        "UPDATE upload SET target = 1",
        "UPDATE upload SET target_key = 'a5' WHERE target_key = 'a7'",
        "UPDATE upload SET source_key = 'b'",
        "UPDATE upload SET size_bytes = 1",
        "UPDATE upload SET fingerprint = 4",
        "UPDATE upload SET chunk_bytes = 1",
        "UPDATE upload SET options = replace(options, 'COLD', 'GOLD')",
        "UPDATE upload SET intent_unix_ms = 0",
        "UPDATE done SET target_key = 'a7', fingerprint = 7 WHERE target_key = 'a6'",
        "UPDATE done SET size_bytes = 21",
        "UPDATE done SET boot = 'root' WHERE boot IS NOT NULL",
        "UPDATE done SET boot = NULL WHERE boot IS NOT NULL",
        "UPDATE done SET crc64nvme = 8 WHERE crc64nvme IS NOT NULL",
        "UPDATE done SET crc32c = 8 WHERE crc32c IS NOT NULL",
        "UPDATE done SET written = replace(written, 'tag\"', 'tah\"')",
        "UPDATE done SET written = NULL",
        "UPDATE done SET digest = digest + 1",
    ] {
        for log in ["journal.sqlite-wal", "journal.sqlite-shm"] {
            std::fs::remove_file(state.path().join(log)).ok();
        }
        std::fs::write(&path, &whole).unwrap();
        let connection = Connection::open(&path).unwrap();
        // The row of an object in place of another's.
        connection.execute("DELETE FROM done WHERE target_key = 'a7' AND ?1 LIKE '%a7%a6%'", [change]).unwrap();
        assert!(connection.execute(change, []).unwrap() > 0, "{change}");
        drop(connection);
        let refused = believed(&state).await.unwrap_err();
        assert!(matches!(refused, JournalError::Corrupt { .. }), "{change}: {refused}");
        assert!(refused.to_string().ends_with("differs from its checksum"), "{change}: {refused}");
    }
}
