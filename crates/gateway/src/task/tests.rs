use super::*;
use crate::directory_tree::DirectoryTree;
use crate::lead::journal::{Entry, Intent, JOURNAL_FILE, Journal};
use crate::lead::state_dir::StateDir;
use crate::lead::status;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tradewind_contract::{JobState, Progress};
use tradewind_store::PutOptions;

/// The output of a task so far.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }
}

struct Ended {
    code: u8,
    data: Written,
    talk: Written,
}

impl Ended {
    fn json_lines(&self) -> Vec<Value> {
        self.data.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns stdout, after checking that the task succeeded.
    fn ok(&self) -> String {
        assert_eq!(self.code, 0, "{}", self.talk.text());
        self.data.text()
    }
}

async fn run_with(task: Value, input: Vec<u8>, cancel: CancellationToken) -> Ended {
    let (data, talk) = (Written::default(), Written::default());
    let mut streams = Streams {
        input: Some(Box::new(Cursor::new(input))),
        data: Box::new(data.clone()),
        talk: Talk::new(talk.clone()),
    };
    let code = run(serde_json::from_value(task).unwrap(), &mut streams, cancel).await;
    Ended { code, data, talk }
}

async fn run_task(task: Value) -> Ended {
    run_with(task, Vec::new(), CancellationToken::new()).await
}

fn ls(tree: &DirectoryTree, prefix: &str, recursive: bool) -> Value {
    json!({"task": "ls", "store": tree.spec(), "prefix": prefix, "recursive": recursive, "long": false, "json": false})
}

fn with(mut task: Value, fields: Value) -> Value {
    task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    task
}

#[tokio::test]
async fn ls_shows_one_level_or_all_in_order() {
    let tree = DirectoryTree::with(&[("d/b", b"1"), ("d/c/x", b"22"), ("d/c.txt", b"333"), ("da", b"")]);
    assert_eq!(run_task(ls(&tree, "", false)).await.ok(), "d/\nda\n");
    assert_eq!(run_task(ls(&tree, "d", false)).await.ok(), "b\nc.txt\nc/\n");
    assert_eq!(run_task(ls(&tree, "d/", true)).await.ok(), "b\nc.txt\nc/x\n");
    assert_eq!(run_task(ls(&tree, "d/b", true)).await.ok(), "b\n");
}

#[tokio::test]
async fn long_listings_show_more() {
    let tree = DirectoryTree::with(&[("d/b", b"333")]);
    tree.set_modified("d/b", 951_827_696_000);
    let long = run_task(with(ls(&tree, "d", true), json!({"long": true}))).await.ok();
    assert_eq!(long.split_whitespace().collect::<Vec<_>>(), ["2000-02-29T12:34:56Z", "3", "-", "b"]);
    let ended = run_task(with(ls(&tree, "", true), json!({"json": true}))).await;
    let expected = json!({"key": "d/b", "size_bytes": 3, "modified": "2000-02-29T12:34:56Z"});
    assert_eq!(ended.json_lines(), [expected]);
}

#[tokio::test]
async fn sizes_have_units_on_request() {
    let tree = DirectoryTree::with(&[("d/b", &[0; 22_000])]);
    let long = run_task(with(ls(&tree, "d", true), json!({"long": true, "human": true}))).await.ok();
    assert!(long.contains(" 22.0 kB "), "{long}");
    let du = json!({"task": "du", "store": tree.spec(), "prefix": "d", "human": true, "json": false});
    assert!(run_task(du.clone()).await.ok().starts_with("22.0 kB\t1\t"));
    let exact = run_task(with(du, json!({"json": true}))).await.json_lines();
    assert_eq!(exact[0]["bytes"], 22_000);
}

#[tokio::test]
async fn names_stay_on_their_lines() {
    let tree = DirectoryTree::with(&[("d/a\nb\x1b\\c", b"1"), ("d/e\n/f", b"2")]);
    assert_eq!(run_task(ls(&tree, "d", false)).await.ok(), "a\\nb\\x1b\\\\c\ne\\n/\n");
    let exact = run_task(with(ls(&tree, "d", true), json!({"json": true}))).await.json_lines();
    assert_eq!(exact[0]["key"], "d/a\nb\x1b\\c");
    let du = json!({"task": "du", "store": tree.spec(), "prefix": "d/e\n", "json": false});
    assert_eq!(run_task(du).await.ok().lines().count(), 1);
    let missing = run_task(with(check(&tree, "d", &DirectoryTree::new(), ""), json!({"json": false}))).await;
    assert_eq!(missing.data.text().lines().count(), 2);
    let none = run_task(ls(&tree, "no\nne", true)).await;
    assert_eq!(none.talk.text().lines().count(), 2, "{}", none.talk.text());
    let removed = run_task(with(rm(&tree, "d", true), json!({"dry_run": true}))).await.ok();
    assert_eq!(removed.lines().count(), 2, "{removed}");
}

#[tokio::test]
async fn a_missing_source_exits_with_3() {
    let tree = DirectoryTree::with(&[("a", b"1")]);
    let store = tree.spec();
    for task in [
        ls(&tree, "none", true),
        json!({"task": "du", "store": store, "prefix": "none", "json": false}),
        json!({"task": "cat", "store": store, "keys": ["none"]}),
        rm(&tree, "none", false),
        rm(&tree, "none", true),
        check(&tree, "none", &tree, ""),
    ] {
        let ended = run_task(task.clone()).await;
        assert_eq!(ended.code, 3, "{task}");
        let talk = ended.talk.text();
        assert!(talk.contains("error: ") && talk.contains("\nhint: "), "{talk}");
    }
}

#[tokio::test]
async fn du_sums_the_selected_objects() {
    let tree = DirectoryTree::with(&[("d/a.txt", b"1"), ("d/e/b", b"22"), ("dx", b"4444")]);
    let task = json!({"task": "du", "store": tree.spec(), "prefix": "d", "json": true});
    let lines = run_task(task.clone()).await.json_lines();
    assert_eq!((&lines[0]["objects"], &lines[0]["bytes"]), (&json!(2), &json!(3)));
    let filter = json!({"filter": {"rules": [{"rule": "exclude", "glob": "*.txt"}]}});
    let lines = run_task(with(task, filter)).await.json_lines();
    assert_eq!((&lines[0]["objects"], &lines[0]["bytes"]), (&json!(1), &json!(2)));
}

fn rm(tree: &DirectoryTree, key: &str, recursive: bool) -> Value {
    json!({"task": "rm", "store": tree.spec(), "key": key, "recursive": recursive, "dry_run": false, "json": false,
           "allow_empty": false})
}

#[tokio::test]
async fn rm_deletes_a_folder_but_not_keys_with_a_similar_prefix() {
    let tree = DirectoryTree::with(&[("te/a", b"1"), ("te/b/c", b"2"), ("test/a", b"3"), ("te.txt", b"4")]);
    let dry = run_task(with(rm(&tree, "te", true), json!({"dry_run": true}))).await.ok();
    assert_eq!((dry.lines().count(), tree.keys().len()), (2, 4));
    let text = run_task(rm(&tree, "te", true)).await.ok();
    assert!(text.lines().all(|line| line.starts_with("deleted ")), "{text}");
    assert_eq!(tree.keys(), ["te.txt", "test/a"]);
}

#[tokio::test]
async fn rm_deletes_one_object_exactly() {
    let tree = DirectoryTree::with(&[("a", b"1"), ("ab", b"2")]);
    run_task(rm(&tree, "a", false)).await.ok();
    assert_eq!(tree.keys(), ["ab"]);
    run_task(with(rm(&tree, "a", false), json!({"allow_empty": true}))).await.ok();
}

#[tokio::test]
async fn rm_obeys_the_filter() {
    let tree = DirectoryTree::with(&[("d/a.tmp", b"1"), ("d/keep", b"2")]);
    let filter = json!({"filter": {"rules": [{"rule": "include", "glob": "*.tmp"}]}});
    run_task(with(rm(&tree, "d", true), filter)).await.ok();
    assert_eq!(tree.keys(), ["d/keep"]);
}

/// Bytes that differ between windows, so that swapped windows are noticed.
fn long_bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[tokio::test]
async fn cat_writes_objects_whole_and_in_order() {
    let long = long_bytes(3 * crate::reading::WINDOW_BYTES as usize + 12_345);
    let tree = DirectoryTree::with(&[("long", &long), ("empty", b""), ("short", b"end")]);
    let task = json!({"task": "cat", "store": tree.spec(), "keys": ["long", "empty", "short"]});
    let ended = run_task(task).await;
    assert_eq!(ended.code, 0, "{}", ended.talk.text());
    assert!(ended.data.bytes() == [&long[..], b"end"].concat());
}

fn put(tree: &DirectoryTree, key: &str, chunk_bytes: u64) -> Value {
    json!({"task": "put", "store": tree.spec(), "key": key, "chunk_bytes": chunk_bytes, "json": true})
}

#[tokio::test]
async fn put_writes_what_it_reads_whatever_the_length() {
    let tree = DirectoryTree::new();
    for length in [0, 1, 4095, 4096, 4097, 3 << 20, (3 << 20) + 1] {
        let bytes = long_bytes(length);
        let chunk_bytes = if length < 8192 { 4096 } else { 1 << 20 };
        let ended = run_with(put(&tree, "d/new", chunk_bytes), bytes.clone(), CancellationToken::new()).await;
        assert_eq!(ended.code, 0, "{}", ended.talk.text());
        assert_eq!(ended.json_lines()[0]["bytes"], json!(length));
        assert!(tree.files() == BTreeMap::from([("d/new".to_owned(), bytes)]), "{length} bytes");
    }
}

/// Returns some bytes and then fails, like the pipe of a program that died.
struct Breaking(Cursor<Vec<u8>>);

impl Read for Breaking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("the writer died")),
            read => Ok(read),
        }
    }
}

