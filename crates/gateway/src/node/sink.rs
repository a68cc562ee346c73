//! The sink: writes what a parcel brings, proves it against what the store says, and answers.
//!
//! Everything here may be asked twice (an answer was lost, the lead asked again) and is idempotent: a part replaces
//! itself, a whole object too, a close of an upload that is gone looks whether the object is there as it should be.

use super::attempts::{Attempts, Describe, Patience};
use super::budget::Held;
use super::expected::Wanted;
use super::parcel::{Coded, Parcel};
use super::replay::Taken;
use super::reply::{Owed, ReplyTo};
use super::scope::WriteScope;
use super::seal::SealKey;
use super::source::md5_of;
use super::work::{
    Close, Differs, Entry, Failure, Leaves, Manifest, PartPlace, Placed, Proof, Side, SinkReply, Unsynced, WholePlace,
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio_util::task::TaskTracker;
use tradewind_contract::VerifyMode;
use tradewind_store::{
    Checksums, ErrorKind, Expect, ObjectDeletion, ObjectInfo, PartSource, PartTag, Payload, Precondition, PutOptions,
    Store, UploadId, Written, look_at_written, may_be_md5,
};
use tradewind_wire::Fault;

/// Objects of one bundle that are written at the same time; the store's throttle bounds all bundles together.
const BUNDLE_WRITES_MAX: usize = 32;

/// A system call under way counts as progress this often; well under the least patience with a store.
const SYSTEM_CALL_TICK: Duration = Duration::from_millis(500);

/// One destination store.
pub struct Target {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Tries and pace towards it.
    pub attempts: Attempts,
}

/// See the module's head.
pub struct Sink {
    /// By index of the job's targets.
    pub targets: Vec<Target>,
    /// Keys that may be written.
    pub scope: WriteScope,
    /// The job's key, when it is sealed.
    pub key: Option<Arc<SealKey>>,
    /// Requests that came over hops.
    pub taken: Taken,
    /// Parcels being worked on.
    pub tasks: TaskTracker,
}

impl Sink {
    /// Takes a parcel that crossed a hop; the answer is sealed if the job is.
    pub fn accept_coded(self: &Arc<Self>, coded: Coded, held: Held, reply: ReplyTo) {
        let owed = Owed::new(reply, coded.head.request);
        self.tasks.spawn(self.clone().accepting_coded(coded, held, owed));
    }

    /// The answer is owed before the first poll, so that a future that is dropped unpolled gives it too.
    pub(super) async fn accepting_coded(self: Arc<Self>, coded: Coded, held: Held, owed: Owed) {
        let request = coded.head.request;
        let answer = match coded.decode(self.key.as_deref(), Some(held)) {
            // Somebody may wait for this one and not for the first: to say `Lost` only makes the lead try again.
            Ok(parcel) if !self.taken.is_first(parcel.route, parcel.request) => {
                tracing::warn!(request = request.0, "a request came a second time; it is not taken");
                owed.reply().fail(request, Fault::Lost, "unavailable", "a request came to its sink a second time");
                return owed.settled();
            }
            Ok(parcel) => self.work(parcel).await,
            Err(failure) => SinkReply::Failed(failure),
        };
        owed.reply().sink(request, &answer, self.key.as_deref());
        owed.settled();
    }

    /// Takes a parcel from the source in this process.
    pub fn accept(self: &Arc<Self>, parcel: Parcel, reply: ReplyTo) {
        let owed = Owed::new(reply, parcel.request);
        self.tasks.spawn(self.clone().accepting(parcel, owed));
    }

    pub(super) async fn accepting(self: Arc<Self>, parcel: Parcel, owed: Owed) {
        let request = parcel.request;
        let answer = self.work(parcel).await;
        owed.reply().sink(request, &answer, None);
        owed.settled();
    }

    async fn work(&self, parcel: Parcel) -> SinkReply {
        let Parcel { manifest, data, held, .. } = parcel;
        let done = match manifest {
            Manifest::Bundle(entries) => Ok(SinkReply::Bundle(self.bundle(entries, data).await)),
            Manifest::Part { place, checksums } => self.part(place, data, checksums).await.map(SinkReply::Part),
            Manifest::CheckPart { place, part } => self.check_part(place, part).await.map(SinkReply::Part),
            Manifest::CopyPart { place, source } => self.copy_part(place, source).await.map(SinkReply::Part),
            Manifest::Open { target, key, options } => self.open(target, &key, &options).await,
            Manifest::Close(close) => self.close(*close).await.map(SinkReply::Closed),
            Manifest::Abort { target, key, upload } => {
                self.abort(target, &key, &upload).await.map(|()| SinkReply::Aborted)
            }
        };
        drop(held);
        done.unwrap_or_else(SinkReply::Failed)
    }

    async fn bundle(&self, entries: Vec<Entry>, data: Payload) -> Vec<Result<Placed, Failure>> {
        let mut segments = data.into_segments().into();
        let jobs: Vec<(Entry, Payload)> = entries
            .into_iter()
            .map(|entry| {
                let length = if let Entry::Write { size_bytes, .. } = &entry { *size_bytes } else { 0 };
                let payload = take(&mut segments, length);
                (entry, payload)
            })
            .collect();
        stream::iter(jobs)
            .map(|(entry, payload)| self.entry(entry, payload))
            .buffered(BUNDLE_WRITES_MAX)
            .collect()
            .await
    }

    async fn entry(&self, entry: Entry, payload: Payload) -> Result<Placed, Failure> {
        match entry {
            Entry::Failed(failure) => Err(failure),
            Entry::Copy { place, size_bytes, source, listed } => self.copy(place, size_bytes, source, listed).await,
            Entry::Check { place, size_bytes, unsynced } => self.check(place, size_bytes, unsynced).await,
            Entry::Write { size_bytes, .. } if payload.len() != size_bytes => {
                Err(Failure::mismatch("a bundle is shorter than its manifest says"))
            }
            Entry::Write { mut place, size_bytes, checksums, source_proof } => {
                let target = self.target(place.target, &place.key)?;
                place.options.expect = place.expect.take();
                let mut tries = 0;
                let put = target.run("put", &place.key, Some(&payload), |payload| {
                    tries += 1;
                    target.store.put(&place.key, payload, &checksums, &place.options)
                });
                let written = match put.await {
                    Ok(written) => written,
                    Err(failure) => {
                        let (checksums, payload, again) = (&checksums, Some(&payload), place.again || tries > 1);
                        let wanted = Wanted { size_bytes, checksums, payload, parts: &[], again };
                        self.unless_met(target, &place, wanted, failure).await?
                    }
                };
                let computed = with_md5(checksums, &written.checksums, &payload);
                let written = self.looked_at(target, &place.key, size_bytes, &computed, written, place.verify).await?;
                let computed = with_md5(computed, &written.checksums, &payload);
                let target_proof = self.prove(target, &place, &computed, &written).await?;
                let unsynced = target.unsynced(&place.options, &computed);
                Ok(Placed { written, source_proof, target_proof, size_bytes, unsynced })
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
        let mut tries = 0;
        let copy = target.working("copy", &place.key, size_bytes, || {
            tries += 1;
            target.store.copy(&place.key, &source, &place.options)
        });
        let written = match copy.await {
            Ok(written) => written,
            Err(failure) => {
                let again = place.again || tries > 1;
                let wanted = Wanted { size_bytes, checksums: &listed, payload: None, parts: &[], again };
                self.unless_met(target, &place, wanted, failure).await?
            }
        };
        let written = self.looked_at(target, &place.key, size_bytes, &listed, written, VerifyMode::Auto).await?;
        let agrees = listed.plausible(size_bytes).agrees_with(&written.checksums.plausible(size_bytes));
        if agrees == Some(false) {
            let why = "the store's copy has another checksum than the original";
            return Err(self.take_back(target, &place.key, Precondition::written(&written), why).await);
        }
        let same_tag = source.condition.etag.as_deref().is_some_and(|tag| {
            let is_constant = u128::from_str_radix(tag, 16).is_ok_and(|md5| !may_be_md5(md5, size_bytes));
            written.etag.as_deref() == Some(tag) && !is_constant
        });
        let target_proof = if agrees == Some(true) || same_tag { Proof::StoreCopy } else { Proof::Length };
        let unsynced = target.unsynced(&place.options, &listed);
        Ok(Placed { written, source_proof: Proof::StoreCopy, target_proof, size_bytes, unsynced })
    }

    /// Returns whether an object of an earlier run survived. One that the machine took since it was last started is in
    /// its memory at least; any other is read back.
    async fn check(&self, place: WholePlace, size_bytes: u64, unsynced: Unsynced) -> Result<Placed, Failure> {
        let target = self.target(place.target, &place.key)?;
        let lost = |why: &str| Failure::lost(format!("{}/{}: {why}", target.store.url(), place.key));
        if target.store.volatile_boot() != Some(&unsynced.boot) {
            let now = target.run("head", &place.key, None, |_| target.store.head(&place.key)).await;
            if now.map(|now| now.size_bytes) != Ok(size_bytes) {
                return Err(lost("it is not there any more, or has another length"));
            }
            let (read, _) = self.read_back(target, &place.key, &Precondition::default()).await?;
            if size_bytes > 0 && read.agrees_with(&unsynced.checksums) != Some(true) {
                return Err(lost("it does not have the bytes that were written"));
            }
        }
        if place.options.durable {
            target.run("sync", &place.key, None, |_| target.store.sync(&place.key)).await?;
        }
        let unsynced = target.unsynced(&place.options, &unsynced.checksums);
        let (source_proof, target_proof) = (Proof::Length, Proof::Length);
        let now = target.run("head", &place.key, None, |_| target.store.head(&place.key)).await;
        let now = now.map_err(|_| lost("it is not there any more"))?;
        let written = written_as(now);
        Ok(Placed { written, source_proof, target_proof, size_bytes, unsynced })
    }

    async fn part(&self, place: PartPlace, data: Payload, checksums: Checksums) -> Result<PartTag, Failure> {
        let target = self.target(place.target, &place.key)?;
        let size_bytes = data.len();
        let tag = target
            .run("put part", &place.key, Some(&data), |data| {
                target.store.put_part(&place.key, &place.upload, place.part, place.offset, data, &checksums)
            })
            .await?;
        if with_md5(checksums, &tag.checksums, &data).agrees_with(&tag.checksums) == Some(false) {
            return Err(Failure::mismatch(format!("part {} of {} is not what was sent", place.part, place.key)));
        }
        Ok(PartTag { part: place.part, size_bytes, tag: tag.tag, checksums })
    }

    /// Returns whether a part of an earlier run survived.
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
    }

    async fn open(&self, target: u16, key: &str, options: &PutOptions) -> Result<SinkReply, Failure> {
        let target = self.target(target, key).map_err(|failure| failure.leaving(Leaves::NoUpload))?;
        let mut tries = 0;
        let opened = target.run("open upload", key, None, |_| {
            tries += 1;
            target.store.open_upload(key, options)
        });
        match opened.await {
            Ok(upload) => Ok(SinkReply::Opened { upload, asked_again: tries > 1 }),
            Err(failure) if tries == 1 && failure.is_plain_refusal() => Err(failure.leaving(Leaves::NoUpload)),
            Err(failure) => Err(failure),
        }
    }

    async fn abort(&self, target: u16, key: &str, upload: &UploadId) -> Result<(), Failure> {
        let target = self.target(target, key)?;
        target.run("abort upload", key, None, |_| target.store.abort_upload(key, upload)).await
    }

    async fn close(&self, close: Close) -> Result<Placed, Failure> {
        let Close { mut place, upload, parts, size_bytes, checksums, source_proof, sweep_since_unix_ms } = close;
        let target = self.target(place.target, &place.key)?;
        place.options.expect = place.expect.take();
        let mut tries = 0;
        let complete = target.working("complete upload", &place.key, size_bytes, || {
            tries += 1;
            target.store.complete_upload(&place.key, &upload, &parts, &checksums, &place.options)
        });
        let written = match complete.await {
            Ok(written) => written,
            Err(failure) if failure.fault == Fault::UploadGone => {
                match self.already_there(target, &place.key, &parts, size_bytes, &checksums).await {
                    Some(written) => written,
                    None => {
                        // It may be there still, without some of its parts. A failure here is found by `jobs cancel`.
                        drop(self.abort(place.target, &place.key, &upload).await);
                        return Err(failure);
                    }
                }
            }
            Err(failure) => {
                let (checksums, again) = (&checksums, place.again || tries > 1);
                let wanted = Wanted { size_bytes, checksums, payload: None, parts: &parts, again };
                self.unless_met(target, &place, wanted, failure).await?
            }
        };
        if let Some(since) = sweep_since_unix_ms {
            self.sweep(target, &place.key, since).await;
        }
        let written = self.looked_at(target, &place.key, size_bytes, &checksums, written, place.verify).await?;
        let proven = self.prove(target, &place, &checksums, &written).await?;
        let by_parts =
            proven == Proof::Length && parts_md5_tag(&parts).is_some_and(|tag| written.etag.as_deref() == Some(&tag));
        let target_proof = if by_parts { Proof::PartsMd5 } else { proven };
        let unsynced = target.unsynced(&place.options, &checksums);
        Ok(Placed { written, source_proof, target_proof, size_bytes, unsynced })
    }

    /// An upload that is gone may have been completed by a try whose answer was lost.
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

    /// Aborts what earlier tries to open this key have left. What fails here is found by `jobs cancel`.
    async fn sweep(&self, target: &Target, key: &str, since_unix_ms: i64) {
        let Ok(pending) = target.run("list uploads", key, None, |_| target.store.pending_uploads(key)).await else {
            return;
        };
        for orphan in pending.iter().filter(|pending| pending.opened_unix_ms >= since_unix_ms) {
            drop(target.run("abort upload", key, None, |_| target.store.abort_upload(key, &orphan.upload)).await);
        }
    }

    /// Returns the facts about an object that the store acknowledged. If the answer states nothing to compare with
    /// `computed`, the object is asked for, for its length at least. One that is missing, replaced or of another length
    /// is a failure.
    async fn looked_at(
        &self,
        target: &Target,
        key: &str,
        size_bytes: u64,
        computed: &Checksums,
        mut written: Written,
        verify: VerifyMode,
    ) -> Result<Written, Failure> {
        let is_vouched_for = written.size_bytes.is_some() || computed.agrees_with(&written.checksums).is_some();
        if !is_vouched_for || verify == VerifyMode::Read {
            let look = |_| look_at_written(target.store.as_ref(), key, &written, computed);
            written = match target.run("head", key, None, look).await {
                Err(failure) if failure.kind == "overwritten" && verify == VerifyMode::Read => {
                    self.settled(target, key, computed).await?.ok_or(failure)?
                }
                looked => looked?,
            };
        }
        match written.size_bytes.filter(|found| *found != size_bytes) {
            None => Ok(written),
            Some(found) => {
                let why = format!("the store has {found} bytes of it, not {size_bytes}");
                Err(self.take_back(target, key, Precondition::written(&written), &why).await)
            }
        }
    }

    /// The object that the store has, if it has the bytes that were sent, although its ETag is another than the store said
    /// when it was written. They are read back.
    async fn settled(&self, target: &Target, key: &str, computed: &Checksums) -> Result<Option<Written>, Failure> {
        let now = target.run("head", key, None, |_| target.store.head(key)).await?;
        let (read, _) = self.read_back(target, key, &Precondition::exact(&now)).await?;
        Ok((computed.agrees_with(&read) == Some(true)).then(|| written_as(now)))
    }

    /// Holds what was computed against what the store says it has; reads back where it says nothing and the job wants it.
    async fn prove(
        &self,
        target: &Target,
        place: &WholePlace,
        computed: &Checksums,
        written: &Written,
    ) -> Result<Proof, Failure> {
        match Proof::compare(computed, &written.checksums) {
            Err(Differs) => {
                let why = "the store states another checksum than was sent";
                Err(self.take_back(target, &place.key, Precondition::written(written), why).await)
            }
            Ok(Proof::Length) if place.verify == VerifyMode::Read => {
                let (read, info) = self.read_back(target, &place.key, &Precondition::written(written)).await?;
                match computed.agrees_with(&read) {
                    Some(true) => Ok(Proof::ReadBack),
                    // Parts that the store copied itself, without a word of their checksums.
                    None => Ok(Proof::Length),
                    Some(false) => {
                        let why = "what was read back is not what was sent";
                        Err(self.take_back(target, &place.key, Precondition::exact(&info), why).await)
                    }
                }
            }
            Ok(proof) => Ok(proof),
        }
    }

    /// Checksums of the object that was `written`, and what the store says of it. Another writer's object is not read.
    async fn read_back(
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
        let url = format!("{}/{key}", target.store.url());
        let describe = Describe { operation: "read back", url: &url };
        let read = target.attempts.run(describe, Patience::Transfer, &progress, once).await;
        read.map_err(|error| match error.kind {
            ErrorKind::PreconditionFailed | ErrorKind::NotFound => Failure::overwritten(&url),
            _ => Failure::of_store(&error, Side::Target),
        })
    }

    /// Removes an object that is wrong, so that nobody takes it for good. Another writer's object stays.
    async fn take_back(&self, target: &Target, key: &str, wrong: Precondition, why: &str) -> Failure {
        let url = format!("{}/{key}", target.store.url());
        if wrong.is_any() {
            let message = format!("{url}: {why}; it stays, because the store does not say which one it is");
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
                "it has been replaced by another writer, whose object stays".to_owned()
            }
            Ok(Some(Err(error))) => format!("it could not be removed: {error}"),
            Ok(None) => "it could not be removed".to_owned(),
            Err(failure) => format!("it could not be removed: {}", failure.message),
        };
        Failure::mismatch(format!("{url}: {why}; {then}")).leaving(leaves)
    }

    /// The destination, if this job may write `key` there.
    fn target(&self, index: u16, key: &str) -> Result<&Target, Failure> {
        self.scope.check(index, key)?;
        let missing =
            || Failure::new(Fault::Permanent, "configuration", format!("this sink has no destination {index}"));
        self.targets.get(usize::from(index)).ok_or_else(missing)
    }
}

impl Target {
    /// Tries a request. `payload` is the body it sends, whose progress says whether it still moves.
    pub(super) async fn run<T, F>(
        &self,
        operation: &'static str,
        key: &str,
        payload: Option<&Payload>,
        request: impl FnMut(Payload) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = tradewind_store::Result<T>>,
    {
        self.run_with(operation, key, Patience::Transfer, payload, request).await
    }

    /// Tries a request that lets the store work by itself, on so many bytes.
    async fn working<T, F>(
        &self,
        operation: &'static str,
        key: &str,
        bytes: u64,
        mut request: impl FnMut() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = tradewind_store::Result<T>>,
    {
        self.run_with(operation, key, Patience::Work { bytes }, None, |_| request()).await
    }

    async fn run_with<T, F>(
        &self,
        operation: &'static str,
        key: &str,
        patience: Patience,
        payload: Option<&Payload>,
        mut request: impl FnMut(Payload) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = tradewind_store::Result<T>>,
    {
        let url = format!("{}/{key}", self.store.url());
        let progress = Arc::new(AtomicU64::new(0));
        let body = payload.map(|payload| payload.clone().with_progress(progress.clone())).unwrap_or_default();
        let is_local = self.store.volatile_boot().is_some();
        let once = || {
            let request = request(body.clone());
            async { if is_local { waited_for(&progress, request).await } else { request.await } }
        };
        self.attempts
            .run(Describe { operation, url: &url }, patience, &progress, once)
            .await
            .map_err(|error| Failure::of_store(&error, Side::Target))
    }

    /// The part of a successful write that a power loss could undo.
    fn unsynced(&self, options: &PutOptions, checksums: &Checksums) -> Option<Unsynced> {
        let boot = self.store.volatile_boot().filter(|_| !options.durable)?;
        Some(Unsynced { boot: boot.to_owned(), checksums: *checksums })
    }
}

/// Counts a wait as progress: a system call cannot be taken back, so it is never given up and made a second time. A sync
/// of a large file may take minutes.
async fn waited_for<T>(progress: &AtomicU64, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        if let Ok(done) = tokio::time::timeout(SYSTEM_CALL_TICK, &mut work).await {
            return done;
        }
        progress.fetch_add(1, Ordering::Relaxed);
    }
}

/// The next `bytes` of a run of segments.
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

/// An object that was written before, as the store describes it now.
pub(super) fn written_as(now: ObjectInfo) -> Written {
    let ObjectInfo { etag, version, checksums, file, size_bytes, .. } = now;
    Written { etag, version, checksums, file, size_bytes: Some(size_bytes) }
}

/// Whether what was computed is what the store states, in all that both say. `payload` has the bytes, if they are here.
pub(super) fn hold_same(computed: &Checksums, stated: &Checksums, payload: Option<&Payload>) -> bool {
    let computed = payload.map_or(*computed, |payload| with_md5(*computed, stated, payload));
    computed.agrees_with(stated) == Some(true)
}

/// Adds the MD5 where it is the only thing that the store states.
fn with_md5(computed: Checksums, stated: &Checksums, payload: &Payload) -> Checksums {
    if computed.agrees_with(stated).is_none() && stated.md5.is_some() {
        return Checksums { md5: Some(md5_of(payload.segments())), ..computed };
    }
    computed
}

/// The ETag that S3 gives to these parts: MD5 of the parts' MD5s, and their number. `None` if a part's tag is no MD5.
pub(super) fn parts_md5_tag(parts: &[PartTag]) -> Option<String> {
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

    #[test]
    fn bundles_are_cut_where_the_manifest_says() {
        let mut segments = vec![Bytes::from_static(b"abc"), Bytes::from_static(b"defg")].into();
        assert_eq!(take(&mut segments, 5).segments(), [Bytes::from_static(b"abc"), Bytes::from_static(b"de")]);
        assert_eq!(take(&mut segments, 0).len(), 0);
        assert_eq!(take(&mut segments, 9).len(), 2);
    }
}
