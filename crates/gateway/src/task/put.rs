//! `put`: writes stdin to one object.
//!
//! Input of up to one chunk is one request. Longer input becomes a multipart upload, read in order, with several parts
//! sent concurrently. The length is unknown beforehand, so parts grow with their number. Where all parts must have one
//! size they cannot grow, and the length is limited to chunk × parts.

use super::error::{TaskError, TaskResult};
use super::streams::Streams;
use crate::attributes::{Inherited, locked, set_by};
use crate::failure::{human_bytes, object_url};
use crate::reading::Summing;
use crate::retry::RetryPolicy;
use bytes::{Bytes, BytesMut};
use serde::Serialize;
use std::io::{self, Read};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tradewind_contract::{AttributeRules, ObjectLock, Outcome};
use tradewind_store::{
    Attributes, Checksums, Error, ErrorKind, ObjectDeletion, PartTag, Payload, Precondition, PutOptions, Result, Store,
    StoreLimits, UploadId, Written, look_at_written,
};

/// Most bytes of parts in memory; at the limit stdin is not read. A single longer part is sent alone.
const MEMORY_MIB_MAX: u32 = 256;
/// Parts do not grow beyond this size.
const GROWN_PART_BYTES_MAX: u64 = 128 << 20;
/// Parts of one size before the size doubles.
const PARTS_OF_ONE_SIZE: u32 = 1000;
/// Length of one read from stdin.
const SEGMENT_BYTES: usize = 1 << 20;
/// Most reads ahead of demand.
const SEGMENTS_AHEAD_MAX: usize = 4;

/// Writes one object.
pub(super) struct Put {
    pub(super) store: Arc<dyn Store>,
    pub(super) key: String,
    pub(super) chunk_bytes: u64,
    pub(super) storage_class: Option<String>,
    pub(super) object_lock: ObjectLock,
    pub(super) attributes: AttributeRules,
    pub(super) json: bool,
    pub(super) policy: RetryPolicy,
    pub(super) cancel: CancellationToken,
}

#[derive(Serialize)]
struct Line<'a> {
    url: &'a str,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<&'a str>,
    /// `destination_checksum` if the store states the checksum that we computed, else `none`.
    proof: &'static str,
}

/// The object that was written, with our own checksums.
struct Sent {
    written: Written,
    ours: Checksums,
    bytes: u64,
}

impl Put {
    pub(super) async fn run(&self, streams: &mut Streams) -> TaskResult {
        if !self.object_lock.is_none() {
            self.policy.run("lock", self.store.url(), || self.store.check_lock()).await?;
        }
        let input = streams.input.take().ok_or_else(|| io::Error::other("stdin is already in use"))?;
        let mut input = Incoming::read(input)?;
        let sizes = PartSizes::new(self.chunk_bytes, &self.store.limits());
        let first = self.unless_cancelled(input.take(sizes.of(1))).await??;
        let sent = if self.unless_cancelled(input.is_at_end()).await?? {
            self.unless_cancelled_writing(self.send_whole(first)).await??
        } else {
            self.send_parts(first, &mut input, &sizes).await?
        };
        let sent = self.looked_at(sent).await?;
        self.prove(&sent, streams).await
    }

    async fn unless_cancelled<T>(&self, work: impl Future<Output = T>) -> Result<T, TaskError> {
        let interrupted = || TaskError::ended(Outcome::Interrupted, "interrupted; nothing was written", None);
        self.cancel.run_until_cancelled(work).await.ok_or_else(interrupted)
    }

    /// As [`Put::unless_cancelled`] for a request that makes the object: the store may have carried it out.
    async fn unless_cancelled_writing<T>(&self, work: impl Future<Output = T>) -> Result<T, TaskError> {
        let interrupted = || {
            let url = object_url(self.store.as_ref(), &self.key);
            let message = format!("interrupted; {url} may have been written, with all of the input");
            TaskError::ended(Outcome::Interrupted, message, Some("look at it with `tradewind stat`"))
        };
        self.cancel.run_until_cancelled(work).await.ok_or_else(interrupted)
    }

    fn options(&self, size_bytes: Option<u64>) -> PutOptions {
        let inherited = Inherited::of(&self.attributes, &self.key, self.store.as_ref());
        let attributes = inherited.complete(&set_by(&self.attributes, self.store.as_ref()), &Attributes::default());
        PutOptions {
            attributes: attributes.into(),
            storage_class: self.storage_class.clone(),
            lock: locked(self.object_lock),
            size_bytes,
            ..PutOptions::default()
        }
    }