#[tokio::test]
async fn a_put_whose_input_breaks_leaves_nothing() {
    let tree = DirectoryTree::new();
    for length in [10, 10_000_000] {
        let talk = Written::default();
        let mut streams = Streams {
            input: Some(Box::new(Breaking(Cursor::new(long_bytes(length))))),
            data: Box::new(Written::default()),
            talk: Talk::new(talk.clone()),
        };
        let task = serde_json::from_value(put(&tree, "new", 1 << 20)).unwrap();
        assert_eq!(run(task, &mut streams, CancellationToken::new()).await, 1);
        assert_eq!(talk.text(), "error: the writer died\n");
        assert_eq!(tree.keys(), Vec::<String>::new());
    }
}

/// Endless input that notifies once it has returned a given number of bytes.
struct Endless {
    given: usize,
    tell_at: usize,
    told: CancellationToken,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.given += buffer.len();
        if self.given > self.tell_at {
            self.told.cancel();
        }
        Ok(buffer.len())
    }
}

#[tokio::test]
async fn an_interrupted_put_aborts_its_upload() {
    let tree = DirectoryTree::new();
    let cancel = CancellationToken::new();
    let input = Endless { given: 0, tell_at: 64 << 20, told: cancel.clone() };
    let mut streams = Streams {
        input: Some(Box::new(input)),
        data: Box::new(Written::default()),
        talk: Talk::new(Written::default()),
    };
    let task = serde_json::from_value(put(&tree, "new", 1 << 20)).unwrap();
    assert_eq!(run(task, &mut streams, cancel).await, 130);
    assert_eq!(tree.keys(), Vec::<String>::new());
}

