//! Stores in memory that keep every byte. Requests to them may fail, be slow, be applied twice, or be applied after
//! their caller has died.
//!
//! A request is applied at its time even if its caller no longer exists, as a server does with a request that it has
//! received. The oracle checks each change of the visible bytes, so a wrong byte is found as soon as it can be read.

use crate::buckets::{Object, Upload, md5_hex};
use crate::state::{Shared, State};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use rand::Rng;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tradewind_contract::StoreSpec;
use tradewind_gateway::stores::Stores;
use tradewind_store::{
    BucketIdentity, Checksums, Crcs, Download, Error, ErrorKind, Identity, ListPage, ListRequest, ObjectDeletion,
    ObjectInfo, PartSource, PartTag, Payload, PendingUpload, Precondition, PutOptions, Result, Store, StoreLimits,
    UploadId, Written,
};

/// Maximum duration of a slow request.
const SLOW_MS_MAX: u64 = 90_000;
/// Maximum length of a piece of a body.
const PIECE_BYTES_MAX: usize = 9_000;

/// The fate of one request.
#[derive(Clone, Copy)]
struct Fate {
    apply_ms: u64,
    answer_ms: Option<u64>,
    error_before: Option<ErrorKind>,
    error_after: bool,
    again_ms: Option<u64>,
    cancellable: bool,
}

impl State {
    fn fate(&mut self) -> Fate {
        let faults = self.buckets.faults;
        let mut fate = Fate {
            apply_ms: self.rng.random_range(1..20),
            answer_ms: Some(self.rng.random_range(1..20)),
            error_before: None,
            error_after: false,
            again_ms: None,
            cancellable: self.rng.random_bool(0.5),
        };
        if self.happens(faults.refused) {
            let kinds = [ErrorKind::Server, ErrorKind::SlowDown, ErrorKind::Connection, ErrorKind::Timeout];
            fate.error_before = Some(kinds[self.rng.random_range(0..kinds.len())]);
        } else if self.happens(faults.answer_lost) {
            fate.error_after = true;
        } else if self.happens(faults.slow) {
            fate.apply_ms = self.rng.random_range(1..SLOW_MS_MAX);
            let answer_ms = self.rng.random_range(1..SLOW_MS_MAX);
            fate.answer_ms = self.rng.random_bool(0.5).then_some(answer_ms);
        } else if self.happens(faults.twice) {
            fate.again_ms = Some(self.rng.random_range(1..SLOW_MS_MAX));
        }
        fate
    }
}

/// Access of one host to one bucket.
#[derive(Debug)]
pub(crate) struct SimulatedStore {
    shared: Shared,
    bucket: usize,
    url: String,
}

/// Opens simulated stores: `s3://source`, `s3://target-1`, ….
#[derive(Debug)]
pub(crate) struct SimulatedStores(pub Shared);

impl Stores for SimulatedStores {
    fn open(&self, spec: &StoreSpec) -> Result<Arc<dyn Store>> {
        let number = spec.url.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
        Ok(Arc::new(SimulatedStore { shared: self.0.clone(), bucket: number.unwrap_or(0), url: spec.url.clone() }))
    }
}

impl SimulatedStore {
    fn error(&self, kind: ErrorKind, operation: &'static str, key: &str, message: &str) -> Error {
        Error::new(kind, operation, format!("{}/{key}", self.url), message)
    }

