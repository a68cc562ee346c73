//! Objects whose names a destination may take for one, see [`names`](crate::lead::names).
//!
//! Each waits until everything else is written, in a [`Backlog`], so that any number fits. Then the destination is asked for
//! it. An object that is found there and goes by another name is the one that was written under that name: the twin fails, and
//! a `mv` keeps its source. Twins of each other are tried in different rounds.

use super::cargo::Prepared;
use super::{PREPARING_MAX, Running, Shared};
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

/// See the module's head.
pub(super) struct Twins {
    waiting: Backlog<WorkItem>,
    round: Option<Reading<WorkItem>>,
    names: Names,
}

impl Twins {
    pub(super) fn new(dir: Option<&Path>) -> Self {
        Self { waiting: Backlog::new(dir), round: None, names: Names::default() }
    }

    /// The next one that has no twin in this round.
    fn next(&mut self, targets: &[Arc<dyn Store>]) -> Result<Option<WorkItem>, SurveyError> {
        while let Some(item) = self.round.as_mut().and_then(Iterator::next) {
            let item = item.map_err(SurveyError::Backlog)?;
            let form = name_form(targets[usize::from(item.target)].as_ref(), &item.target_key);
            if form.is_none_or(|form| !self.names.has_twin(item.target, &form)) {
                return Ok(Some(item));
            }
            self.waiting.push(&item).map_err(SurveyError::Backlog)?;
        }
        self.round = None;
        Ok(None)
    }
}

impl Running {
    pub(super) fn wait_for_twin(&mut self, item: &WorkItem) -> Result<(), SurveyError> {
        self.twins.waiting.push(item).map_err(SurveyError::Backlog)
    }

    /// To be called when nothing is under way. Returns whether objects were waiting.
    pub(super) fn begin_round_of_twins(&mut self) -> Result<bool, SurveyError> {
        self.twins.names.clear();
        self.twins.round = Some(self.twins.waiting.take().map_err(SurveyError::Backlog)?);
        self.load_twins()?;
        Ok(self.preparing > 0)
    }

    /// Takes on as many as may be looked at.
    pub(super) fn load_twins(&mut self) -> Result<(), SurveyError> {
        while self.stopping.is_none() && self.preparing < PREPARING_MAX && self.scheduler.wants_more() {
            let Some(item) = self.twins.next(&self.setup.targets)? else { break };
            self.load(item, false);
        }
        Ok(())
    }

    /// A twin that leads to no object of another name.
    pub(super) fn judged(&mut self, item: WorkItem, is_there: bool) {
        if is_there {
            return self.tally.skipped(item.target, 1);
        }
        if item.twin == Some(Twin::Same) {
            self.tally.found(item.info.size_bytes);
        }
        self.load(WorkItem { twin: None, ..item }, false);
    }
}

/// Looks whether an object may be written under its name.
pub(super) async fn judge(item: WorkItem, setup: &Shared) -> Prepared {
    let target = usize::from(item.target);
    match look(&setup.targets[target], &item.target_key, &setup.tells_names_apart[target], setup).await {
        Ok(Found::Nothing) => Prepared::Judged(Box::new((WorkItem { expect: Some(Expect::Absent), ..item }, false))),
        Ok(Found::ItsOwn(now)) => {
            let is_there = item.twin == Some(Twin::Same) && item.expect.as_ref() == Some(&now);
            Prepared::Judged(Box::new((WorkItem { expect: Some(now), ..item }, is_there)))
        }
        Ok(Found::Another) => {
            let failure = taken(&object_url(setup.targets[target].as_ref(), &item.target_key));
            Prepared::Failed(Box::new((item, failure)))
        }
        Err(error) => Prepared::Failed(Box::new((item, Failure::of_store(&error, Side::Target)))),
    }
}

/// The object that a destination has under a name.
enum Found {
    Nothing,
    ItsOwn(Expect),
    Another,
}

async fn look(
    store: &Arc<dyn Store>,
    key: &str,
    tells_names_apart: &AtomicBool,
    setup: &Shared,
) -> Result<Found, Error> {
    let now = match setup.policy.run("head", store.url(), || store.head(key)).await {
        Ok(now) => now,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if error.kind == ErrorKind::BucketNotFound && store.makes_root() => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    if !tells_names_apart.load(Ordering::Relaxed) {
        let asked = setup.policy.run("head", store.url(), || goes_by_another_name(store.as_ref(), key));
        if asked.await? {
            return Ok(Found::Another);
        }
        tells_names_apart.store(true, Ordering::Relaxed);
    }
    Ok(Found::ItsOwn(Expect::seen(Some(&now))))
}

fn taken(url: &str) -> Failure {
    let message =
        format!("{url}: the store takes this name for that of another object of this job, so it is not written");
    let hint = "the two names differ only in case, Unicode form, empty segments, `.` or `..`: rename one of the objects, \
                and copy it by itself";
    let failure = Failure::new(Fault::Permanent, "occupied", message);
    Failure { hint: Some(hint.to_owned()), side: Some(Side::Target), ..failure }
}
