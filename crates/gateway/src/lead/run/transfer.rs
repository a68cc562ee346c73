//! The lead's record of one object on its path to one destination.

use super::context::Context;
use super::doubted;
use crate::attributes::{Inherited, locked, preserved, set_by};
use crate::lead::journal::{Entry, Intent, UnfinishedUpload, fingerprint};
use crate::lead::survey::WorkItem;
use crate::node::work::{Differs, Failure, Leaves, Placed, Proof};
use crate::tags::TagRule;
use std::collections::BTreeMap;
use tradewind_contract::{AttributeDirective, Comparison, JobSpec, SourceTags};
use tradewind_store::{
    Attributes, Checksums, Error, Expect, KEPT_TIME, ObjectInfo, PartTag, Precondition, PutOptions, StoreLimits,
    TagSupport, Tags, UploadId, kept_time_text,
};
use tradewind_wire::Fault;
use tradewind_wire::scheduler::{Layout, NewObject};

/// Number of tries that may find the destination in an unexpected state; the next try writes unconditionally. Less than
/// [`TRIES_MAX`](tradewind_wire::scheduler::TRIES_MAX), so that no object fails because of it.
const UNMET_MAX: u32 = 3;
/// One object for one destination, from its acceptance by the scheduler until it is finished or has failed.
pub(super) struct ObjectTransfer {
    pub(super) item: Box<WorkItem>,
    /// Options of its write.
    pub(super) options: PutOptions,
    /// The attributes that it gets in addition to those in `options`.
    pub(super) inherited: Inherited,
    /// The treatment of its source's tags.
    pub(super) tag_rule: TagRule,
    /// True if its source has tags that are not in `options`.
    pub(super) tags_dropped: bool,
    /// State that the source object must have for every read.
    pub(super) condition: Precondition,
    /// The source store's checksums of the whole object.
    pub(super) stated: Checksums,
    /// Length of its parts; `None` if it is written whole.
    pub(super) part_bytes: Option<u64>,
    pub(super) upload: Option<UploadId>,
    pub(super) parts: BTreeMap<u32, PartTag>,
    /// Bytes of those parts that earlier runs have moved.
    pub(super) earlier_bytes: u64,
    /// Parts of an earlier run that a power loss may have undone: the sink checks them before they are sent again.
    pub(super) unsynced: BTreeMap<u32, PartTag>,
    /// Whether the store has lost parts of the earlier upload.
    pub(super) parts_are_doubtful: bool,
    /// The time of the first intent to open an upload, and the number of intents.
    pub(super) intended: Option<(i64, u32)>,
    pub(super) placed: Option<Box<Placed>>,
    /// The latest failure of any request for it.
    pub(super) failure: Option<Failure>,
    pub(super) retries: u64,
    /// Times the destination was not in the expected state.
    unmet: u32,
    /// The job replaces no object that exists.
    pub(super) never_replaces: bool,
    /// Whether the expectation that the destination is empty is only a guess.
    pub(super) is_guess: bool,
    /// Whether the destination was asked for the object, or a write was tried.
    pub(super) looked_at_target: bool,
    pub(super) may_restart: bool,
}

impl ObjectTransfer {
    /// An object that is written whole; its source's attributes arrive with its bytes.
    pub(super) fn whole(item: Box<WorkItem>, context: &Context) -> Box<Self> {
        let (stated, condition) = (item.info.checksums, Precondition::listed(&item.info));
        let target = context.targets[usize::from(item.target)].as_ref();
        let attributes = set_by(&context.job.attributes, target);
        Self::new(item, condition, attributes, stated, None, true, context)
    }

    pub(super) fn looked_at(item: Box<WorkItem>, now: &ObjectInfo, restarted: bool, context: &Context) -> Box<Self> {
        let part_bytes = (!is_whole(&item, context)).then(|| {
            let limits = context.targets[usize::from(item.target)].limits();
            part_bytes(item.info.size_bytes, context.job.chunk_bytes, &limits)
        });
        let condition = Precondition::exact(now);
        let target = context.targets[usize::from(item.target)].as_ref();
        let rules = &context.job.attributes;
        let attributes = Inherited::of(rules, &item.info.key, target).complete(&set_by(rules, target), &now.attributes);
        Self::new(item, condition, attributes, now.checksums, part_bytes, !restarted, context)
    }

