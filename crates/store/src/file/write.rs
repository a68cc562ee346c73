//! Writes files: into a temporary file beside the target, which a `rename` makes visible.
//!
//! `rename` replaces whatever has the name: a file, but also a device or a link. To replace only regular files, the
//! name is checked, following no link, before the first byte is written and again before the `rename`.

mod spellings;
mod trimmed_names;

use super::Tree;
use super::disk::Disk;
use super::entries::each_entry;
use super::links::Blocked;
use super::own_links::{Witness, between_removals};
use super::path::{Split, is_temporary_of, temporary_name};
use super::read::{identity_of, is_kind, object_info, special_name};
use super::temporary::{TemporaryFile, errno_of_another};
use crate::model::stays;
use crate::{
    ErrorKind, Expect, ObjectDeletion, PartTag, Payload, PendingUpload, PutOptions, Restored, Result, UploadId, Written,
};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use nix::unistd::UnlinkatFlags;
use std::ffi::CStr;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Segments per `pwritev`. IOV_MAX is 1024 on Linux and at least 16 by POSIX.
const SEGMENTS_PER_CALL: usize = 16;

/// Mode of new files, which the umask narrows.
const NEW_MODE: Mode = Mode::from_bits_truncate(0o666);
/// Mode of a temporary file that gets its own mode at the end: until then, nobody else may read it.
const PRIVATE_MODE: Mode = Mode::from_bits_truncate(0o600);

/// Tries to give a new file its name, if others take it and give it up again each time.
const RENAME_TRIES_MAX: u32 = 8;

/// Locks for files whose parts are written concurrently. Two files that share a lock wait for each other.
const TURNS: usize = 64;

