//! Sorts listed objects: what is done already, what is the same at its destination, and what is work.

use super::{Naming, Tally, Walk};
use crate::failure::{distinct_sizes, failed_object, object_url};
use crate::lead::compare::{self, Times, Verdict};
use crate::lead::copies::ProvenCopy;
use crate::lead::deletion::is_folder;
use crate::lead::journal::{Done, fingerprint};
use crate::lead::local_sums;
use crate::lead::survey::error::SurveyError;
use crate::lead::survey::{Found, HEADS_AT_ONCE_MAX, Twin, WorkItem};
use crate::node::work::Unsynced;
use futures::StreamExt;
use std::sync::atomic::Ordering;
use tradewind_contract::{Comparison, Selection};
use tradewind_store::{Error, ErrorKind, Expect, NameChanges, ObjectInfo, Store, Written, name_form};

/// The clock may have been set back by so much while a run wrote.
const CLOCK_SLACK_MS: i64 = 15 * 60 * 1000;

/// One object × one destination that is looked at.
pub(super) struct Candidate {
    pub(super) target: u16,
    pub(super) target_key: String,
    ours: ObjectInfo,
    theirs: Option<ObjectInfo>,
    check: Option<Box<Unsynced>>,
    /// If the destination may take its name for that of another object, or change it: how it may be changed.
    twin_by: Option<NameChanges>,
}

impl Walk {
    /// Sorts objects into work, done before, and there already.
    pub(super) async fn look_at_batch(
        &self,
        batch: Vec<(ObjectInfo, Vec<Option<ObjectInfo>>)>,
        naming: Naming<'_>,
    ) -> Result<(), SurveyError> {
        self.source_objects.fetch_add(batch.len() as u64, Ordering::Relaxed);
        let batch = self.without_own_copies(batch, naming).await?;
        if self.survey.job.compare.is_some() {
            for (ours, theirs) in &batch {
                self.source_tags.see(ours);
                let listed = theirs.iter().zip(&self.target_tags);
                listed
                    .filter_map(|(theirs, tags)| Some((theirs.as_ref()?, tags)))
                    .for_each(|(theirs, tags)| tags.see(theirs));
            }
        }
        let mut candidates = Vec::with_capacity(batch.len() * self.survey.targets.len());
        for (ours, theirs) in batch {
            self.add_candidates(ours, theirs, naming, &mut candidates).await?;
        }
        let candidates = self.leave_done(candidates).await?;
        if self.survey.job.compare.is_none() {
            return self.say_items(candidates.into_iter().map(|candidate| self.work(candidate, false))).await;
        }
        let mut skipped = vec![Tally::default(); self.survey.targets.len()];
        let as_listed: Option<Vec<bool>> =
            candidates.iter().map(|candidate| self.is_same_as_listed(candidate)).collect();
        let candidates = candidates.into_iter();
        let verdicts = match as_listed {
            Some(as_listed) => futures::stream::iter(candidates.zip(as_listed)).left_stream(),
            None => {
                let asked = futures::stream::iter(candidates.map(|candidate| async move {
                    let same = self.is_same(&candidate).await;
                    (candidate, same)
                }));
                asked.buffered(HEADS_AT_ONCE_MAX).right_stream()
            }
        };
        let mut verdicts = std::pin::pin!(verdicts);
        while let Some((candidate, same)) = verdicts.next().await {
            if same && candidate.twin_by.is_none() {
                skipped[usize::from(candidate.target)].add(&candidate.ours);
            } else {
                self.say(Found::Item(self.work(candidate, same))).await?;
            }
        }
        self.say_tallies(&skipped, |target, Tally { objects, bytes }| Found::Skipped { target, objects, bytes }).await
    }

