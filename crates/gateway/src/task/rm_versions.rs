//! `rm --versions`: deletes versions of objects and delete markers for good; `count` counts them.
//!
//! Everything is listed before anything is deleted. The versions wait in two temporary files: the latest version of a
//! key is deleted after all its older ones, and only if none of these failed. So an old version never becomes visible
//! because the deletion was interrupted.

use super::backlog::Backlog;
use super::error::{TaskError, TaskResult};
use super::folders::folder_of;
use super::rm::Tally;
use super::streams::Streams;
use super::text::escaped;
use crate::failure::{counted, kind_name};
use crate::lead::deletion::BATCH_KEYS_MAX;
use crate::lead::select::Selector;
use crate::retry::{RetryPolicy, backoff};
use crate::stores::config_of;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::io::{self, Write};
use tradewind_contract::{ObjectFilter, Outcome, StoreSpec};
use tradewind_store::{Error, ErrorKind, ObjectVersion, Rounds, Versions};

/// Most keys whose latest version is kept because an older one could not be deleted. With more, all latest ones are.
const KEPT_KEYS_MAX: usize = 100_000;

/// Deletes versions in one bucket.
pub(super) struct RmVersions {
    pub(super) versions: Versions,
    /// URL of the bucket.
    pub(super) url: String,
    pub(super) dry_run: bool,
    pub(super) json: bool,
    pub(super) allow_empty: bool,
    pub(super) policy: RetryPolicy,
}

/// The number of versions that a deletion would delete.
#[derive(Default, Serialize)]
struct Count {
    versions: u64,
    markers: u64,
    size_bytes: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    url: &'a str,
    version: &'a str,
    marker: bool,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// A version that is to be deleted, in a [`Backlog`].
#[derive(Serialize, Deserialize)]
struct Entry {
    key: String,
    version: String,
    is_marker: bool,
    /// ETag and time, only of a version that may be replaced under the same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<(Option<String>, i64)>,
}

/// All that is to be deleted.
struct Chosen {
    older: Backlog<Entry>,
    latest: Backlog<Entry>,
    count: Count,
    excluded: u64,
}

impl RmVersions {
    /// Deletes nothing unless `dry_run` is set to false.
    pub(super) fn counting(store: &StoreSpec, policy: RetryPolicy) -> Result<Self, TaskError> {
        let versions = Versions::open(&config_of(store))?;
        let url = store.url.trim_end_matches('/').to_owned();
        Ok(Self { versions, url, dry_run: true, json: false, allow_empty: true, policy })
    }

    /// Prints the number of versions and markers, and their bytes, as one JSON document.
    pub(super) async fn count(
        &self,
        key: &str,
        recursive: bool,
        filter: &ObjectFilter,
        streams: &mut Streams,
    ) -> TaskResult {
        let chosen = self.choose(key, recursive, &Selector::new(filter)?).await?;
        Ok(streams.json_line(&chosen.count)?)
    }

    pub(super) async fn run(
        &self,
        key: &str,
        recursive: bool,
        filter: &ObjectFilter,
        streams: &mut Streams,
    ) -> TaskResult {
        let selector = Selector::new(filter)?;
        let chosen = self.choose(key, recursive, &selector).await?;
        if chosen.count.versions + chosen.count.markers == 0 && !self.allow_empty {
            let url = self.url_of(key);
            let (url, excluded) = selector.missing(&url, chosen.excluded);
            return Err(match recursive {
                true => TaskError::nothing_selected(&url, excluded),
                false => {
                    let hint = "check the name with `tradewind ls`; add -r for everything below a directory";
                    let message = format!("no object has or had this name: {url}");
                    TaskError::ended(Outcome::SourceNotFound, message, Some(hint))
                }
            });
        }
        let (mut tally, mut kept) = (Tally::default(), HashSet::new());
        self.remove(chosen.older, &mut kept, &mut tally, streams).await?;
        self.remove(chosen.latest, &mut kept, &mut tally, streams).await?;
        self.say_count(&chosen.count, &tally, streams);
        tally.end("version", "versions")
    }

    fn say_count(&self, count: &Count, tally: &Tally, streams: &Streams) {
        if tally.failed == 0 {
            let versions = counted(count.versions, "version", "versions");
            let markers = counted(count.markers, "delete marker", "delete markers");
            let done = if self.dry_run { "would delete" } else { "deleted" };
            streams.talk.say(&format!("{done} {versions} and {markers}"));
        }
    }

    /// Lists the versions of one object, or of all below a prefix that the filter selects. Each version is selected by
    /// its own size and time; a delete marker has no bytes.
    async fn choose(&self, key: &str, recursive: bool, selector: &Selector) -> Result<Chosen, TaskError> {
        let prefix = if recursive { folder_of(key) } else { key.to_owned() };
        let (older, latest) = (Backlog::create()?, Backlog::create()?);
        let mut chosen = Chosen { older, latest, count: Count::default(), excluded: 0 };
        let (mut after, mut rounds) = (None, Rounds::default());
        loop {
            let page =
                self.policy.run("list versions", &self.url, || self.versions.list(&prefix, after.as_ref())).await?;
            // Longer keys with this prefix come after `key`.
            let is_beyond = !recursive && page.versions.last().is_some_and(|version| version.key.as_str() > key);
            for version in page.versions {
                let name = version.key.strip_prefix(&prefix).unwrap_or(&version.key);
                let is_chosen = match recursive {
                    true => selector.takes(name, version.size_bytes, version.modified_unix_ms),
                    false => version.key == key,
                };
                match is_chosen {
                    true => chosen.push(version)?,
                    false => chosen.excluded += u64::from(recursive),
                }
            }
            match page.next {
                Some(next) if !is_beyond => {
                    if rounds.repeats(&next) {
                        return Err(self.endless().into());
                    }
                    after = Some(next);
                }
                _ => return Ok(chosen),
            }
        }
    }

