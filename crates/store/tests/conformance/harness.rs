//! The stores that run, and helpers for tests on them.

use bytes::Bytes;
use futures::TryStreamExt;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tradewind_store::{
    Checksums, Error, ErrorKind, ListRequest, ObjectDeletion, ObjectInfo, Payload, Precondition, PutOptions, Store,
    StoreConfig, Written, list_range, open,
};

/// Features that some servers lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ability {
    /// Keys with `//` and with a leading `/`.
    EmptySegments,
    /// Keys with a backslash.
    Backslash,
    /// Keys with `.` and `..` segments.
    DotSegments,
    /// `a` beside `a/b`.
    FileBesideDirectory,
    /// Keys of 1,024 bytes whose segments are longer than a file name.
    LongSegments,
    /// Zero-byte objects called `dir/`.
    Markers,
    /// `Content-Type` and the other standard headers.
    Attributes,
    /// User metadata.
    Metadata,
    /// Reads of the first byte alone.
    FirstByte,
    /// If-Match on reads.
    Preconditions,
    /// The store states a checksum of whole objects.
    Checksums,
    /// The store states a checksum of objects made of parts.
    UploadChecksums,
    /// The store refuses bytes that do not match their checksum.
    RefusesDamage,
    /// Server-side copy of whole objects.
    Copy,
    /// Server-side copy of ranges into parts.
    CopyPart,
    /// The copy is refused when the source changed.
    CopyPreconditions,
    /// A write is refused if the destination is not in the expected state.
    PutConditions,
    /// The completion of an upload is refused in the same case.
    UploadConditions,
    /// A copy is refused in the same case.
    ReplacingCopyConditions,
    /// A part can be written again with other bytes.
    ReplacedParts,
    /// Unfinished uploads can be listed.
    PendingUploads,
    /// An unfinished upload can be aborted.
    Abort,
    /// A part of an aborted upload is refused.
    AbortIsFinal,
    /// Keys are listed in byte order, whatever characters they contain.
    ByteOrder,
    /// A missing bucket can be distinguished from a missing key.
    MissingBucket,
    /// Credentials are checked.
    Authentication,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    name: String,
    url: String,
    endpoint: Option<String>,
    region: Option<String>,
    profile: Option<String>,
    ca_file: Option<PathBuf>,
    #[serde(default)]
    anonymous: bool,
    lacks: Option<BTreeSet<Ability>>,
}

/// Features that the servers of the testbed lack, by name.
fn known_limits(name: &str) -> BTreeSet<Ability> {
    use Ability::*;
    match name {
        // Keys are paths on its disk. A copied part is given the checksum of the whole source, whatever its range.
        "versitygw" => {
            [EmptySegments, DotSegments, FileBesideDirectory, LongSegments, CopyPart, ReplacingCopyConditions].into()
        }
        // It checks neither signatures, nor checksums, nor the ETag of a copy's source, and answers 500 to a part of
        // an unknown upload.
        "moto" => [
            Authentication,
            RefusesDamage,
            CopyPreconditions,
            AbortIsFinal,
            UploadChecksums,
            UploadConditions,
            ReplacingCopyConditions,
        ]
        .into(),
        // Keys are paths on its disk. It checks neither checksums nor conditions, streams parts to its disk in their
        // order, and answers 400 to requests without credentials.
        "rclone" => [
            Authentication,
            CopyPart,
            CopyPreconditions,
            DotSegments,
            EmptySegments,
            FileBesideDirectory,
            LongSegments,
            Markers,
            PutConditions,
            RefusesDamage,
            ReplacedParts,
            ReplacingCopyConditions,
            UploadChecksums,
            UploadConditions,
        ]
        .into(),
        // moto behind Google's header names.
        "gcs" => [
            Authentication,
            RefusesDamage,
            CopyPreconditions,
            AbortIsFinal,
            UploadChecksums,
            CopyPart,
            PutConditions,
            UploadConditions,
            ReplacingCopyConditions,
        ]
        .into(),
        // As Azure itself: see the head of `src/azure/mod.rs`.
        "azurite" => [Backslash, DotSegments, AbortIsFinal, UploadChecksums].into(),
        _ => BTreeSet::new(),
    }
}

/// A store under test, with its own prefix.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: StoreConfig,
    pub(crate) prefix: String,
    lacks: BTreeSet<Ability>,
    _directory: Option<tempfile::TempDir>,
}

