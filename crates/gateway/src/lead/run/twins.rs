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
use crate::lead::survey::{SurveyError, WorkItem};
use crate::node::work::{Failure, Side};
use std::path::Path;
use std::sync::Arc;
use tradewind_store::{Error, ErrorKind, Expect, NameRule, Store, goes_by_another_name, name_form};
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
    let by_segments = item.twin.as_ref().is_none_or(|twin| twin.by_segments);
    match look(target, &item.target_key, by_segments, context).await {
        Ok(Found::Nothing) => {
            item.expect = Some(Expect::Absent);
            Looked::Judged(Box::new((item, false)))
        }
        Ok(Found::ItsOwn(now)) => {
            let is_there = item.twin.as_ref().is_some_and(|twin| twin.is_there) && item.expect.as_ref() == Some(&now);
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

async fn look(target: usize, key: &str, by_segments: bool, context: &Context) -> Result<Found, Error> {
    let (store, told_apart) = (&context.targets[target], &context.tells_names_apart[target]);
    let now = match context.policy.run("head", store.url(), || store.head(key)).await {
        Ok(now) => now,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if error.kind == ErrorKind::BucketNotFound && store.makes_root() => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    let rules = NameRule::ALL.into_iter().filter(|rule| by_segments || *rule != NameRule::Segments);
    let (known, unknown): (Vec<_>, Vec<_>) =
        rules.filter(|rule| rule.applies_to(key)).partition(|rule| told_apart.has(*rule));
    // A name that no rule changes must at least be listed itself.
    if known.is_empty() || !unknown.is_empty() {
        let asked = context.policy.run("head", store.url(), || goes_by_another_name(store.as_ref(), key, &unknown));
        if asked.await? {
            return Ok(Found::Another);
        }
        unknown.into_iter().for_each(|rule| told_apart.add(rule));
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