    async fn send_whole(&self, payload: Payload) -> Result<Sent, TaskError> {
        let mut ours = Checksums::of_segments(payload.segments());
        let options = self.options(Some(payload.len()));
        let put = || self.store.put(&self.key, payload.clone(), &ours, &options);
        let written = self.policy.run("put", self.store.url(), put).await?;
        let mut summing = Summing::against(&written.checksums);
        payload.segments().iter().for_each(|segment| summing.update(segment));
        ours = summing.finish();
        Ok(Sent { written, ours, bytes: payload.len() })
    }

    /// Opens an upload and ensures that it ends: completed, or aborted after any failure.
    async fn send_parts(&self, first: Payload, input: &mut Incoming, sizes: &PartSizes) -> Result<Sent, TaskError> {
        let options = self.options(None);
        // Must not be interrupted: an upload whose id was not received could not be aborted.
        let open = || self.store.open_upload(&self.key, &options);
        let upload = self.policy.run("open upload", self.store.url(), open).await?;
        let mut parts = Parts {
            upload: upload.clone(),
            memory: Arc::new(Semaphore::new(MEMORY_MIB_MAX as usize)),
            under_way: JoinSet::new(),
            sent: Vec::new(),
        };
        let sent = self.unless_cancelled(self.send_each_part(&mut parts, first, input, sizes)).await;
        let sent = match sent {
            Ok(Ok((ours, bytes))) => {
                let tags: Vec<PartTag> = parts.sent.iter().map(|(tag, _)| tag.clone()).collect();
                self.unless_cancelled_writing(self.complete(&upload, &tags, &ours, bytes)).await
            }
            Ok(Err(error)) => Err(error),
            Err(interrupted) => Err(interrupted),
        };
        match sent {
            Ok(Ok(sent)) => Ok(sent),
            Ok(Err(error)) | Err(error) => {
                // A part that arrived after the abort would stay in the store.
                parts.under_way.shutdown().await;
                self.abort(&upload).await?;
                Err(error)
            }
        }
    }

    async fn abort(&self, upload: &UploadId) -> Result<(), TaskError> {
        let abort = || self.store.abort_upload(&self.key, upload);
        match self.policy.run("abort upload", self.store.url(), abort).await {
            Err(error) if error.kind != ErrorKind::UploadNotFound => {
                let message = format!("an unfinished upload remains: {error}");
                Err(TaskError::ended(Outcome::Failed, message, Some("abort it in the store's console")))
            }
            _ => Ok(()),
        }
    }

    async fn send_each_part(
        &self,
        parts: &mut Parts,
        first: Payload,
        input: &mut Incoming,
        sizes: &PartSizes,
    ) -> Result<(Checksums, u64), TaskError> {
        let (mut number, mut offset, mut payload) = (1, 0, first);
        loop {
            let length = payload.len();
            parts.send(self, number, offset, payload).await?;
            offset += length;
            number += 1;
            if input.is_at_end().await? {
                break;
            }
            if number > sizes.parts_max || offset >= sizes.object_bytes_max {
                let most = human_bytes(offset);
                let message = format!("stdin is longer than {most}, the maximum with this chunk size");
                return Err(TaskError::ended(Outcome::Failed, message, Some("pass a larger --chunk-size")));
            }
            payload = input.take(sizes.of(number)).await?;
        }
        parts.finish().await?;
        Ok((parts.combined(), offset))
    }

    async fn complete(
        &self,
        upload: &UploadId,
        tags: &[PartTag],
        ours: &Checksums,
        bytes: u64,
    ) -> Result<Sent, TaskError> {
        let options = self.options(Some(bytes));
        let complete = || self.store.complete_upload(&self.key, upload, tags, ours, &options);
        let written = match self.policy.working(bytes).run("complete upload", self.store.url(), complete).await {
            Ok(written) => written,
            // The answer may have been lost after the store completed the upload: then the upload is gone and the
            // object exists.
            Err(error) if error.kind == ErrorKind::UploadNotFound => self.written_already(ours, error).await?,
            Err(error) => return Err(error.into()),
        };
        Ok(Sent { written, ours: *ours, bytes })
    }

    async fn written_already(&self, ours: &Checksums, error: Error) -> Result<Written, TaskError> {
        let head = || self.store.head(&self.key);
        match self.policy.run("head", self.store.url(), head).await {
            Ok(info) if info.checksums.agrees_with(ours) == Some(true) => {
                let (etag, version, size_bytes) = (info.etag, info.version, Some(info.size_bytes));
                Ok(Written { etag, version, checksums: info.checksums, file: info.file, size_bytes })
            }
            _ => Err(error.into()),
        }
    }

    /// Asks for the object if the answer to the write states nothing that can be compared.
    async fn looked_at(&self, sent: Sent) -> Result<Sent, TaskError> {
        if sent.written.size_bytes.is_some() || sent.written.checksums.agrees_with(&sent.ours).is_some() {
            return Ok(sent);
        }
        let look = || look_at_written(self.store.as_ref(), &self.key, &sent.written, &sent.ours);
        let written = self.policy.run("head", self.store.url(), look).await?;
        Ok(Sent { written, ..sent })
    }

