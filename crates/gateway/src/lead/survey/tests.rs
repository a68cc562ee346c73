use super::*;
use crate::directory_tree::DirectoryTree;
use crate::lead::journal::{Entry, Journal, fingerprint};
use crate::lead::state_dir::StateDir;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use tradewind_contract::{Comparison, Deletion, FilterRule, Member, ObjectFilter, Outcome, Selection, Target};
use tradewind_store::ListRequest;

mod flat_moves;

fn job(source: &DirectoryTree, selection: Selection, targets: &[(&DirectoryTree, &str)]) -> JobSpec {
    let targets =
        targets.iter().map(|(tree, key)| Target { store: tree.spec(), key: (*key).to_owned() }).collect::<Vec<_>>();
    let job = serde_json::json!({ "source": source.spec(), "selection": selection, "targets": targets });
    serde_json::from_value(job).unwrap()
}

fn prefix(prefix: &str) -> Selection {
    Selection::Prefix { prefix: prefix.to_owned(), filter: ObjectFilter::default() }
}

fn filtered(rules: Vec<FilterRule>) -> Selection {
    Selection::Prefix { prefix: String::new(), filter: ObjectFilter { rules, ..ObjectFilter::default() } }
}

/// Runs a survey and takes all that it says.
async fn survey(
    job: &JobSpec,
    source: &DirectoryTree,
    targets: &[(&DirectoryTree, &str)],
    done: DoneSet,
) -> (Result<SurveyEnd, SurveyError>, Vec<Found>) {
    survey_of(job, source.store.clone(), targets.iter().map(|(tree, _)| tree.store.clone()).collect(), done).await
}

async fn survey_of(
    job: &JobSpec,
    source: Arc<dyn Store>,
    targets: Vec<Arc<dyn Store>>,
    done: DoneSet,
) -> (Result<SurveyEnd, SurveyError>, Vec<Found>) {
    // Smaller than what is said, so that the survey has to wait for us.
    let (out, mut found) = mpsc::channel(2);
    let survey = Survey {
        job: Arc::new(job.clone()),
        source,
        targets,
        limits: Limits::default(),
        done,
        done_before_deletion: None,
        local: true,
        suspect_since_unix_ms: Vec::new(),
        may_be_source: Vec::new(),
        shut: Vec::new(),
        out,
        cancel: CancellationToken::new(),
    };
    let taking = async {
        let mut all = Vec::new();
        while let Some(one) = found.recv().await {
            all.push(one);
        }
        all
    };
    futures::join!(survey.run(), taking)
}

fn items(found: &[Found]) -> Vec<(u16, &str, &str)> {
    let items = found.iter().filter_map(|one| match one {
        Found::Item(item) => Some((item.target, item.info.key.as_str(), item.target_key.as_str())),
        _ => None,
    });
    let mut items: Vec<_> = items.collect();
    items.sort_unstable();
    items
}

fn refused(found: &[Found]) -> Vec<&FailedObject> {
    found.iter().filter_map(|one| if let Found::Refused { failed, .. } = one { Some(failed) } else { None }).collect()
}

#[tokio::test]
async fn keys_keep_their_relative_names_at_every_destination() {
    let source = DirectoryTree::with(&[("in/a", b"1"), ("in/d/ü b", b"22"), ("in.txt", b"x"), ("inn/c", b"x")]);
    let (one, two) = (DirectoryTree::new(), DirectoryTree::new());
    let targets = [(&one, ""), (&two, "deep/er/")];
    let (end, found) = survey(&job(&source, prefix("in/"), &targets), &source, &targets, DoneSet::empty()).await;
    let expected =
        [(0, "in/a", "a"), (0, "in/d/ü b", "d/ü b"), (1, "in/a", "deep/er/a"), (1, "in/d/ü b", "deep/er/d/ü b")];
    assert_eq!(items(&found), expected);
    let end = end.unwrap();
    assert_eq!((end.objects, end.bytes, end.listed_to_the_end), (2, 3, true));
    assert_eq!(found.last(), Some(&Found::Listed));
}

#[tokio::test]
async fn one_object_is_called_as_the_destination_says() {
    let source = DirectoryTree::with(&[("a/b", b"1")]);
    let target = DirectoryTree::new();
    let targets = [(&target, "new name")];
    let selection = Selection::Object { key: "a/b".into() };
    let (end, found) = survey(&job(&source, selection, &targets), &source, &targets, DoneSet::empty()).await;
    assert_eq!(items(&found), [(0, "a/b", "new name")]);
    assert_eq!(end.unwrap().objects, 1);
}

