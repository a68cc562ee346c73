//! Compares files with a store in slices: the names of the files, which are listed first, divide the listing of the
//! store, so that several pages of it are requested at the same time.

use super::{Naming, Walk};
use crate::lead::join::{Join, TargetPages};
use crate::lead::pages::{Listing, NameRange, NameSpan, Pages, RANGES_AT_ONCE_MAX, Slice};
use crate::lead::survey::error::SurveyError;
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;
use tokio::time::Instant;
use tradewind_store::{Error, ErrorKind, ObjectInfo, Store, UNORDERED, entry_of};

/// By destination: an object that its listing of a slice lacks, although it is older than this (Unix ms by the server's
/// clock), shows that the server lists in an order of its own. `None` where that is out of question or settled.
pub(super) struct Doubt(Vec<Option<i64>>);

impl Doubt {
    /// Doubts objects that were written after the listing was `requested`: it may lack them.
    fn of(targets: &[Option<Listing>], requested: Instant) -> Self {
        let age_ms = requested.elapsed().as_millis() as i64;
        let since =
            |target: &Option<Listing>| Some(target.as_ref()?.store.writes_from_unix_ms()?.saturating_sub(age_ms));
        Self(targets.iter().map(since).collect())
    }
}

/// A slice, and the same range of the destinations.
struct Begun {
    slice: Slice,
    requested: Instant,
    theirs: TargetPages,
}

impl Begun {
    fn new(slice: Slice, targets: &[Option<Listing>]) -> Self {
        Self { requested: Instant::now(), theirs: TargetPages::begin(targets, &slice.range), slice }
    }
}

impl Walk {
    /// Returns whether the source is a tree of files, and every destination a store that can be listed in such ranges, as
    /// far as is known before its first answer.
    pub(super) fn can_be_sliced(&self, source: &Listing, targets: &[Option<Listing>]) -> bool {
        let is_plain = source.span == NameSpan::default() && self.survey.done.is_empty();
        let is_store = |target: &Option<Listing>| {
            target.as_ref().is_some_and(|target| target.has_pages_of_a_slice() && target.store.lists_from_any_key())
        };
        !targets.is_empty() && is_plain && source.is_of_files() && targets.iter().all(is_store)
    }

    /// Looks at all slices, [`RANGES_AT_ONCE_MAX`] at once. While the first pages of the destinations are fetched, the
    /// source is listed and the second slice is requested. If a destination turns out to have a single page, or cannot
    /// be listed in ranges, all are listed in sequence.
    pub(super) async fn look_at_slices(
        &self,
        source: &Listing,
        targets: &[Option<Listing>],
        naming: Naming<'_>,
    ) -> Result<(), SurveyError> {
        let (mut slices, requested) = (Box::pin(source.slices()), Instant::now());
        let begin = async {
            let (first, second) = (slices.next().await, slices.next().await);
            (first, second.map(|slice| slice.map(|slice| Begun::new(slice, targets))))
        };
        let (have_ranges, (first, second)) = futures::join!(self.have_ranges(targets), begin);
        let have_ranges = have_ranges?;
        let Some(first) = first.transpose().map_err(SurveyError::Source)? else { return Ok(()) };
        let second = second.transpose().map_err(SurveyError::Source)?;
        if !have_ranges {
            let before = std::iter::once(first).chain(second.map(|second| second.slice)).collect();
            let ours = Pages::of_slices(source, before, slices);
            let theirs = TargetPages::begin(targets, &NameRange::default());
            return self.look_at_joined(Join::of_pages(source, ours, targets, theirs), None, naming).await;
        }
        // The first pages were requested before.
        let first = Begun { requested, ..Begun::new(first, targets) };
        let begun = std::iter::once(first).chain(second).map(Ok);
        let later = slices.map(|slice| slice.map(|slice| Begun::new(slice, targets)).map_err(SurveyError::Source));
        futures::stream::iter(begun)
            .chain(later)
            .try_for_each_concurrent(RANGES_AT_ONCE_MAX, |Begun { slice, requested, theirs }| {
                let doubt = (slice.range != NameRange::default()).then(|| Doubt::of(targets, requested));
                let ours = Pages::of_one(slice.page);
                self.look_at_joined(Join::of_pages(source, ours, targets, theirs), doubt, naming)
            })
            .await
    }

    /// Fetches the first page of each destination for later use. Returns whether each has more pages, which can be
    /// listed in ranges.
    async fn have_ranges(&self, targets: &[Option<Listing>]) -> Result<bool, SurveyError> {
        let answers = targets.iter().flatten().map(async |target| match target.has_ranges().await {
            Err(error) if error.kind == ErrorKind::BucketNotFound && target.store.makes_root() => Ok(false),
            answer => answer,
        });
        let answers = futures::future::try_join_all(answers).await.map_err(SurveyError::Target)?;
        Ok(answers.into_iter().all(|has_ranges| has_ranges))
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
