//! Finds the names that a flat copy gives to several objects, where the destination may show a directory of the source.
//!
//! There, what has the new name of an object has this name in the source, too. So a copy replaces an object that is yet to
//! be copied only if the two get the same name. The second would fail, and nobody would have its bytes.

use super::{Naming, Walk};
use crate::lead::deletion::is_folder;
use crate::lead::names::{last_part, short_hash};
use crate::lead::pages::Listing;
use crate::lead::survey::LIST_NAMES_MAX;
use crate::lead::survey::error::SurveyError;
use futures::StreamExt;
use std::collections::HashSet;
use tradewind_contract::Selection;
use tradewind_store::name_form;

/// Hashes of the names without their directories.
#[derive(Default)]
struct FlatNames {
    once: HashSet<[u8; 16]>,
    several: HashSet<[u8; 16]>,
}

impl FlatNames {
    fn add(&mut self, hash: [u8; 16]) -> Result<(), SurveyError> {
        if !self.once.insert(hash) {
            self.several.insert(hash);
        }
        if self.once.len() > LIST_NAMES_MAX { Err(SurveyError::TooManyFlat) } else { Ok(()) }
    }
}

impl Walk {
    /// Looks through the names of a flat copy before anything is written.
    pub(super) async fn know_flat_twins(&self) -> Result<(), SurveyError> {
        let job = &self.survey.job;
        if job.delete_source || !self.may_be_flat_onto_source() {
            return Ok(());
        }
        let mut names = FlatNames::default();
        match &job.selection {
            Selection::Object { .. } => {}
            Selection::Prefix { .. } => self.add_below(self.naming(), &mut names).await?,
            Selection::List { list_file, .. } => {
                let mut listed = self.listed_names(list_file).await?;
                while let Some(name) = listed.next().await? {
                    if self.selector.takes_name(&name) {
                        names.add(self.flat_hash(&name))?;
                    }
                }
            }
            Selection::Several { members, .. } => {
                for member in members {
                    if member.key.ends_with('/') {
                        let put = format!("{}/", member.name);
                        self.add_below(Naming { prefix: &member.key, put: &put }, &mut names).await?;
                    } else {
                        names.add(self.flat_hash(&member.name))?;
                    }
                }
            }
        }
        // It is set once, before the survey begins.
        self.flat_twins.set(names.several).ok();
        Ok(())
    }

    async fn add_below(&self, naming: Naming<'_>, names: &mut FlatNames) -> Result<(), SurveyError> {
        let (store, skips) = (self.survey.source.clone(), self.selector.skips(naming.prefix, naming.put));
        let listing = Listing::new(store, naming.prefix.to_owned(), self.policy, self.selector.span(), skips);
        let mut pages = std::pin::pin!(listing.in_any_order().await.map_err(SurveyError::Source)?);
        while let Some(page) = pages.next().await {
            for object in page.map_err(SurveyError::Source)?.objects {
                let name = naming.name_of(&object.key);
                if !is_folder(&object) && self.selector.takes(&name, object.size_bytes, object.modified_unix_ms) {
                    names.add(self.flat_hash(&name))?;
                }
            }
        }
        Ok(())
    }

    /// Returns whether this is a flat copy or move of several objects to a destination that may show the source.
    pub(super) fn may_be_flat_onto_source(&self) -> bool {
        let job = &self.survey.job;
        let is_one_object = matches!(job.selection, Selection::Object { .. });
        job.flatten && !job.dry_run && !is_one_object && self.survey.may_be_source.contains(&true)
    }

    /// Returns whether an object must be compared with what has its new name: if it is moved, or if it is copied and
    /// another one gets that name.
    pub(super) fn is_compared(&self, name: &str) -> bool {
        self.survey.job.delete_source
            || self.flat_twins.get().is_some_and(|several| several.contains(&self.flat_hash(name)))
    }

    /// A hash of the name without its directories, and without what a server may ignore in it.
    fn flat_hash(&self, name: &str) -> [u8; 16] {
        let last = last_part(name);
        let mut stores = self.survey.targets.iter().chain([&self.survey.source]);
        let form = stores.find_map(|store| name_form(store.as_ref(), last)).unwrap_or_else(|| last.to_owned());
        short_hash(&form)
    }
}
