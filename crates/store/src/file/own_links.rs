//! Observes files with several names while this process removes one of the names; see
//! [`OwnUnlinkings`](crate::model::OwnUnlinkings).

use super::read::identity_of_stat;
use crate::FileIdentity;
use crate::model::{OwnUnlinkings, own_unlinkings};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat};
use std::os::fd::OwnedFd;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(target_os = "linux")]
const WITNESS: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
#[cfg(not(target_os = "linux"))]
const WITNESS: OFlag = OFlag::O_RDONLY.union(OFlag::O_NONBLOCK).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Begins and ends of the removals that a [`Witness`] observes: odd while one is under way.
static REMOVAL_STEPS: AtomicU64 = AtomicU64::new(0);

/// Takes a file's attributes with `stat`, but not while this process removes a name of a file with several. The kernel
/// changes the count of names and the time of that change one after the other: what is seen in between was never noted.
pub(super) fn between_removals<T>(stat: impl Fn() -> T) -> T {
    let steps = REMOVAL_STEPS.load(Ordering::SeqCst);
    let seen = stat();
    if steps.is_multiple_of(2) && REMOVAL_STEPS.load(Ordering::SeqCst) == steps {
        return seen;
    }
    let _none_under_way = own_unlinkings();
    stat()
}

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
        REMOVAL_STEPS.fetch_add(1, Ordering::SeqCst);
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

impl Drop for Witness {
    fn drop(&mut self) {
        REMOVAL_STEPS.fetch_add(1, Ordering::SeqCst);
    }
}
