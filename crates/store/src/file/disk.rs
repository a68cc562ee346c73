//! The system calls that change a tree, so that a test can record them and undo what a power loss may undo.

use nix::errno::Errno;
use nix::fcntl::{OFlag, RenameFlags, openat, renameat, renameat2};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, mkdirat};
use nix::sys::uio::pwritev;
use nix::unistd::{UnlinkatFlags, fsync, unlinkat};
use std::fmt::Debug;
use std::fs::{File, FileTimes};
use std::io::IoSlice;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::SystemTime;

/// Changes to a tree. Until a file or directory is synced, a power loss may undo any of its changes.
pub trait Disk: Debug + Send + Sync {
    /// Names the time since the machine was started. Another value means that unsynced changes may be lost.
    fn boot(&self) -> &str;

    /// A number that the file keeps as long as it exists, over restarts too, and that no other file has meanwhile. Its
    /// inode; the device is left out, because its number may be another after a mount.
    fn file_number(&self, stat: &FileStat) -> u64 {
        stat.st_ino
    }

    /// Creates a file that must not exist yet, open for writing.
    fn create(&self, directory: &OwnedFd, name: &str) -> Result<File, Errno>;

    /// Makes a directory; [`Errno::EEXIST`] where something has the name.
    fn make_directory(&self, parent: &OwnedFd, name: &str) -> Result<(), Errno>;

    /// Writes at `offset`; returns how many bytes were written.
    fn write(&self, file: &File, slices: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno>;

    /// Cuts a file to `bytes`.
    fn set_length(&self, file: &File, bytes: u64) -> std::io::Result<()>;

    /// Sets the modification time.
    fn set_modified(&self, file: &File, time: SystemTime) -> std::io::Result<()>;

    /// Waits until the bytes of a file, or the entries of a directory, are on the disk.
    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno>;

    /// Renames within a directory; replaces what has the name `to`.
    fn rename(&self, directory: &OwnedFd, from: &str, to: &str) -> Result<(), Errno>;

    /// Renames within a directory; [`Errno::EEXIST`] where something has the name `to`.
    fn rename_new(&self, directory: &OwnedFd, from: &str, to: &str) -> Result<(), Errno>;

    /// Removes a file, or with [`UnlinkatFlags::RemoveDir`] an empty directory.
    fn remove(&self, directory: &OwnedFd, name: &str, flag: UnlinkatFlags) -> Result<(), Errno>;
}

/// The kernel's own calls.
#[derive(Debug, Default)]
pub struct Kernel;

impl Disk for Kernel {
    fn boot(&self) -> &str {
        static BOOT: OnceLock<String> = OnceLock::new();
        BOOT.get_or_init(|| read_boot().unwrap_or_else(unknown_boot))
    }

    fn create(&self, directory: &OwnedFd, name: &str) -> Result<File, Errno> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        openat(directory, name, flags, Mode::from_bits_truncate(0o666)).map(File::from)
    }

    fn make_directory(&self, parent: &OwnedFd, name: &str) -> Result<(), Errno> {
        mkdirat(parent, name, Mode::from_bits_truncate(0o777))
    }

    fn write(&self, file: &File, slices: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno> {
        pwritev(file, slices, libc::off_t::try_from(offset).map_err(|_| Errno::EFBIG)?)
    }

    fn set_length(&self, file: &File, bytes: u64) -> std::io::Result<()> {
        file.set_len(bytes)
    }

    fn set_modified(&self, file: &File, time: SystemTime) -> std::io::Result<()> {
        file.set_times(FileTimes::new().set_modified(time))
    }

    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        fsync(file)
    }

    fn rename(&self, directory: &OwnedFd, from: &str, to: &str) -> Result<(), Errno> {
        renameat(directory, from, directory, to)
    }

    fn rename_new(&self, directory: &OwnedFd, from: &str, to: &str) -> Result<(), Errno> {
        match renameat2(directory, from, directory, to, RenameFlags::RENAME_NOREPLACE) {
            // The file system cannot (NFS, some FUSE): the caller has just seen that the name is free.
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => self.rename(directory, from, to),
            done => done,
        }
    }

    fn remove(&self, directory: &OwnedFd, name: &str, flag: UnlinkatFlags) -> Result<(), Errno> {
        unlinkat(directory, name, flag)
    }
}

/// Linux makes a random id at each start. Containers see their host's, which is right: the host holds their bytes.
fn read_boot() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = text.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

/// An id of this process alone: whatever another process wrote counts as unsynced and is read again.
fn unknown_boot() -> String {
    format!("unknown-{:016x}", rand::random::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_stays_the_same_and_an_unknown_one_is_never_another() {
        assert_eq!(Kernel.boot(), Kernel.boot());
        assert!(!Kernel.boot().is_empty());
        assert_ne!(unknown_boot(), unknown_boot());
    }
}
