//! What `mv` deletes at the end: sources that are proven at every destination, and the directories that this empties.

use crate::lead::deletion::{Seen, Spool};
use crate::lead::journal::fingerprint;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;
use tradewind_contract::{JobSpec, Selection};
use tradewind_store::ObjectInfo;

/// Directories remembered until the end; those beyond stay, empty.
const DIRECTORIES_MAX: usize = 1_000_000;

/// Sources moved so far.
#[derive(Debug)]
pub(super) struct Moved {
    spool: Spool,
    targets: u16,
    /// Objects that some destinations have and others still lack: by a hash of the key, about 50 bytes each.
    partly: HashMap<[u8; 16], Partly>,
    directories: Option<BTreeSet<String>>,
    /// Directories are removed below these only.
    trees: Vec<String>,
}

/// An object that not every destination has yet.
#[derive(Debug)]
struct Partly {
    copies: u16,
    /// [`fingerprint`] of the source that the first destination has.
    fingerprint: u64,
    /// Every other destination has the same version.
    alike: bool,
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
            trees: match &job.selection {
                Selection::Several { members, .. } => {
                    members.iter().map(|member| &member.key).filter(|key| key.ends_with('/')).cloned().collect()
                }
                _ => vec![String::new()],
            },
        })
    }

    /// One more destination has the object. Returns false if every destination has it now, but not all the same version of
    /// it: the source stays.
    ///
    /// # Errors
    /// What the file system says; nothing may be deleted after it.
    pub(super) fn copied(&mut self, source: &ObjectInfo) -> io::Result<bool> {
        if self.targets > 1 {
            let mut hash = [0; 16];
            hash.copy_from_slice(&blake3::hash(source.key.as_bytes()).as_bytes()[..16]);
            let fingerprint = fingerprint(source);
            let partly = self.partly.entry(hash).or_insert(Partly { copies: 0, fingerprint, alike: true });
            partly.copies += 1;
            partly.alike &= partly.fingerprint == fingerprint;
            if partly.copies < self.targets {
                return Ok(true);
            }
            if self.partly.remove(&hash).is_some_and(|partly| !partly.alike) {
                return Ok(false);
            }
        }
        self.spool.push(0, source, Seen::Copied)?;
        if let Some(directories) = &mut self.directories {
            for tree in &self.trees {
                if let Some(name) = source.key.strip_prefix(tree.as_str()) {
                    remember(directories, tree, name);
                }
            }
        }
        Ok(true)
    }

    /// The sources to delete, and the directories (keys that end in `/`) that may be empty then, the deepest first.
    pub(super) fn end(self) -> (Spool, impl Iterator<Item = String>) {
        (self.spool, self.directories.into_iter().flatten().rev())
    }
}

/// The directories between `tree` (empty, or ending in `/`) and the object `name` below it, without the tree itself.
fn remember(directories: &mut BTreeSet<String>, tree: &str, name: &str) {
    let mut name = name.trim_end_matches('/');
    while let Some((parent, _)) = name.rsplit_once('/') {
        if parent.is_empty() || directories.len() >= DIRECTORIES_MAX || !directories.insert(format!("{tree}{parent}/"))
        {
            return;
        }
        name = parent;
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
    fn a_source_stays_when_destinations_have_different_versions_of_it() {
        let mut moved = moved("s3://b", 2);
        let version = |etag: &str| ObjectInfo { etag: Some(etag.to_owned()), ..object("a") };
        assert!(moved.copied(&version("1")).unwrap());
        assert!(!moved.copied(&version("2")).unwrap());
        assert_eq!(moved.end().0.keys(), 0);
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
