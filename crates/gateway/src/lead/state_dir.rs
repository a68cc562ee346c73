//! The folder of one job: `lock`, `journal.sqlite`, `status.json`, and under a cost ceiling `spent_usd_max`. One lead at a
//! time works in it.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// File that a living lead holds an exclusive `flock` on.
pub const LOCK_FILE: &str = "lock";

/// The folder, locked for as long as this lives.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
}

/// Why a job's folder cannot be worked in.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// Another lead holds the lock.
    #[error("another process works on this job (it holds the lock in {})", .0.display())]
    Busy(PathBuf),
    /// The folder is not there.
    #[error("there is no job in {}", .0.display())]
    Missing(PathBuf),
    /// The system refuses.
    #[error("the job's folder {} cannot be used: {error}", .path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl StateDirError {
    /// One line of advice.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Busy(_) => "wait for it, or stop it with Ctrl-C or `tradewind jobs cancel`",
            Self::Missing(_) => "list the jobs with `tradewind jobs list`",
            Self::Io { .. } => "check the folder's owner and mode, and the space left on its disk",
        }
    }
}

impl StateDir {
    /// Makes the folder (readable by its owner only) where it is missing, and locks it.
    ///
    /// # Errors
    /// [`StateDirError::Busy`] while another lead lives, otherwise what the system says.
    pub fn create(path: &Path) -> Result<Self, StateDirError> {
        let failed = |error| StateDirError::Io { path: path.to_owned(), error };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        Self::lock(path)
    }

    /// Locks a folder that is there.
    ///
    /// # Errors
    /// [`StateDirError::Missing`] when it is not, [`StateDirError::Busy`] while another lead lives.
    pub fn open_existing(path: &Path) -> Result<Self, StateDirError> {
        if path.is_dir() { Self::lock(path) } else { Err(StateDirError::Missing(path.to_owned())) }
    }

    fn lock(path: &Path) -> Result<Self, StateDirError> {
        let failed = |error| StateDirError::Io { path: path.to_owned(), error };
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(path.join(LOCK_FILE)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(StateDirError::Busy(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
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
        StateDir::open_existing(&path).unwrap();
    }

    #[test]
    fn a_missing_job_is_said_to_be_missing() {
        let dir = tempfile::tempdir().unwrap();
        let error = StateDir::open_existing(&dir.path().join("none")).unwrap_err();
        assert!(matches!(error, StateDirError::Missing(_)));
    }
}
