use super::*;
use crate::directory_tree::DirectoryTree;
use serde_json::json;
use tradewind_contract::{Limits, Outcome};

fn job(source: &DirectoryTree, selection: serde_json::Value, targets: &[(&DirectoryTree, &str)]) -> JobSpec {
    let targets: Vec<_> = targets.iter().map(|(tree, key)| json!({ "store": tree.spec(), "key": key })).collect();
    serde_json::from_value(json!({ "source": source.spec(), "selection": selection, "targets": targets })).unwrap()
}

fn prefix(prefix: &str) -> serde_json::Value {
    json!({ "kind": "prefix", "prefix": prefix })
}

async fn check(job: &JobSpec, source: &DirectoryTree, targets: &[(&DirectoryTree, &str)]) -> Result<(), SurveyError> {
    let stores: Vec<_> = targets.iter().map(|(tree, _)| tree.store.clone()).collect();
    let policy = RetryPolicy::of_job(&Limits::default(), job);
    let places = Places { job, source: &source.store, targets: &stores, policy };
    places.refuse_overlaps(true).await.map(drop)
}

#[tokio::test]
async fn places_that_overlap_in_either_direction_are_refused() {
    let tree = DirectoryTree::with(&[("a", b"1"), ("par/ss/x", b"1")]);
    for (selection, key, refused) in [
        (prefix(""), "backup/", true),
        (prefix("par/ss/"), "par/", true),
        (prefix("par/ss/"), "", true),
        (prefix("par/"), "par/", true),
        (prefix("par/ss/"), "par/st/", false),
        (json!({ "kind": "object", "key": "a" }), "a", true),
        (json!({ "kind": "object", "key": "a" }), "b", false),
    ] {
        let targets = [(&tree, key)];
        let answer = check(&job(&tree, selection.clone(), &targets), &tree, &targets).await;
        assert_eq!(matches!(answer, Err(SurveyError::Overlap { .. })), refused, "{selection} {key}: {answer:?}");
        if let Err(error) = answer {
            assert_eq!(error.outcome(), Outcome::Refused);
        }
    }
}

#[tokio::test]
async fn a_list_is_copied_to_a_place_below_its_source_and_never_moved() {
    let tree = DirectoryTree::with(&[("a", b"1"), ("list", b"a\n")]);
    let list = json!({ "kind": "list", "prefix": "", "list_file": tree.path("list") });
    for (key, delete_source, refused) in [("copy/", false, false), ("copy/", true, true), ("", false, true)] {
        let targets = [(&tree, key)];
        let job = JobSpec { delete_source, ..job(&tree, list.clone(), &targets) };
        let answer = check(&job, &tree, &targets).await;
        assert_eq!(matches!(answer, Err(SurveyError::Overlap { .. })), refused, "{key} {delete_source}: {answer:?}");
    }
}

#[tokio::test]
async fn a_list_that_names_an_object_in_its_destination_is_refused() {
    let tree = DirectoryTree::with(&[("b", b"1"), ("copy/b", b"2"), ("copied/b", b"3"), ("list", b"")]);
    let exclude = json!({ "rules": [{ "rule": "exclude", "glob": "/copy/" }] });
    for (names, filter, refused) in [
        ("b\ncopied/b\n", json!({}), false),
        ("b\ncopy/b\n", json!({}), true),
        ("b\ncopy/new/b\n", json!({}), true),
        ("b\ncopy/b\n", exclude, false),
    ] {
        tree.write("list", names.as_bytes());
        let list = json!({ "kind": "list", "prefix": "", "list_file": tree.path("list"), "filter": filter });
        let targets = [(&tree, "copy/")];
        let answer = check(&job(&tree, list, &targets), &tree, &targets).await;
        assert_eq!(matches!(answer, Err(SurveyError::Overlap { .. })), refused, "{names}: {answer:?}");
    }
}

#[tokio::test]
async fn several_sources_of_which_one_would_be_written_over_another_are_refused() {
    let tree = DirectoryTree::with(&[
        ("new/d/x", b"1"),
        ("new/b", b"1"),
        ("to/d/x", b"2"),
        ("to/d/y/z", b"2"),
        ("to/sub/a", b"3"),
    ]);
    for (keys, refused) in [
        ([("new/d/", "d"), ("to/d/x", "x")], true),
        ([("new/d/", "d"), ("to/d/y/", "y")], true),
        ([("new/b", "sub/a"), ("to/sub/a", "a")], true),
        ([("new/b", "sub/b"), ("to/sub/a", "a")], false),
        ([("new/d/", "d"), ("to/sub/a", "a")], false),
        ([("new/d/", "d"), ("new/b", "b")], false),
    ] {
        let members = keys.map(|(key, name)| json!({ "key": key, "name": name }));
        let targets = [(&tree, "to/")];
        let job = job(&tree, json!({ "kind": "several", "members": members }), &targets);
        let answer = check(&job, &tree, &targets).await;
        assert_eq!(matches!(answer, Err(SurveyError::WrittenOver { .. })), refused, "{keys:?}: {answer:?}");
        if let Err(error) = answer {
            assert_eq!(error.outcome(), Outcome::Refused);
        }
    }
}

#[tokio::test]
async fn destinations_that_overlap_are_refused() {
    let (source, one, two) = (DirectoryTree::with(&[("a", b"1")]), DirectoryTree::new(), DirectoryTree::new());
    for (keys, refused) in [(["", "x/"], true), (["x/", "x/"], true), (["x/", "y/"], false)] {
        let targets = [(&one, keys[0]), (&two, ""), (&one, keys[1])];
        let answer = check(&job(&source, prefix(""), &targets), &source, &targets).await;
        assert_eq!(matches!(answer, Err(SurveyError::Overlap { .. })), refused, "{keys:?}: {answer:?}");
    }
}
