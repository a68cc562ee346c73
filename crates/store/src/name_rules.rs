//! The rules by which servers that keep objects as files treat several names as one, and how to find out which of them a
//! server follows.

use crate::place::{entry_of, is_absent};
use crate::spelling::{other_ascii_case, unicode_forms};
use crate::{ErrorKind, ListRequest, Result, Store};
use serde::{Deserialize, Serialize};

/// Returns whether a key has an empty segment, `.` or `..`. A `/` at its end is none of these.
fn has_odd_segments(key: &str) -> bool {
    key.strip_suffix('/').unwrap_or(key).split('/').any(|segment| matches!(segment, "" | "." | ".."))
}

/// How a server that keeps objects as files may change a key before it stores the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameChanges {
    /// By [`NameRule::Segments`].
    pub segments: bool,
    /// By [`NameRule::Backslash`].
    pub backslash: bool,
}

impl NameChanges {
    /// Returns the changes that a key may suffer.
    pub fn of(key: &str) -> Self {
        Self { segments: has_odd_segments(key), backslash: key.contains('\\') }
    }

    /// Returns whether there are any.
    pub fn any(self) -> bool {
        self != Self::default()
    }

    /// Returns whether a rule is one of them. Rules about letters change no key that is stored.
    pub fn has(self, rule: NameRule) -> bool {
        match rule {
            NameRule::Segments => self.segments,
            NameRule::Backslash => self.backslash,
            NameRule::AsciiCase | NameRule::OtherCase | NameRule::UnicodeForm => false,
        }
    }
}

/// A rule by which servers treat names as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// `a` and `A` are the same letter.
    AsciiCase,
    /// Other letters that differ only in case are the same, such as `é` and `É`.
    OtherCase,
    /// The normalization forms of Unicode are the same.
    UnicodeForm,
    /// A backslash is a slash.
    Backslash,
    /// Empty segments and `.` are ignored, and `..` is resolved.
    Segments,
}

impl NameRule {
    /// Every rule.
    pub const ALL: [Self; 5] = [Self::AsciiCase, Self::OtherCase, Self::UnicodeForm, Self::Backslash, Self::Segments];

    /// Returns whether a server that has `key` shows with it whether it follows this rule.
    pub fn applies_to(self, key: &str) -> bool {
        !self.spellings(key).is_empty()
    }

    /// Other spellings of a key that are one name with it by this rule. In a key with ASCII letters only these change,
    /// because some servers ignore the case of no others.
    fn spellings(self, key: &str) -> Vec<String> {
        let mut spellings = match self {
            Self::AsciiCase => vec![other_ascii_case(key)],
            Self::OtherCase if key.contains(|letter: char| letter.is_ascii_alphabetic()) => Vec::new(),
            Self::OtherCase => vec![key.chars().map(other_case).collect()],
            Self::UnicodeForm => unicode_forms(key).into(),
            Self::Backslash => {
                let (name, end) = key.split_at(key.trim_end_matches('/').len());
                vec![name.replace('/', "\\") + end, name.replace('\\', "/") + end]
            }
            Self::Segments => {
                let (folder, name) = key.split_at(key.trim_end_matches('/').rfind('/').map_or(0, |slash| slash + 1));
                let in_the_middle = ["//", "././", ".../../"].map(|odd| format!("{folder}{odd}{name}"));
                [in_the_middle.as_slice(), &[format!("/{key}")]].concat()
            }
        };
        spellings.retain(|spelling| spelling != key);
        spellings
    }
}

fn other_case(letter: char) -> String {
    if letter.is_lowercase() { letter.to_uppercase().collect() } else { letter.to_lowercase().collect() }
}

