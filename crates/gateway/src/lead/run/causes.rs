//! Decides whether failures concern single objects or a whole store. The latter stops the job early and is reported in
//! one line.
//!
//! A missing bucket concerns the whole store from the first failure. Rejected credentials, a denied permission, and
//! objects that only a customer's key decrypts do so only after a number of failed objects in a row, with none done in
//! between.

use crate::node::work::Side;
use std::collections::BTreeMap;
use tradewind_contract::Outcome;

/// Number of objects in a row that a store must forbid before it is closed. One folder may be forbidden while others
/// are not.
const FORBIDDEN_IN_A_ROW_MAX: u64 = 200;
/// Number of objects in a row for which a store must reject the credentials before it is closed. Some servers fail to
/// verify the signature of a key with unusual characters, so one is not enough.
const UNAUTHENTICATED_IN_A_ROW_MAX: u64 = 8;

/// Number of objects in a row that need a customer's key before their source is closed. A bucket may have such objects
/// beside others.
const CUSTOMER_KEY_IN_A_ROW_MAX: u64 = 200;

/// Number of requests in a row that must fail for a transient cause, over as long as a job may stall, before a store is
/// closed.
const UNAVAILABLE_IN_A_ROW_MAX: u64 = 8;

/// Where a failure came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FailureSite {
    /// The source store.
    Source,
    /// The destination with this index.
    Target(u16),
    /// A destination of files. Files have individual permissions, so it is never closed.
    TargetFiles,
    /// No store, or an unknown one.
    Elsewhere,
}

impl FailureSite {
    pub(super) fn of(side: Option<Side>, target: Option<u16>) -> Self {
        match (side, target) {
            (Some(Side::Source), _) => Self::Source,
            (Some(Side::Target), Some(target)) => Self::Target(target),
            _ => Self::Elsewhere,
        }
    }
}

/// One failed object, reduced to what matters here.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    pub(super) site: FailureSite,
    /// As in [`tradewind_contract::FailedObject::kind`].
    pub(super) kind: String,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

/// Failures of one kind at one site.
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
    groups: BTreeMap<(FailureSite, String), Group>,
    rows: BTreeMap<FailureSite, Row>,
    closed: BTreeMap<FailureSite, Cause>,
    /// When the first request failed for a transient cause since the last success there (ms), and how many have failed.
    unavailable: BTreeMap<FailureSite, (u64, u64)>,
}

impl Causes {
    /// Records that an object is done at `target`: neither that store nor the source is closed.
    pub(super) fn done(&mut self, target: u16) {
        for site in [FailureSite::Source, FailureSite::Target(target)] {
            self.rows.remove(&site);
            self.unavailable.remove(&site);
        }
    }

    /// Records a request that failed for a transient cause. Returns whether nothing but such failures has come from
    /// there for as long as the job may stall.
    pub(super) fn unavailable(&mut self, site: FailureSite, now_ms: u64, stall_ms: u64) -> bool {
        let (since_ms, times) = self.unavailable.entry(site).or_insert((now_ms, 0));
        *times += 1;
        *times >= UNAVAILABLE_IN_A_ROW_MAX && now_ms.saturating_sub(*since_ms) >= stall_ms
    }

    /// Closes a site.
    pub(super) fn close(&mut self, cause: Cause) {
        self.closed.insert(cause.site, cause);
    }

    /// Counts a failure. Returns whether it closes its site.
    pub(super) fn failed(&mut self, cause: Cause) -> bool {
        let key = (cause.site, cause.kind.clone());
        self.groups.entry(key).or_insert_with(|| Group { count: 0, first: cause.clone() }).count += 1;
        let in_a_row_max = match cause.kind.as_str() {
            _ if matches!(cause.site, FailureSite::TargetFiles | FailureSite::Elsewhere) => return false,
            "bucket_not_found" => 1,
            "unauthenticated" => UNAUTHENTICATED_IN_A_ROW_MAX,
            "forbidden" => FORBIDDEN_IN_A_ROW_MAX,
            "customer_key" if cause.site == FailureSite::Source => CUSTOMER_KEY_IN_A_ROW_MAX,
            _ => return false,
        };
        let row = self.rows.entry(cause.site).or_default();
        if row.kind != cause.kind {
            *row = Row { kind: cause.kind.clone(), length: 0 };
        }
        row.length += 1;
        if row.length < in_a_row_max || self.closed.contains_key(&cause.site) {
            return false;
        }
        self.closed.insert(cause.site, cause);
        true
    }

    /// Returns the failure that closed this site; `None` while it is open.
    pub(super) fn closed(&self, site: FailureSite) -> Option<&Cause> {
        self.closed.get(&site)
    }

