//! Real file stores in temporary folders, for tests.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;
use tradewind_contract::StoreSpec;
use tradewind_store::Store;

/// A folder and a store over it. Deleted when dropped.
pub(crate) struct DirectoryTree {
    dir: TempDir,
    pub(crate) store: Arc<dyn Store>,
}

impl DirectoryTree {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = crate::stores::open(&spec_of(dir.path())).unwrap();
        Self { dir, store }
    }

    pub(crate) fn with(keys: &[(&str, &[u8])]) -> Self {
        let tree = Self::new();
        keys.iter().for_each(|(key, bytes)| tree.write(key, bytes));
        tree
    }

    pub(crate) fn spec(&self) -> StoreSpec {
        spec_of(self.dir.path())
    }

    pub(crate) fn path(&self, key: &str) -> PathBuf {
        self.dir.path().join(key)
    }

    pub(crate) fn write(&self, key: &str, bytes: &[u8]) {
        let path = self.path(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(crate) fn set_modified(&self, key: &str, unix_ms: u64) {
        let file = File::options().append(true).open(self.path(key)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_millis(unix_ms)).unwrap();
    }

    /// Returns all files with their bytes, including temporary ones.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.dir.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let key = path.strip_prefix(self.dir.path()).unwrap().to_str().unwrap().to_owned();
                    files.insert(key, fs::read(path).unwrap());
                }
            }
        }
        files
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.files().into_keys().collect()
    }
}

fn spec_of(path: &std::path::Path) -> StoreSpec {
    StoreSpec { url: format!("file://{}", path.display()), ..StoreSpec::default() }
}
