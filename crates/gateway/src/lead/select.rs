//! Selects objects of a prefix by `--include`, `--exclude`, size and time. The rules are compiled once.

mod within;

use globset::{Candidate, Glob, GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};
use std::fmt;
use tradewind_contract::{FilterRule, ObjectFilter};
use tradewind_store::{Error, ErrorKind, Skips};
pub use within::{Within, is_level};

/// A compiled [`ObjectFilter`].
#[derive(Clone, Debug)]
pub struct Selector {
    rules: Vec<FilterRule>,
    globs: Vec<Glob>,
    /// For each glob, the folders below which it matches everything.
    coverages: Vec<Coverage>,
    /// All globs combined, which matches faster.
    set: GlobSet,
    within: Option<Within>,
    filter: ObjectFilter,
}

/// A rule that is not a valid glob.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is not a valid glob: {message}")]
pub struct BadRule {
    /// `rule 1`, or the wildcards of a place.
    pub what: String,
    /// The glob parser's message.
    pub message: String,
}

impl BadRule {
    /// One line of advice.
    pub fn hint(&self) -> &'static str {
        "put a backslash before a literal `[`, `{`, `*` or `?`"
    }
}

/// Why an object is selected or not, with the rule that decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// True if the object is selected.
    pub included: bool,
    /// The deciding rule or limit.
    pub because: Because,
}

/// The rule or limit that decided about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// The last rule that matches its name; `position` counts from 1.
    Rule {
        /// Position of the rule, from 1.
        position: usize,
        /// The rule.
        rule: FilterRule,
    },
    /// The wildcards of the source do not match its name.
    NotWithin,
    /// No rule matches and the first rule is not an include.
    NoRuleMatches,
    /// No rule matches and the first rule is an include.
    NotIncluded,
    /// Smaller than the minimum size.
    TooSmall,
    /// Larger than the maximum size.
    TooLarge,
    /// Not modified since `--newer`.
    TooOld,
    /// Modified since `--older`.
    TooNew,
}

impl Selector {
    /// Compiles the rules, which have the meaning of `.gitignore` patterns. `*` and `?` stay within a folder; `**`
    /// crosses folders, wherever it stands. A glob without `/` is matched against the last part of a name, in every
    /// folder. A glob with `/` is matched against the whole name; a leading `/` has no other effect. A glob that
    /// matches a folder also matches everything below it; a trailing `/` makes it match folders only. A backslash makes
    /// the next character literal. Unlike in `.gitignore`, a later rule can again match names below an excluded folder.
    ///
    /// # Errors
    /// The first rule that is not a valid glob.
    pub fn new(filter: &ObjectFilter) -> Result<Self, BadRule> {
        let mut globs = Vec::with_capacity(filter.rules.len());
        let mut set = GlobSetBuilder::new();
        for (index, rule) in filter.rules.iter().enumerate() {
            // Probably an unset shell variable: it must neither select everything nor exclude nothing.
            if glob_of(rule).trim().trim_matches('/').is_empty() {
                return Err(BadRule { what: format!("rule {}", index + 1), message: "it is empty".to_owned() });
            }
            let bad = |error: globset::Error| {
                // The error's own text would quote the glob in its expanded form.
                BadRule { what: format!("rule {}", index + 1), message: format!("{}: {}", glob_of(rule), error.kind()) }
            };
            let glob = build_glob(glob_of(rule)).map_err(bad)?;
            set.add(glob.clone());
            globs.push(glob);
        }
        let set = set.build().map_err(|error| BadRule { what: "a rule".to_owned(), message: error.to_string() })?;
        let within = filter.within.as_ref().map(Within::new).transpose()?;
        let coverages = globs.iter().map(|glob| Coverage::of(glob.glob())).collect();
        Ok(Self { rules: filter.rules.clone(), globs, coverages, set, within, filter: filter.clone() })
    }

    /// Returns whether an object with this relative name, size and modification time is selected.
    pub fn takes(&self, name: &str, size_bytes: u64, modified_unix_ms: i64) -> bool {
        self.takes_name(name) && self.refusal_by_measure(Some(size_bytes), Some(modified_unix_ms)).is_none()
    }

    /// Returns whether sizes or times count too. If so, an object that changes may no longer be selected.
    pub fn has_measures(&self) -> bool {
        ObjectFilter { rules: Vec::new(), within: None, ..self.filter.clone() } != ObjectFilter::default()
    }

