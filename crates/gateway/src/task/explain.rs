//! `--explain`: why a key is selected or left out, and what would happen to it at each destination.

use super::dispatch::Opened;
use super::error::{TaskError, TaskResult};
use super::streams::Streams;
use super::text::{escaped, shown_place};
use crate::failure::object_url;
use crate::lead::compare::{self, Difference, Times, Verdict};
use crate::lead::local_sums;
use crate::lead::names::last_part;
use crate::lead::select::Selector;
use crate::retry::RetryPolicy;
use std::io::Write;
use std::sync::Arc;
use tradewind_contract::{Comparison, JobSpec, Member, ObjectFilter, Selection};
use tradewind_store::{Checksums, ErrorKind, ObjectInfo, Store};

/// An object and the store it is in.
type Placed<'a> = (&'a Arc<dyn Store>, ObjectInfo);

/// The name to explain.
pub(super) struct Explain<'a> {
    pub(super) name: String,
    pub(super) size_bytes: Option<u64>,
    pub(super) filter: ObjectFilter,
    /// The job that the name would be part of; without it only the rules are checked.
    pub(super) job: Option<Box<JobSpec>>,
    pub(super) opened: &'a Opened,
    pub(super) policy: RetryPolicy,
}

impl Explain<'_> {
    /// Prints a line with the verdict and the rule that decided; for a comparison also one line per destination.
    pub(super) async fn run(self, streams: &mut Streams) -> TaskResult {
        let selector = Selector::new(&self.filter)?;
        let Some(job) = &self.job else {
            self.by_rules(&selector, None, streams)?;
            return Ok(());
        };
        let (source_key, is_alone) = match &job.selection {
            Selection::Object { key } => (key.clone(), true),
            Selection::Prefix { prefix, .. } | Selection::List { prefix, .. } => {
                (format!("{prefix}{}", self.name), false)
            }
            Selection::Several { members, .. } => match key_of(members, &self.name) {
                Some(key) => (key, false),
                None => {
                    writeln!(streams.data, "excluded: {}: no source has this name", escaped(&self.name))?;
                    return Ok(());
                }
            },
        };
        let name = escaped(&self.name);
        if is_alone && source_key.rsplit('/').next() != Some(self.name.as_str()) {
            writeln!(streams.data, "excluded: {name}: the source is one object with another name")?;
            return Ok(());
        }
        if !is_alone && !selector.takes_name(&self.name) {
            self.by_rules(&selector, None, streams)?;
            return Ok(());
        }
        let source = self.opened.open(&job.source)?;
        let found = self.look(&source, &source_key, streams).await;
        let included = if is_alone {
            writeln!(streams.data, "included: {name}: it is the object that was named")?;
            true
        } else {
            self.by_rules(&selector, found.as_ref(), streams)?
        };
        let (Some(ours), Some(rule), true) = (found, job.compare, included) else { return Ok(()) };
        for target in &job.targets {
            let store = self.opened.open(&target.store)?;
            let name = if job.flatten { last_part(&self.name) } else { &self.name };
            let key = if is_alone { target.key.clone() } else { format!("{}{name}", target.key) };
            let line = self.at_destination(rule, (&source, ours.clone()), &store, &key).await?;
            writeln!(streams.data, "{line}")?;
        }
        Ok(())
    }

    /// Returns the object at the source, if it can be read.
    async fn look(&self, source: &Arc<dyn Store>, key: &str, streams: &mut Streams) -> Option<ObjectInfo> {
        let looked = self.policy.run("head", source.url(), || source.head(key)).await;
        looked
            .inspect_err(|error| match error.kind {
                ErrorKind::NotFound | ErrorKind::BucketNotFound => {
                    streams.say(&format!("note: no object has this name: {}", object_url(source.as_ref(), key)));
                }
                _ => streams.say(&format!("note: the object could not be read: {error}")),
            })
            .ok()
    }

    fn by_rules(
        &self,
        selector: &Selector,
        object: Option<&ObjectInfo>,
        streams: &mut Streams,
    ) -> Result<bool, TaskError> {
        let (size_bytes, modified) = match object {
            Some(object) => (Some(object.size_bytes), Some(object.modified_unix_ms)),
            None => (self.size_bytes, None),
        };
        let explanation = selector.explain(&self.name, size_bytes, modified);
        let verdict = if explanation.included { "included" } else { "excluded" };
        writeln!(streams.data, "{verdict}: {}: {}", escaped(&self.name), explanation.because)?;
        let filter = &self.filter;
        let wants_size = filter.size_min_bytes.is_some() || filter.size_max_bytes.is_some();
        let wants_time = filter.newer_than_unix_ms.is_some() || filter.older_than_unix_ms.is_some();
        if explanation.included && (wants_time && modified.is_none() || wants_size && size_bytes.is_none()) {
            streams.say("note: its size or time, which are not known, may still exclude it");
        }
        Ok(explanation.included)
    }

    /// Returns what `sync` would do at a destination, by the same decision.
    async fn at_destination(
        &self,
        rule: Comparison,
        ours: Placed<'_>,
        store: &Arc<dyn Store>,
        key: &str,
    ) -> Result<String, TaskError> {
        let url = shown_place(&object_url(store.as_ref(), key)).into_owned();
        let theirs = match self.policy.run("head", store.url(), || store.head(key)).await {
            Ok(theirs) => theirs,
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::BucketNotFound) => {
                return Ok(format!("would be copied: {url}: nothing exists there"));
            }
            Err(error) => return Err(error.into()),
        };
        let times = Times::between(ours.0.as_ref(), store.as_ref());
        let mut by_sum = ours.1.checksums.agrees_with(&theirs.checksums).is_some();
        let verdict = match compare::decide(rule, times, &ours.1, &theirs) {
            Verdict::NeedsChecksums => {
                by_sum |= (ours.1.checksums == Checksums::default()) != (theirs.checksums == Checksums::default());
                let ours = (ours.0, ours.1.clone());
                local_sums::decide_reading(rule, ours, (store, theirs.clone()), self.policy).await?
            }
            decided => decided,
        };
        Ok(match verdict {
            Verdict::Same => format!("would be skipped: {url}: {}", same(rule, times, by_sum, &ours.1, &theirs)),
            Verdict::Differs(how) => format!("would be copied: {url}: {}", differs(how, times)),
            Verdict::NeedsChecksums => format!("would be copied: {url}: {}", differs(Difference::Unproven, times)),
        })
    }
}