    /// Returns how a job with these failures ends. `any_done`: some objects are where they should be. A mismatch takes
    /// precedence; otherwise, if nothing was done, the outcome is the one that all failures share.
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
            && !self.groups.keys().any(|(site, _)| matches!(site, FailureSite::Target(_) | FailureSite::TargetFiles))
        {
            Outcome::SourceNotFound
        } else {
            Outcome::Failed
        }
    }

    /// Returns one line and advice for the single cause behind all failures; `None` if there are several causes, or if
    /// each object has its own. `untouched` returns the URL of a store if nothing at all was done there. `alone`: the
    /// job had one object. `stopped`: not every object was tried.
    pub(super) fn words(
        &self,
        untouched: impl Fn(FailureSite) -> Option<String>,
        alone: bool,
        stopped: bool,
    ) -> Option<(String, Option<String>)> {
        let mut groups = self.groups.iter();
        let (Some(((site, kind), group)), None) = (groups.next(), groups.next()) else { return None };
        let Group { count, first } = group;
        if alone {
            return Some((first.message.clone(), first.hint.clone()));
        }
        let url = untouched(*site)?;
        let doing = if *site == FailureSite::Source { "read" } else { "write" };
        let what = match kind.as_str() {
            _ if matches!(site, FailureSite::TargetFiles | FailureSite::Elsewhere) => return None,
            "forbidden" | "unauthenticated" => format!("not authorised to {doing} {}", url),
            "bucket_not_found" => format!("{} does not exist", url),
            "customer_key" => format!("{} needs a customer's encryption key", url),
            "unavailable" => format!("{} returns only errors", url),
            _ => return None,
        };
        let rest = if stopped { "; the rest was not tried" } else { "" };
        let objects = if *count == 1 { "object" } else { "objects" };
        Some((format!("{} {objects}: {what}: {}{rest}", grouped(*count), first.message), first.hint.clone()))
    }
}

/// Formats a number with separators: `5,000`.
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

    fn cause(site: FailureSite, kind: &str) -> Cause {
        Cause { site, kind: kind.to_owned(), message: format!("{kind} here"), hint: None }
    }

    fn failed(causes: &mut Causes, site: FailureSite, kind: &str, times: u64) -> Vec<bool> {
        (0..times).map(|_| causes.failed(cause(site, kind))).collect()
    }

    const TARGET: FailureSite = FailureSite::Target(0);

    #[test]
    fn a_missing_bucket_closes_its_place_at_once_and_no_other() {
        let mut causes = Causes::default();
        assert_eq!(failed(&mut causes, FailureSite::Target(1), "bucket_not_found", 2), [true, false]);
        assert!(causes.closed(FailureSite::Target(1)).is_some() && causes.closed(TARGET).is_none());
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
    fn objects_with_a_customer_key_close_a_source_only_if_there_is_nothing_else() {
        let mut causes = Causes::default();
        assert!(
            !failed(&mut causes, FailureSite::Source, "customer_key", CUSTOMER_KEY_IN_A_ROW_MAX - 1).contains(&true)
        );
        causes.done(0);
        let closed = failed(&mut causes, FailureSite::Source, "customer_key", CUSTOMER_KEY_IN_A_ROW_MAX);
        assert_eq!(closed.iter().position(|closed| *closed), Some(closed.len() - 1));
        assert_eq!((causes.outcome(false), causes.outcome(true)), (Outcome::Failed, Outcome::SomeFailed));
    }

    #[test]
    fn a_job_of_one_kind_of_failure_ends_with_its_code_if_nothing_was_done() {
        for (site, kind, alone, beside) in [
            (TARGET, "forbidden", Outcome::Unauthorised, Outcome::SomeFailed),
            (FailureSite::Source, "unauthenticated", Outcome::Unauthorised, Outcome::SomeFailed),
            (FailureSite::Source, "not_found", Outcome::SourceNotFound, Outcome::SomeFailed),
            (TARGET, "bucket_not_found", Outcome::Failed, Outcome::SomeFailed),
            (FailureSite::TargetFiles, "not_found", Outcome::Failed, Outcome::SomeFailed),
            (TARGET, "no_space", Outcome::Failed, Outcome::SomeFailed),
            (TARGET, "mismatch", Outcome::Mismatch, Outcome::Mismatch),
            (FailureSite::Elsewhere, "unavailable", Outcome::Unavailable, Outcome::Unavailable),
        ] {
            let mut causes = Causes::default();
            failed(&mut causes, site, kind, 3);
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