    async fn add_candidates(
        &self,
        ours: ObjectInfo,
        theirs: Vec<Option<ObjectInfo>>,
        naming: Naming<'_>,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), SurveyError> {
        let name = naming.name_of(&ours.key).into_owned();
        let name = name.as_str();
        if !self.selector.takes(name, ours.size_bytes, ours.modified_unix_ms) {
            return Ok(());
        }
        // An empty folder object stands for a directory, and a flat copy has none.
        if self.survey.job.flatten && is_folder(&ours) {
            return Ok(());
        }
        let is_named_twice = self.is_flat_name_taken(name)?;
        let name = self.written_name(name);
        self.objects.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(ours.size_bytes, Ordering::Relaxed);
        let is_one_object = matches!(self.survey.job.selection, Selection::Object { .. });
        let (mut theirs, mut ours) = (theirs.into_iter(), Some(ours));
        for (index, (store, target)) in self.survey.targets.iter().zip(&self.survey.job.targets).enumerate() {
            let theirs = theirs.next().flatten();
            let Some(info) = &ours else { break };
            let target_key = if is_one_object { target.key.clone() } else { format!("{}{name}", target.key) };
            // When a folder's contents are copied to the root of a store, the folder's marker has no name there. It
            // has no bytes that could be lost.
            if target_key.is_empty() && info.size_bytes == 0 {
                continue;
            }
            // A job has few destinations; the contract's indices are 16 bits wide.
            let target = index as u16;
            let shut = self.survey.shut.get(index).cloned().flatten();
            let refused = || match is_named_twice {
                true => Some(flat_twin(store.as_ref(), &target_key)),
                false => refusal_of_target(store.as_ref(), &target_key, info.size_bytes),
            };
            if let Some(error) = shut.or_else(refused) {
                let source = object_url(self.survey.source.as_ref(), &info.key);
                let failed = failed_object(source, object_url(store.as_ref(), &target_key), &error);
                self.refuse(failed, Some(target), info.size_bytes).await?;
                continue;
            }
            let form = name_form(store.as_ref(), &target_key);
            let changes = NameChanges::of(&target_key);
            let may_be_changed = changes.any() && theirs.is_none();
            let twin_by =
                form.and_then(|form| self.names.twin_by(target, &form, changes).or(may_be_changed.then_some(changes)));
            let is_last = index + 1 == self.survey.targets.len();
            let ours = if is_last { ours.take() } else { ours.clone() };
            let candidate = |ours| Candidate { target, target_key, ours, theirs, check: None, twin_by };
            candidates.extend(ours.map(candidate));
        }
        Ok(())
    }

    async fn leave_done(&self, candidates: Vec<Candidate>) -> Result<Vec<Candidate>, SurveyError> {
        if self.survey.done.is_empty() {
            return Ok(candidates);
        }
        self.count_still_there(&candidates).await?;
        let asked = candidates.iter();
        let asked = asked.map(|one| (one.target, one.target_key.clone(), fingerprint(&one.ours))).collect();
        let verdicts = self.survey.done.contains(asked).await?;
        let mut done = vec![Tally::default(); self.survey.targets.len()];
        let mut left = Vec::with_capacity(candidates.len());
        let looked =
            futures::stream::iter(candidates.into_iter().zip(verdicts).map(|(candidate, verdict)| async move {
                let verdict = self.unless_safe(candidate.target, verdict);
                let is_trusted = self.survey.job.delete_source || !matches!(verdict, Done::Yes(_));
                let verdict = if is_trusted || self.is_still_there(&candidate).await { verdict } else { Done::No };
                (candidate, verdict)
            }));
        let mut looked = std::pin::pin!(looked.buffered(HEADS_AT_ONCE_MAX));
        while let Some((candidate, verdict)) = looked.next().await {
            match verdict {
                Done::Yes(_) if !self.survey.job.delete_source => {
                    done[usize::from(candidate.target)].add(&candidate.ours);
                }
                Done::Yes(written) => match self.copy_of_earlier_run(&candidate, written).await {
                    Some(copy) => {
                        done[usize::from(candidate.target)].add(&candidate.ours);
                        let (source, copy) = (Box::new(candidate.ours), Box::new(copy));
                        self.say(Found::CopiedBefore { source, copy }).await?;
                    }
                    None => left.push(candidate),
                },
                Done::Unsynced(unsynced) => left.push(Candidate { check: Some(Box::new(unsynced)), ..candidate }),
                Done::No => left.push(candidate),
            }
        }
        self.say_tallies(&done, |target, Tally { objects, bytes }| Found::AlreadyDone { target, objects, bytes })
            .await?;
        Ok(left)
    }

