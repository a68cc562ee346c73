//! A synthetic source and a discarding sink, for benchmarks and for measuring a route without real stores.
//!
//! As a source it holds `objects` objects of `size_bytes` each, called `object-000000`, …. Their bytes are
//! pseudo-random, determined only by key and offset, and served as slices of one buffer, so that serving costs almost
//! nothing. As a sink it checks sizes, parts and checksums, and keeps nothing but counts: reading an object that was
//! put fails with [`ErrorKind::NotFound`].

use crate::model::another_state;
use crate::{
    Checksums, Crcs, Download, Error, ErrorKind, Expect, ListPage, ListRequest, ObjectDeletion, ObjectInfo, PartSource,
    PartTag, Payload, PendingUpload, Precondition, PutOptions, Result, Store, StoreConfig, StoreDescription,
    StoreLimits, UploadId, Written,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use rand::{RngCore, SeedableRng};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Length of the shared buffer. Coprime to common part sizes, so that parts differ.
const PATTERN_BYTES: usize = 4 * 1024 * 1024 - 3;
/// Longest slice per read.
const SLICE_BYTES_MAX: u64 = 1024 * 1024;
const KEY_PREFIX: &str = "object-";
/// Digits in a key of a store with few objects.
const KEY_DIGITS_MIN: usize = 6;
/// Room for an ETag: most of them need no more.
const ETAG_BYTES: usize = 24;
/// Entries per listing page.
const PAGE_KEYS: u64 = 1000;

const LIMITS: StoreLimits = StoreLimits {
    part_bytes_min: 1,
    part_bytes_max: 1 << 40,
    parts_max: 1_000_000,
    put_bytes_max: 1 << 50,
    copy_bytes_max: 0,
    object_bytes_max: 1 << 50,
    key_bytes_max: 1 << 16,
    delete_keys_max: 1000,
    equal_parts: false,
};

/// The object's starting offset in the endlessly repeated pattern.
fn phase(key: &str) -> u64 {
    tradewind_crc::crc64(key.as_bytes()) % PATTERN_BYTES as u64
}

/// An unfinished upload: the parts received, with their CRCs.
#[derive(Debug, Default)]
struct Upload {
    key: String,
    opened_unix_ms: i64,
    parts: BTreeMap<u32, (u64, u64, Checksums)>,
}

#[derive(Debug, Default)]
struct Sink {
    uploads: HashMap<String, Upload>,
    uploads_opened: u64,
    objects: u64,
    bytes: u64,
}

/// The store behind `mem:`.
#[derive(Debug)]
pub(crate) struct MemStore {
    url: String,
    objects: u64,
    /// Digits in each object's key: as many as the largest index has, so that byte order is numeric order.
    key_digits: usize,
    size_bytes: u64,
    pattern: Bytes,
    sink: Mutex<Sink>,
}

impl MemStore {
    /// Reads `objects`, `size_bytes` and `seed` from the configuration's `extra`.
    pub(crate) fn new(config: &StoreConfig) -> Result<Self> {
        let number = |name: &str| -> Result<u64> {
            let Some(text) = config.extra.get(name) else { return Ok(0) };
            text.parse().map_err(|_| {
                let message = format!("`{name}` must be a number, not `{}`", text.escape_debug());
                Error::new(ErrorKind::Configuration, "open", "mem:", message)
            })
        };
        let objects = number("objects")?;
        let mut pattern = vec![0; if objects > 0 { PATTERN_BYTES } else { 0 }];
        rand::rngs::SmallRng::seed_from_u64(number("seed")?).fill_bytes(&mut pattern);
        Ok(Self {
            url: "mem:".to_owned(),
            objects,
            key_digits: objects.saturating_sub(1).to_string().len().max(KEY_DIGITS_MIN),
            size_bytes: number("size_bytes")?,
            pattern: pattern.into(),
            sink: Mutex::default(),
        })
    }

    fn error(&self, kind: ErrorKind, operation: &'static str, key: &str, message: impl std::fmt::Display) -> Error {
        Error::new(kind, operation, format!("mem:{key}"), message)
    }

    fn info(&self, operation: &'static str, key: &str) -> Result<ObjectInfo> {
        let index: Option<u64> = key
            .strip_prefix(KEY_PREFIX)
            .filter(|digits| digits.len() == self.key_digits && digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok());
        match index {
            Some(index) if index < self.objects => Ok(self.object(index)),
            _ => Err(self.error(ErrorKind::NotFound, operation, key, "what is put into memory cannot be read back")),
        }
    }

    fn object(&self, index: u64) -> ObjectInfo {
        let key = self.object_key(index);
        let mut etag = String::with_capacity(ETAG_BYTES);
        let _ = write!(etag, "{:x}-{:x}", phase(&key), self.size_bytes);
        ObjectInfo { key, size_bytes: self.size_bytes, etag: Some(etag), ..ObjectInfo::default() }
    }

    fn object_key(&self, index: u64) -> String {
        let digits = self.key_digits;
        let mut key = String::with_capacity(KEY_PREFIX.len() + digits);
        // Writing into a string cannot fail.
        let _ = write!(key, "{KEY_PREFIX}{index:0digits$}");
        key
    }

    /// Index of the first object whose key comes after `key`.
    fn first_after(&self, key: Option<&str>) -> u64 {
        let Some(key) = key else { return 0 };
        let (mut least, mut most) = (0, self.objects);
        while least < most {
            let middle = least.midpoint(most);
            if self.object_key(middle).as_str() > key { most = middle } else { least = middle + 1 }
        }
        least
    }

    fn sink(&self) -> std::sync::MutexGuard<'_, Sink> {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes the CRCs of the bytes and compares them with the given ones.
    fn check(&self, operation: &'static str, key: &str, payload: &Payload, given: &Checksums) -> Result<Checksums> {
        let is_only_crc32c = given.crc64nvme.is_none() && given.crc32c.is_some();
        let sums = payload.checksums(if is_only_crc32c { Crcs::Both } else { Crcs::Crc64 });
        if sums.agrees_with(&Checksums { md5: None, ..*given }) == Some(false) {
            return Err(self.error(
                ErrorKind::ChecksumMismatch,
                operation,
                key,
                "the bytes do not match their checksum",
            ));
        }
        Ok(sums)
    }

    /// Refuses a write that expects an existing object: nothing is kept, so none exists.
    fn refuse_unexpected(&self, operation: &'static str, key: &str, options: &PutOptions) -> Result<()> {
        match options.expect {
            Some(Expect::Is(_)) => {
                Err(self.error(ErrorKind::PreconditionFailed, operation, key, "there is no object to replace"))
            }
            Some(Expect::Absent) | None => Ok(()),
        }
    }

    fn count(&self, sums: Checksums, bytes: u64) -> Written {
        let mut sink = self.sink();
        sink.objects += 1;
        sink.bytes += bytes;
        Written { checksums: sums, ..Written::default() }
    }
}

#[async_trait]
impl Store for MemStore {
    fn url(&self) -> &str {
        &self.url
    }

    fn identity(&self) -> crate::Identity {
        crate::Identity::Memory
    }

    fn keeps_objects(&self) -> bool {
        false
    }

    fn wanted_crcs(&self) -> Option<Crcs> {
        Some(Crcs::Crc64)
    }

    fn limits(&self) -> StoreLimits {
        LIMITS
    }

    async fn describe(&self) -> StoreDescription {
        StoreDescription {
            endpoint: Some("this process".to_owned()),
            credentials: Some("none (memory)".to_owned()),
            ..StoreDescription::default()
        }
    }

    async fn list_page(&self, request: &ListRequest) -> Result<ListPage> {
        let first = match &request.continuation {
            None => self.first_after(request.start_after.as_deref()),
            Some(text) => text.parse().map_err(|_| {
                self.error(ErrorKind::BadRequest, "list", "", "this is not a continuation of a listing")
            })?,
        };
        let page_keys = request.max_keys.map_or(PAGE_KEYS, u64::from).max(1);
        let mut page = ListPage::default();
        let mut index = first;
        while index < self.objects && (page.objects.len() as u64) < page_keys {
            let object = self.object(index);
            index += 1;
            if object.key.starts_with(&request.prefix) {
                page.objects.push(object);
            }
        }
        page.continuation = (index < self.objects).then(|| index.to_string());
        Ok(page)
    }

    async fn head(&self, key: &str) -> Result<ObjectInfo> {
        self.info("head", key)
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>, condition: &Precondition) -> Result<Download> {
        let info = self.info("get", key)?;
        if let Some(difference) = condition.difference(&info) {
            return Err(self.error(ErrorKind::PreconditionFailed, "get", key, another_state(difference)));
        }
        let range = range.unwrap_or(0..info.size_bytes);
        if range.start > range.end || range.end > info.size_bytes {
            return Err(self.error(ErrorKind::Truncated, "get", key, "the object is shorter than the range"));
        }
        let (pattern, phase) = (self.pattern.clone(), phase(key));
        let body = futures::stream::unfold(range, move |range| {
            let at = ((phase + range.start) % PATTERN_BYTES as u64) as usize;
            let length = (range.end - range.start).min(SLICE_BYTES_MAX).min((PATTERN_BYTES - at) as u64);
            let slice = (length > 0).then(|| pattern.slice(at..at + length as usize));
            std::future::ready(slice.map(|slice| (Ok(slice), range.start + length..range.end)))
        });
        Ok(Download { info, body: body.boxed() })
    }

    async fn put(&self, key: &str, payload: Payload, checksums: &Checksums, options: &PutOptions) -> Result<Written> {
        self.refuse_unexpected("put", key, options)?;
        let sums = self.check("put", key, &payload, checksums)?;
        Ok(self.count(sums, payload.len()))
    }

    async fn open_upload(&self, key: &str, _options: &PutOptions) -> Result<UploadId> {
        let mut sink = self.sink();
        sink.uploads_opened += 1;
        let id = format!("upload-{}", sink.uploads_opened);
        let upload = Upload { key: key.to_owned(), opened_unix_ms: crate::rest::unix_now_ms(), ..Upload::default() };
        sink.uploads.insert(id.clone(), upload);
        Ok(UploadId(id))
    }

    async fn put_part(
        &self,
        key: &str,
        upload: &UploadId,
        part: u32,
        offset: u64,
        payload: Payload,
        checksums: &Checksums,
    ) -> Result<PartTag> {
        let sums = self.check("put part", key, &payload, checksums)?;
        let size_bytes = payload.len();
        let mut sink = self.sink();
        let upload = sink.uploads.get_mut(&upload.0).filter(|upload| upload.key == key);
        let upload = upload.ok_or_else(|| self.error(ErrorKind::UploadNotFound, "put part", key, "no such upload"))?;
        upload.parts.insert(part, (offset, size_bytes, sums));
        Ok(PartTag { part, size_bytes, tag: part.to_string(), checksums: sums })
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[PartTag],
        checksums: &Checksums,
        options: &PutOptions,
    ) -> Result<Written> {
        self.refuse_unexpected("complete upload", key, options)?;
        let fail = |kind, message| self.error(kind, "complete upload", key, message);
        let mut sink = self.sink();
        let known = sink.uploads.get(&upload.0).filter(|known| known.key == key);
        let known = known.ok_or_else(|| fail(ErrorKind::UploadNotFound, "no such upload"))?;
        let (mut end, mut sums) = (0, Checksums::of_segments(&[]));
        for part in parts {
            match known.parts.get(&part.part) {
                Some((offset, size, part_sums)) if *offset == end && *size == part.size_bytes => {
                    sums = Checksums::concat(&sums, part_sums, *size);
                    end += size;
                }
                _ => return Err(fail(ErrorKind::BadRequest, "the parts leave a gap, overlap, or are missing")),
            }
        }
        if sums.agrees_with(&Checksums { md5: None, ..*checksums }) == Some(false) {
            return Err(fail(ErrorKind::ChecksumMismatch, "the parts do not form the announced object"));
        }
        sink.uploads.remove(&upload.0);
        drop(sink);
        Ok(self.count(sums, end))
    }

    async fn abort_upload(&self, _key: &str, upload: &UploadId) -> Result<()> {
        self.sink().uploads.remove(&upload.0);
        Ok(())
    }

    async fn pending_uploads(&self, key: &str) -> Result<Vec<PendingUpload>> {
        let sink = self.sink();
        let of_key = sink.uploads.iter().filter(|(_, upload)| upload.key == key);
        let pending = of_key
            .map(|(id, upload)| PendingUpload { upload: UploadId(id.clone()), opened_unix_ms: upload.opened_unix_ms });
        Ok(pending.collect())
    }

    fn can_copy_from(&self, _source: &dyn Store) -> bool {
        false
    }

    async fn copy(&self, key: &str, _source: &PartSource, _options: &PutOptions) -> Result<Written> {
        Err(self.error(ErrorKind::Unsupported, "copy", key, "`mem:` cannot be the source of a copy"))
    }

    async fn copy_part(&self, key: &str, _upload: &UploadId, _part: u32, _source: &PartSource) -> Result<PartTag> {
        Err(self.error(ErrorKind::Unsupported, "copy part", key, "`mem:` cannot be the source of a copy"))
    }

    async fn delete(&self, objects: &[ObjectDeletion]) -> Result<Vec<Result<()>>> {
        Ok(objects.iter().map(|_| Ok(())).collect())
    }

    fn checks_listed_deletes(&self) -> bool {
        true
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::TryStreamExt;

    fn source(objects: u64, size_bytes: u64) -> MemStore {
        let extra = [("objects", objects), ("size_bytes", size_bytes), ("seed", 7)];
        let extra = extra.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect();
        MemStore::new(&StoreConfig { extra, ..StoreConfig::default() }).unwrap()
    }

    async fn read(store: &MemStore, key: &str, range: Option<Range<u64>>) -> Vec<u8> {
        let download = store.get(key, range, &Precondition::default()).await.unwrap();
        let parts: Vec<Bytes> = download.body.try_collect().await.unwrap();
        parts.concat()
    }

    #[tokio::test]
    async fn bytes_are_fixed_by_key_and_offset() {
        let store = source(2, 5_000_000);
        let whole = read(&store, "object-000001", None).await;
        assert_eq!(whole.len(), 5_000_000);
        assert_eq!(read(&store, "object-000001", Some(4_000_000..4_500_000)).await, whole[4_000_000..4_500_000]);
        assert_ne!(read(&store, "object-000000", Some(0..64)).await, whole[..64]);
        assert_eq!(read(&source(2, 5_000_000), "object-000001", None).await, whole);
    }

    #[tokio::test]
    async fn only_listed_keys_exist() {
        let store = source(12, 1);
        assert_eq!(store.head("object-000011").await.unwrap().size_bytes, 1);
        for key in ["object-000012", "object-11", "object-0000011", "object-00001x", "object-+00011", "object-", "x"] {
            assert_eq!(store.head(key).await.unwrap_err().kind, ErrorKind::NotFound, "{key}");
        }
        let many = source(2_000_000, 1);
        assert_eq!(many.head("object-1999999").await.unwrap().key, "object-1999999");
        assert_eq!(many.head("object-000011").await.unwrap_err().kind, ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn a_sink_refuses_wrong_bytes_and_gaps() {
        let store = source(0, 0);
        let payload = Payload::from(Bytes::from_static(b"123456789"));
        let wrong = Checksums { crc32c: Some(1), ..Checksums::default() };
        let options = PutOptions::default();
        let error = store.put("k", payload.clone(), &wrong, &options).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::ChecksumMismatch);
        let upload = store.open_upload("k", &options).await.unwrap();
        let part = store.put_part("k", &upload, 1, 9, payload, &Checksums::default()).await.unwrap();
        let completed = store.complete_upload("k", &upload, &[part], &Checksums::default(), &options).await;
        assert_eq!(completed.unwrap_err().kind, ErrorKind::BadRequest);
        assert_eq!(store.head("k").await.unwrap_err().kind, ErrorKind::NotFound);
    }
}