    /// Returns whether the rules select this relative name, whatever its size and time.
    pub fn takes_name(&self, name: &str) -> bool {
        (self.rules.is_empty() && self.within.is_none()) || self.verdict_of_rules(name).0
    }

    /// The wildcards of the place, if it has any.
    pub fn within(&self) -> Option<&Within> {
        self.within.as_ref()
    }

    /// Returns whether the rules exclude an entry that cannot be listed, so that its failure does not matter. An empty
    /// name, or one that ends in `/`, is a folder. The names below it are unknown, so the answer is true only if the
    /// rules exclude every possible one. When in doubt, returns false.
    pub fn leaves_out(&self, name: &str) -> bool {
        if !name.is_empty() && !name.ends_with('/') {
            return !self.takes_name(name);
        }
        if self.within.as_ref().is_some_and(|within| !within.may_match_below(name)) {
            return true;
        }
        for ((rule, glob), coverage) in self.rules.iter().zip(&self.globs).zip(&self.coverages).rev() {
            // This does not determine which names match a glob with an empty segment, so such a glob decides nothing.
            let is_plain = !glob.glob().contains("//");
            match rule {
                FilterRule::Include(_) if !is_plain || may_match_below(glob.glob(), name) => return false,
                FilterRule::Exclude(_) if is_plain && coverage.covers(name) => return true,
                FilterRule::Include(_) | FilterRule::Exclude(_) => {}
            }
        }
        matches!(self.rules.first(), Some(FilterRule::Include(_)))
    }

    /// Returns the folders below `prefix` that need not be listed, because the rules exclude everything in them. `put`
    /// comes before the names that the rules see. With wildcards there are none: `ls` shows folders that match.
    pub fn skips(&self, prefix: &str, put: &str) -> Skips {
        if self.rules.is_empty() || self.within.is_some() {
            return Skips::default();
        }
        let (selector, prefix, put) = (self.clone(), prefix.to_owned(), put.to_owned());
        Skips::new(move |key| {
            let name = key.strip_prefix(&prefix).filter(|name| !name.is_empty());
            let name = name.map(|name| format!("{put}{name}"));
            // An empty folder is itself an object.
            name.is_some_and(|name| selector.leaves_out(&name) && !selector.takes_name(&name))
        })
    }

    /// Returns whether the rules exclude the entry `name` that a listing refused with `error`, as
    /// [`Selector::leaves_out`]. A broken link may have led to a file or to a folder, so the rules must exclude both.
    pub fn leaves_out_refused(&self, name: &str, error: &Error) -> bool {
        let may_be_folder = error.kind == ErrorKind::BrokenLink && !name.ends_with('/');
        self.leaves_out(name) && (!may_be_folder || self.leaves_out(&format!("{name}/")))
    }

    /// As [`Selector::takes`], with the reason. An unknown size or time excludes nothing.
    pub fn explain(&self, name: &str, size_bytes: Option<u64>, modified_unix_ms: Option<i64>) -> Explanation {
        let (included, because) = self.verdict_of_rules(name);
        if !included {
            return Explanation { included, because };
        }
        match self.refusal_by_measure(size_bytes, modified_unix_ms) {
            Some(because) => Explanation { included: false, because },
            None => Explanation { included, because },
        }
    }

    fn verdict_of_rules(&self, name: &str) -> (bool, Because) {
        if self.within.as_ref().is_some_and(|within| !within.takes(name)) {
            return (false, Because::NotWithin);
        }
        match self.last_match(name) {
            Some(index) => {
                let rule = self.rules[index].clone();
                (matches!(rule, FilterRule::Include(_)), Because::Rule { position: index + 1, rule })
            }
            None if matches!(self.rules.first(), Some(FilterRule::Include(_))) => (false, Because::NotIncluded),
            None => (true, Because::NoRuleMatches),
        }
    }

    /// Index of the last rule that matches the name or one of its parent folders.
    fn last_match(&self, name: &str) -> Option<usize> {
        name_and_folders(name).filter_map(|path| self.last_match_of(path)).max()
    }

