//! Selects objects of a prefix by `--include`, `--exclude`, size and time. The rules are compiled once.

mod glob;
mod reason;
mod wildmatch;
mod within;

use glob::Glob;
pub use reason::{Because, Explanation};
use tradewind_contract::{FilterRule, ObjectFilter};
use tradewind_store::{Error, ErrorKind, Skips};
pub use within::{Within, is_level};

/// Globs of a first `--exclude` that only sets what happens to names without a match.
const EVERYTHING: [&str; 4] = ["*", "**", "**/*", "/**"];

/// A compiled [`ObjectFilter`].
#[derive(Clone, Debug)]
pub struct Selector {
    rules: Vec<FilterRule>,
    globs: Vec<Glob>,
    unmatched: Unmatched,
    within: Option<Within>,
    filter: ObjectFilter,
}

/// The fate of a name that no rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unmatched {
    Included,
    /// The first rule is an include.
    NotIncluded,
    /// The first rule excludes everything. It decides only where no other rule does.
    Excluded,
}

/// A rule that matches a name, or a folder of it.
#[derive(Clone, Copy, Debug)]
struct Match<'a> {
    index: usize,
    /// The folder, without its trailing `/`.
    folder: Option<&'a str>,
}

impl Unmatched {
    fn of(filter: &ObjectFilter) -> Self {
        match filter.rules.first().filter(|_| !filter.includes_unmatched) {
            Some(FilterRule::Include(_)) => Self::NotIncluded,
            Some(FilterRule::Exclude(glob)) if EVERYTHING.contains(&glob.as_str()) => Self::Excluded,
            Some(FilterRule::Exclude(_)) | None => Self::Included,
        }
    }
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
        "put a backslash before a literal `[`, `*`, `?` or backslash"
    }
}

impl Selector {
    /// Compiles the rules, which have the meaning of `.gitignore` patterns; an include is a pattern with `!`. `*` and `?`
    /// stay within a folder; `**` crosses folders where it is a whole part. A glob without `/` is matched against the
    /// last part of a name, in every folder. A glob with `/` is matched against the whole name; a leading `/` has no
    /// other effect. A trailing `/` makes a glob match folders only. A backslash makes the next character literal.
    ///
    /// The last rule that matches decides, first for each folder of a name from the top, then for the name. An excluded
    /// folder excludes everything below it, and no rule can include that again. An included folder includes what is
    /// below it where no rule matches that.
    ///
    /// A name without any match is included, unless the first rule is an include or excludes everything (`*`); with
    /// `includes_unmatched` it is always included, as in git.
    ///
    /// # Errors
    /// The first rule that is not a valid glob. Git reads such a rule too, but nothing ever matches it.
    pub fn new(filter: &ObjectFilter) -> Result<Self, BadRule> {
        let mut globs = Vec::with_capacity(filter.rules.len());
        for (index, rule) in filter.rules.iter().enumerate() {
            let glob = glob_of(rule);
            let bad = |message: String| BadRule { what: format!("rule {}", index + 1), message };
            // Probably an unset shell variable: it must neither select everything nor exclude nothing.
            if glob.trim().trim_matches('/').is_empty() {
                return Err(bad("it is empty".to_owned()));
            }
            globs.push(Glob::new(glob).map_err(|why| bad(format!("{glob}: {why}")))?);
        }
        let within = filter.within.as_ref().map(Within::new).transpose()?;
        let unmatched = Unmatched::of(filter);
        Ok(Self { rules: filter.rules.clone(), globs, unmatched, within, filter: filter.clone() })
    }

    /// Returns whether an object with this relative name, size and modification time is selected.
    pub fn takes(&self, name: &str, size_bytes: u64, modified_unix_ms: i64) -> bool {
        self.takes_name(name) && self.refusal_by_measure(Some(size_bytes), Some(modified_unix_ms)).is_none()
    }

    /// Returns whether sizes or times count too. If so, an object that changes may no longer be selected.
    pub fn has_measures(&self) -> bool {
        let unnamed =
            ObjectFilter { rules: Vec::new(), includes_unmatched: false, within: None, ..self.filter.clone() };
        unnamed != ObjectFilter::default()
    }

    /// Returns whether the rules select this relative name, whatever its size and time.
    pub fn takes_name(&self, name: &str) -> bool {
        if self.within.as_ref().is_some_and(|within| !within.takes(name)) {
            return false;
        }
        match self.last_match(name) {
            Some(last) => !self.excludes(last.index),
            None => self.unmatched == Unmatched::Included,
        }
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
        let above = self.last_match_of_folders(name);
        if above.is_some_and(|above| self.excludes(above.index)) {
            return true;
        }
        for (index, glob) in self.deciding_globs().rev() {
            match self.excludes(index) {
                false if glob.may_match_below(name) => return false,
                true if glob.takes_all_entries(name) => return true,
                _ => {}
            }
        }
        above.is_none() && self.unmatched != Unmatched::Included
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
        let because = |index: usize, folder: Option<&str>| Because::Rule {
            position: index + 1,
            rule: self.rules[index].clone(),
            folder: folder.map(str::to_owned),
        };
        match (self.last_match(name), self.unmatched) {
            (Some(Match { index, folder }), _) => (!self.excludes(index), because(index, folder)),
            (None, Unmatched::Included) => (true, Because::NoRuleMatches),
            (None, Unmatched::NotIncluded) => (false, Because::NotIncluded),
            (None, Unmatched::Excluded) => (false, because(0, None)),
        }
    }

    /// The rule that decides about a name, as git reads rules.
    fn last_match<'a>(&self, name: &'a str) -> Option<Match<'a>> {
        let above = self.last_match_of_folders(name);
        if above.is_some_and(|above| self.excludes(above.index)) {
            return above;
        }
        self.last_match_of(name, false).map(|index| Match { index, folder: None }).or(above)
    }

    /// The rule that decides about the folders of a name. An excluded folder ends the search.
    fn last_match_of_folders<'a>(&self, name: &'a str) -> Option<Match<'a>> {
        let mut last = None;
        for folder in folders_of(name) {
            let Some(index) = self.last_match_of(folder, true) else { continue };
            last = Some(Match { index, folder: Some(folder) });
            if self.excludes(index) {
                break;
            }
        }
        last
    }

    /// Index of the last rule that matches exactly this entry.
    fn last_match_of(&self, name: &str, is_folder: bool) -> Option<usize> {
        self.deciding_globs().rev().find(|(_, glob)| glob.is_match(name, is_folder)).map(|(index, _)| index)
    }

    /// The globs with their indexes, without a first one that only sets what happens to names without a match.
    fn deciding_globs(&self) -> impl DoubleEndedIterator<Item = (usize, &Glob)> {
        let without = usize::from(self.unmatched == Unmatched::Excluded);
        self.globs.iter().enumerate().skip(without)
    }

    fn excludes(&self, index: usize) -> bool {
        matches!(self.rules[index], FilterRule::Exclude(_))
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

/// The folders above a name, from the top, without their trailing `/`.
fn folders_of(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('/').filter(|(end, _)| *end > 0).map(|(end, _)| &name[..end])
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