    fn new(
        item: Box<WorkItem>,
        condition: Precondition,
        attributes: Attributes,
        stated: Checksums,
        part_bytes: Option<u64>,
        may_restart: bool,
        context: &Context,
    ) -> Box<Self> {
        Box::new(Self {
            options: options(&item, keeping(attributes, &item, context), &context.job),
            inherited: Inherited::of(
                &context.job.attributes,
                &item.info.key,
                context.targets[usize::from(item.target)].as_ref(),
            ),
            tag_rule: tag_rule(&item, context),
            tags_dropped: false,
            item,
            condition,
            stated,
            part_bytes,
            upload: None,
            parts: BTreeMap::new(),
            earlier_bytes: 0,
            unsynced: BTreeMap::new(),
            parts_are_doubtful: false,
            intended: None,
            placed: None,
            failure: None,
            retries: 0,
            unmet: 0,
            never_replaces: context.job.compare == Some(Comparison::Existing),
            is_guess: false,
            looked_at_target: false,
            may_restart,
        })
    }

    /// Adds the tags of the source, where the lead must read them. `read` and `now`: see [`TagRule::settle`].
    pub(super) fn settle_tags(&mut self, read: Option<Result<Tags, Error>>, now: &ObjectInfo) -> Result<(), Error> {
        self.tags_dropped = self.tag_rule.settle(read, now, &mut self.options)?;
        Ok(())
    }

    /// Notes that the destination has refused the tags.
    pub(super) fn drop_tags(&mut self) {
        self.options.tags.clear();
        self.tags_dropped = true;
    }

    /// The object as the scheduler sees it.
    pub(super) fn new_object(&self) -> NewObject {
        let layout = match self.part_bytes {
            None => Layout::Whole,
            Some(part_bytes) => Layout::Parts {
                part_bytes,
                opened: self.upload.is_some(),
                done: self.parts.keys().copied().collect(),
                to_check: self.unsynced.keys().copied().collect(),
            },
        };
        NewObject {
            bytes: self.item.info.size_bytes,
            layout,
            may_restart: self.may_restart,
            travels: !self.item.server_side && self.item.check.is_none(),
        }
    }

    /// Returns whether an upload of an earlier run belongs to this very object.
    pub(super) fn resumes(&self, upload: &UnfinishedUpload) -> bool {
        self.part_bytes == Some(upload.intent.chunk_bytes) && fingerprint(&self.item.info) == upload.intent.fingerprint
    }

    /// Continues an upload of an earlier run. `survives` returns whether a part is safe from a power loss.
    pub(super) fn resume_upload(&mut self, unfinished: UnfinishedUpload, survives: impl Fn(&PartTag) -> bool) {
        // The earlier run may have requested it more than once; its journal does not record that.
        self.intended = Some((unfinished.intent.intent_unix_ms, 2));
        // Older versions did not record whether the object must be durable.
        self.options = PutOptions { durable: self.options.durable, ..unfinished.intent.options };
        self.upload = Some(unfinished.upload);
        let layout = self.new_object();
        // The journal is a file and may be wrong, and a part with another length would shift all that follow.
        let fits = |part: &PartTag| {
            (1..=layout.parts()).contains(&part.part) && layout.part_range(part.part).1 == part.size_bytes
        };
        let parts = unfinished.parts.into_iter().filter(fits).map(|part| (part.part, part));
        (self.parts, self.unsynced) = parts.partition(|(_, part)| survives(part));
        self.earlier_bytes = self.acked_bytes();
    }

    /// Returns the intent that the journal must hold before an upload is opened.
    pub(super) fn intend(&mut self, now_unix_ms: i64) -> Intent {
        let (first, times) = self.intended.unwrap_or((now_unix_ms, 0));
        self.intended = Some((first, times + 1));
        self.intent(first)
    }

    fn intent(&self, intent_unix_ms: i64) -> Intent {
        Intent {
            target: self.item.target,
            target_key: self.item.target_key.clone(),
            source_key: self.item.info.key.clone(),
            size_bytes: self.item.info.size_bytes,
            fingerprint: fingerprint(&self.item.info),
            chunk_bytes: self.part_bytes.unwrap_or_default(),
            options: self.options.clone(),
            intent_unix_ms,
        }
    }

