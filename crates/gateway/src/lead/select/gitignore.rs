//! Compares the rules with git's interpretation of them.

use super::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Number of trees, each with its own rules and its own `git` process.
const TREES: usize = 300;
/// Number of trees of the slow test.
const TREES_MANY: usize = 5_000;
/// One tree of so many is also used with rules of both kinds.
const TREES_PER_MIXED: usize = 4;

/// Git has no alternatives in braces, and its `**` crosses folders only where it is a whole part.
fn any_glob() -> impl Strategy<Value = String> {
    let part =
        prop::sample::select(vec!["*", "**", "a", "b", ".a", "ab", "*b", "a*", "?", "[ab]", "[!a]", "a?", "\\a"]);
    let parts = prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"));
    (prop::bool::weighted(0.3), parts, prop::bool::weighted(0.3)).prop_map(|(is_anchored, parts, is_folder)| {
        format!("{}{parts}{}", if is_anchored { "/" } else { "" }, if is_folder { "/" } else { "" })
    })
}

fn any_name() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", ".a", "ab", "ba", "c"]);
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"))
}

/// The names that git ignores by these globs.
fn ignored(repository: &Path, globs: &[String], names: &[String]) -> BTreeSet<String> {
    let rules = repository.join(".git/rules");
    std::fs::write(&rules, globs.join("\n")).unwrap();
    let excludes = format!("core.excludesFile={}", rules.display());
    let mut git = Command::new("git")
        .args(["-c", &excludes, "check-ignore", "--no-index", "--stdin", "-z"])
        .current_dir(repository)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    git.stdin.take().unwrap().write_all(names.join("\0").as_bytes()).unwrap();
    let answer = git.wait_with_output().unwrap();
    assert!(matches!(answer.status.code(), Some(0 | 1)), "{answer:?}");
    let answer = String::from_utf8(answer.stdout).unwrap();
    answer.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn rules_are_read_as_git_reads_them() {
    compare_with_git(TREES);
}

#[test]
#[ignore = "20 CPU-seconds: make test-all"]
fn thousands_of_rules_are_read_as_git_reads_them() {
    compare_with_git(TREES_MANY);
}

fn compare_with_git(trees: usize) {
    let repository = tempfile::tempdir().unwrap();
    let made = Command::new("git").args(["init", "--quiet"]).current_dir(&repository).status().unwrap();
    assert!(made.success());
    let mut runner = TestRunner::deterministic();
    for tree in 0..trees {
        let globs = prop::collection::vec(any_glob(), 1..4).new_tree(&mut runner).unwrap().current();
        let names = prop::collection::vec(any_name(), 40).new_tree(&mut runner).unwrap().current();
        let kinds = prop::collection::vec(any::<bool>(), globs.len()).new_tree(&mut runner).unwrap().current();
        let matched = ignored(repository.path(), &globs, &names);
        for is_include in [true, false] {
            let selector = selector(&globs, &vec![is_include; globs.len()]);
            for name in &names {
                assert_eq!(selector.takes_name(name) == is_include, matched.contains(name), "{globs:?} {name}");
            }
        }
        if tree % TREES_PER_MIXED == 0 {
            // Of rules of both kinds, the last one that matches wins. Git reads each of them alone.
            let each: Vec<_> =
                globs.iter().map(|glob| ignored(repository.path(), std::slice::from_ref(glob), &names)).collect();
            let selector = selector(&globs, &kinds);
            for name in &names {
                let last = (0..globs.len()).rev().find(|index| each[*index].contains(name));
                let wanted = last.map_or(!kinds[0], |index| kinds[index]);
                assert_eq!(selector.takes_name(name), wanted, "{globs:?} {kinds:?} {name}");
            }
        }
    }
}

/// A selector with a rule for each glob, which includes names where `kinds` is true.
fn selector(globs: &[String], kinds: &[bool]) -> Selector {
    let rule = |(glob, is_include): (&String, &bool)| match is_include {
        true => FilterRule::Include(glob.clone()),
        false => FilterRule::Exclude(glob.clone()),
    };
    let rules = globs.iter().zip(kinds).map(rule).collect();
    Selector::new(&ObjectFilter { rules, ..ObjectFilter::default() }).unwrap()
}