    /// Returns whether the copy of an earlier run is at its destination with its length, and between file systems with
    /// its time. A comparison has listed the destination. Otherwise it is asked, and it counts as having the copy if it
    /// does not answer that, or keeps nothing.
    async fn is_still_there(&self, candidate: &Candidate) -> bool {
        let target = &self.survey.targets[usize::from(candidate.target)];
        if !target.keeps_objects() {
            return true;
        }
        let theirs = if self.is_listed(candidate.target) {
            candidate.theirs.clone()
        } else {
            match self.ask(target, &candidate.target_key).await {
                Ok(theirs) => Some(theirs),
                Err(error) if shows_no_object(error.kind) => None,
                Err(_) => return true,
            }
        };
        let Some(theirs) = theirs else { return false };
        match Times::between(self.survey.source.as_ref(), target.as_ref()) {
            times @ Times::Kept { .. } => {
                compare::decide(Comparison::Auto, times, &candidate.ours, &theirs) == Verdict::Same
            }
            // Times of another clock, or of another write of the same bytes, would have done objects copied again.
            Times::OfWriting { .. } => theirs.size_bytes == candidate.ours.size_bytes,
        }
    }

    /// The copy whose source is to be deleted; `None` if it must be made again: nothing says which object was written, or
    /// a file is another one now. An object store is not asked before the source is about to be deleted.
    async fn copy_of_earlier_run(&self, candidate: &Candidate, written: Option<Written>) -> Option<ProvenCopy> {
        let Candidate { target, target_key, ours, .. } = candidate;
        let copy =
            ProvenCopy { target: *target, key: target_key.clone(), size_bytes: ours.size_bytes, written: written? };
        let store = &self.survey.targets[usize::from(*target)];
        let is_file = store.volatile_boot().is_some();
        (!is_file || copy.look(store.as_ref(), self.policy).await.is_ok()).then_some(copy)
    }

    /// Returns work that a power loss cannot have undone as done.
    fn unless_safe(&self, target: u16, done: Done) -> Done {
        let Done::Unsynced(unsynced) = &done else { return done };
        let index = usize::from(target);
        let boot = self.survey.targets[index].volatile_boot();
        let same_boot = self.survey.local && boot == Some(&unsynced.boot);
        // Older versions did not record what they synced, but followed the job's setting.
        let synced = unsynced.boot.is_empty() && (boot.is_none() || self.survey.job.targets[index].store.fsync);
        let is_safe = (same_boot && !self.survey.job.delete_source) || synced;
        if is_safe { Done::Yes(None) } else { done }
    }

    /// Returns whether a candidate is the same at its destination, if the listings show that without further requests.
    fn is_same_as_listed(&self, candidate: &Candidate) -> Option<bool> {
        if candidate.check.is_some() {
            return Some(false);
        }
        let (Some(rule), Some(theirs)) = (self.survey.job.compare, &candidate.theirs) else { return Some(false) };
        match self.compare_listed(rule, candidate, theirs) {
            Verdict::Same => self.suspect_since_unix_ms(candidate.target).is_none().then_some(true),
            Verdict::Differs(_) => Some(false),
            Verdict::NeedsChecksums => None,
        }
    }

    fn compare_listed(&self, rule: Comparison, candidate: &Candidate, theirs: &ObjectInfo) -> Verdict {
        let index = usize::from(candidate.target);
        let times = Times::between(self.survey.source.as_ref(), self.survey.targets[index].as_ref());
        let ours = self.source_tags.trusted(&candidate.ours);
        compare::decide(rule, times, &ours, &self.target_tags[index].trusted(theirs))
    }

