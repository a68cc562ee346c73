//! The state that an object must be in for a request, and the check of that state.

use super::{FileIdentity, ObjectInfo, Written};
use crate::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// The state that an object must be in. `None` fields do not matter; the default matches any object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precondition {
    /// ETag (HTTP If-Match, RFC 9110 §13.1.1), without quotes.
    pub etag: Option<String>,
    /// Generation or version id.
    pub version: Option<String>,
    /// Length of the whole object.
    pub size_bytes: Option<u64>,
    /// Last modification, milliseconds since the Unix epoch. Compared in whole seconds, the resolution of
    /// `Last-Modified`.
    pub modified_unix_ms: Option<i64>,
    /// Not modified after this time, milliseconds since the Unix epoch, compared in whole seconds. Checked only where
    /// the object's state is read anyway; it causes no request. Used for deletes only, so it is never sent over the
    /// wire.
    #[serde(skip)]
    pub not_after_unix_ms: Option<i64>,
    /// The listing began at this time, milliseconds since the Unix epoch: see [`Precondition::was_written_before`]. Used
    /// for deletes only, as `not_after_unix_ms`.
    #[serde(skip)]
    pub written_before_unix_ms: Option<i64>,
    /// Only for files.
    pub file: Option<FileIdentity>,
}

impl Precondition {
    /// The state that a listing describes. The time counts only if nothing better is known: some servers list a
    /// different time from the one they send with the object.
    pub fn listed(info: &ObjectInfo) -> Self {
        let exact = Self::exact(info);
        let has_better = exact.etag.is_some() || exact.version.is_some() || exact.file.is_some();
        Self { modified_unix_ms: exact.modified_unix_ms.filter(|_| !has_better), ..exact }
    }

    /// The state that `info` describes, in all its fields.
    pub fn exact(info: &ObjectInfo) -> Self {
        Self {
            etag: info.etag.clone(),
            version: info.version.clone(),
            size_bytes: Some(info.size_bytes),
            // 0 means that the store did not state a time.
            modified_unix_ms: Some(info.modified_unix_ms).filter(|modified| *modified != 0 && info.file.is_none()),
            not_after_unix_ms: None,
            written_before_unix_ms: None,
            file: info.file,
        }
    }

    /// The state of the object that a write made. Empty if the store stated nothing about it: see
    /// [`Precondition::is_any`].
    pub fn written(written: &Written) -> Self {
        Self { etag: written.etag.clone(), version: written.version.clone(), file: written.file, ..Self::default() }
    }

    /// Returns whether any object matches.
    pub fn is_any(&self) -> bool {
        *self == Self::default()
    }

