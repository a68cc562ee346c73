//! Decides whether a destination already has an object, from sizes, times and the checksums that stores state. Reads no
//! object data.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tradewind_contract::Comparison;
use tradewind_store::{Checksums, ObjectInfo, Store, kept_time_ns, may_be_md5};

/// Maximum number of ETags remembered per store.
const TAGS_MAX: usize = 1024;

const MILLISECOND_NS: i64 = 1_000_000;
const SECOND_NS: i64 = 1_000_000_000;

/// The result of comparing two descriptions of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The objects are the same.
    Same,
    /// The objects differ.
    Differs(Difference),
    /// The descriptions have no checksum in common and the rule demands one, or their ETags differ and may be MD5s, or
    /// their times are too close to decide, or the time that an object keeps of its file may decide: get each object's
    /// attributes (`HEAD`), then call [`decide_headed`].
    NeedsChecksums,
}

/// Detects whether the ETags of one store depend on the bytes. A server that states the same ETag for objects of
/// different lengths does not use MD5s.
#[derive(Debug, Default)]
pub struct Tags {
    /// ETags and the lengths of their objects. An ETag always has the same slot, so that a constant one is found again.
    seen: Mutex<Vec<(u128, u64)>>,
    are_worthless: AtomicBool,
}

impl Tags {
    /// Records the listed ETag of an object. Call it before the object is compared.
    pub fn see(&self, object: &ObjectInfo) {
        let Some(tag) = md5_tag(object) else { return };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // 0 marks an empty slot.
        seen.resize(TAGS_MAX, (0, 0));
        let place = (tag % TAGS_MAX as u128) as usize;
        let (earlier, size_bytes) = std::mem::replace(&mut seen[place], (tag, object.size_bytes));
        if earlier == tag && size_bytes != object.size_bytes {
            self.are_worthless.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the object, without its ETag and MD5 if this store's ETags are worthless.
    pub fn trusted<'a>(&self, object: &'a ObjectInfo) -> Cow<'a, ObjectInfo> {
        if !self.are_worthless.load(Ordering::Relaxed) {
            return Cow::Borrowed(object);
        }
        let checksums = Checksums { md5: None, ..object.checksums };
        Cow::Owned(ObjectInfo { etag: None, checksums, ..object.clone() })
    }
}

/// How the modification times of two stores relate to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Both are file systems, and a copy keeps its source's time: a different time, older or newer, means a different
    /// state.
    Kept {
        /// Time resolution of the coarser file system, in nanoseconds, as far as is known.
        grain_ns: u64,
    },
    /// The destination's time is the time of the write, so a copy is never older than its source.
    OfWriting {
        /// How far the source's clock is ahead of the destination's, in milliseconds. It is added to the destination's
        /// times.
        shift_ms: i64,
    },
}

impl Times {
    /// The relation for copies from `source` to `destination`.
    pub fn between(source: &dyn Store, destination: &dyn Store) -> Self {
        let both_files = [source, destination].iter().all(|store| store.url().starts_with("file:"));
        if !both_files {
            // Clock differences come from the `Date` of the stores' answers. Files carry times of this machine's clock.
            let shift_s = destination.clock_ahead_s().saturating_sub(source.clock_ahead_s());
            return Self::OfWriting { shift_ms: shift_s.saturating_mul(1000) };
        }
        Self::Kept { grain_ns: source.time_grain_ns().max(destination.time_grain_ns()) }
    }
}

/// How two objects differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Their lengths.
    Size,
    /// A checksum that both stores state.
    Checksum,
    /// The destination is older than the source, or keeps another time of a file that was changed later; between file
    /// systems, its time differs.
    Time,
    /// No known difference: the stores state no checksum in common, so the objects are not known to be the same.
    Unproven,
}

