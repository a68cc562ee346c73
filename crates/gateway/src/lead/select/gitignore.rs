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
    let repository = tempfile::tempdir().unwrap();
    let made = Command::new("git").args(["init", "--quiet"]).current_dir(&repository).status().unwrap();
    assert!(made.success());
    let mut runner = TestRunner::deterministic();
    for _ in 0..TREES {
        let globs = prop::collection::vec(any_glob(), 1..4).new_tree(&mut runner).unwrap().current();
        let names = prop::collection::vec(any_name(), 40).new_tree(&mut runner).unwrap().current();
        let ignored = ignored(repository.path(), &globs, &names);
        for rule in [FilterRule::Include as fn(String) -> FilterRule, FilterRule::Exclude] {
            let rules: Vec<FilterRule> = globs.iter().cloned().map(rule).collect();
            let is_include = matches!(rules[0], FilterRule::Include(_));
            let selector = Selector::new(&ObjectFilter { rules, ..ObjectFilter::default() }).unwrap();
            for name in &names {
                assert_eq!(selector.takes_name(name) == is_include, ignored.contains(name), "{globs:?} {name}");
            }
        }
    }
}
