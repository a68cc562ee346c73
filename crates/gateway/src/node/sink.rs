//! The sink: writes the data of parcels, proves it by the store's checksums, and answers.
//!
//! Every request may arrive twice (its answer was lost and the lead sent it again), so all are idempotent: a part or a
//! whole object replaces itself, and a close whose upload is gone checks whether the object is already there.

mod counts;
mod fence;
mod proof;
mod refused_tags;
mod target;
mod upload;

use super::budget::Held;
use super::dedup::recipe::is_gone;
use super::dedup::window::{Window, WindowState};
use super::expected::Wanted;
use super::lanes::each;
use super::parcel::{Coded, Parcel};
use super::replay::Taken;
use super::reply::{Owed, ReplyTo};
use super::scope::WriteScope;
use super::seal::{Opening, Seal};
use super::work::{
    Close, Entry, Failure, Manifest, PartPlace, Placed, Proof, SinkAnswer, SinkReply, Unsynced, WholePlace,
};
use bytes::Bytes;
pub use counts::Counts;
pub use fence::Fence;
pub(crate) use proof::written_as;
use proof::{has_md5_of, has_tag_of, with_md5};
pub(super) use proof::{parts_md5_tag, same_bytes};
use refused_tags::{TagPath, without_refused_tags};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
pub use target::Target;
use tokio_util::task::TaskTracker;
use tradewind_store::{Checksums, Crcs, PartSource, PartTag, Payload, Precondition, PutOptions, TagSupport, Written};
use tradewind_wire::Fault;
use tradewind_wire::frame::Head;
use upload::Caller;

/// Objects of one bundle that are written at the same time. The store's throttle limits all bundles together.
const BUNDLE_WRITES_MAX: usize = 32;

/// See the module's documentation.
pub struct Sink {
    /// The destinations, by index of the job's targets.
    pub targets: Vec<Target>,
    /// Keys that may be written.
    pub scope: WriteScope,
    /// Opens what arrives over hops; `None` where every route stays in this process.
    pub seal: Option<Arc<Seal>>,
    /// Requests that have arrived over hops.
    pub taken: Taken,
    /// Requests that the lead has withdrawn.
    pub fence: Fence,
    /// The last new bytes that arrived in bodies of a job that deduplicates.
    pub window: Window,
    /// Bytes written and saved, for the metrics.
    pub counts: Counts,
    /// Parcels in progress.
    pub tasks: TaskTracker,
}

/// Bytes that a body did not have to carry, and the state of the window after it.
#[derive(Clone, Copy, Debug, Default)]
struct Saved {
    bytes: u64,
    deduplicated_bytes: u64,
    window: Option<WindowState>,
}

impl Sink {
    /// Begins to open a body that arrives over a hop.
    ///
    /// # Errors
    /// This sink has no key: its program has no hops.
    pub fn opening(&self, head: &Head) -> Result<Opening, Failure> {
        self.seal.as_ref().map(|seal| seal.opening(head, self.wanted_crcs())).ok_or_else(Failure::without_seal)
    }

    /// The CRCs that the destinations work with.
    pub fn wanted_crcs(&self) -> Option<Crcs> {
        self.targets.iter().filter_map(|target| target.store.wanted_crcs()).max()
    }

    /// Accepts a body that has arrived completely over a hop.
    pub fn accept_sealed(self: &Arc<Self>, opening: Opening, held: Held, reply: ReplyTo) {
        let owed = Owed::new(reply, opening.request());
        // Spawning moves a future several times, and this one has some kilobytes.
        self.tasks.spawn(Box::pin(self.clone().accepting_sealed(opening, held, owed)));
    }

    /// The answer is owed before the first poll, so that a future that is dropped unpolled sends it too.
    pub(super) async fn accepting_sealed(self: Arc<Self>, opening: Opening, held: Held, owed: Owed) {
        let request = opening.request();
        let answer = match opening.finish() {
            Ok(coded) => match self.refusal(&coded.head) {
                Some(why) => {
                    tracing::warn!(request = request.0, "refused: {why}");
                    owed.reply().fail(request, Fault::Lost, "unavailable", why);
                    return owed.settled();
                }
                None => self.work_coded(coded, held, owed.reply()).await,
            },
            Err(failure) => self.answer(SinkReply::Failed(failure), Saved::default()),
        };
        owed.reply().sink(request, &answer, self.seal.as_deref());
        owed.settled();
    }

