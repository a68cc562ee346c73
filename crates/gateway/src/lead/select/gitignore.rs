//! Compares the rules with git's interpretation of them, on real trees of files.

use super::*;
use crate::directory_tree::DirectoryTree;
use crate::lead::pages::{Listing, NameRange, NameSpan};
use crate::retry::RetryPolicy;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use tradewind_contract::Limits;

/// Number of trees, each with its own rules and its own `git` process.
const TREES: usize = 300;
/// Number of trees of the slow test.
const TREES_MANY: usize = 5_000;

/// Pieces of a part of a glob. Two of three times, a part is one that matches often.
const PIECES: [&str; 32] = [
    "*",
    "**",
    "***",
    "?",
    "a",
    "b",
    "9",
    "A",
    ".",
    "é",
    " ",
    "!",
    "#",
    "-",
    "{a,b}",
    "{",
    ",",
    "}",
    "[ab]",
    "[!a]",
    "[^b]",
    "[a-c]",
    "[]a]",
    "[a-",
    "[",
    "[[:digit:]]",
    "[![:lower:]]",
    "[[:nothing:]]",
    "\\",
    "\\a",
    "\\*",
    "\\ ",
];
const PARTS: [&str; 16] =
    ["*", "**", "a", "b", "ab", "a*", "*b", "?", "a**", "**b", "a**b", "[ab]", "9", ".a", "a ", "\\a"];
const NAMES: [&str; 18] =
    ["a", "b", "ab", "ba", "c", ".a", "9", "A", "é", " a", "a ", "!a", "#a", "{a,b}", "a,b", "[a", "a\\", "a-b"];

fn any_glob() -> impl Strategy<Value = String> {
    let odd = prop::collection::vec(prop::sample::select(PIECES.to_vec()), 1..4).prop_map(|pieces| pieces.concat());
    let part = prop_oneof![2 => prop::sample::select(PARTS.to_vec()).prop_map(str::to_owned), 1 => odd];
    let parts = prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"));
    (prop::bool::weighted(0.3), parts, prop::bool::weighted(0.3)).prop_map(|(is_anchored, parts, is_folder)| {
        format!("{}{parts}{}", if is_anchored { "/" } else { "" }, if is_folder { "/" } else { "" })
    })
}

/// Rules that are not empty, of both kinds.
fn any_rules() -> impl Strategy<Value = Vec<FilterRule>> {
    let glob = any_glob().prop_filter("an empty rule", |glob| !glob.trim().trim_matches('/').is_empty());
    let rule = (glob, any::<bool>()).prop_map(|(glob, is_include)| match is_include {
        true => FilterRule::Include(glob),
        false => FilterRule::Exclude(glob),
    });
    prop::collection::vec(rule, 1..6)
}

/// Files of a tree: none has the name of another's folder.
fn any_files() -> impl Strategy<Value = BTreeSet<String>> {
    let name = prop::collection::vec(prop::sample::select(NAMES.to_vec()), 1..5).prop_map(|parts| parts.join("/"));
    prop::collection::btree_set(name, 1..40).prop_map(|names| {
        let folders: BTreeSet<_> = names.iter().flat_map(|name| folders_of(name)).map(str::to_owned).collect();
        names.into_iter().filter(|name| !folders.contains(name)).collect()
    })
}

/// The line of a `.gitignore` file for a rule.
fn line(rule: &FilterRule) -> String {
    let mut line = if matches!(rule, FilterRule::Include(_)) { "!".to_owned() } else { String::new() };
    let mut is_quoted = line.is_empty() && glob_of(rule).starts_with(['!', '#']);
    line.extend(is_quoted.then_some('\\'));
    for c in glob_of(rule).chars() {
        // Spaces at the end of a line count only with a backslash.
        line.extend((c == ' ' && !is_quoted).then_some('\\'));
        line.push(c);
        is_quoted = c == '\\' && !is_quoted;
    }
    line
}

/// A repository whose files are those of a tree.
struct Git {
    tree: DirectoryTree,
    folder: tempfile::TempDir,
}

impl Git {
    fn with(files: &BTreeSet<String>) -> Self {
        let git = Self { tree: DirectoryTree::new(), folder: tempfile::tempdir().unwrap() };
        files.iter().for_each(|name| git.tree.write(name, b""));
        // What `git init` makes, and git asks for.
        std::fs::write(git.folder.path().join("HEAD"), "ref: refs/heads/main\n").unwrap();
        ["objects", "refs"].iter().for_each(|name| std::fs::create_dir(git.folder.path().join(name)).unwrap());
        git
    }

