//! A survey in progress: lists what is selected and hands it, batch by batch, to [`candidates`], which sorts it.

mod candidates;
mod flat_copies;
mod flat_moves;
mod named;
mod skipped_links;
mod slices;

use super::error::SurveyError;
use super::{
    BATCH_OBJECTS_MAX, Found, HEADS_AT_ONCE_MAX, ITEMS_AT_ONCE_MAX, LIST_NAMES_MAX, Survey, SurveyEnd, WorkItem,
};
use crate::failure::{failed_object, object_url};
use crate::lead::compare::Tags;
use crate::lead::deletion::{DeletionBacklog, Seen, is_folder};
use crate::lead::join::{Join, Joined, Side};
use crate::lead::journal::DoneTotals;
use crate::lead::names::{Names, last_part, short_hash};
use crate::lead::pages::{Listing, NameRange, RANGES_AT_ONCE_MAX};
use crate::lead::select::Selector;
use crate::retry::RetryPolicy;
use candidates::Candidate;
use futures::{StreamExt, TryStreamExt};
use skipped_links::SkippedLinks;
use slices::Doubt;
use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::Semaphore;
use tradewind_contract::{FailedObject, ObjectFilter, Selection, Target};
use tradewind_store::{Error, ErrorKind, NameChanges, ObjectInfo, Store, name_form};

/// A survey under way. Shared by the ranges that are listed at once.
struct Walk {
    survey: Survey,
    policy: RetryPolicy,
    selector: Selector,
    /// Cut from source keys to give relative names; empty for one object.
    prefix: String,
    server_side: Vec<bool>,
    heads: Semaphore,
    source_objects: AtomicU64,
    objects: AtomicU64,
    bytes: AtomicU64,
    refused: AtomicU64,
    links: AtomicU64,
    skipped_links: SkippedLinks,
    saw_all: AtomicBool,
    target_objects: Vec<AtomicU64>,
    extraneous: Option<DeletionBacklog>,
    /// By destination: what earlier runs have done and the source still has. Counted only after a deletion has begun.
    still_there: Mutex<Vec<DoneTotals>>,
    /// Names at the destinations that may be taken for others.
    names: Arc<Names>,
    /// Hashes of the names that `flatten` has given.
    flat_names: Mutex<HashSet<[u8; 16]>>,
    has_flat_twins: AtomicBool,
    /// Hashes of the new names that a flat copy gives to several objects, where that may do harm.
    flat_twins: OnceLock<HashSet<[u8; 16]>>,
    source_tags: Tags,
    target_tags: Vec<Tags>,
}

/// How the keys of one listing become names: `prefix` is cut off and `put` takes its place.
#[derive(Clone, Copy)]
struct Naming<'a> {
    prefix: &'a str,
    put: &'a str,
}

/// Objects and bytes per destination that need no work.
#[derive(Clone, Copy, Default)]
struct Tally {
    objects: u64,
    bytes: u64,
}

/// Looks at all that is selected.
pub(super) async fn look(survey: Survey) -> Result<SurveyEnd, SurveyError> {
    let walk = Walk::new(survey)?;
    walk.know_moved_names().await?;
    walk.know_flat_twins().await?;
    match &walk.survey.job.selection {
        Selection::Object { key } => walk.look_at_object(key).await?,
        Selection::Prefix { .. } => walk.look_at_prefix(walk.naming()).await?,
        Selection::List { list_file, .. } => walk.look_at_list(list_file).await?,
        Selection::Several { members, .. } => walk.look_at_members(members).await?,
    }
    walk.end().await
}

