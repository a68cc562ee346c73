//! Tests of the rules.

use super::*;
use proptest::prelude::*;

fn include(glob: &str) -> FilterRule {
    FilterRule::Include(glob.to_owned())
}

fn exclude(glob: &str) -> FilterRule {
    FilterRule::Exclude(glob.to_owned())
}

fn selector(rules: Vec<FilterRule>) -> Selector {
    Selector::new(&ObjectFilter { rules, ..ObjectFilter::default() }).unwrap()
}

#[test]
fn without_rules_all_is_taken() {
    assert!(selector(vec![]).takes("any/thing", 0, 0));
}

#[test]
fn a_star_stays_within_a_folder() {
    let one_down = selector(vec![include("d/*.txt")]);
    assert!(one_down.takes_name("d/a.txt"));
    assert!(!one_down.takes_name("d/e/a.txt") && !one_down.takes_name("x/d/a.txt"));
    let all = selector(vec![include("**/*.txt")]);
    assert!(all.takes_name("a.txt") && all.takes_name("d/e/a.txt") && all.takes_name("d//a.txt"));
}

#[test]
fn a_glob_without_a_slash_means_a_name_in_any_folder() {
    for glob in ["*.log", "**.log", "**/*.log"] {
        let logs = selector(vec![include(glob)]);
        assert!(logs.takes_name("a.log") && logs.takes_name("d/a.log") && logs.takes_name("d/e/.log"), "{glob}");
        assert!(!logs.takes_name("a.logs") && !logs.takes_name("a.log.d/b"), "{glob}");
    }
    assert!(!selector(vec![exclude("*")]).takes_name("d/e/f"));
    let top = selector(vec![include("/*.log")]);
    assert!(top.takes_name("a.log") && !top.takes_name("d/a.log"));
}

#[test]
fn a_glob_that_matches_a_folder_means_all_below_it() {
    for glob in [".git", "node_modules", "/tmp", "x/y", ".*", "tmp*", "**/y"] {
        let (kept, included) = (selector(vec![exclude(glob)]), selector(vec![include(glob)]));
        for name in [".git/a", "d/node_modules/p/q", "tmp/a", "x/y/z", "tmp/"] {
            let is_below = match glob {
                ".git" => name == ".git/a",
                ".*" => name == ".git/a",
                "node_modules" => name == "d/node_modules/p/q",
                "/tmp" | "tmp*" => name.starts_with("tmp/"),
                _ => name == "x/y/z",
            };
            assert_eq!((kept.takes_name(name), included.takes_name(name)), (!is_below, is_below), "{glob} {name}");
        }
    }
    let top = selector(vec![include("/*"), exclude("*/")]);
    assert!(top.takes_name("a") && !top.takes_name("d/a"));
}

#[test]
fn a_glob_that_ends_in_a_slash_means_all_below_such_a_folder() {
    let filter = selector(vec![exclude("tmp/")]);
    assert!(!filter.takes_name("tmp/a") && !filter.takes_name("d/tmp/e/f"));
    assert!(filter.takes_name("tmp") && filter.takes_name("d/tmps/a"));
    let top = selector(vec![exclude("/tmp/"), exclude("a/b/")]);
    assert!(!top.takes_name("tmp/a") && top.takes_name("d/tmp/a"));
    assert!(!top.takes_name("a/b/c") && top.takes_name("d/a/b/c"));
    for glob in ["**/", "/**/", "*/"] {
        let folders = selector(vec![include(glob)]);
        assert!(folders.takes_name("a/b") && !folders.takes_name("top"), "{glob}");
    }
    let below = selector(vec![include("a/**/")]);
    assert!(below.takes_name("a/b/c") && below.takes_name("a/b/c/d") && !below.takes_name("a/b"));
}

#[test]
fn two_stars_cross_folders_only_between_slashes() {
    let whole = selector(vec![include("a/**/d.txt")]);
    assert!(whole.takes_name("a/d.txt") && whole.takes_name("a/b/d.txt") && whole.takes_name("a/b/c/d.txt"));
    let within = selector(vec![include("a/b**d.txt")]);
    assert!(within.takes_name("a/bd.txt") && within.takes_name("a/bcd.txt"));
    for name in ["a/b/d.txt", "a/bx/y/zd.txt", "a/c/bd.txt", "a/b/d.txts/e"] {
        assert!(!within.takes_name(name), "{name}");
    }
}

