//! `rm`: deletes one object, or everything below a folder.
//!
//! A folder is listed completely before anything is deleted: if the listing turns out wrong or incomplete, nothing is
//! deleted. The keys wait in a temporary file, so their number is unlimited.
//!
//! An object that changed after it was listed is kept, because the user may not have meant it. Stores that can check
//! this without another request always do; if a size or time selected the object, it is checked everywhere.

use super::backlog::Backlog;
use super::error::{TaskError, TaskResult};
use super::folders::{folder_of, is_folder, nothing_in};
use super::refused::Refused;
use super::streams::Streams;
use super::text::shown_place;
use crate::failure::{counted, kind_name, object_url};
use crate::lead::deletion::{BATCH_KEYS_MAX, BATCHES_AT_ONCE_MAX, CONDITIONAL_KEYS_MAX, delete_objects};
use crate::lead::pages::{Listing, NameSpan};
use crate::lead::select::Selector;
use crate::retry::RetryPolicy;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;
use tradewind_contract::{ObjectFilter, Outcome};
use tradewind_store::{Error, ErrorKind, ObjectDeletion, ObjectInfo, Precondition, Skips, Store};

/// Maximum number of named objects that are looked up concurrently.
const HEADS_AT_ONCE_MAX: usize = 16;
/// Maximum number of names that a dry run remembers. Beyond it, all directories count as empty.
const GONE_KEYS_MAX: usize = 1_000_000;
/// Number of names in a row for which the store must reject the credentials before the rest of a list is not tried. As
/// in transfers, one is not enough: a store may demand credentials for single objects only.
const UNAUTHENTICATED_IN_A_ROW_MAX: usize = 8;
const MISSING_HINT: &str = "check the names with `tradewind ls`; add -r to delete everything below a directory";

/// Deletes from one store.
pub(super) struct Rm {
    pub(super) store: Arc<dyn Store>,
    pub(super) dry_run: bool,
    pub(super) json: bool,
    pub(super) allow_empty: bool,
    pub(super) policy: RetryPolicy,
}

#[derive(Serialize)]
struct Line<'a> {
    url: &'a str,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// Number of deleted keys, and for the others what kept them.
#[derive(Default)]
pub(super) struct Tally {
    gone: u64,
    pub(super) failed: u64,
    failed_for_good: u64,
    not_authorised: u64,
}

impl Rm {
    pub(super) async fn run(
        &self,
        key: &str,
        recursive: bool,
        filter: &ObjectFilter,
        streams: &mut Streams,
    ) -> TaskResult {
        let selector = Selector::new(filter)?;
        let mut tally = Tally::default();
        let (refused, excluded) = if recursive {
            let (listed, refused) = self.list_folder(&folder_of(key), &selector, streams).await?;
            let excluded = listed.excluded;
            self.remove_listed(listed, &mut tally, streams).await?;
            (refused, excluded)
        } else {
            self.remove_object(key, &mut tally, streams).await?;
            (Refused::default(), 0)
        };
        refused.say_links("left in place", streams);
        if tally.gone + tally.failed == 0 && !refused.has_unseen() && !self.allow_empty {
            let url = object_url(self.store.as_ref(), key);
            if recursive {
                let advice = |url: &str| format!("to delete one object: tradewind rm {url}");
                return Err(nothing_in(&self.store, key, (&selector, excluded), self.policy, advice).await);
            }
            let hint = match is_folder(&self.store, key, self.policy).await {
                true => "it is a directory; add -r to remove everything below it",
                false => "check the name with `tradewind ls`",
            };
            return Err(TaskError::ended(
                Outcome::SourceNotFound,
                format!("no object has this name: {url}"),
                Some(hint),
            ));
        }
        tally.end("object", "objects")?;
        refused.end()
    }