impl Walk {
    fn new(survey: Survey) -> Result<Self, SurveyError> {
        let job = &survey.job;
        let (prefix, filter) = match &job.selection {
            Selection::Object { .. } => (String::new(), &ObjectFilter::default()),
            Selection::Prefix { prefix, filter } | Selection::List { prefix, filter, .. } => (prefix.clone(), filter),
            Selection::Several { filter, .. } => (String::new(), filter),
        };
        let selector = Selector::new(filter)?;
        let extraneous = match (&job.delete, &job.selection) {
            (None, _) => None,
            (Some(_), Selection::Prefix { .. }) => {
                let backlog =
                    DeletionBacklog::create(job.state_dir.as_ref().map(Path::new)).map_err(SurveyError::Backlog)?;
                let since: Vec<_> = survey.targets.iter().map(|store| store.writes_from_unix_ms()).collect();
                Some(backlog.doubting_since(since.clone()).written_before(since))
            }
            (Some(_), _) => return Err(SurveyError::DeletionNeedsPrefix),
        };
        let can_copy = |target: &Arc<dyn Store>| job.server_side_copy && target.can_copy_from(survey.source.as_ref());
        let server_side = survey.targets.iter().map(can_copy).collect();
        Ok(Self {
            policy: RetryPolicy::of_job(&survey.limits, job),
            selector,
            prefix,
            server_side,
            heads: Semaphore::new(HEADS_AT_ONCE_MAX),
            source_objects: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            links: AtomicU64::new(0),
            skipped_links: SkippedLinks::default(),
            saw_all: AtomicBool::new(true),
            target_objects: survey.targets.iter().map(|_| AtomicU64::new(0)).collect(),
            extraneous,
            still_there: Mutex::new(vec![DoneTotals::default(); survey.targets.len()]),
            names: Arc::default(),
            flat_names: Mutex::default(),
            has_flat_twins: AtomicBool::new(false),
            flat_twins: OnceLock::new(),
            source_tags: Tags::default(),
            target_tags: survey.targets.iter().map(|_| Tags::default()).collect(),
            survey,
        })
    }

    /// Sources that an earlier run has deleted are not found again. Their copies must not be written over.
    async fn know_moved_names(&self) -> Result<(), SurveyError> {
        if self.survey.done_before_deletion.is_none() {
            return Ok(());
        }
        let (names, targets) = (self.names.clone(), self.survey.targets.clone());
        let know = move |target: u16, key: &str| {
            if let Some(form) = targets.get(usize::from(target)).and_then(|store| name_form(store.as_ref(), key)) {
                names.twin_by(target, &form, NameChanges::of(key));
            }
        };
        Ok(self.survey.done.each_key(know).await?)
    }

    async fn end(mut self) -> Result<SurveyEnd, SurveyError> {
        if let Some(extraneous) = self.extraneous.take() {
            self.extraneous = Some(self.without_skipped_links(extraneous)?);
        }
        let links = self.links.load(Ordering::Relaxed);
        if links > 0 {
            self.say(Found::LinksSkipped(links)).await?;
        }
        let moved = self.moved_before();
        self.say_tallies(&moved, |target, Tally { objects, bytes }| Found::AlreadyDone { target, objects, bytes })
            .await?;
        let was_moved = moved.iter().any(|tally| tally.objects > 0);
        let end = SurveyEnd {
            source_objects: self.source_objects.into_inner(),
            objects: self.objects.into_inner(),
            bytes: self.bytes.into_inner(),
            refused: self.refused.into_inner(),
            listed_to_the_end: self.saw_all.into_inner(),
            has_flat_twins: self.has_flat_twins.into_inner(),
            target_objects: self.target_objects.into_iter().map(AtomicU64::into_inner).collect(),
            extraneous: self.extraneous.map(|backlog| backlog.knowing(self.names)),
        };
        if end.objects == 0 && end.refused == 0 && !was_moved && !self.survey.job.allow_empty {
            if end.source_objects == 0 && matches!(self.survey.job.selection, Selection::List { .. }) {
                return Err(SurveyError::EmptyList);
            }
            let url = object_url(self.survey.source.as_ref(), &self.prefix);
            if end.source_objects == 0
                && let Some(key) = self.prefix.strip_suffix('/')
                && is_object(&self.survey.source, key, &self.policy).await
            {
                return Err(SurveyError::IsObject { url: object_url(self.survey.source.as_ref(), key) });
            }
            let (url, source_objects) = self.selector.missing(&url, end.source_objects);
            return Err(SurveyError::NothingSelected { url: url.into_owned(), source_objects });
        }
        self.survey.out.send(Found::Listed).await.map_err(|_| SurveyError::Cancelled)?;
        Ok(end)
    }

    /// Objects that an earlier run moved and deleted at the source, by destination: all that it had done, except those
    /// that the source still has.
    fn moved_before(&self) -> Vec<Tally> {
        let still_there = self.still_there.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(done) = &self.survey.done_before_deletion else { return Vec::new() };
        let moved = still_there.iter().enumerate().map(|(target, there)| {
            let done = done.get(&(target as u16)).copied().unwrap_or_default();
            Tally { objects: done.objects.saturating_sub(there.objects), bytes: done.bytes.saturating_sub(there.bytes) }
        });
        moved.collect()
    }

