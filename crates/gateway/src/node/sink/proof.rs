//! Proves an object that a store has acknowledged, by the store's checksums or by reading it back, and removes a wrong
//! one.

use super::{Sink, Target};
use crate::failure::{ObjectUrl, object_url};
use crate::node::attempts::{Describe, Patience};
use crate::node::source::md5_of;
use crate::node::work::{Differs, Failure, Leaves, Proof, WholePlace};
use futures::TryStreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tradewind_contract::VerifyMode;
use tradewind_store::{
    Checksums, ErrorKind, Expect, ObjectDeletion, ObjectInfo, PartSource, PartTag, Payload, Precondition, Written,
    look_at_written, may_be_md5,
};

/// Returns whether a store states the ETag of the `source` for its copy. A constant ETag proves nothing.
pub(super) fn has_tag_of(source: &PartSource, copy: &Written, size_bytes: u64) -> bool {
    source.condition.etag.as_deref().is_some_and(|tag| {
        let is_constant = u128::from_str_radix(tag, 16).is_ok_and(|md5| !may_be_md5(md5, size_bytes));
        copy.etag.as_deref() == Some(tag) && !is_constant
    })
}

/// Returns whether this ETag has the form of an MD5.
pub(super) fn has_md5_of(source: &PartSource, copy: &Written, size_bytes: u64) -> bool {
    has_tag_of(source, copy, size_bytes) && copy.etag.as_deref().is_some_and(|tag| hex(tag).is_some())
}

/// An object that the store acknowledged.
pub(super) struct Looked {
    pub(super) written: Written,
    /// True if its bytes were read back and are those that were sent.
    is_read_back: bool,
}

impl Sink {
    /// Returns the attributes of an object that the store acknowledged. If the answer has nothing to compare with
    /// `computed`, requests the object's attributes, at least for its length. An object that is missing, replaced or of
    /// another length is a failure. `verify` is `None` for a copy by the store: its bytes are never read here.
    pub(super) async fn looked_at(
        &self,
        target: &Target,
        key: &str,
        size_bytes: u64,
        computed: &Checksums,
        mut written: Written,
        verify: Option<VerifyMode>,
    ) -> Result<Looked, Failure> {
        let mut is_read_back = false;
        let is_vouched_for = written.size_bytes.is_some() || computed.agrees_with(&written.checksums).is_some();
        if !is_vouched_for || verify == Some(VerifyMode::Read) {
            let look = |_| look_at_written(target.store.as_ref(), key, &written, computed);
            written = match target.run("head", key, None, look).await {
                Err(failure) if failure.kind == "overwritten" && verify.is_some() => {
                    is_read_back = true;
                    let expected = Precondition { size_bytes: Some(size_bytes), ..Precondition::written(&written) };
                    self.settled(target, key, computed, &expected).await?.ok_or(failure)?
                }
                looked => looked?,
            };
        }
        match written.size_bytes.filter(|found| *found != size_bytes) {
            None => Ok(Looked { written, is_read_back }),
            Some(found) => {
                let why = format!("the store has {found} bytes of it, not {size_bytes}");
                Err(self.take_back(target, key, Precondition::written(&written), &why).await)
            }
        }
    }

    /// Reads back an object whose ETag differs from the one stated when it was written. Returns the object if nothing
    /// else differs and it has the bytes that were sent.
    pub(super) async fn settled(
        &self,
        target: &Target,
        key: &str,
        computed: &Checksums,
        expected: &Precondition,
    ) -> Result<Option<Written>, Failure> {
        let now = target.run("head", key, None, |_| target.store.head(key)).await?;
        let expected = Precondition { etag: None, ..expected.clone() };
        if *computed == Checksums::default() || expected.difference(&now).is_some() {
            return Ok(None);
        }
        let (read, _) = self.read_back(target, key, &Precondition::exact(&now)).await?;
        Ok((computed.agrees_with(&read) == Some(true)).then(|| written_as(now)))
    }

    /// Compares the computed checksums with those of the store. Reads the object back if the store states none and the
    /// job requires it.
    pub(super) async fn prove(
        &self,
        target: &Target,
        place: &WholePlace,
        computed: &Checksums,
        looked: &Looked,
    ) -> Result<Proof, Failure> {
        let written = &looked.written;
        match Proof::compare(computed, &written.checksums) {
            Err(Differs) => {
                let why = "the store's checksum differs from that of the bytes sent";
                Err(self.take_back(target, &place.key, Precondition::written(written), why).await)
            }
            Ok(Proof::Length) if looked.is_read_back => Ok(Proof::ReadBack),
            Ok(Proof::Length) if place.verify == VerifyMode::Read => {
                let (read, info) = self.read_back(target, &place.key, &Precondition::written(written)).await?;
                match computed.agrees_with(&read) {
                    Some(true) => Ok(Proof::ReadBack),
                    // The store copied the parts itself and stated no checksums of them.
                    None => Ok(Proof::Length),
                    Some(false) => {
                        let why = "the bytes read back differ from the bytes sent";
                        Err(self.take_back(target, &place.key, Precondition::exact(&info), why).await)
                    }
                }
            }
            Ok(proof) => Ok(proof),
        }
    }