    /// The first field in which `now` differs, in words; `None` if `now` matches as far as it says.
    pub fn difference(&self, now: &ObjectInfo) -> Option<&'static str> {
        let differs = |wanted: &Option<String>, found: &Option<String>| {
            wanted.as_ref().zip(found.as_ref()).is_some_and(|(wanted, found)| wanted != found)
        };
        let second = |unix_ms: i64| unix_ms.div_euclid(1000);
        let other_time = self
            .modified_unix_ms
            .is_some_and(|wanted| now.modified_unix_ms != 0 && second(wanted) != second(now.modified_unix_ms));
        // A store that states no time gives 0, which is later than nothing.
        let rewritten = self.not_after_unix_ms.is_some_and(|latest| second(now.modified_unix_ms) > second(latest));
        if self.size_bytes.is_some_and(|wanted| wanted != now.size_bytes) {
            Some("its length differs")
        } else if differs(&self.etag, &now.etag) {
            Some("its ETag differs")
        } else if differs(&self.version, &now.version) {
            Some("its version differs")
        } else if other_time || rewritten {
            Some("its modification time differs")
        } else {
            self.file.zip(now.file).and_then(|(wanted, found)| wanted.difference(&found))
        }
    }

    /// Returns whether `now` differs only by a later time, which lies before the listing. If the store still lists the
    /// object as before, it was not written since.
    pub(crate) fn was_written_before(&self, now: &ObjectInfo) -> bool {
        let second = |unix_ms: i64| unix_ms.div_euclid(1000);
        let listed = self.modified_unix_ms.or(self.not_after_unix_ms);
        let timeless = Self { modified_unix_ms: None, not_after_unix_ms: None, ..self.clone() };
        (self.etag.is_some() || self.version.is_some())
            && timeless.check_for_deletion(String::new(), now).is_ok()
            && listed.zip(self.written_before_unix_ms).is_some_and(|(listed, before)| {
                now.modified_unix_ms > listed && second(now.modified_unix_ms) < second(before)
            })
    }

    /// Returns whether `now` says too little to tell this state from another: it has neither the ETag nor the version
    /// that was seen or, if neither was ever known, no time. A length alone is not enough. No object may be deleted on
    /// such an answer.
    pub(crate) fn is_undecided(&self, now: &ObjectInfo) -> bool {
        let has_name = self.etag.is_some() || self.version.is_some();
        let named = self.etag.is_some() && now.etag.is_some() || self.version.is_some() && now.version.is_some();
        let timed = self.modified_unix_ms.is_some() && now.modified_unix_ms != 0;
        self.file.is_none() && if has_name { !named } else { !timed }
    }

    /// The verdict on the object at `url`, which is to be deleted only in this state, given the store's answer `now`.
    pub(crate) fn check_for_deletion(&self, url: String, now: &ObjectInfo) -> Result<()> {
        if let Some(difference) = self.difference(now) {
            return Err(stays(url, difference));
        }
        if self.is_undecided(now) {
            let message =
                "the object was kept: the store no longer states its ETag, version or time, so it may have changed";
            return Err(Error::new(ErrorKind::PreconditionFailed, "delete", url, message));
        }
        Ok(())
    }
}

/// Message for an object that is in a different state than required.
pub(crate) fn another_state(difference: &str) -> String {
    format!("the object is not the one that was seen before: {difference}")
}

