//! Keeps a flat move from moving an object onto itself.
//!
//! A destination may show a directory of the source under another name. A move that keeps the directories of names is then
//! refused as a whole ([`places`](crate::lead::places)). A move that leaves them out gives the objects of just this
//! directory their own names: each would be written over itself, and deleted as the source. So each object is compared
//! with what has its new name, before anything is written.

use super::{Naming, Walk};
use crate::failure::{failed_object, object_url};
use crate::lead::deletion::is_folder;
use crate::lead::names::last_part;
use crate::lead::survey::HEADS_AT_ONCE_MAX;
use crate::lead::survey::error::SurveyError;
use futures::StreamExt;
use tradewind_contract::FailedObject;
use tradewind_store::{Error, ErrorKind, Likeness, ObjectInfo, compare_objects};

const HINT: &str = "choose another destination; delete neither before you know that they are two";

/// Listed objects, each with what the destinations list under its name.
type Batch = Vec<(ObjectInfo, Vec<Option<ObjectInfo>>)>;

impl Walk {
    /// Refuses the objects of a batch that may be their own copies, and returns the others.
    pub(super) async fn without_own_copies(&self, batch: Batch, naming: Naming<'_>) -> Result<Batch, SurveyError> {
        if self.survey.job.dry_run || !self.survey.may_be_source.contains(&true) {
            return Ok(batch);
        }
        let mut rest = Batch::with_capacity(batch.len());
        let asked = futures::stream::iter(batch.into_iter().map(|(ours, theirs)| async move {
            let own = self.own_copy(&ours, &naming.name_of(&ours.key)).await;
            (ours, theirs, own)
        }));
        let mut asked = std::pin::pin!(asked.buffered(HEADS_AT_ONCE_MAX));
        while let Some((ours, theirs, own)) = asked.next().await {
            match own? {
                None => rest.push((ours, theirs)),
                Some((target, key)) => {
                    let source = object_url(self.survey.source.as_ref(), &ours.key);
                    let url = object_url(self.survey.targets[usize::from(target)].as_ref(), &key);
                    let message = format!("it and {source} may be one object under two names");
                    let error = Error::new(ErrorKind::Occupied, "put", url.clone(), message);
                    let failed = failed_object(source, url, &error);
                    let failed = FailedObject { hint: Some(HINT.to_owned()), ..failed };
                    self.refuse(failed, Some(target), ours.size_bytes).await?;
                }
            }
        }
        Ok(rest)
    }

    /// The first destination, and the key there, at which the object may be itself.
    async fn own_copy(&self, ours: &ObjectInfo, name: &str) -> Result<Option<(u16, String)>, SurveyError> {
        if is_folder(ours) || !self.selector.takes(name, ours.size_bytes, ours.modified_unix_ms) {
            return Ok(None);
        }
        let targets = self.survey.targets.iter().zip(&self.survey.job.targets).zip(&self.survey.may_be_source);
        for (index, ((store, target), may_be_source)) in targets.enumerate() {
            // A job has few destinations; the contract's indices are 16 bits wide.
            let (index, key) = (index as u16, format!("{}{}", target.key, last_part(name)));
            if !may_be_source || self.was_written(index, &key).await? {
                continue;
            }
            if self.ask_target(index.into(), &key).await?.is_none() {
                continue;
            }
            let pair = ((self.survey.source.as_ref(), ours.key.as_str()), (store.as_ref(), key.as_str()));
            let found = self.policy.run("head", store.url(), || compare_objects(pair.0, pair.1)).await;
            if found.map_err(SurveyError::Target)? == Likeness::Alike {
                return Ok(Some((index, key)));
            }
        }
        Ok(None)
    }

    /// Returns whether an earlier run of the job has written this object. That run compared it.
    async fn was_written(&self, target: u16, key: &str) -> Result<bool, SurveyError> {
        if self.survey.done.is_empty() {
            return Ok(false);
        }
        Ok(self.survey.done.lengths(vec![(target, key.to_owned())]).await?.iter().any(Option::is_some))
    }
}