    /// Compares our checksum with what the store states. A mismatching object is deleted if possible.
    async fn prove(&self, sent: &Sent, streams: &mut Streams) -> TaskResult {
        let url = object_url(self.store.as_ref(), &self.key);
        if let Some(found) = sent.written.size_bytes.filter(|found| *found != sent.bytes) {
            let fate = self.take_back(Precondition::written(&sent.written)).await;
            let message = format!("{url} has {found} bytes at the store, but {} were sent; {fate}", sent.bytes);
            return Err(TaskError::ended(Outcome::Mismatch, message, Some("write it again")));
        }
        let proof = match sent.written.checksums.agrees_with(&sent.ours) {
            Some(true) => "destination_checksum",
            None => "none",
            Some(false) => {
                let fate = self.take_back(Precondition::written(&sent.written)).await;
                let message = format!("{url} does not have the checksum of the bytes sent; {fate}");
                return Err(TaskError::ended(Outcome::Mismatch, message, Some("write it again")));
            }
        };
        if self.json {
            streams.json_line(&Line { url: &url, bytes: sent.bytes, etag: sent.written.etag.as_deref(), proof })?;
        } else {
            let proven = if proof == "none" { "the store states no checksum" } else { "checksum proven" };
            streams.say(&format!("{} written to {url}; {proven}", human_bytes(sent.bytes)));
        }
        Ok(())
    }
}

impl Put {
    /// Deletes the written object unless another writer has replaced it; returns what happened, in words.
    async fn take_back(&self, wrong: Precondition) -> String {
        if wrong.is_any() {
            return "it was kept, because the store does not state its version".to_owned();
        }
        let deletion = vec![ObjectDeletion { key: self.key.clone(), condition: wrong }];
        let deleted = crate::lead::deletion::delete_objects(self.store.as_ref(), deletion, self.policy).await;
        let left = deleted.into_iter().filter_map(|(_, verdict)| verdict.err()).next();
        left.map_or("it was deleted".to_owned(), |error| format!("it could not be deleted: {error}"))
    }
}

/// Parts being sent.
struct Parts {
    upload: UploadId,
    memory: Arc<Semaphore>,
    under_way: JoinSet<Result<(PartTag, Checksums)>>,
    sent: Vec<(PartTag, Checksums)>,
}

impl Parts {
    /// Starts to send a part once there is memory for it.
    async fn send(&mut self, put: &Put, number: u32, offset: u64, payload: Payload) -> Result<(), TaskError> {
        let mib = u32::try_from(payload.len().div_ceil(1 << 20)).unwrap_or(MEMORY_MIB_MAX).clamp(1, MEMORY_MIB_MAX);
        let memory = self.memory.clone();
        let mut room = std::pin::pin!(memory.acquire_many_owned(mib));
        let room = loop {
            tokio::select! {
                room = &mut room => break room.map_err(io::Error::other)?,
                Some(part) = self.under_way.join_next() => self.keep(part)?,
            }
        };
        while let Some(part) = self.under_way.try_join_next() {
            self.keep(part)?;
        }
        let (store, key, policy) = (put.store.clone(), put.key.clone(), put.policy);
        let upload = self.upload.clone();
        self.under_way.spawn(async move {
            let _room = room;
            let ours = Checksums::of_segments(payload.segments());
            let send = || store.put_part(&key, &upload, number, offset, payload.clone(), &ours);
            Ok((policy.run("put part", store.url(), send).await?, ours))
        });
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), TaskError> {
        while let Some(part) = self.under_way.join_next().await {
            self.keep(part)?;
        }
        self.sent.sort_by_key(|(tag, _)| tag.part);
        Ok(())
    }

    fn keep(&mut self, part: Result<Result<(PartTag, Checksums)>, tokio::task::JoinError>) -> Result<(), TaskError> {
        self.sent.push(part.map_err(io::Error::other)??);
        Ok(())
    }

    fn combined(&self) -> Checksums {
        let parts = self.sent.iter();
        let empty = Checksums::of_segments(&[]);
        parts.fold(empty, |whole, (tag, ours)| Checksums::concat(&whole, ours, tag.size_bytes))
    }
}

/// The length of each part.
#[derive(Clone, Copy, Debug)]
struct PartSizes {
    first_bytes: u64,
    grown_bytes_max: u64,
    parts_max: u32,
    object_bytes_max: u64,
}

