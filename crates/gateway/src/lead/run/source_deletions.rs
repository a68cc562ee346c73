//! Collects what `mv` deletes at the end: sources that are proven at every destination, and the directories that this
//! empties.

use super::emptied_directories::remember_parents;
use crate::lead::copies::ProvenCopy;
use crate::lead::deletion::{DeletionBacklog, Seen};
use crate::lead::journal::fingerprint;
use crate::lead::names::short_hash;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tradewind_contract::{JobSpec, Selection};
use tradewind_store::{ObjectInfo, Store};

/// The sources that every destination has, and those that some destinations still lack.
#[derive(Debug)]
pub(super) struct SourceDeletions {
    backlog: DeletionBacklog,
    targets: u16,
    /// Objects that some destinations have and others still lack. The keys are hashed; an entry takes about 60 bytes.
    partly: HashMap<[u8; 16], Partly>,
    /// The copies of those objects.
    waiting: CopyFile,
    directories: Option<BTreeSet<String>>,
    /// Directories are removed only below these.
    roots: Vec<String>,
}

/// An object that some destinations still lack.
#[derive(Debug)]
struct Partly {
    copies: u16,
    /// The [`fingerprint`] of the source version that the first destination has.
    fingerprint: u64,
    /// Whether every other destination so far has the same version.
    alike: bool,
    /// Offset of the latest copy in [`SourceDeletions::waiting`].
    latest: u64,
}

/// Copies in a temporary file that is removed when this is dropped. Each record has the offset of the previous record
/// of the same object.
#[derive(Debug)]
struct CopyFile {
    file: File,
    bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct CopyRecord {
    copy: ProvenCopy,
    before: Option<u64>,
}

impl CopyFile {
    fn create(dir: Option<&Path>) -> io::Result<Self> {
        let file = match dir {
            Some(dir) => tempfile::tempfile_in(dir)?,
            None => tempfile::tempfile()?,
        };
        Ok(Self { file, bytes: 0 })
    }

    /// Appends a record and returns its offset.
    fn append(&mut self, copy: ProvenCopy, before: Option<u64>) -> io::Result<u64> {
        let record = serde_json::to_vec(&CopyRecord { copy, before }).map_err(io::Error::from)?;
        let length = u32::try_from(record.len()).map_err(io::Error::other)?;
        let at = self.bytes;
        self.file.write_all_at(&[&length.to_le_bytes()[..], &record].concat(), at)?;
        self.bytes += 4 + u64::from(length);
        Ok(at)
    }

    /// Reads the copy whose record begins at `at`, and the earlier ones of the same object.
    fn read_back(&self, at: u64) -> io::Result<Vec<ProvenCopy>> {
        let mut copies = Vec::new();
        let mut next = Some(at);
        while let Some(at) = next {
            let mut length = [0; 4];
            self.file.read_exact_at(&mut length, at)?;
            let mut record = vec![0; u32::from_le_bytes(length) as usize];
            self.file.read_exact_at(&mut record, at + 4)?;
            let CopyRecord { copy, before } = serde_json::from_slice(&record).map_err(io::Error::from)?;
            copies.push(copy);
            next = before;
        }
        Ok(copies)
    }
}

impl SourceDeletions {
    /// An empty collection.
    ///
    /// # Errors
    /// The backlog's file cannot be created.
    pub(super) fn begin(job: &JobSpec, source: &dyn Store) -> io::Result<Self> {
        let dir = job.state_dir.as_deref().map(Path::new);
        Ok(Self {
            backlog: DeletionBacklog::create(dir)?.written_before(vec![source.writes_from_unix_ms()]),
            waiting: CopyFile::create(dir)?,
            // A job has few destinations, and the contract's indices are 16 bits wide.
            targets: job.targets.len() as u16,
            partly: HashMap::new(),
            directories: job.source.url.starts_with("file:").then(BTreeSet::new),
            roots: match &job.selection {
                Selection::Several { members, .. } => {
                    members.iter().map(|member| &member.key).filter(|key| key.ends_with('/')).cloned().collect()
                }
                _ => vec![String::new()],
            },
        })
    }

