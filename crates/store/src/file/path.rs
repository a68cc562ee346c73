//! Keys as paths: which keys a tree can hold, and directories opened segment by segment so that no link leads out.

use super::Tree;
use super::links::{Blocked, is_link};
use crate::{ErrorKind, Result};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Component;

/// NAME_MAX of all common file systems.
const NAME_BYTES_MAX: usize = 255;
/// Marks a temporary file; 16 hex digits follow: 8 of the full name's CRC-32C, 8 random.
const TEMPORARY_MARK: &str = ".tradewind-";
const TEMPORARY_DIGITS: usize = 16;
/// Bytes of a name that its temporary name keeps.
const NAME_BYTES_KEPT: usize = NAME_BYTES_MAX - 1 - TEMPORARY_MARK.len() - TEMPORARY_DIGITS;

/// A key split into the directory that holds it and the name in that directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split<'a> {
    /// Directory below the root, empty or without a final slash.
    pub(super) parent: &'a str,
    /// Name of the file, or of the directory when `is_directory`.
    pub(super) name: &'a str,
    /// The key ends in `/`.
    pub(super) is_directory: bool,
}

/// Splits a key, or returns why no tree can hold it.
pub(super) fn check_key(key: &str) -> Result<Split<'_>, String> {
    let (path, is_directory) = match key.strip_suffix('/') {
        Some(path) => (path, true),
        None => (key, false),
    };
    if path.is_empty() {
        return Err("no file can have this name".to_owned());
    }
    for segment in path.split('/') {
        match segment {
            "" => return Err("a file system cannot store an empty name (`//` or a leading `/`)".to_owned()),
            "." | ".." => return Err(format!("a file system cannot store the name `{segment}`")),
            _ if segment.contains('\0') => return Err("a file system cannot store a name with a NUL byte".to_owned()),
            _ if segment.len() > NAME_BYTES_MAX => {
                return Err(format!(
                    "a part of the path has {} bytes, but a file system allows {NAME_BYTES_MAX}",
                    segment.len()
                ));
            }
            _ => {}
        }
    }
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    if is_temporary(name) {
        return Err("the name is reserved for unfinished writes".to_owned());
    }
    Ok(Split { parent, name, is_directory })
}

fn name_digits(name: &str) -> String {
    let crc = tradewind_crc::crc32(name.as_bytes());
    format!("{crc:08x}")
}

/// A new temporary name beside `name`, at most 255 bytes long.
pub(super) fn temporary_name(name: &str) -> String {
    let mut end = name.len().min(NAME_BYTES_KEPT);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!(".{}{TEMPORARY_MARK}{}{:08x}", &name[..end], name_digits(name), rand::random::<u32>())
}

/// Returns whether [`temporary_name`] made `name`. The checksum in it distinguishes it from a user's file of a similar
/// name.
pub(super) fn is_temporary(name: &str) -> bool {
    let Some((start, digits)) = name.rsplit_once(TEMPORARY_MARK) else { return false };
    let Some(start) = start.strip_prefix('.') else { return false };
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    // A long name keeps only its start, cut before a character of up to four bytes.
    let may_be_cut = start.len() + 3 >= NAME_BYTES_KEPT;
    digits.len() == TEMPORARY_DIGITS
        && digits.bytes().all(is_hex)
        && (may_be_cut || digits.starts_with(&name_digits(start)))
}

/// Returns whether `temporary` belongs to a write of `name`.
pub(super) fn is_temporary_of(temporary: &str, name: &str) -> bool {
    let Some((start, digits)) = temporary.rsplit_once(TEMPORARY_MARK) else { return false };
    is_temporary(temporary)
        && !temporary.contains('/')
        && start.strip_prefix('.').is_some_and(|start| name.starts_with(start))
        && digits.starts_with(&name_digits(name))
}

const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_CLOEXEC);

/// The error for a link in a resolved path. No call on one directory has it otherwise.
pub(super) const BECAME_LINK: Errno = Errno::EXDEV;

/// Mode of directories that are only passed: it needs no permission to list them.
#[cfg(target_os = "linux")]
const PASSING: OFlag = OFlag::O_PATH;
#[cfg(not(target_os = "linux"))]
const PASSING: OFlag = OFlag::O_RDONLY;

fn is_same_directory(one: &OwnedFd, other: &OwnedFd) -> Result<bool, Errno> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Opens the directory `name` to pass it. It must not be a link.
fn enter_real(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    match openat(parent, name, PASSING | DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty()) {
        // Linux returns ENOTDIR for a link, as for a file; other systems ELOOP.
        Err(Errno::ENOTDIR | Errno::ELOOP) if is_link(parent, name) => Err(BECAME_LINK),
        entered => entered,
    }
}

impl Tree {
    /// Splits a key, or returns the error that refuses it.
    pub(super) fn split<'a>(&self, operation: &'static str, key: &'a str) -> Result<Split<'a>> {
        check_key(key).map_err(|why| self.error(ErrorKind::InvalidKey, operation, key, why))
    }