#[test]
fn braces_are_literal_and_backslashes_quote() {
    let filter = selector(vec![include("{a,b}"), include("\\*"), include("/x[*]\\?"), include("[[:digit:]]")]);
    for name in ["{a,b}", "*", "x*?", "7", "{a,b}/below"] {
        assert!(filter.takes_name(name), "{name}");
    }
    for name in ["a", "b", "xy?", "x*a", "77"] {
        assert!(!filter.takes_name(name), "{name}");
    }
}

#[test]
fn nothing_below_an_excluded_folder_is_included_again() {
    let tmp = selector(vec![exclude("tmp"), include("tmp/keep"), include("*.log")]);
    assert!(!tmp.takes_name("tmp/keep") && !tmp.takes_name("tmp/a.log") && tmp.takes_name("a.log"));
    let because = tmp.explain("tmp/keep", None, None).because;
    assert_eq!(because.to_string(), "rule 1, --exclude 'tmp', excludes its directory tmp");
    let entries = selector(vec![exclude("tmp/*"), include("tmp/keep")]);
    assert!(entries.takes_name("tmp/keep/a") && !entries.takes_name("tmp/a"));
}

#[test]
fn a_first_rule_that_excludes_everything_is_undone_in_every_folder() {
    for glob in EVERYTHING {
        let logs = selector(vec![exclude(glob), include("*.log"), include("d/")]);
        assert!(logs.takes_name("a.log") && logs.takes_name("b/a.log") && logs.takes_name("d/e/f"), "{glob}");
        assert!(!logs.takes_name("a") && !logs.takes_name("b/a"), "{glob}");
        assert!(!selector(vec![exclude(glob)]).takes_name("a/b"), "{glob}");
        assert!(!selector(vec![include("a"), exclude(glob)]).takes_name("a"), "{glob}");
    }
    let rules = vec![exclude("*"), include("*.log")];
    let as_git = ObjectFilter { rules, includes_unmatched: true, ..ObjectFilter::default() };
    let as_git = Selector::new(&as_git).unwrap();
    assert!(as_git.takes_name("a.log") && !as_git.takes_name("b/a.log") && as_git.leaves_out("b/"));
}

#[test]
fn the_last_match_wins() {
    let filter = selector(vec![exclude("logs/*"), include("logs/keep"), exclude("**/*.tmp")]);
    assert!(!filter.takes_name("logs/a"));
    assert!(filter.takes_name("logs/keep/a"));
    assert!(!filter.takes_name("logs/keep/a.tmp"));
    assert!(filter.takes_name("other"));
}

#[test]
fn a_first_include_leaves_the_rest() {
    let filter = selector(vec![include("a/**"), exclude("a/b")]);
    assert!(filter.takes_name("a/c"));
    assert!(!filter.takes_name("a/b"));
    assert_eq!(filter.explain("z", None, None), Explanation { included: false, because: Because::NotIncluded });
}

#[test]
fn the_deciding_rule_is_named() {
    let filter = selector(vec![exclude("**"), include("b*")]);
    let explanation = filter.explain("boat", None, None);
    assert_eq!(explanation.because, Because::Rule { position: 2, rule: include("b*"), folder: None });
    assert_eq!(explanation.because.to_string(), "rule 2, --include 'b*', is the last that matches");
}

#[test]
fn a_folder_is_left_out_only_if_all_below_it_is() {
    let leaves = |rules: &[FilterRule], folder: &str| selector(rules.to_vec()).leaves_out(folder);
    assert!(!leaves(&[], "a/") && !leaves(&[], ""));
    for rules in [
        vec![include("*.log")],
        vec![include("a/b/*.log")],
        vec![include("?/x")],
        vec![include("a")],
        vec![exclude("/a/*"), include("/a/keep")],
        vec![exclude("a"), include("a")],
        vec![exclude("/a/**"), include("/a/x")],
        vec![exclude("a/b/")],
        vec![exclude("b/")],
        vec![exclude("*.tmp")],
    ] {
        assert!(!leaves(&rules, "a/"), "{rules:?}");
        assert!(!leaves(&rules, ""), "{rules:?}");
    }
    for rules in [
        vec![exclude("a/")],
        vec![exclude("a")],
        vec![exclude("/a")],
        vec![exclude("/a/**")],
        vec![exclude("/a/*")],
        vec![exclude("a"), include("a/x"), include("*.log")],
        vec![exclude("*")],
        vec![exclude("**")],
        vec![include("b/**")],
        vec![include("/ab*")],
        vec![include("*.log"), exclude("a/")],
        vec![exclude("a/"), include("/b/x")],
    ] {
        assert!(leaves(&rules, "a/") && leaves(&rules, "a/deep/er/"), "{rules:?}");
    }
    assert!(leaves(&[exclude("tmp/")], "a/tmp/b/") && !leaves(&[exclude("/tmp/")], "a/tmp/"));
    assert!(!leaves(&[exclude("**//")], "a/"));
    assert!(leaves(&[include("*.log")], "file") && !leaves(&[include("*.log")], "a.log"));
}

