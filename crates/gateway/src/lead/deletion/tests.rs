use super::*;
use crate::directory_tree::DirectoryTree;
use crate::drain::DRAIN_MAX;
use crate::lead::survey::SurveyEnd;
use crate::stepped::{Stepped, Steps};
use tradewind_contract::{Deletion, Limits};
use tradewind_store::{StoreConfig, name_form, open};

async fn backlog_of(trees: &[&DirectoryTree], keys: &[(u16, &str)]) -> DeletionBacklog {
    let backlog = DeletionBacklog::create(None).unwrap();
    for (store, key) in keys {
        let info = trees[usize::from(*store)].store.head(key).await.unwrap();
        backlog.push(*store, &info, Seen::Copied(Vec::new())).unwrap();
    }
    backlog
}

fn run_over(trees: &[&DirectoryTree]) -> DeletionRun {
    DeletionRun {
        stores: trees.iter().map(|tree| tree.store.clone()).collect(),
        targets: Vec::new(),
        proven_apart: Vec::new(),
        origin: None,
        policy: RetryPolicy::from(&Limits::default()),
        dry_run: false,
        has_written: true,
        stop: CancellationToken::new(),
    }
}

async fn run(run: DeletionRun, backlog: DeletionBacklog) -> (u64, Vec<Deleted>) {
    let (out, mut said) = mpsc::channel(1);
    let taking = async {
        let mut all = Vec::new();
        while let Some(one) = said.recv().await {
            all.push(one);
        }
        all
    };
    let (gone, said) = futures::join!(run.run(backlog, out), taking);
    (gone.unwrap(), said)
}

fn end_with(keys: u64) -> SurveyEnd {
    let backlog = DeletionBacklog::create(None).unwrap();
    (0..keys).for_each(|index| {
        let object = ObjectInfo { key: index.to_string(), ..ObjectInfo::default() };
        backlog.push(0, &object, Seen::Listed).unwrap();
    });
    SurveyEnd { source_objects: 1, listed_to_the_end: true, extraneous: Some(backlog), ..SurveyEnd::default() }
}

#[test]
fn deleting_is_refused_whenever_it_may_be_wrong() {
    let rules = Deletion { keys_max: Some(3), over_half: true, ask: false };
    let url = |index| format!("s3://there-{index}");
    assert_eq!(refusal(&rules, &end_with(3), 0, url), None);
    for (end, failed, word) in [
        (end_with(4), 0, "--max-delete"),
        (end_with(3), 1, "could not be copied"),
        (SurveyEnd { source_objects: 0, ..end_with(1) }, 0, "empty"),
        (SurveyEnd { listed_to_the_end: false, ..end_with(1) }, 0, "not listed"),
    ] {
        let reason = refusal(&rules, &end, failed, url).unwrap().why;
        assert!(reason.contains(word), "{reason}");
    }
}

#[test]
fn a_refusal_names_the_destination_and_says_what_helps() {
    let url = |index| format!("s3://there-{index}");
    let rules = Deletion { keys_max: None, over_half: false, ask: false };
    let backlog = DeletionBacklog::create(None).unwrap();
    let object = ObjectInfo { key: "a".to_owned(), ..ObjectInfo::default() };
    backlog.push(1, &object, Seen::Listed).unwrap();
    let end = SurveyEnd { target_objects: vec![0, 1], extraneous: Some(backlog), ..end_with(0) };
    let refused = refusal(&rules, &end, 0, url).unwrap();
    assert!(refused.why.contains("1 of the 1 object in s3://there-1 would be deleted"), "{}", refused.why);
    assert!(refused.hint.contains("-y"));
    let limited = Deletion { keys_max: Some(0), ..rules };
    assert!(!refusal(&limited, &end, 0, url).unwrap().hint.contains("-y"), "-y does not raise --max-delete");
    let empty = SurveyEnd { source_objects: 0, ..end };
    assert!(refusal(&rules, &empty, 0, url).unwrap().hint.contains("rm -r"), "nothing else empties a destination");
}

#[tokio::test]
async fn what_was_put_down_goes_and_the_rest_stays() {
    let one = DirectoryTree::with(&[("a", b"1"), ("b/ü \"\n", b"2"), ("c", b"3")]);
    let two = DirectoryTree::with(&[("a", b"1"), ("d", b"2")]);
    let trees = [&one, &two];
    let backlog = backlog_of(&trees, &[(0, "a"), (1, "d"), (0, "b/ü \"\n")]).await;
    assert_eq!(backlog.keys(), 3);
    let (gone, said) = run(run_over(&trees), backlog).await;
    assert_eq!((gone, said.len()), (3, 3));
    assert_eq!((one.keys(), two.keys()), (vec!["c".to_owned()], vec!["a".to_owned()]));
}

