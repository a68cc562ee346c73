//! Flat moves and copies to a destination that may show a directory of the source under another name. Here it is one: `par`.

use super::*;

const LIST: &str = "names";

/// Surveys a flat move of `source` to `target`, which may be the source.
async fn flat_move(source: &DirectoryTree, target: Arc<dyn Store>, change: impl Fn(&mut JobSpec)) -> Seen {
    let mut job = job(source, prefix(""), &[(source, "")]);
    (job.flatten, job.delete_source) = (true, true);
    change(&mut job);
    let (out, mut found) = mpsc::channel(100);
    let survey = Survey {
        job: Arc::new(job),
        source: source.store.clone(),
        targets: vec![target],
        limits: Limits::default(),
        done: DoneSet::empty(),
        done_before_deletion: None,
        local: true,
        suspect_since_unix_ms: Vec::new(),
        may_be_source: vec![true],
        shut: Vec::new(),
        out,
        cancel: CancellationToken::new(),
    };
    let end = survey.run().await.unwrap();
    let mut seen = Seen { end, written: Vec::new(), refused: Vec::new() };
    while let Ok(one) = found.try_recv() {
        match one {
            Found::Item(item) => seen.written.push(item.info.key.clone()),
            Found::Refused { failed, .. } => seen.refused.push(failed),
            _ => {}
        }
    }
    seen
}

/// Result of a flat move's survey: the keys of the objects to write, and the others.
struct Seen {
    end: SurveyEnd,
    written: Vec<String>,
    refused: Vec<FailedObject>,
}

impl Seen {
    fn kinds(&self) -> Vec<&str> {
        self.refused.iter().map(|failed| failed.kind.as_str()).collect()
    }
}

fn directory_of(tree: &DirectoryTree, name: &str) -> Arc<dyn Store> {
    let url = format!("file://{}", tree.path(name).display());
    crate::stores::open(&tradewind_contract::StoreSpec { url, ..Default::default() }).unwrap()
}

fn list(folder: &tempfile::TempDir, names: &str) -> Selection {
    let path = folder.path().join(LIST);
    std::fs::write(&path, names).unwrap();
    let (prefix, filter) = (String::new(), ObjectFilter::default());
    Selection::List { prefix, list_file: path.to_str().unwrap().to_owned(), filter }
}

#[tokio::test]
async fn an_object_is_not_moved_onto_itself_however_it_is_selected() {
    let source = DirectoryTree::with(&[("other/b", b"1"), ("par/a", b"only copy")]);
    let folder = tempfile::tempdir().unwrap();
    let several = ["other/b", "par/a"].map(|key| Member { key: key.to_owned(), name: key.to_owned() });
    let several = Selection::Several { members: several.to_vec(), filter: ObjectFilter::default() };
    for selection in [prefix(""), list(&folder, "other/b\npar/a\n"), several] {
        let seen = flat_move(&source, directory_of(&source, "par"), |job| job.selection = selection.clone()).await;
        assert_eq!((seen.written.as_slice(), seen.kinds()), (&["other/b".to_owned()][..], vec!["occupied"]));
        assert!(seen.refused[0].source.ends_with("/par/a"), "{:?}", seen.refused);
        assert_eq!((seen.end.objects, seen.end.bytes, seen.end.source_objects), (2, 10, 2));
    }
}

#[tokio::test]
async fn no_other_object_is_written_over_one_that_stays_where_it_is() {
    for other in ["other/b", "zzz/b"] {
        for bytes in [&b"different"[..], b"as long as"] {
            let source = DirectoryTree::with(&[(other, bytes), ("par/b", b"only copy!")]);
            let seen = flat_move(&source, directory_of(&source, "par"), |_| ()).await;
            assert_eq!((seen.written.len(), seen.refused.len()), (0, 2), "{other}");
            assert!(seen.end.has_flat_twins, "{other}");
        }
    }
}

