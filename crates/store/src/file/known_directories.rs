//! Remembers directories that have passed a check, so that it is not repeated for each file.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Most directories remembered. At the limit all are forgotten and checked again, which only costs time.
const KNOWN_DIRECTORIES_MAX: usize = 65_536;

/// Directories by their paths. The empty path is the root.
#[derive(Debug, Default)]
pub(super) struct KnownDirectories(Mutex<HashSet<String>>);

impl KnownDirectories {
    pub(super) fn contains(&self, path: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(path)
    }

    pub(super) fn add(&self, path: &str) {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if paths.contains(path) {
            return;
        }
        if paths.len() >= KNOWN_DIRECTORIES_MAX {
            paths.clear();
        }
        paths.insert(path.to_owned());
    }
}
