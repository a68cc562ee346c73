//! Directories that a listing may leave out.

use std::fmt;
use std::sync::Arc;

type IsSkipped = dyn Fn(&str) -> bool + Send + Sync;

/// The directories whose contents do not matter, by their keys, which end in `/`. By default there are none.
#[derive(Clone, Default)]
pub struct Skips(Option<Arc<IsSkipped>>);

impl Skips {
    /// Leaves out the directories for which `skips` returns true.
    pub fn new(skips: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(skips)))
    }

    /// The first directory below `prefix` that `key` is in and that need not be listed.
    pub fn directory_of<'a>(&self, prefix: &str, key: &'a str) -> Option<&'a str> {
        let below = key.strip_prefix(prefix).filter(|_| self.0.is_some())?;
        let mut directories = below.match_indices('/').map(|(at, _)| &key[..=prefix.len() + at]);
        directories.find(|directory| self.has(directory))
    }

    /// Returns whether a directory need not be listed.
    pub fn has(&self, directory: &str) -> bool {
        self.0.as_ref().is_some_and(|skips| skips(directory))
    }
}

impl fmt::Debug for Skips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Skips(..)" } else { "Skips" })
    }
}

/// Two are equal if they are clones.
impl PartialEq for Skips {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for Skips {}
