//! Lists the temporary files of whole objects while they are written, in a file that outlives the process.
//!
//! An upload in parts is recorded by its caller before it is opened. Recording each small object so would take longer
//! than writing it. So the store itself notes the names, in slots of equal length that are used again. A writer
//!
//! 1. takes a slot, and writes the key and the temporary name into it,
//! 2. creates the file,
//! 3. releases the slot when the file has its final name, or is removed.
//!
//! After a crash the list names every file that may be left, however many objects were written.
//! [`Tree::remove_listed_writes`] removes them. Temporary names are random and never used again, so the old entries of
//! released slots do no harm.
//!
//! Not guaranteed: the entries survive the death of the process but are not synced, so a power loss may leave files.
//! While the list cannot be written (a full disk), files are written without it.

use super::Tree;
use crate::{Error, ErrorKind, Result, UploadId};
use nix::libc;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Length of a slot. The longest entry has a checksum, a key of 4095 bytes, a name of 255 and two marks.
const SLOT_BYTES: u64 = 8192;
/// Most slots of a list, free and taken. At the limit further files are written without being listed.
const SLOTS_MAX: u32 = 1024;
/// Ends the key and the name in an entry; neither contains it.
const END: u8 = 0;
const CHECKSUM_BYTES: usize = 4;

/// The list of one store. See the module's documentation.
#[derive(Debug)]
pub(super) struct WriteList {
    file: File,
    slots: Mutex<Slots>,
    /// A failure was logged; the next ones are not.
    has_failed: AtomicBool,
}

#[derive(Debug)]
struct Slots {
    free: Vec<u32>,
    /// First slot that was never taken.
    next: u32,
}

/// A slot with the entry of a file that is being written. Dropping it releases the slot.
#[derive(Debug)]
pub(super) struct Listed<'a> {
    list: &'a WriteList,
    slot: u32,
}

impl WriteList {
    /// Opens the list, or creates it. Entries that it has stay.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open_regular(path, OpenOptions::new().write(true).create(true).truncate(false).mode(0o600))?;
        let used = file.metadata()?.len().div_ceil(SLOT_BYTES).min(SLOTS_MAX.into());
        let slots = Mutex::new(Slots { free: Vec::new(), next: used as u32 });
        Ok(Self { file, slots, has_failed: AtomicBool::new(false) })
    }

    /// Lists a temporary file that is about to be created; `None` if it cannot be listed.
    pub(super) fn add(&self, key: &str, name: &str) -> Option<Listed<'_>> {
        let entry = entry_of(key, name);
        let mut slots = self.slots();
        let slot = slots.free.pop().or_else(|| (slots.next < SLOTS_MAX).then_some(slots.next))?;
        slots.next = slots.next.max(slot + 1);
        // With the lock, because the kernel lets writers of one file spin.
        let written = self.file.write_all_at(&entry, u64::from(slot) * SLOT_BYTES);
        drop(slots);
        let listed = Listed { list: self, slot };
        written.inspect_err(|error| self.note_failure(error)).is_ok().then_some(listed)
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_failure(&self, error: &io::Error) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "temporary files of small objects are not listed, and may be left after a crash");
        }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.list.slots().free.push(self.slot);
    }
}

/// A checksum, the key and the temporary name. A process that is killed while it writes an entry leaves one whose
/// checksum is wrong, and has not yet created the file.
fn entry_of(key: &str, name: &str) -> Vec<u8> {
    let mut entry = Vec::with_capacity(CHECKSUM_BYTES + key.len() + name.len() + 2);
    entry.extend([0; CHECKSUM_BYTES]);
    for text in [key, name] {
        entry.extend(text.as_bytes());
        entry.push(END);
    }
    let (checksum, body) = entry.split_at_mut(CHECKSUM_BYTES);
    checksum.copy_from_slice(&tradewind_crc::crc32(body).to_le_bytes());
    entry
}

