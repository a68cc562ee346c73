//! Durability: syncs files and directories, and rereads parts that may have been lost.

use super::Tree;
use super::links::Blocked;
use crate::{ErrorKind, PartTag, Result, UploadId};
use bytes::Bytes;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstatat};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

/// Bytes per read while a part is checked.
const READ_BYTES: usize = 1 << 20;
/// Unit of `st_blocks`, independent of the file system's block size.
const BLOCK_BYTES: u64 = 512;
impl Tree {
    /// Waits until the directory `path` and all its ancestors are on disk, whoever created them.
    pub(super) fn sync_directories(&self, path: &str) -> Result<(), Blocked> {
        if !self.synced.contains("") {
            self.sync_above_root();
            self.synced.add("");
        }
        let mut directory: Option<OwnedFd> = None;
        let mut end = 0;
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            let parent_end = end;
            end += segment.len() + usize::from(end > 0);
            if self.synced.contains(&path[..end]) {
                directory = None;
                continue;
            }
            let parent = match directory.take() {
                Some(parent) => parent,
                None => self.open_directory(&path[..parent_end])?,
            };
            self.disk.sync(parent.as_fd())?;
            self.synced.add(&path[..end]);
            directory = Some(self.open_directory(&path[..end])?);
        }
        Ok(())
    }

    /// Syncs the directories above the root, which this store may have created. It cannot have created those that it
    /// may not open.
    fn sync_above_root(&self) {
        for parent in self.root.ancestors().skip(1) {
            if let Ok(parent) = File::open(parent) {
                // A file system that cannot sync directories makes no promise about them either.
                let _ = self.disk.sync(parent.as_fd());
            }
        }
    }

    /// Waits until the object `key` is on disk.
    pub(super) fn sync_object(&self, key: &str) -> Result<()> {
        const OPERATION: &str = "sync";
        let split = self.split(OPERATION, key)?;
        let fail = |errno| self.system_error(OPERATION, key, errno);
        let blocked = |blocked| self.blocked_error(OPERATION, key, blocked);
        if split.is_directory {
            return self.sync_directories(key.trim_end_matches('/')).map_err(blocked);
        }
        let directory = self.open_directory(split.parent).map_err(blocked)?;
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
        let file = openat(&directory, split.name, flags, Mode::empty()).map_err(fail)?;
        self.disk.sync(file.as_fd()).map_err(fail)?;
        self.disk.sync(directory.as_fd()).map_err(fail)?;
        self.sync_directories(split.parent).map_err(blocked)
    }

    /// The inode's change time, which no program can set.
    pub(super) fn changed_unix_ms(&self, key: &str) -> Option<i64> {
        let split = self.split("stat", key).ok()?;
        let directory = self.open_directory(split.parent).ok()?;
        let stat = fstatat(&directory, split.name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        Some(stat.st_ctime * 1000 + stat.st_ctime_nsec / 1_000_000)
    }

    /// Returns whether the bytes of `part` of an upload are intact. Reads them.
    pub(super) fn has_part(&self, key: &str, upload: &UploadId, offset: u64, part: &PartTag) -> Result<bool> {
        let (_, file) = self.open_temporary("check part", key, upload, OFlag::O_RDONLY)?;
        self.part_is_in(key, &file, offset, part)
    }

    /// Returns whether the temporary file is as long as its parts and occupies at least as much space. A file that was
    /// truncated and grew again has a hole instead of the parts. On a file system that compresses, the file occupies
    /// less, which costs one read.
    pub(super) fn may_hold_parts(&self, key: &str, upload: &UploadId, end: u64, bytes: u64) -> Result<bool> {
        let (_, file) = self.open_temporary("check upload", key, upload, OFlag::O_RDONLY)?;
        let metadata = file.metadata().map_err(|error| self.io_error("check upload", key, &error))?;
        Ok(metadata.len() >= end && metadata.blocks().saturating_mul(BLOCK_BYTES) >= bytes)
    }

    fn part_is_in(&self, key: &str, file: &File, offset: u64, part: &PartTag) -> Result<bool> {
        let mut sums = crate::Checksums::of_segments(&[]);
        let mut buffer = vec![0; READ_BYTES];
        let mut at = offset;
        let Some(end) = offset.checked_add(part.size_bytes) else { return Ok(false) };
        while at < end {
            let wanted = (end - at).min(READ_BYTES as u64) as usize;
            match file.read_at(&mut buffer[..wanted], at) {
                Ok(0) => return Ok(false),
                Ok(read) => {
                    let piece = crate::Checksums::of_segments(&[Bytes::copy_from_slice(&buffer[..read])]);
                    sums = crate::Checksums::concat(&sums, &piece, read as u64);
                    at += read as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io_error("check part", key, &error)),
            }
        }
        Ok(sums.agrees_with(&part.checksums) == Some(true))
    }

    /// Reads the parts of an upload that were written before the last boot, and refuses the upload if one was lost.
    pub(super) fn refuse_lost_parts(&self, key: &str, file: &File, parts: &[PartTag]) -> Result<()> {
        const OPERATION: &str = "complete upload";
        let mut offset = 0;
        for part in parts {
            if part.tag != self.disk.boot() && !self.part_is_in(key, file, offset, part)? {
                let message = format!("part {} was lost when the machine restarted", part.part);
                return Err(self.error(ErrorKind::ChecksumMismatch, OPERATION, key, message));
            }
            offset += part.size_bytes;
        }
        Ok(())
    }
}
