//! Writing files: into a temporary file beside the target, visible by `rename`.
//!
//! `rename` replaces whatever has the name, a device or a link as well as a file. So only a regular file is ever
//! replaced: the name is looked at, following no link, before the first byte is written and again before the `rename`.

use super::Tree;
use super::path::{Split, is_temporary_of, temporary_name};
use super::read::object_info;
use crate::{ErrorKind, Payload, PendingUpload, Result, UploadId, Written};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::libc;
use nix::sys::stat::{Mode, fstatat};
use nix::sys::uio::pwritev;
use nix::unistd::{UnlinkatFlags, fsync, unlinkat};
use std::fs::{File, FileTimes};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Segments given to one `pwritev`; IOV_MAX is 1024 on Linux, 16 at least by POSIX.
const SEGMENTS_PER_CALL: usize = 16;

/// Files whose parts are written at the same time; two that share a turn wait for each other.
const TURNS: usize = 64;

/// One writer at a time for each file. The kernel lets no more in anyway (the inode's lock), but makes the others spin:
/// a tenth of the CPU of a download into memory.
#[derive(Debug)]
pub(super) struct Turns([Mutex<()>; TURNS]);

impl Default for Turns {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl Turns {
    fn take(&self, upload: &UploadId) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        upload.0.hash(&mut hasher);
        let turn = &self.0[hasher.finish() as usize % TURNS];
        turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a temporary file unless it was renamed.
struct Temporary<'a> {
    directory: &'a OwnedFd,
    name: String,
    kept: bool,
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.kept {
            // A failure leaves a file that the sweep after a crash finds.
            let _ = unlinkat(self.directory, self.name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// Writes all segments at `offset`.
fn write_segments(file: &File, payload: &Payload, mut offset: u64) -> Result<(), Errno> {
    for segments in payload.segments().chunks(SEGMENTS_PER_CALL) {
        let mut slices = [IoSlice::new(&[]); SEGMENTS_PER_CALL];
        for (slice, segment) in slices.iter_mut().zip(segments) {
            *slice = IoSlice::new(segment);
        }
        let mut left = &mut slices[..segments.len()];
        while !left.is_empty() {
            let at = libc::off_t::try_from(offset).map_err(|_| Errno::EFBIG)?;
            match pwritev(file, left, at) {
                Ok(0) => return Err(Errno::EIO),
                Ok(written) => {
                    offset += written as u64;
                    payload.sent(written as u64);
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

fn system_time(unix_ms: i64) -> SystemTime {
    let distance = Duration::from_millis(unix_ms.unsigned_abs());
    if unix_ms < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// What has the name, where it is none of the files that a write may replace.
fn irreplaceable(mode: libc::mode_t) -> Option<&'static str> {
    Some(match mode & libc::S_IFMT {
        libc::S_IFREG => return None,
        libc::S_IFDIR => "a directory",
        libc::S_IFLNK => "a symbolic link",
        libc::S_IFIFO => "a FIFO",
        libc::S_IFSOCK => "a socket",
        libc::S_IFCHR | libc::S_IFBLK => "a device",
        _ => "something that is no regular file",
    })
}

impl Tree {
    pub(super) fn put(&self, key: &str, payload: &Payload, modified_unix_ms: Option<i64>) -> Result<Written> {
        let split = self.split("put", key)?;
        if split.is_directory {
            return self.put_directory(key, payload);
        }
        let fail = |errno| self.system_error("put", key, errno);
        let directory = self.make_directory(split.parent).map_err(fail)?;
        self.refuse_irreplaceable("put", key, &directory, split.name)?;
        let (file, mut temporary) = self.create_temporary(&directory, split.name).map_err(fail)?;
        write_segments(&file, payload, 0).map_err(fail)?;
        self.publish("put", key, split, &file, &temporary, modified_unix_ms)?;
        temporary.kept = true;
        Ok(Written::default())
    }

    fn put_directory(&self, key: &str, payload: &Payload) -> Result<Written> {
        if !payload.is_empty() {
            let message = "a key that ends in `/` is a directory and cannot hold bytes";
            return Err(self.error(ErrorKind::InvalidKey, "put", key, message));
        }
        let path = key.strip_suffix('/').unwrap_or(key);
        self.make_directory(path).map_err(|errno| self.system_error("put", key, errno))?;
        Ok(Written::default())
    }

    fn create_temporary<'a>(&self, directory: &'a OwnedFd, name: &str) -> Result<(File, Temporary<'a>), Errno> {
        let temporary = temporary_name(name);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let file = openat(directory, temporary.as_str(), flags, Mode::from_bits_truncate(0o666))?;
        self.folds_case.get_or_init(|| {
            let folded = temporary.replace(".tradewind-", ".TRADEWIND-");
            fstatat(directory, folded.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
        });
        Ok((file.into(), Temporary { directory, name: temporary, kept: false }))
    }

    /// Gives a complete temporary file its time and its name.
    fn publish(
        &self,
        operation: &'static str,
        key: &str,
        split: Split<'_>,
        file: &File,
        temporary: &Temporary<'_>,
        modified_unix_ms: Option<i64>,
    ) -> Result<()> {
        let fail = |errno| self.system_error(operation, key, errno);
        if self.folds_case.get() == Some(&true) {
            self.refuse_case_twin(operation, key, temporary.directory, split.name)?;
        }
        if let Some(modified) = modified_unix_ms {
            let times = FileTimes::new().set_modified(system_time(modified));
            file.set_times(times).map_err(|error| self.io_error(operation, key, &error))?;
        }
        if self.fsync {
            fsync(file).map_err(fail)?;
        }
        self.refuse_irreplaceable(operation, key, temporary.directory, split.name)?;
        renameat(temporary.directory, temporary.name.as_str(), temporary.directory, split.name).map_err(fail)?;
        if self.fsync {
            fsync(temporary.directory).map_err(fail)?;
        }
        Ok(())
    }

    /// Refuses a name that something other than a regular file has. Links count as what they are, also where they are
    /// followed when read: `rename` would replace the link, not what it leads to.
    fn refuse_irreplaceable(&self, operation: &'static str, key: &str, directory: &OwnedFd, name: &str) -> Result<()> {
        let stat = match fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(self.system_error(operation, key, errno)),
        };
        let Some(what) = irreplaceable(stat.st_mode) else { return Ok(()) };
        let message = format!("{what} stands where the file should be");
        Err(self.error(ErrorKind::InvalidKey, operation, key, message))
    }

    /// Where `A` and `a` are one file, writing the second would silently replace the first.
    fn refuse_case_twin(&self, operation: &'static str, key: &str, directory: &OwnedFd, name: &str) -> Result<()> {
        if fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_err() {
            return Ok(());
        }
        let mut exact = false;
        self.each_name(directory, |entry| exact |= entry == name)
            .map_err(|errno| self.system_error(operation, key, errno))?;
        if exact {
            return Ok(());
        }
        let message = "a file whose name differs only in case exists, and this file system takes both for one";
        Err(self.error(ErrorKind::InvalidKey, operation, key, message))
    }

    fn each_name(&self, directory: &OwnedFd, mut visit: impl FnMut(&str)) -> Result<(), Errno> {
        let mut entries = Dir::openat(directory, ".", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        for entry in entries.iter() {
            if let Ok(name) = entry?.file_name().to_str() {
                visit(name);
            }
        }
        Ok(())
    }

    pub(super) fn open_upload(&self, key: &str) -> Result<UploadId> {
        let split = self.file_split("open upload", key)?;
        let fail = |errno| self.system_error("open upload", key, errno);
        let directory = self.make_directory(split.parent).map_err(fail)?;
        // Better now than after all parts are written.
        self.refuse_irreplaceable("open upload", key, &directory, split.name)?;
        let (_, mut temporary) = self.create_temporary(&directory, split.name).map_err(fail)?;
        temporary.kept = true;
        Ok(UploadId(temporary.name.clone()))
    }

    fn file_split<'a>(&self, operation: &'static str, key: &'a str) -> Result<Split<'a>> {
        let split = self.split(operation, key)?;
        if split.is_directory {
            return Err(self.error(ErrorKind::InvalidKey, operation, key, "a key that ends in `/` is a directory"));
        }
        Ok(split)
    }

    /// Opens the temporary file of an upload. It is never created here: a part that comes after completion or abort
    /// finds nothing.
    fn open_temporary(&self, operation: &'static str, key: &str, upload: &UploadId) -> Result<(OwnedFd, File)> {
        let split = self.file_split(operation, key)?;
        let gone = || self.error(ErrorKind::UploadNotFound, operation, key, "no such upload");
        if !is_temporary_of(&upload.0, split.name) {
            return Err(gone());
        }
        let fail = |errno| match errno {
            Errno::ENOENT => gone(),
            other => self.system_error(operation, key, other),
        };
        let directory = self.open_directory(split.parent).map_err(fail)?;
        let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&directory, upload.0.as_str(), flags, Mode::empty()).map_err(fail)?;
        Ok((directory, file.into()))
    }

    pub(super) fn put_part(&self, key: &str, upload: &UploadId, offset: u64, payload: &Payload) -> Result<()> {
        let (_, file) = self.open_temporary("put part", key, upload)?;
        let _turn = self.turns.take(upload);
        write_segments(&file, payload, offset).map_err(|errno| self.system_error("put part", key, errno))
    }

    pub(super) fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        size_bytes: u64,
        modified_unix_ms: Option<i64>,
    ) -> Result<Written> {
        const OPERATION: &str = "complete upload";
        let (directory, file) = self.open_temporary(OPERATION, key, upload)?;
        let io_fail = |error: std::io::Error| self.io_error(OPERATION, key, &error);
        let written = file.metadata().map_err(io_fail)?.len();
        if written < size_bytes {
            let message = format!("{written} bytes were written, the parts have {size_bytes}");
            return Err(self.error(ErrorKind::BadRequest, OPERATION, key, message));
        }
        if written > size_bytes {
            file.set_len(size_bytes).map_err(io_fail)?;
        }
        let temporary = Temporary { directory: &directory, name: upload.0.clone(), kept: true };
        let split = self.file_split(OPERATION, key)?;
        self.publish(OPERATION, key, split, &file, &temporary, modified_unix_ms)?;
        Ok(Written::default())
    }

    pub(super) fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        let split = self.file_split("abort upload", key)?;
        if !is_temporary_of(&upload.0, split.name) {
            return Ok(());
        }
        let removed = self
            .open_directory(split.parent)
            .and_then(|directory| unlinkat(&directory, upload.0.as_str(), UnlinkatFlags::NoRemoveDir));
        match removed {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(self.system_error("abort upload", key, errno)),
        }
    }

    pub(super) fn pending_uploads(&self, key: &str) -> Result<Vec<PendingUpload>> {
        let split = self.split("list uploads", key)?;
        let fail = |errno| self.system_error("list uploads", key, errno);
        let directory = match self.open_directory(split.parent) {
            Ok(directory) => directory,
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(Vec::new()),
            Err(errno) => return Err(fail(errno)),
        };
        let mut names = Vec::new();
        self.each_name(&directory, |name| {
            if is_temporary_of(name, split.name) {
                names.push(name.to_owned());
            }
        })
        .map_err(fail)?;
        let pending = names.into_iter().filter_map(|name| {
            let stat = fstatat(&directory, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
            let opened_unix_ms = object_info(String::new(), &stat).modified_unix_ms;
            Some(PendingUpload { upload: UploadId(name), opened_unix_ms })
        });
        Ok(pending.collect())
    }

    /// Deletes a file, or a directory that is empty. What is not there (a directory that holds something is no object)
    /// is no error.
    pub(super) fn delete(&self, key: &str) -> Result<()> {
        let split = self.split("delete", key)?;
        let flag = if split.is_directory { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
        let removed = self.open_directory(split.parent).and_then(|directory| unlinkat(&directory, split.name, flag));
        match removed {
            Ok(()) | Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ENOTEMPTY) => Ok(()),
            Err(Errno::EISDIR) if !split.is_directory => Ok(()),
            Err(errno) => Err(self.system_error("delete", key, errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_replaced() {
        assert_eq!(irreplaceable(libc::S_IFREG | 0o644), None);
        assert_eq!(irreplaceable(libc::S_IFCHR | 0o666), Some("a device"));
        assert_eq!(irreplaceable(libc::S_IFBLK | 0o660), Some("a device"));
        assert_eq!(irreplaceable(libc::S_IFDIR | 0o755), Some("a directory"));
    }
}