#[tokio::test]
async fn what_is_not_there_is_told() {
    let source = DirectoryTree::with(&[("a", b"1")]);
    let target = DirectoryTree::new();
    let targets = [(&target, "")];
    for selection in [Selection::Object { key: "none".into() }, prefix("none/"), filtered(vec![include("none")])] {
        let mut job = job(&source, selection, &targets);
        let (end, found) = survey(&job, &source, &targets, DoneSet::empty()).await;
        assert_eq!(end.unwrap_err().outcome(), Outcome::SourceNotFound);
        assert_eq!(found, []);
        job.allow_empty = true;
        let (end, _) = survey(&job, &source, &targets, DoneSet::empty()).await;
        assert_eq!(end.is_ok(), !matches!(job.selection, Selection::Object { .. }));
    }
}

fn include(glob: &str) -> FilterRule {
    FilterRule::Include(glob.to_owned())
}

#[tokio::test]
async fn a_missing_root_is_a_missing_source_and_an_empty_destination() {
    let (source, target) = (DirectoryTree::with(&[("a", b"1")]), DirectoryTree::new());
    std::fs::remove_dir(target.path("")).unwrap();
    let targets = [(&target, "")];
    let mut there = job(&source, prefix(""), &targets);
    there.compare = Some(Comparison::Auto);
    let (end, found) = survey(&there, &source, &targets, DoneSet::empty()).await;
    assert_eq!((end.unwrap().objects, items(&found).len()), (1, 1));
    let back = [(&source, "")];
    let (end, _) = survey(&job(&target, prefix(""), &back), &target, &back, DoneSet::empty()).await;
    assert_eq!(end.unwrap_err().outcome(), Outcome::SourceNotFound);
}

#[tokio::test]
async fn names_of_a_list_are_taken_once_and_fail_alone() {
    let source = DirectoryTree::with(&[("p/a", b"1"), ("p/b", b"22"), ("p/c", b"3")]);
    let target = DirectoryTree::new();
    let targets = [(&target, "to/")];
    let list = source.path("list");
    std::fs::write(&list, "a\nnone\n./b\n\na\n./\n././a\n").unwrap();
    let list_file = list.to_str().unwrap().to_owned();
    let selection = Selection::List { prefix: "p/".into(), list_file, filter: ObjectFilter::default() };
    let (end, found) = survey(&job(&source, selection, &targets), &source, &targets, DoneSet::empty()).await;
    assert_eq!(items(&found), [(0, "p/a", "to/a"), (0, "p/b", "to/b")]);
    let refused = refused(&found);
    assert_eq!(refused.len(), 1);
    assert!(refused[0].source.ends_with("p/none") && refused[0].kind == "not_found", "{refused:?}");
    assert_eq!(end.unwrap().refused, 1);
}

#[tokio::test]
async fn what_an_earlier_run_has_done_is_not_done_again_unless_it_changed() {
    let source = DirectoryTree::with(&[("a", b"1"), ("b", b"2"), ("c", b"3")]);
    let (target, folder) = (DirectoryTree::new(), tempfile::tempdir().unwrap());
    let targets = [(&target, "")];
    let journal = Journal::create(&StateDir::create(folder.path()).unwrap()).unwrap();
    source.set_modified("a", 1_000_001);
    for key in ["a", "b"] {
        let info = source.store.head(key).await.unwrap();
        let (target_key, fingerprint) = (key.to_owned(), fingerprint(&info));
        let closed = Entry::Closed { target: 0, target_key, fingerprint, size_bytes: 1, unsynced: None, written: None };
        journal.record_durably(closed).await.unwrap();
    }
    source.write("b", b"22");
    let mut job = job(&source, prefix(""), &targets);
    for compare in [None, Some(Comparison::Auto)] {
        job.compare = compare;
        for (bytes, at_ms, is_done) in
            [(&b"1"[..], 1_000_001, true), (b"1", 1_000_002, false), (b"11", 1_000_001, false), (b"", 1_000_001, false)]
        {
            target.write("a", bytes);
            target.set_modified("a", at_ms);
            let (_, found) = survey(&job, &source, &targets, journal.done_set().unwrap()).await;
            let expected = [(0, "a", "a"), (0, "b", "b"), (0, "c", "c")];
            assert_eq!(items(&found), expected[usize::from(is_done)..], "{compare:?} {bytes:?}");
            assert_eq!(found.contains(&Found::AlreadyDone { target: 0, objects: 1, bytes: 1 }), is_done);
        }
        std::fs::remove_file(target.path("a")).unwrap();
        let (_, found) = survey(&job, &source, &targets, journal.done_set().unwrap()).await;
        assert_eq!(items(&found).len(), 3, "{compare:?}");
    }
}