/// `by_sum` says whether there is a checksum to compare.
fn same(rule: Comparison, times: Times, by_sum: bool, ours: &ObjectInfo, theirs: &ObjectInfo) -> &'static str {
    match (rule, times) {
        (Comparison::Existing, _) => "it exists there, and --ignore-existing replaces nothing",
        (Comparison::Size, _) => "same size",
        (Comparison::Auto | Comparison::Checksum, _) if ours.size_bytes == 0 => "both are empty",
        (Comparison::Auto | Comparison::Checksum, _) if by_sum => "same size and checksum",
        (Comparison::Auto | Comparison::Checksum, _) if ours.etag.is_some() && ours.etag == theirs.etag => {
            "same size and ETag"
        }
        (_, Times::Kept { .. }) => "same size and time",
        (_, Times::OfWriting { .. }) => "same size, and not older than the source",
    }
}

fn differs(how: Difference, times: Times) -> &'static str {
    match (how, times) {
        (Difference::Size, _) => "the size differs",
        (Difference::Checksum, _) => "the checksum differs",
        (Difference::Time, Times::Kept { .. }) => "the time differs",
        (Difference::Time, Times::OfWriting { .. }) => {
            "it is older than the source, or the copy of a file with another time"
        }
        (Difference::Unproven, _) => "the stores have no checksum in common, so it may differ",
    }
}

/// Returns the key of the object that gets this name, for a job with several sources.
fn key_of(members: &[Member], name: &str) -> Option<String> {
    members.iter().find_map(|member| {
        let rest = name.strip_prefix(member.name.as_str())?;
        match (member.key.ends_with('/'), rest.strip_prefix('/')) {
            (true, Some(rest)) => Some(format!("{}{rest}", member.key)),
            (false, None) if rest.is_empty() => Some(member.key.clone()),
            _ => None,
        }
    })
}
