//! Keeps a flat move from moving an object onto itself, or onto another object that is yet to be moved, and a flat copy
//! from copying one onto another that is yet to be copied.
//!
//! A destination may show a directory of the source under another name. A move that keeps the directories of names is then
//! refused as a whole ([`places`](crate::lead::places)). A move that leaves them out gives the objects of just this
//! directory their own names: each would be written over itself, and deleted as the source. Objects of other directories
//! would be written over them. So each object is compared with what has its new name, before anything is written. Of a
//! copy, only objects with a common new name are compared ([`super::flat_copies`]).

use super::{Naming, Walk};
use crate::failure::{failed_object, object_url};
use crate::lead::compare::Verdict;
use crate::lead::deletion::is_folder;
use crate::lead::local_sums::decide_reading;
use crate::lead::names::last_part;
use crate::lead::survey::HEADS_AT_ONCE_MAX;
use crate::lead::survey::error::SurveyError;
use futures::StreamExt;
use std::sync::atomic::Ordering;
use tradewind_contract::{Comparison, FailedObject};
use tradewind_store::{Error, ErrorKind, Likeness, ObjectInfo, compare_objects};

/// Listed objects, each with what the destinations list under its name.
type Batch = Vec<(ObjectInfo, Vec<Option<ObjectInfo>>)>;

/// An existing object that has the new name of another one, and must not be replaced by it.
struct Holder {
    target: u16,
    key: String,
    by: HeldBy,
}

enum HeldBy {
    /// It may be the object itself.
    Itself,
    /// It is not known to have the same bytes. It may be an object of the source that is yet to be read.
    Another,
}

impl HeldBy {
    fn message(&self, source: &str) -> String {
        match self {
            Self::Itself => format!("it and {source} may be one object under two names"),
            Self::Another => "what has this name may be another object of the source, under a second name".to_owned(),
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::Itself => "choose another destination; delete neither before you know that they are two",
            Self::Another => {
                "choose another destination; or remove what is there, if you know that it is not in the source"
            }
        }
    }
}

impl Walk {
    /// Refuses the objects of a flat move or copy that may be their own copies, or would replace another object of the
    /// source, and returns the others. A single object gets the name that the destination says, and is compared by
    /// [`places`](crate::lead::places).
    pub(super) async fn without_own_copies(&self, batch: Batch, naming: Naming<'_>) -> Result<Batch, SurveyError> {
        if !self.may_be_flat_onto_source() {
            return Ok(batch);
        }
        let mut rest = Batch::with_capacity(batch.len());
        let asked = futures::stream::iter(batch.into_iter().map(|(ours, theirs)| async move {
            let holder = self.holder(&ours, &naming.name_of(&ours.key)).await;
            (ours, theirs, holder)
        }));
        let mut asked = std::pin::pin!(asked.buffered(HEADS_AT_ONCE_MAX));
        while let Some((ours, theirs, holder)) = asked.next().await {
            match holder? {
                None => rest.push((ours, theirs)),
                Some(holder) => self.refuse_held(&ours, naming, holder).await?,
            }
        }
        Ok(rest)
    }

    /// Refuses an object whose new name is held. No other object gets the name.
    async fn refuse_held(&self, ours: &ObjectInfo, naming: Naming<'_>, holder: Holder) -> Result<(), SurveyError> {
        self.is_flat_name_taken(&naming.name_of(&ours.key))?;
        self.objects.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(ours.size_bytes, Ordering::Relaxed);
        let source = object_url(self.survey.source.as_ref(), &ours.key);
        let url = object_url(self.survey.targets[usize::from(holder.target)].as_ref(), &holder.key);
        let error = Error::new(ErrorKind::Occupied, "put", url.clone(), holder.by.message(&source));
        let failed = failed_object(source, url, &error);
        let failed = FailedObject { hint: Some(holder.by.hint().to_owned()), ..failed };
        self.refuse(failed, Some(holder.target), ours.size_bytes).await
    }

    /// Returns the object that keeps ours from being written, at the first destination that has one.
    async fn holder(&self, ours: &ObjectInfo, name: &str) -> Result<Option<Holder>, SurveyError> {
        let is_taken = self.selector.takes(name, ours.size_bytes, ours.modified_unix_ms);
        if is_folder(ours) || !is_taken || !self.is_compared(name) {
            return Ok(None);
        }
        let targets = self.survey.job.targets.iter().zip(&self.survey.may_be_source).enumerate();
        for (index, (target, may_be_source)) in targets {
            // A job has few destinations; the contract's indices are 16 bits wide.
            let (target, key) = (index as u16, format!("{}{}", target.key, last_part(name)));
            if !may_be_source || self.was_written(target, &key).await? {
                continue;
            }
            if let Some(by) = self.held_by(ours, index, &key).await? {
                return Ok(Some(Holder { target, key, by }));
            }
        }
        Ok(None)
    }

    async fn held_by(&self, ours: &ObjectInfo, target: usize, key: &str) -> Result<Option<HeldBy>, SurveyError> {
        let theirs = match self.ask_target(target, key).await {
            Err(SurveyError::Target(error)) if is_for_the_write(error.kind) => None,
            answer => answer?,
        };
        let Some(theirs) = theirs else { return Ok(None) };
        let (source, store) = (self.survey.source.as_ref(), &self.survey.targets[target]);
        let compare = || compare_objects((source, &ours.key), (store.as_ref(), key));
        let likeness = self.policy.run("head", store.url(), compare).await.map_err(SurveyError::Target)?;
        if matches!(likeness, Likeness::Alike | Likeness::Unstable) {
            return Ok(Some(HeldBy::Itself));
        }
        let replaces_nothing = self.survey.job.compare == Some(Comparison::Existing);
        let may_replace = replaces_nothing || self.has_same_bytes(ours, target, theirs).await;
        Ok((!may_replace).then_some(HeldBy::Another))
    }

    /// Returns whether the checksums prove that the object at the destination has the bytes of ours, as the copy of a
    /// move that ended early has.
    async fn has_same_bytes(&self, ours: &ObjectInfo, target: usize, theirs: ObjectInfo) -> bool {
        if ours.size_bytes != theirs.size_bytes || ours.size_bytes == 0 {
            return ours.size_bytes == theirs.size_bytes;
        }
        let (source, store) = (&self.survey.source, &self.survey.targets[target]);
        let Ok(ours) = self.ask(source, &ours.key).await else { return false };
        let decided = decide_reading(Comparison::Checksum, (source, ours), (store, theirs), self.policy).await;
        matches!(decided, Ok(Verdict::Same))
    }

    /// Returns whether an earlier run of the job has written this object. That run compared it.
    async fn was_written(&self, target: u16, key: &str) -> Result<bool, SurveyError> {
        if self.survey.done.is_empty() {
            return Ok(false);
        }
        Ok(self.survey.done.lengths(vec![(target, key.to_owned())]).await?.iter().any(Option::is_some))
    }
}

/// Returns whether an error says that no object can have this name. The write reports it, for this object alone.
fn is_for_the_write(kind: ErrorKind) -> bool {
    use ErrorKind::{BadRequest, BrokenLink, InvalidKey, Link, Unsupported};
    matches!(kind, InvalidKey | BadRequest | Unsupported | Link | BrokenLink)
}
