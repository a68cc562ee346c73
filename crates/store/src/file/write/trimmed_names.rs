//! Refuses names whose end the file system leaves out: FAT, exFAT and many file servers store `a.` and `a ` as `a`. Of two
//! objects with such names, the second would silently replace the first.

use super::{Temporary, Tree};
use crate::file::entries::each_entry;
use crate::file::links::Blocked;
use crate::file::path::{Split, segments};
use crate::{ErrorKind, Result};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;
use std::os::fd::OwnedFd;

/// The end of a name that some file systems leave out.
fn trimmed_end(name: &str) -> Option<char> {
    name.chars().last().filter(|last| matches!(last, '.' | ' '))
}

/// Returns whether a directory lists an entry of exactly this name.
pub(super) fn lists(directory: &OwnedFd, name: &str) -> Result<bool, Errno> {
    let mut is_listed = false;
    each_entry(directory, |entry, _| {
        is_listed |= entry == name.as_bytes();
        Ok(())
    })?;
    Ok(is_listed)
}

impl Tree {
    /// Refuses a key if the file system would give its file, or a directory above it, a shorter name.
    pub(super) fn refuse_trimmed(
        &self,
        operation: &'static str,
        key: &str,
        split: Split<'_>,
        temporary: &Temporary<'_>,
    ) -> Result<()> {
        let finds_longer = |end: char| {
            let longer = format!("{}{end}", temporary.name);
            fstatat(temporary.directory, longer.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
        };
        let is_trimmed = trimmed_end(split.name).is_some_and(finds_longer);
        let is_below_trimmed = || self.is_below_trimmed(split.parent);
        if is_trimmed || is_below_trimmed().map_err(|blocked| self.blocked_error(operation, key, blocked))? {
            let message = "this file system leaves out a dot or space at the end of a name";
            return Err(self.error(ErrorKind::InvalidKey, operation, key, message));
        }
        Ok(())
    }

    /// Returns whether the file system has left out the end of the name of a directory in `path`.
    fn is_below_trimmed(&self, path: &str) -> Result<bool, Blocked> {
        if !path.split('/').any(|segment| trimmed_end(segment).is_some()) {
            return Ok(false);
        }
        let mut directory = self.open_root()?;
        for (segment, key) in segments(path) {
            if trimmed_end(segment).is_some() && !lists(&directory, segment)? {
                return Ok(true);
            }
            directory = self.enter(&directory, segment, key)?.directory;
        }
        Ok(false)
    }
}
