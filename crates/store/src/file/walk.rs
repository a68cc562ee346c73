//! Lists a tree in byte order of its keys, page by page.
//!
//! Keys sort as if each directory were called `name/`. So a depth-first walk over names sorted that way yields keys in
//! order. Memory: the packed names of the directories above the current key, never the tree. The walk is kept between
//! pages, so that a directory of a million files is read once and not once per page. If too many walks are open, the
//! oldest is forgotten and restarts after its last key.

use super::Tree;
use super::entries::each_entry;
use super::links::{Blocked, Entered, identities_upwards, is_link};
use super::path::is_temporary;
use super::read::{is_kind, object_info, special_name};
use crate::error::LEADS_BACK;
use crate::{Error, ErrorKind, ListPage, ListRequest, ObjectInfo, Result};
use nix::dir::Type;
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::libc;
use nix::sys::stat::{FileStat, fstat, fstatat};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// Entries per page if the caller gives no number.
const PAGE_ENTRIES: usize = 4096;
/// Most walks kept between pages. The oldest is forgotten and, when requested, restarted after its last key.
const CURSORS_MAX: usize = 32;
const GONE: &str = "the directory was removed or moved while it was listed";

/// Type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    /// A link, or an entry of unknown type: `stat` decides.
    Unknown,
    /// A socket, pipe or device.
    Special,
}

/// Names of one directory, packed and sorted.
#[derive(Debug, Default)]
struct Names {
    bytes: Vec<u8>,
    /// Start, length and kind of each name; a directory's name ends in `/`.
    spans: Vec<(u32, u16, Kind)>,
}

impl Names {
    fn push(&mut self, name: &[u8], kind: Kind) -> Result<(), Errno> {
        let start = u32::try_from(self.bytes.len()).map_err(|_| Errno::EOVERFLOW)?;
        self.bytes.extend_from_slice(name);
        if kind == Kind::Directory {
            self.bytes.push(b'/');
        }
        let length = self.bytes.len() - start as usize;
        self.spans.push((start, length as u16, kind));
        Ok(())
    }

    fn get(&self, index: usize) -> Option<(&[u8], Kind)> {
        let (start, length, kind) = *self.spans.get(index)?;
        Some((&self.bytes[start as usize..start as usize + usize::from(length)], kind))
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        let name = |span: &(u32, u16, Kind)| &bytes[span.0 as usize..span.0 as usize + usize::from(span.1)];
        self.spans.sort_unstable_by(|a, b| name(a).cmp(name(b)));
    }
}

/// A directory above the current key.
#[derive(Debug)]
struct Frame {
    directory: OwnedFd,
    /// Device and inode, to detect a link that leads back up.
    identity: (u64, u64),
    /// Identities of all directories above it. Filled only if links are followed, for the walk's base and behind links.
    upwards: Vec<(u64, u64)>,
    names: Names,
    /// The directory has no entry at all, not even an unfinished upload.
    is_empty: bool,
    next: usize,
    /// Length of the key of this directory within [`Cursor::path`].
    path_length: usize,
}

/// The state of a walk between two pages.
#[derive(Debug)]
pub(super) struct Cursor {
    frames: Vec<Frame>,
    /// Key of the innermost directory: empty or ending in `/`.
    path: String,
}

/// The walks that wait for a request for their next page.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    kept: Mutex<(u64, Vec<(u64, Cursor)>)>,
}

impl Cursors {
    fn keep(&self, cursor: Cursor) -> u64 {
        let mut guard = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (last_id, kept) = &mut *guard;
        *last_id += 1;
        if kept.len() == CURSORS_MAX {
            kept.remove(0);
        }
        kept.push((*last_id, cursor));
        *last_id
    }

    fn take(&self, id: u64) -> Option<Cursor> {
        let mut guard = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let index = guard.1.iter().position(|(kept, _)| *kept == id)?;
        Some(guard.1.remove(index).1)
    }
}

/// A page while it is filled.
struct Page<'a> {
    request: &'a ListRequest,
    /// Exclusive lower bound: `start_after`, or the last key of the previous page.
    after: Option<&'a str>,
    entries_max: usize,
    page: ListPage,
    last: String,
}