proptest! {
    #[test]
    fn a_folder_that_is_left_out_holds_nothing_that_is_taken(
        rules in prop::collection::vec(("[ab*/]{1,5}", any::<bool>()), 0..4),
        folder in "([ab]{1,2}/){1,2}",
        below in "[ab/]{1,4}",
    ) {
        let rules = rules.into_iter().map(|(glob, included)| if included { include(&glob) } else { exclude(&glob) });
        let filter = ObjectFilter { rules: rules.collect(), ..ObjectFilter::default() };
        if let Ok(selector) = Selector::new(&filter) && selector.leaves_out(&folder) {
            let name = folder + &below;
            prop_assert!(!selector.takes_name(&name));
        }
    }
}

#[test]
fn keys_that_end_in_two_dots_are_names_like_others() {
    let filter = selector(vec![exclude("**/..")]);
    assert!(!filter.takes_name("..") && !filter.takes_name("a/.."));
    assert!(filter.takes_name("a/...") && !filter.takes_name("../a"));
}

#[test]
fn measures_refuse_at_their_edges() {
    let filter = ObjectFilter {
        size_min_bytes: Some(10),
        size_max_bytes: Some(20),
        newer_than_unix_ms: Some(100),
        older_than_unix_ms: Some(200),
        ..ObjectFilter::default()
    };
    let filter = Selector::new(&filter).unwrap();
    assert!(filter.takes("a", 10, 100) && filter.takes("a", 20, 199));
    for (size, at, because) in [
        (9, 150, Because::TooSmall),
        (21, 150, Because::TooLarge),
        (15, 99, Because::TooOld),
        (15, 200, Because::TooNew),
    ] {
        assert!(!filter.takes("a", size, at));
        assert_eq!(filter.explain("a", Some(size), Some(at)), Explanation { included: false, because });
    }
    assert!(filter.explain("a", None, None).included);
}

#[test]
fn a_bad_glob_is_named_by_position() {
    let rules = vec![include("ok"), exclude("a[")];
    let error = Selector::new(&ObjectFilter { rules, ..ObjectFilter::default() }).unwrap_err();
    assert_eq!(error.what, "rule 2");
}

#[test]
fn an_empty_rule_is_refused() {
    for glob in ["", " ", "/", "\t//"] {
        let rules = vec![include("a"), exclude(glob)];
        let error = Selector::new(&ObjectFilter { rules, ..ObjectFilter::default() }).unwrap_err();
        assert_eq!((error.what.as_str(), error.message.as_str()), ("rule 2", "it is empty"), "{glob:?}");
    }
}

fn any_rule() -> impl Strategy<Value = FilterRule> {
    let piece = prop::sample::select(vec!["*", "**", "a", "b.txt", "*.txt", "?", "{a,b}", "[ab]", "é", "..", ".a"]);
    (prop::collection::vec(piece, 1..4), any::<bool>()).prop_map(|(pieces, is_include)| {
        let glob = pieces.join("/");
        if is_include { FilterRule::Include(glob) } else { FilterRule::Exclude(glob) }
    })
}

fn any_name() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec!["a", "b", "b.txt", "c.txt", "é", "..", ".", "", ".a", "a b", ".txt"]);
    prop::collection::vec(piece, 1..5).prop_map(|pieces| pieces.join("/"))
}

proptest! {
    #[test]
    fn the_reason_is_that_of_the_verdict(rules in prop::collection::vec(any_rule(), 0..6), name in any_name()) {
        let filter = selector(rules);
        prop_assert_eq!(filter.explain(&name, None, None).included, filter.takes_name(&name));
    }
}