/// Decides from the descriptions in listings.
pub fn decide(rule: Comparison, times: Times, source: &ObjectInfo, destination: &ObjectInfo) -> Verdict {
    if rule == Comparison::Existing {
        return Verdict::Same;
    }
    if source.size_bytes != destination.size_bytes {
        return Verdict::Differs(Difference::Size);
    }
    // Empty objects have the same bytes. An empty folder object is its marker, whose time changes with the folder's
    // contents.
    if source.size_bytes == 0 && (rule != Comparison::Time || source.key.ends_with('/')) {
        return Verdict::Same;
    }
    match rule {
        Comparison::Size | Comparison::Existing => Verdict::Same,
        Comparison::Time => by_listed_time(times, source, destination),
        Comparison::Auto => match (by_checksum(source, destination), by_tag(source, destination)) {
            (Some(verdict), _) => verdict,
            (None, Some(true)) => Verdict::Same,
            // The ETags may be MD5s that differ, or encryption may have changed them: a listing does not tell which.
            (None, Some(false)) => Verdict::NeedsChecksums,
            (None, None) if may_be_of_one_second(times, source, destination) => Verdict::NeedsChecksums,
            (None, None) => by_listed_time(times, source, destination),
        },
        Comparison::Checksum if by_tag(source, destination) == Some(true) => Verdict::Same,
        Comparison::Checksum => by_checksum(source, destination).unwrap_or(Verdict::NeedsChecksums),
    }
}

/// Decides when the attributes (`HEAD`) of both objects are known.
pub fn decide_headed(rule: Comparison, times: Times, source: &ObjectInfo, destination: &ObjectInfo) -> Verdict {
    if source.size_bytes != destination.size_bytes {
        return Verdict::Differs(Difference::Size);
    }
    if rule == Comparison::Time {
        return by_kept_time(times, source, destination);
    }
    by_checksum(source, destination).unwrap_or_else(|| match rule {
        Comparison::Auto => by_kept_time(times, source, destination),
        _ => Verdict::Differs(Difference::Unproven),
    })
}

/// Compares two ETags that look like MD5s of the whole object. Equal ones mean equal bytes.
fn by_tag(source: &ObjectInfo, destination: &ObjectInfo) -> Option<bool> {
    Some(md5_tag(source)? == md5_tag(destination)?)
}