#[tokio::test]
async fn a_job_that_resumes_finds_new_work_before_it_has_looked_at_all_that_is_done() {
    let done = 20 * BATCH_OBJECTS_MAX;
    let folder = tempfile::tempdir().unwrap();
    let spec = serde_json::json!({ "source": { "url": "mem:" }, "selection": prefix(""),
                                   "targets": [{ "store": { "url": "mem:" }, "key": "to/" }] });
    let source = open_memory(done + 5);
    let journal = Journal::create(&StateDir::create(folder.path()).unwrap()).unwrap();
    let request = ListRequest { max_keys: Some(done as u32), ..ListRequest::default() };
    for info in source.list(&request).await.unwrap().objects {
        let (target_key, fingerprint) = (format!("to/{}", info.key), fingerprint(&info));
        let closed = Entry::Closed { target: 0, target_key, fingerprint, size_bytes: 1, unsynced: None, written: None };
        journal.record(closed).await.unwrap();
    }
    journal.flush().await.unwrap();
    let job = serde_json::from_value(spec).unwrap();
    let (end, found) = survey_of(&job, source, vec![open_memory(0)], journal.done_set().unwrap()).await;
    let before: Vec<_> = found.split(|one| matches!(one, Found::Item(_))).map(done_in).collect();
    assert_eq!((before.len(), before.iter().sum::<u64>()), (6, done as u64));
    assert!(before[0] < done as u64, "all that is done was looked at before the first new object was found");
    assert_eq!(end.unwrap().objects, done as u64 + 5);
}

fn open_memory(objects: usize) -> Arc<dyn Store> {
    let mut config = tradewind_store::StoreConfig { url: "mem:".to_owned(), ..Default::default() };
    config.extra.insert("objects".to_owned(), objects.to_string());
    tradewind_store::open(&config).unwrap()
}

fn done_in(found: &[Found]) -> u64 {
    found.iter().map(|one| if let Found::AlreadyDone { objects, .. } = one { *objects } else { 0 }).sum()
}

#[tokio::test]
async fn a_store_that_keeps_nothing_is_not_asked_for_copies_of_earlier_runs() {
    let source = DirectoryTree::with(&[("a", b"1"), ("b", b"2")]);
    let (target, folder) = (DirectoryTree::new(), tempfile::tempdir().unwrap());
    let journal = Journal::create(&StateDir::create(folder.path()).unwrap()).unwrap();
    let (target_key, fingerprint) = ("a".to_owned(), fingerprint(&source.store.head("a").await.unwrap()));
    let closed = Entry::Closed { target: 0, target_key, fingerprint, size_bytes: 1, unsynced: None, written: None };
    journal.record_durably(closed).await.unwrap();
    let job = job(&source, prefix(""), &[(&target, "")]);
    for (store, is_done) in [(open_memory(0), true), (target.store.clone(), false)] {
        let (_, found) = survey_of(&job, source.store.clone(), vec![store], journal.done_set().unwrap()).await;
        assert_eq!(found.contains(&Found::AlreadyDone { target: 0, objects: 1, bytes: 1 }), is_done);
    }
}