fn check(source: &DirectoryTree, source_prefix: &str, destination: &DirectoryTree, destination_prefix: &str) -> Value {
    json!({"task": "check", "source": source.spec(), "source_prefix": source_prefix, "destination": destination.spec(),
           "destination_prefix": destination_prefix, "compare": "auto", "read": true, "one_way": false, "json": true})
}

#[tokio::test]
async fn check_always_reads_files() {
    let source = DirectoryTree::with(&[("a", b"1"), ("d/b", b"")]);
    let destination = DirectoryTree::with(&[("to/a", b"1"), ("to/d/b", b"")]);
    let read = run_task(check(&source, "", &destination, "to")).await;
    assert_eq!(read.code, 0, "{}", read.talk.text());
    assert_eq!(read.json_lines()[0]["summary"]["same"], json!(2));
    let other = DirectoryTree::with(&[("to/a", b"2"), ("to/d/b", b"")]);
    let untold = run_task(with(check(&source, "", &other, "to"), json!({"read": false}))).await;
    assert_eq!(untold.code, 6);
    assert_eq!(untold.json_lines().last().unwrap()["summary"]["differs"], json!(1));
}

#[tokio::test]
async fn check_one_way_ignores_extra_objects() {
    let (source, destination) = (DirectoryTree::with(&[("a", b"1")]), DirectoryTree::with(&[("a", b"1"), ("b", b"2")]));
    assert_eq!(run_task(check(&source, "", &destination, "")).await.code, 6);
    run_task(with(check(&source, "", &destination, ""), json!({"one_way": true}))).await.ok();
}