    /// Returns whether the source of this name is missing because an earlier run moved it to every destination.
    async fn was_moved(&self, name: &str) -> Result<bool, SurveyError> {
        if self.survey.done_before_deletion.is_none() {
            return Ok(false);
        }
        let (targets, name) = (self.survey.job.targets.iter().enumerate(), self.written_name(name));
        let asked = targets.map(|(index, target)| (index as u16, format!("{}{name}", target.key))).collect();
        Ok(self.survey.done.lengths(asked).await?.iter().all(Option::is_some))
    }

    /// Counts what earlier runs have done of these objects, which the source still has.
    async fn count_still_there(&self, candidates: &[Candidate]) -> Result<(), SurveyError> {
        if self.survey.done_before_deletion.is_none() {
            return Ok(());
        }
        let asked = candidates.iter().map(|one| (one.target, one.target_key.clone())).collect();
        let lengths = self.survey.done.lengths(asked).await?;
        let mut still_there = self.still_there.lock().unwrap_or_else(PoisonError::into_inner);
        for (candidate, bytes) in candidates.iter().zip(lengths) {
            let totals = &mut still_there[usize::from(candidate.target)];
            totals.objects += u64::from(bytes.is_some());
            totals.bytes += bytes.unwrap_or(0);
        }
        Ok(())
    }

