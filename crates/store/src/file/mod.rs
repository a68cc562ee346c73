//! A directory tree as a store.
//!
//! A key is a path below the root, with `/` between segments. A key that a tree cannot hold ([`path::check_key`]) is
//! refused with its name. Decisions that users notice:
//! - An empty directory is listed as a zero-byte object `dir/`; writing `dir/` creates a directory. A directory with
//!   entries is not an object.
//! - Deleting the last file of a directory leaves the directory.
//! - Symbolic links are followed only if the configuration says so. Otherwise no operation passes through one, so
//!   nothing below the root leads out of it, and listings report links as refused. A link that leads to the other side
//!   of the job is never followed ([`links`]). The root itself may be a link, and be behind one, unless the configuration
//!   says that its path was resolved.
//! - Writes go to a temporary file beside the target and become visible by `rename`. Its name and its inode are the
//!   upload id ([`temporary`]). So any process on the machine may write parts, but never into another file that has
//!   since taken the name. Listings never show such files.
//! - A write replaces only a regular file. A device, FIFO, socket, directory or symbolic link (followed or not) of that
//!   name stays, and the write is refused.
//! - On request, the temporary files of whole objects are listed in a file while they are written, so that those of a
//!   killed process can be removed ([`write_list`]).
//! - A write is acked when the kernel has the bytes. Only durable writes wait for the disk ([`durable`]). Parts carry
//!   the boot in which they were written; a part from another boot is read before it counts.
//! - Files have no ETag: a read checks length and [`FileIdentity`](crate::FileIdentity) before its first and after its
//!   last byte.
//! - A conditional delete checks the file right before it unlinks it; see `write::delete`.

mod disk;
mod durable;
mod entries;
mod errors;
mod grain;
mod identity;
mod known_directories;
mod links;
mod own_links;
mod path;
mod read;
mod temporary;
mod walk;
mod write;
mod write_list;

pub(crate) use identity::{compare_states, directory_kinship, file_kinship};

use self::known_directories::KnownDirectories;
use crate::{
    Checksums, Download, Error, ErrorKind, Identity, ListPage, ListRequest, ObjectDeletion, ObjectInfo, PartSource,
    PartTag, Payload, PendingUpload, Precondition, PutOptions, Result, Store, StoreConfig, StoreDescription,
    StoreLimits, UploadId, Written,
};
use async_trait::async_trait;
pub use disk::{Disk, Kernel};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;

const TIB: u64 = 1 << 40;

/// PATH_MAX of Linux. The kernel refuses a key that exceeds it together with the root.
const KEY_BYTES_MAX: usize = 4095;

const LIMITS: StoreLimits = StoreLimits {
    part_bytes_min: 1,
    part_bytes_max: 16 * TIB,
    parts_max: 1_000_000,
    put_bytes_max: 16 * TIB,
    copy_bytes_max: 0,
    object_bytes_max: 16 * TIB,
    key_bytes_max: KEY_BYTES_MAX,
    delete_keys_max: 1000,
    equal_parts: false,
};

/// A store over the directory `root`.
#[derive(Clone, Debug)]
pub(crate) struct FileStore(Arc<Tree>);

/// The state of the store, for its blocking operations.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    url: String,
    fsync: bool,
    follow_symlinks: bool,
    resolved_root: bool,
    /// The root that the first write found or created. While it is open, no other directory gets its inode, and its file
    /// system is not unmounted unless somebody forces it.
    written_root: OnceLock<OwnedFd>,
    kept_out: links::KeptOut,
    cursors: walk::Cursors,
    turns: write::Turns,
    write_list: OnceLock<write_list::WriteList>,
    disk: Arc<dyn Disk>,
    /// Directories whose entries in their parents are known to be on disk.
    synced: KnownDirectories,
    /// Directories that are known to be spelled as in the keys that lead to them.
    spelled: KnownDirectories,
    /// Directories that this store has created, so that their own names are spelled as in the keys.
    created: KnownDirectories,
    /// Resolution of modification times, in nanoseconds; determined at the first `stat`.
    grain_ns: OnceLock<u64>,
}