/// The error for an object that is kept because it changed.
pub fn stays(url: String, difference: &str) -> Error {
    let message = format!("the object was kept, because it changed after it was last seen: {difference}");
    Error::new(ErrorKind::PreconditionFailed, "delete", url, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> ObjectInfo {
        ObjectInfo {
            size_bytes: 1,
            etag: Some("a".into()),
            version: Some("1".into()),
            modified_unix_ms: 5_000,
            ..ObjectInfo::default()
        }
    }

    #[test]
    fn every_part_of_a_state_counts() {
        let exact = Precondition::exact(&object());
        assert_eq!(exact.difference(&object()), None);
        for other in [
            ObjectInfo { size_bytes: 2, ..object() },
            ObjectInfo { etag: Some("b".into()), ..object() },
            ObjectInfo { version: Some("2".into()), ..object() },
            ObjectInfo { modified_unix_ms: 6_000, ..object() },
        ] {
            assert!(exact.difference(&other).is_some(), "{other:?}");
        }
    }

    #[test]
    fn unstated_values_are_no_difference() {
        let silent = ObjectInfo { size_bytes: 1, ..ObjectInfo::default() };
        assert_eq!(Precondition::exact(&object()).difference(&silent), None);
        let finer = ObjectInfo { modified_unix_ms: 5_999, ..object() };
        assert_eq!(Precondition::exact(&object()).difference(&finer), None, "times are compared in whole seconds");
    }

    #[test]
    fn an_answer_that_says_too_little_forbids_the_delete() {
        let silent = ObjectInfo { size_bytes: 1, ..ObjectInfo::default() };
        let url = || "s3://b/k".to_owned();
        assert!(Precondition::exact(&object()).check_for_deletion(url(), &object()).is_ok());
        let refused = Precondition::exact(&object()).check_for_deletion(url(), &silent).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::PreconditionFailed);
        let tagged = ObjectInfo { version: None, modified_unix_ms: 0, ..object() };
        assert!(Precondition::exact(&object()).check_for_deletion(url(), &tagged).is_ok(), "one name is enough");
        let timed = ObjectInfo { etag: None, version: None, ..object() };
        assert!(
            Precondition::exact(&object()).check_for_deletion(url(), &timed).is_err(),
            "a time is no substitute for names"
        );
        assert!(Precondition::listed(&timed).check_for_deletion(url(), &timed).is_ok());
        assert!(Precondition::listed(&timed).check_for_deletion(url(), &silent).is_err());
        assert!(
            Precondition::listed(&silent).check_for_deletion(url(), &silent).is_err(),
            "nothing but a length was ever known"
        );
    }

    #[test]
    fn a_listed_time_counts_only_if_nothing_better_is_known() {
        let later = ObjectInfo { modified_unix_ms: 9_000, ..object() };
        assert_eq!(Precondition::listed(&object()).difference(&later), None);
        let nameless = ObjectInfo { etag: None, version: None, ..object() };
        assert!(Precondition::listed(&nameless).difference(&later).is_some());
    }

    #[test]
    fn an_object_to_delete_may_not_be_newer_than_listed() {
        let unwanted = Precondition { not_after_unix_ms: Some(5_000), ..Precondition::listed(&object()) };
        let later = ObjectInfo { modified_unix_ms: 6_000, ..object() };
        assert_eq!(unwanted.difference(&later), Some("its modification time differs"));
        for as_listed in [
            object(),
            ObjectInfo { modified_unix_ms: 5_999, ..object() },
            ObjectInfo { modified_unix_ms: 4_000, ..object() },
            ObjectInfo { modified_unix_ms: 0, ..object() },
        ] {
            assert_eq!(unwanted.difference(&as_listed), None, "{as_listed:?}");
        }
    }

    #[test]
    fn a_server_may_list_another_time_than_that_of_its_last_write() {
        let later = ObjectInfo { modified_unix_ms: 8_000, ..object() };
        let since = |before| Precondition { written_before_unix_ms: Some(before), ..Precondition::exact(&object()) };
        assert!(since(9_000).difference(&later).is_some());
        assert!(since(9_000).was_written_before(&later));
        assert!(!since(8_999).was_written_before(&later), "written in the second of the listing");
        assert!(!since(9_000).was_written_before(&ObjectInfo { etag: Some("b".into()), ..later.clone() }));
        assert!(!since(9_000).was_written_before(&ObjectInfo { modified_unix_ms: 4_000, ..object() }));
        let nameless = ObjectInfo { etag: None, version: None, ..object() };
        let since = Precondition { written_before_unix_ms: Some(9_000), ..Precondition::exact(&nameless) };
        assert!(!since.was_written_before(&later), "only the time tells");
        let unwanted = Precondition {
            not_after_unix_ms: Some(5_000),
            written_before_unix_ms: Some(9_000),
            ..Precondition::listed(&object())
        };
        assert!(unwanted.was_written_before(&later));
        assert!(!unwanted.was_written_before(&ObjectInfo { modified_unix_ms: 9_000, ..object() }));
    }

    #[test]
    fn files_differ_in_each_part_of_their_identity() {
        let identity = FileIdentity { device: 1, inode: 2, modified_unix_ns: 3, changed_unix_ns: 4, links: 2 };
        let file = |identity| ObjectInfo { file: Some(identity), ..ObjectInfo::default() };
        let exact = Precondition::exact(&file(identity));
        assert_eq!(exact.difference(&file(identity)), None);
        for other in [
            FileIdentity { device: 9, ..identity },
            FileIdentity { inode: 9, ..identity },
            FileIdentity { modified_unix_ns: 9, ..identity },
            FileIdentity { changed_unix_ns: 9, ..identity },
        ] {
            assert!(exact.difference(&file(other)).is_some(), "{other:?}");
        }
        let name_removed = FileIdentity { changed_unix_ns: 9, links: 1, ..identity };
        assert!(exact.difference(&file(name_removed)).is_some(), "a rewrite may hide behind it");
    }
}
