//! The identity of a file, and the changes that this process makes to it by removing names of hard-linked files.
//!
//! Removing one name of a file updates the file's change time, and with it the identity recorded for its other names.
//! `mv` causes this when it deletes, or replaces at the destination, one of several names of a file. Those changes are
//! noted with the identity before and after, so that they cannot hide any other change: a file that was also rewritten,
//! or that gained or lost a name through another process, has an identity that was never noted.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Most changes remembered (about 60 bytes each). At the limit all are forgotten: the files then count as changed and
/// are kept.
const CHANGES_MAX: usize = 1 << 20;
/// The identity of one state of a file. Any write, and any change of metadata, changes at least one field.
///
/// The kernel stamps times with its clock tick (up to 10 ms), so two writes within one tick can have the same identity.
/// A read therefore waits until the file's last change is older than a tick. Writes through a shared writable mapping
/// (`mmap`) are stamped late or never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileIdentity {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// Last modification (`st_mtim`), nanoseconds since the Unix epoch. Users can set it.
    pub modified_unix_ns: i64,
    /// Last change of bytes or metadata (`st_ctim`), nanoseconds since the Unix epoch. Only the kernel sets it.
    pub changed_unix_ns: i64,
    /// Number of names of the file (`st_nlink`). Adding or removing a name changes `changed_unix_ns` too.
    pub links: u64,
}

impl FileIdentity {
    /// The first field in which `now` differs, in words. A name that this process itself removed is not a difference:
    /// deleting one of two hard-linked files must not make the other look changed.
    pub(crate) fn difference(&self, now: &Self) -> Option<&'static str> {
        if (self.device, self.inode) != (now.device, now.inode) {
            Some("it is a different file with the same name")
        } else if self.modified_unix_ns != now.modified_unix_ns {
            Some("its modification time differs")
        } else if (self.changed_unix_ns, self.links) != (now.changed_unix_ns, now.links) && !is_own_unlinking(self, now)
        {
            Some("its modification time was reset after a change, or its metadata changed")
        } else {
            None
        }
    }
}

/// Device and inode.
type Inode = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct OwnUnlinkings {
    /// The identities that each file had, in order. Each follows from the one before by a removal of this process.
    states: HashMap<Inode, Vec<FileIdentity>>,
    changes: usize,
}

static OWN_UNLINKINGS: LazyLock<Mutex<OwnUnlinkings>> = LazyLock::new(Mutex::default);

impl OwnUnlinkings {
    pub(crate) fn add(&mut self, before: FileIdentity, after: FileIdentity) {
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
        // The listed state is one of the first, the present state one of the last.
        let before = states.iter().position(|known| known == before);
        let now = states.iter().rposition(|known| known == now);
        before.zip(now).is_some_and(|(before, now)| before < now)
    }
}

/// Returns whether the file changed from `before` to `now` only because this process removed names of it.
fn is_own_unlinking(before: &FileIdentity, now: &FileIdentity) -> bool {
    own_unlinkings().leads(before, now)
}

/// The removals that this process has noted. While the lock is held, nobody compares identities.
pub(crate) fn own_unlinkings() -> MutexGuard<'static, OwnUnlinkings> {
    OWN_UNLINKINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(changed_unix_ns: i64, links: u64) -> FileIdentity {
        FileIdentity { device: 1, inode: 2, modified_unix_ns: 3, changed_unix_ns, links }
    }

    #[test]
    fn only_an_unbroken_series_of_own_removals_explains_a_change() {
        let mut noted = OwnUnlinkings::default();
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
        let mut noted = OwnUnlinkings { changes: CHANGES_MAX, ..OwnUnlinkings::default() };
        noted.add(state(10, 2), state(11, 1));
        assert_eq!(noted.changes, 1);
        assert!(noted.leads(&state(10, 2), &state(11, 1)));
    }
}