    /// The index of the rule by which git decides about each name. For a name below an excluded folder, it is the
    /// folder's rule.
    fn last_matches(&self, rules: &[FilterRule], names: &BTreeSet<String>) -> BTreeMap<String, usize> {
        let file = self.folder.path().join("rules");
        std::fs::write(&file, rules.iter().map(line).collect::<Vec<_>>().join("\n")).unwrap();
        let excludes = format!("core.excludesFile={}", file.display());
        let mut git = Command::new("git")
            .args(["-c", &excludes, "check-ignore", "--no-index", "--stdin", "-z", "--verbose"])
            .current_dir(self.tree.path(""))
            .env("GIT_DIR", self.folder.path())
            .env("GIT_WORK_TREE", self.tree.path(""))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let asked: Vec<&str> = names.iter().map(String::as_str).collect();
        git.stdin.take().unwrap().write_all(asked.join("\0").as_bytes()).unwrap();
        let answer = git.wait_with_output().unwrap();
        assert!(matches!(answer.status.code(), Some(0 | 1)), "{answer:?}");
        let answer = String::from_utf8(answer.stdout).unwrap();
        let fields: Vec<&str> = answer.split_terminator('\0').collect();
        let of = |found: &[&str]| (found[3].to_owned(), found[1].parse::<usize>().unwrap() - 1);
        fields.chunks(4).map(of).collect()
    }
}

#[test]
fn rules_are_read_as_git_reads_them() {
    compare_with_git(TREES);
}

#[test]
#[ignore = "60 CPU-seconds: make test-all"]
fn thousands_of_rules_are_read_as_git_reads_them() {
    compare_with_git(TREES_MANY);
}

fn compare_with_git(trees: usize) {
    let mut runner = TestRunner::deterministic();
    let (mut excluded, mut refused) = (0, 0);
    for _ in 0..trees {
        let files = any_files().new_tree(&mut runner).unwrap().current();
        let rules = any_rules().new_tree(&mut runner).unwrap().current();
        let git = Git::with(&files);
        let folders: BTreeSet<String> = files.iter().flat_map(|name| folders_of(name)).map(str::to_owned).collect();
        // A rule that is refused is one that git never matches.
        let valid: Vec<_> = rules.iter().filter(|rule| Glob::new(glob_of(rule)).is_ok()).cloned().collect();
        refused += rules.len() - valid.len();
        let matches = git.last_matches(&rules, &files.union(&folders).cloned().collect());
        let is_excluded = |name: &str| matches.get(name).map(|index| matches!(rules[*index], FilterRule::Exclude(_)));
        let as_git = selector(valid.clone(), true);
        for name in &files {
            assert_eq!(as_git.takes_name(name), is_excluded(name) != Some(true), "{rules:?} {name}");
            excluded += usize::from(!as_git.takes_name(name));
        }
        for folder in folders.iter().filter(|folder| is_excluded(folder) == Some(true)) {
            assert!(as_git.leaves_out(&format!("{folder}/")), "{rules:?} {folder}");
        }
        let all_but = |name: &str| match is_excluded(name) {
            Some(excluded) => !excluded,
            None => folders_of(name).any(|folder| is_excluded(folder) == Some(false)),
        };
        let mut after_all = vec![FilterRule::Exclude("*".to_owned())];
        after_all.extend(valid.clone());
        let mut included_first = vec![FilterRule::Include("/no such name".to_owned())];
        included_first.extend(valid);
        for rules in [after_all, included_first] {
            let selector = selector(rules.clone(), false);
            files.iter().for_each(|name| assert_eq!(selector.takes_name(name), all_but(name), "{rules:?} {name}"));
            assert_listed(&git.tree, &selector, &files);
        }
        assert_listed(&git.tree, &as_git, &files);
    }
    assert!(excluded > 2 * trees && refused > trees / 20, "the rules match too little: {excluded}, {refused}");
}

fn selector(rules: Vec<FilterRule>, includes_unmatched: bool) -> Selector {
    Selector::new(&ObjectFilter { rules, includes_unmatched, ..ObjectFilter::default() }).unwrap()
}

/// A listing that leaves out what the rules exclude has all that they select.
fn assert_listed(tree: &DirectoryTree, selector: &Selector, files: &BTreeSet<String>) {
    let policy = RetryPolicy::from(&Limits::default());
    let (store, skips) = (tree.store.clone(), selector.skips("", ""));
    let listing = Listing::new(store, String::new(), policy, NameSpan::default(), skips);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listed: BTreeSet<String> = runtime.block_on(async {
        let (mut pages, mut listed) = (listing.pages(&NameRange::default()), BTreeSet::new());
        while let Some(page) = pages.next().await {
            listed.extend(page.unwrap().objects.into_iter().map(|object| object.key));
        }
        listed
    });
    let taken = |name: &&String| selector.takes_name(name);
    assert_eq!(listed.iter().filter(taken).collect::<Vec<_>>(), files.iter().filter(taken).collect::<Vec<_>>());
    let left_out = |name: &String| folders_of(name).any(|folder| selector.leaves_out(&format!("{folder}/")));
    assert_eq!(listed.iter().find(|name| left_out(name)), None);
}