#[tokio::test]
async fn more_keys_than_a_request_holds_all_go() {
    let count = BATCH_KEYS_MAX + 7;
    let tree = DirectoryTree::new();
    let keys: Vec<String> = (0..count).map(|index| format!("k{index}")).collect();
    let backlog = DeletionBacklog::create(None).unwrap();
    for key in &keys {
        tree.write(key, b"");
        backlog.push(0, &ObjectInfo { key: key.clone(), ..ObjectInfo::default() }, Seen::Listed).unwrap();
    }
    let (gone, _) = run(run_over(&[&tree]), backlog).await;
    assert_eq!((gone, tree.keys().len()), (count as u64, 0));
}

#[tokio::test]
async fn a_dry_run_says_and_does_not() {
    let tree = DirectoryTree::with(&[("a", b"1")]);
    let backlog = backlog_of(&[&tree], &[(0, "a")]).await;
    let (gone, said) = run(DeletionRun { dry_run: true, ..run_over(&[&tree]) }, backlog).await;
    assert_eq!((gone, tree.keys().len()), (1, 1));
    assert!(matches!(&said[..], [Deleted::Gone { store: 0, url, .. }] if url.ends_with("/a")));
}

#[tokio::test]
async fn a_source_that_was_written_again_is_not_lost() {
    let tree = DirectoryTree::with(&[("a", b"1"), ("b", b"2"), ("gone", b"3")]);
    let backlog = backlog_of(&[&tree], &[(0, "a"), (0, "b"), (0, "gone")]).await;
    tree.write("b", b"new");
    std::fs::remove_file(tree.path("gone")).unwrap();
    let (gone, said) = run(run_over(&[&tree]), backlog).await;
    assert_eq!((gone, tree.keys()), (2, vec!["b".to_owned()]));
    let failed = said.iter().find_map(|one| if let Deleted::Failed(failed) = one { Some(failed) } else { None });
    assert_eq!(failed.unwrap().kind, "changed");
}

/// Same second, same length, and the modification time set back: only the kernel's change time differs.
#[tokio::test]
async fn a_source_written_again_with_the_same_length_and_time_is_not_lost() {
    let tree = DirectoryTree::with(&[("in-place", b"old"), ("replaced", b"old")]);
    let backlog = backlog_of(&[&tree], &[(0, "in-place"), (0, "replaced")]).await;
    for key in ["in-place", "replaced"] {
        // Reads as a copy does, which waits for the kernel's clock to advance.
        tree.store.get(key, None, &Precondition::default()).await.unwrap();
    }
    for key in ["in-place", "replaced"] {
        let modified = std::fs::metadata(tree.path(key)).unwrap().modified().unwrap();
        let path = if key == "replaced" { tree.path("beside") } else { tree.path(key) };
        std::fs::write(&path, b"new").unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        if key == "replaced" {
            std::fs::rename(path, tree.path(key)).unwrap();
        }
    }
    let (gone, said) = run(run_over(&[&tree]), backlog).await;
    assert_eq!((gone, said.len()), (0, 2));
    assert_eq!(tree.keys(), ["in-place", "replaced"]);
}

/// The copy of `key` in its present state in the tree.
async fn copy_of(tree: &DirectoryTree, target: u16, key: &str) -> ProvenCopy {
    let info = tree.store.head(key).await.unwrap();
    let written = tradewind_store::Written { file: info.file, ..Default::default() };
    ProvenCopy { target, key: key.to_owned(), size_bytes: info.size_bytes, written }
}

