//! The wildcards of a place that a user typed, such as `2024-*/x` in `s3://b/2024-*/x`.
//!
//! A glob is matched part by part, so that nothing but `**` crosses a `/`. All parts that may come next are followed at
//! once: the time is (parts of the glob) × (parts of the name), whatever the glob.

use super::{BadRule, Selector};
use crate::lead::pages::{NameRange, NameSpan};
use globset::{Glob, GlobBuilder, GlobMatcher};
use std::borrow::Cow;
use tradewind_contract::NameGlob;

/// Most parts of a glob that have a `**` beside other characters, such as `a**.csv`. Each doubles the work.
const INNER_STARS_MAX: u32 = 4;

/// A compiled [`NameGlob`].
#[derive(Clone, Debug)]
pub struct Within {
    /// The glob, in which `a**.csv` has become two: `a*.csv` and `a*/**/*.csv`.
    globs: Vec<Vec<Part>>,
    below: bool,
    folders_only: bool,
    span: NameSpan,
}

/// One part of a glob, between two `/`.
#[derive(Clone, Debug)]
enum Part {
    /// `**`: any number of folders, or at the end everything below.
    AnyDepth,
    /// One part of a name.
    Name(GlobMatcher),
}

/// How far a name has come.
struct Reached {
    /// The whole name matches.
    all: bool,
    /// A folder of the name matches, and the name is below it.
    folder: bool,
    /// Names below this one may match.
    may_go_on: bool,
}

impl Within {
    /// Compiles the glob.
    ///
    /// # Errors
    /// It is not a valid glob.
    pub(super) fn new(typed: &NameGlob) -> Result<Self, BadRule> {
        let bad = |message: String| BadRule { what: format!("the pattern {}", typed.glob), message };
        let (glob, folders_only) = match typed.glob.strip_suffix('/') {
            Some(folder) => (folder, true),
            None => (typed.glob.as_str(), false),
        };
        if glob.is_empty() {
            return Err(bad("it is empty".to_owned()));
        }
        let globs = alternatives(glob).ok_or_else(|| bad("it has too many **".to_owned()))?;
        let globs = globs
            .iter()
            .map(|glob| glob.split('/').map(Part::new).collect::<Result<Vec<_>, _>>())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| bad(error.kind().to_string()))?;
        let span = NameSpan { range: range_of(glob), is_level: is_level(typed) };
        Ok(Self { globs, below: typed.below, folders_only, span })
    }

    /// Returns whether an object of this relative name is selected.
    pub fn takes(&self, name: &str) -> bool {
        let reached = self.reach(name);
        (reached.all && !self.folders_only) || (self.below && reached.folder)
    }

    /// Returns whether the glob matches this folder, whose name ends in `/`.
    pub fn takes_folder(&self, folder: &str) -> bool {
        self.reach(folder.strip_suffix('/').unwrap_or(folder)).all
    }

    /// Returns false only if no name that begins with `folder` is selected. `folder` is empty or ends in `/`.
    pub fn may_match_below(&self, folder: &str) -> bool {
        let Some(folder) = folder.strip_suffix('/') else { return true };
        let reached = self.reach(folder);
        reached.may_go_on || (self.below && (reached.all || reached.folder))
    }

    /// Returns whether the glob has a `/` or a `**`, so that names below several folders can match.
    pub fn crosses_folders(&self) -> bool {
        self.globs.iter().any(|parts| parts.len() > 1 || matches!(parts[..], [Part::AnyDepth]))
    }

    fn reach(&self, name: &str) -> Reached {
        let mut whole = Reached { all: false, folder: false, may_go_on: false };
        for parts in &self.globs {
            let reached = reach(parts, name);
            whole.all |= reached.all;
            whole.folder |= reached.folder;
            whole.may_go_on |= reached.may_go_on;
        }
        whole
    }
}

/// Returns whether no name with a `/` is selected.
pub fn is_level(typed: &NameGlob) -> bool {
    !typed.below && !typed.glob.contains('/') && !typed.glob.contains("**")
}

impl Selector {
    /// The URL of what was to be selected below `folder`, and the number of objects that rules excluded: with wildcards
    /// alone, none was excluded.
    pub fn missing<'a>(&self, folder: &'a str, excluded: u64) -> (Cow<'a, str>, u64) {
        match &self.filter.within {
            Some(within) if self.rules.is_empty() && !self.has_measures() => {
                (Cow::Owned(format!("{folder}{}", within.glob)), 0)
            }
            Some(within) => (Cow::Owned(format!("{folder}{}", within.glob)), excluded),
            None => (Cow::Borrowed(folder), excluded),
        }
    }

    /// The part of a listing that can hold names that are selected.
    pub fn span(&self) -> NameSpan {
        self.within.as_ref().map_or_else(NameSpan::default, |within| within.span.clone())
    }
}

