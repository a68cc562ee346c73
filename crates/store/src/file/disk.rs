//! The system calls that change a tree, behind a trait. A test can record them and undo what a power loss may undo.

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, mkdirat};
use nix::sys::uio::pwritev;
use nix::unistd::{UnlinkatFlags, close, fsync, unlinkat};
use rustix::fs::{RenameFlags, renameat_with};
use std::fmt::Debug;
use std::fs::{File, FileTimes, Permissions};
use std::io::IoSlice;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, fchown};
use std::sync::OnceLock;
use std::time::SystemTime;

/// Changes to a tree. Until a file or directory is synced, a power loss may undo any of its changes.
pub trait Disk: Debug + Send + Sync {
    /// An id of the current boot of the machine. If it differs later, unsynced changes may be lost.
    fn boot(&self) -> &str;

    /// A number that identifies a file as long as it exists, also across reboots. This is its inode; the device is left
    /// out because its number may change with each mount.
    fn file_number(&self, stat: &FileStat) -> u64 {
        stat.st_ino
    }

    /// Creates a file that must not exist yet, open for writing. The umask narrows `mode`.
    fn create(&self, directory: &OwnedFd, name: &str, mode: Mode) -> Result<File, Errno>;

    /// Creates a directory; [`Errno::EEXIST`] if the name is taken.
    fn make_directory(&self, parent: &OwnedFd, name: &str) -> Result<(), Errno>;

    /// Writes at `offset`; returns the number of bytes written.
    fn write(&self, file: &File, slices: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno>;

    /// Truncates or extends a file to `bytes`.
    fn set_length(&self, file: &File, bytes: u64) -> std::io::Result<()>;

    /// Sets the modification time.
    fn set_modified(&self, file: &File, time: SystemTime) -> std::io::Result<()>;

    /// Sets user and group, where they are given. May clear the setuid and setgid bits.
    fn set_owner(&self, file: &File, uid: Option<u32>, gid: Option<u32>) -> std::io::Result<()> {
        fchown(file, uid, gid)
    }

    /// Sets the permission bits, whatever the umask.
    fn set_mode(&self, file: &File, mode: u32) -> std::io::Result<()> {
        file.set_permissions(Permissions::from_mode(mode))
    }

    /// Returns the error that the file system has kept for the next close of the file. Network file systems and many
    /// behind FUSE accept every write, and report a full disk only then.
    fn flush(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        close(file.try_clone_to_owned().map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?)
    }

    /// Waits until the bytes of a file, or the entries of a directory, are on disk.
    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno>;

    /// Renames within a directory and replaces any file named `to`.
    fn rename(&self, directory: &OwnedFd, from: &str, to: &str) -> Result<(), Errno>;

    /// Renames within a directory; [`Errno::EEXIST`] if the name `to` is taken.
    fn rename_new(&self, directory: &OwnedFd, from: &str, to: &str) -> Result<(), Errno>;

    /// Removes a file, or with [`UnlinkatFlags::RemoveDir`] an empty directory.
    fn remove(&self, directory: &OwnedFd, name: &str, flag: UnlinkatFlags) -> Result<(), Errno>;
}

/// Calls the kernel directly.
#[derive(Debug, Default)]
pub struct Kernel;

impl Disk for Kernel {
    fn boot(&self) -> &str {
        static BOOT: OnceLock<String> = OnceLock::new();
        BOOT.get_or_init(|| read_boot().unwrap_or_else(unknown_boot))
    }

    fn create(&self, directory: &OwnedFd, name: &str, mode: Mode) -> Result<File, Errno> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        openat(directory, name, flags, mode).map(File::from)
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
        // By rustix: nix has this call for glibc only.
        let renamed = renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE);
        match renamed.map_err(|error| Errno::from_raw(error.raw_os_error())) {
            // The file system does not support it (NFS, some FUSE). The caller has just checked that the name is free.
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => self.rename(directory, from, to),
            done => done,
        }
    }

    fn remove(&self, directory: &OwnedFd, name: &str, flag: UnlinkatFlags) -> Result<(), Errno> {
        unlinkat(directory, name, flag)
    }
}

/// Linux generates a random id at each boot. A container sees its host's, which is right: the host holds its bytes.
fn read_boot() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = text.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

/// An id of this process alone: bytes that another process wrote count as unsynced and are read again.
fn unknown_boot() -> String {
    format!("unknown-{:016x}", rand::random::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_id_is_stable_and_an_unknown_one_is_unique() {
        assert_eq!(Kernel.boot(), Kernel.boot());
        assert!(!Kernel.boot().is_empty());
        assert_ne!(unknown_boot(), unknown_boot());
    }
}