    fn endless(&self) -> Error {
        let message = "bad listing: the server repeats its markers, so the listing does not advance";
        Error::new(ErrorKind::Protocol, "list versions", self.url.clone(), message)
    }

    async fn remove(
        &self,
        backlog: Backlog<Entry>,
        kept: &mut HashSet<String>,
        tally: &mut Tally,
        streams: &mut Streams,
    ) -> TaskResult {
        for batch in backlog.into_batches(self.versions.delete_max().min(BATCH_KEYS_MAX))? {
            let versions = batch?.into_iter().map(ObjectVersion::from);
            let (blocked, free): (Vec<_>, Vec<_>) =
                versions.partition(|version| kept.len() >= KEPT_KEYS_MAX || kept.contains(&version.key));
            let message = "kept, because an older version could not be deleted and would become the latest";
            let blocked = blocked.into_iter().map(|version| {
                let error = Error::new(ErrorKind::PreconditionFailed, "delete", self.url_of(&version.key), message);
                (version, Err(error))
            });
            let verdicts: Vec<_> = blocked.collect();
            self.print(verdicts, tally, streams)?;
            let verdicts = if self.dry_run {
                free.into_iter().map(|version| (version, Ok(()))).collect()
            } else {
                self.delete(free).await
            };
            let failed =
                verdicts.iter().filter(|(_, verdict)| verdict.is_err()).map(|(version, _)| version.key.clone());
            kept.extend(failed);
            self.print(verdicts, tally, streams)?;
        }
        Ok(())
    }

    /// Deletes one batch; versions that failed for a while are tried again.
    async fn delete(&self, mut versions: Vec<ObjectVersion>) -> Vec<(ObjectVersion, Result<(), Error>)> {
        let mut verdicts = Vec::with_capacity(versions.len());
        let mut tries = 0;
        while !versions.is_empty() {
            tries += 1;
            let answers = match self.policy.run("delete", &self.url, || self.versions.delete(&versions)).await {
                Ok(answers) => answers,
                Err(error) => {
                    verdicts.extend(versions.into_iter().map(|version| (version, Err(error.clone()))));
                    break;
                }
            };
            let (mut again, mut slowest) = (Vec::new(), ErrorKind::Server);
            for (version, answer) in versions.into_iter().zip(answers) {
                match answer {
                    Err(error) if error.kind.is_transient() && tries < self.policy.tries_max => {
                        slowest = error.kind;
                        again.push(version);
                    }
                    answer => verdicts.push((version, answer)),
                }
            }
            versions = again;
            if !versions.is_empty() {
                tokio::time::sleep(backoff(tries, slowest)).await;
            }
        }
        verdicts
    }

    fn print(
        &self,
        verdicts: Vec<(ObjectVersion, Result<(), Error>)>,
        tally: &mut Tally,
        streams: &mut Streams,
    ) -> io::Result<()> {
        for (version, verdict) in verdicts {
            let url = self.url_of(&version.key);
            tally.add(&verdict);
            if self.json {
                let (verdict, kind, message) = match &verdict {
                    Ok(()) => (if self.dry_run { "would_delete" } else { "deleted" }, None, None),
                    Err(error) => ("failed", Some(kind_name(error.kind)), Some(error.to_string())),
                };
                let (id, marker) = (version.version.as_str(), version.is_marker);
                streams.json_line(&Line { url: &url, version: id, marker, verdict, kind, message })?;
            } else if verdict.is_ok() {
                let done = if self.dry_run { "would delete" } else { "deleted" };
                let what = if version.is_marker { "delete marker" } else { "version" };
                writeln!(streams.data, "{done} {} {what} {}", escaped(&url), escaped(&version.version))?;
            }
            if let Err(error) = verdict {
                streams.say_error(&format!("version {}: {error}", version.version), None);
            }
        }
        Ok(())
    }

    fn url_of(&self, key: &str) -> String {
        format!("{}/{key}", self.url)
    }
}

impl From<Entry> for ObjectVersion {
    fn from(Entry { key, version, is_marker, state }: Entry) -> Self {
        let (etag, modified_unix_ms) = state.unwrap_or_default();
        Self { key, version, is_marker, etag, modified_unix_ms, ..Self::default() }
    }
}

impl Chosen {
    fn push(&mut self, version: ObjectVersion) -> io::Result<()> {
        self.count.markers += u64::from(version.is_marker);
        self.count.versions += u64::from(!version.is_marker);
        self.count.size_bytes += version.size_bytes;
        let backlog = if version.is_latest { &mut self.latest } else { &mut self.older };
        let may_be_replaced = version.may_be_replaced();
        let ObjectVersion { key, version, is_marker, etag, modified_unix_ms, .. } = version;
        let state = may_be_replaced.then_some((etag, modified_unix_ms));
        backlog.push(&Entry { key, version, is_marker, state })
    }
}