impl Part {
    fn new(text: &str) -> Result<Self, globset::Error> {
        match text {
            "**" => Ok(Self::AnyDepth),
            _ => Ok(Self::Name(build_whole(&escaped(text))?.compile_matcher())),
        }
    }
}

fn build_whole(glob: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).build()
}

/// Follows `name` through the parts. `open[i]` says that part `i` may come next; the last entry is the end of the glob.
fn reach(parts: &[Part], name: &str) -> Reached {
    let end = parts.len();
    let mut open = vec![false; end + 1];
    open[0] = true;
    skip_any_depth(parts, &mut open);
    let mut folder = false;
    for text in name.split('/') {
        // What was matched before this part of the name is a folder above it.
        folder |= open[end];
        let mut next = vec![false; end + 1];
        for (index, part) in parts.iter().enumerate().filter(|(index, _)| open[*index]) {
            match part {
                Part::AnyDepth => {
                    next[index] = true;
                    next[end] |= index + 1 == end;
                }
                Part::Name(glob) => next[index + 1] |= glob.is_match(text),
            }
        }
        skip_any_depth(parts, &mut next);
        open = next;
    }
    Reached { all: open[end], folder, may_go_on: open[..end].contains(&true) }
}

/// A `**` that is not at the end matches no folder, too.
fn skip_any_depth(parts: &[Part], open: &mut [bool]) {
    for (index, part) in parts.iter().enumerate() {
        if open[index] && matches!(part, Part::AnyDepth) && index + 1 < parts.len() {
            open[index + 1] = true;
        }
    }
}

/// The globs without a `**` beside other characters that together match the same names; `None` if they are too many.
fn alternatives(glob: &str) -> Option<Vec<String>> {
    let mut whole = vec![String::new()];
    let mut inner_stars = 0;
    for (index, part) in glob.split('/').enumerate() {
        let slash = if index == 0 { "" } else { "/" };
        let within_name = collapsed(part);
        let forms = match part.contains("**") && part != "**" {
            true => vec![within_name.replacen('\0', "*", 1), within_name.replacen('\0', "*/**/*", 1)],
            false => vec![part.to_owned()],
        };
        inner_stars += u32::from(forms.len() > 1);
        if inner_stars > INNER_STARS_MAX {
            return None;
        }
        whole = whole.iter().flat_map(|start| forms.iter().map(move |form| format!("{start}{slash}{form}"))).collect();
    }
    Some(whole)
}

/// A part with its first `**` as NUL, which no name holds, and each further one as `*`.
fn collapsed(part: &str) -> String {
    let Some(at) = part.find("**") else { return part.to_owned() };
    let mut rest = part[at..].trim_start_matches('*').to_owned();
    while rest.contains("**") {
        rest = rest.replace("**", "*");
    }
    format!("{}\0{rest}", &part[..at])
}

/// One part for `globset`, to which braces and backslashes, and a `[` without its `]`, are not literal by themselves.
fn escaped(part: &str) -> String {
    let mut out = String::with_capacity(part.len() + 4);
    let mut rest = part;
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '[' => match class_end(rest) {
                Some(end) => {
                    out.push_str(&rest[..end]);
                    taken = end;
                }
                None => out.push_str("\\["),
            },
            '{' | '}' | '\\' | ']' => out.extend(['\\', c]),
            _ => out.push(c),
        }
        rest = &rest[taken..];
    }
    out
}

/// Length of the class that `text` begins with. A `]` right after the opening bracket, or its `!`, is a member.
fn class_end(text: &str) -> Option<usize> {
    let members = if text[1..].starts_with(['!', '^']) { 2 } else { 1 };
    let first = text[members..].chars().next()?.len_utf8();
    text[members + first..].find(']').map(|at| members + first + at + 1)
}