    /// Handles a refused request to open an upload. Returns the entry to record if it was the first request for this
    /// key.
    pub(super) fn not_opened(&mut self) -> Option<Entry> {
        let (intent_unix_ms, _) = self.intended.take_if(|(_, times)| *times == 1)?;
        let target_key = self.item.target_key.clone();
        Some(Entry::NotOpened { target: self.item.target, target_key, intent_unix_ms })
    }

    /// Notes that the upload was requested more than once, so that other uploads of this key may be ours.
    pub(super) fn may_have_orphans(&mut self) {
        if let Some((_, times)) = &mut self.intended {
            *times += 1;
        }
    }

    /// Notes that unnamed uploads of this key may have been opened before this object was read again.
    pub(super) fn recall_orphans(&mut self) {
        if let Some(since_unix_ms) = self.item.orphans_since_unix_ms {
            self.intended.get_or_insert((since_unix_ms, 1));
        }
    }

    /// The intent of its uploads, if uploads other than the known one may be ours.
    pub(super) fn intent_with_orphans(&self) -> Option<Intent> {
        self.sweep_since_unix_ms().map(|since_unix_ms| self.intent(since_unix_ms))
    }

    /// The time from which orphans of this key may be ours; `None` unless an upload was intended more than once.
    pub(super) fn sweep_since_unix_ms(&self) -> Option<i64> {
        self.intended.filter(|(_, times)| *times > 1).map(|(first, _)| first)
    }

    /// Checksums of the whole, computed from those of its parts.
    pub(super) fn combined(&self) -> Checksums {
        let mut parts = self.parts.values();
        let Some(first) = parts.next() else { return Checksums::default() };
        parts.fold(first.checksums, |whole, part| Checksums::concat(&whole, &part.checksums, part.size_bytes))
    }

    /// The proof of the bytes that were read, once all parts are there.
    pub(super) fn source_proof(&self) -> Result<Proof, Differs> {
        if self.item.server_side { Ok(Proof::StoreCopy) } else { Proof::compare(&self.combined(), &self.stated) }
    }

    /// Returns whether the object was only checked, not sent, and turned out to be lost, so that it must be moved.
    pub(super) fn must_be_moved_again(&self) -> bool {
        self.item.check.is_some()
    }

    /// Returns whether the object failed because its source has changed.
    pub(super) fn has_changed(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.fault == Fault::Changed)
    }

    /// Returns whether the store could not copy the object itself, so that its bytes must pass through a gateway after
    /// all. SeaweedFS cannot find the empty object of a directory to copy it.
    pub(super) fn may_travel_instead(&self) -> bool {
        let kind = self.failure.as_ref().map(|failure| failure.kind.as_str());
        self.item.server_side
            && matches!(
                kind,
                Some("unsupported" | "mismatch" | "bad_request" | "too_large" | "invalid_key" | "not_found")
            )
    }

    /// Bytes that were counted as acknowledged before the object ended.
    pub(super) fn acked_bytes(&self) -> u64 {
        self.parts.values().map(|tag| tag.size_bytes).sum()
    }

    /// Assumes, without a check, that the destination has no such object.
    pub(super) fn guess_that_it_is_new(&mut self) {
        if self.item.expect.is_none() && self.item.check.is_none() {
            self.item.expect = Some(Expect::Absent);
            self.is_guess = true;
        }
    }

    /// Removes the guess, unless it was already used.
    pub(super) fn drop_guess(&mut self) {
        if self.is_guess && self.retries == 0 && !self.item.may_land_late {
            self.item.expect = None;
            self.is_guess = false;
        }
    }

    /// Records the failure of a request for the object, which may have been sent.
    pub(super) fn failed(&mut self, failure: Failure) {
        self.item.may_land_late |= doubted::may_land_late(&failure);
        self.failed_unsent(failure);
    }

    /// Records the failure of a request that certainly never left its source.
    pub(super) fn failed_unsent(&mut self, failure: Failure) {
        self.unmet += u32::from(failure.is_unmet());
        match failure.leaves.as_deref() {
            Some(Leaves::Seen(_) | Leaves::Unknown) if self.never_replaces => self.item.expect = Some(Expect::Absent),
            // Another program keeps writing the object: the last writer wins, as without conditions.
            Some(Leaves::Seen(expect)) => self.item.expect = (self.unmet < UNMET_MAX).then(|| expect.clone()),
            Some(Leaves::Unknown) => self.item.expect = None,
            Some(Leaves::NoUpload) | None => {}
        }
        self.is_guess &= matches!(failure.leaves.as_deref(), Some(Leaves::NoUpload) | None);
        self.failure = Some(failure.reported());
        self.retries += 1;
    }
}

