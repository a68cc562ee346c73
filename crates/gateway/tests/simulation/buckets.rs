//! The buckets of the simulated stores, and the oracle that checks each change of their visible bytes.

use crate::state::State;
use bytes::Bytes;
use std::collections::BTreeMap;
use tradewind_store::{Checksums, Crcs, Expect, ListPage, ListRequest, ObjectInfo, PartTag, Rare, Written};

/// Entries of a listing page: few, so that listings have several.
const PAGE_KEYS: usize = 7;

/// The facts that a kind of store reports about its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stated {
    /// CRC-64/NVME, as new S3 objects.
    Crc64,
    /// CRC-32C, as Google.
    Crc32c,
    /// MD5, as older ones.
    Md5,
    /// An opaque ETag.
    Nothing,
}

/// Probabilities of faults in requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreFaults {
    /// Refused before anything happens.
    pub(crate) refused: f64,
    /// Applied, but the answer is an error.
    pub(crate) answer_lost: f64,
    /// Takes up to 90 s, with or without an answer.
    pub(crate) slow: f64,
    /// Applied a second time, later.
    pub(crate) twice: f64,
    /// A body ends early or stalls.
    pub(crate) body_cut: f64,
}

/// All buckets, and what the oracle knows.
pub(crate) struct Buckets {
    /// The source first, then the destinations.
    pub(crate) list: Vec<Bucket>,
    /// Faults now.
    pub(crate) faults: StoreFaults,
    /// The invariant.
    pub(crate) oracle: Oracle,
    /// Whether a write is refused if the object is not in the expected state.
    pub(crate) conditional: bool,
    /// Number of the next upload.
    pub(crate) next_upload: u64,
}

/// One bucket.
pub(crate) struct Bucket {
    /// The facts that it reports about objects.
    pub(crate) stated: Stated,
    /// By key.
    pub(crate) objects: BTreeMap<String, Object>,
    /// By id.
    pub(crate) uploads: BTreeMap<String, Upload>,
}

/// A visible object.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// Its bytes.
    pub(crate) data: Bytes,
    /// Its state.
    pub(crate) etag: String,
    /// Last write.
    pub(crate) modified_unix_ms: i64,
}

/// An unfinished upload.
#[derive(Debug)]
pub(crate) struct Upload {
    /// The key.
    pub(crate) key: String,
    /// Time at which it was opened.
    pub(crate) opened_unix_ms: i64,
    /// Whether it was opened by a request whose caller had stopped waiting: no program can know it.
    pub(crate) late: bool,
    /// By number.
    pub(crate) parts: BTreeMap<u32, (Bytes, PartTag)>,
}

/// The right content.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    /// Every version of each source object, by name below the prefix, oldest first.
    pub(crate) versions: BTreeMap<String, Vec<Bytes>>,
    /// Prefix at the source.
    pub(crate) source_prefix: String,
    /// Prefix at the destinations.
    pub(crate) target_prefix: String,
    /// Whether the job deletes sources.
    pub(crate) moves: bool,
}

impl Buckets {
    /// Empty ones.
    pub(crate) fn new(stated: &[Stated], oracle: Oracle) -> Self {
        let bucket = |stated: &Stated| Bucket { stated: *stated, objects: BTreeMap::new(), uploads: BTreeMap::new() };
        Self {
            list: stated.iter().map(bucket).collect(),
            faults: StoreFaults::default(),
            oracle,
            conditional: true,
            next_upload: 1,
        }
    }
}

impl State {
    /// The source's owner writes an object.
    pub(crate) fn write_source(&mut self, name: &str, data: Bytes, age_ms: i64) {
        let key = format!("{}{name}", self.buckets.oracle.source_prefix);
        self.trace(format!("source {key} is written, {} bytes", data.len()));
        self.buckets.oracle.versions.entry(name.to_owned()).or_default().push(data.clone());
        let modified_unix_ms = self.unix_ms() - age_ms;
        let object = Object { etag: md5_hex(&data), data, modified_unix_ms };
        self.buckets.list[0].objects.insert(key, object);
    }

    /// The wall clock.
    pub(crate) fn unix_ms(&self) -> i64 {
        crate::state::EPOCH_UNIX_MS + self.now_ms as i64
    }

    /// Returns whether a write with this condition is refused.
    pub(crate) fn is_unexpected(&self, bucket: usize, key: &str, expect: Option<&Expect>) -> bool {
        let object = self.buckets.list[bucket].objects.get(key);
        let info = object.map(|object| self.info(bucket, key, object));
        self.buckets.conditional && expect.is_some_and(|expect| !expect.is_met_by(info.as_ref()))
    }

    /// A write that was made on a condition must not replace a newer version of its source by an older one.
    fn check_order(&mut self, bucket: usize, key: &str, object: &Object) {
        let oracle = &self.buckets.oracle;
        let versions = key.strip_prefix(&oracle.target_prefix).and_then(|name| oracle.versions.get(name));
        let replaced = self.buckets.list[bucket].objects.get(key);
        let (Some(versions), Some(replaced)) = (versions, replaced) else { return };
        let oldest = versions.iter().position(|version| *version == replaced.data);
        let newest = versions.iter().rposition(|version| *version == object.data);
        if oldest.zip(newest).is_some_and(|(replaced, written)| replaced > written) {
            self.violation(format!("an older version of {key} replaced a newer one"));
        }
    }