impl FileStore {
    /// A store over `root`, which need not exist yet: the first write creates it.
    pub(crate) fn new(root: &Path, config: &StoreConfig, disk: Arc<dyn Disk>) -> Result<Self> {
        if !root.is_absolute() {
            let message = "a file URL needs an absolute path";
            return Err(Error::new(ErrorKind::Configuration, "open", config.url.clone(), message));
        }
        Ok(Self(Arc::new(Tree {
            root: root.to_owned(),
            url: format!("file://{}", root.display()),
            fsync: config.fsync,
            follow_symlinks: config.follow_symlinks,
            resolved_root: config.resolved_root,
            written_root: OnceLock::new(),
            kept_out: links::KeptOut::default(),
            cursors: walk::Cursors::default(),
            turns: write::Turns::default(),
            write_list: OnceLock::new(),
            disk,
            synced: KnownDirectories::default(),
            spelled: KnownDirectories::default(),
            created: KnownDirectories::default(),
            grain_ns: OnceLock::new(),
        })))
    }

    /// The path of a key.
    pub(crate) fn path_of(&self, key: &str) -> PathBuf {
        self.0.root.join(key)
    }

    /// Refuses from now on to follow a link to a directory.
    pub(crate) fn follow_no_directories(&self) {
        self.0.kept_out.add_directories();
    }

    /// Refuses from now on to follow a link that leads into `place`, or to a directory above it.
    pub(crate) fn keep_out_of(&self, place: PathBuf) {
        self.0.kept_out.add(place);
    }

    /// Runs `work` on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Arc<Tree>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let tree = Arc::clone(&self.0);
        match tokio::task::spawn_blocking(move || work(&tree)).await {
            Ok(result) => result,
            Err(error) => Err(Error::new(ErrorKind::Server, operation, self.0.url.clone(), error)),
        }
    }
}

#[async_trait]
impl Store for FileStore {
    fn url(&self) -> &str {
        &self.0.url
    }

    fn identity(&self) -> Identity {
        Identity::Files(self.0.root.clone())
    }

    fn limits(&self) -> StoreLimits {
        LIMITS
    }

    fn makes_root(&self) -> bool {
        true
    }

    async fn describe(&self) -> StoreDescription {
        StoreDescription {
            endpoint: Some(self.0.root.display().to_string()),
            credentials: Some("none (file permissions of this user)".to_owned()),
            ..StoreDescription::default()
        }
    }

    async fn list_page(&self, request: &ListRequest) -> Result<ListPage> {
        let request = request.clone();
        self.blocking("list", move |tree| tree.list_page(&request)).await
    }

    async fn head(&self, key: &str) -> Result<ObjectInfo> {
        let key = key.to_owned();
        self.blocking("head", move |tree| tree.head(&key)).await
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>, condition: &Precondition) -> Result<Download> {
        let (key, condition) = (key.to_owned(), condition.clone());
        self.blocking("get", move |tree| tree.start_read(&key, range, &condition)).await.map(read::download)
    }

    async fn put(&self, key: &str, payload: Payload, _checksums: &Checksums, options: &PutOptions) -> Result<Written> {
        let (key, options) = (key.to_owned(), options.clone());
        self.blocking("put", move |tree| tree.put(&key, &payload, &options)).await
    }

    async fn open_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId> {
        let (key, options) = (key.to_owned(), options.clone());
        self.blocking("open upload", move |tree| tree.open_upload(&key, &options)).await
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
        let (key, upload, size_bytes) = (key.to_owned(), upload.clone(), payload.len());
        self.blocking("put part", move |tree| tree.put_part(&key, &upload, offset, &payload)).await?;
        Ok(PartTag { part, size_bytes, tag: self.0.disk.boot().to_owned(), checksums: *checksums })
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[PartTag],
        _checksums: &Checksums,
        options: &PutOptions,
    ) -> Result<Written> {
        let (key, upload, options, parts) = (key.to_owned(), upload.clone(), options.clone(), parts.to_vec());
        self.blocking("complete upload", move |tree| tree.complete_upload(&key, &upload, &parts, &options)).await
    }