#[tokio::test]
async fn a_link_at_the_destination_is_no_copy_of_an_earlier_run() {
    let source = DirectoryTree::with(&[("a", b"1"), ("b", b"2")]);
    let (target, folder) = (DirectoryTree::with(&[("there", b"1")]), tempfile::tempdir().unwrap());
    let journal = Journal::create(&StateDir::create(folder.path()).unwrap()).unwrap();
    let (target_key, fingerprint) = ("a".to_owned(), fingerprint(&source.store.head("a").await.unwrap()));
    let closed = Entry::Closed { target: 0, target_key, fingerprint, size_bytes: 1, unsynced: None, written: None };
    journal.record_durably(closed).await.unwrap();
    let targets = [(&target, "")];
    let job = job(&source, prefix(""), &targets);
    for leads_to in ["there", "nowhere"] {
        std::os::unix::fs::symlink(leads_to, target.path("a")).unwrap();
        let (_, found) = survey(&job, &source, &targets, journal.done_set().unwrap()).await;
        assert_eq!(items(&found).len(), 2, "{leads_to}");
        std::fs::remove_file(target.path("a")).unwrap();
    }
}

#[tokio::test]
async fn keys_that_are_too_long_are_refused_alone() {
    let source = DirectoryTree::with(&[("a", b"1"), ("bb", b"2")]);
    let target = DirectoryTree::new();
    let limit = target.store.limits().key_bytes_max;
    let long = format!("{}/", "p".repeat(limit - 2));
    let targets = [(&target, long.as_str())];
    let (end, found) = survey(&job(&source, prefix(""), &targets), &source, &targets, DoneSet::empty()).await;
    assert_eq!(items(&found).len(), 1);
    assert_eq!(refused(&found)[0].kind, "invalid_key");
    assert_eq!(end.unwrap().refused, 1);
}

#[tokio::test]
async fn entries_that_cannot_be_moved_keep_deletion_away_unless_left_out() {
    let (source, target) = (DirectoryTree::with(&[("a", b"1")]), DirectoryTree::with(&[("z", b"1")]));
    std::os::unix::net::UnixListener::bind(source.path("socket")).unwrap();
    let targets = [(&target, "")];
    for (selection, refusals) in [(prefix(""), 1), (filtered(vec![FilterRule::Exclude("socket".into())]), 0)] {
        let mut job = job(&source, selection, &targets);
        (job.compare, job.delete) = (Some(Comparison::Auto), Some(Deletion::default()));
        let (end, found) = survey(&job, &source, &targets, DoneSet::empty()).await;
        let end = end.unwrap();
        assert_eq!((refused(&found).len(), end.listed_to_the_end), (refusals, refusals == 0));
    }
}

