//! Observes files with several names while this process removes one of the names; see
//! [`OwnUnlinkings`](crate::model::OwnUnlinkings).

use super::read::identity_of_stat;
use crate::FileIdentity;
use crate::model::{OwnUnlinkings, own_unlinkings};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat};
use std::os::fd::OwnedFd;
use std::sync::MutexGuard;

#[cfg(target_os = "linux")]
const WITNESS: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
#[cfg(not(target_os = "linux"))]
const WITNESS: OFlag = OFlag::O_RDONLY.union(OFlag::O_NONBLOCK).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Observes a file with several names while one of them is removed. Meanwhile no other name of any such file is
/// removed, and callers that ask for a file's identity wait: a state seen in between must have been noted.
#[derive(Debug)]
pub(super) struct Witness {
    file: OwnedFd,
    before: FileIdentity,
    noted: MutexGuard<'static, OwnUnlinkings>,
}

impl Witness {
    /// Call this before the entry `name`, whose state is `stat`, is removed or replaced. `None` if the file has no
    /// other name, or cannot be observed.
    pub(super) fn of(directory: &OwnedFd, name: &str, stat: &FileStat) -> Option<Self> {
        if identity_of_stat(stat).links < 2 {
            return None;
        }
        let file = openat(directory, name, WITNESS, Mode::empty()).ok()?;
        let noted = own_unlinkings();
        let before = identity_of_stat(&fstat(&file).ok()?);
        Some(Self { file, before, noted })
    }

    /// Call this after the name was removed.
    pub(super) fn note(mut self) {
        let Ok(stat) = fstat(&self.file) else { return };
        let (before, after) = (self.before, identity_of_stat(&stat));
        let only_unlinked =
            FileIdentity { changed_unix_ns: after.changed_unix_ns, links: before.links.saturating_sub(1), ..before };
        if after == only_unlinked {
            self.noted.add(before, after);
        }
    }
}