/// The ETag as an MD5, if it can be one.
fn md5_tag(object: &ObjectInfo) -> Option<u128> {
    let tag = object.etag.as_ref().filter(|tag| tag.len() == 32 && tag.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u128::from_str_radix(tag, 16).ok().filter(|md5| may_be_md5(*md5, object.size_bytes))
}

fn by_checksum(source: &ObjectInfo, destination: &ObjectInfo) -> Option<Verdict> {
    let plausible = |object: &ObjectInfo| object.checksums.plausible(object.size_bytes);
    let same = plausible(source).agrees_with(&plausible(destination))?;
    Some(if same { Verdict::Same } else { Verdict::Differs(Difference::Checksum) })
}

/// Returns whether the destination keeps whole seconds and was written within the second of the source, so that their
/// order is unknown.
fn may_be_of_one_second(times: Times, source: &ObjectInfo, destination: &ObjectInfo) -> bool {
    let Times::OfWriting { shift_ms } = times else { return false };
    let (ours, theirs) = (source.modified_unix_ms, destination.modified_unix_ms.saturating_add(shift_ms));
    theirs % 1000 == 0 && ours > theirs && ours.div_euclid(1000) == theirs.div_euclid(1000)
}

/// Compares by time. There is no tolerance for stores that keep whole seconds: it would call two objects the same if
/// the source was written again within the second of its copy. Without it the worst case is one unnecessary copy.
fn by_time(times: Times, source: &ObjectInfo, destination: &ObjectInfo) -> Verdict {
    let (ours, theirs) = (source.modified_unix_ms, destination.modified_unix_ms);
    let same = match times {
        Times::Kept { grain_ns } => is_kept(grain_ns, source, destination),
        // A store that states no time (0) proves nothing by it.
        Times::OfWriting { shift_ms } => ours != 0 && theirs != 0 && theirs.saturating_add(shift_ms) >= ours,
    };
    if same { Verdict::Same } else { Verdict::Differs(Difference::Time) }
}

/// Compares by the times of listings. Where they mislead, the time that an object keeps in its metadata, which a listing
/// does not show, may decide: a file that seems older than its object may be its copy, and one that was changed after its
/// object was written may be another file.
fn by_listed_time(times: Times, source: &ObjectInfo, destination: &ObjectInfo) -> Verdict {
    match by_time(times, source, destination) {
        Verdict::Differs(_) if source.file.is_none() && destination.file.is_some() => Verdict::NeedsChecksums,
        Verdict::Same if has_changed_since(times, source, destination) => Verdict::NeedsChecksums,
        verdict => verdict,
    }
}

/// Compares by the time that one object keeps of the other, a file, if it does, else by the times of both.
fn by_kept_time(times: Times, source: &ObjectInfo, destination: &ObjectInfo) -> Verdict {
    if has_kept_time(source, destination) {
        return Verdict::Same;
    }
    if keeps_time(destination) && has_changed_since(times, source, destination) {
        return Verdict::Differs(Difference::Time);
    }
    by_time(times, source, destination)
}

/// Returns whether a file has been changed since its object was written. Its modification time may be older: a file that
/// is restored from a backup, or takes the place of another one, brings its time along. Only the kernel sets the time of
/// the change. Permissions and links change it, too.
fn has_changed_since(times: Times, source: &ObjectInfo, destination: &ObjectInfo) -> bool {
    let (Times::OfWriting { shift_ms }, Some(file), None) = (times, source.file, destination.file) else {
        return false;
    };
    file.changed_unix_ns.div_euclid(MILLISECOND_NS) > destination.modified_unix_ms.saturating_add(shift_ms)
}

/// Returns whether times decide about objects whose attributes are known, so that no file need be read.
pub fn is_decided_by_time(times: Times, source: &ObjectInfo, destination: &ObjectInfo) -> bool {
    has_kept_time(source, destination)
        || !keeps_time(destination)
            && has_changed_since(times, source, destination)
            && !may_be_of_one_second(times, source, destination)
}

/// Returns the object of a `HEAD` with the milliseconds of its listing, which many servers state only there.
pub fn with_listed_time(headed: ObjectInfo, listed: &ObjectInfo) -> ObjectInfo {
    let state = |object: &ObjectInfo| (object.size_bytes, object.modified_unix_ms.div_euclid(1000));
    let is_one = state(&headed) == state(listed) && headed.etag == listed.etag;
    let modified_unix_ms =
        if is_one { headed.modified_unix_ms.max(listed.modified_unix_ms) } else { headed.modified_unix_ms };
    ObjectInfo { modified_unix_ms, ..headed }
}

/// Returns whether one is a file, and the other an object that keeps exactly its time.
fn has_kept_time(source: &ObjectInfo, destination: &ObjectInfo) -> bool {
    let (file, object) = match (source.file, destination.file) {
        (None, Some(file)) => (file, source),
        (Some(file), None) => (file, destination),
        _ => return false,
    };
    let kept = kept_time_ns(&object.attributes).filter(|ns| !is_out_of_range(*ns));
    kept == Some(file.modified_unix_ns)
}

fn keeps_time(object: &ObjectInfo) -> bool {
    kept_time_ns(&object.attributes).is_some()
}

/// Returns whether a copy of `ours` would have the time of `theirs`. Copies are given whole milliseconds, so if one
/// file has whole milliseconds, both are compared to the millisecond, otherwise to the nanosecond.
///
/// `grain_ns` holds the rounding of file systems that are known to round, such as FAT, which keeps even seconds. Other
/// file systems that keep whole seconds (ext3, HFS+, some behind FUSE) are recognized by the time of the last change.
/// No program can set it, and it is a whole second by chance almost never.
fn is_kept(grain_ns: u64, ours: &ObjectInfo, theirs: &ObjectInfo) -> bool {
    let (one, other) = (modified_unix_ns(ours), modified_unix_ns(theirs));
    if is_out_of_range(one) || is_out_of_range(other) {
        return ours.modified_unix_ms == theirs.modified_unix_ms;
    }
    let keeps_seconds = |object: &ObjectInfo| {
        let file = object.file;
        file.is_some_and(|file| file.modified_unix_ns % SECOND_NS == 0 && file.changed_unix_ns % SECOND_NS == 0)
    };
    let seconds_ns = if keeps_seconds(ours) || keeps_seconds(theirs) { SECOND_NS.unsigned_abs() } else { 1 };
    let is_whole = one % MILLISECOND_NS == 0 || other % MILLISECOND_NS == 0;
    one == other
        || is_whole && one.div_euclid(MILLISECOND_NS) == other.div_euclid(MILLISECOND_NS)
        || one.abs_diff(other) < grain_ns.max(seconds_ns)
}

/// Returns whether a time may lie outside the years 1677 to 2262: all such times have the same nanoseconds.
fn is_out_of_range(unix_ns: i64) -> bool {
    matches!(unix_ns, i64::MIN | i64::MAX)
}

/// Returns the modification time in nanoseconds. Times outside the years 1677 to 2262 become the nearest representable
/// time.
fn modified_unix_ns(object: &ObjectInfo) -> i64 {
    object.file.map_or(object.modified_unix_ms.saturating_mul(MILLISECOND_NS), |file| file.modified_unix_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tradewind_store::FileIdentity;

    const KEPT: Times = Times::Kept { grain_ns: 1 };
    const OF_WRITING: Times = Times::OfWriting { shift_ms: 0 };

    fn object(size_bytes: u64, modified_unix_ms: i64, crc32c: Option<u32>, md5: Option<u8>) -> ObjectInfo {
        let checksums = Checksums { crc32c, md5: md5.map(|byte| [byte; 16]), ..Checksums::default() };
        ObjectInfo { size_bytes, modified_unix_ms, checksums, ..ObjectInfo::default() }
    }

    #[test]
    fn size_always_decides_first() {
        for rule in [Comparison::Auto, Comparison::Checksum, Comparison::Size, Comparison::Time] {
            let verdict = decide(rule, OF_WRITING, &object(1, 0, Some(1), None), &object(2, 9, Some(1), None));
            assert_eq!(verdict, Verdict::Differs(Difference::Size));
        }
    }

    #[test]
    fn times_of_writing_are_compared_by_one_clock() {
        let (source, copy) = (object(1, 10_000, None, None), object(1, 13_000, None, None));
        let by = |shift_ms| decide(Comparison::Time, Times::OfWriting { shift_ms }, &source, &copy);
        assert_eq!((by(0), by(-3_000)), (Verdict::Same, Verdict::Same));
        assert_eq!(by(-4_000), Verdict::Differs(Difference::Time), "the destination's clock is ahead");
        let late = object(1, 17_000, None, None);
        let by = |shift_ms| decide(Comparison::Time, Times::OfWriting { shift_ms }, &late, &copy);
        assert_eq!((by(0), by(4_000)), (Verdict::Differs(Difference::Time), Verdict::Same), "it is behind");
        let untimed = object(1, 0, None, None);
        let by_none = decide(Comparison::Time, Times::OfWriting { shift_ms: 99_000 }, &source, &untimed);
        assert_eq!(by_none, Verdict::Differs(Difference::Time), "a time that is not stated stays unknown");
    }

    #[test]
    fn what_exists_is_never_replaced() {
        let (source, destination) = (object(1, 9_000, None, Some(1)), object(2, 1_000, None, Some(2)));
        for times in [KEPT, OF_WRITING] {
            assert_eq!(decide(Comparison::Existing, times, &source, &destination), Verdict::Same);
        }
    }

    #[test]
    fn nothing_is_the_same_as_nothing() {
        let (older, newer) = (object(0, 1_000, None, None), object(0, 9_000, None, None));
        assert_eq!(decide(Comparison::Auto, KEPT, &older, &newer), Verdict::Same);
        assert_eq!(decide(Comparison::Time, KEPT, &older, &newer), Verdict::Differs(Difference::Time));
        let marker = |object: ObjectInfo| ObjectInfo { key: "folder/".to_owned(), ..object };
        assert_eq!(decide(Comparison::Time, KEPT, &marker(older), &marker(newer)), Verdict::Same);
    }

    #[test]
    fn auto_prefers_a_checksum_in_common_to_time() {
        let older = object(1, 5, None, Some(7));
        assert_eq!(decide(Comparison::Auto, OF_WRITING, &object(1, 9, None, Some(7)), &older), Verdict::Same);
        let newer = object(1, 10, None, Some(8));
        let verdict = decide(Comparison::Auto, OF_WRITING, &object(1, 9, None, Some(7)), &newer);
        assert_eq!(verdict, Verdict::Differs(Difference::Checksum));
    }

    #[test]
    fn auto_falls_back_to_time() {
        let source = object(1, 9, Some(1), None);
        assert_eq!(decide(Comparison::Auto, OF_WRITING, &source, &object(1, 9, None, Some(1))), Verdict::Same);
        let verdict = decide(Comparison::Auto, OF_WRITING, &source, &object(1, 8, None, None));
        assert_eq!(verdict, Verdict::Differs(Difference::Time));
    }

    #[test]
    fn checksum_asks_and_then_does_not_guess() {
        let (source, destination) = (object(1, 9, Some(1), None), object(1, 9, None, Some(1)));
        assert_eq!(decide(Comparison::Checksum, OF_WRITING, &source, &destination), Verdict::NeedsChecksums);
        let rule = Comparison::Checksum;
        assert_eq!(decide_headed(rule, OF_WRITING, &source, &destination), Verdict::Differs(Difference::Unproven));
        assert_eq!(decide_headed(rule, OF_WRITING, &source, &object(1, 0, Some(1), None)), Verdict::Same);
    }

    #[test]
    fn a_copy_of_the_same_second_is_looked_into() {
        let (source, copied) = (object(1, 1_500, None, None), object(1, 1_000, None, None));
        assert_eq!(decide(Comparison::Auto, OF_WRITING, &source, &copied), Verdict::NeedsChecksums);
        assert_eq!(decide_headed(Comparison::Auto, OF_WRITING, &source, &copied), Verdict::Differs(Difference::Time));
        let finer = object(1, 1_001, None, None);
        assert_eq!(decide(Comparison::Auto, OF_WRITING, &source, &finer), Verdict::Differs(Difference::Time));
    }

    #[test]
    fn tags_that_differ_are_looked_into_and_not_trusted_to_time() {
        let tagged = |tag: &str, at| ObjectInfo { etag: Some(tag.repeat(32)), ..object(1, at, None, None) };
        let (source, newer) = (tagged("a", 5), tagged("b", 9));
        assert_eq!(decide(Comparison::Auto, OF_WRITING, &source, &tagged("a", 1)), Verdict::Same);
        assert_eq!(decide(Comparison::Checksum, OF_WRITING, &source, &tagged("A", 1)), Verdict::Same);
        assert_eq!(decide(Comparison::Auto, OF_WRITING, &source, &newer), Verdict::NeedsChecksums);
        let (one, other) = (object(1, 5, None, Some(1)), object(1, 9, None, Some(2)));
        assert_eq!(decide_headed(Comparison::Auto, OF_WRITING, &one, &other), Verdict::Differs(Difference::Checksum));
        assert_eq!(
            decide_headed(Comparison::Auto, OF_WRITING, &source, &newer),
            Verdict::Same,
            "both encrypted: by time"
        );
    }

    #[test]
    fn a_constant_is_no_proof_of_equal_bytes() {
        let object =
            |tag: &str, size_bytes, at| ObjectInfo { etag: Some(tag.to_owned()), ..object(size_bytes, at, None, None) };
        for tag in ["d41d8cd98f00b204e9800998ecf8427e", "00000000000000000000000000000000"] {
            let verdict = decide(Comparison::Checksum, OF_WRITING, &object(tag, 1, 1), &object(tag, 1, 5));
            assert_eq!(verdict, Verdict::NeedsChecksums, "{tag}");
        }
        let nothing = 0xd41d_8cd9_8f00_b204_e980_0998_ecf8_427e_u128.to_be_bytes();
        let headed =
            ObjectInfo { checksums: Checksums { md5: Some(nothing), ..Checksums::default() }, ..object("", 1, 1) };
        let verdict = decide_headed(Comparison::Checksum, OF_WRITING, &headed, &headed);
        assert_eq!(verdict, Verdict::Differs(Difference::Unproven));
    }

    #[test]
    fn a_tag_of_two_lengths_makes_all_tags_of_its_store_worthless() {
        let tagged =
            |tag: &str, size_bytes| ObjectInfo { etag: Some(tag.repeat(32)), ..object(size_bytes, 1, None, Some(7)) };
        let tags = Tags::default();
        for object in [tagged("a", 1), tagged("b", 2), tagged("a", 1)] {
            tags.see(&object);
            assert_eq!(*tags.trusted(&object), object);
        }
        tags.see(&tagged("b", 3));
        assert_eq!(*tags.trusted(&tagged("a", 1)), ObjectInfo { etag: None, ..object(1, 1, None, None) });
    }

    #[test]
    fn between_file_systems_another_time_is_another_state() {
        let at = |ms| object(1, ms, None, None);
        for rule in [Comparison::Auto, Comparison::Time] {
            let decided = |ours, theirs| decide(rule, KEPT, &at(ours), &at(theirs)) == Verdict::Same;
            assert!(decided(1_234_567, 1_234_567));
            assert!(
                !decided(1_234_567, 1_234_568),
                "newer at the destination: the source was replaced by an older one"
            );
            assert!(
                !decided(1_235_567, 1_235_000) && !decided(1_236_000, 1_235_000),
                "a whole second is a time like others"
            );
            let fat = Times::Kept { grain_ns: 2_000_000_000 };
            let decided = |ours, theirs| decide(rule, fat, &at(ours), &at(theirs)) == Verdict::Same;
            assert!(decided(1_235_567, 1_234_000) && decided(1_235_567, 1_236_000), "the destination is FAT");
            assert!(!decided(1_236_000, 1_234_000));
        }
    }

    fn file(modified_unix_ns: i64, changed_unix_ns: i64) -> ObjectInfo {
        let identity = FileIdentity { modified_unix_ns, changed_unix_ns, ..FileIdentity::default() };
        ObjectInfo { file: Some(identity), ..object(1, modified_unix_ns.div_euclid(MILLISECOND_NS), None, None) }
    }

    #[test]
    fn times_of_files_count_to_what_a_copy_can_bear() {
        let same = |ours: &ObjectInfo, theirs: &ObjectInfo| is_kept(1, ours, theirs);
        let (source, changed) = (5_123_456_789, 9_876_543_210);
        assert!(same(&file(source, 1), &file(5_123_000_000, changed)), "the copy has whole milliseconds");
        assert!(same(&file(5_123_000_000, changed), &file(source, 1)), "and so has its way back");
        assert!(!same(&file(source, 1), &file(5_123_456_788, changed)), "no copy of ours");
        assert!(
            !same(&file(source, 1), &file(5_000_000_000, changed))
                && !same(&file(5_000_000_000, 1), &file(6_000_000_000, changed))
        );
    }

    #[test]
    fn times_that_nanoseconds_cannot_hold_are_compared_by_milliseconds() {
        let at = |ms| ObjectInfo { modified_unix_ms: ms, ..file(if ms < 0 { i64::MIN } else { i64::MAX }, 1) };
        for ms in [10_413_792_000_000, -10_413_792_000_000] {
            assert!(is_kept(1, &at(ms), &at(ms)));
            assert!(!is_kept(1, &at(ms), &at(ms + 1)));
        }
    }

    /// An object written at 2,000 ms that keeps a time in its metadata, if one is given.
    fn keeping(kept: Option<&str>) -> ObjectInfo {
        let metadata = kept.map(|kept| ("mtime".to_owned(), kept.to_owned())).into_iter().collect();
        let attributes = tradewind_store::Attributes { metadata, ..Default::default() };
        ObjectInfo { attributes: attributes.into(), ..object(1, 2_000, None, Some(1)) }
    }

    #[test]
    fn a_file_that_was_changed_after_its_object_was_written_is_judged_by_the_time_that_this_keeps() {
        let old = |changed_ms: i64| file(1_000 * MILLISECOND_NS, changed_ms * MILLISECOND_NS);
        for rule in [Comparison::Auto, Comparison::Time] {
            let listed = |file: &ObjectInfo| decide(rule, OF_WRITING, file, &keeping(None));
            assert_eq!((listed(&old(2_000)), listed(&old(2_001))), (Verdict::Same, Verdict::NeedsChecksums));
            let headed = |kept| decide_headed(rule, OF_WRITING, &old(2_001), &keeping(kept));
            assert_eq!(headed(Some("1")), Verdict::Same, "only its permissions have changed");
            assert_eq!(headed(Some("1.5")), Verdict::Differs(Difference::Time), "it was replaced by an older one");
            assert_eq!(headed(None), Verdict::Same, "nothing is known but the times");
            let before = decide_headed(rule, OF_WRITING, &old(2_000), &keeping(Some("1.5")));
            assert_eq!(before, Verdict::Same, "the object was written later, by another program");
        }
        let is_decided = |kept| is_decided_by_time(OF_WRITING, &old(2_001), &keeping(kept));
        assert_eq!((is_decided(Some("1")), is_decided(None), is_decided(Some("1.5"))), (true, true, false));
    }

    #[test]
    fn a_file_that_may_have_changed_in_the_second_of_its_object_is_read() {
        let within = |ms: i64| file(ms * MILLISECOND_NS, ms * MILLISECOND_NS);
        let is_decided = |file: &ObjectInfo| is_decided_by_time(OF_WRITING, file, &keeping(None));
        assert_eq!((is_decided(&within(2_500)), is_decided(&within(3_500))), (false, true));
    }

    #[test]
    fn the_milliseconds_of_a_listing_stay_known() {
        let tagged = |tag: &str, at| ObjectInfo { etag: Some(tag.to_owned()), ..object(1, at, None, None) };
        let merged = |headed, listed| with_listed_time(headed, &listed).modified_unix_ms;
        assert_eq!(merged(tagged("a", 2_000), tagged("a", 2_299)), 2_299);
        assert_eq!(merged(tagged("a", 2_299), tagged("a", 2_000)), 2_299);
        assert_eq!(merged(tagged("a", 2_000), tagged("b", 2_299)), 2_000, "it was replaced after it was listed");
        assert_eq!(merged(tagged("a", 3_000), tagged("a", 2_299)), 3_000, "it was written again");
    }

    #[test]
    fn a_file_system_of_whole_seconds_shows_in_the_time_of_change() {
        let source = file(5_123_456_789, 1);
        assert!(is_kept(1, &source, &file(5_000_000_000, 9_000_000_000)));
        assert!(!is_kept(1, &source, &file(4_000_000_000, 9_000_000_000)));
        assert!(!is_kept(1, &source, &file(5_000_000_000, 9_000_000_001)));
    }
}