impl Page<'_> {
    fn is_full(&self) -> bool {
        self.page.objects.len() + self.page.prefixes.len() + self.page.refused.len() >= self.entries_max
    }

    /// Returns whether this page can hold `key` or, for a directory, any key below it.
    fn may_hold(&self, key: &str) -> bool {
        let prefix = &self.request.prefix;
        let in_prefix = key.starts_with(prefix.as_str()) || key.ends_with('/') && prefix.starts_with(key);
        in_prefix && self.after.is_none_or(|after| key > after || key.ends_with('/') && after.starts_with(key))
    }

    fn takes(&self, key: &str) -> bool {
        key.starts_with(self.request.prefix.as_str()) && self.after.is_none_or(|after| key > after)
    }

    fn is_beyond(&self, key: &str) -> bool {
        self.request.end_at.as_deref().is_some_and(|end| key > end)
    }

    fn push(&mut self, object: ObjectInfo) {
        self.last.clone_from(&object.key);
        self.page.objects.push(object);
    }
}

impl Tree {
    pub(super) fn list_page(&self, request: &ListRequest) -> Result<ListPage> {
        let (id, last) = match request.continuation.as_deref().map(parse_continuation) {
            None => (None, None),
            Some(Some((id, last))) => (Some(id), Some(last)),
            Some(None) => {
                let message = "this is not a continuation of a file listing";
                return Err(self.error(ErrorKind::BadRequest, "list", &request.prefix, message));
            }
        };
        let entries_max = request.max_keys.map_or(PAGE_ENTRIES, |max| max.max(1) as usize);
        let page = Page {
            request,
            after: last.or(request.start_after.as_deref()),
            entries_max,
            page: ListPage::default(),
            last: last.unwrap_or_default().to_owned(),
        };
        if let Some(cursor) = id.and_then(|id| self.cursors.take(id)) {
            return Ok(self.fill(cursor, page));
        }
        let Some(directory) = self.open_base(&request.prefix)? else { return Ok(self.without_base(page)) };
        self.note_grain(&directory);
        self.begin(directory, page)
    }

    /// Opens the directory that contains the prefix; `None` if it does not exist, so there is nothing to list.
    fn open_base(&self, prefix: &str) -> Result<Option<OwnedFd>> {
        let base = base_of(prefix);
        let fail = |errno| self.system_error("list", prefix, errno);
        match self.open_root() {
            Ok(directory) if base.is_empty() => return Ok(Some(directory)),
            Ok(_) => {}
            Err(Errno::ENOENT | Errno::ENOTDIR) => {
                let message = "no such directory";
                return Err(self.error(ErrorKind::BucketNotFound, "list", prefix, message));
            }
            Err(errno) => return Err(fail(errno)),
        }
        if super::path::check_key(base).is_err() {
            return Ok(None);
        }
        match self.open_directory(base) {
            Ok(directory) => Ok(Some(directory)),
            Err(Blocked::System(Errno::ENOENT | Errno::ENOTDIR | Errno::ENAMETOOLONG)) => Ok(None),
            Err(blocked) => Err(self.blocked_error("list", prefix, blocked)),
        }
    }

    /// The page for a missing directory: empty, or an error if the directory vanished during the listing.
    fn without_base(&self, mut page: Page<'_>) -> ListPage {
        if page.after.is_some() {
            let base = base_of(&page.request.prefix);
            page.page.refused.push(self.error(ErrorKind::NotFound, "list", base, GONE));
        }
        page.page
    }

    /// Starts a walk in the directory of the prefix.
    fn begin(&self, directory: OwnedFd, mut page: Page<'_>) -> Result<ListPage> {
        let prefix = &page.request.prefix;
        let path = base_of(prefix).to_owned();
        let mut unreadable = Vec::new();
        let base = Entered { directory, through_link: true };
        let frame =
            self.frame(base, path.len(), &mut unreadable).map_err(|errno| self.system_error("list", prefix, errno))?;
        self.refuse_names(&mut page, &path, &unreadable);
        if frame.is_empty {
            self.take_empty_base(&frame, path, &mut page);
            return Ok(page.page);
        }
        Ok(self.fill(Cursor { frames: vec![frame], path }, page))
    }

