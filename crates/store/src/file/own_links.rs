//! Names of hard-linked files that this process took away itself.
//!
//! Removing one name of a file changes the time of change of the file, and so the identity under which its other names
//! are known. `mv` does this when it deletes, or replaces at the destination, one of several names of a file. Those
//! changes are noted, with the identity before and after, so that nothing else can hide behind them: a file that was
//! also rewritten, or has got or lost a name by somebody else's hand, has an identity that was never noted.

use super::read::identity_of_stat;
use crate::FileIdentity;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Changes remembered (about 60 bytes each). At the limit all are forgotten: the files then count as changed, and stay.
const CHANGES_MAX: usize = 1 << 20;
#[cfg(target_os = "linux")]
const WITNESS: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
#[cfg(not(target_os = "linux"))]
const WITNESS: OFlag = OFlag::O_RDONLY.union(OFlag::O_NONBLOCK).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Device and inode.
type Inode = (u64, u64);

#[derive(Debug, Default)]
struct Noted {
    /// The identities that each file had, in order, each made of the one before by a removal of ours.
    states: HashMap<Inode, Vec<FileIdentity>>,
    changes: usize,
}

static NOTED: LazyLock<Mutex<Noted>> = LazyLock::new(Mutex::default);

impl Noted {
    fn add(&mut self, before: FileIdentity, after: FileIdentity) {
        if self.changes >= CHANGES_MAX {
            *self = Self::default();
        }
        self.changes += 1;
        let states = self.states.entry((before.device, before.inode)).or_default();
        if states.last() != Some(&before) {
            states.clear();
            states.push(before);
        }
        states.push(after);
    }

    fn leads(&self, before: &FileIdentity, now: &FileIdentity) -> bool {
        let Some(states) = self.states.get(&(before.device, before.inode)) else { return false };
        // The state that was listed is one of the first, the present one of the last.
        let before = states.iter().position(|known| known == before);
        let now = states.iter().rposition(|known| known == now);
        before.zip(now).is_some_and(|(before, now)| before < now)
    }
}

/// Whether removals of names by this process, and nothing else, made `now` of the file that was `before`.
pub(crate) fn is_own_unlinking(before: &FileIdentity, now: &FileIdentity) -> bool {
    NOTED.lock().unwrap_or_else(PoisonError::into_inner).leads(before, now)
}

/// Watches a file that has other names too while one of its names is taken away. Until then no other name of such a file
/// is, and whoever asks [`is_own_unlinking`] waits: a state that was seen in between must have been noted.
#[derive(Debug)]
pub(super) struct Witness {
    file: OwnedFd,
    before: FileIdentity,
    noted: MutexGuard<'static, Noted>,
}

impl Witness {
    /// Before the entry `name`, which was found to be `stat`, is removed or replaced. `None` if the file has no other
    /// name, or cannot be watched.
    pub(super) fn of(directory: &OwnedFd, name: &str, stat: &FileStat) -> Option<Self> {
        if identity_of_stat(stat).links < 2 {
            return None;
        }
        let file = openat(directory, name, WITNESS, Mode::empty()).ok()?;
        let noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn state(changed_unix_ns: i64, links: u64) -> FileIdentity {
        FileIdentity { device: 1, inode: 2, modified_unix_ns: 3, changed_unix_ns, links }
    }

    #[test]
    fn only_an_unbroken_row_of_own_removals_explains_a_change() {
        let mut noted = Noted::default();
        noted.add(state(10, 4), state(11, 3));
        noted.add(state(11, 3), state(12, 2));
        assert!(noted.leads(&state(10, 4), &state(12, 2)) && noted.leads(&state(11, 3), &state(12, 2)));
        assert!(!noted.leads(&state(10, 4), &state(13, 2)), "somebody else changed it after our last removal");
        assert!(!noted.leads(&state(12, 2), &state(10, 4)));
        noted.add(state(20, 2), state(21, 1));
        assert!(!noted.leads(&state(10, 4), &state(21, 1)), "somebody else changed it between two removals of ours");
        assert!(noted.leads(&state(20, 2), &state(21, 1)));
    }

    #[test]
    fn at_the_limit_all_is_forgotten() {
        let mut noted = Noted { changes: CHANGES_MAX, ..Noted::default() };
        noted.add(state(10, 2), state(11, 1));
        assert_eq!(noted.changes, 1);
        assert!(noted.leads(&state(10, 2), &state(11, 1)));
    }
}
