//! The identity of a file, and the changes of it that this process has made by removing names of hard-linked files.
//!
//! Removing one name of a file changes the time of change of the file, and so the identity under which its other names
//! are known. `mv` does this when it deletes, or replaces at the destination, one of several names of a file. Those
//! changes are noted, with the identity before and after, so that nothing else can hide behind them: a file that was
//! also rewritten, or has got or lost a name by somebody else's hand, has an identity that was never noted.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Changes remembered (about 60 bytes each). At the limit all are forgotten: the files then count as changed, and stay.
const CHANGES_MAX: usize = 1 << 20;
/// The identity of one state of a file. Any write, and any change of its metadata, changes at least one.
///
/// The kernel stamps times with its clock tick (up to 10 ms), so two writes within one tick can have one identity.
/// A read therefore waits until the file's last change is older than a tick. Stores through a shared writable mapping
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
    /// Names that the file has (`st_nlink`). A new or removed name changes `changed_unix_ns` too.
    pub links: u64,
}

impl FileIdentity {
    /// The first thing in which `now` differs, in words. That this process took one of a file's names away is no
    /// difference: deleting one of two hard-linked files must not make the other look changed.
    pub(crate) fn difference(&self, now: &Self) -> Option<&'static str> {
        if (self.device, self.inode) != (now.device, now.inode) {
            Some("it is another file of that name")
        } else if self.modified_unix_ns != now.modified_unix_ns {
            Some("its time of modification differs")
        } else if (self.changed_unix_ns, self.links) != (now.changed_unix_ns, now.links) && !is_own_unlinking(self, now)
        {
            Some("it was changed and its time of modification was set back, or its metadata was changed")
        } else {
            None
        }
    }
}

/// Device and inode.
type Inode = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct OwnUnlinkings {
    /// The identities that each file had, in order, each made of the one before by a removal of ours.
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
        // The state that was listed is one of the first, the present one of the last.
        let before = states.iter().position(|known| known == before);
        let now = states.iter().rposition(|known| known == now);
        before.zip(now).is_some_and(|(before, now)| before < now)
    }
}

/// Whether removals of names by this process, and nothing else, made `now` of the file that was `before`.
fn is_own_unlinking(before: &FileIdentity, now: &FileIdentity) -> bool {
    own_unlinkings().leads(before, now)
}

/// The removals that this process has noted. Nobody compares identities while this is held.
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
    fn only_an_unbroken_row_of_own_removals_explains_a_change() {
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
