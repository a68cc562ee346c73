//! Refuses a list that is copied to a place below its source and names an object in that place: another object of the
//! list may be copied over it before it is read.

use super::{Place, Places, overlap};
use crate::lead::names::listed_name;
use crate::lead::select::Selector;
use crate::lead::survey::SurveyError;
use std::collections::HashSet;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, BufReader};
use tradewind_contract::Selection;
use tradewind_store::{Relation, kinship};

/// Directories remembered, so that each is compared once. At the limit all are forgotten.
const DIRECTORIES_MAX: usize = 10_000;

impl Places<'_> {
    /// Compares the directories of all names in a list with a destination below the source.
    pub(super) async fn refuse_listed_within(&self, target: Place<'_>) -> Result<(), SurveyError> {
        let Selection::List { prefix, list_file, filter } = &self.job.selection else { return Ok(()) };
        let selector = Selector::new(filter)?;
        let failed = |error| SurveyError::ListFile { path: list_file.into(), error };
        let mut lines = BufReader::new(File::open(list_file).await.map_err(failed)?).lines();
        let mut outside = HashSet::new();
        while let Some(line) = lines.next_line().await.map_err(failed)? {
            let name = listed_name(self.source.url(), &line);
            let key = format!("{prefix}{name}");
            let directory = &key[..key.rfind('/').map_or(0, |slash| slash + 1)];
            if name.is_empty() || outside.contains(directory) || !selector.takes_name(name) {
                continue;
            }
            let places = ((self.source.as_ref(), directory), (target.store.as_ref(), target.key));
            let found = kinship(places.0, places.1).await.map_err(SurveyError::Target)?;
            if matches!(found.relation, Relation::Same | Relation::FirstWithin) {
                return Err(overlap(Place { store: self.source, key: &key }, target, Relation::FirstWithin));
            }
            if outside.len() == DIRECTORIES_MAX {
                outside.clear();
            }
            outside.insert(directory.to_owned());
        }
        Ok(())
    }
}
