//! Refuses keys that a file system which ignores case or Unicode form would store under another spelling: of two objects
//! with such keys, the second would silently replace the first.

use super::Temporary;
use super::trimmed_names::lists;
use crate::file::Tree;
use crate::file::path::{Split, segments};
use crate::spelling::other_spellings;
use crate::{ErrorKind, Result};
use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;
use std::os::fd::OwnedFd;

/// Returns whether a directory has an entry that it finds by another spelling of this name.
fn has_other_spelling(directory: &OwnedFd, name: &str) -> bool {
    let is_found = |spelling: &String| fstatat(directory, spelling.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW).is_ok();
    other_spellings(name).iter().any(is_found)
}

impl Tree {
    /// Refuses to write a file if a directory above it, or the file that it `replaces`, has a name that differs from the
    /// key's in case or Unicode form, where the file system treats the two as one. Directories that have passed once are
    /// not looked at again.
    pub(super) fn refuse_other_spellings(
        &self,
        operation: &'static str,
        key: &str,
        split: Split<'_>,
        temporary: &Temporary<'_>,
        replaces: bool,
    ) -> Result<()> {
        if !replaces && (split.parent.is_empty() || self.spelled.contains(split.parent)) {
            return Ok(());
        }
        // The file system may treat names so in some directories only.
        let folds = has_other_spelling(temporary.directory, &temporary.name);
        if folds || !key.is_ascii() {
            let fail = |blocked| self.blocked_error(operation, key, blocked);
            let mut directory = self.open_root().map_err(|errno| fail(errno.into()))?;
            for (segment, path) in segments(split.parent) {
                if !self.created.contains(path) && !self.spelled.contains(path) {
                    self.refuse_other_spelling(operation, key, (&directory, folds), ("a directory", segment))?;
                }
                directory = self.enter(&directory, segment, path).map_err(fail)?.directory;
            }
            if replaces {
                self.refuse_other_spelling(operation, key, (&directory, folds), ("a file", split.name))?;
            }
        }
        self.spelled.add(split.parent);
        Ok(())
    }

    /// Refuses an existing entry if the directory has it under another spelling. Unless it is known that the file system
    /// `folds` spellings, it must have the entry under one: a name of ASCII letters alone does not show whether it does.
    fn refuse_other_spelling(
        &self,
        operation: &'static str,
        key: &str,
        (directory, folds): (&OwnedFd, bool),
        (what, name): (&str, &str),
    ) -> Result<()> {
        if !folds && !has_other_spelling(directory, name) {
            return Ok(());
        }
        if lists(directory, name).map_err(|errno| self.system_error(operation, key, errno))? {
            return Ok(());
        }
        let message = format!(
            "{what} exists whose name differs from {name} only in case or Unicode form, and this file system treats \
             both as one"
        );
        Err(self.error(ErrorKind::InvalidKey, operation, key, message))
    }
}