    /// Returns why a request that has arrived over a hop is not carried out. The second one with the same id may have
    /// its own caller; `Lost` only makes the lead retry.
    fn refusal(&self, head: &Head) -> Option<&'static str> {
        if !self.taken.is_first(head.route, head.request) {
            return Some("the request reached its sink a second time");
        }
        self.fence.withdraws(head.request).then_some("the request reached its sink after it was withdrawn")
    }

    async fn work_coded(&self, coded: Coded, held: Held, reply: &ReplyTo) -> SinkAnswer {
        let has_recipe = coded.head.recipe_bytes > 0;
        let (bytes, deduplicated_bytes) = (coded.saved_bytes(), coded.deduplicated_bytes());
        let (reply, start) = match coded.decode(Some(held), &self.window) {
            Ok((parcel, start)) => (self.work(parcel, reply).await, start),
            Err(failure) => {
                if is_gone(&failure) {
                    self.window.count_refused();
                }
                (SinkReply::Failed(failure), None)
            }
        };
        let window = has_recipe.then(|| self.window.state(start));
        let saved = Saved { bytes, deduplicated_bytes, window };
        if !matches!(reply, SinkReply::Failed(_)) {
            self.counts.add_saved(saved);
        }
        self.answer(reply, saved)
    }

    /// Accepts a parcel from the source in this process.
    pub fn accept(self: &Arc<Self>, parcel: Parcel, reply: ReplyTo) {
        let owed = Owed::new(reply, parcel.request);
        self.tasks.spawn(Box::pin(self.clone().accepting(parcel, owed)));
    }

    pub(super) async fn accepting(self: Arc<Self>, parcel: Parcel, owed: Owed) {
        let request = parcel.request;
        let reply = self.work(parcel, owed.reply()).await;
        owed.reply().sink(request, &self.answer(reply, Saved::default()), None);
        owed.settled();
    }

    fn answer(&self, reply: SinkReply, saved: Saved) -> SinkAnswer {
        let due = self.targets.iter().map(|target| &target.meter).find(|meter| meter.is_due());
        let Saved { bytes: saved_bytes, deduplicated_bytes, window } = saved;
        SinkAnswer { reply, saved_bytes, deduplicated_bytes, window, load: due.map(|meter| meter.load()) }
    }

    async fn work(&self, parcel: Parcel, reply: &ReplyTo) -> SinkReply {
        let Parcel { request, manifest, data, computed, held, .. } = parcel;
        // All destinations together: a request may write to several.
        let _busy = self.targets.first().map(|target| target.meter.busy());
        let done = match manifest {
            Manifest::Bundle(entries) => Ok(SinkReply::Bundle(self.bundle(entries, data, computed).await)),
            Manifest::Part { place, checksums } => {
                let data = data.with_checksums(computed.first().copied());
                self.part(place, data, checksums).await.map(SinkReply::Part)
            }
            Manifest::CheckPart { place, part } => self.check_part(place, part).await.map(SinkReply::Part),
            Manifest::CopyPart { place, source } => self.copy_part(place, source).await.map(SinkReply::Part),
            Manifest::Open { target, key, options } => {
                self.open(Caller { request, reply }, target, &key, options).await
            }
            Manifest::Close(close) => self.close(*close).await.map(|placed| SinkReply::Closed(Box::new(placed))),
            Manifest::Abort { target, key, upload } => {
                self.abort(target, &key, &upload).await.map(|()| SinkReply::Aborted)
            }
            Manifest::Fence => {
                self.fence.raise(request).await;
                Ok(SinkReply::Fenced)
            }
        };
        drop(held);
        done.unwrap_or_else(SinkReply::Failed)
    }

    async fn bundle(
        &self,
        entries: Vec<Entry>,
        data: Payload,
        computed: Vec<Checksums>,
    ) -> Vec<Result<Placed, Failure>> {
        let (mut segments, mut computed) = (data.into_segments().into(), computed.into_iter());
        let jobs: Vec<(Entry, Payload)> = entries
            .into_iter()
            .map(|entry| {
                let payload = match &entry {
                    Entry::Write { size_bytes, .. } => take(&mut segments, *size_bytes).with_checksums(computed.next()),
                    _ => Payload::default(),
                };
                (entry, payload)
            })
            .collect();
        each(jobs, BUNDLE_WRITES_MAX, |(entry, payload)| self.entry(entry, payload)).await
    }

    async fn entry(&self, entry: Entry, payload: Payload) -> Result<Placed, Failure> {
        match entry {
            Entry::Failed(failure) => Err(failure),
            Entry::Copy { place, size_bytes, source, listed } => self.copy(place, size_bytes, *source, listed).await,
            Entry::Check { place, size_bytes, unsynced } => self.check(place, size_bytes, unsynced).await,
            Entry::Write { size_bytes, .. } if payload.len() != size_bytes => {
                Err(Failure::mismatch("a bundle is shorter than its manifest says"))
            }
            Entry::Write { mut place, size_bytes, checksums, source_proof } => {
                let target = self.target(place.target, &place.key)?;
                let checksums = target.completed(&place.key, &payload, checksums)?;
                place.options.expect = place.expect.take();
                let (tries, key, sums, data) = (&AtomicU32::new(0), &place.key, &checksums, &payload);
                let write = |options: PutOptions| async move {
                    let put = |payload| {
                        tries.fetch_add(1, Ordering::Relaxed);
                        target.store.put(key, payload, sums, &options)
                    };
                    target.run("put", key, Some(data), put).await
                };
                let (put, dropped) = without_refused_tags(&mut place.options, TagPath::Sent, write).await;
                place.tags_dropped |= dropped;
                let written = match put {
                    Ok(written) => {
                        self.counts.add_written(size_bytes);
                        written
                    }
                    Err(failure) => {
                        let (checksums, payload, again) =
                            (&checksums, Some(&payload), place.again || tries.load(Ordering::Relaxed) > 1);
                        let wanted = Wanted { size_bytes, checksums, payload, parts: &[], again };
                        self.unless_met(target, &place, wanted, failure).await?
                    }
                };
                // The store may have learnt meanwhile that its server needs the CRC-32C.
                let checksums = target.completed(&place.key, &payload, checksums)?;
                let computed = with_md5(checksums, &written.checksums, &payload);
                let verify = Some(place.verify);
                let looked = self.looked_at(target, &place.key, size_bytes, &computed, written, verify).await?;
                let computed = with_md5(computed, &looked.written.checksums, &payload);
                let target_proof = self.prove(target, &place, &computed, &looked).await?;
                Ok(target.placed(&place, looked.written, (source_proof, target_proof), size_bytes, computed))
            }
        }
    }

    async fn copy(
        &self,
        mut place: WholePlace,
        size_bytes: u64,
        source: PartSource,
        listed: Checksums,
    ) -> Result<Placed, Failure> {
        let target = self.target(place.target, &place.key)?;
        self.scope.check_copy(&source)?;
        place.options.expect = place.expect.take();
        let (tries, key, from) = (&AtomicU32::new(0), &place.key, &source);
        let copies_tags = target.store.tag_support() == TagSupport::Copied;
        let path = if copies_tags { TagPath::Copied } else { TagPath::Sent };
        let write = |options: PutOptions| async move {
            let copy = || {
                tries.fetch_add(1, Ordering::Relaxed);
                target.store.copy(key, from, &options)
            };
            target.working("copy", key, size_bytes, copy).await.map_err(Failure::of_copy)
        };
        let (copy, dropped) = without_refused_tags(&mut place.options, path, write).await;
        place.tags_dropped |= dropped;
        let written = match copy {
            Ok(written) => written,
            Err(failure) => {
                let again = place.again || tries.load(Ordering::Relaxed) > 1;
                let wanted = Wanted { size_bytes, checksums: &listed, payload: None, parts: &[], again };
                self.unless_met(target, &place, wanted, failure).await?
            }
        };
        // A store that states the MD5 of the source for its copy has said all. Where the source is deleted afterwards, the
        // copy is looked at nevertheless.
        let written = match has_md5_of(&source, &written, size_bytes) && !place.options.durable && !place.again {
            true => written,
            false => self.looked_at(target, &place.key, size_bytes, &listed, written, None).await?.written,
        };
        let agrees = listed.plausible(size_bytes).agrees_with(&written.checksums.plausible(size_bytes));
        if agrees == Some(false) {
            let why = "the store's copy has a different checksum than the original";
            return Err(self.take_back(target, &place.key, Precondition::written(&written), why).await);
        }
        let same_tag = has_tag_of(&source, &written, size_bytes);
        let target_proof = if agrees == Some(true) || same_tag { Proof::StoreCopy } else { Proof::Length };
        let placed = target.placed(&place, written, (Proof::StoreCopy, target_proof), size_bytes, listed);
        Ok(Placed { sent: Checksums::default(), ..placed })
    }

    /// Checks whether an object of an earlier run survived. If the machine accepted it since its last start, the object
    /// is at least in the machine's memory; any other object is read back.
    async fn check(&self, place: WholePlace, size_bytes: u64, unsynced: Unsynced) -> Result<Placed, Failure> {
        let target = self.target(place.target, &place.key)?;
        let lost = |why: &str| Failure::lost(format!("{}/{}: {why}", target.store.url(), place.key));
        if target.store.volatile_boot() != Some(&unsynced.boot) {
            let now = target.run("head", &place.key, None, |_| target.store.head(&place.key)).await;
            if now.map(|now| now.size_bytes) != Ok(size_bytes) {
                return Err(lost("it no longer exists, or has another length"));
            }
            let (read, _) = self.read_back(target, &place.key, &Precondition::default()).await?;
            if size_bytes > 0 && read.agrees_with(&unsynced.checksums) != Some(true) {
                return Err(lost("it does not have the bytes that were written"));
            }
        }
        if place.options.durable {
            target.run("sync", &place.key, None, |_| target.store.sync(&place.key)).await?;
        }
        let now = target.run("head", &place.key, None, |_| target.store.head(&place.key)).await;
        let now = now.map_err(|_| lost("it no longer exists"))?;
        let proofs = (Proof::Length, Proof::Length);
        let placed = target.placed(&place, written_as(now), proofs, size_bytes, unsynced.checksums);
        // The run that wrote it has counted what it lacks.
        Ok(Placed { attributes_ignored: false, ..placed })
    }

    async fn part(&self, place: PartPlace, data: Payload, checksums: Checksums) -> Result<PartTag, Failure> {
        let target = self.target(place.target, &place.key)?;
        let checksums = target.completed(&place.key, &data, checksums)?;
        let size_bytes = data.len();
        let tag = target
            .run("put part", &place.key, Some(&data), |data| {
                target.store.put_part(&place.key, &place.upload, place.part, place.offset, data, &checksums)
            })
            .await?;
        self.counts.add_written(size_bytes);
        if with_md5(checksums, &tag.checksums, &data).agrees_with(&tag.checksums) == Some(false) {
            return Err(Failure::mismatch(format!("part {} of {} differs from the bytes sent", place.part, place.key)));
        }
        let checksums = target.completed(&place.key, &data, checksums)?;
        Ok(PartTag { part: place.part, size_bytes, tag: tag.tag, checksums })
    }

    /// Checks whether a part of an earlier run survived.
    async fn check_part(&self, place: PartPlace, part: PartTag) -> Result<PartTag, Failure> {
        let target = self.target(place.target, &place.key)?;
        let has_part = |_| target.store.has_part(&place.key, &place.upload, place.offset, &part);
        if !target.run("check part", &place.key, None, has_part).await? {
            let message = format!("part {} of {} does not have the bytes that were written", place.part, place.key);
            return Err(Failure::lost(message));
        }
        let tag = target.store.volatile_boot().map_or_else(|| part.tag.clone(), str::to_owned);
        Ok(PartTag { tag, ..part })
    }

    async fn copy_part(&self, place: PartPlace, source: PartSource) -> Result<PartTag, Failure> {
        let target = self.target(place.target, &place.key)?;
        self.scope.check_copy(&source)?;
        let bytes = source.range.as_ref().map_or(0, |range| range.end.saturating_sub(range.start));
        target
            .working("copy part", &place.key, bytes, || {
                target.store.copy_part(&place.key, &place.upload, place.part, &source)
            })
            .await
            .map_err(Failure::of_copy)
    }

    async fn close(&self, close: Close) -> Result<Placed, Failure> {
        let Close { mut place, upload, parts, size_bytes, checksums, source_proof, sweep_since_unix_ms } = close;
        let target = self.target(place.target, &place.key)?;
        place.options.expect = place.expect.take();
        let (tries, key, to, sent, sums) = (&AtomicU32::new(0), &place.key, &upload, &parts, &checksums);
        let write = |options: PutOptions| async move {
            let complete = || {
                tries.fetch_add(1, Ordering::Relaxed);
                target.store.complete_upload(key, to, sent, sums, &options)
            };
            target.working("complete upload", key, size_bytes, complete).await
        };
        let (complete, dropped) = without_refused_tags(&mut place.options, TagPath::Sent, write).await;
        place.tags_dropped |= dropped;
        let written = match complete {
            Ok(written) => written,
            Err(failure) if failure.fault == Fault::UploadGone => {
                match self.already_there(target, &place.key, &parts, size_bytes, &checksums).await {
                    Some(written) => written,
                    None => {
                        // The upload may still exist without some of its parts. If the abort fails, `jobs cancel` finds
                        // the upload.
                        drop(self.abort(place.target, &place.key, &upload).await);
                        return Err(failure);
                    }
                }
            }
            Err(failure) => {
                let (checksums, again) = (&checksums, place.again || tries.load(Ordering::Relaxed) > 1);
                let wanted = Wanted { size_bytes, checksums, payload: None, parts: &parts, again };
                let written = self.unless_met(target, &place, wanted, failure).await?;
                // Another upload may have written the object. If the abort fails, `jobs cancel` finds this one.
                drop(self.abort(place.target, &place.key, &upload).await);
                written
            }
        };
        if let Some(since) = sweep_since_unix_ms {
            self.sweep(target, &place.key, since).await;
        }
        let verify = Some(place.verify);
        let looked = self.looked_at(target, &place.key, size_bytes, &checksums, written, verify).await?;
        let proven = self.prove(target, &place, &checksums, &looked).await?;
        let written = looked.written;
        let by_parts =
            proven == Proof::Length && parts_md5_tag(&parts).is_some_and(|tag| written.etag.as_deref() == Some(&tag));
        let target_proof = if by_parts { Proof::PartsMd5 } else { proven };
        Ok(target.placed(&place, written, (source_proof, target_proof), size_bytes, checksums))
    }

    /// Returns the object if an attempt whose answer was lost has already completed the upload.
    async fn already_there(
        &self,
        target: &Target,
        key: &str,
        parts: &[PartTag],
        size_bytes: u64,
        checksums: &Checksums,
    ) -> Option<Written> {
        let info = target.run("head", key, None, |_| target.store.head(key)).await.ok()?;
        let same_parts = parts_md5_tag(parts).is_some_and(|tag| info.etag.as_deref() == Some(&tag));
        let same =
            info.size_bytes == size_bytes && (same_parts || checksums.agrees_with(&info.checksums) == Some(true));
        same.then(|| written_as(info))
    }

    /// Returns the destination if this job may write `key` there.
    fn target(&self, index: u16, key: &str) -> Result<&Target, Failure> {
        self.scope.check(index, key)?;
        let missing =
            || Failure::new(Fault::Permanent, "configuration", format!("this sink has no destination {index}"));
        self.targets.get(usize::from(index)).ok_or_else(missing)
    }
}

/// Removes and returns the next `bytes` of a sequence of segments.
fn take(segments: &mut std::collections::VecDeque<Bytes>, mut bytes: u64) -> Payload {
    let mut taken = Vec::new();
    while bytes > 0
        && let Some(mut segment) = segments.pop_front()
    {
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX).min(segment.len());
        let piece = segment.split_to(wanted);
        bytes -= piece.len() as u64;
        taken.push(piece);
        if !segment.is_empty() {
            segments.push_front(segment);
        }
    }
    Payload::new(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_are_cut_where_the_manifest_says() {
        let mut segments = vec![Bytes::from_static(b"abc"), Bytes::from_static(b"defg")].into();
        assert_eq!(take(&mut segments, 5).segments(), [Bytes::from_static(b"abc"), Bytes::from_static(b"de")]);
        assert_eq!(take(&mut segments, 0).len(), 0);
        assert_eq!(take(&mut segments, 9).len(), 2);
    }
}