#[tokio::test]
async fn no_object_is_copied_over_one_that_is_yet_to_be_copied() {
    let folder = tempfile::tempdir().unwrap();
    for other in ["other/b", "zzz/b"] {
        let source = DirectoryTree::with(&[(other, b"different"), ("par/b", b"only copy!"), ("third/c", b"1")]);
        let several = [other, "par/b", "third/c"].map(|key| Member { key: key.to_owned(), name: key.to_owned() });
        let several = Selection::Several { members: several.to_vec(), filter: ObjectFilter::default() };
        for selection in [prefix(""), list(&folder, &format!("{other}\npar/b\nthird/c\n")), several] {
            let copy = |job: &mut JobSpec| (job.delete_source, job.selection) = (false, selection.clone());
            let seen = flat_move(&source, directory_of(&source, "par"), copy).await;
            assert_eq!((seen.written.as_slice(), seen.refused.len()), (&["third/c".to_owned()][..], 2), "{other}");
        }
    }
}

#[tokio::test]
async fn a_flat_copy_replaces_what_no_other_object_of_the_job_can_be() {
    let source = DirectoryTree::with(&[("other/b", b"new"), ("zzz/c", b"1")]);
    source.write("par/b", b"earlier copy");
    let copy = |job: &mut JobSpec| {
        job.delete_source = false;
        job.selection = filtered(vec![FilterRule::Exclude("/par/".into())]);
    };
    let seen = flat_move(&source, directory_of(&source, "par"), copy).await;
    assert_eq!((seen.written.len(), seen.refused.len()), (2, 0), "{:?}", seen.refused);
}

#[tokio::test]
async fn an_object_that_may_be_of_the_source_is_replaced_by_no_other() {
    let source = DirectoryTree::with(&[("other/a", b"1"), ("other/b", b"1")]);
    source.write("par/b", b"22");
    let excluded = filtered(vec![FilterRule::Exclude("/par/".into())]);
    let seen = flat_move(&source, directory_of(&source, "par"), |job| job.selection = excluded.clone()).await;
    assert_eq!((seen.written.as_slice(), seen.kinds()), (&["other/a".to_owned()][..], vec!["occupied"]));
    assert!(!seen.end.has_flat_twins);
    // A job that replaces nothing need not refuse it.
    let keep = |job: &mut JobSpec| {
        job.selection = excluded.clone();
        job.compare = Some(Comparison::Existing);
    };
    let seen = flat_move(&source, directory_of(&source, "par"), keep).await;
    assert_eq!((seen.written.len(), seen.refused.len()), (1, 0));
}

#[tokio::test]
async fn a_move_that_is_repeated_writes_its_copies_again() {
    let (source, target) = (DirectoryTree::with(&[("x/a", b"1"), ("x/b", b"")]), DirectoryTree::new());
    target.write("a", b"1");
    target.write("b", b"");
    ["a", "b"].iter().for_each(|name| target.set_modified(name, 1000));
    let seen = flat_move(&source, target.store.clone(), |_| ()).await;
    assert_eq!((seen.written.len(), seen.refused.len()), (2, 0), "{:?}", seen.refused);
}

#[tokio::test]
async fn a_name_that_the_destination_cannot_have_ends_no_job() {
    let (source, target) = (DirectoryTree::with(&[("x/a", b"1"), ("x/b", b"1"), ("x/c", b"1")]), DirectoryTree::new());
    std::os::unix::fs::symlink("nowhere", target.path("a")).unwrap();
    std::fs::create_dir(target.path("b")).unwrap();
    let seen = flat_move(&source, target.store.clone(), |_| ()).await;
    assert_eq!((seen.written.len(), seen.refused.len()), (3, 0));
    let long = format!("{}/", "p".repeat(300));
    let seen = flat_move(&source, target.store.clone(), |job| job.targets[0].key.clone_from(&long)).await;
    assert_eq!((seen.written.len(), seen.refused.len()), (3, 0));
}

#[tokio::test]
async fn one_object_has_the_name_that_the_destination_says() {
    let source = DirectoryTree::with(&[("other/b", b"1"), ("par/b", b"only copy")]);
    let one = |job: &mut JobSpec| {
        job.selection = Selection::Object { key: "other/b".to_owned() };
        job.targets[0].key = "c".to_owned();
    };
    let seen = flat_move(&source, directory_of(&source, "par"), one).await;
    assert_eq!((seen.written.len(), seen.refused.len()), (1, 0));
}