    /// Names relative to the one prefix of the selection.
    fn naming(&self) -> Naming<'_> {
        Naming { prefix: &self.prefix, put: "" }
    }

    async fn look_at_prefix(&self, naming: Naming<'_>) -> Result<(), SurveyError> {
        let listing = |store: &Arc<dyn Store>, prefix: &str| {
            let skips = self.selector.skips(prefix, naming.put);
            Listing::new(store.clone(), prefix.to_owned(), self.policy, self.selector.span(), skips)
        };
        let source = listing(&self.survey.source, naming.prefix);
        let job = &self.survey.job;
        let targets: Vec<Option<Listing>> = match job.compare {
            Some(_) if !job.flatten => {
                let targets = self.survey.targets.iter().zip(&job.targets).enumerate();
                let below = |to: &Target| format!("{}{}", to.key, naming.put);
                targets.map(|(index, (store, to))| self.is_open(index).then(|| listing(store, &below(to)))).collect()
            }
            _ => Vec::new(),
        };
        if self.can_be_sliced(&source, &targets) {
            return self.look_at_slices(&source, &targets, naming).await;
        }
        let ranges = match targets.iter().flatten().all(|target| target.store.lists_from_any_key()) {
            true => source.ranges().await.map_err(SurveyError::Source)?,
            false => vec![source.span.range.clone()],
        };
        // Of two objects with one flat name, each run must copy the same one: the first in the order of keys.
        let (ranges, at_once) = match job.flatten {
            true => (ranges, 1),
            false => (self.undone_first(ranges, naming).await?, RANGES_AT_ONCE_MAX),
        };
        futures::stream::iter(ranges.into_iter().map(Ok))
            .try_for_each_concurrent(at_once, |range| {
                self.look_at_joined(Join::new(&source, &targets, &range), None, naming)
            })
            .await
    }

    /// Orders the ranges of a job that resumes so that new work is found first: in each range, an earlier run went
    /// through the names in order, so what follows the last name that is done comes before all others.
    async fn undone_first(&self, ranges: Vec<NameRange>, naming: Naming<'_>) -> Result<Vec<NameRange>, SurveyError> {
        let can_split = !self.survey.done.is_empty() && self.survey.source.lists_from_any_key();
        let Some(target) = self.survey.job.targets.first().filter(|_| can_split) else {
            return Ok(ranges);
        };
        let below = format!("{}{}", target.key, naming.put);
        let (mut undone, mut begun) = (Vec::new(), Vec::new());
        for range in ranges {
            let last = self.survey.done.last_key(0, range.keys_below(&below)).await?;
            match last.as_deref().and_then(|key| key.strip_prefix(&below)).filter(|name| !name.is_empty()) {
                Some(name) => {
                    let [before, after] = range.split_after(name);
                    undone.push(after);
                    begun.push(before);
                }
                None => undone.push(range),
            }
        }
        undone.append(&mut begun);
        Ok(undone)
    }

    /// Looks at the objects of one range. With `doubt`, the first object that a destination seems to lack shows whether
    /// its listing keeps the order that ranges need.
    async fn look_at_joined(
        &self,
        mut join: Join,
        mut doubt: Option<Doubt>,
        naming: Naming<'_>,
    ) -> Result<(), SurveyError> {
        let mut batch = Vec::with_capacity(BATCH_OBJECTS_MAX);
        while let Some(step) = join.next().await? {
            match step {
                Joined::Source { object, matches } => {
                    self.count_held(&object, &matches, naming);
                    if let Some(doubt) = &mut doubt {
                        self.settle(doubt, &matches, &naming.name_of(&object.key)).await?;
                    }
                    batch.push((object, matches));
                }
                Joined::Extra { target, object } => self.put_down(target, &object)?,
                Joined::Refused { side: Side::Source, error } => self.refuse_entry(&error, naming).await?,
                Joined::Refused { side: Side::Target(target), error } => self.refuse_extra(target, &error).await?,
            }
            if batch.len() == BATCH_OBJECTS_MAX {
                self.look_at_listed(std::mem::take(&mut batch), naming).await?;
            }
        }
        self.source_objects.fetch_add(join.skipped_at_source(), Ordering::Relaxed);
        self.look_at_listed(batch, naming).await
    }

    /// Looks at listed objects. A flat name is in another place of the destination's listing, so it is asked for.
    async fn look_at_listed(
        &self,
        mut batch: Vec<(ObjectInfo, Vec<Option<ObjectInfo>>)>,
        naming: Naming<'_>,
    ) -> Result<(), SurveyError> {
        if self.survey.job.flatten && self.survey.job.compare.is_some() {
            let asked = futures::stream::iter(batch.into_iter().map(|(ours, _)| async move {
                let theirs = self.ask_targets(&naming.name_of(&ours.key)).await?;
                Ok::<_, SurveyError>((ours, theirs))
            }));
            batch = asked.buffered(HEADS_AT_ONCE_MAX).try_collect().await?;
        }
        self.look_at_batch(batch, naming).await
    }

    /// Counts the destinations' copies of an object that the source has.
    fn count_held(&self, object: &ObjectInfo, matches: &[Option<ObjectInfo>], naming: Naming<'_>) {
        if self.extraneous.is_none()
            || is_folder(object)
            || !self.selector.takes(&naming.name_of(&object.key), object.size_bytes, object.modified_unix_ms)
        {
            return;
        }
        for (count, _) in self.target_objects.iter().zip(matches).filter(|(_, theirs)| theirs.is_some()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn ask(&self, store: &Arc<dyn Store>, key: &str) -> Result<ObjectInfo, Error> {
        // The semaphore is never closed, so an error here cannot be; without a permit the request is made all the same.
        let _permit = self.heads.acquire().await;
        self.policy.run("head", store.url(), || store.head(key)).await
    }

    /// Returns the name that an object of this relative name gets at the destinations.
    fn written_name<'a>(&self, name: &'a str) -> &'a str {
        if self.survey.job.flatten { last_part(name) } else { name }
    }

    /// Returns whether `flatten` has given the name to another object, and remembers it.
    fn is_flat_name_taken(&self, name: &str) -> Result<bool, SurveyError> {
        if !self.survey.job.flatten || matches!(self.survey.job.selection, Selection::Object { .. }) {
            return Ok(false);
        }
        let mut names = self.flat_names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() == LIST_NAMES_MAX {
            return Err(SurveyError::TooManyFlat);
        }
        let is_taken = !names.insert(short_hash(last_part(name)));
        self.has_flat_twins.fetch_or(is_taken, Ordering::Relaxed);
        Ok(is_taken)
    }

    fn is_open(&self, target: usize) -> bool {
        self.survey.shut.get(target).is_none_or(Option::is_none)
    }

    /// Returns what each destination has under this relative name.
    async fn ask_targets(&self, name: &str) -> Result<Vec<Option<ObjectInfo>>, SurveyError> {
        let mut theirs = Vec::new();
        for (index, target) in self.survey.job.targets.iter().enumerate() {
            theirs.push(self.ask_target(index, &format!("{}{}", target.key, self.written_name(name))).await?);
        }
        Ok(theirs)
    }

    async fn ask_target(&self, index: usize, key: &str) -> Result<Option<ObjectInfo>, SurveyError> {
        if !self.is_open(index) {
            return Ok(None);
        }
        let store = &self.survey.targets[index];
        match self.ask(store, key).await {
            Ok(theirs) => Ok(Some(theirs)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind == ErrorKind::BucketNotFound && store.makes_root() => Ok(None),
            Err(error) => Err(SurveyError::Target(error)),
        }
    }

    /// Puts down for deletion what the source does not have, unless the filter leaves it alone.
    fn put_down(&self, target: usize, object: &ObjectInfo) -> Result<(), SurveyError> {
        let Some(backlog) = &self.extraneous else { return Ok(()) };
        let prefix = &self.survey.job.targets[target].key;
        let name = object.key.get(prefix.len()..).unwrap_or_default();
        if self.selector.takes(name, object.size_bytes, object.modified_unix_ms) {
            self.target_objects[target].fetch_add(u64::from(!is_folder(object)), Ordering::Relaxed);
            backlog.push(target as u16, object, Seen::Listed).map_err(SurveyError::Backlog)?;
        }
        Ok(())
    }

    /// Handles an entry of the source that cannot be listed. It is ignored if the rules leave it out.
    async fn refuse_entry(&self, error: &Error, naming: Naming<'_>) -> Result<(), SurveyError> {
        let root = object_url(self.survey.source.as_ref(), naming.prefix);
        let name = error.url.strip_prefix(&root).map(|name| format!("{}{name}", naming.put));
        if name.as_ref().is_some_and(|name| self.selector.leaves_out_refused(name, error)) {
            return Ok(());
        }
        if error.kind == ErrorKind::Link {
            self.skip_link(name.as_deref());
            return Ok(());
        }
        self.saw_all.store(false, Ordering::Relaxed);
        // A folder that is gone has nothing to copy. Its contents may have moved to a part that was already listed.
        if error.kind == ErrorKind::NotFound {
            tracing::warn!(%error, "the source changes while it is listed");
            return Ok(());
        }
        self.refuse(failed_object(error.url.clone(), String::new(), error), None, 0).await
    }

    /// Handles an entry of a destination that cannot be listed: it is unknown what to delete there.
    async fn refuse_extra(&self, target: usize, error: &Error) -> Result<(), SurveyError> {
        tracing::warn!(%error, "an entry at the destination cannot be listed");
        let root = object_url(self.survey.targets[target].as_ref(), &self.survey.job.targets[target].key);
        let is_left_out =
            error.url.strip_prefix(&root).is_some_and(|name| self.selector.leaves_out_refused(name, error));
        let is_no_object = matches!(error.kind, ErrorKind::Link | ErrorKind::NotFound);
        if self.extraneous.is_none() || is_left_out || is_no_object {
            return Ok(());
        }
        self.say(Found::NotListed(failed_object(String::new(), error.url.clone(), error))).await
    }

    async fn refuse(&self, failed: FailedObject, target: Option<u16>, bytes: u64) -> Result<(), SurveyError> {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.say(Found::Refused { failed, target, bytes }).await
    }

    async fn say(&self, found: Found) -> Result<(), SurveyError> {
        self.survey.out.send(found).await.map_err(|_| SurveyError::Cancelled)
    }

    /// Sends objects to transfer. The channel is asked for room once for many of them.
    async fn say_items(&self, items: impl ExactSizeIterator<Item = Box<WorkItem>>) -> Result<(), SurveyError> {
        let (out, mut items) = (&self.survey.out, items);
        while items.len() > 0 {
            let count = items.len().min(out.max_capacity()).min(ITEMS_AT_ONCE_MAX);
            let room = out.reserve_many(count).await.map_err(|_| SurveyError::Cancelled)?;
            room.zip(&mut items).for_each(|(permit, item)| permit.send(Found::Item(item)));
        }
        Ok(())
    }

    async fn say_tallies(&self, tallies: &[Tally], found: fn(u16, Tally) -> Found) -> Result<(), SurveyError> {
        for (target, tally) in tallies.iter().enumerate().filter(|(_, tally)| tally.objects > 0) {
            self.say(found(target as u16, *tally)).await?;
        }
        Ok(())
    }
}

impl<'a> Naming<'a> {
    fn name_of(self, key: &'a str) -> Cow<'a, str> {
        let rest = key.get(self.prefix.len()..).unwrap_or_default();
        if self.put.is_empty() { Cow::Borrowed(rest) } else { Cow::Owned(format!("{}{rest}", self.put)) }
    }
}

impl Tally {
    fn add(&mut self, object: &ObjectInfo) {
        self.objects += 1;
        self.bytes += object.size_bytes;
    }
}

/// Returns whether an object has this name. One that cannot be looked up does not count.
async fn is_object(store: &Arc<dyn Store>, key: &str, policy: &RetryPolicy) -> bool {
    policy.run("head", store.url(), || store.head(key)).await.is_ok()
}
