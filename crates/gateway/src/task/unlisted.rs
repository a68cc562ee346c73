//! Directories that one side of a comparison could not list.

use std::collections::BTreeMap;
use std::ops::Bound::{Included, Unbounded};
use tradewind_store::{Error, ErrorKind};

/// The directories that a listing has refused so far, by name. It is not known which objects are below them.
#[derive(Default)]
pub(super) struct Unlisted(BTreeMap<String, Error>);

impl Unlisted {
    /// Adds the entry `name` if it is a directory that still exists.
    pub(super) fn add(&mut self, name: Option<&str>, error: &Error) {
        let is_hidden = !matches!(error.kind, ErrorKind::Link | ErrorKind::NotFound);
        if let Some(name) = name.filter(|name| is_hidden && name.ends_with('/')) {
            self.0.insert(name.to_owned(), error.clone());
        }
    }

    /// Returns why the directory above `name` could not be listed, `None` if it was listed.
    /// The names must be passed in ascending order: directories before them are forgotten.
    pub(super) fn above(&mut self, name: &str) -> Option<&Error> {
        // Such directories do not contain each other, so only the last one before `name` can be above it.
        let last = self.0.range::<str, _>((Unbounded, Included(name))).next_back()?.0.clone();
        self.0 = self.0.split_off(&last);
        self.0.get(&last).filter(|_| name.starts_with(&last))
    }
}
