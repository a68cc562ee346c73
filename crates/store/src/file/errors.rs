//! Classifies the system's errors by meaning.

use super::Tree;
use super::links::Blocked;
use super::path::BECAME_LINK;
use crate::{Error, ErrorKind};
use nix::errno::Errno;

/// The meaning of a failed system call while a file is read.
fn meaning(errno: Errno) -> ErrorKind {
    match errno {
        Errno::ENOENT => ErrorKind::NotFound,
        Errno::EACCES | Errno::EPERM | Errno::EROFS | BECAME_LINK => ErrorKind::Forbidden,
        Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG => ErrorKind::NoSpace,
        Errno::ENAMETOOLONG | Errno::EILSEQ | Errno::EINVAL | Errno::ENOTDIR | Errno::EISDIR | Errno::EEXIST => {
            ErrorKind::InvalidKey
        }
        Errno::ELOOP => ErrorKind::InvalidKey,
        // Too many open files: slow down.
        Errno::EMFILE | Errno::ENFILE => ErrorKind::SlowDown,
        _ => ErrorKind::Server,
    }
}

impl Tree {
    /// Returns an error of `operation` on `key`.
    pub(super) fn error(
        &self,
        kind: ErrorKind,
        operation: &'static str,
        key: &str,
        message: impl std::fmt::Display,
    ) -> Error {
        Error::new(kind, operation, self.object_url(key), message)
    }

    /// URL of `key` for messages.
    pub(super) fn object_url(&self, key: &str) -> String {
        let slash = if self.url.ends_with('/') { "" } else { "/" };
        format!("{}{slash}{key}", self.url)
    }

    /// Translates a failed system call of `operation` on `key`.
    pub(super) fn system_error(&self, operation: &'static str, key: &str, errno: Errno) -> Error {
        let message = match errno {
            Errno::ELOOP if self.follow_symlinks => "the symbolic links form a loop".to_owned(),
            Errno::ELOOP => "the path contains a symbolic link, and --follow-symlinks is not given".to_owned(),
            Errno::ENOTDIR => "a directory is needed, but a file has this name".to_owned(),
            BECAME_LINK => "a part of the directory's path has become a symbolic link".to_owned(),
            Errno::EFBIG => "the file would be larger than `ulimit -f` or the file system allows".to_owned(),
            Errno::EISDIR | Errno::EEXIST => "a directory has this name".to_owned(),
            other => other.desc().to_owned(),
        };
        self.error(meaning(errno), operation, key, message)
    }

    /// Like [`Tree::system_error`], for a path that could not be followed to its end.
    pub(super) fn blocked_error(&self, operation: &'static str, key: &str, blocked: Blocked) -> Error {
        match blocked {
            Blocked::System(errno) => self.system_error(operation, key, errno),
            Blocked::Link(message) => self.error(ErrorKind::InvalidKey, operation, key, message),
            Blocked::RootLost => {
                let message =
                    format!("{} was moved, removed or unmounted while it was written to", self.root.display());
                self.error(ErrorKind::BucketNotFound, operation, key, message)
            }
        }
    }

    /// Like [`Tree::system_error`], for errors of the standard library.
    pub(super) fn io_error(&self, operation: &'static str, key: &str, error: &std::io::Error) -> Error {
        match error.raw_os_error() {
            Some(code) => self.system_error(operation, key, Errno::from_raw(code)),
            None => self.error(ErrorKind::Server, operation, key, error),
        }
    }
}
