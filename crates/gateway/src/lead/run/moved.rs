//! What `mv` deletes at the end: sources that are proven at every destination, and the directories that this empties.

use crate::lead::deletion::Spool;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;
use tradewind_contract::JobSpec;
use tradewind_store::ObjectInfo;

/// Directories remembered until the end; those beyond stay, empty.
const DIRECTORIES_MAX: usize = 1_000_000;

/// Sources moved so far.
#[derive(Debug)]
pub(super) struct Moved {
    spool: Spool,
    targets: u16,
    /// Destinations that have an object which others still lack: by a hash of its key, about 40 bytes each.
    partly: HashMap<[u8; 16], u16>,
    directories: Option<BTreeSet<String>>,
}

impl Moved {
    /// Nothing moved yet.
    ///
    /// # Errors
    /// What the file system says of the spool.
    pub(super) fn begin(job: &JobSpec) -> io::Result<Self> {
        Ok(Self {
            spool: Spool::create(job.state_dir.as_deref().map(Path::new))?,
            // A job has few destinations; the contract's indices are 16 bits wide.
            targets: job.targets.len() as u16,
            partly: HashMap::new(),
            directories: job.source.url.starts_with("file:").then(BTreeSet::new),
        })
    }

    /// One more destination has the object.
    ///
    /// # Errors
    /// What the file system says; nothing may be deleted after it.
    pub(super) fn copied(&mut self, source: &ObjectInfo) -> io::Result<()> {
        if self.targets > 1 {
            let mut hash = [0; 16];
            hash.copy_from_slice(&blake3::hash(source.key.as_bytes()).as_bytes()[..16]);
            let copies = self.partly.entry(hash).or_default();
            *copies += 1;
            if *copies < self.targets {
                return Ok(());
            }
            self.partly.remove(&hash);
        }
        self.spool.push(0, source)?;
        if let Some(directories) = &mut self.directories {
            remember(directories, &source.key);
        }
        Ok(())
    }

    /// The sources to delete, and the directories (keys that end in `/`) that may be empty then, the deepest first.
    pub(super) fn end(self) -> (Spool, impl Iterator<Item = String>) {
        (self.spool, self.directories.into_iter().flatten().rev())
    }
}

/// The directories above `key`, up to but without the root.
fn remember(directories: &mut BTreeSet<String>, key: &str) {
    let mut key = key.trim_end_matches('/');
    while let Some((parent, _)) = key.rsplit_once('/') {
        if parent.is_empty() || directories.len() >= DIRECTORIES_MAX || !directories.insert(format!("{parent}/")) {
            return;
        }
        key = parent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(source: &str, targets: usize) -> Moved {
        let target = serde_json::json!({ "store": { "url": "file:///there" }, "key": "" });
        let job = serde_json::json!({
            "source": { "url": source },
            "selection": { "kind": "prefix", "prefix": "" },
            "targets": vec![target; targets],
        });
        Moved::begin(&serde_json::from_value(job).unwrap()).unwrap()
    }

    fn object(key: &str) -> ObjectInfo {
        ObjectInfo { key: key.to_owned(), ..ObjectInfo::default() }
    }

    #[test]
    fn a_source_goes_only_when_every_destination_has_it() {
        let mut moved = moved("s3://b", 2);
        for key in ["a", "b", "a"] {
            moved.copied(&object(key)).unwrap();
        }
        let (spool, directories) = moved.end();
        assert_eq!((spool.keys(), directories.count()), (1, 0));
    }

    #[test]
    fn directories_come_deepest_first_and_each_once() {
        let mut moved = moved("file:///here", 1);
        for key in ["a/b/c", "a/b/d", "top", "a-b/x", "a/e/"] {
            moved.copied(&object(key)).unwrap();
        }
        let (spool, directories) = moved.end();
        assert_eq!(spool.keys(), 5);
        assert_eq!(directories.collect::<Vec<_>>(), ["a/b/", "a/", "a-b/"]);
    }
}