#[tokio::test]
async fn a_source_stays_unless_all_its_copies_are_as_they_were_written() {
    let keys = ["gone", "replaced", "shorter", "whole"];
    let contents = keys.map(|key| (key, &b"123"[..]));
    let (source, one, two) =
        (DirectoryTree::with(&contents), DirectoryTree::with(&contents), DirectoryTree::with(&contents));
    let backlog = DeletionBacklog::create(None).unwrap();
    for key in keys {
        let copies = vec![copy_of(&one, 0, key).await, copy_of(&two, 1, key).await];
        backlog.push(0, &source.store.head(key).await.unwrap(), Seen::Copied(copies)).unwrap();
    }
    std::fs::remove_file(two.path("gone")).unwrap();
    two.write("beside", b"456");
    std::fs::rename(two.path("beside"), two.path("replaced")).unwrap();
    two.write("shorter", b"1");
    let targets = vec![one.store.clone(), two.store.clone()];
    let (gone, said) = run(DeletionRun { targets, ..run_over(&[&source]) }, backlog).await;
    assert_eq!((gone, source.keys()), (1, ["gone", "replaced", "shorter"].map(str::to_owned).to_vec()));
    let kept = said.into_iter().filter_map(|one| match one {
        Deleted::Kept { failed, lost } => Some((failed.kind, lost)),
        _ => None,
    });
    let expected = ["gone", "replaced", "shorter"].map(|key| ("overwritten".to_owned(), vec![(1, key.to_owned())]));
    assert_eq!(kept.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn all_names_of_a_hard_linked_file_go() {
    let tree = DirectoryTree::with(&[("a", b"1")]);
    std::fs::hard_link(tree.path("a"), tree.path("b")).unwrap();
    let backlog = backlog_of(&[&tree], &[(0, "a"), (0, "b")]).await;
    let (gone, _) = run(run_over(&[&tree]), backlog).await;
    assert_eq!((gone, tree.keys().len()), (2, 0));
}

#[tokio::test]
async fn a_stopped_run_deletes_nothing_more() {
    let tree = DirectoryTree::with(&[("a", b"1")]);
    let backlog = backlog_of(&[&tree], &[(0, "a")]).await;
    let stopped = run_over(&[&tree]);
    stopped.stop.cancel();
    assert_eq!(run(stopped, backlog).await, (0, vec![]));
    assert_eq!(tree.keys(), ["a"]);
}

/// The store deletes but does not answer, so the fate of the objects is unknown.
#[tokio::test(start_paused = true)]
async fn a_stopped_run_says_nothing_of_a_delete_that_is_not_answered() {
    let tree = DirectoryTree::with(&[("a", b"1")]);
    let backlog = backlog_of(&[&tree], &[(0, "a")]).await;
    let steps = Steps::new(1);
    let stores: Vec<Arc<dyn Store>> = vec![Stepped::with(&tree.store, &steps)];
    let stopped = DeletionRun { stores, ..run_over(&[&tree]) };
    let stop = stopped.stop.clone();
    let stopping = async {
        steps.over().await;
        stop.cancel();
        tokio::time::Instant::now()
    };
    let (said, stopped_at) = futures::join!(run(stopped, backlog), stopping);
    assert_eq!((said, tree.keys()), ((0, vec![]), vec![]));
    assert_eq!(stopped_at.elapsed(), DRAIN_MAX);
}

fn bucket(endpoint: Option<&str>) -> Arc<dyn Store> {
    let (url, endpoint, region) = ("s3://b".to_owned(), endpoint.map(str::to_owned), Some("eu-west-1".to_owned()));
    open(&StoreConfig { url, endpoint, region, anonymous: true, ..StoreConfig::default() }).unwrap()
}

/// Returns whether the time still counts when the object that was seen is about to be deleted.
fn time_counts(store: &dyn Store, key: &str, seen: Seen, names: &Names) -> bool {
    let etag = Some("d41d8cd98f00b204e9800998ecf8427e".to_owned());
    let object = ObjectInfo { key: key.to_owned(), etag, modified_unix_ms: 5_000, ..ObjectInfo::default() };
    let backlog = DeletionBacklog::create(None).unwrap();
    backlog.push(0, &object, seen).unwrap();
    let mut batch = backlog.read().unwrap().next_batch(&[1]).unwrap().unwrap();
    let entry = batch.remove(0).without_time_of_folder(store, names);
    let condition = Precondition { not_after_unix_ms: entry.not_after_unix_ms, ..entry.condition };
    condition.difference(&ObjectInfo { modified_unix_ms: 9_000, ..object }).is_some()
}

#[test]
fn only_markers_of_servers_that_may_keep_objects_as_files_lose_their_time() {
    let (private, cloud) = (bucket(Some("http://127.0.0.1:9")), bucket(None));
    let (none, some) = (Names::default(), Names::default());
    for key in ["d/", "f"] {
        some.has_twin(0, &name_form(private.as_ref(), key).unwrap());
    }
    for seen in [Seen::Listed, Seen::Copied(Vec::new())] {
        let counts = |store: &Arc<dyn Store>, key, names| time_counts(store.as_ref(), key, seen.clone(), names);
        assert!(!counts(&private, "d/", &none), "{seen:?}");
        assert!(counts(&private, "D//", &some) && counts(&private, "f", &some), "the job wrote it: {seen:?}");
        assert!(counts(&private, "f", &none) && counts(&cloud, "d/", &none), "{seen:?}");
    }
}
