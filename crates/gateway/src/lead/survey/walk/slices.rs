//! Compares files with a store in slices: the names of the files, which are listed first, divide the listing of the
//! store, so that several pages of it are requested at the same time.

use super::{Naming, Walk};
use crate::lead::join::Join;
use crate::lead::pages::{Listing, NameRange, NameSpan, RANGES_AT_ONCE_MAX};
use crate::lead::survey::error::SurveyError;
use futures::TryStreamExt;
use std::sync::Arc;
use tradewind_store::{Error, ErrorKind, ObjectInfo, Store, UNORDERED, entry_of};

/// By destination: an object that its listing of a slice lacks, although it is older than this (Unix ms by the server's
/// clock), shows that the server lists in an order of its own. `None` where that is out of question or settled.
pub(super) struct Doubt(Vec<Option<i64>>);

impl Doubt {
    fn of(targets: &[Option<Listing>]) -> Self {
        Self(targets.iter().map(|target| target.as_ref()?.store.writes_from_unix_ms()).collect())
    }
}

impl Walk {
    /// Returns whether the source is a tree of files, and every destination a store with several pages of a slice each
    /// that can be listed in ranges. Their first pages are fetched for that, and used.
    pub(super) async fn is_sliced(&self, source: &Listing, targets: &[Option<Listing>]) -> Result<bool, SurveyError> {
        let is_plain = source.span == NameSpan::default() && self.survey.done.is_empty();
        let is_store = |target: &Option<Listing>| target.as_ref().is_some_and(Listing::has_pages_of_a_slice);
        if targets.is_empty() || !is_plain || !source.is_of_files() || !targets.iter().all(is_store) {
            return Ok(false);
        }
        let answers = targets.iter().flatten().map(async |target| match target.has_ranges().await {
            Err(error) if error.kind == ErrorKind::BucketNotFound && target.store.makes_root() => Ok(false),
            answer => answer,
        });
        let answers = futures::future::try_join_all(answers).await.map_err(SurveyError::Target)?;
        Ok(answers.into_iter().all(|has_ranges| has_ranges))
    }

    /// Looks at all slices, [`RANGES_AT_ONCE_MAX`] at once.
    pub(super) async fn look_at_slices(
        &self,
        source: &Listing,
        targets: &[Option<Listing>],
        naming: Naming<'_>,
    ) -> Result<(), SurveyError> {
        let slices = source.slices().map_err(SurveyError::Source);
        slices
            .try_for_each_concurrent(RANGES_AT_ONCE_MAX, |slice| {
                let doubt = (slice.range != NameRange::default()).then(|| Doubt::of(targets));
                self.look_at_joined(Join::of_slice(source, slice, targets), doubt, naming)
            })
            .await
    }

    /// Asks each doubtful destination for the first object that it seems to lack.
    pub(super) async fn settle(
        &self,
        doubt: &mut Doubt,
        matches: &[Option<ObjectInfo>],
        name: &str,
    ) -> Result<(), SurveyError> {
        for (index, doubt) in doubt.0.iter_mut().enumerate() {
            let Some(since) = doubt.take_if(|_| matches.get(index).is_some_and(Option::is_none)) else { continue };
            let (store, key) = (&self.survey.targets[index], format!("{}{name}", self.survey.job.targets[index].key));
            if self.lists_key(store, &key).await
                && self.ask(store, &key).await.is_ok_and(|theirs| theirs.modified_unix_ms < since)
            {
                let message = format!("cannot be compared: {UNORDERED}: {key:?} is not where it should be");
                let error = Error::new(ErrorKind::Unsupported, "list", store.url(), message);
                return Err(SurveyError::Target(error));
            }
        }
        Ok(())
    }

    /// Returns whether a listing of this key alone has it. A server may also answer a `HEAD` for another spelling of a
    /// name, or for a directory.
    async fn lists_key(&self, store: &Arc<dyn Store>, key: &str) -> bool {
        let entry = self.policy.run("list", store.url(), || entry_of(store.as_ref(), key)).await;
        entry.is_ok_and(|entry| entry.flatten().is_some())
    }
}