    /// Records that one more destination has the object, as `copy`. Returns false if every destination now has it, but
    /// not all have the same version: the source stays.
    ///
    /// # Errors
    /// The file system's error; nothing may be deleted after it.
    pub(super) fn copied(&mut self, source: &ObjectInfo, copy: ProvenCopy) -> io::Result<bool> {
        let mut copies = vec![copy];
        if self.targets > 1 {
            let hash = short_hash(&source.key);
            let fingerprint = fingerprint(source);
            let before = self.partly.get(&hash).map(|partly| partly.latest);
            let latest = copies.drain(..).try_fold(0, |_, copy| self.waiting.append(copy, before))?;
            let partly = self.partly.entry(hash).or_insert(Partly { copies: 0, fingerprint, alike: true, latest });
            partly.copies += 1;
            partly.latest = latest;
            partly.alike &= partly.fingerprint == fingerprint;
            if partly.copies < self.targets {
                return Ok(true);
            }
            if self.partly.remove(&hash).is_some_and(|partly| !partly.alike) {
                return Ok(false);
            }
            copies = self.waiting.read_back(latest)?;
        }
        self.backlog.push(0, source, Seen::Copied(copies))?;
        if let Some(directories) = &mut self.directories {
            for root in &self.roots {
                if let Some(name) = source.key.strip_prefix(root.as_str()) {
                    remember_parents(directories, root, name);
                }
            }
        }
        Ok(true)
    }

    /// Returns the sources to delete, and the directories (keys that end in `/`) that may be empty afterwards, the
    /// deepest first.
    pub(super) fn end(self) -> (DeletionBacklog, impl Iterator<Item = String>) {
        (self.backlog, self.directories.into_iter().flatten().rev())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory_tree::DirectoryTree;

    fn deletions(source: &str, targets: usize) -> SourceDeletions {
        let target = serde_json::json!({ "store": { "url": "file:///there" }, "key": "" });
        let job = serde_json::json!({
            "source": { "url": source },
            "selection": { "kind": "prefix", "prefix": "" },
            "targets": vec![target; targets],
        });
        SourceDeletions::begin(&serde_json::from_value(job).unwrap(), DirectoryTree::new().store.as_ref()).unwrap()
    }

    fn object(key: &str) -> ObjectInfo {
        ObjectInfo { key: key.to_owned(), ..ObjectInfo::default() }
    }

    fn copy(target: u16) -> ProvenCopy {
        ProvenCopy { target, key: "there".to_owned(), size_bytes: 7, ..ProvenCopy::default() }
    }

    #[test]
    fn all_copies_of_an_object_are_read_back_and_no_others() {
        let mut file = CopyFile::create(None).unwrap();
        let first = file.append(copy(0), None).unwrap();
        file.append(copy(9), None).unwrap();
        let second = file.append(copy(1), Some(first)).unwrap();
        assert_eq!(file.read_back(second).unwrap(), [copy(1), copy(0)]);
    }

    #[test]
    fn a_source_goes_only_when_every_destination_has_it() {
        let mut deletions = deletions("s3://b", 2);
        for (key, target) in [("a", 0), ("b", 0), ("a", 1)] {
            deletions.copied(&object(key), copy(target)).unwrap();
        }
        let (backlog, directories) = deletions.end();
        assert_eq!((backlog.keys(), directories.count()), (1, 0));
    }

    #[test]
    fn a_source_stays_when_destinations_have_different_versions_of_it() {
        let mut deletions = deletions("s3://b", 2);
        let version = |etag: &str| ObjectInfo { etag: Some(etag.to_owned()), ..object("a") };
        assert!(deletions.copied(&version("1"), copy(0)).unwrap());
        assert!(!deletions.copied(&version("2"), copy(1)).unwrap());
        assert_eq!(deletions.end().0.keys(), 0);
    }

    #[test]
    fn directories_come_deepest_first_and_each_once() {
        let mut deletions = deletions("file:///here", 1);
        for key in ["a/b/c", "a/b/d", "top", "a-b/x", "a/e/"] {
            deletions.copied(&object(key), copy(0)).unwrap();
        }
        let (backlog, directories) = deletions.end();
        assert_eq!(backlog.keys(), 5);
        assert_eq!(directories.collect::<Vec<_>>(), ["a/b/", "a/", "a-b/"]);
    }
}
