//! Remembers the symbolic links of the source that are skipped, for a job that deletes at its destinations.
//!
//! The source has something of this name, and nobody looked at it. So what a destination has under the name, or below it,
//! is not extraneous: a directory may have been moved to another disk, and a link to it left in its place.

use super::Walk;
use crate::lead::deletion::DeletionBacklog;
use crate::lead::names::short_hash;
use crate::lead::survey::LIST_NAMES_MAX;
use crate::lead::survey::error::SurveyError;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// Hashes of the names of links.
#[derive(Default)]
pub(super) struct SkippedLinks(Mutex<HashSet<[u8; 16]>>);

impl SkippedLinks {
    /// Remembers a link. Returns false if there are too many.
    fn add(&self, name: &str) -> bool {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.insert(short_hash(name));
        links.len() <= LIST_NAMES_MAX
    }
}

/// Returns whether a name, or a directory above it, is one of the links.
fn is_behind(links: &HashSet<[u8; 16]>, name: &str) -> bool {
    let ends = name.match_indices('/').map(|(slash, _)| slash).chain([name.len()]);
    ends.into_iter().any(|end| links.contains(&short_hash(&name[..end])))
}

impl Walk {
    /// Counts a link that is skipped. `name`: its name at the destinations, if it is known.
    pub(super) fn skip_link(&self, name: Option<&str>) {
        self.links.fetch_add(1, Ordering::Relaxed);
        let is_remembered = || name.is_some_and(|name| self.skipped_links.add(name));
        if self.extraneous.is_some() && !is_remembered() {
            self.saw_all.store(false, Ordering::Relaxed);
        }
    }

    /// Returns what is to be deleted, without what the destinations have in the place of skipped links.
    pub(super) fn without_skipped_links(&self, extraneous: DeletionBacklog) -> Result<DeletionBacklog, SurveyError> {
        let links = self.skipped_links.0.lock().unwrap_or_else(PoisonError::into_inner);
        if links.is_empty() {
            return Ok(extraneous);
        }
        let job = &self.survey.job;
        let is_spared = |target: u16, key: &str| {
            let prefix = job.targets.get(usize::from(target)).map_or("", |target| target.key.as_str());
            key.strip_prefix(prefix).is_some_and(|name| is_behind(&links, name))
        };
        extraneous.sparing(job.state_dir.as_deref().map(Path::new), is_spared).map_err(SurveyError::Backlog)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_the_name_of_a_link_or_is_below_it_is_spared() {
        let links = HashSet::from(["data", "a/link"].map(short_hash));
        for (name, is_spared) in [
            ("data", true),
            ("data/", true),
            ("data/x/y", true),
            ("a/link/x", true),
            ("data-x", false),
            ("a/data", false),
            ("link/x", false),
        ] {
            assert_eq!(is_behind(&links, name), is_spared, "{name}");
        }
    }
}