#[tokio::test]
async fn check_compares_nothing_below_a_directory_that_cannot_be_listed() {
    let names = ["a", "d/loop/x", "d/loop/y/z", "d/loop1", "e"];
    let (unlistable, whole) = (DirectoryTree::with(&[("a", b"1"), ("e", b"1")]), DirectoryTree::new());
    names.iter().for_each(|name| whole.write(name, b"1"));
    std::fs::create_dir(unlistable.path("d")).unwrap();
    std::os::unix::fs::symlink("..", unlistable.path("d/loop")).unwrap();
    for (from, to, other) in [(&unlistable, &whole, "extra"), (&whole, &unlistable, "missing")] {
        let follow = |tree: &DirectoryTree| with(json!(tree.spec()), json!({"follow_symlinks": true}));
        let sides = json!({"source": follow(from), "destination": follow(to)});
        let ended = run_task(with(check(from, "", to, ""), sides)).await;
        let lines = ended.json_lines();
        let found: Vec<_> =
            lines.iter().filter_map(|line| Some((line["kind"].as_str()?, line["name"].as_str()?))).collect();
        assert_eq!(found, [("failed", "d/loop/x"), ("failed", "d/loop/y/z"), (other, "d/loop1")]);
        assert!(lines[0]["detail"].as_str().unwrap().contains("leads back"), "{}", lines[0]);
        assert_eq!((ended.code, lines.last().unwrap()["summary"]["same"].as_u64()), (6, Some(2)));
        assert!(ended.talk.text().contains("the trees differ in 1 name"), "{}", ended.talk.text());
    }
}

const NAMES: [&str; 7] = ["a", "a.b", "b/a", "b!/x", "c/d/e", "c/d/ü g", "z"];