    /// Deletes the objects with these names below `prefix`. One that does not exist, or for which the store rejects the
    /// credentials, fails alone; after [`UNAUTHENTICATED_IN_A_ROW_MAX`] of the latter in a row the rest is not tried.
    ///
    /// A dry run that continues a list does not know the names before it, so it counts all directories as empty.
    pub(super) async fn run_named(
        &self,
        prefix: &str,
        names: Vec<String>,
        continues_list: bool,
        streams: &mut Streams,
    ) -> TaskResult {
        let mut untried = names.len() as u64;
        let asked = futures::stream::iter(names.into_iter().map(|name| async move {
            let key = format!("{prefix}{name}");
            let found = self.policy.run("head", self.store.url(), || self.store.head(&key)).await;
            (key, found)
        }));
        let mut asked = std::pin::pin!(asked.buffered(HEADS_AT_ONCE_MAX));
        let keys_max = self.store.limits().delete_keys_max.clamp(1, BATCH_KEYS_MAX);
        let (mut tally, mut missing, mut batch) = (Tally::default(), 0, Vec::new());
        let mut gone = Gone { keys: HashSet::new(), knows_all: !(self.dry_run && continues_list) };
        // Not yet printed: if the store rejects the credentials for every name, that is one error.
        let mut rejected = Vec::new();
        while let Some((key, found)) = asked.next().await {
            untried -= 1;
            match found {
                Err(error) if error.kind == ErrorKind::Unauthenticated => {
                    rejected.push((key, Err(error)));
                    if rejected.len() == UNAUTHENTICATED_IN_A_ROW_MAX {
                        break;
                    }
                    continue;
                }
                Err(error) if error.kind == ErrorKind::BucketNotFound => return Err(error.into()),
                found => {
                    self.print(std::mem::take(&mut rejected), &mut tally, streams)?;
                    match found {
                        Ok(_) => batch.push(ObjectDeletion::any(&key)),
                        Err(error) if error.kind == ErrorKind::NotFound && self.allow_empty => {}
                        Err(error) if error.kind == ErrorKind::NotFound => {
                            missing += 1;
                            self.say_missing(&key, streams)?;
                        }
                        Err(error) => self.print(vec![(key, Err(error))], &mut tally, streams)?,
                    }
                }
            }
            if batch.len() == keys_max {
                let verdicts = self.delete_named(std::mem::take(&mut batch), &mut gone).await;
                self.print(verdicts, &mut tally, streams)?;
            }
        }
        if !batch.is_empty() {
            let verdicts = self.delete_named(batch, &mut gone).await;
            self.print(verdicts, &mut tally, streams)?;
        }
        self.end_named(rejected, (missing, untried), tally, streams)
    }

    /// Ends a list of names. `rejected` are the last ones that were tried, if the store rejected the credentials for them.
    fn end_named(
        &self,
        mut rejected: Vec<(String, Result<(), Error>)>,
        (missing, untried): (u64, u64),
        mut tally: Tally,
        streams: &mut Streams,
    ) -> TaskResult {
        if tally.gone + tally.failed + missing == 0
            && let Some((_, Err(error))) = rejected.pop()
        {
            return Err(error.into());
        }
        self.print(rejected, &mut tally, streams)?;
        if untried > 0 {
            let rest = counted(untried, "name", "names");
            streams.say_error(&format!("{rest} not tried: the store keeps rejecting the credentials"), None);
        }
        if missing > 0 && tally.gone + tally.failed + untried == 0 {
            let message = format!("{} not found", counted(missing, "object", "objects"));
            return Err(TaskError::ended(Outcome::SourceNotFound, message, Some(MISSING_HINT)));
        }
        tally.failed += missing + untried;
        tally.failed_for_good += missing + untried;
        tally.end("object", "objects")
    }

    /// Deletes objects, of which a directory of files may keep its entries: [`Store::delete`] leaves it silently. Adds
    /// what a dry run would delete to `gone`.
    async fn delete_named(&self, batch: Vec<ObjectDeletion>, gone: &mut Gone) -> Vec<(String, Result<(), Error>)> {
        let mut verdicts = self.delete(batch).await;
        if !self.store.url().starts_with("file:") {
            return verdicts;
        }
        for (key, verdict) in &mut verdicts {
            if verdict.is_ok() && key.ends_with('/') && self.is_left(key, gone).await {
                let url = object_url(self.store.as_ref(), key);
                *verdict = Err(Error::new(ErrorKind::Unsupported, "delete", url, "the directory is not empty"));
            } else if self.dry_run {
                gone.add(key);
            }
        }
        verdicts
    }

    /// Returns whether a directory still exists, or in a dry run, whether it holds more than what is in `gone`.
    async fn is_left(&self, directory: &str, gone: &Gone) -> bool {
        if !self.dry_run {
            return self.policy.run("head", self.store.url(), || self.store.head(directory)).await.is_ok();
        }
        if !gone.knows_all {
            return false;
        }
        let (store, prefix) = (self.store.clone(), directory.to_owned());
        let listing = Listing::new(store, prefix, self.policy, NameSpan::default(), Skips::default());
        let Ok(pages) = listing.in_any_order().await else { return false };
        let stays = |object: &ObjectInfo| object.key != directory && !gone.keys.contains(&object.key);
        let mut pages = std::pin::pin!(pages);
        while let Some(Ok(page)) = pages.next().await {
            if !page.refused.is_empty() || page.objects.iter().any(stays) {
                return true;
            }
        }
        false
    }