    /// Reads the object that was `written`. Returns its checksums and the store's description of it. Does not read an
    /// object of another writer.
    pub(in crate::node) async fn read_back(
        &self,
        target: &Target,
        key: &str,
        written: &Precondition,
    ) -> Result<(Checksums, ObjectInfo), Failure> {
        let progress = Arc::new(AtomicU64::new(0));
        let once = || async {
            let download = target.store.get(key, None, written).await?;
            let whole = download.body.try_fold((Checksums::of_segments(&[]), 0), |(sums, bytes), piece| {
                progress.fetch_add(piece.len() as u64, Ordering::Relaxed);
                let length = piece.len() as u64;
                let piece = Checksums::of_segments(&[piece]);
                async move { Ok((Checksums::concat(&sums, &piece, length), bytes + length)) }
            });
            whole.await.map(|(sums, _)| (sums, download.info))
        };
        let describe = Describe { operation: "read back", url: ObjectUrl::of(target.store.as_ref(), key) };
        let read = target.attempts.run(describe, Patience::Transfer, &progress, once).await;
        read.map_err(|error| match error.kind {
            ErrorKind::PreconditionFailed | ErrorKind::NotFound => Failure::overwritten(&describe.url.to_string()),
            _ => target.failure(&error),
        })
    }

    /// Removes a wrong object, so that nobody relies on it. Another writer's object stays.
    pub(super) async fn take_back(&self, target: &Target, key: &str, wrong: Precondition, why: &str) -> Failure {
        let url = object_url(target.store.as_ref(), key);
        if wrong.is_any() {
            let message = format!("{url}: {why}; it was kept, because the store does not state its version");
            return Failure::mismatch(message).leaving(Leaves::Unknown);
        }
        let deletion = [ObjectDeletion { key: key.to_owned(), condition: wrong }];
        let removed = target.run("delete", key, None, |_| target.store.delete(&deletion)).await;
        let mut leaves = Leaves::Unknown;
        let then = match removed.map(|mut verdicts| verdicts.pop()) {
            Ok(Some(Ok(()))) => {
                leaves = Leaves::Seen(Expect::Absent);
                "it was removed".to_owned()
            }
            Ok(Some(Err(error))) if error.kind == ErrorKind::PreconditionFailed => {
                "another writer has replaced it, and the new object was kept".to_owned()
            }
            Ok(Some(Err(error))) => format!("it could not be removed: {}", target.failure(&error).message),
            Ok(None) => "it could not be removed".to_owned(),
            Err(failure) => format!("it could not be removed: {}", failure.message),
        };
        Failure::mismatch(format!("{url}: {why}; {then}")).leaving(leaves)
    }
}

/// An object that was written earlier, from the store's present description.
pub(crate) fn written_as(now: ObjectInfo) -> Written {
    let ObjectInfo { etag, version, checksums, file, size_bytes, .. } = now;
    Written { etag, version, checksums, file, size_bytes: Some(size_bytes) }
}

/// Returns whether the computed checksums equal the store's, wherever both exist; `None` if none does. `payload` has the
/// bytes, if they are here.
pub(in crate::node) fn same_bytes(computed: &Checksums, stated: &Checksums, payload: Option<&Payload>) -> Option<bool> {
    let computed = payload.map_or(*computed, |payload| with_md5(*computed, stated, payload));
    computed.agrees_with(stated)
}

/// Adds the MD5 if the store states nothing else.
pub(super) fn with_md5(computed: Checksums, stated: &Checksums, payload: &Payload) -> Checksums {
    if computed.agrees_with(stated).is_none() && stated.md5.is_some() {
        return Checksums { md5: Some(md5_of(payload.segments())), ..computed };
    }
    computed
}

/// The ETag that S3 gives to an object of these parts: MD5 of the parts' MD5s, and their number. `None` if a part's
/// ETag is not an MD5.
pub(in crate::node) fn parts_md5_tag(parts: &[PartTag]) -> Option<String> {
    use md5::Digest;
    use std::fmt::Write;
    let mut md5 = md5::Md5::new();
    for part in parts {
        md5.update(hex(&part.tag)?);
    }
    let mut tag = String::with_capacity(40);
    for byte in md5.finalize() {
        write!(tag, "{byte:02x}").ok()?;
    }
    write!(tag, "-{}", parts.len()).ok()?;
    Some(tag)
}

fn hex(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 16];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_parts_is_that_of_s3() {
        let part =
            |part, tag: &str| PartTag { part, size_bytes: 1, tag: tag.to_owned(), checksums: Checksums::default() };
        let parts = [part(1, "d41d8cd98f00b204e9800998ecf8427e"), part(2, "d41d8cd98f00b204e9800998ecf8427e")];
        assert_eq!(parts_md5_tag(&parts).as_deref(), Some("5873dd45edd01f09c1ef2e7819369e8e-2"));
        assert_eq!(parts_md5_tag(&[part(1, "block-1")]), None);
    }
}