    /// Index of the last rule that matches exactly this name. The set treats names as paths, where a last segment `..`
    /// is not a file name, so its shortcuts by file name miss a key like `a/..`. Such keys are rare and are matched
    /// against each glob.
    fn last_match_of(&self, name: &str) -> Option<usize> {
        if name.rsplit('/').next() == Some("..") {
            return self.globs.iter().rposition(|glob| glob.compile_matcher().is_match(name));
        }
        self.set.matches_candidate(&Candidate::new(name)).into_iter().max()
    }

    fn refusal_by_measure(&self, size_bytes: Option<u64>, modified_unix_ms: Option<i64>) -> Option<Because> {
        let filter = &self.filter;
        let below = |limit: Option<u64>| limit.zip(size_bytes).is_some_and(|(limit, size)| size < limit);
        let above = |limit: Option<u64>| limit.zip(size_bytes).is_some_and(|(limit, size)| size > limit);
        let before = |limit: Option<i64>| limit.zip(modified_unix_ms).is_some_and(|(limit, at)| at < limit);
        let since = |limit: Option<i64>| limit.zip(modified_unix_ms).is_some_and(|(limit, at)| at >= limit);
        if below(filter.size_min_bytes) {
            Some(Because::TooSmall)
        } else if above(filter.size_max_bytes) {
            Some(Because::TooLarge)
        } else if before(filter.newer_than_unix_ms) {
            Some(Because::TooOld)
        } else if since(filter.older_than_unix_ms) {
            Some(Because::TooNew)
        } else {
            None
        }
    }
}

/// A name and its parent folders, without their trailing `/`.
fn name_and_folders(name: &str) -> impl Iterator<Item = &str> {
    let folders = name.match_indices('/').filter(|(end, _)| *end > 0).map(|(end, _)| &name[..end]);
    std::iter::once(name).chain(folders)
}

fn glob_of(rule: &FilterRule) -> &str {
    match rule {
        FilterRule::Include(glob) | FilterRule::Exclude(glob) => glob,
    }
}

fn build_glob(glob: &str) -> Result<Glob, globset::Error> {
    build_whole(&whole_name_glob(glob))
}

fn build_whole(glob: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).build()
}

/// Returns false only if this glob for whole names matches no name that begins with `folder`, and no parent folder of
/// one.
fn may_match_below(glob: &str, folder: &str) -> bool {
    let literal = &glob[..glob.find(['*', '?', '[', '{', '\\']).unwrap_or(glob.len())];
    literal.starts_with(folder) || folder.starts_with(literal)
}

/// The folders below which a glob for whole names matches everything.
#[derive(Clone, Debug)]
struct Coverage {
    is_everything: bool,
    folders: Vec<GlobMatcher>,
}

impl Coverage {
    fn of(glob: &str) -> Self {
        let above = [Some(glob), glob.strip_suffix("/**")].into_iter().flatten();
        let folders = above.filter_map(|above| build_whole(above).ok()).map(|above| above.compile_matcher()).collect();
        Self { is_everything: ["**", "**/*", "**/**"].contains(&glob), folders }
    }

    /// Returns true only if the glob matches every name that begins with `folder`, or a parent folder of it.
    fn covers(&self, folder: &str) -> bool {
        self.is_everything
            || self.folders.iter().any(|above| folder.match_indices('/').any(|(end, _)| above.is_match(&folder[..end])))
    }
}

/// Rewrites a user's `glob` so that it can be matched against whole names; see [`Selector::new`].
fn whole_name_glob(glob: &str) -> String {
    let anchored = glob.strip_prefix('/');
    let body = anchored.unwrap_or(glob);
    let (body, is_folder) = match body.strip_suffix('/') {
        Some(folder) if !folder.is_empty() => (folder, true),
        _ => (body, false),
    };
    let anywhere = if anchored.is_none() && !body.contains('/') { "**/" } else { "" };
    // Two stars match any number of folders, also none; a trailing `/` requires one.
    let is_any_depth = body.rsplit('/').next().is_some_and(|last| last.len() > 1 && last.bytes().all(|c| c == b'*'));
    let below = match (is_folder, is_any_depth) {
        (false, _) => "",
        (true, false) => "/**",
        (true, true) => "/*/**",
    };
    format!("{anywhere}{}{below}", cross_folders(body))
}