/// A name that is not UTF-8, so that no listing can name its contents.
fn hide_folder(tree: &DirectoryTree) {
    use std::os::unix::ffi::OsStrExt;
    let folder = tree.path("").join(std::ffi::OsStr::from_bytes(b"hidden\xff"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("a.log"), b"1").unwrap();
}

#[tokio::test]
async fn a_folder_that_cannot_be_listed_keeps_deletion_away_whatever_its_name() {
    let (source, target) = (DirectoryTree::with(&[("a.log", b"1")]), DirectoryTree::with(&[("z.log", b"1")]));
    hide_folder(&source);
    let targets = [(&target, "")];
    let exclude = |glob: &str| FilterRule::Exclude(glob.into());
    for (rules, refusals) in [
        (vec![include("*.log")], 1),
        (vec![exclude("*.txt")], 1),
        (vec![exclude("hidden*/")], 0),
        (vec![include("/*.log")], 1),
        (vec![include("a.log"), exclude("hidden*/**")], 0),
    ] {
        let mut job = job(&source, filtered(rules.clone()), &targets);
        (job.compare, job.delete) = (Some(Comparison::Auto), Some(Deletion::default()));
        let (end, found) = survey(&job, &source, &targets, DoneSet::empty()).await;
        let seen = (refused(&found).len(), end.unwrap().listed_to_the_end);
        assert_eq!(seen, (refusals, refusals == 0), "{rules:?}");
    }
}

#[tokio::test]
async fn what_a_destination_does_not_list_is_said_where_things_are_deleted() {
    let (source, target) = (DirectoryTree::with(&[("a.log", b"1")]), DirectoryTree::with(&[("z.log", b"1")]));
    hide_folder(&target);
    let targets = [(&target, "")];
    let hidden = FilterRule::Exclude("hidden*/".into());
    for (delete, rules, said) in [(true, vec![], 1), (false, vec![], 0), (true, vec![hidden], 0)] {
        let mut job = job(&source, filtered(rules), &targets);
        (job.compare, job.delete) = (Some(Comparison::Auto), delete.then(Deletion::default));
        let (end, found) = survey(&job, &source, &targets, DoneSet::empty()).await;
        assert!(end.unwrap().listed_to_the_end);
        assert_eq!(found.iter().filter(|one| matches!(one, Found::NotListed(_))).count(), said);
    }
}

#[tokio::test]
async fn links_that_are_not_followed_are_counted_and_keep_nothing_away() {
    let (source, target) = (DirectoryTree::with(&[("a", b"1")]), DirectoryTree::with(&[("z", b"1")]));
    std::os::unix::fs::symlink("a", source.path("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", source.path("other")).unwrap();
    let targets = [(&target, "")];
    for (selection, links) in [(prefix(""), 2), (filtered(vec![FilterRule::Exclude("link".into())]), 1)] {
        let mut job = job(&source, selection, &targets);
        (job.compare, job.delete) = (Some(Comparison::Auto), Some(Deletion::default()));
        let (end, found) = survey(&job, &source, &targets, DoneSet::empty()).await;
        assert_eq!((refused(&found).len(), end.unwrap().listed_to_the_end), (0, true));
        assert!(found.contains(&Found::LinksSkipped(links)), "{found:?}");
    }
}

#[tokio::test]
async fn what_a_destination_has_in_the_place_of_a_skipped_link_is_not_deleted() {
    let source = DirectoryTree::with(&[("a", b"1"), ("z", b"1")]);
    let target = DirectoryTree::with(&[("b/link", b"1"), ("data-x", b"1"), ("data/x", b"1"), ("data/y/z", b"1")]);
    source.write("b/c", b"1");
    for link in ["b/link", "data"] {
        std::os::unix::fs::symlink("/nowhere", source.path(link)).unwrap();
    }
    let targets = [(&target, "")];
    let mut job = job(&source, prefix(""), &targets);
    (job.compare, job.delete) = (Some(Comparison::Auto), Some(Deletion::default()));
    let (end, _) = survey(&job, &source, &targets, DoneSet::empty()).await;
    let end = end.unwrap();
    assert_eq!((end.extraneous.unwrap().keys(), end.listed_to_the_end), (1, true));
}

#[tokio::test]
async fn a_shut_destination_is_asked_nothing_and_keeps_none_of_the_others() {
    let source = DirectoryTree::with(&[("a", b"1"), ("b", b"22")]);
    let (gone, open) = (DirectoryTree::with(&[("a", b"1")]), DirectoryTree::new());
    let mut job = job(&source, prefix(""), &[(&gone, ""), (&open, "")]);
    job.compare = Some(Comparison::Size);
    let (out, mut said) = mpsc::channel(100);
    let why = Error::new(tradewind_store::ErrorKind::BucketNotFound, "list", "s3://gone", "no such bucket");
    let survey = Survey {
        job: Arc::new(job),
        source: source.store.clone(),
        targets: vec![gone.store.clone(), open.store.clone()],
        limits: Limits::default(),
        done: DoneSet::empty(),
        done_before_deletion: None,
        local: true,
        suspect_since_unix_ms: Vec::new(),
        may_be_source: Vec::new(),
        shut: vec![Some(why), None],
        out,
        cancel: CancellationToken::new(),
    };
    survey.run().await.unwrap();
    let mut found = Vec::new();
    while let Ok(one) = said.try_recv() {
        found.push(one);
    }
    assert_eq!(items(&found), [(1, "a", "a"), (1, "b", "b")]);
    let refused = refused(&found);
    assert_eq!(refused.iter().map(|failed| failed.kind.as_str()).collect::<Vec<_>>(), ["bucket_not_found"; 2]);
    assert!(found.iter().any(|one| matches!(one, Found::Refused { target: Some(0), bytes: 2, .. })), "{found:?}");
}

#[tokio::test]
async fn a_survey_that_nobody_hears_ends() {
    let source = DirectoryTree::with(&[("a", b"1")]);
    let targets = [(&source, "x/")];
    let (out, found) = mpsc::channel(1);
    drop(found);
    let survey = Survey {
        job: Arc::new(job(&source, Selection::Object { key: "a".into() }, &targets)),
        source: source.store.clone(),
        targets: vec![source.store.clone()],
        limits: Limits::default(),
        done: DoneSet::empty(),
        done_before_deletion: None,
        local: true,
        suspect_since_unix_ms: Vec::new(),
        may_be_source: Vec::new(),
        shut: Vec::new(),
        out,
        cancel: CancellationToken::new(),
    };
    assert!(matches!(survey.run().await, Err(SurveyError::Cancelled)));
}

/// Size and modification time of files by name.
type Files = BTreeMap<&'static str, (usize, u64)>;

const NAMES: [&str; 8] = ["a", "a.b", "b/a", "b/ü", "b!/x", "c/d/e", "c/d/f g", "z"];

fn any_files() -> impl Strategy<Value = Files> {
    prop::collection::btree_map(prop::sample::select(NAMES.to_vec()), (0..3usize, 1_000_001..1_000_004u64), 0..8)
}

fn plant(tree: &DirectoryTree, prefix: &str, files: &Files) {
    for (name, (size, at_ms)) in files {
        let key = format!("{prefix}{name}");
        tree.write(&key, &vec![7; *size]);
        tree.set_modified(&key, *at_ms);
    }
}

fn is_same(rule: Comparison, ours: (usize, u64), theirs: (usize, u64)) -> bool {
    rule == Comparison::Existing
        || ours.0 == theirs.0
            && match rule {
                Comparison::Size | Comparison::Existing => true,
                // Files state no checksum, so they are read. Those of one length have the same bytes here.
                Comparison::Checksum => true,
                Comparison::Auto if ours.0 == 0 => true,
                // Copies keep their times.
                Comparison::Auto | Comparison::Time => theirs.1 == ours.1,
            }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Work, skips and deletions of a sync are those of two sets compared name by name.
    #[test]
    fn a_sync_finds_what_two_sets_say(
        source in any_files(),
        destinations in prop::collection::vec(any_files(), 1..3),
        rule in prop::sample::select(vec![
            Comparison::Auto, Comparison::Checksum, Comparison::Size, Comparison::Time, Comparison::Existing,
        ]),
        leaves_b in any::<bool>(),
    ) {
        let rules = if leaves_b { vec![FilterRule::Exclude("b/**".into())] } else { vec![] };
        let is_taken = |name: &str| !(leaves_b && name.starts_with("b/"));
        let from = DirectoryTree::new();
        plant(&from, "from/", &source);
        let trees: Vec<DirectoryTree> = destinations.iter().map(|files| {
            let tree = DirectoryTree::new();
            plant(&tree, "to/it/", files);
            tree
        }).collect();
        let targets: Vec<(&DirectoryTree, &str)> = trees.iter().map(|tree| (tree, "to/it/")).collect();
        let filter = ObjectFilter { rules, ..ObjectFilter::default() };
        let mut job = job(&from, Selection::Prefix { prefix: "from/".into(), filter }, &targets);
        (job.compare, job.delete, job.allow_empty) = (Some(rule), Some(Deletion::default()), true);
        if source.is_empty() {
            from.write("other", b"");
        }

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (end, found) = runtime.block_on(survey(&job, &from, &targets, DoneSet::empty()));
        let end = end.unwrap();

        let (mut work, mut extra, mut skipped) = (BTreeSet::new(), 0, 0);
        for (index, theirs) in destinations.iter().enumerate() {
            for (name, ours) in source.iter().filter(|(name, _)| is_taken(name)) {
                match theirs.get(name) {
                    Some(theirs) if is_same(rule, *ours, *theirs) => skipped += 1,
                    _ => { work.insert((index as u16, format!("from/{name}"), format!("to/it/{name}"))); }
                }
            }
            extra += theirs.keys().filter(|name| is_taken(name) && !source.contains_key(*name)).count() as u64;
        }
        let said: BTreeSet<_> = items(&found).into_iter().map(|(index, from, to)| (index, from.to_owned(), to.to_owned())).collect();
        prop_assert_eq!(items(&found).len(), said.len());
        prop_assert_eq!(said, work);
        let said: u64 = found.iter().map(|one| if let Found::Skipped { objects, .. } = one { *objects } else { 0 }).sum();
        prop_assert_eq!(said, skipped);
        prop_assert_eq!(end.extraneous.unwrap().keys(), extra);
        // A folder that is not listed counts as one.
        let (listed, skipped): (Vec<&str>, Vec<&str>) = source.keys().copied().partition(|name| is_taken(name));
        prop_assert_eq!(end.source_objects, listed.len() as u64 + u64::from(!skipped.is_empty()));
    }
}
