//! Identifies the file that an upload is written to. The name alone is not enough: somebody may since have moved or
//! linked the file, or created another one there, and writing a part into that one would destroy it.

use super::disk::Disk;
use super::path::is_temporary_of;
use super::read::is_kind;
use crate::UploadId;
use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::FileStat;

/// Separates the name and the number in an upload id; no name contains it.
const NUMBER_MARK: char = '/';

/// A temporary file, as its upload id describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TemporaryFile<'a> {
    pub(super) name: &'a str,
    /// See [`Disk::file_number`]. Older versions did not record it.
    pub(super) number: Option<u64>,
}

impl<'a> TemporaryFile<'a> {
    /// The temporary file of an upload of `name`; `None` if the id does not describe one.
    pub(super) fn of(upload: &'a UploadId, name: &str) -> Option<Self> {
        let (temporary, number) = match upload.0.split_once(NUMBER_MARK) {
            Some((temporary, digits)) => (temporary, Some(u64::from_str_radix(digits, 16).ok()?)),
            None => (upload.0.as_str(), None),
        };
        is_temporary_of(temporary, name).then_some(Self { name: temporary, number })
    }

    pub(super) fn upload_id(self) -> UploadId {
        let number = self.number.map(|number| format!("{NUMBER_MARK}{number:x}"));
        UploadId(format!("{}{}", self.name, number.unwrap_or_default()))
    }

    /// Returns whether the file `found` is the one that was created. It must have no other name through which somebody
    /// may need its bytes.
    pub(super) fn may_be_written(self, disk: &dyn Disk, found: &FileStat) -> bool {
        is_kind(found, libc::S_IFREG)
            && found.st_nlink <= 1
            && self.number.is_none_or(|number| disk.file_number(found) == number)
    }

    /// Returns whether the name may be removed: it must belong to the file that was created. The file keeps any other
    /// names.
    pub(super) fn may_be_removed(self, disk: &dyn Disk, found: &FileStat) -> bool {
        match self.number {
            Some(number) => is_kind(found, libc::S_IFREG) && disk.file_number(found) == number,
            None => self.may_be_written(disk, found),
        }
    }
}

/// Returns whether the error of an open that follows no links means that the name belongs to no regular file: to a
/// link, a directory, a FIFO without a reader, or a socket.
pub(super) fn errno_of_another(errno: Errno) -> bool {
    matches!(errno, Errno::ELOOP | Errno::EISDIR | Errno::ENXIO)
}

#[cfg(test)]
mod tests {
    use super::super::path::temporary_name;
    use super::*;

    #[test]
    fn an_upload_id_identifies_the_file_and_older_ids_only_its_name() {
        let name = temporary_name("big");
        for number in [None, Some(0), Some(u64::MAX)] {
            let file = TemporaryFile { name: &name, number };
            assert_eq!(TemporaryFile::of(&file.upload_id(), "big"), Some(file));
            assert_eq!(TemporaryFile::of(&file.upload_id(), "other"), None);
        }
        for wrong in ["", "/1", "short", &format!("{name}/"), &format!("{name}/x"), &format!("{name}/1/1")] {
            assert_eq!(TemporaryFile::of(&UploadId(wrong.to_owned()), "big"), None, "{wrong}");
        }
    }
}