/// Expands `**` within a part, as in `a**.log`. `globset` lets `**` cross folders only where it is a whole part of the
/// glob; elsewhere the expansion matches either as `*` does, or with folders in between.
fn cross_folders(glob: &str) -> String {
    let mut out = String::with_capacity(glob.len() + 8);
    let mut rest = glob;
    while let Some(c) = rest.chars().next() {
        let taken = match c {
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            // A bracket right after the opening one, or after its `!`, is a member of the class.
            '[' => match rest.char_indices().skip(2).find(|(at, c)| *c == ']' && !rest[1..*at].ends_with(['!', '^'])) {
                Some((end, _)) => end + 1,
                None => 1,
            },
            '*' => rest.len() - rest.trim_start_matches('*').len(),
            _ => c.len_utf8(),
        };
        let (piece, after) = rest.split_at(taken);
        let is_whole_part = (out.is_empty() || out.ends_with('/')) && (after.is_empty() || after.starts_with('/'));
        match piece {
            "*" => out.push('*'),
            _ if c == '*' && is_whole_part => out.push_str("**"),
            _ if c == '*' => out.push_str("{*,*/**/*}"),
            _ => out.push_str(piece),
        }
        rest = after;
    }
    out
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { position, rule: FilterRule::Include(glob) } => {
                write!(f, "rule {position}, --include '{glob}', is the last that matches")
            }
            Self::Rule { position, rule: FilterRule::Exclude(glob) } => {
                write!(f, "rule {position}, --exclude '{glob}', is the last that matches")
            }
            Self::NotWithin => f.write_str("the wildcards of the source do not match it"),
            Self::NoRuleMatches => f.write_str("no rule matches, so it is included by default"),
            Self::NotIncluded => {
                f.write_str("no rule matches, and the first rule is an --include, so all else is excluded")
            }
            Self::TooSmall => f.write_str("it is smaller than --min-size"),
            Self::TooLarge => f.write_str("it is larger than --max-size"),
            Self::TooOld => f.write_str("it was last modified before --newer"),
            Self::TooNew => f.write_str("it was last modified at or after --older"),
        }
    }
}

#[cfg(test)]
mod gitignore;

#[cfg(test)]
mod tests {
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
        let again = selector(vec![exclude("logs"), include("logs/keep")]);
        assert!(again.takes_name("logs/keep/a") && !again.takes_name("logs/a"));
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
    fn two_stars_cross_folders_wherever_they_stand() {
        let filter = selector(vec![include("a/b**d.txt")]);
        for name in ["a/bd.txt", "a/bcd.txt", "a/b/d.txt", "a/bx/y/zd.txt"] {
            assert!(filter.takes_name(name), "{name}");
        }
        assert!(!filter.takes_name("a/c/bd.txt") && !filter.takes_name("a/b/d.txts/e"));
        let classes = selector(vec![include("/x[*]**\\*"), include("/[]*]**z")]);
        assert!(classes.takes_name("x*/a/b*") && !classes.takes_name("xy/a/b*") && !classes.takes_name("x*/a/b"));
        assert!(classes.takes_name("]/a/z") && classes.takes_name("*z"));
    }

    #[test]
    fn the_last_match_wins() {
        let filter = selector(vec![exclude("logs/**"), include("logs/keep/**"), exclude("**/*.tmp")]);
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
        assert_eq!(explanation.because, Because::Rule { position: 2, rule: include("b*") });
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
            vec![exclude("/a/*"), include("/a/keep/**")],
            vec![exclude("/a/*")],
            vec![exclude("a"), include("a")],
            vec![exclude("a/**"), include("a/x")],
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
        // The cases are cheap, and the first bug found this way needed about 300.
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// The combined set of globs, with its shortcuts, decides as the single rules do.
        #[test]
        fn decides_as_the_rules_one_by_one(rules in prop::collection::vec(any_rule(), 0..6), name in any_name()) {
            let mut expected = !matches!(rules.first(), Some(FilterRule::Include(_)));
            for rule in &rules {
                let glob = build_glob(glob_of(rule)).unwrap().compile_matcher();
                if name_and_folders(&name).any(|path| glob.is_match(path)) {
                    expected = matches!(rule, FilterRule::Include(_));
                }
            }
            let filter = selector(rules);
            prop_assert_eq!(filter.takes_name(&name), expected);
            prop_assert_eq!(filter.explain(&name, None, None).included, expected);
        }
    }
}