    /// Reads and sorts the names of a directory. Names that are not UTF-8 go to `refused`.
    fn frame(&self, entered: Entered, path_length: usize, refused: &mut Vec<Vec<u8>>) -> Result<Frame, Errno> {
        let Entered { directory, through_link } = entered;
        let stat = fstat(&directory)?;
        let mut names = Names::default();
        let mut is_empty = true;
        each_entry(&directory, |name, kind| {
            is_empty = false;
            let Ok(text) = std::str::from_utf8(name) else {
                let mut name = name.to_owned();
                if self.may_be_directory(&directory, &name, kind) {
                    name.push(b'/');
                }
                refused.push(name);
                return Ok(());
            };
            if is_temporary(text) {
                return Ok(());
            }
            let mut kind = match kind {
                Some(Type::File) => Kind::File,
                Some(Type::Directory) => Kind::Directory,
                Some(Type::Symlink) | None => Kind::Unknown,
                Some(_) => Kind::Special,
            };
            if kind == Kind::Unknown && self.stat(&directory, text).is_ok_and(|stat| is_kind(&stat, libc::S_IFDIR)) {
                // A directory sorts as `name/`, so its kind must be known before sorting.
                kind = Kind::Directory;
            }
            names.push(name, kind)
        })?;
        names.sort();
        let identity = (stat.st_dev, stat.st_ino);
        let upwards = if self.follow_symlinks && through_link { identities_upwards(&directory)? } else { Vec::new() };
        Ok(Frame { directory, identity, upwards, names, is_empty, next: 0, path_length })
    }

    /// Returns whether objects may lie below an entry that cannot be listed.
    fn may_be_directory(&self, directory: &OwnedFd, name: &[u8], kind: Option<Type>) -> bool {
        match kind {
            Some(Type::Directory) => true,
            Some(Type::Symlink) | None => {
                let flags = if self.follow_symlinks { AtFlags::empty() } else { AtFlags::AT_SYMLINK_NOFOLLOW };
                fstatat(directory, name, flags).map_or(true, |stat| is_kind(&stat, libc::S_IFDIR))
            }
            Some(_) => false,
        }
    }

    fn stat(&self, directory: &OwnedFd, name: &str) -> Result<FileStat, Errno> {
        let flags = if self.follow_symlinks { AtFlags::empty() } else { AtFlags::AT_SYMLINK_NOFOLLOW };
        fstatat(directory, name, flags)
    }

    /// Continues the walk until the page is full or the walk ends.
    fn fill(&self, mut cursor: Cursor, mut page: Page<'_>) -> ListPage {
        while !page.is_full() {
            let Some(frame) = cursor.frames.last_mut() else { return page.page };
            let Some((name, kind)) = frame.names.get(frame.next) else {
                cursor.frames.pop();
                let path_length = cursor.frames.last().map_or(0, |frame| frame.path_length);
                cursor.path.truncate(path_length);
                continue;
            };
            frame.next += 1;
            // Names that are not UTF-8 never enter the frame.
            let Ok(name) = std::str::from_utf8(name) else { continue };
            let key = format!("{}{name}", cursor.path);
            if page.is_beyond(&key) {
                return page.page;
            }
            if !page.may_hold(&key) {
                continue;
            }
            if let Some(entered) = self.visit(frame, name, &key, kind, &mut page) {
                self.descend(&mut cursor, entered, key, &mut page);
            }
        }
        let id = self.cursors.keep(cursor);
        page.page.continuation = Some(format!("{id}/{}", page.last));
        page.page
    }

    /// Adds the directory that the prefix names if it is empty, because it is then an object. The root never is.
    fn take_empty_base(&self, frame: &Frame, key: String, page: &mut Page<'_>) {
        if !key.is_empty()
            && page.takes(&key)
            && !page.is_beyond(&key)
            && let Ok(stat) = fstat(&frame.directory)
        {
            page.push(object_info(key, &stat));
        }
    }

