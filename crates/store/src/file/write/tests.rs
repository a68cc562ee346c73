//! Writes of files beside other writers.

use super::super::{FileStore, Kernel};
use super::*;
use crate::{Checksums, Store, StoreConfig};
use bytes::Bytes;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn only_regular_files_are_replaced() {
    assert_eq!(irreplaceable(libc::S_IFREG | 0o644), None);
    assert_eq!(irreplaceable(libc::S_IFCHR | 0o666), Some("a device"));
    assert_eq!(irreplaceable(libc::S_IFBLK | 0o660), Some("a device"));
    assert_eq!(irreplaceable(libc::S_IFDIR | 0o755), Some("a directory"));
}

/// A disk on which another writer takes each free name at the last moment, `times` at most.
#[derive(Debug)]
struct Contended {
    times: AtomicU32,
    /// Renames that replaced a file.
    replaced: AtomicU32,
}

impl Contended {
    fn contend(&self, directory: &OwnedFd, name: &str) {
        let is_free = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_err();
        let left = self.times.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        if is_free && left.is_ok() {
            Kernel.create(directory, name, NEW_MODE).unwrap();
        }
    }
}

impl Disk for Contended {
    fn boot(&self) -> &str {
        "boot"
    }

    fn create(&self, directory: &OwnedFd, name: &str, mode: Mode) -> Result<File, Errno> {
        Kernel.create(directory, name, mode)
    }

    fn make_directory(&self, parent: &OwnedFd, name: &str) -> Result<(), Errno> {
        Kernel.make_directory(parent, name)
    }

    fn write(&self, file: &File, slices: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno> {
        Kernel.write(file, slices, offset)
    }

    fn set_length(&self, file: &File, bytes: u64) -> std::io::Result<()> {
        Kernel.set_length(file, bytes)
    }

    fn set_modified(&self, file: &File, time: SystemTime) -> std::io::Result<()> {
        Kernel.set_modified(file, time)
    }

    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        Kernel.sync(file)
    }

    fn rename(&self, directory: &OwnedFd, from: &str, to: &str) -> Result<(), Errno> {
        self.contend(directory, to);
        self.replaced.fetch_add(1, Relaxed);
        Kernel.rename(directory, from, to)
    }

    fn rename_new(&self, directory: &OwnedFd, from: &str, to: &str) -> Result<(), Errno> {
        self.contend(directory, to);
        Kernel.rename_new(directory, from, to)
    }

    fn remove(&self, directory: &OwnedFd, name: &str, flag: UnlinkatFlags) -> Result<(), Errno> {
        Kernel.remove(directory, name, flag)
    }
}

/// A name that was free is not replaced by the way: what took it is looked at first, because it may be a twin.
#[tokio::test]
async fn what_takes_a_free_name_meanwhile_is_looked_at_before_it_is_replaced() {
    let absent = PutOptions { expect: Some(Expect::Absent), ..PutOptions::default() };
    for (times, options, wanted) in [
        (0, PutOptions::default(), Ok(0)),
        (1, PutOptions::default(), Ok(1)),
        (0, absent.clone(), Ok(0)),
        (1, absent, Err(ErrorKind::PreconditionFailed)),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(Contended { times: times.into(), replaced: 0.into() });
        let config = StoreConfig { url: "file:///".to_owned(), ..StoreConfig::default() };
        let store = FileStore::new(folder.path(), &config, disk.clone()).unwrap();
        let payload = Payload::from(Bytes::from_static(b"ours"));
        let done = store.put("name", payload, &Checksums::default(), &options).await;
        assert_eq!(done.map(|_| disk.replaced.load(Relaxed)).map_err(|error| error.kind), wanted);
        let bytes = std::fs::read(folder.path().join("name")).unwrap();
        assert_eq!(bytes, if wanted.is_ok() { &b"ours"[..] } else { b"" });
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }
}
