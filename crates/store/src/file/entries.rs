//! Reads the entries of a directory.
//!
//! On Linux without the C library, which takes it for the end of a directory when the kernel says that the directory does
//! not exist. The kernel says so of a directory that is removed while it is read, and some file systems behind FUSE say
//! so of others. The entries that are left would then count as deleted.

use nix::dir::Type;
use nix::errno::Errno;
use std::os::fd::OwnedFd;

/// Bytes of entries that are read at once.
#[cfg(target_os = "linux")]
const BUFFER_BYTES: usize = 32 * 1024;

/// Calls `visit` with the name and, if known, the type of each entry, except `.` and `..`. Ends with its first error.
///
/// # Errors
/// [`Errno::ENOENT`] if the directory was removed meanwhile; otherwise the system's error or that of `visit`.
#[cfg(target_os = "linux")]
pub(super) fn each_entry(
    directory: &OwnedFd,
    mut visit: impl FnMut(&[u8], Option<Type>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    use rustix::fs::{Mode, OFlags, RawDir, fstat, openat};
    let failed = |error: rustix::io::Errno| Errno::from_raw(error.raw_os_error());
    // A file of its own, so that two readers do not share the offset.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let reading = openat(directory, ".", flags, Mode::empty()).map_err(failed)?;
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    let mut entries = RawDir::new(&reading, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Err(rustix::io::Errno::NOENT) => {
                let is_removed = fstat(directory).is_ok_and(|stat| stat.st_nlink == 0);
                return Err(if is_removed { Errno::ENOENT } else { Errno::EIO });
            }
            entry => entry.map_err(failed)?,
        };
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            visit(name, type_of(entry.file_type()))?;
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn type_of(found: rustix::fs::FileType) -> Option<Type> {
    use rustix::fs::FileType;
    match found {
        FileType::RegularFile => Some(Type::File),
        FileType::Directory => Some(Type::Directory),
        FileType::Symlink => Some(Type::Symlink),
        FileType::Fifo => Some(Type::Fifo),
        FileType::Socket => Some(Type::Socket),
        FileType::CharacterDevice => Some(Type::CharacterDevice),
        FileType::BlockDevice => Some(Type::BlockDevice),
        FileType::Unknown => None,
    }
}

/// Calls `visit` with the name and, if known, the type of each entry, except `.` and `..`. Ends with its first error.
///
/// # Errors
/// The system's error, or that of `visit`.
#[cfg(not(target_os = "linux"))]
pub(super) fn each_entry(
    directory: &OwnedFd,
    mut visit: impl FnMut(&[u8], Option<Type>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    use nix::dir::Dir;
    use nix::fcntl::OFlag;
    use nix::sys::stat::Mode;
    let mut entries = Dir::openat(directory, ".", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    for entry in entries.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            visit(name, entry.file_type())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fs::File;

    #[test]
    fn every_entry_has_its_name_and_type() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("directory")).unwrap();
        std::os::unix::fs::symlink("nothing", folder.path().join("link")).unwrap();
        let count = 3000;
        for number in 0..count {
            File::create(folder.path().join(format!("a-rather-long-name-{number}"))).unwrap();
        }
        let mut found = BTreeMap::new();
        let visit = |name: &[u8], kind| {
            assert!(found.insert(name.to_owned(), kind).is_none());
            Ok(())
        };
        each_entry(&File::open(folder.path()).unwrap().into(), visit).unwrap();
        assert_eq!(found.len(), count + 2);
        assert_eq!(found[&b"directory"[..]], Some(Type::Directory));
        assert_eq!(found[&b"link"[..]], Some(Type::Symlink));
        assert_eq!(found[&b"a-rather-long-name-0"[..]], Some(Type::File));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_directory_that_was_removed_is_not_empty() {
        let folder = tempfile::tempdir().unwrap();
        let directory = File::open(folder.path()).unwrap().into();
        folder.close().unwrap();
        assert_eq!(each_entry(&directory, |_, _| Ok(())), Err(Errno::ENOENT));
    }
}
