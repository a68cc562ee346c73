//! Handles writes whose destination was not in the expected state.
//!
//! The store refused the write and changed nothing. One cause is an earlier attempt of ours that has written the
//! object, but whose answer was lost: then the right object is there, which counts as success. Otherwise another
//! program has written or removed it, or the lead had guessed wrong: then the lead learns what is there and orders the
//! write again. The sink never decides what to replace: the object it sees may come from a later attempt, which an
//! earlier one must not undo.

use super::sink::{Sink, Target, hold_same, parts_md5_tag, written_as};
use super::work::{Failure, Leaves, WholePlace};
use tradewind_store::{Attributes, Checksums, Expect, ObjectInfo, PartTag, Payload, PutOptions, Written};

/// The intended write.
pub(super) struct Wanted<'a> {
    pub(super) size_bytes: u64,
    pub(super) checksums: &'a Checksums,
    /// The bytes, if they are here.
    pub(super) payload: Option<&'a Payload>,
    /// The parts, for an upload.
    pub(super) parts: &'a [PartTag],
    /// Whether an earlier attempt may have written it.
    pub(super) again: bool,
}

impl Sink {
    /// Resolves a write that failed with `failure`. Returns the object if an earlier attempt has written it, or a
    /// failure with the state of the destination. Other kinds of failure are returned unchanged.
    pub(super) async fn unless_met(
        &self,
        target: &Target,
        place: &WholePlace,
        wanted: Wanted<'_>,
        failure: Failure,
    ) -> Result<Written, Failure> {
        let Some(expect) = place.options.expect.as_ref().filter(|_| wanted.is_refused_by(&failure)) else {
            return Err(failure);
        };
        let url = format!("{}/{}", target.store.url(), place.key);
        let now = match target.run("head", &place.key, None, |_| target.store.head(&place.key)).await {
            Ok(now) => Some(now),
            Err(missing) if missing.kind == "not_found" => None,
            Err(_) => return Err(Failure::unmet(&url, Leaves::Unknown)),
        };
        match now {
            Some(now) if wanted.is_there_as(&now, &place.options) => Ok(written_as(now)),
            now if wanted.is_copy() && expect.is_met_by(now.as_ref()) => Err(failure),
            now => Err(Failure::unmet(&url, Leaves::Seen(Expect::seen(now.as_ref())))),
        }
    }
}

impl Wanted<'_> {
    fn is_copy(&self) -> bool {
        self.payload.is_none() && self.parts.is_empty()
    }

    /// Returns whether the store refused the write because of its condition. A copy may also be refused because of the
    /// state of its source, and the answer may not say which object was missing.
    fn is_refused_by(&self, failure: &Failure) -> bool {
        failure.kind == "precondition_failed" || self.is_copy() && failure.kind == "not_found"
    }

    fn is_there_as(&self, now: &ObjectInfo, options: &PutOptions) -> bool {
        let same_parts = parts_md5_tag(self.parts).is_some_and(|tag| now.etag.as_deref() == Some(&tag));
        let same_bytes = || hold_same(self.checksums, &now.checksums, self.payload);
        self.again && now.size_bytes == self.size_bytes && (same_parts || same_bytes()) && states(options, now)
    }
}

/// Returns whether an object has the attributes that the options set. Tags are not part of an object's description.
fn states(options: &PutOptions, now: &ObjectInfo) -> bool {
    let Attributes { content_type, content_encoding, content_language, content_disposition, cache_control, metadata } =
        &options.attributes;
    let has = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
    let found = &now.attributes;
    has(content_type, &found.content_type)
        && has(content_encoding, &found.content_encoding)
        && has(content_language, &found.content_language)
        && has(content_disposition, &found.content_disposition)
        && has(cache_control, &found.cache_control)
        && *metadata == found.metadata
        && has(&options.storage_class, &now.storage_class)
        && options.tags.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(checksums: &Checksums, again: bool) -> Wanted<'_> {
        Wanted { size_bytes: 1, checksums, payload: None, parts: &[], again }
    }

    #[test]
    fn only_what_is_there_in_all_respects_counts_as_our_own_write() {
        let sums = Checksums { crc32c: Some(1), ..Checksums::default() };
        let now = ObjectInfo { size_bytes: 1, checksums: sums, ..ObjectInfo::default() };
        let options = PutOptions::default();
        assert!(wanted(&sums, true).is_there_as(&now, &options));
        assert!(!wanted(&sums, false).is_there_as(&now, &options), "nobody of us can have written it");
        let other = Checksums { crc32c: Some(2), ..Checksums::default() };
        assert!(!wanted(&other, true).is_there_as(&now, &options));
        let longer = ObjectInfo { size_bytes: 2, ..now.clone() };
        assert!(!wanted(&sums, true).is_there_as(&longer, &options));
        let typed = Attributes { content_type: Some("a/b".into()), ..Attributes::default() };
        let typed = PutOptions { attributes: typed, ..PutOptions::default() };
        assert!(!wanted(&sums, true).is_there_as(&now, &typed));
        let tagged = PutOptions { tags: [("a".into(), "b".into())].into(), ..PutOptions::default() };
        assert!(!wanted(&sums, true).is_there_as(&now, &tagged));
        let silent = ObjectInfo { checksums: Checksums::default(), ..now };
        assert!(!wanted(&sums, true).is_there_as(&silent, &options), "a length alone says too little");
    }
}