fn any_tree() -> impl Strategy<Value = BTreeMap<&'static str, &'static str>> {
    let bytes = prop::sample::select(vec!["", "1", "2", "12"]);
    prop::collection::btree_map(prop::sample::select(NAMES.to_vec()), bytes, 0..7)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The differences found are those between two maps.
    #[test]
    fn check_finds_the_differences_of_two_maps(source in any_tree(), destination in any_tree()) {
        let (from, to) = (DirectoryTree::new(), DirectoryTree::new());
        source.iter().for_each(|(name, bytes)| from.write(name, bytes.as_bytes()));
        destination.iter().for_each(|(name, bytes)| to.write(&format!("p/{name}"), bytes.as_bytes()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ended = runtime.block_on(run_task(check(&from, "", &to, "p/")));

        let mut expected = BTreeSet::new();
        for (name, bytes) in &source {
            match destination.get(name) {
                None => { expected.insert(("missing".to_owned(), (*name).to_owned())); }
                Some(theirs) if theirs != bytes => { expected.insert(("differs".to_owned(), (*name).to_owned())); }
                Some(_) => {}
            }
        }
        for name in destination.keys().filter(|name| !source.contains_key(*name)) {
            expected.insert(("extra".to_owned(), (*name).to_owned()));
        }
        let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
        let lines = ended.json_lines();
        let found: BTreeSet<_> = lines.iter().filter(|line| line.get("name").is_some())
            .map(|line| (text(line, "kind"), text(line, "name"))).collect();
        let code = if source.is_empty() { 3 } else if expected.is_empty() { 0 } else { 6 };
        prop_assert_eq!(found, expected);
        prop_assert_eq!(ended.code, code, "{}", ended.talk.text());
    }
}

#[tokio::test]
async fn explain_names_the_rule() {
    let rules = json!([{"rule": "exclude", "glob": "**"}, {"rule": "include", "glob": "/*.txt"}]);
    let task = json!({"task": "explain", "name": "a.txt", "size_bytes": 5, "filter": {"rules": rules}});
    let line = run_task(task.clone()).await.ok();
    assert_eq!(line, "included: a.txt: rule 2, --include '/*.txt', is the last that matches\n");
    let line = run_task(with(task, json!({"name": "d/a.txt"}))).await.ok();
    assert!(line.starts_with("excluded: d/a.txt: rule 1"), "{line}");
}

#[tokio::test]
async fn a_bad_rule_is_bad_usage() {
    let task = json!({"task": "explain", "name": "a", "size_bytes": null,
                      "filter": {"rules": [{"rule": "include", "glob": "a["}]}});
    assert_eq!(run_task(task).await.code, 2);
}

#[tokio::test]
async fn locate_prints_a_line_or_an_error_for_each_store() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
    drop(listener);
    let deaf = json!({"url": "s3://bucket", "endpoint": endpoint, "anonymous": true});
    let ended = run_task(json!({"task": "locate", "stores": [{"url": "mem:"}, deaf]})).await;
    ended.ok();
    let lines = ended.json_lines();
    assert_eq!(lines[0], json!({"url": "mem:"}));
    assert_eq!(lines[1]["url"], "s3://bucket");
    assert!(lines[1]["error"].as_str().unwrap().contains("cannot connect"), "{}", lines[1]);
}

#[tokio::test]
async fn doctor_distinguishes_a_working_store_from_a_broken_one() {
    let tree = DirectoryTree::with(&[("a", b"1")]);
    let task = |stores: Value| json!({"task": "doctor", "stores": stores, "json": true});
    let ended = run_task(task(json!([tree.spec()]))).await;
    assert_eq!((ended.code, &ended.json_lines().last().unwrap()["level"]), (0, &json!("ok")));
    let checks: Vec<Value> = ended.json_lines().iter().map(|line| line["check"].clone()).collect();
    assert_eq!(checks, [json!("endpoint"), json!("credentials"), json!("list")]);
    let ended = run_task(task(json!([tree.spec(), {"url": "nowhere"}]))).await;
    assert_eq!((ended.code, &ended.json_lines().last().unwrap()["level"]), (1, &json!("fail")));
}

#[tokio::test]
async fn cancel_aborts_open_uploads_and_updates_the_status() {
    let (tree, folder) = (DirectoryTree::with(&[("done", b"1")]), tempfile::tempdir().unwrap());
    let task = json!({"task": "cancel", "state_dir": folder.path(), "stores": [tree.spec()]});
    let state = StateDir::create(folder.path()).unwrap();
    let journal = Journal::create(&state).unwrap();
    let intent = Intent {
        target: 0,
        target_key: "half".into(),
        source_key: "half".into(),
        size_bytes: 10,
        fingerprint: 1,
        chunk_bytes: 5,
        options: PutOptions::default(),
        intent_unix_ms: status::now_unix_ms(),
    };
    journal.record(Entry::Intent(Box::new(intent))).await.unwrap();
    let upload = tree.store.open_upload("half", &PutOptions::default()).await.unwrap();
    journal
        .record_durably(Entry::Opened { target: 0, target_key: "half".into(), upload, has_unnamed: false })
        .await
        .unwrap();
    drop(journal);
    assert_eq!(tree.keys().len(), 2);

    assert_eq!(run_task(task.clone()).await.code, 1, "a lead that lives is not cancelled under its feet");
    drop(state);
    run_task(task.clone()).await.ok();
    assert_eq!(tree.keys(), ["done"]);
    assert_eq!(status::read(folder.path()).unwrap().unwrap().state, JobState::Cancelled);
    run_task(task).await.ok();
}

/// Exit code and state of a cancelled job in which `begun` objects were found, with `journal` in place of its journal.
async fn cancelled_without_journal(begun: u64, journal: Option<&[u8]>) -> (u8, JobState) {
    let (tree, folder) = (DirectoryTree::new(), tempfile::tempdir().unwrap());
    let state = StateDir::create(folder.path()).unwrap();
    let progress = Progress { objects_total: begun, ..Progress::default() };
    status::write(state.path(), &status::running(progress)).unwrap();
    if let Some(bytes) = journal {
        std::fs::write(state.path().join(JOURNAL_FILE), bytes).unwrap();
    }
    drop(state);
    let task = json!({"task": "cancel", "state_dir": folder.path(), "stores": [tree.spec()]});
    let code = run_task(task).await.code;
    (code, status::read(folder.path()).unwrap().unwrap().state)
}

#[tokio::test]
async fn a_job_without_its_journal_is_cancelled_with_a_warning() {
    assert_eq!(cancelled_without_journal(0, None).await, (0, JobState::Cancelled), "nothing had begun");
    assert_eq!(cancelled_without_journal(2, None).await, (4, JobState::Cancelled));
    assert_eq!(cancelled_without_journal(2, Some(&[b'x'; 5000])).await, (4, JobState::Cancelled));
}

#[tokio::test]
async fn a_closed_pipe_is_no_failure() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let tree = DirectoryTree::with(&[("a", b"1")]);
    let talk = Written::default();
    let mut streams = Streams { input: None, data: Box::new(Closed), talk: Talk::new(talk.clone()) };
    let task = serde_json::from_value(ls(&tree, "", true)).unwrap();
    assert_eq!(run(task, &mut streams, CancellationToken::new()).await, 0);
    assert_eq!(talk.text(), "");
}

