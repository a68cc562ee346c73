//! Reading files: guarded by length and identity, into reusable buffers.

use super::Tree;
use super::links::{Blocked, is_link, leads_to};
use super::own_links::between_removals;
use crate::error::{DEVICE, FIFO};
use crate::model::another_state;
use crate::{Download, Error, ErrorKind, FileIdentity, ObjectInfo, Permissions, Precondition, Result};
use bytes::Bytes;
use futures::StreamExt;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::libc;
use nix::sys::stat::{FileStat, Mode};
use nix::time::{ClockId, clock_gettime};
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes per read. Large enough to make the hand-over between threads negligible, small enough for the cache.
const BUFFER_BYTES: usize = 1024 * 1024;
/// Most buffers kept for reuse by all stores of a process (32 MiB); further ones are freed. The first touch of fresh
/// memory costs more than the read itself.
const KEPT_BUFFERS_MAX: usize = 32;
/// The clock that the kernel stamps files with; it advances in ticks of at most 10 ms.
#[cfg(target_os = "linux")]
const STAMPING_CLOCK: ClockId = ClockId::CLOCK_REALTIME_COARSE;
#[cfg(not(target_os = "linux"))]
const STAMPING_CLOCK: ClockId = ClockId::CLOCK_REALTIME;
/// Longest tick, and so the longest wait for a file to settle. A change further in the future than this comes from
/// another clock (a file server's, or one that was set back); a read does not wait for it.
const TICK_MAX: Duration = Duration::from_millis(10);

const ONLY_FILES: &str = "only files and directories can be copied";

/// Pause between two readings of the clock.
const SETTLE_PAUSE: Duration = Duration::from_millis(1);

static KEPT_BUFFERS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// A full-size buffer, returned to the pool when its last reader drops it.
struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
}

impl Buffer {
    fn take() -> Vec<u8> {
        let kept = KEPT_BUFFERS.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut kept = KEPT_BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_BUFFERS_MAX {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// A file that is being read, and the rest of the range.
pub(super) struct Reader {
    tree: Arc<Tree>,
    key: String,
    file: File,
    range: Range<u64>,
    /// Length and identity at the start; they must be the same at the end.
    state: (u64, FileIdentity),
}

/// A started read. Its first buffer is already filled, so a small file takes only one hand-over to a thread.
pub(super) struct Started {
    info: ObjectInfo,
    first: Option<Bytes>,
    reader: Reader,
}

impl Reader {
    fn fail(&self, kind: ErrorKind, message: impl std::fmt::Display) -> Error {
        self.tree.error(kind, "get", &self.key, message)
    }

    /// Returns the next bytes; `None` at the end of the range.
    fn next(&mut self) -> Result<Option<Bytes>> {
        let left = self.range.end - self.range.start;
        if left == 0 {
            return Ok(None);
        }
        let wanted = left.min(BUFFER_BYTES as u64) as usize;
        let bytes = if wanted == BUFFER_BYTES {
            let mut bytes = Buffer::take();
            self.fill(&mut bytes)?;
            Bytes::from_owner(Buffer { bytes, filled: wanted })
        } else {
            let mut bytes = vec![0; wanted];
            self.fill(&mut bytes)?;
            Bytes::from(bytes)
        };
        self.range.start += wanted as u64;
        if self.range.start == self.range.end {
            self.check_unchanged()?;
        }
        Ok(Some(bytes))
    }

    fn fill(&self, buffer: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(buffer, self.range.start).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.fail(ErrorKind::Truncated, "the file became shorter"),
            _ => self.tree.io_error("get", &self.key, &error),
        })
    }

    fn check_unchanged(&self) -> Result<()> {
        let metadata =
            between_removals(|| self.file.metadata()).map_err(|error| self.tree.io_error("get", &self.key, &error))?;
        let (length, identity) = &self.state;
        if metadata.len() != *length || identity.difference(&identity_of(&metadata)).is_some() {
            return Err(self.fail(ErrorKind::PreconditionFailed, "the file changed while it was read"));
        }
        Ok(())
    }
}

/// Turns a started read into a stream.
pub(super) fn download(started: Started) -> Download {
    let Started { info, first, reader } = started;
    let first = futures::stream::iter(first.map(Ok));
    let rest = futures::stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        let (url, key) = (reader.tree.url.clone(), reader.key.clone());
        let read = tokio::task::spawn_blocking(move || {
            let next = reader.next();
            (next, reader)
        });
        match read.await {
            Ok((Ok(None), _)) => None,
            Ok((Ok(Some(bytes)), reader)) => {
                let done = reader.range.is_empty();
                Some((Ok(bytes), (!done).then_some(reader)))
            }
            Ok((Err(error), _)) => Some((Err(error), None)),
            Err(error) => Some((Err(Error::new(ErrorKind::Server, "get", format!("{url}/{key}"), error)), None)),
        }
    });
    Download { info, body: first.chain(rest).boxed() }
}