/// Returns whether an object is moved by one write, so that its listing has enough data.
pub(super) fn is_whole(item: &WorkItem, context: &Context) -> bool {
    let limits = context.targets[usize::from(item.target)].limits();
    let bytes = item.info.size_bytes;
    if item.server_side {
        bytes <= limits.copy_bytes_max
    } else {
        bytes <= context.job.chunk_bytes.min(limits.put_bytes_max)
    }
}

/// Returns whether the source must be asked for the attributes of an object before its transfer begins. A store that copies
/// the object itself keeps them all or none.
pub(super) fn needs_attributes(item: &WorkItem, context: &Context) -> bool {
    !is_whole(item, context)
        || item.server_side && (!context.job.attributes.are_default() || lead_reads_tags(item, context))
}

/// The treatment of the tags of an object.
pub(super) fn tag_rule(item: &WorkItem, context: &Context) -> TagRule {
    TagRule::of(context.job.source_tags, context.targets[usize::from(item.target)].as_ref())
}

/// Returns whether the lead must read the tags of an object. The source reads those of objects that travel whole, and
/// some stores copy them with the object.
pub(super) fn lead_reads_tags(item: &WorkItem, context: &Context) -> bool {
    if !is_whole(item, context) {
        return true;
    }
    let copies = context.targets[usize::from(item.target)].tag_support() == TagSupport::Copied;
    item.server_side
        && tag_rule(item, context).may_read(context.source.as_ref())
        && (!copies || !context.job.tags.is_empty())
}

/// Adds what the job keeps of a file to the metadata of its copy, unless the job sets it or replaces all attributes. A
/// file gets its time from the options.
fn keeping(mut attributes: Attributes, item: &WorkItem, context: &Context) -> Attributes {
    let url = context.targets[usize::from(item.target)].url();
    let preserve = preserved(context.job.preserve);
    if context.job.attributes.directive == AttributeDirective::Replace {
        return attributes;
    }
    if let Some(file) = item.info.file.filter(|_| preserve.time && !url.starts_with("file:")) {
        let text = || kept_time_text(url, file.modified_unix_ns);
        attributes.metadata.entry(KEPT_TIME.to_owned()).or_insert_with(text);
    }
    if let Some(permissions) = item.info.permissions {
        permissions.keep_in(&mut attributes, preserve);
    }
    attributes
}

fn options(item: &WorkItem, attributes: Attributes, job: &JobSpec) -> PutOptions {
    PutOptions {
        attributes: attributes.into(),
        storage_class: job.storage_class.clone(),
        lock: locked(job.object_lock),
        tags: job.tags.clone(),
        tags_are_optional: job.source_tags == SourceTags::Auto && job.tags.is_empty(),
        drops_source_tags: job.source_tags == SourceTags::Drop,
        preserve: preserved(job.preserve),
        modified_unix_ms: Some(item.info.modified_unix_ms),
        durable: is_durable(item, job),
        size_bytes: Some(item.info.size_bytes),
        expect: None,
    }
}

/// Returns whether the copy must be durable. If the source is deleted, the copy must survive a power loss.
fn is_durable(item: &WorkItem, job: &JobSpec) -> bool {
    job.delete_source || job.targets.get(usize::from(item.target)).is_some_and(|target| target.store.fsync)
}

/// Length of parts: the job's chunk, enlarged if the store allows too few parts, and within the store's limits.
fn part_bytes(size_bytes: u64, chunk_bytes: u64, limits: &StoreLimits) -> u64 {
    const MIB: u64 = 1 << 20;
    let least = match size_bytes.div_ceil(u64::from(limits.parts_max.max(1))) {
        enough if enough <= chunk_bytes => chunk_bytes,
        larger => larger.next_multiple_of(MIB),
    };
    chunk_bytes.max(least).clamp(limits.part_bytes_min.max(1), limits.part_bytes_max)
}