    /// Returns whether the destination is known to have the same object: false if a store does not report enough to
    /// decide. Moving the object then reports the cause.
    async fn is_same(&self, candidate: &Candidate) -> bool {
        if candidate.check.is_some() {
            return false;
        }
        let (Some(rule), Some(theirs)) = (self.survey.job.compare, &candidate.theirs) else { return false };
        let target = &self.survey.targets[usize::from(candidate.target)];
        let (source_tags, target_tags) = (&self.source_tags, &self.target_tags[usize::from(candidate.target)]);
        match self.compare_listed(rule, candidate, theirs) {
            Verdict::Same => !self.is_suspect(candidate).await,
            Verdict::Differs(_) => false,
            Verdict::NeedsChecksums => {
                let asked = futures::join!(
                    self.ask(&self.survey.source, &candidate.ours.key),
                    self.ask(target, &candidate.target_key)
                );
                let (Ok(ours), Ok(headed)) = asked else { return false };
                let ours = compare::with_listed_time(ours, &candidate.ours);
                let theirs = compare::with_listed_time(headed, theirs);
                let (ours, theirs) =
                    (source_tags.trusted(&ours).into_owned(), target_tags.trusted(&theirs).into_owned());
                let (source, policy) = (&self.survey.source, self.policy);
                let decided = local_sums::decide_reading(rule, (source, ours), (target, theirs), policy).await;
                matches!(decided, Ok(Verdict::Same))
            }
        }
    }

    /// Returns whether an earlier run may have written it and a power loss undone that.
    async fn is_suspect(&self, candidate: &Candidate) -> bool {
        let Some(since_unix_ms) = self.suspect_since_unix_ms(candidate.target) else { return false };
        let changed = self.survey.targets[usize::from(candidate.target)].changed_unix_ms(&candidate.target_key).await;
        changed.is_none_or(|changed_unix_ms| changed_unix_ms >= since_unix_ms.saturating_sub(CLOCK_SLACK_MS))
    }

    fn suspect_since_unix_ms(&self, target: u16) -> Option<i64> {
        self.survey.suspect_since_unix_ms.get(usize::from(target)).copied().flatten()
    }

    /// Returns whether the destination was checked for each object, so that an object that was not found does not exist.
    fn is_listed(&self, target: u16) -> bool {
        self.survey.job.compare.is_some() && self.is_open(target.into())
    }

    fn work(&self, candidate: Candidate, same: bool) -> Box<WorkItem> {
        let twin = candidate.twin_by.map(|by| Twin { is_there: same, by });
        Box::new(WorkItem {
            target: candidate.target,
            target_key: candidate.target_key,
            info: candidate.ours,
            server_side: self.server_side[usize::from(candidate.target)],
            check: candidate.check,
            may_land_late: false,
            expect: self.is_listed(candidate.target).then(|| Expect::seen(candidate.theirs.as_ref())),
            orphans_since_unix_ms: None,
            twin,
        })
    }
}

/// Returns whether the answer to a `HEAD` says that no object has the name: there is nothing, or something else.
fn shows_no_object(kind: ErrorKind) -> bool {
    use ErrorKind::{BrokenLink, BucketNotFound, Link, NotFound, Unsupported};
    matches!(kind, NotFound | BucketNotFound | Link | BrokenLink | Unsupported)
}

/// Returns the error for an object whose name, without its directories, another object of the job has.
fn flat_twin(store: &dyn Store, target_key: &str) -> Error {
    let message = "an object of another directory gets this name (--flatten)";
    Error::new(ErrorKind::InvalidKey, "put", object_url(store, target_key), message)
}

/// Returns an error for a name that the destination cannot store, as far as that is known before a request. Others fail
/// when they are written.
fn refusal_of_target(store: &dyn Store, target_key: &str, size_bytes: u64) -> Option<Error> {
    let limits = store.limits();
    let refused = |kind, message: String| Some(Error::new(kind, "put", object_url(store, target_key), message));
    if target_key.is_empty() {
        refused(ErrorKind::InvalidKey, "an object needs a name".to_owned())
    } else if target_key.len() > limits.key_bytes_max {
        let message = format!("the key has {} bytes, but the store allows {}", target_key.len(), limits.key_bytes_max);
        refused(ErrorKind::InvalidKey, message)
    } else if size_bytes > limits.object_bytes_max {
        let [size, most] = distinct_sizes(size_bytes, limits.object_bytes_max);
        let message = format!("the object has {size}, but the store allows {most}");
        refused(ErrorKind::BadRequest, message)
    } else {
        None
    }
}
