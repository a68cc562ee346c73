//! Follows symbolic links, and refuses those that lead to the other side of the job.
//!
//! A link inside the source may lead into the destination, or to a directory above it. The job would then overwrite or
//! delete its own source, or copy its own output. Comparing the two roots does not find this: a link can be anywhere
//! below a root, and can appear while the job runs. So each link is resolved whenever an operation follows it, and the
//! operation is refused if the link leads into a place that the store must keep out of.

use super::Tree;
use super::identity::{directory_relation, is_same_inode};
use super::own_links::between_removals;
use super::read::is_kind;
use crate::identity::Relation;
use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

/// Most remembered directories behind links that are known to lie apart. At the limit all are forgotten and compared
/// again, which only costs time.
const CLEARED_MAX: usize = 65_536;
const NOT_MOVED: &str =
    "a symbolic link to a directory: mv does not delete what it points to; use cp and remove the link";
const CHANGED: &str = "a symbolic link that was changed while it was followed";

/// Why a path below the root could not be followed to its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// The system's error.
    System(Errno),
    /// A link in the path must not be followed; one line says why.
    Link(String),
    /// The root is another directory than the one that earlier writes went to, or is gone.
    RootLost,
}

impl From<Errno> for Blocked {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl From<std::io::Error> for Blocked {
    fn from(error: std::io::Error) -> Self {
        Self::System(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    }
}

/// An open directory.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) directory: OwnedFd,
    pub(super) through_link: bool,
}

/// Places that no link may lead to, and the directories already compared with them.
#[derive(Debug, Default)]
pub(super) struct KeptOut {
    /// No link to a directory is followed, wherever it leads.
    no_directories: AtomicBool,
    places: RwLock<Vec<PathBuf>>,
    /// Canonical paths, and whether files in them (or the directories themselves) were compared.
    cleared: Mutex<HashSet<(PathBuf, Entry)>>,
}

/// The target of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Entry {
    File,
    Directory,
}

impl KeptOut {
    pub(super) fn add(&self, place: PathBuf) {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        if !places.contains(&place) {
            places.push(place);
        }
    }

    pub(super) fn add_directories(&self) {
        self.no_directories.store(true, Ordering::Relaxed);
    }

    fn places(&self) -> Vec<PathBuf> {
        self.places.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns why a link must not lead to `directory` (a canonical path), or to a file in it; `None` if it may.
    fn refusal(&self, directory: &Path, entry: Entry) -> Result<Option<String>, Blocked> {
        let known = (directory.to_owned(), entry);
        if self.cleared.lock().unwrap_or_else(PoisonError::into_inner).contains(&known) {
            return Ok(None);
        }
        for place in self.places() {
            let into = match (directory_relation(directory, &place)?, entry) {
                (Relation::Same | Relation::FirstWithin, _) => "into",
                (Relation::SecondWithin, Entry::Directory) => "to a directory above",
                (Relation::Crossed, Entry::Directory) => "to a directory that shares a part with",
                (Relation::SecondWithin | Relation::Crossed | Relation::Apart, _) => continue,
            };
            return Ok(Some(refusal(into, &place)));
        }
        let mut cleared = self.cleared.lock().unwrap_or_else(PoisonError::into_inner);
        if cleared.len() >= CLEARED_MAX {
            cleared.clear();
        }
        cleared.insert(known);
        Ok(None)
    }
}

fn refusal(into: &str, place: &Path) -> String {
    format!("a symbolic link that leads {into} {}, the other side of this job", place.display())
}

impl Tree {
    /// Opens the directory `name`, which has the key `key` (without a final slash). A link is followed only if links
    /// are enabled and it does not lead to the other side of the job.
    pub(super) fn enter(&self, parent: &OwnedFd, name: &str, key: &str) -> Result<Entered, Blocked> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        match openat(parent, name, flags | OFlag::O_NOFOLLOW, Mode::empty()) {
            Ok(directory) => Ok(Entered { directory, through_link: false }),
            // Linux returns ENOTDIR for a link, as for a file; other systems ELOOP.
            Err(Errno::ENOTDIR | Errno::ELOOP) if is_link(parent, name) => {
                if !self.follow_symlinks {
                    return Err(Errno::ELOOP.into());
                }
                let directory = openat(parent, name, flags, Mode::empty())?;
                self.refuse_link(&fstat(&directory)?, key, Entry::Directory)?;
                Ok(Entered { directory, through_link: true })
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Stats the entry `name`, which has the key `key`. If links are followed, stats the target of a link.
    pub(super) fn stat_entry(&self, directory: &OwnedFd, name: &str, key: &str) -> Result<FileStat, Blocked> {
        let found = between_removals(|| fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW))?;
        if !self.follow_symlinks || !is_kind(&found, libc::S_IFLNK) {
            return Ok(found);
        }
        let end = between_removals(|| fstatat(directory, name, AtFlags::empty()))?;
        if is_kind(&end, libc::S_IFREG) {
            self.refuse_link(&end, key, Entry::File)?;
        }
        Ok(end)
    }

    /// Refuses the link `key`, which leads to `end`, if `end` lies on the other side of the job.
    fn refuse_link(&self, end: &FileStat, key: &str, entry: Entry) -> Result<(), Blocked> {
        let places = self.kept_out.places();
        let no_directories = entry == Entry::Directory && self.kept_out.no_directories.load(Ordering::Relaxed);
        if places.is_empty() && !no_directories {
            return Ok(());
        }
        let path = fs::canonicalize(self.root.join(key.trim_end_matches('/')))?;
        if !is_same_inode(&path, end) {
            return Err(Blocked::Link(CHANGED.to_owned()));
        }
        let directory = match entry {
            Entry::Directory => path.as_path(),
            Entry::File => path.parent().unwrap_or(&path),
        };
        let refused = self.kept_out.refusal(directory, entry)?;
        let same_file = || places.iter().find(|place| entry == Entry::File && is_same_inode(place, end));
        match refused.or_else(|| same_file().map(|place| refusal("to", place))) {
            Some(why) => Err(Blocked::Link(why)),
            None if no_directories => Err(Blocked::Link(NOT_MOVED.to_owned())),
            None => Ok(()),
        }
    }
}

pub(super) fn is_link<Name: NixPath + ?Sized>(directory: &OwnedFd, name: &Name) -> bool {
    fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|stat| is_kind(&stat, libc::S_IFLNK))
}

/// The attributes of the file to which the symbolic link `name` leads.
pub(super) fn leads_to(directory: &OwnedFd, name: &str) -> Result<FileStat, Errno> {
    fstatat(directory, name, AtFlags::empty())
}

/// Device and inode of a directory and of each directory above it, as far as this process may open them.
pub(super) fn identities_upwards(directory: &OwnedFd) -> Result<Vec<(u64, u64)>, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let stat = fstat(directory)?;
    let mut found = vec![(stat.st_dev, stat.st_ino)];
    let mut parent = openat(directory, "..", flags, Mode::empty());
    while let Ok(above) = parent {
        let stat = fstat(&above)?;
        let identity = (stat.st_dev, stat.st_ino);
        if found.last() == Some(&identity) {
            break;
        }
        found.push(identity);
        parent = openat(&above, "..", flags, Mode::empty());
    }
    Ok(found)
}
