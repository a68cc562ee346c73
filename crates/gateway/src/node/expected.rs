//! Handles writes whose destination was not in the expected state.
//!
//! The store refused the write and changed nothing. One cause is an earlier attempt of ours that has written the
//! object, but whose answer was lost: then the right object is there, by its description or by its bytes, which counts
//! as success. Otherwise another program has written or removed it, or the lead had guessed wrong: then the lead learns
//! what is there and orders the write again. The sink never decides what to replace: the object it sees may come from a
//! later attempt, which an earlier one must not undo.

use super::sink::{Sink, Target, parts_md5_tag, same_bytes, written_as};
use super::work::{Failure, Leaves, WholePlace};
use crate::attributes::keeps_attributes;
use crate::failure::object_url;
use tradewind_store::{Attributes, Checksums, Expect, ObjectInfo, PartTag, Payload, Precondition, PutOptions, Written};

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
        let url = object_url(target.store.as_ref(), &place.key);
        let now = match target.run("head", &place.key, None, |_| target.store.head(&place.key)).await {
            Ok(now) => Some(now),
            Err(missing) if missing.kind == "not_found" => None,
            Err(_) => return Err(Failure::unmet(&url, Leaves::Unknown)),
        };
        match now {
            Some(now) if self.is_ours(target, place, &wanted, &now).await => Ok(written_as(now)),
            now if wanted.is_copy() && expect.is_met_by(now.as_ref()) => Err(failure),
            now => Err(Failure::unmet(&url, Leaves::Seen(Expect::seen(now.as_ref())))),
        }
    }

    /// Returns whether an object is the one that an earlier attempt of ours has written. Where nothing was there before
    /// and the store states no checksum to compare, the object is read. One that cannot be read counts as another
    /// writer's.
    async fn is_ours(&self, target: &Target, place: &WholePlace, wanted: &Wanted<'_>, now: &ObjectInfo) -> bool {
        let options = keeps_attributes(target.store.as_ref()).then_some(&place.options);
        if let Some(is_there) = wanted.is_there_as(now, options) {
            return is_there;
        }
        let has_sums = *wanted.checksums != Checksums::default();
        if wanted.is_copy() || !has_sums || place.options.expect != Some(Expect::Absent) {
            return false;
        }
        let read = self.read_back(target, &place.key, &Precondition::exact(now)).await;
        if !read.is_ok_and(|(read, _)| wanted.checksums.agrees_with(&read) == Some(true)) {
            return false;
        }
        // The earlier attempt may not have got to this.
        let sync = |_| target.store.sync(&place.key);
        !place.options.durable || target.run("sync", &place.key, None, sync).await.is_ok()
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

    /// Returns whether this describes the write of an earlier attempt; `None` if nothing is there to compare the bytes.
    /// `options` is `None` if the store keeps no attributes.
    fn is_there_as(&self, now: &ObjectInfo, options: Option<&PutOptions>) -> Option<bool> {
        let has_attributes = || options.is_none_or(|options| states(options, now));
        if !self.again || now.size_bytes != self.size_bytes || !has_attributes() {
            return Some(false);
        }
        let same_parts = parts_md5_tag(self.parts).is_some_and(|tag| now.etag.as_deref() == Some(&tag));
        same_parts.then_some(true).or_else(|| same_bytes(self.checksums, &now.checksums, self.payload))
    }
}

/// Returns whether an object has the attributes that the options set. Tags are not part of an object's description.
fn states(options: &PutOptions, now: &ObjectInfo) -> bool {
    let Attributes { content_type, content_encoding, content_language, content_disposition, cache_control, metadata } =
        &*options.attributes;
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
    use crate::node::drops::{Ends, KEY, block_on, content, payload, whole_place};
    use tradewind_contract::VerifyMode;
    use tradewind_wire::Fault;

    fn wanted(checksums: &Checksums, again: bool) -> Wanted<'_> {
        Wanted { size_bytes: 1, checksums, payload: None, parts: &[], again }
    }

    #[test]
    fn only_what_is_there_in_all_respects_counts_as_our_own_write() {
        let sums = Checksums { crc32c: Some(1), ..Checksums::default() };
        let now = ObjectInfo { size_bytes: 1, checksums: sums, ..ObjectInfo::default() };
        let options = PutOptions::default();
        let is_there =
            |wanted: &Wanted<'_>, now: &ObjectInfo, options: &PutOptions| wanted.is_there_as(now, Some(options));
        assert_eq!(is_there(&wanted(&sums, true), &now, &options), Some(true));
        assert_eq!(is_there(&wanted(&sums, false), &now, &options), Some(false), "nobody of us can have written it");
        let other = Checksums { crc32c: Some(2), ..Checksums::default() };
        assert_eq!(is_there(&wanted(&other, true), &now, &options), Some(false));
        let longer = ObjectInfo { size_bytes: 2, ..now.clone() };
        assert_eq!(is_there(&wanted(&sums, true), &longer, &options), Some(false));
        let typed = Attributes { content_type: Some("a/b".into()), ..Attributes::default() };
        let typed = PutOptions { attributes: typed.into(), ..PutOptions::default() };
        assert_eq!(is_there(&wanted(&sums, true), &now, &typed), Some(false));
        assert_eq!(wanted(&sums, true).is_there_as(&now, None), Some(true), "the store keeps no attributes");
        let tagged = PutOptions { tags: [("a".into(), "b".into())].into(), ..PutOptions::default() };
        assert_eq!(is_there(&wanted(&sums, true), &now, &tagged), Some(false));
        let silent = ObjectInfo { checksums: Checksums::default(), ..now.clone() };
        assert_eq!(is_there(&wanted(&sums, true), &silent, &options), None, "a length alone says too little");
    }

    #[test]
    fn an_object_at_a_store_without_checksums_is_read_to_find_out_whose_it_is() {
        let other: Vec<u8> = content().iter().map(|byte| byte ^ 1).collect();
        let absent = || Some(Expect::Absent);
        for (there, again, expect, is_ours) in [
            (content(), true, absent(), true),
            (content(), false, absent(), false),
            (content(), true, Some(Expect::seen(Some(&ObjectInfo::default()))), false),
            (other, true, absent(), false),
            (content()[1..].to_vec(), true, absent(), false),
        ] {
            block_on(async {
                let (ends, whole) = (Ends::new(), payload(&content()));
                ends.to.write(KEY, &there);
                let mut place = whole_place(KEY, VerifyMode::Auto, true);
                place.options.expect = expect;
                place.options.attributes.content_type = Some("a/b".to_owned());
                let (sums, size_bytes) = (Checksums::of_segments(whole.segments()), whole.len());
                let wanted = Wanted { size_bytes, checksums: &sums, payload: Some(&whole), parts: &[], again };
                let refused = Failure::new(Fault::Unavailable, "precondition_failed", "it exists");
                let met = ends.sink.unless_met(&ends.sink.targets[0], &place, wanted, refused).await;
                assert_eq!(met.is_ok(), is_ours, "{again} {met:?}");
                assert!(met.is_ok_and(|written| written.size_bytes == Some(size_bytes)) || !is_ours);
            });
        }
    }
}