/// Returns whether the object that a `head` finds as `key` really has another name. That is so if the listing lacks
/// `key`, or if the object is also found under a spelling by one of the `rules` that the listing lacks. Costs up to two
/// requests per spelling, and two listings of directories if the spelling has another directory.
///
/// # Errors
/// The store's error for a `head` or a listing, unless it forbids the listing.
pub async fn goes_by_another_name(store: &dyn Store, key: &str, rules: &[NameRule]) -> Result<bool> {
    if !is_listed(store, key).await?.unwrap_or(true) {
        return Ok(true);
    }
    for other in rules.iter().flat_map(|rule| rule.spellings(key)) {
        let is_there = match store.head(&other).await {
            Ok(_) => true,
            // A store that forbids listing answers 403 for a missing key, and some answer 400 to a name that they do
            // not allow.
            Err(error) if matches!(error.kind, ErrorKind::Forbidden | ErrorKind::BadRequest) => false,
            Err(error) if is_absent(error.kind) => false,
            Err(error) => return Err(error),
        };
        if is_there
            && !(is_listed(store, &other).await?.unwrap_or(false) && has_both_directories(store, key, &other).await?)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a listing of directories contains those by which two keys begin to differ; true if they differ
/// only in their last segment. `rclone serve s3` finds a directory by each Unicode form of its name, and lists its
/// objects under the form that is asked for.
///
/// # Errors
/// The store's error for a listing.
async fn has_both_directories(store: &dyn Store, one: &str, other: &str) -> Result<bool> {
    let (ones, others) = (one.split_inclusive('/'), other.split_inclusive('/'));
    let shared: String =
        ones.clone().zip(others.clone()).map_while(|(one, other)| (one == other).then_some(one)).collect();
    let directory_of = |key: &str| key[shared.len()..].find('/').map(|slash| key[..=shared.len() + slash].to_owned());
    let (Some(one), Some(other)) = (directory_of(one), directory_of(other)) else { return Ok(true) };
    let mut left = vec![one, other];
    let mut request = ListRequest { prefix: shared, delimited: true, ..ListRequest::default() };
    loop {
        let page = store.list(&request).await?;
        left.retain(|directory| !page.prefixes.contains(directory));
        request.continuation = page.continuation;
        if left.is_empty() || request.continuation.is_none() {
            return Ok(left.is_empty());
        }
    }
}

/// Returns whether a listing contains exactly this key; `None` if listing is forbidden. A server that rejects the name
/// has no object of this name.
async fn is_listed(store: &dyn Store, key: &str) -> Result<Option<bool>> {
    match entry_of(store, key).await {
        Ok(entry) => Ok(entry.map(|entry| entry.is_some())),
        Err(error) if matches!(error.kind, ErrorKind::BadRequest | ErrorKind::InvalidKey) => Ok(Some(false)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::as_path;

    #[test]
    fn each_other_spelling_is_another_key_of_the_same_form() {
        for key in ["k", "/k", "dir/Name", "dir//name", "dir/", "caf\u{e9}", "cafe\u{301}", "a/./b", "a\\b/c/", "123"] {
            let spellings: Vec<String> = NameRule::ALL.iter().flat_map(|rule| rule.spellings(key)).collect();
            assert!(spellings.len() >= 3, "{key}");
            for other in spellings {
                assert_ne!(other, key);
                assert_eq!(as_path(&other), as_path(key), "{other}");
            }
            assert!(NameRule::Segments.spellings(key).iter().all(|other| has_odd_segments(other)), "{key}");
        }
    }

    #[test]
    fn a_name_shows_only_the_rules_that_change_it() {
        use NameRule::*;
        for (key, rules) in [
            ("2024", &[Segments][..]),
            ("2024/01", &[Backslash, Segments]),
            ("2024\\01/", &[Backslash, Segments]),
            ("\u{ff11}", &[Segments]),
            ("Name", &[AsciiCase, Segments]),
            ("\u{418}\u{43c}\u{44f}", &[OtherCase, Segments]),
            ("caf\u{e9}", &[AsciiCase, UnicodeForm, Segments]),
            ("\u{304b}\u{3099}", &[UnicodeForm, Segments]),
        ] {
            assert_eq!(
                NameRule::ALL.into_iter().filter(|rule| rule.applies_to(key)).collect::<Vec<_>>(),
                rules,
                "{key}"
            );
        }
        assert_eq!(AsciiCase.spellings("caf\u{e9}"), ["CAF\u{e9}"]);
        assert_eq!(Backslash.spellings("a/b\\c/"), ["a\\b\\c/", "a/b/c/"]);
    }

    #[test]
    fn a_slash_at_the_end_is_no_odd_segment() {
        for (key, is_odd) in [
            ("a", false),
            ("a/b", false),
            ("a/", false),
            ("..a/.b/c.", false),
            ("/a", true),
            ("a//b", true),
            ("a//", true),
            ("a/./b", true),
            ("a/..", true),
            ("./", true),
            ("/", true),
        ] {
            assert_eq!(has_odd_segments(key), is_odd, "{key}");
        }
    }

    #[test]
    fn segments_and_backslashes_may_be_changed() {
        for (key, rules) in [
            ("a/b", &[][..]),
            ("a//b", &[NameRule::Segments]),
            ("a\\b", &[NameRule::Backslash]),
            ("/a\\b", &[NameRule::Backslash, NameRule::Segments]),
        ] {
            let changes = NameChanges::of(key);
            let found: Vec<_> = NameRule::ALL.into_iter().filter(|rule| changes.has(*rule)).collect();
            assert_eq!(found, rules, "{key}");
            assert_eq!(changes.any(), !rules.is_empty(), "{key}");
        }
    }
}