/// Milliseconds since the Unix epoch, rounded down.
fn modified_ms(seconds: i64, nanoseconds: i64) -> i64 {
    seconds * 1000 + nanoseconds / 1_000_000
}

/// Nanoseconds since the Unix epoch; times outside the years 1677 to 2262 are clamped to the range.
fn unix_ns(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

pub(super) fn identity_of(metadata: &Metadata) -> FileIdentity {
    FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        modified_unix_ns: unix_ns(metadata.mtime(), metadata.mtime_nsec()),
        changed_unix_ns: unix_ns(metadata.ctime(), metadata.ctime_nsec()),
        links: metadata.nlink(),
    }
}

pub(super) fn identity_of_stat(stat: &FileStat) -> FileIdentity {
    FileIdentity {
        device: stat.st_dev,
        inode: stat.st_ino,
        modified_unix_ns: unix_ns(stat.st_mtime, stat.st_mtime_nsec),
        changed_unix_ns: unix_ns(stat.st_ctime, stat.st_ctime_nsec),
        // 32 or 64 bits, depending on the platform.
        links: stat.st_nlink as _,
    }
}

fn permissions_of(stat: &FileStat) -> Permissions {
    // 16 or 32 bits, depending on the platform.
    #[allow(clippy::useless_conversion, reason = "the type depends on the platform")]
    let mode = stat.st_mode.into();
    Permissions { mode, uid: stat.st_uid, gid: stat.st_gid }
}

/// The attributes of a file for a listing or a head. A directory is a zero-byte object, and its identity does not
/// matter.
pub(super) fn object_info(key: String, stat: &FileStat) -> ObjectInfo {
    let is_directory = key.ends_with('/');
    ObjectInfo {
        key,
        size_bytes: if is_directory { 0 } else { u64::try_from(stat.st_size).unwrap_or(0) },
        modified_unix_ms: modified_ms(stat.st_mtime, stat.st_mtime_nsec),
        file: (!is_directory).then(|| identity_of_stat(stat)),
        permissions: (!is_directory).then(|| permissions_of(stat)),
        ..ObjectInfo::default()
    }
}

/// Metadata of an open file, taken once the kernel's clock has advanced past its last change. Otherwise a write after
/// the read could get the same time stamp as one before it and go unnoticed.
#[expect(clippy::disallowed_methods, reason = "files are read on threads that may block")]
fn settled(file: &File) -> io::Result<Metadata> {
    let began = Instant::now();
    loop {
        let metadata = between_removals(|| file.metadata())?;
        let now = clock_gettime(STAMPING_CLOCK).map_or(i64::MAX, |now| unix_ns(now.tv_sec(), now.tv_nsec()));
        let ahead_ns = identity_of(&metadata).changed_unix_ns.saturating_sub(now);
        let may_recur = (0..=TICK_MAX.as_nanos() as i64).contains(&ahead_ns);
        if !metadata.is_file() || !may_recur || began.elapsed() > TICK_MAX {
            return Ok(metadata);
        }
        std::thread::sleep(SETTLE_PAUSE);
    }
}

/// Returns whether at least one byte can be read. A file that cannot be read cannot lose bytes: its stated length
/// is used.
fn has_a_byte(file: &File) -> bool {
    file.read_at(&mut [0], 0).is_ok_and(|read| read > 0)
}

/// The name of something that is neither a regular file nor a directory, for messages.
pub(super) fn special_name(mode: libc::mode_t) -> &'static str {
    match mode & libc::S_IFMT {
        libc::S_IFLNK => "a symbolic link",
        libc::S_IFIFO => FIFO,
        libc::S_IFSOCK => "a socket",
        libc::S_IFCHR | libc::S_IFBLK => DEVICE,
        _ => "not a regular file",
    }
}

pub(super) fn is_kind(stat: &FileStat, kind: libc::mode_t) -> bool {
    stat.st_mode & libc::S_IFMT == kind
}