    /// Sends a request. `late` is true if the caller has stopped waiting when it is applied.
    async fn call<T, F>(&self, operation: &'static str, key: &str, apply: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&mut State, bool) -> Result<T> + Send + Sync + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let broken = self.error(ErrorKind::Connection, operation, key, "the answer was lost");
        {
            let mut state = self.shared.lock();
            state.activity += 1;
            let fate = state.fate();
            let refused =
                fate.error_before.map(|kind| self.error(kind, operation, key, "refused by the simulated store"));
            let what = format!("bucket {} {operation} {key}", self.bucket);
            let again = what.clone();
            let apply = Arc::new(apply);
            let repeat = apply.clone();
            state.after(
                fate.apply_ms,
                Box::new(move |state| {
                    if fate.cancellable && sender.is_closed() {
                        return;
                    }
                    state.trace(what);
                    let result = match refused {
                        Some(error) => Err(error),
                        None => apply(state, sender.is_closed() || fate.answer_ms.is_none()),
                    };
                    let result = if fate.error_after { Err(broken) } else { result };
                    // Without an answer the sender is kept, or the caller would notice.
                    let answer_ms = fate.answer_ms.unwrap_or(u64::MAX / 2);
                    state.after(answer_ms, Box::new(move |_| drop(sender.send(result))));
                }),
            );
            if let Some(again_ms) = fate.again_ms {
                let due = move |state: &mut State| {
                    state.trace(format!("again {again}"));
                    drop(repeat(state, true));
                };
                state.after(again_ms + fate.apply_ms, Box::new(due));
            }
        }
        match receiver.await {
            Ok(result) => result,
            Err(_) => std::future::pending().await,
        }
    }

    fn not_found(&self, operation: &'static str, key: &str) -> Error {
        self.error(ErrorKind::NotFound, operation, key, "no such object")
    }

    fn upload_gone(&self, operation: &'static str, key: &str) -> Error {
        self.error(ErrorKind::UploadNotFound, operation, key, "no such upload")
    }
}

impl State {
    /// Returns the checksums of what a store is given. The source's must come with it, with the CRC-32C where a store needs
    /// it, and those that the sink computed must be the same: there is no fault after which the sink may write anything else.
    fn checked(
        &mut self,
        (bucket, key): (usize, &str),
        data: &Bytes,
        (given, arrived): (&Checksums, &Checksums),
    ) -> Option<Checksums> {
        let sums = Checksums::of_segments(std::slice::from_ref(data));
        let is_given =
            given.crc64nvme.is_some() && (given.crc32c.is_some() || self.wanted_crcs(bucket) != Some(Crcs::Both));
        let agrees = |other: &Checksums| sums.agrees_with(&Checksums { md5: None, ..*other }) == Some(true);
        let is_right = is_given && agrees(given) && agrees(arrived);
        if !is_right {
            self.violation(format!("{key} was given to a store with wrong checksums, or without them"));
        }
        is_right.then_some(sums)
    }
}

fn whole(payload: &Payload) -> Bytes {
    payload.segments().concat().into()
}

#[async_trait]
impl Store for SimulatedStore {
    fn url(&self) -> &str {
        &self.url
    }

    fn identity(&self) -> Identity {
        Identity::Bucket(BucketIdentity { service: "simulated".to_owned(), bucket: self.url.clone(), decisive: true })
    }

    fn wanted_crcs(&self) -> Option<Crcs> {
        self.shared.lock().wanted_crcs(self.bucket)
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits {
            part_bytes_min: 1,
            part_bytes_max: 1 << 30,
            parts_max: 10_000,
            put_bytes_max: 1 << 30,
            copy_bytes_max: 0,
            object_bytes_max: 1 << 40,
            key_bytes_max: 1024,
            delete_keys_max: 5,
            equal_parts: false,
        }
    }

    async fn list_page(&self, request: &ListRequest) -> Result<ListPage> {
        let (bucket, request) = (self.bucket, request.clone());
        self.call("list", &request.prefix.clone(), move |state, _| Ok(state.page(bucket, &request))).await
    }

