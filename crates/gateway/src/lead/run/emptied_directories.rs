//! Remembers directories that a job empties: at destinations with `--delete`, and at the source with `mv`.

use crate::retry::RetryPolicy;
use std::collections::BTreeSet;
use tradewind_contract::{JobSpec, Selection};
use tradewind_store::{ListRequest, Store};

/// Maximum number of directories remembered until the end; any more stay behind empty.
const DIRECTORIES_MAX: usize = 1_000_000;

/// Directories that may be empty now, by destination. Only for file systems: in object stores a folder disappears with
/// its last object.
#[derive(Debug)]
pub(super) struct EmptiedDirectories {
    /// The prefix of each destination, with names of directories below it. The names end in `/`.
    targets: Vec<Option<(String, BTreeSet<String>)>>,
    source_prefix: String,
}

impl EmptiedDirectories {
    /// An empty set for the job's destinations.
    pub(super) fn of(job: &JobSpec) -> Self {
        let source_prefix = match &job.selection {
            Selection::Prefix { prefix, .. } => prefix.clone(),
            _ => String::new(),
        };
        let files = |target: &tradewind_contract::Target| target.store.url.starts_with("file:");
        let targets = job.targets.iter().map(|target| files(target).then(|| (target.key.clone(), BTreeSet::new())));
        Self { targets: targets.collect(), source_prefix }
    }

    /// Records that the object `key` of the destination with index `target` was deleted.
    pub(super) fn add(&mut self, target: u16, key: &str) {
        if let Some(Some((prefix, directories))) = self.targets.get_mut(usize::from(target))
            && let Some(name) = key.strip_prefix(prefix.as_str())
        {
            remember_parents(directories, "", name);
        }
    }

    /// Yields the destination's index and the directory's name below its prefix, subdirectories before their parents.
    pub(super) fn deepest_first(&self) -> impl Iterator<Item = (usize, String)> {
        let targets = self.targets.iter().enumerate().filter_map(|(index, target)| Some((index, target.as_ref()?)));
        targets.flat_map(|(index, (_, directories))| directories.iter().rev().map(move |name| (index, name.clone())))
    }

    /// The key of a directory at the source.
    pub(super) fn at_source(&self, name: &str) -> String {
        format!("{}{name}", self.source_prefix)
    }
}

/// Returns whether `key` is an empty directory. One that cannot be listed does not count as empty.
pub(super) async fn is_empty_folder(store: &dyn Store, key: &str, policy: RetryPolicy) -> bool {
    let request = ListRequest { prefix: key.to_owned(), max_keys: Some(1), ..ListRequest::default() };
    let listed = policy.run("list", store.url(), || store.list(&request)).await;
    // An empty directory is listed as an object with its own name.
    listed.is_ok_and(|page| page.refused.is_empty() && page.objects.iter().any(|object| object.key == key))
}

/// Adds the directories between `root` (empty, or ending in `/`) and the object `name` below it, without the root
/// itself.
pub(super) fn remember_parents(directories: &mut BTreeSet<String>, root: &str, name: &str) {
    let mut name = name.trim_end_matches('/');
    while let Some((parent, _)) = name.rsplit_once('/') {
        if parent.is_empty() || directories.len() >= DIRECTORIES_MAX || !directories.insert(format!("{root}{parent}/"))
        {
            return;
        }
        name = parent;
    }
}
