//! Why objects failed: about them, or about a whole store? The latter stops the job early and is reported in one line.
//!
//! A missing bucket is about the store at the first word of it. That we are not known, or may not do a thing, is
//! believed of the whole store after so many objects in a row that nothing of it was done for any other meanwhile.

use crate::node::work::Side;
use std::collections::BTreeMap;
use tradewind_contract::Outcome;

/// Objects in a row that a store forbids until it counts as closed. A folder may be forbidden where others are not.
const FORBIDDEN_IN_A_ROW_MAX: u64 = 200;
/// Objects in a row for which a store does not know us until it counts as closed. Some servers fail to check the
/// signature of a key with unusual characters, so one is not enough.
const UNAUTHENTICATED_IN_A_ROW_MAX: u64 = 8;

/// Requests in a row that fail for a passing cause, over as long as a job may stall, until a store counts as closed.
const UNAVAILABLE_IN_A_ROW_MAX: u64 = 8;

/// Where a failure came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// The source store.
    Source,
    /// The destination with this index.
    Target(u16),
    /// A destination of files, each of which has rights of its own: never closed.
    TargetFiles,
    /// No store, or it is not known which.
    Elsewhere,
}

impl Place {
    pub(super) fn of(side: Option<Side>, target: Option<u16>) -> Self {
        match (side, target) {
            (Some(Side::Source), _) => Self::Source,
            (Some(Side::Target), Some(target)) => Self::Target(target),
            _ => Self::Elsewhere,
        }
    }
}

/// One failed object, as far as it matters here.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    pub(super) place: Place,
    /// As in [`tradewind_contract::FailedObject::kind`].
    pub(super) kind: String,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

/// Failures of one kind at one place.
#[derive(Debug)]
struct Group {
    count: u64,
    first: Cause,
}

#[derive(Debug, Default)]
struct Row {
    kind: String,
    length: u64,
}

/// All failures of a job.
#[derive(Debug, Default)]
pub(super) struct Causes {
    groups: BTreeMap<(Place, String), Group>,
    rows: BTreeMap<Place, Row>,
    closed: BTreeMap<Place, Cause>,
    /// When the first request failed for a passing cause since anything was last done there (ms), and how many did.
    unavailable: BTreeMap<Place, (u64, u64)>,
}

impl Causes {
    /// An object was done at `target`: neither that store nor the source is closed.
    pub(super) fn done(&mut self, target: u16) {
        for place in [Place::Source, Place::Target(target)] {
            self.rows.remove(&place);
            self.unavailable.remove(&place);
        }
    }

    /// A request failed there for a passing cause. Returns whether so many have done nothing else for as long as the job may
    /// stall.
    pub(super) fn unavailable(&mut self, place: Place, now_ms: u64, stall_ms: u64) -> bool {
        let (since_ms, times) = self.unavailable.entry(place).or_insert((now_ms, 0));
        *times += 1;
        *times >= UNAVAILABLE_IN_A_ROW_MAX && now_ms.saturating_sub(*since_ms) >= stall_ms
    }

    /// Closes a place.
    pub(super) fn close(&mut self, cause: Cause) {
        self.closed.insert(cause.place, cause);
    }

    /// Counts a failure. Returns whether its place counts as closed from now on.
    pub(super) fn failed(&mut self, cause: Cause) -> bool {
        let key = (cause.place, cause.kind.clone());
        self.groups.entry(key).or_insert_with(|| Group { count: 0, first: cause.clone() }).count += 1;
        let in_a_row_max = match cause.kind.as_str() {
            _ if matches!(cause.place, Place::TargetFiles | Place::Elsewhere) => return false,
            "bucket_not_found" => 1,
            "unauthenticated" => UNAUTHENTICATED_IN_A_ROW_MAX,
            "forbidden" => FORBIDDEN_IN_A_ROW_MAX,
            _ => return false,
        };
        let row = self.rows.entry(cause.place).or_default();
        if row.kind != cause.kind {
            *row = Row { kind: cause.kind.clone(), length: 0 };
        }
        row.length += 1;
        if row.length < in_a_row_max || self.closed.contains_key(&cause.place) {
            return false;
        }
        self.closed.insert(cause.place, cause);
        true
    }

    /// What closed this place; `None` while it is open.
    pub(super) fn closed(&self, place: Place) -> Option<&Cause> {
        self.closed.get(&place)
    }

    /// How a job ends whose failures are these. `any_done`: some objects are where they should be. A mismatch is always
    /// said; else, if nothing was done, the meaning that all failures share.
    pub(super) fn outcome(&self, any_done: bool) -> Outcome {
        let all = |kinds: &[&str]| self.groups.keys().all(|(_, kind)| kinds.contains(&kind.as_str()));
        if self.groups.is_empty() {
            Outcome::Done
        } else if self.groups.keys().any(|(_, kind)| kind == "mismatch") {
            Outcome::Mismatch
        } else if all(&["unavailable"]) {
            Outcome::Unavailable
        } else if any_done {
            Outcome::SomeFailed
        } else if all(&["forbidden", "unauthenticated"]) {
            Outcome::Unauthorised
        } else if all(&["not_found", "bucket_not_found"])
            && !self.groups.keys().any(|(place, _)| matches!(place, Place::Target(_) | Place::TargetFiles))
        {
            Outcome::SourceNotFound
        } else {
            Outcome::Failed
        }
    }