    fn say_missing(&self, key: &str, streams: &mut Streams) -> io::Result<()> {
        let url = object_url(self.store.as_ref(), key);
        let message = format!("no object has this name: {url}");
        if self.json {
            let (kind, message) = (Some(kind_name(ErrorKind::NotFound)), Some(message.clone()));
            streams.json_line(&Line { url: &url, verdict: "failed", kind, message })?;
        }
        streams.say_error(&message, None);
        Ok(())
    }

    async fn remove_object(&self, key: &str, tally: &mut Tally, streams: &mut Streams) -> TaskResult {
        // Stores delete a missing key silently, so check first.
        match self.policy.run("head", self.store.url(), || self.store.head(key)).await {
            Ok(_) => {
                let verdicts = self.delete(vec![ObjectDeletion::any(key)]).await;
                Ok(self.print(verdicts, tally, streams)?)
            }
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn list_folder(
        &self,
        folder: &str,
        selector: &Selector,
        streams: &mut Streams,
    ) -> Result<(Listed, Refused), TaskError> {
        let skips = selector.skips(folder, "");
        let listing = Listing::new(self.store.clone(), folder.to_owned(), self.policy, selector.span(), skips);
        let mut pages = std::pin::pin!(listing.in_any_order().await?);
        let states_matter = self.store.checks_listed_deletes() || selector.has_measures();
        let (mut listed, mut left) = (Listed::create(states_matter)?, Refused::default());
        let root = object_url(self.store.as_ref(), folder);
        while let Some(page) = pages.next().await {
            let page = page?;
            listed.written_before_unix_ms = listed.written_before_unix_ms.or(self.store.writes_from_unix_ms());
            for object in &page.objects {
                let name = object.key.strip_prefix(folder).unwrap_or(&object.key);
                if selector.takes(name, object.size_bytes, object.modified_unix_ms) {
                    listed.push(object)?;
                } else {
                    listed.excluded += 1;
                }
            }
            listed.excluded += page.skipped;
            left.take_selected(&page.refused, &root, selector, streams);
        }
        Ok((listed, left))
    }

    async fn remove_listed(&self, listed: Listed, tally: &mut Tally, streams: &mut Streams) -> TaskResult {
        let is_looked_at = listed.states_matter && !self.store.checks_listed_deletes();
        let keys_max = if is_looked_at { CONDITIONAL_KEYS_MAX } else { BATCH_KEYS_MAX };
        let keys_max = self.store.limits().delete_keys_max.clamp(1, keys_max);
        let batches = futures::stream::iter(listed.into_batches(keys_max)?);
        let deletions = batches.map(|batch| async { Ok::<_, io::Error>(self.delete(batch?).await) });
        let mut deletions = std::pin::pin!(deletions.buffer_unordered(BATCHES_AT_ONCE_MAX));
        while let Some(verdicts) = deletions.next().await {
            self.print(verdicts?, tally, streams)?;
        }
        Ok(())
    }

    async fn delete(&self, objects: Vec<ObjectDeletion>) -> Vec<(String, Result<(), Error>)> {
        if self.dry_run {
            return objects.into_iter().map(|deletion| (deletion.key, Ok(()))).collect();
        }
        delete_objects(self.store.as_ref(), objects, self.policy).await
    }

    fn print(
        &self,
        verdicts: Vec<(String, Result<(), Error>)>,
        tally: &mut Tally,
        streams: &mut Streams,
    ) -> io::Result<()> {
        let done = if self.dry_run { "would_delete" } else { "deleted" };
        for (key, verdict) in verdicts {
            let url = object_url(self.store.as_ref(), &key);
            tally.add(&verdict);
            match verdict {
                Ok(()) if self.json => {
                    streams.json_line(&Line { url: &url, verdict: done, kind: None, message: None })?;
                }
                Ok(()) => {
                    let done = if self.dry_run { "would delete" } else { "deleted" };
                    writeln!(streams.data, "{done} {}", shown_place(&url))?;
                }
                Err(error) => {
                    if self.json {
                        let (kind, message) = (Some(kind_name(error.kind)), Some(error.to_string()));
                        streams.json_line(&Line { url: &url, verdict: "failed", kind, message })?;
                    }
                    // Other causes get one hint for all objects, at the end.
                    let hint = error.hint().filter(|_| error.kind == ErrorKind::HasSnapshots);
                    streams.say_error(&error.to_string(), hint);
                }
            }
        }
        Ok(())
    }
}

/// The keys that a dry run would have deleted so far.
struct Gone {
    keys: HashSet<String>,
    /// False if there are others.
    knows_all: bool,
}

impl Gone {
    fn add(&mut self, key: &str) {
        self.knows_all &= self.keys.len() < GONE_KEYS_MAX;
        if self.knows_all {
            self.keys.insert(key.to_owned());
        }
    }
}

/// Objects to delete.
struct Listed {
    objects: Backlog<ListedObject>,
    /// True if an object whose state differs from its listing must be kept.
    states_matter: bool,
    /// Number of objects that the filter left out.
    excluded: u64,
    /// The store's clock at the first page.
    written_before_unix_ms: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct ListedObject {
    key: String,
    #[serde(default, skip_serializing_if = "Precondition::is_any")]
    condition: Precondition,
    /// `Precondition::not_after_unix_ms`, which is not serialized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_after_unix_ms: Option<i64>,
}

impl Listed {
    fn create(states_matter: bool) -> io::Result<Self> {
        Ok(Self { objects: Backlog::create()?, states_matter, excluded: 0, written_before_unix_ms: None })
    }

    fn push(&mut self, object: &ObjectInfo) -> io::Result<()> {
        let key = object.key.clone();
        let object = match self.states_matter {
            true => {
                let not_after_unix_ms = Precondition::exact(object).modified_unix_ms;
                ListedObject { key, condition: Precondition::listed(object), not_after_unix_ms }
            }
            false => ListedObject { key, condition: Precondition::default(), not_after_unix_ms: None },
        };
        self.objects.push(&object)
    }

    /// Reads the objects back, in batches of at most `keys_max`.
    fn into_batches(self, keys_max: usize) -> io::Result<impl Iterator<Item = io::Result<Vec<ObjectDeletion>>>> {
        let written_before_unix_ms = self.written_before_unix_ms.filter(|_| self.states_matter);
        let deletion = move |object: ListedObject| {
            let ListedObject { key, condition, not_after_unix_ms } = object;
            ObjectDeletion { key, condition: Precondition { not_after_unix_ms, written_before_unix_ms, ..condition } }
        };
        let batches = self.objects.into_batches(keys_max)?;
        Ok(batches.map(move |batch| Ok(batch?.into_iter().map(deletion).collect())))
    }
}

impl Tally {
    pub(super) fn add(&mut self, verdict: &Result<(), Error>) {
        match verdict {
            Ok(()) => self.gone += 1,
            Err(error) => {
                self.failed += 1;
                self.failed_for_good += u64::from(!error.kind.is_transient());
                let refused = matches!(error.kind, ErrorKind::Forbidden | ErrorKind::Unauthenticated);
                self.not_authorised += u64::from(refused);
            }
        }
    }

    /// The end of the task. `one` and `many` name what was deleted.
    pub(super) fn end(&self, one: &str, many: &str) -> TaskResult {
        if self.failed == 0 {
            return Ok(());
        }
        let message =
            format!("{} of {} could not be deleted", self.failed, counted(self.failed + self.gone, one, many));
        if self.failed_for_good == 0 {
            Err(TaskError::ended(Outcome::Unavailable, message, Some("try again")))
        } else if self.not_authorised == self.failed && self.gone == 0 {
            let hint = "check the permissions: bucket policy and profile, or the owner and mode of the path";
            Err(TaskError::ended(Outcome::Unauthorised, message, Some(hint)))
        } else {
            Err(TaskError::ended(Outcome::SomeFailed, message, None))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::streams::Talk;
    use super::*;
    use crate::directory_tree::DirectoryTree;
    use tradewind_contract::Limits;

    /// An object written between the listing and the deletion may not be one that the filter meant.
    #[tokio::test]
    async fn a_file_that_is_filled_after_it_was_listed_stays() {
        let tree = DirectoryTree::with(&[("d/empty", b""), ("d/filled", b""), ("d/long", b"long")]);
        let policy = RetryPolicy::from(&Limits::default());
        let rm = Rm { store: tree.store.clone(), dry_run: false, json: true, allow_empty: false, policy };
        let filter = ObjectFilter { size_max_bytes: Some(0), ..ObjectFilter::default() };
        let mut streams = Streams { input: None, data: Box::new(io::sink()), talk: Talk::new(io::sink()) };
        let selector = Selector::new(&filter).unwrap();
        let (listed, _) = rm.list_folder("d/", &selector, &mut streams).await.unwrap();
        tree.write("d/filled", b"new");
        let mut tally = Tally::default();
        rm.remove_listed(listed, &mut tally, &mut streams).await.unwrap();
        assert_eq!(tree.keys(), ["d/filled", "d/long"]);
        assert_eq!((tally.gone, tally.failed), (1, 1));
    }
}