#[test]
fn a_task_that_is_not_understood_is_bad_usage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("task.json");
    std::fs::write(&path, format!(r#"{{"contract": {CONTRACT_VERSION}, "task": "ls", "colour": "red"}}"#)).unwrap();
    assert_eq!(read_task(Some(&path)).unwrap_err().exit_code(), 2);
    assert_eq!(read_task(Some(&folder.path().join("none"))).unwrap_err().exit_code(), 2);
}

#[test]
fn a_task_of_another_contract_names_both_versions() {
    let task = |contract: u32| {
        format!(
            r#"{{"contract": {contract}, "client": "9.8.7", "task": "cat", "store": {{"url": "mem:"}}, "keys": []}}"#
        )
    };
    assert!(matches!(parse_task(task(CONTRACT_VERSION).as_bytes()), Ok(Task::Cat { .. })));
    let refused = parse_task(task(CONTRACT_VERSION + 1).replace("keys", "names").as_bytes()).unwrap_err();
    let words = format!("tradewind 9.8.7 uses contract {}, tradewind-gateway ", CONTRACT_VERSION + 1);
    assert!(refused.to_string().starts_with(&words), "{refused}");
    assert_eq!((refused.exit_code(), refused.hint().is_some()), (1, true));
    assert!(matches!(parse_task(b"[]"), Err(TaskError::Usage(_))));
}
