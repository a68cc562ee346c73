//! Selects objects of a prefix by `--include`, `--exclude`, size and time. The rules are compiled once.

mod glob;
mod reason;
mod within;

use glob::{Coverage, build_glob, may_match_below};
use globset::{Candidate, Glob, GlobSet, GlobSetBuilder};
pub use reason::{Because, Explanation};
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

#[cfg(test)]
mod gitignore;
#[cfg(test)]
mod tests;
