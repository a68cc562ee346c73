//! Handles objects whose names a destination may treat as one, see [`names`](crate::lead::names).
//!
//! Each of them waits until everything else is written, in a [`Backlog`], so that memory does not limit their number.
//! Then the destination is asked for it. If it finds an object that has another name, that object was written under the
//! other name: the twin fails, and a `mv` keeps its source. Twins of each other are tried in different rounds.

use super::context::Context;
use super::looking::Looked;
use crate::failure::object_url;
use crate::lead::backlog::{Backlog, Reading};
use crate::lead::names::Names;
use crate::lead::survey::{SurveyError, Twin, WorkItem};
use crate::node::work::{Failure, Side};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tradewind_store::{Error, ErrorKind, Expect, Store, goes_by_another_name, name_form};
use tradewind_wire::Fault;

/// See the module's documentation.
pub(super) struct Twins {
    waiting: Backlog<WorkItem>,
    round: Option<Reading<WorkItem>>,
    names: Names,
}

impl Twins {
    pub(super) fn new(dir: Option<&Path>) -> Self {
        Self { waiting: Backlog::new(dir), round: None, names: Names::default() }
    }

    /// Keeps an object for a later round.
    pub(super) fn wait(&mut self, item: &WorkItem) -> Result<(), SurveyError> {
        self.waiting.push(item).map_err(SurveyError::Backlog)
    }

    /// Begins a round with all waiting objects.
    pub(super) fn begin_round(&mut self) -> Result<(), SurveyError> {
        self.names.clear();
        self.round = Some(self.waiting.take().map_err(SurveyError::Backlog)?);
        Ok(())
    }

    /// Returns the next object that has no twin in this round.
    pub(super) fn next(&mut self, targets: &[Arc<dyn Store>]) -> Result<Option<Box<WorkItem>>, SurveyError> {
        while let Some(item) = self.round.as_mut().and_then(Iterator::next) {
            let item = item.map_err(SurveyError::Backlog)?;
            let form = name_form(targets[usize::from(item.target)].as_ref(), &item.target_key);
            if form.is_none_or(|form| !self.names.has_twin(item.target, &form)) {
                return Ok(Some(Box::new(item)));
            }
            self.waiting.push(&item).map_err(SurveyError::Backlog)?;
        }
        self.round = None;
        Ok(None)
    }
}

/// Determines whether an object may be written under its name.
pub(super) async fn judge(mut item: Box<WorkItem>, context: &Context) -> Looked {
    let target = usize::from(item.target);
    match look(&context.targets[target], &item.target_key, &context.tells_names_apart[target], context).await {
        Ok(Found::Nothing) => {
            item.expect = Some(Expect::Absent);
            Looked::Judged(Box::new((item, false)))
        }
        Ok(Found::ItsOwn(now)) => {
            let is_there = item.twin == Some(Twin::Same) && item.expect.as_ref() == Some(&now);
            item.expect = Some(now);
            Looked::Judged(Box::new((item, is_there)))
        }
        Ok(Found::Another) => {
            let failure = taken(&object_url(context.targets[target].as_ref(), &item.target_key));
            Looked::Failed(Box::new((item, failure)))
        }
        Err(error) => Looked::Failed(Box::new((item, Failure::of_store(&error, Side::Target)))),
    }
}

/// The object that a destination returns for a name.
enum Found {
    Nothing,
    ItsOwn(Expect),
    Another,
}

async fn look(
    store: &Arc<dyn Store>,
    key: &str,
    tells_names_apart: &AtomicBool,
    context: &Context,
) -> Result<Found, Error> {
    let now = match context.policy.run("head", store.url(), || store.head(key)).await {
        Ok(now) => now,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if error.kind == ErrorKind::BucketNotFound && store.makes_root() => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    if !tells_names_apart.load(Ordering::Relaxed) {
        let asked = context.policy.run("head", store.url(), || goes_by_another_name(store.as_ref(), key));
        if asked.await? {
            return Ok(Found::Another);
        }
        tells_names_apart.store(true, Ordering::Relaxed);
    }
    Ok(Found::ItsOwn(Expect::seen(Some(&now))))
}

fn taken(url: &str) -> Failure {
    let message =
        format!("{url}: the store treats this name as that of another object of this job, so it was not written");
    let hint = "the two names differ only in case, Unicode form, empty segments, `.` or `..`: rename one of the objects \
                and copy it by itself";
    let failure = Failure::new(Fault::Permanent, "occupied", message);
    Failure { hint: Some(hint.to_owned()), side: Some(Side::Target), ..failure }
}