    async fn head(&self, key: &str) -> Result<ObjectInfo> {
        let (bucket, name, missing) = (self.bucket, key.to_owned(), self.not_found("head", key));
        self.call("head", key, move |state, _| {
            let object = state.buckets.list[bucket].objects.get(&name).ok_or(missing.clone())?;
            Ok(state.info(bucket, &name, object))
        })
        .await
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>, condition: &Precondition) -> Result<Download> {
        let (bucket, name, missing) = (self.bucket, key.to_owned(), self.not_found("get", key));
        let changed = self.error(ErrorKind::PreconditionFailed, "get", key, "the object has another ETag");
        let short = self.error(ErrorKind::Truncated, "get", key, "the object is shorter than the range");
        let condition = condition.clone();
        let answer = self.call("get", key, move |state, _| {
            let object = state.buckets.list[bucket].objects.get(&name).ok_or(missing.clone())?;
            let info = state.info(bucket, &name, object);
            if condition.difference(&info).is_some() {
                return Err(changed.clone());
            }
            let range = range.clone().unwrap_or(0..info.size_bytes);
            if range.end > info.size_bytes {
                return Err(short.clone());
            }
            let data = object.data.slice(range.start as usize..range.end as usize);
            let cut = state.buckets.faults.body_cut;
            let cut = state.happens(cut).then(|| (state.rng.random_range(0..=data.len()), state.rng.random_bool(0.5)));
            Ok((info, data, cut))
        });
        let (info, data, cut) = answer.await?;
        let truncated = self.error(ErrorKind::Truncated, "get", key, "the body ended early");
        let (shared, length) = (self.shared.clone(), cut.map_or(data.len(), |(length, _)| length));
        let pieces = futures::stream::unfold((data.slice(..length), cut), move |(mut rest, cut)| {
            let (shared, truncated) = (shared.clone(), truncated.clone());
            async move {
                if rest.is_empty() {
                    return match cut {
                        None => None,
                        Some((_, true)) => std::future::pending().await,
                        Some((_, false)) => Some((Err(truncated), (rest, None))),
                    };
                }
                let (bytes, pause_ms) = {
                    let mut state = shared.lock();
                    (state.rng.random_range(1..=PIECE_BYTES_MAX), state.rng.random_range(0..4))
                };
                if pause_ms > 0 {
                    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                }
                let piece = rest.split_to(bytes.min(rest.len()));
                Some((Ok(piece), (rest, cut)))
            }
        });
        Ok(Download { info, body: pieces.boxed() })
    }

    async fn put(&self, key: &str, payload: Payload, checksums: &Checksums, options: &PutOptions) -> Result<Written> {
        let (bucket, name, data, expect) = (self.bucket, key.to_owned(), whole(&payload), options.expect.clone());
        let unexpected = self.error(ErrorKind::PreconditionFailed, "put", key, "something else is there");
        let damaged = self.error(ErrorKind::ChecksumMismatch, "put", key, "the bytes do not match their checksum");
        let (given, arrived) = (*checksums, payload.checksums(Crcs::Crc64));
        self.call("put", key, move |state, _| {
            state.checked((bucket, &name), &data, (&given, &arrived)).ok_or(damaged.clone())?;
            if state.is_unexpected(bucket, &name, expect.as_ref()) {
                return Err(unexpected.clone());
            }
            let object = Object { etag: md5_hex(&data), data: data.clone(), modified_unix_ms: state.unix_ms() };
            Ok(state.becomes_visible(bucket, &name, object, expect.is_some()))
        })
        .await
    }

    async fn open_upload(&self, key: &str, _options: &PutOptions) -> Result<UploadId> {
        let (bucket, name) = (self.bucket, key.to_owned());
        self.call("open", key, move |state, late| {
            let id = format!("upload-{}", state.buckets.next_upload);
            state.buckets.next_upload += 1;
            let opened_unix_ms = state.unix_ms();
            let upload = Upload { key: name.clone(), opened_unix_ms, late, parts: BTreeMap::new() };
            state.buckets.list[bucket].uploads.insert(id.clone(), upload);
            Ok(UploadId(id))
        })
        .await
    }