/// A range that holds all names that begin as the glob does before its first wildcard.
///
/// The lower end of a range is not in it, and no name comes right before another. So it is the beginning without its last
/// character: a few more names are listed than match.
fn range_of(glob: &str) -> NameRange {
    let literal = &glob[..glob.find(['*', '?', '[']).unwrap_or(glob.len())];
    let Some((at, last)) = literal.char_indices().next_back() else { return NameRange::default() };
    let after = (at > 0).then(|| literal[..at].to_owned());
    let next =
        (u32::from(last) + 1..).map_while(|code| (code <= 0x10_FFFF).then(|| char::from_u32(code))).flatten().next();
    NameRange { after, until: next.map(|next| format!("{}{next}", &literal[..at])) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn within(glob: &str, below: bool) -> Within {
        Within::new(&NameGlob { glob: glob.to_owned(), below }).unwrap()
    }

    #[test]
    fn a_star_stays_within_a_folder_and_two_cross() {
        for (glob, takes, leaves) in [
            ("*.csv", &["a.csv", ".csv"][..], &["d/a.csv", "a.csvs", "a.csv/x"][..]),
            ("2024-*/x", &["2024-1/x", "2024-/x"], &["2024-1/y", "2024-1/2/x", "2023-1/x", "2024-1/x/"]),
            ("**/x", &["x", "a/x", "a/b/x"], &["ax", "x/a"]),
            ("a/**", &["a/b", "a/b/c"], &["a", "ab/c"]),
            ("a/**/z", &["a/z", "a/b/z", "a/b/c/z"], &["a", "az", "b/a/z"]),
            ("a**.csv", &["a.csv", "ab.csv", "a/b.csv", "ab/c/d.csv"], &["b.csv", "b/a.csv", "a/b.txt"]),
            ("?[0-9]", &["a1"], &["a", "a12", "a/1", "aa"]),
            ("[!x]", &["y"], &["x", "/", "yy"]),
            ("[*]", &["*"], &["a"]),
            ("a//*", &["a//b"], &["a/b", "a/b/c"]),
        ] {
            let glob_within = within(glob, false);
            takes.iter().for_each(|name| assert!(glob_within.takes(name), "{glob} takes {name}"));
            leaves.iter().for_each(|name| assert!(!glob_within.takes(name), "{glob} leaves {name}"));
        }
    }

    #[test]
    fn braces_backslashes_and_lone_brackets_are_literal() {
        for (glob, name) in [("{a,b}*", "{a,b}1"), ("a\\*", "a\\b"), ("a[*", "a[b"), ("}*{", "}x{"), ("a]*", "a]b")] {
            assert!(within(glob, false).takes(name), "{glob} takes {name}");
        }
        assert!(!within("{a,b}*", false).takes("a1"));
    }

    #[test]
    fn what_is_below_a_match_is_selected_only_if_asked_for() {
        let (deep, flat) = (within("d*", true), within("d*", false));
        assert!(deep.takes("d1") && deep.takes("d1/x/y") && !deep.takes("e/d1"));
        assert!(flat.takes("d1") && !flat.takes("d1/x"));
        let folders = within("d*/", true);
        assert!(folders.takes("d1/x") && !folders.takes("d1") && folders.takes_folder("d1/"));
    }

    #[test]
    fn a_folder_that_cannot_match_is_left_out() {
        assert!(!within("*.csv", false).may_match_below("d/"));
        assert!(within("a*/x", false).may_match_below("ab/") && !within("a*/x", false).may_match_below("b/"));
        assert!(within("**/x", false).may_match_below("b/c/") && within("a*", true).may_match_below("ab/c/"));
    }

    #[test]
    fn too_many_inner_stars_are_refused() {
        assert!(Within::new(&NameGlob { glob: "a**b/c**d/e**f/g**h/i**j".into(), below: false }).is_err());
    }

    proptest! {
        #[test]
        fn the_range_holds_all_that_matches(glob in "[ab/*?é]{1,5}", name in "[abcé/]{0,6}", below: bool) {
            let Ok(within) = Within::new(&NameGlob { glob, below }) else { return Ok(()) };
            if within.takes(&name) {
                let NameSpan { range, is_level } = &within.span;
                prop_assert!(range.after.as_ref().is_none_or(|after| *after < name));
                prop_assert!(range.until.as_ref().is_none_or(|until| *until >= name));
                prop_assert!(!is_level || !name.contains('/'));
                for (end, _) in name.match_indices('/') {
                    prop_assert!(within.may_match_below(&name[..=end]));
                }
            }
        }

        #[test]
        fn any_text_is_a_glob_that_ends(glob in ".{1,12}", name in ".{0,12}") {
            if let Ok(within) = Within::new(&NameGlob { glob, below: true }) {
                within.takes(&name);
            }
        }
    }
}
