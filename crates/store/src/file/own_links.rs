//! Watches files of several names while this process takes one of the names away; see
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

/// Watches a file that has other names too while one of its names is taken away. Until then no other name of such a file
/// is, and whoever asks for the identity of a file waits: a state that was seen in between must have been noted.
#[derive(Debug)]
pub(super) struct Witness {
    file: OwnedFd,
    before: FileIdentity,
    noted: MutexGuard<'static, OwnUnlinkings>,
}

impl Witness {
    /// Before the entry `name`, which was found to be `stat`, is removed or replaced. `None` if the file has no other
    /// name, or cannot be watched.
    pub(super) fn of(directory: &OwnedFd, name: &str, stat: &FileStat) -> Option<Self> {
        if identity_of_stat(stat).links < 2 {
            return None;
        }
        let file = openat(directory, name, WITNESS, Mode::empty()).ok()?;
        let noted = own_unlinkings();
        let before = identity_of_stat(&fstat(&file).ok()?);
        Some(Self { file, before, noted })
    }

    /// After the name was taken away.
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
