//! Reasons to delete nothing at the destinations although `--delete` is set.

use super::DeletionBacklog;
use crate::failure::counted;
use crate::lead::survey::SurveyEnd;
use tradewind_contract::Deletion;

/// Why nothing is deleted although `--delete` is set, and how to proceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The text after "nothing is deleted: ".
    pub why: String,
    /// One line of advice.
    pub hint: &'static str,
    /// The options that allow the deletion, if any do: a dry run then lists what would be deleted.
    pub allowed_by: Option<&'static str>,
}

impl Refusal {
    fn new(why: impl Into<String>, hint: &'static str) -> Self {
        Self { why: why.into(), hint, allowed_by: None }
    }

    fn until_agreed(why: String, hint: &'static str, allowed_by: &'static str) -> Self {
        Self { allowed_by: Some(allowed_by), ..Self::new(why, hint) }
    }
}

/// Advice for an empty source.
pub const EMPTY_SOURCE_HINT: &str =
    "--delete never empties a destination: check the name of the source, or delete with `tradewind rm -r`";
const CONSENT: &str = "pass -y or a higher --max-delete to allow it";
const CONSENT_HINT: &str = "list them with --dry-run; pass -y or a higher --max-delete to allow it";
const HIGHER_LIMIT: &str = "pass a higher --max-delete to allow it";
const MAX_DELETE_HINT: &str = "list them with --dry-run; pass a higher --max-delete to allow it";
const ALL_COPIED_HINT: &str =
    "fix the failures and sync again: --delete needs every object to be listed and copied first";

/// Returns why nothing is deleted at the destinations although `--delete` is set, or `None` if deleting is safe.
/// `failed` counts the object copies that failed, over all destinations; `url` names a destination by its index.
pub fn refusal(rules: &Deletion, end: &SurveyEnd, failed: u64, url: impl Fn(usize) -> String) -> Option<Refusal> {
    let keys = end.extraneous.as_ref().map_or(0, DeletionBacklog::keys);
    if keys == 0 {
        return None;
    }
    if !end.listed_to_the_end {
        return Some(Refusal::new("the source was not listed completely", ALL_COPIED_HINT));
    }
    if end.source_objects == 0 {
        return Some(Refusal::new("the source is empty", EMPTY_SOURCE_HINT));
    }
    if failed > 0 {
        return Some(Refusal::new(
            format!("{} could not be copied", counted(failed, "object", "objects")),
            ALL_COPIED_HINT,
        ));
    }
    match rules.keys_max {
        Some(keys_max) if keys > keys_max => {
            let why =
                format!("{} would be deleted, but --max-delete allows {keys_max}", counted(keys, "object", "objects"));
            Some(Refusal::until_agreed(why, MAX_DELETE_HINT, HIGHER_LIMIT))
        }
        _ => over_half(rules, end, url),
    }
}

/// Refuses to delete more than half of a destination's objects: more often a wrong source than an intention.
fn over_half(rules: &Deletion, end: &SurveyEnd, url: impl Fn(usize) -> String) -> Option<Refusal> {
    let backlog = end.extraneous.as_ref().filter(|_| !rules.over_half && !rules.ask)?;
    end.target_objects.iter().enumerate().find_map(|(index, held)| {
        let keys = backlog.objects_at(index);
        (keys > held / 2).then(|| {
            let why = format!(
                "{keys} of the {} in {} would be deleted, more than half",
                counted(*held, "object", "objects"),
                url(index)
            );
            Refusal::until_agreed(why, CONSENT_HINT, CONSENT)
        })
    })
}