impl Subject {
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) fn lacks(&self, ability: Ability) -> bool {
        self.lacks.contains(&ability)
    }

    pub(crate) async fn put(&self, name: &str, bytes: impl Into<Bytes>) -> Written {
        self.put_with(name, bytes, &PutOptions::default()).await
    }

    pub(crate) async fn put_with(&self, name: &str, bytes: impl Into<Bytes>, options: &PutOptions) -> Written {
        let payload = Payload::from(bytes.into());
        let sums = Checksums::of_segments(payload.segments());
        let key = self.key(name);
        let mut written = self.store.put(&key, payload.clone(), &sums, options).await;
        for _ in 0..PUT_RETRIES_MAX {
            if !written.as_ref().is_err_and(|error| error.kind.is_transient()) {
                break;
            }
            written = self.store.put(&key, payload.clone(), &sums, options).await;
        }
        written.expect("put")
    }

    /// Deletes objects, in whatever state they are, and returns a verdict for each key. What may pass is tried again.
    pub(crate) async fn delete(&self, keys: &[String]) -> Vec<Result<(), Error>> {
        let mut deleted = self.store.delete(&any(keys)).await;
        for _ in 0..DELETE_RETRIES_MAX {
            let failed = match &deleted {
                Ok(verdicts) => verdicts.iter().find_map(|verdict| verdict.as_ref().err()),
                Err(error) => Some(error),
            };
            if !failed.is_some_and(|error| error.kind.is_transient()) {
                break;
            }
            deleted = self.store.delete(&any(keys)).await;
        }
        deleted.expect("delete")
    }

    pub(crate) async fn read(&self, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, Error> {
        self.read_if(name, range, &Precondition::default()).await
    }

    pub(crate) async fn read_if(
        &self,
        name: &str,
        range: Option<Range<u64>>,
        condition: &Precondition,
    ) -> Result<Vec<u8>, Error> {
        let download = self.store.get(&self.key(name), range, condition).await?;
        let parts: Vec<Bytes> = download.body.try_collect().await?;
        Ok(parts.concat())
    }

    /// Names (without the test's prefix) of all objects below `prefix`.
    pub(crate) async fn names(&self, prefix: &str) -> Vec<String> {
        let objects = self.list(ListRequest { prefix: self.key(prefix), ..ListRequest::default() }).await;
        objects.into_iter().map(|object| object.key[self.prefix.len()..].to_owned()).collect()
    }

    /// All pages of a listing.
    pub(crate) async fn list(&self, mut request: ListRequest) -> Vec<ObjectInfo> {
        let mut objects = Vec::new();
        loop {
            let page = self.store.list(&request).await.expect("list");
            objects.extend(page.objects);
            match page.continuation {
                Some(next) => request.continuation = Some(next),
                None => return objects,
            }
        }
    }
}

/// Returns the precondition for exactly this state of an object.
pub(crate) fn state_of(info: &ObjectInfo) -> Precondition {
    Precondition::exact(info)
}

/// Returns requests to delete these keys, whatever the objects' state.
pub(crate) fn any(keys: &[String]) -> Vec<ObjectDeletion> {
    keys.iter().map(ObjectDeletion::any).collect()
}

/// Returns varied bytes that depend on `seed`.
pub(crate) fn bytes(length: usize, seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

pub(crate) fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}

fn unique_prefix() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_nanos();
    format!("t-{now}-{}-{}/", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn servers() -> Vec<Server> {
    let Ok(text) = std::env::var("TRADEWIND_TEST_STORES") else { return Vec::new() };
    serde_json::from_str(&text).expect("TRADEWIND_TEST_STORES is a JSON list of stores")
}

/// A store over a fresh directory.
pub(crate) fn file_subject() -> Subject {
    use Ability::*;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = StoreConfig { url: format!("file://{}", directory.path().display()), ..StoreConfig::default() };
    let lacks = BTreeSet::from([
        EmptySegments,
        DotSegments,
        FileBesideDirectory,
        LongSegments,
        Attributes,
        Metadata,
        Checksums,
        UploadChecksums,
        RefusesDamage,
        Copy,
        CopyPart,
        Authentication,
    ]);
    Subject {
        name: "file".to_owned(),
        store: open(&config).expect("open"),
        config,
        prefix: unique_prefix(),
        lacks,
        _directory: Some(directory),
    }
}

fn server_subject(server: Server) -> Subject {
    let lacks = server.lacks.unwrap_or_else(|| known_limits(&server.name));
    let config = StoreConfig {
        url: server.url,
        endpoint: server.endpoint,
        region: server.region,
        profile: server.profile,
        ca_file: server.ca_file,
        anonymous: server.anonymous,
        ..StoreConfig::default()
    };
    Subject {
        name: server.name,
        store: open(&config).expect("open"),
        config,
        prefix: unique_prefix(),
        lacks,
        _directory: None,
    }
}

/// Runs `test` on every store with the abilities that it needs, then removes its objects.
pub(crate) async fn each(needs: &[Ability], test: impl AsyncFn(&Subject)) {
    let servers = servers();
    if servers.is_empty() {
        eprintln!("skipped on servers: TRADEWIND_TEST_STORES is not set");
    }
    let subjects = std::iter::once(file_subject()).chain(servers.into_iter().map(server_subject));
    for subject in subjects {
        if let Some(missing) = needs.iter().find(|ability| subject.lacks(**ability)) {
            eprintln!("skipped on {}: it lacks {missing:?}", subject.name);
            continue;
        }
        eprintln!("on {}", subject.name);
        test(&subject).await;
        clean(&subject).await;
    }
}

/// Runs `test` on files only.
pub(crate) async fn on_files(test: impl AsyncFn(&Subject)) {
    test(&file_subject()).await;
}

/// rclone fails at times if several objects of a new directory are written at once.
const PUT_RETRIES_MAX: u32 = 100;

/// s3rver fails if it deletes the last two objects of a directory in one request, and deletes one of them. A server may
/// close a connection that was idle just as a request is sent over it.
const DELETE_RETRIES_MAX: u32 = 100;

async fn clean(subject: &Subject) {
    let range = tradewind_store::KeyRange::default();
    let pages: Vec<_> =
        list_range(Arc::clone(&subject.store), &subject.prefix, &range).try_collect().await.expect("list");
    let keys: Vec<String> = pages.into_iter().flat_map(|page| page.objects).map(|object| object.key).collect();
    for keys in keys.chunks(subject.store.limits().delete_keys_max) {
        for verdict in subject.delete(keys).await {
            verdict.expect("delete");
        }
    }
}