/// Allows one writer at a time per file. The kernel's inode lock does so too, but makes the others spin, which takes a
/// tenth of the CPU of a download into memory.
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
    disk: &'a dyn Disk,
    directory: &'a OwnedFd,
    name: String,
    kept: bool,
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.kept {
            // If this fails, the file stays until the cleanup after a crash finds it.
            let _ = self.disk.remove(self.directory, &self.name, UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// Writes all segments at `offset`.
fn write_segments(disk: &dyn Disk, file: &File, payload: &Payload, mut offset: u64) -> Result<(), Errno> {
    for segments in payload.segments().chunks(SEGMENTS_PER_CALL) {
        let mut slices = [IoSlice::new(&[]); SEGMENTS_PER_CALL];
        for (slice, segment) in slices.iter_mut().zip(segments) {
            *slice = IoSlice::new(segment);
        }
        let mut left = &mut slices[..segments.len()];
        while !left.is_empty() {
            match disk.write(file, left, offset) {
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

fn system_time(is_before_1970: bool, distance: Duration) -> Option<SystemTime> {
    if is_before_1970 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
}

/// The type of an existing entry that a write may not replace; `None` for a regular file.
fn irreplaceable(mode: libc::mode_t) -> Option<&'static str> {
    Some(match mode & libc::S_IFMT {
        libc::S_IFREG => return None,
        libc::S_IFDIR => "a directory",
        _ => special_name(mode),
    })
}

impl Tree {
    pub(super) fn put(&self, key: &str, payload: &Payload, options: &PutOptions) -> Result<Written> {
        let split = self.split("put", key)?;
        if split.is_directory {
            return self.put_directory(key, payload, options);
        }
        let fail = |errno| self.system_error("put", key, errno);
        let directory = self.make_directory(split.parent).map_err(|blocked| self.blocked_error("put", key, blocked))?;
        self.stat_replaceable("put", key, &directory, split.name)?;
        let name = temporary_name(split.name);
        // Released after the temporary file has its final name, or is removed.
        let _listed = self.write_list.get().and_then(|list| list.add(key, &name));
        let (file, mut temporary) = self.create_temporary(&directory, name, options).map_err(fail)?;
        write_segments(self.disk.as_ref(), &file, payload, 0).map_err(fail)?;
        self.disk.flush(file.as_fd()).map_err(fail)?;
        let written = self.publish("put", key, split, &file, &temporary, options)?;
        temporary.kept = true;
        Ok(written)
    }

    fn put_directory(&self, key: &str, payload: &Payload, options: &PutOptions) -> Result<Written> {
        if !payload.is_empty() {
            let message = "a key that ends in `/` is a directory and cannot have content";
            return Err(self.error(ErrorKind::InvalidKey, "put", key, message));
        }
        let path = key.strip_suffix('/').unwrap_or(key);
        let fail = |blocked| self.blocked_error("put", key, blocked);
        self.make_directory(path).map_err(fail)?;
        if self.is_durable(options) {
            self.sync_directories(path).map_err(fail)?;
        }
        Ok(Written::default())
    }

    fn is_durable(&self, options: &PutOptions) -> bool {
        self.fsync || options.durable
    }

    fn create_temporary<'a>(
        &'a self,
        directory: &'a OwnedFd,
        name: String,
        options: &PutOptions,
    ) -> Result<(File, Temporary<'a>), Errno> {
        let mode = if Restored::of(options).mode.is_some() { PRIVATE_MODE } else { NEW_MODE };
        let file = self.disk.create(directory, &name, mode)?;
        Ok((file, Temporary { disk: self.disk.as_ref(), directory, name, kept: false }))
    }

    /// Gives a complete temporary file its attributes and its final name, and returns the file's identity.
    fn publish(
        &self,
        operation: &'static str,
        key: &str,
        split: Split<'_>,
        file: &File,
        temporary: &Temporary<'_>,
        options: &PutOptions,
    ) -> Result<Written> {
        let fail = |errno| self.system_error(operation, key, errno);
        self.restore(file, options).map_err(|error| self.io_error(operation, key, &error))?;
        if self.is_durable(options) {
            // After a failed sync the kernel discards the bytes and the next sync succeeds, so they must be written
            // again.
            let lost = |errno: Errno| self.error(ErrorKind::ChecksumMismatch, operation, key, errno.desc());
            self.disk.sync(file.as_fd()).map_err(lost)?;
        }
        self.rename_into_place(operation, key, split, temporary, options.expect.as_ref())?;
        if self.is_durable(options) {
            self.disk.sync(temporary.directory.as_fd()).map_err(fail)?;
            let synced = self.sync_directories(split.parent);
            synced.map_err(|blocked| self.blocked_error(operation, key, blocked))?;
        }
        // The rename changes the identity too, so read it afterwards.
        let metadata = file.metadata().map_err(|error| self.io_error(operation, key, &error))?;
        Ok(Written { file: Some(identity_of(&metadata)), size_bytes: Some(metadata.len()), ..Written::default() })
    }

    /// Gives a complete file its final name, if what has the name now may be replaced.
    ///
    /// No system call replaces a file on a condition, so it is checked just before. A file that finds its name free
    /// replaces none: another one may take the name meanwhile, perhaps under another spelling. That one is then looked at.
    fn rename_into_place(
        &self,
        operation: &'static str,
        key: &str,
        split: Split<'_>,
        temporary: &Temporary<'_>,
        expect: Option<&Expect>,
    ) -> Result<()> {
        let fail = |errno| self.system_error(operation, key, errno);
        self.refuse_trimmed(operation, key, split, temporary)?;
        let mut tries_left = RENAME_TRIES_MAX;
        loop {
            let replaced = self.stat_replaceable(operation, key, temporary.directory, split.name)?;
            self.refuse_other_spellings(operation, key, split, temporary, replaced.is_some())?;
            let found = replaced.as_ref().map(|stat| object_info(key.to_owned(), stat));
            if expect.is_some_and(|expect| !expect.is_met_by(found.as_ref())) {
                return Err(self.error(
                    ErrorKind::PreconditionFailed,
                    operation,
                    key,
                    "another file now has this name",
                ));
            }
            let Some(replaced) = replaced else {
                tries_left -= 1;
                match self.disk.rename_new(temporary.directory, &temporary.name, split.name) {
                    Err(Errno::EEXIST) if tries_left > 0 => continue,
                    renamed => return renamed.map_err(fail),
                }
            };
            let witness = Witness::of(temporary.directory, split.name, &replaced);
            self.disk.rename(temporary.directory, &temporary.name, split.name).map_err(fail)?;
            if let Some(witness) = witness {
                witness.note();
            }
            return Ok(());
        }
    }

    /// Gives a file the owner, mode and time that it is to have.
    fn restore(&self, file: &File, options: &PutOptions) -> std::io::Result<()> {
        let restored = Restored::of(options);
        if restored.uid.is_some() || restored.gid.is_some() {
            self.disk.set_owner(file, restored.uid, restored.gid)?;
        }
        // After the owner, because a new owner clears the setuid bit.
        if let Some(mode) = restored.mode {
            self.disk.set_mode(file, mode)?;
        }
        let modified_unix_ms = options.modified_unix_ms.filter(|_| options.preserve.time);
        let kept = restored.modified_unix_ns.map(|ns| system_time(ns < 0, Duration::from_nanos(ns.unsigned_abs())));
        let stated = modified_unix_ms.map(|ms| system_time(ms < 0, Duration::from_millis(ms.unsigned_abs())));
        kept.or(stated).flatten().map_or(Ok(()), |time| self.disk.set_modified(file, time))
    }

    /// Stats the file that has a name; `None` if the name is free. Refuses anything but a regular file. Links are not
    /// followed here, even if reads follow them: `rename` would replace the link, not its target.
    fn stat_replaceable(
        &self,
        operation: &'static str,
        key: &str,
        directory: &OwnedFd,
        name: &str,
    ) -> Result<Option<FileStat>> {
        let stat = match between_removals(|| fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)) {
            Ok(stat) => stat,
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(self.system_error(operation, key, errno)),
        };
        let Some(what) = irreplaceable(stat.st_mode) else { return Ok(Some(stat)) };
        let message = format!("{what} has this name");
        Err(self.error(ErrorKind::InvalidKey, operation, key, message))
    }

    pub(super) fn open_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId> {
        let split = self.file_split("open upload", key)?;
        let fail = |errno| self.system_error("open upload", key, errno);
        let directory =
            self.make_directory(split.parent).map_err(|blocked| self.blocked_error("open upload", key, blocked))?;
        // Refuse now rather than after all parts are written.
        self.stat_replaceable("open upload", key, &directory, split.name)?;
        let name = temporary_name(split.name);
        let (file, mut temporary) = self.create_temporary(&directory, name, options).map_err(fail)?;
        let number = self.disk.file_number(&fstat(&file).map_err(fail)?);
        temporary.kept = true;
        Ok(TemporaryFile { name: &temporary.name, number: Some(number) }.upload_id())
    }

    fn file_split<'a>(&self, operation: &'static str, key: &'a str) -> Result<Split<'a>> {
        let split = self.split(operation, key)?;
        if split.is_directory {
            return Err(self.error(ErrorKind::InvalidKey, operation, key, "a key that ends in `/` is a directory"));
        }
        Ok(split)
    }

    /// Opens the temporary file of an upload, and no other file that has since taken its name. Never creates it: a part
    /// that arrives after completion or abort finds no file. A file that this user may not open is of no use: a run that
    /// was killed at the end of the upload has given it the mode of the source.
    pub(super) fn open_temporary(
        &self,
        operation: &'static str,
        key: &str,
        upload: &UploadId,
        access: OFlag,
    ) -> Result<(OwnedFd, File)> {
        let split = self.file_split(operation, key)?;
        let gone = || self.error(ErrorKind::UploadNotFound, operation, key, "no such upload");
        let Some(temporary) = TemporaryFile::of(upload, split.name) else { return Err(gone()) };
        let fail = |blocked: Blocked| match blocked {
            Blocked::System(Errno::ENOENT) => gone(),
            other => self.blocked_error(operation, key, other),
        };
        let directory = self.open_directory(split.parent).map_err(fail)?;
        // Without O_NONBLOCK, opening a FIFO waits for its other end.
        let flags = access | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let opened = openat(&directory, temporary.name, flags, Mode::empty());
        let opened = opened.map_err(|errno| match errno {
            Errno::EACCES | Errno::EPERM => {
                let message = "the file of the unfinished upload may not be opened";
                self.error(ErrorKind::UploadNotFound, operation, key, message)
            }
            _ if errno_of_another(errno) => gone(),
            _ => fail(errno.into()),
        });
        let file = File::from(opened?);
        let stat = fstat(&file).map_err(|errno| fail(errno.into()))?;
        if temporary.may_be_written(self.disk.as_ref(), &stat) { Ok((directory, file)) } else { Err(gone()) }
    }

    pub(super) fn put_part(&self, key: &str, upload: &UploadId, offset: u64, payload: &Payload) -> Result<()> {
        let (_, file) = self.open_temporary("put part", key, upload, OFlag::O_WRONLY)?;
        let _turn = self.turns.take(upload);
        // Within the turn: some file systems report an error once for the file, to whoever closes it first.
        write_segments(self.disk.as_ref(), &file, payload, offset)
            .and_then(|()| self.disk.flush(file.as_fd()))
            .map_err(|errno| self.system_error("put part", key, errno))
    }

    pub(super) fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[PartTag],
        options: &PutOptions,
    ) -> Result<Written> {
        const OPERATION: &str = "complete upload";
        let (directory, file) = self.open_temporary(OPERATION, key, upload, OFlag::O_RDWR)?;
        let size_bytes: u64 = parts.iter().map(|part| part.size_bytes).sum();
        let io_fail = |error: std::io::Error| self.io_error(OPERATION, key, &error);
        let written = file.metadata().map_err(io_fail)?.len();
        if written < size_bytes {
            let message = format!("{written} bytes were written, the parts have {size_bytes}");
            return Err(self.error(ErrorKind::BadRequest, OPERATION, key, message));
        }
        if written > size_bytes {
            self.disk.set_length(&file, size_bytes).map_err(io_fail)?;
        }
        self.refuse_lost_parts(key, &file, parts)?;
        let disk = self.disk.as_ref();
        let split = self.file_split(OPERATION, key)?;
        let gone = || self.error(ErrorKind::UploadNotFound, OPERATION, key, "no such upload");
        let name = TemporaryFile::of(upload, split.name).ok_or_else(gone)?.name.to_owned();
        let temporary = Temporary { disk, directory: &directory, name, kept: true };
        self.publish(OPERATION, key, split, &file, &temporary, options)
    }

    pub(super) fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        self.remove_temporary("abort upload", key, upload).map(drop)
    }

    /// Removes the temporary file of an upload, unless something else has its name. Returns whether it was removed.
    pub(super) fn remove_temporary(&self, operation: &'static str, key: &str, upload: &UploadId) -> Result<bool> {
        let split = self.file_split(operation, key)?;
        let Some(temporary) = TemporaryFile::of(upload, split.name) else { return Ok(false) };
        let removed = self.open_directory(split.parent).and_then(|directory| {
            let stat = fstatat(&directory, temporary.name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
            let is_ours = temporary.may_be_removed(self.disk.as_ref(), &stat);
            if is_ours {
                self.disk.remove(&directory, temporary.name, UnlinkatFlags::NoRemoveDir)?;
            }
            Ok(is_ours)
        });
        match removed {
            Ok(removed) => Ok(removed),
            Err(Blocked::System(Errno::ENOENT)) => Ok(false),
            Err(blocked) => Err(self.blocked_error(operation, key, blocked)),
        }
    }

    pub(super) fn pending_uploads(&self, key: &str) -> Result<Vec<PendingUpload>> {
        let split = self.split("list uploads", key)?;
        let fail = |errno| self.system_error("list uploads", key, errno);
        let directory = match self.open_directory(split.parent) {
            Ok(directory) => directory,
            Err(Blocked::System(Errno::ENOENT | Errno::ENOTDIR)) => return Ok(Vec::new()),
            Err(blocked) => return Err(self.blocked_error("list uploads", key, blocked)),
        };
        let mut names = Vec::new();
        let look = |entry: &[u8], _| {
            names.extend(
                std::str::from_utf8(entry).ok().filter(|name| is_temporary_of(name, split.name)).map(str::to_owned),
            );
            Ok(())
        };
        match each_entry(&directory, look) {
            Ok(()) | Err(Errno::ENOENT) => {} // Removed meanwhile.
            Err(errno) => return Err(fail(errno)),
        }
        let pending = names.into_iter().filter_map(|name| {
            let stat = fstatat(&directory, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
            let found = TemporaryFile { name: &name, number: Some(self.disk.file_number(&stat)) };
            let opened_unix_ms = object_info(String::new(), &stat).modified_unix_ms;
            let pending = PendingUpload { upload: found.upload_id(), opened_unix_ms };
            found.may_be_written(self.disk.as_ref(), &stat).then_some(pending)
        });
        Ok(pending.collect())
    }

    /// Deletes a file or an empty directory. A missing file, or a directory with entries (which is not an object), is
    /// not an error. A mount point can never be removed.
    ///
    /// No system call unlinks a file on a condition, so the file is checked right before. If a writer replaces it
    /// within these microseconds, or writes to it through an open descriptor, that write is lost. Renaming it away
    /// first would close the gap, but would hide the file from its readers and, after a crash, from its owner.
    pub(super) fn delete(&self, deletion: &ObjectDeletion) -> Result<()> {
        let key = &deletion.key;
        let split = self.split("delete", key)?;
        let flag = if split.is_directory { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
        let removed = self.open_directory(split.parent).map_err(Refused::Blocked).and_then(|directory| {
            let stat = self.refuse_changed(&directory, split, deletion)?;
            let witness = stat.and_then(|stat| Witness::of(&directory, split.name, &stat));
            self.disk.remove(&directory, split.name, flag)?;
            if let Some(witness) = witness {
                witness.note();
            }
            Ok(())
        });
        match removed {
            Ok(()) => Ok(()),
            Err(Refused::Blocked(Blocked::System(Errno::ENOENT | Errno::ENOTDIR | Errno::ENOTEMPTY))) => Ok(()),
            Err(Refused::Blocked(Blocked::System(Errno::EISDIR))) if !split.is_directory => Ok(()),
            // A full directory that cannot be removed anyway (a mount point, a read-only file system) returns another
            // error.
            Err(Refused::Blocked(_)) if split.is_directory && self.holds_anything(split) => Ok(()),
            Err(Refused::Blocked(Blocked::System(Errno::EBUSY))) => Err(self.error(
                ErrorKind::Unsupported,
                "delete",
                key,
                "it is a mount point, or the system uses it (EBUSY)",
            )),
            Err(Refused::Blocked(blocked)) => Err(self.blocked_error("delete", key, blocked)),
            Err(Refused::Changed(difference)) => Err(stays(self.object_url(key), difference)),
        }
    }

    /// Returns whether a directory is known to hold an entry.
    fn holds_anything(&self, split: Split<'_>) -> bool {
        let entries = self.open_directory(split.parent).and_then(|parent| {
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            Dir::openat(&parent, split.name, flags, Mode::empty()).map_err(Blocked::System)
        });
        let is_entry = |name: &CStr| name != c"." && name != c"..";
        entries.is_ok_and(|mut entries| entries.iter().flatten().any(|entry| is_entry(entry.file_name())))
    }

    /// Refuses a file that changed, and returns its state. An empty directory has nothing to lose, so its state does
    /// not matter.
    fn refuse_changed(
        &self,
        directory: &OwnedFd,
        split: Split<'_>,
        deletion: &ObjectDeletion,
    ) -> Result<Option<FileStat>, Refused> {
        if deletion.condition.is_any() || split.is_directory {
            return Ok(None);
        }
        // Unlinking removes the link itself. Only where links are followed does the condition apply to the link's
        // target.
        let stat = self.stat_entry(directory, split.name, &deletion.key).map_err(Refused::Blocked)?;
        if !is_kind(&stat, libc::S_IFREG) {
            return Err(Refused::Changed("it is no longer a regular file"));
        }
        match deletion.condition.difference(&object_info(deletion.key.clone(), &stat)) {
            Some(difference) => Err(Refused::Changed(difference)),
            None => Ok(Some(stat)),
        }
    }
}

/// Why a file was not deleted.
enum Refused {
    Blocked(Blocked),
    Changed(&'static str),
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Self::Blocked(errno.into())
    }
}

#[cfg(test)]
mod tests;