    /// Flags that make an open fail on a link, unless links are followed.
    pub(super) fn no_follow(&self) -> OFlag {
        if self.follow_symlinks { OFlag::empty() } else { OFlag::O_NOFOLLOW }
    }

    /// Opens the root. It may itself be a link, because the user named it, unless its path was resolved before.
    ///
    /// # Errors
    /// [`BECAME_LINK`] if a part of a resolved path is a link now.
    pub(super) fn open_root(&self) -> Result<OwnedFd, Errno> {
        if !self.resolved_root {
            return open(&self.root, OFlag::O_RDONLY | DIRECTORY, Mode::empty());
        }
        let directory = self.passed_root(enter_real)?;
        openat(&directory, ".", OFlag::O_RDONLY | DIRECTORY, Mode::empty())
    }

    /// Creates the root and the directories above it, as far as they are missing.
    fn make_root(&self) -> Result<(), Blocked> {
        if !self.resolved_root {
            return Ok(std::fs::create_dir_all(&self.root)?);
        }
        self.passed_root(|directory, name| match enter_real(directory, name) {
            Err(Errno::ENOENT) => match mkdirat(directory, name, Mode::from_bits_truncate(0o777)) {
                Ok(()) | Err(Errno::EEXIST) => enter_real(directory, name),
                Err(errno) => Err(errno),
            },
            entered => entered,
        })?;
        Ok(())
    }

    /// Passes all parts of the root's path, each with `enter`, and returns the last one.
    fn passed_root(&self, enter: impl Fn(&OwnedFd, &OsStr) -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
        let mut directory = open("/", PASSING | DIRECTORY, Mode::empty())?;
        for part in self.root.components() {
            match part {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => directory = enter(&directory, name)?,
                Component::ParentDir | Component::Prefix(_) => return Err(BECAME_LINK),
            }
        }
        Ok(directory)
    }

    /// Opens a directory below the root, one segment at a time.
    pub(super) fn open_directory(&self, path: &str) -> Result<OwnedFd, Blocked> {
        let mut directory = self.open_root()?;
        for (segment, key) in segments(path) {
            directory = self.enter(&directory, segment, key)?.directory;
        }
        Ok(directory)
    }

    /// Opens the root to write below it, and creates it for the first write. Later writes are refused if the root was
    /// moved, removed or unmounted since: they would end up apart from the earlier ones, perhaps on another disk.
    fn open_written_root(&self) -> Result<OwnedFd, Blocked> {
        // Read first: another thread may create the root, and write to it, while this one finds none.
        let is_written = self.written_root.get().is_some();
        let found = match self.open_root() {
            Err(Errno::ENOENT) if !is_written => {
                self.make_root()?;
                self.open_root()?
            }
            Err(Errno::ENOENT | Errno::ENOTDIR) if is_written => return Err(Blocked::RootLost),
            found => found?,
        };
        let written = match self.written_root.get() {
            Some(written) => written,
            None => {
                let first = found.try_clone()?;
                self.written_root.get_or_init(|| first)
            }
        };
        if is_same_directory(&found, written)? { Ok(found) } else { Err(Blocked::RootLost) }
    }

    /// Like [`Tree::open_directory`], but creates missing directories, including the root.
    pub(super) fn make_directory(&self, path: &str) -> Result<OwnedFd, Blocked> {
        let mut directory = self.open_written_root()?;
        for (segment, key) in segments(path) {
            let entered = match self.enter(&directory, segment, key) {
                Err(Blocked::System(Errno::ENOENT)) => {
                    match self.disk.make_directory(&directory, segment) {
                        Ok(()) => self.created.add(key),
                        Err(Errno::EEXIST) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                    self.enter(&directory, segment, key)?
                }
                entered => entered?,
            };
            directory = entered.directory;
        }
        Ok(directory)
    }
}

/// The non-empty segments of a path, each with the path up to its end.
pub(super) fn segments(path: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut end = 0;
    path.split('/').filter_map(move |segment| {
        let key = &path[..end + segment.len()];
        end += segment.len() + 1;
        (!segment.is_empty()).then_some((segment, key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_that_a_tree_cannot_hold_are_named() {
        for key in ["", "/", "/a", "a//b", "a/./b", "..", "a/..", "a\0b", "a//"] {
            assert!(check_key(key).is_err(), "{key:?}");
        }
        assert!(check_key(&"x".repeat(256)).is_err());
        assert!(check_key(&format!("d/{}", "x".repeat(255))).is_ok());
        let split = check_key("a/b/").unwrap();
        assert_eq!(split, Split { parent: "a", name: "b", is_directory: true });
    }

    proptest! {
        #[test]
        fn temporary_names_belong_to_their_key_alone(name in "[^/\0]{1,255}", other in "[^/\0]{1,20}") {
            prop_assume!(name.len() <= 255 && name != other);
            let temporary = temporary_name(&name);
            prop_assert!(temporary.len() <= 255);
            prop_assert!(is_temporary(&temporary));
            prop_assert!(is_temporary_of(&temporary, &name));
            prop_assert!(!is_temporary_of(&temporary, &other));
            prop_assert!(!is_temporary(&name) || check_key(&name).is_err());
        }
    }
}