    async fn put_part(
        &self,
        key: &str,
        upload: &UploadId,
        part: u32,
        _offset: u64,
        payload: Payload,
        checksums: &Checksums,
    ) -> Result<PartTag> {
        let (bucket, name, id, data) = (self.bucket, key.to_owned(), upload.0.clone(), whole(&payload));
        let (given, arrived) = (*checksums, payload.checksums(Crcs::Crc64));
        let gone = self.upload_gone("put part", key);
        let damaged = self.error(ErrorKind::ChecksumMismatch, "put part", key, "the bytes do not match their checksum");
        self.call("put part", key, move |state, _| {
            let checksums = state.checked((bucket, &name), &data, (&given, &arrived)).ok_or(damaged.clone())?;
            let upload = state.buckets.list[bucket].uploads.get_mut(&id).ok_or(gone.clone())?;
            let tag = PartTag { part, size_bytes: data.len() as u64, tag: md5_hex(&data), checksums };
            upload.parts.insert(part, (data.clone(), tag.clone()));
            Ok(tag)
        })
        .await
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[PartTag],
        _checksums: &Checksums,
        options: &PutOptions,
    ) -> Result<Written> {
        let (bucket, name, id, parts) = (self.bucket, key.to_owned(), upload.0.clone(), parts.to_vec());
        let expect = options.expect.clone();
        let unexpected = self.error(ErrorKind::PreconditionFailed, "complete upload", key, "something else is there");
        let gone = self.upload_gone("complete upload", key);
        let other = self.error(ErrorKind::BadRequest, "complete upload", key, "a part is not the one that was named");
        self.call("complete", key, move |state, _| {
            let upload = state.buckets.list[bucket].uploads.get(&id).ok_or(gone.clone())?;
            let mut data = Vec::new();
            let mut tags = String::new();
            for part in &parts {
                let known = upload.parts.get(&part.part).filter(|(_, tag)| tag.tag == part.tag);
                let (bytes, tag) = known.ok_or(other.clone())?;
                data.extend_from_slice(bytes);
                tags.push_str(&tag.tag);
            }
            if state.is_unexpected(bucket, &name, expect.as_ref()) {
                return Err(unexpected.clone());
            }
            state.buckets.list[bucket].uploads.remove(&id);
            let md5s: Vec<u8> =
                (0..tags.len()).step_by(2).filter_map(|at| u8::from_str_radix(&tags[at..at + 2], 16).ok()).collect();
            let etag = format!("{}-{}", md5_hex(&md5s), parts.len());
            let object = Object { etag, data: data.into(), modified_unix_ms: state.unix_ms() };
            Ok(state.becomes_visible(bucket, &name, object, expect.is_some()))
        })
        .await
    }

    async fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        let (bucket, id) = (self.bucket, upload.0.clone());
        self.call("abort", key, move |state, _| {
            state.buckets.list[bucket].uploads.remove(&id);
            Ok(())
        })
        .await
    }

    async fn pending_uploads(&self, key: &str) -> Result<Vec<PendingUpload>> {
        let (bucket, name) = (self.bucket, key.to_owned());
        self.call("list uploads", key, move |state, _| {
            let of_key = state.buckets.list[bucket].uploads.iter().filter(|(_, upload)| upload.key == name);
            let pending = of_key.map(|(id, upload)| PendingUpload {
                upload: UploadId(id.clone()),
                opened_unix_ms: upload.opened_unix_ms,
            });
            Ok(pending.collect())
        })
        .await
    }

    fn can_copy_from(&self, _source: &dyn Store) -> bool {
        false
    }

    async fn copy(&self, key: &str, _source: &PartSource, _options: &PutOptions) -> Result<Written> {
        Err(self.error(ErrorKind::Unsupported, "copy", key, "not simulated"))
    }

    async fn copy_part(&self, key: &str, _upload: &UploadId, _part: u32, _source: &PartSource) -> Result<PartTag> {
        Err(self.error(ErrorKind::Unsupported, "copy part", key, "not simulated"))
    }

    /// Checks and deletes atomically, as a store with conditional deletes does.
    async fn delete(&self, deletion: &[ObjectDeletion]) -> Result<Vec<Result<()>>> {
        let (bucket, deletion) = (self.bucket, deletion.to_vec());
        let keys: Vec<&str> = deletion.iter().map(|deletion| deletion.key.as_str()).collect();
        let changed = self.error(ErrorKind::PreconditionFailed, "delete", "", "an object is in another state");
        self.call("delete", &keys.join(","), {
            let deletion = deletion.clone();
            move |state, _| {
                let verdict = |deletion: &ObjectDeletion| {
                    let object = state.buckets.list[bucket].objects.get(&deletion.key);
                    let info = object.map(|object| state.info(bucket, &deletion.key, object));
                    if info.is_some_and(|info| deletion.condition.difference(&info).is_some()) {
                        return Err(changed.clone());
                    }
                    state.vanishes(bucket, &deletion.key);
                    Ok(())
                };
                Ok(deletion.iter().map(verdict).collect())
            }
        })
        .await
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