    /// Adds a file, folds a directory, or returns a directory to descend into.
    fn visit(&self, frame: &Frame, name: &str, key: &str, kind: Kind, page: &mut Page<'_>) -> Option<Entered> {
        if kind == Kind::Directory {
            if page.request.delimited && key.starts_with(page.request.prefix.as_str()) {
                if page.after.is_none_or(|after| key > after) {
                    key.clone_into(&mut page.last);
                    page.page.prefixes.push(key.to_owned());
                }
                return None;
            }
            if page.request.skips.has(key) {
                page.page.skipped += 1;
                return None;
            }
            match self.enter(&frame.directory, name.trim_end_matches('/'), key.trim_end_matches('/')) {
                Ok(entered) => return Some(entered),
                Err(Blocked::System(Errno::ENOENT)) => {
                    self.refuse(page, key, self.error(ErrorKind::NotFound, "list", key, GONE));
                }
                Err(blocked) => self.refuse(page, key, self.blocked_error("list", key, blocked)),
            }
            return None;
        }
        match self.stat_entry(&frame.directory, name, key) {
            Ok(stat) if is_kind(&stat, libc::S_IFREG) => {
                if page.takes(key) {
                    page.push(object_info(key.to_owned(), &stat));
                }
            }
            Ok(stat) if is_kind(&stat, libc::S_IFLNK) => {
                let message = "a symbolic link, and --follow-symlinks is not given";
                self.refuse(page, key, self.error(ErrorKind::Link, "list", key, message));
            }
            Ok(stat) => {
                let message = format!("{}, neither a file nor a directory", special_name(stat.st_mode));
                self.refuse(page, key, self.error(ErrorKind::Unsupported, "list", key, message));
            }
            Err(Blocked::System(errno)) if is_link(&frame.directory, name) => {
                self.refuse(page, key, self.broken_link("list", key, errno));
            }
            // It was removed after the directory was read.
            Err(Blocked::System(Errno::ENOENT)) => {}
            // It may be a directory, so its URL ends like a directory's.
            Err(blocked @ Blocked::System(_)) if kind == Kind::Unknown => {
                self.refuse(page, key, self.blocked_error("list", &format!("{key}/"), blocked));
            }
            Err(blocked) => self.refuse(page, key, self.blocked_error("list", key, blocked)),
        }
        None
    }

    /// The error for a symbolic link that cannot be followed.
    pub(super) fn broken_link(&self, operation: &'static str, key: &str, errno: Errno) -> Error {
        let why = match errno {
            Errno::ENOENT => "a broken symbolic link".to_owned(),
            Errno::ELOOP => "a symbolic link that is part of a loop".to_owned(),
            other => format!("a symbolic link that cannot be followed: {}", other.desc()),
        };
        self.error(ErrorKind::BrokenLink, operation, key, why)
    }

    fn refuse(&self, page: &mut Page<'_>, key: &str, error: Error) {
        let is_behind = page.takes(key);
        if is_behind {
            key.clone_into(&mut page.last);
        }
        // A directory that was entered for an earlier page, or for another range, hides the keys after it.
        if is_behind || key.ends_with('/') {
            page.page.refused.push(error);
        }
    }

    fn descend(&self, cursor: &mut Cursor, entered: Entered, key: String, page: &mut Page<'_>) {
        let mut unreadable = Vec::new();
        let frame = match self.frame(entered, key.len(), &mut unreadable) {
            Ok(frame) => frame,
            Err(errno) => return self.refuse(page, &key, self.system_error("list", &key, errno)),
        };
        let leads_back = |above: &Frame| above.identity == frame.identity || above.upwards.contains(&frame.identity);
        if cursor.frames.iter().any(leads_back) {
            return self.refuse(page, &key, self.error(ErrorKind::InvalidKey, "list", &key, LEADS_BACK));
        }
        self.refuse_names(page, &key, &unreadable);
        if frame.is_empty {
            if page.takes(&key)
                && let Ok(stat) = fstat(&frame.directory)
            {
                page.push(object_info(key, &stat));
            }
            return;
        }
        cursor.path = key;
        cursor.frames.push(frame);
    }

    fn refuse_names(&self, page: &mut Page<'_>, directory_key: &str, names: &[Vec<u8>]) {
        for name in names {
            let key = format!("{directory_key}{}", String::from_utf8_lossy(name));
            if page.takes(&key) {
                // In the shell's notation.
                let message = format!("the name is not UTF-8: $'{}'", name.escape_ascii());
                page.page.refused.push(self.error(ErrorKind::InvalidKey, "list", &key, message));
            }
        }
    }
}

/// The directory part of a prefix, with its final slash.
fn base_of(prefix: &str) -> &str {
    prefix.rfind('/').map_or("", |slash| &prefix[..=slash])
}

fn parse_continuation(text: &str) -> Option<(u64, &str)> {
    let (id, last) = text.split_once('/')?;
    Some((id.parse().ok()?, last))
}