    /// Shows an object at a destination.
    pub(crate) fn becomes_visible(
        &mut self,
        bucket: usize,
        key: &str,
        object: Object,
        is_conditional: bool,
    ) -> Written {
        if is_conditional && self.buckets.conditional {
            self.check_order(bucket, key, &object);
        }
        let oracle = &self.buckets.oracle;
        let versions = key.strip_prefix(&oracle.target_prefix).and_then(|name| oracle.versions.get(name));
        let version = versions.and_then(|versions| versions.iter().position(|version| *version == object.data));
        if bucket == 0 {
            self.violation(format!("the source was written: {key}"));
        } else if version.is_none() {
            self.violation(format!("wrong bytes became visible as {key}: no version of the source has them"));
        }
        self.trace(format!("bucket {bucket} shows {key}, version {version:?}"));
        let written = Written {
            etag: Some(object.etag.clone()),
            version: None,
            checksums: self.stated(bucket, &object),
            ..Written::default()
        };
        self.buckets.list[bucket].objects.insert(key.to_owned(), object);
        written
    }

    /// Returns the CRCs that a store works with. Stores of all kinds are simulated.
    pub(crate) fn wanted_crcs(&self, bucket: usize) -> Option<Crcs> {
        match self.buckets.list[bucket].stated {
            Stated::Crc64 => Some(Crcs::Crc64),
            Stated::Crc32c => Some(Crcs::Both),
            Stated::Md5 | Stated::Nothing => None,
        }
    }

    fn stated(&self, bucket: usize, object: &Object) -> Checksums {
        match self.buckets.list[bucket].stated {
            Stated::Crc64 => Checksums::computed(std::slice::from_ref(&object.data), Crcs::Crc64),
            Stated::Crc32c => {
                Checksums { crc64nvme: None, ..Checksums::of_segments(std::slice::from_ref(&object.data)) }
            }
            Stated::Md5 if !object.etag.contains('-') => {
                Checksums { md5: Some(md5_of(&object.data)), ..Checksums::default() }
            }
            _ => Checksums::default(),
        }
    }

    /// The description of an object.
    pub(crate) fn info(&self, bucket: usize, key: &str, object: &Object) -> ObjectInfo {
        ObjectInfo {
            key: key.to_owned(),
            size_bytes: object.data.len() as u64,
            etag: Some(object.etag.clone()),
            modified_unix_ms: object.modified_unix_ms,
            checksums: self.stated(bucket, object),
            attributes: Rare::default(),
            ..ObjectInfo::default()
        }
    }

    /// A page of a listing.
    pub(crate) fn page(&self, bucket: usize, request: &ListRequest) -> ListPage {
        let most = request.max_keys.map_or(PAGE_KEYS, |keys| (keys as usize).min(PAGE_KEYS)).max(1);
        let mut page = ListPage::default();
        let mut last: Option<String> = None;
        for (key, object) in &self.buckets.list[bucket].objects {
            let Some(name) = key.strip_prefix(&request.prefix) else { continue };
            let folded = name.find('/').filter(|_| request.delimited).map(|at| &key[..=request.prefix.len() + at]);
            let entry = folded.unwrap_or(key);
            let is_told = |after: &String| entry <= after.as_str();
            if request.continuation.as_ref().is_some_and(is_told)
                || request.start_after.as_ref().is_some_and(|after| key <= after)
                || request.end_at.as_ref().is_some_and(|end| key > end)
                || last.as_deref() == Some(entry)
            {
                continue;
            }
            if page.objects.len() + page.prefixes.len() == most {
                page.continuation = last;
                break;
            }
            last = Some(entry.to_owned());
            match folded {
                Some(prefix) => page.prefixes.push(prefix.to_owned()),
                None => page.objects.push(self.info(bucket, key, object)),
            }
        }
        page
    }

    /// Deletes an object, if it is there.
    pub(crate) fn vanishes(&mut self, bucket: usize, key: &str) {
        let Some(object) = self.buckets.list[bucket].objects.remove(key) else { return };
        self.trace(format!("bucket {bucket} deletes {key}"));
        let oracle = &self.buckets.oracle;
        if bucket > 0 {
            let name = key.strip_prefix(&oracle.target_prefix);
            let source = name.map(|name| format!("{}{name}", oracle.source_prefix));
            if source.is_some_and(|source| self.buckets.list[0].objects.contains_key(&source)) {
                self.violation(format!("{key} was deleted at destination {bucket}, and the source has it"));
            }
            return;
        }
        let copy = key.strip_prefix(&oracle.source_prefix).map(|name| format!("{}{name}", oracle.target_prefix));
        let is_copied = |target: &Bucket| {
            copy.as_ref().and_then(|copy| target.objects.get(copy)).is_some_and(|copy| copy.data == object.data)
        };
        if !oracle.moves || !self.buckets.list[1..].iter().all(is_copied) {
            self.violation(format!("the source {key} was deleted, and not every destination has these bytes"));
        }
    }
}

/// MD5 as in an ETag.
pub(crate) fn md5_hex(data: &[u8]) -> String {
    md5_of(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn md5_of(data: &[u8]) -> [u8; 16] {
    use md5::Digest;
    md5::Md5::digest(data).into()
}
