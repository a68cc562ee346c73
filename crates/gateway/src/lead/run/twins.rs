//! Handles objects whose names a destination may treat as one, see [`names`](crate::lead::names), or may change.
//!
//! Each of them waits until everything else is written, in a [`Backlog`], so that memory does not limit their number.
//! Then the destination is asked for it. If it finds an object that has another name, that object was written under the
//! other name: the twin fails, and a `mv` keeps its source. Twins of each other are tried in different rounds.
//!
//! An object with a name such as `a//b` or `a\b` fails too if the destination finds one of its objects by a name that is
//! changed in the same way: it would store the object under another name, and no comparison would find it.

use super::context::Context;
use super::looking::Looked;
use crate::failure::object_url;
use crate::lead::backlog::{Backlog, Reading};
use crate::lead::names::Names;
use crate::lead::survey::{SurveyError, WorkItem};
use crate::node::work::{Failure, Side};
use std::path::Path;
use std::sync::Arc;
use tradewind_store::{
    Error, ErrorKind, Expect, ListRequest, NameChanges, NameRule, Store, goes_by_another_name, name_form,
};
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
    let listed = item.expect.as_ref().filter(|_| item.twin.as_ref().is_some_and(|twin| twin.is_there));
    let by = item.twin.as_ref().map_or_else(|| NameChanges::of(&item.target_key), |twin| twin.by);
    match look(target, &item.target_key, by, listed, context).await {
        Ok(Found::Nothing) => match would_be_renamed(target, &item.target_key, context).await {
            Ok(None) => {
                item.expect = Some(Expect::Absent);
                Looked::Judged(Box::new((item, false)))
            }
            Ok(Some(rule)) => {
                let failure = renamed(&object_url(context.targets[target].as_ref(), &item.target_key), rule);
                Looked::Failed(Box::new((item, failure)))
            }
            Err(error) => Looked::Failed(Box::new((item, Failure::of_store(&error, Side::Target)))),
        },
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

/// Asks the destination for a key. If it is as it was `listed`, nothing was written over it.
async fn look(
    target: usize,
    key: &str,
    by: NameChanges,
    listed: Option<&Expect>,
    context: &Context,
) -> Result<Found, Error> {
    let (store, told_apart) = (&context.targets[target], &context.tells_names_apart[target]);
    let now = match context.policy.run("head", store.url(), || store.head(key)).await {
        Ok(now) => now,
        // If the name is not allowed, the answer to the write says why.
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::BadRequest | ErrorKind::InvalidKey) => {
            return Ok(Found::Nothing);
        }
        Err(error) if error.kind == ErrorKind::BucketNotFound && store.makes_root() => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    let now = Expect::seen(Some(&now));
    if listed == Some(&now) {
        return Ok(Found::ItsOwn(now));
    }
    let is_about_letters = |rule| !matches!(rule, NameRule::Segments | NameRule::Backslash);
    let rules = NameRule::ALL.into_iter().filter(|rule| is_about_letters(*rule) || by.has(*rule));
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
    Ok(Found::ItsOwn(now))
}

/// Returns the rule by which the destination would store an object under another name; `None` if there is none, or if
/// it has no object that could show it.
async fn would_be_renamed(target: usize, key: &str, context: &Context) -> Result<Option<NameRule>, Error> {
    let (store, told_apart) = (&context.targets[target], &context.tells_names_apart[target]);
    let changes = NameChanges::of(key);
    let unknown: Vec<_> =
        NameRule::ALL.into_iter().filter(|rule| changes.has(*rule) && !told_apart.has(*rule)).collect();
    if unknown.is_empty() {
        return Ok(None);
    }
    let prefix = plain_directory(&context.job.targets[target].key).to_owned();
    let request = ListRequest { prefix, ..ListRequest::default() };
    let page = match context.policy.run("list", store.url(), || store.list(&request)).await {
        Ok(page) => page,
        // The write says what is wrong.
        Err(error) if matches!(error.kind, ErrorKind::Forbidden | ErrorKind::BucketNotFound) => return Ok(None),
        Err(error) => return Err(error),
    };
    for rule in unknown {
        let Some(known) = page.objects.iter().find(|object| is_plain(&object.key) && rule.applies_to(&object.key))
        else {
            continue;
        };
        let rules = [rule];
        let asked =
            context.policy.run("head", store.url(), || goes_by_another_name(store.as_ref(), &known.key, &rules));
        if asked.await? {
            return Ok(Some(rule));
        }
        told_apart.add(rule);
    }
    Ok(None)
}

/// The longest directory of a key that no server takes for another one. Ends in `/`, or is empty.
fn plain_directory(key: &str) -> &str {
    let mut directory = &key[..key.rfind('/').map_or(0, |slash| slash + 1)];
    while !directory.is_empty() && NameChanges::of(directory).any() {
        directory = &directory[..directory[..directory.len() - 1].rfind('/').map_or(0, |slash| slash + 1)];
    }
    directory
}

fn is_plain(key: &str) -> bool {
    !key.ends_with('/') && !NameChanges::of(key).any()
}

fn renamed(url: &str, rule: NameRule) -> Failure {
    let why = match rule {
        NameRule::Backslash => "treats a backslash as a slash",
        _ => "ignores empty segments, `.` and `..`",
    };
    let message = format!("{url}: the store {why}, so it would have another name there; it was not written");
    let hint = "choose another destination name, or leave the object out with --exclude".to_owned();
    let failure = Failure::new(Fault::Permanent, "invalid_key", message);
    Failure { hint: Some(hint), side: Some(Side::Target), ..failure }
}

fn taken(url: &str) -> Failure {
    let message =
        format!("{url}: the store treats this name as that of another object of this job, so it was not written");
    let hint = "the two names differ only in case, Unicode form, empty segments, `.` or `..`: rename one of the objects \
                and copy it by itself";
    let failure = Failure::new(Fault::Permanent, "occupied", message);
    Failure { hint: Some(hint.to_owned()), side: Some(Side::Target), ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_no_server_changes_is_asked_for_an_object() {
        for (key, directory) in [
            ("a", ""),
            ("a/b", "a/"),
            ("a/b/", "a/b/"),
            ("/a", ""),
            ("a//b", "a/"),
            ("a/b//c/d", "a/b/"),
            ("../a", ""),
            ("a/b\\c/d", "a/"),
            ("", ""),
        ] {
            assert_eq!(plain_directory(key), directory, "{key}");
        }
    }
}
