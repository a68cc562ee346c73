//! The folder of one job: `lock`, `journal.sqlite`, `status.json`, and of a job with prices or a ceiling in bytes
//! `spent`. One lead at a time works in it.
//!
//! The lock belongs to the open file (`F_OFD_SETLK`), not to the process: it ends with the lead, however that ends, and
//! others can look at it with `F_GETLK` without taking anything. A `flock` can only be looked at by taking it, and a
//! lead that starts at that moment would find the job busy.

use crate::background::Background;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// File that a living lead holds an exclusive lock on.
pub const LOCK_FILE: &str = "lock";

/// The folder, locked for as long as this lives.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    background: Background,
    _lock: File,
}

/// Why a job's folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// Another lead holds the lock.
    #[error("another process is working on this job (it holds the lock in {})", .0.display())]
    Busy(PathBuf),
    /// The folder does not exist.
    #[error("no job in {}", .0.display())]
    Missing(PathBuf),
    /// The system refuses access.
    #[error("cannot use the job's folder {}: {error}", .path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

impl StateDirError {
    /// Returns one line of advice.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Busy(_) => "wait for it, or stop it with Ctrl-C or `tradewind jobs cancel`",
            Self::Missing(_) => "list the jobs with `tradewind jobs list`",
            Self::Io { .. } => "check the folder's owner and mode, and the free space on its disk",
        }
    }
}

impl StateDir {
    /// Creates the folder (readable by its owner only) if it is missing, and locks it.
    ///
    /// # Errors
    /// [`StateDirError::Busy`] while another lead lives, otherwise the system's error.
    pub fn create(path: &Path) -> Result<Self, StateDirError> {
        let failed = |error| StateDirError::Io { path: path.to_owned(), error };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        Self::lock(path)
    }

    /// Locks an existing folder.
    ///
    /// # Errors
    /// [`StateDirError::Missing`] if it does not exist, [`StateDirError::Busy`] while another lead lives.
    pub fn open_existing(path: &Path) -> Result<Self, StateDirError> {
        if path.is_dir() { Self::lock(path) } else { Err(StateDirError::Missing(path.to_owned())) }
    }

    fn lock(path: &Path) -> Result<Self, StateDirError> {
        let failed = |error| StateDirError::Io { path: path.to_owned(), error };
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(path.join(LOCK_FILE)).map_err(failed)?;
        match try_lock(&lock) {
            Ok(true) => Ok(Self { path: path.to_owned(), background: Background::Threads, _lock: lock }),
            Ok(false) => Err(StateDirError::Busy(path.to_owned())),
            Err(error) => Err(failed(error)),
        }
    }

    /// The same folder, with the journal's blocking work elsewhere.
    pub fn with_background(self, background: Background) -> Self {
        Self { background, ..self }
    }

    /// Where the journal's blocking work runs.
    pub fn background(&self) -> Background {
        self.background
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Locks the whole file for as long as it is open; false if another open file has the lock.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn try_lock(file: &File) -> io::Result<bool> {
    use nix::errno::Errno;
    use nix::fcntl::{FcntlArg, fcntl};
    let whole = nix::libc::flock {
        l_type: nix::libc::F_WRLCK as nix::libc::c_short,
        l_whence: nix::libc::SEEK_SET as nix::libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    match fcntl(file, FcntlArg::F_OFD_SETLK(&whole)) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Locks the file for as long as it is open; false if another open file has the lock.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(std::fs::TryLockError::WouldBlock) => Ok(false),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lead_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs/one");
        let first = StateDir::create(&path).unwrap();
        assert!(matches!(StateDir::create(&path), Err(StateDirError::Busy(_))));
        drop(first);
        // A program that another test starts has all our files, and their locks, until it executes.
        let is_free = || StateDir::open_existing(&path).is_ok();
        let mut waits = 0..1_000;
        while !is_free() {
            assert!(waits.next().is_some(), "the lock is never released");
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn looking_at_the_lock_does_not_make_a_lead_find_the_job_busy() {
        use nix::fcntl::{FcntlArg, fcntl};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one");
        drop(StateDir::create(&path).unwrap());
        let seen = File::open(path.join(LOCK_FILE)).unwrap();
        let look = || {
            let mut lock = nix::libc::flock {
                l_type: nix::libc::F_RDLCK as nix::libc::c_short,
                l_whence: 0,
                l_start: 0,
                l_len: 0,
                l_pid: 0,
            };
            fcntl(&seen, FcntlArg::F_GETLK(&mut lock)).unwrap();
            i32::from(lock.l_type)
        };
        assert_eq!(look(), nix::libc::F_UNLCK);
        let lead = StateDir::create(&path).unwrap();
        assert_eq!(look(), nix::libc::F_WRLCK);
        drop(lead);
        assert_eq!(look(), nix::libc::F_UNLCK);
    }

    #[test]
    fn a_missing_job_is_said_to_be_missing() {
        let dir = tempfile::tempdir().unwrap();
        let error = StateDir::open_existing(&dir.path().join("none")).unwrap_err();
        assert!(matches!(error, StateDirError::Missing(_)));
    }
}