    /// Writes are acked when the kernel has the bytes; with [`PutOptions::durable`] or `fsync`, when a whole object is
    /// on disk. Parts are synced at completion only.
    fn volatile_boot(&self) -> Option<&str> {
        Some(self.0.disk.boot())
    }

    async fn has_part(&self, key: &str, upload: &UploadId, offset: u64, part: &PartTag) -> Result<bool> {
        let (key, upload, part) = (key.to_owned(), upload.clone(), part.clone());
        self.blocking("check part", move |tree| tree.has_part(&key, &upload, offset, &part)).await
    }

    async fn may_hold_parts(&self, key: &str, upload: &UploadId, end: u64, bytes: u64) -> bool {
        let (key, upload) = (key.to_owned(), upload.clone());
        let looked = self.blocking("check upload", move |tree| tree.may_hold_parts(&key, &upload, end, bytes)).await;
        // If the check fails, the next request for the upload fails the same way and reports it.
        looked.unwrap_or(true)
    }

    fn time_grain_ns(&self) -> u64 {
        self.0.grain_ns.get().copied().unwrap_or(1)
    }

    async fn changed_unix_ms(&self, key: &str) -> Option<i64> {
        let key = key.to_owned();
        self.blocking("stat", move |tree| Ok(tree.changed_unix_ms(&key))).await.ok().flatten()
    }

    async fn sync(&self, key: &str) -> Result<()> {
        let key = key.to_owned();
        self.blocking("sync", move |tree| tree.sync_object(&key)).await
    }

    async fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        let (key, upload) = (key.to_owned(), upload.clone());
        self.blocking("abort upload", move |tree| tree.abort_upload(&key, &upload)).await
    }

    async fn pending_uploads(&self, key: &str) -> Result<Vec<PendingUpload>> {
        let key = key.to_owned();
        self.blocking("list uploads", move |tree| tree.pending_uploads(&key)).await
    }

    async fn list_writes(&self, path: &Path) -> Result<()> {
        let path = path.to_owned();
        self.blocking("list writes", move |tree| tree.list_writes(&path)).await
    }

    async fn remove_listed_writes(&self, path: &Path) -> Result<u64> {
        let path = path.to_owned();
        self.blocking("remove temporary files", move |tree| tree.remove_listed_writes(&path)).await
    }

    /// Always false: a copy inside the kernel would skip the hashing that proves the bytes.
    fn can_copy_from(&self, _source: &dyn Store) -> bool {
        false
    }

    async fn copy(&self, key: &str, _source: &PartSource, _options: &PutOptions) -> Result<Written> {
        Err(self.0.error(ErrorKind::Unsupported, "copy", key, "files are copied by reading them"))
    }

    async fn copy_part(&self, key: &str, _upload: &UploadId, _part: u32, _source: &PartSource) -> Result<PartTag> {
        Err(self.0.error(ErrorKind::Unsupported, "copy part", key, "files are copied by reading them"))
    }

    async fn delete(&self, objects: &[ObjectDeletion]) -> Result<Vec<Result<()>>> {
        if objects.len() > LIMITS.delete_keys_max {
            let message =
                format!("the request has {} keys, but the store allows {}", objects.len(), LIMITS.delete_keys_max);
            return Err(Error::new(ErrorKind::BadRequest, "delete", self.0.url.clone(), message));
        }
        let objects = objects.to_vec();
        self.blocking("delete", move |tree| Ok(objects.iter().map(|deletion| tree.delete(deletion)).collect())).await
    }

    fn checks_listed_deletes(&self) -> bool {
        true
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