impl Tree {
    /// The error of a read. If something is missing, it may be the root itself.
    fn read_error(&self, operation: &'static str, key: &str, blocked: impl Into<Blocked>) -> Error {
        let errno = match blocked.into() {
            Blocked::System(errno) => errno,
            link => return self.blocked_error(operation, key, link),
        };
        match errno {
            Errno::ENOENT | Errno::ENOTDIR if !self.root.is_dir() => {
                self.error(ErrorKind::BucketNotFound, operation, key, "no such directory")
            }
            Errno::ENOENT | Errno::ENOTDIR => self.error(ErrorKind::NotFound, operation, key, "no such file"),
            Errno::ELOOP if !self.follow_symlinks => {
                let message = "a symbolic link, and --follow-symlinks is not given";
                self.error(ErrorKind::Link, operation, key, message)
            }
            other => self.system_error(operation, key, other),
        }
    }

    /// The error for something that has a file's name but is not a regular file.
    fn no_file(&self, operation: &'static str, key: &str, mode: libc::mode_t) -> Error {
        match mode & libc::S_IFMT {
            libc::S_IFREG => self.error(ErrorKind::NotFound, operation, key, "it is a file, not a directory"),
            libc::S_IFDIR => self.error(ErrorKind::NotFound, operation, key, "it is a directory, not a file"),
            _ => {
                let message = format!("{}: {ONLY_FILES}", special_name(mode));
                self.error(ErrorKind::Unsupported, operation, key, message)
            }
        }
    }

    pub(super) fn head(&self, key: &str) -> Result<ObjectInfo> {
        let split = self.split("head", key)?;
        let fail = |blocked: Blocked| self.read_error("head", key, blocked);
        let directory = self.open_directory(split.parent).map_err(fail)?;
        self.note_grain(&directory);
        let stat = self.stat_entry(&directory, split.name, key).map_err(|blocked| match blocked {
            Blocked::System(errno) if is_link(&directory, split.name) => self.broken_link("head", key, errno),
            blocked => fail(blocked),
        })?;
        if is_kind(&stat, libc::S_IFLNK) {
            return Err(match leads_to(&directory, split.name) {
                Ok(end) if is_kind(&end, libc::S_IFREG) || is_kind(&end, libc::S_IFDIR) => fail(Errno::ELOOP.into()),
                Ok(end) => {
                    let message = format!("a symbolic link to {}: {ONLY_FILES}", special_name(end.st_mode));
                    self.error(ErrorKind::Unsupported, "head", key, message)
                }
                Err(errno) => self.broken_link("head", key, errno),
            });
        }
        let wanted = if split.is_directory { libc::S_IFDIR } else { libc::S_IFREG };
        if !is_kind(&stat, wanted) {
            return Err(self.no_file("head", key, stat.st_mode));
        }
        Ok(object_info(key.to_owned(), &stat))
    }

    pub(super) fn start_read(
        self: &Arc<Self>,
        key: &str,
        range: Option<Range<u64>>,
        condition: &Precondition,
    ) -> Result<Started> {
        let split = self.split("get", key)?;
        let fail = |errno: Errno| self.read_error("get", key, errno);
        let directory = self.open_directory(split.parent).map_err(|blocked| self.read_error("get", key, blocked))?;
        // Without O_NONBLOCK, opening a FIFO would wait for a writer.
        let mut flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | self.no_follow();
        if split.is_directory {
            flags |= OFlag::O_DIRECTORY;
        }
        let file = File::from(openat(&directory, split.name, flags, Mode::empty()).map_err(fail)?);
        let metadata = settled(&file).map_err(|error| self.io_error("get", key, &error))?;
        if !split.is_directory && !metadata.is_file() {
            return Err(self.no_file("get", key, metadata.mode() as libc::mode_t));
        }
        let size = if split.is_directory { 0 } else { metadata.len() };
        // Files of `/proc` and some FUSE file systems state length 0 but have content.
        if size == 0 && !split.is_directory && has_a_byte(&file) {
            let message = "the file system states its length as 0, but it has content";
            return Err(self.error(ErrorKind::Unsupported, "get", key, message));
        }
        let identity = identity_of(&metadata);
        let info = ObjectInfo {
            key: key.to_owned(),
            size_bytes: size,
            modified_unix_ms: modified_ms(metadata.mtime(), metadata.mtime_nsec()),
            file: (!split.is_directory).then_some(identity),
            ..ObjectInfo::default()
        };
        if let Some(difference) = condition.difference(&info) {
            return Err(self.error(ErrorKind::PreconditionFailed, "get", key, another_state(difference)));
        }
        let range = range.unwrap_or(0..size);
        if range.start > range.end || range.end > size {
            let message = format!("the file has {size} bytes, but the range ends at {}", range.end);
            return Err(self.error(ErrorKind::Truncated, "get", key, message));
        }
        let state = (metadata.len(), identity);
        let mut reader = Reader { tree: Arc::clone(self), key: key.to_owned(), file, range, state };
        let first = reader.next()?;
        Ok(Started { info, first, reader })
    }
}