impl PartSizes {
    fn new(chunk_bytes: u64, limits: &StoreLimits) -> Self {
        let first_bytes =
            chunk_bytes.clamp(limits.part_bytes_min.max(1), limits.part_bytes_max.min(limits.put_bytes_max));
        let grown = GROWN_PART_BYTES_MAX.min(limits.part_bytes_max).max(first_bytes);
        let grown_bytes_max = if limits.equal_parts { first_bytes } else { grown };
        let (parts_max, object_bytes_max) = (limits.parts_max, limits.object_bytes_max);
        Self { first_bytes, grown_bytes_max, parts_max, object_bytes_max }
    }

    /// The length of part `number`, counted from 1: doubles every [`PARTS_OF_ONE_SIZE`] parts.
    fn of(&self, number: u32) -> u64 {
        let doublings = ((number - 1) / PARTS_OF_ONE_SIZE).min(32);
        self.first_bytes.saturating_mul(1 << doublings).min(self.grown_bytes_max)
    }
}

/// stdin, read by a separate thread, because a blocked read cannot be cancelled.
struct Incoming {
    segments: mpsc::Receiver<io::Result<Bytes>>,
    rest: Bytes,
}

impl Incoming {
    fn read(input: Box<dyn Read + Send>) -> io::Result<Self> {
        let (sender, segments) = mpsc::channel(SEGMENTS_AHEAD_MAX);
        std::thread::Builder::new().name("stdin".into()).spawn(move || read_segments(input, &sender))?;
        Ok(Self { segments, rest: Bytes::new() })
    }

    /// Returns the next bytes: as many as requested, or all that are left.
    async fn take(&mut self, bytes: u64) -> io::Result<Payload> {
        let mut segments = Vec::new();
        let mut missing = bytes;
        while missing > 0 && !self.is_at_end().await? {
            let length = missing.min(self.rest.len() as u64);
            missing -= length;
            // Limited to the bytes in memory.
            segments.push(self.rest.split_to(length as usize));
        }
        Ok(Payload::new(segments))
    }

    async fn is_at_end(&mut self) -> io::Result<bool> {
        while self.rest.is_empty() {
            match self.segments.recv().await {
                Some(segment) => self.rest = segment?,
                None => return Ok(true),
            }
        }
        Ok(false)
    }
}

fn read_segments(mut input: Box<dyn Read + Send>, sender: &mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let mut segment = BytesMut::zeroed(SEGMENT_BYTES);
        let mut filled = 0;
        let failed = loop {
            match input.read(&mut segment[filled..]) {
                Ok(0) => break None,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Some(error),
            }
            if filled == SEGMENT_BYTES {
                break None;
            }
        };
        segment.truncate(filled);
        let is_last = failed.is_some() || filled < SEGMENT_BYTES;
        let mut is_heard = filled == 0 || sender.blocking_send(Ok(segment.freeze())).is_ok();
        if let Some(error) = failed {
            is_heard = sender.blocking_send(Err(error)).is_ok();
        }
        if is_last || !is_heard {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(equal_parts: bool) -> StoreLimits {
        StoreLimits {
            part_bytes_min: 5 << 20,
            part_bytes_max: 5 << 30,
            parts_max: 10_000,
            put_bytes_max: 5 << 30,
            copy_bytes_max: 5 << 30,
            object_bytes_max: 5 << 40,
            key_bytes_max: 1024,
            delete_keys_max: 1000,
            equal_parts,
        }
    }

    #[test]
    fn parts_grow_to_a_ceiling_and_reach_far() {
        let sizes = PartSizes::new(16 << 20, &limits(false));
        assert_eq!((sizes.of(1), sizes.of(1000), sizes.of(1001)), (16 << 20, 16 << 20, 32 << 20));
        assert_eq!(sizes.of(10_000), GROWN_PART_BYTES_MAX);
        let reach: u64 = (1..=10_000).map(|number| sizes.of(number)).sum();
        assert!(reach > 900 << 30, "{reach}");
    }

    #[test]
    fn equal_parts_stay_equal_and_small_ones_are_lifted() {
        let sizes = PartSizes::new(1, &limits(true));
        assert_eq!((sizes.of(1), sizes.of(10_000)), (5 << 20, 5 << 20));
    }

    #[tokio::test]
    async fn input_is_cut_where_asked() {
        let bytes: Vec<u8> = (0..SEGMENT_BYTES + 5).map(|index| index as u8).collect();
        let mut input = Incoming::read(Box::new(io::Cursor::new(bytes.clone()))).unwrap();
        let first = input.take(SEGMENT_BYTES as u64 + 1).await.unwrap();
        assert_eq!(first.segments().concat(), bytes[..SEGMENT_BYTES + 1]);
        assert!(!input.is_at_end().await.unwrap());
        assert_eq!(input.take(100).await.unwrap().segments().concat(), bytes[SEGMENT_BYTES + 1..]);
        assert!(input.is_at_end().await.unwrap());
        assert!(input.take(100).await.unwrap().is_empty());
    }
}