    /// One line, and advice, for the one cause behind all failures; `None` where there are several, or where each object
    /// has its own. `untouched` is the URL of a store for which nothing at all was done. `alone`: the job had one object.
    /// `stopped`: not all was tried.
    pub(super) fn words(
        &self,
        untouched: impl Fn(Place) -> Option<String>,
        alone: bool,
        stopped: bool,
    ) -> Option<(String, Option<String>)> {
        let mut groups = self.groups.iter();
        let (Some(((place, kind), group)), None) = (groups.next(), groups.next()) else { return None };
        let Group { count, first } = group;
        if alone {
            return Some((first.message.clone(), first.hint.clone()));
        }
        let url = untouched(*place)?;
        let doing = if *place == Place::Source { "read" } else { "write" };
        let what = match kind.as_str() {
            _ if matches!(place, Place::TargetFiles | Place::Elsewhere) => return None,
            "forbidden" | "unauthenticated" => format!("not authorised to {doing} {}", url),
            "bucket_not_found" => format!("{} does not exist", url),
            "unavailable" => format!("{} answers nothing but errors", url),
            _ => return None,
        };
        let rest = if stopped { "; the rest was not tried" } else { "" };
        let objects = if *count == 1 { "object" } else { "objects" };
        Some((format!("{} {objects}: {what}: {}{rest}", grouped(*count), first.message), first.hint.clone()))
    }
}

/// `5,000`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(place: Place, kind: &str) -> Cause {
        Cause { place, kind: kind.to_owned(), message: format!("{kind} here"), hint: None }
    }

    fn failed(causes: &mut Causes, place: Place, kind: &str, times: u64) -> Vec<bool> {
        (0..times).map(|_| causes.failed(cause(place, kind))).collect()
    }

    const TARGET: Place = Place::Target(0);

    #[test]
    fn a_missing_bucket_closes_its_place_at_once_and_no_other() {
        let mut causes = Causes::default();
        assert_eq!(failed(&mut causes, Place::Target(1), "bucket_not_found", 2), [true, false]);
        assert!(causes.closed(Place::Target(1)).is_some() && causes.closed(TARGET).is_none());
        assert_eq!(causes.outcome(true), Outcome::SomeFailed);
        assert_eq!(causes.outcome(false), Outcome::Failed);
    }

    #[test]
    fn what_is_forbidden_closes_a_store_only_in_a_row() {
        let mut causes = Causes::default();
        assert!(!failed(&mut causes, TARGET, "forbidden", FORBIDDEN_IN_A_ROW_MAX - 1).contains(&true));
        causes.done(0);
        let closed = failed(&mut causes, TARGET, "forbidden", FORBIDDEN_IN_A_ROW_MAX);
        assert_eq!(closed.iter().position(|closed| *closed), Some(closed.len() - 1));
        let mut others = Causes::default();
        assert!(!failed(&mut others, TARGET, "invalid_key", 10 * FORBIDDEN_IN_A_ROW_MAX).contains(&true));
    }

    #[test]
    fn a_job_of_one_kind_of_failure_ends_with_its_code_if_nothing_was_done() {
        for (place, kind, alone, beside) in [
            (TARGET, "forbidden", Outcome::Unauthorised, Outcome::SomeFailed),
            (Place::Source, "unauthenticated", Outcome::Unauthorised, Outcome::SomeFailed),
            (Place::Source, "not_found", Outcome::SourceNotFound, Outcome::SomeFailed),
            (TARGET, "bucket_not_found", Outcome::Failed, Outcome::SomeFailed),
            (Place::TargetFiles, "not_found", Outcome::Failed, Outcome::SomeFailed),
            (TARGET, "no_space", Outcome::Failed, Outcome::SomeFailed),
            (TARGET, "mismatch", Outcome::Mismatch, Outcome::Mismatch),
            (Place::Elsewhere, "unavailable", Outcome::Unavailable, Outcome::Unavailable),
        ] {
            let mut causes = Causes::default();
            failed(&mut causes, place, kind, 3);
            assert_eq!((causes.outcome(false), causes.outcome(true)), (alone, beside), "{kind}");
        }
        assert_eq!(Causes::default().outcome(false), Outcome::Done);
    }

    #[test]
    fn one_cause_has_one_line_with_its_count() {
        let words = |kind: &str, times: u64, stopped: bool| {
            let mut causes = Causes::default();
            failed(&mut causes, TARGET, kind, times);
            causes.words(|_| Some("s3://b".to_owned()), false, stopped).map(|(message, _)| message)
        };
        assert_eq!(
            words("forbidden", 5_000, false).unwrap(),
            "5,000 objects: not authorised to write s3://b: forbidden here"
        );
        assert_eq!(
            words("bucket_not_found", 1, true).unwrap(),
            "1 object: s3://b does not exist: bucket_not_found here; the rest was not tried"
        );
        assert_eq!(words("invalid_key", 2, false), None);
        assert_eq!(Causes::default().words(|_| Some(String::new()), true, false), None);
    }

    #[test]
    fn an_object_that_is_alone_has_its_own_words_and_a_store_that_took_others_has_none() {
        let mut causes = Causes::default();
        causes.failed(Cause { hint: Some("look".to_owned()), ..cause(TARGET, "changed") });
        let alone = causes.words(|_| None, true, false);
        assert_eq!(alone, Some(("changed here".to_owned(), Some("look".to_owned()))));
        let mut causes = Causes::default();
        failed(&mut causes, TARGET, "forbidden", 5);
        assert_eq!(causes.words(|_| None, false, false), None);
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!([1, 999, 1_000, 1_234_567].map(grouped), ["1", "999", "1,000", "1,234,567"]);
    }
}