/// The key and the temporary name at the start of a slot; `None` if it has none.
fn parse(slot: &[u8]) -> Option<(String, UploadId)> {
    let (checksum, rest) = slot.split_at_checked(CHECKSUM_BYTES)?;
    let key_end = rest.iter().position(|byte| *byte == END)?;
    let end = key_end + 1 + rest[key_end + 1..].iter().position(|byte| *byte == END)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_owned()).ok();
    let entry = (text(&rest[..key_end])?, UploadId(text(&rest[key_end + 1..end])?));
    (tradewind_crc::crc32(&rest[..=end]).to_le_bytes() == checksum).then_some(entry)
}

/// Opens a regular file. Does not wait for the other end of a pipe.
fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
    let is_regular = file.metadata()?.is_file();
    if is_regular { Ok(file) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")) }
}

fn read(path: &Path) -> io::Result<Vec<(String, UploadId)>> {
    let file = match open_regular(path, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let bytes = file.metadata()?.len().min(u64::from(SLOTS_MAX) * SLOT_BYTES);
    let mut slot = vec![0; SLOT_BYTES as usize];
    let mut entries = Vec::new();
    for start in (0..bytes).step_by(SLOT_BYTES as usize) {
        let length = (bytes - start).min(SLOT_BYTES) as usize;
        file.read_exact_at(&mut slot[..length], start)?;
        entries.extend(parse(&slot[..length]));
    }
    Ok(entries)
}

fn list_error(operation: &'static str, path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorKind::Server, operation, path.display().to_string(), error)
}

impl Tree {
    /// Lists the temporary files of whole objects in the file `path` from now on. A store has one list.
    pub(super) fn list_writes(&self, path: &Path) -> Result<()> {
        let list = WriteList::open(path).map_err(|error| list_error("list writes", path, &error))?;
        // A store that is two destinations of a job has the first one's list.
        self.write_list.set(list).ok();
        Ok(())
    }

    /// Removes the temporary files that the list in `path` names, and then the list. Nobody may be writing the list.
    /// Returns the number of files removed. After an error the list stays, and the other files are removed.
    pub(super) fn remove_listed_writes(&self, path: &Path) -> Result<u64> {
        const OPERATION: &str = "remove temporary files";
        let failed = |error: io::Error| list_error(OPERATION, path, &error);
        let entries = read(path).map_err(failed)?;
        let (mut removed, mut first_error) = (0, None);
        for (key, upload) in entries {
            match self.remove_temporary(OPERATION, &key, &upload) {
                Ok(was_there) => removed += u64::from(was_there),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        match first_error {
            Some(error) => Err(error),
            None => match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
                _ => Ok(removed),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::path::temporary_name;
    use super::super::{FileStore, Kernel};
    use super::*;
    use crate::{Checksums, Payload, PutOptions, Store, StoreConfig};
    use bytes::Bytes;
    use std::path::PathBuf;
    use std::sync::Arc;

    /// A store in a folder, and the path of its list.
    fn store() -> (tempfile::TempDir, FileStore, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("d")).unwrap();
        let config = StoreConfig { url: "file:///".to_owned(), ..StoreConfig::default() };
        let store = FileStore::new(&root, &config, Arc::new(Kernel)).unwrap();
        let list = folder.path().join("list");
        (folder, store, list)
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Lists and creates the files of a process that is killed while it writes these keys. Returns their names.
    fn killed(list: &WriteList, root: &Path, keys: &[&str]) -> Vec<String> {
        let name = |key: &&str| {
            let (directory, name) = key.rsplit_once('/').unwrap();
            let temporary = temporary_name(name);
            std::mem::forget(list.add(key, &temporary).unwrap());
            std::fs::write(root.join(directory).join(&temporary), b"half").unwrap();
            temporary
        };
        keys.iter().map(name).collect()
    }

    #[tokio::test]
    async fn what_a_killed_process_was_writing_is_removed_and_nothing_else() {
        let (_folder, store, list) = store();
        let directory = store.path_of("d");
        let first = WriteList::open(&list).unwrap();
        let replaced =
            killed(&first, store.path_of("").as_path(), &["d/a", "d/b", "d/link", "d/directory", "d/linked"]);
        for name in &replaced[2..4] {
            std::fs::remove_file(directory.join(name)).unwrap();
        }
        std::os::unix::fs::symlink("a", directory.join(&replaced[2])).unwrap();
        std::fs::create_dir(directory.join(&replaced[3])).unwrap();
        std::fs::hard_link(directory.join(&replaced[4]), directory.join("user")).unwrap();
        let other = temporary_name("a");
        std::fs::write(directory.join(&other), b"of another job").unwrap();
        drop(first);

        assert_eq!(store.remove_listed_writes(&list).await.unwrap(), 2);
        let mut left = [&replaced[2..], &[other, "user".to_owned()]].concat();
        left.sort();
        assert_eq!(names(&directory), left);
        assert!(!list.exists());
        assert_eq!(store.remove_listed_writes(&list).await.unwrap(), 0, "a list that is gone names nothing");
    }

    #[tokio::test]
    async fn slots_are_used_again_and_entries_that_are_over_remove_nothing() {
        let (_folder, store, list) = store();
        store.list_writes(&list).await.unwrap();
        for key in ["d/a", "d/a", "d/b", "c"] {
            let payload = Payload::from(Bytes::from_static(b"ours"));
            store.put(key, payload, &Checksums::default(), &PutOptions::default()).await.unwrap();
        }
        assert!(std::fs::metadata(&list).unwrap().len() < SLOT_BYTES, "one slot was enough");
        assert_eq!(read(&list).unwrap().len(), 1, "its last entry stays");
        assert_eq!(store.remove_listed_writes(&list).await.unwrap(), 0);
        assert_eq!(names(&store.path_of("d")), ["a", "b"]);
    }

    #[tokio::test]
    async fn a_list_whose_files_cannot_be_removed_is_kept_and_continued() {
        let (_folder, store, list) = store();
        let directory = store.path_of("d");
        let first = WriteList::open(&list).unwrap();
        killed(&first, store.path_of("").as_path(), &["d/a"]);
        drop(first);
        let moved = store.path_of("elsewhere");
        std::fs::rename(&directory, &moved).unwrap();
        std::os::unix::fs::symlink("elsewhere", &directory).unwrap();
        assert!(store.remove_listed_writes(&list).await.is_err(), "no link is followed");

        killed(&WriteList::open(&list).unwrap(), store.path_of("").as_path(), &["elsewhere/b"]);
        assert_eq!(read(&list).unwrap().len(), 2);
        std::fs::remove_file(&directory).unwrap();
        std::fs::rename(&moved, &directory).unwrap();
        std::fs::create_dir(&moved).unwrap();
        assert_eq!(store.remove_listed_writes(&list).await.unwrap(), 1);
    }

    #[test]
    fn an_entry_is_read_back_unless_it_is_incomplete() {
        let name = temporary_name("key");
        let entry = entry_of("some/key", &name);
        let longer = [entry.as_slice(), b"rest of an older entry\0"].concat();
        for slot in [&entry, &longer] {
            assert_eq!(parse(slot), Some(("some/key".to_owned(), UploadId(name.clone()))));
        }
        for length in 0..entry.len() {
            let torn = [&entry[..length], &[b'x'; 100]].concat();
            assert_eq!(parse(&torn), None, "{length}");
        }
        let longest = entry_of(&"k".repeat(4095), &"n".repeat(255));
        assert!(longest.len() as u64 <= SLOT_BYTES);
    }

    #[test]
    fn no_more_than_so_many_files_are_listed() {
        let (_folder, _store, path) = store();
        let list = WriteList::open(&path).unwrap();
        let mut listed: Vec<_> = (0..SLOTS_MAX).map(|_| list.add("a", &temporary_name("a")).unwrap()).collect();
        assert!(list.add("a", &temporary_name("a")).is_none());
        listed.pop();
        assert!(list.add("a", &temporary_name("a")).is_some());
    }
}
