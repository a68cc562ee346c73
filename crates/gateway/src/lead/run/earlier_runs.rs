//! Adds objects of earlier runs to the report. The run that copied an object has reported it, unless it was killed or
//! the report's disk was full.

use super::context::Context;
use crate::failure::object_url;
use crate::lead::journal::{DoneObject, Journal};
use crate::lead::report::{ObjectVerdict, ProofRecord, Report, Verdict};
use std::io;
use tradewind_contract::{JobSpec, Selection};

/// Number of journal objects that are checked together.
const PAGE_OBJECTS: usize = 4096;
/// Stands for each proof of an object that an earlier run has proven, as in the summary.
const EARLIER_RUN: &str = "earlier run";

/// Adds a line for each object that is done in the journal but missing in the report.
pub(super) async fn report_earlier(context: &Context, journal: &Journal, report: &Report) -> io::Result<()> {
    let done = journal.done_set().map_err(io::Error::other)?;
    if done.is_empty() {
        return Ok(());
    }
    let listed = report.listed().await?;
    let mut last = None;
    loop {
        let page = done.objects_after(last, PAGE_OBJECTS).await.map_err(io::Error::other)?;
        for object in &page {
            if let Some(line) = earlier_line(context, object)
                && !listed.contains(&line.destination)
            {
                report.add(&line).await;
            }
        }
        last = page.into_iter().next_back();
        if last.is_none() {
            return Ok(());
        }
    }
}

/// The report line of an object; `None` for a destination that the job does not have.
fn earlier_line(context: &Context, object: &DoneObject) -> Option<ObjectVerdict> {
    let DoneObject { target, target_key, size_bytes } = object;
    let store = context.targets.get(usize::from(*target))?;
    let source = source_key(&context.job, *target, target_key);
    let proof = || EARLIER_RUN.to_owned();
    Some(ObjectVerdict {
        source: source.map(|key| object_url(context.source.as_ref(), &key)).unwrap_or_default(),
        destination: object_url(store.as_ref(), target_key),
        size_bytes: *size_bytes,
        verdict: Verdict::Copied,
        proof: Some(ProofRecord { source: proof(), hop: proof(), destination: proof() }),
        ..ObjectVerdict::default()
    })
}

/// The source key of a copy.
fn source_key(job: &JobSpec, target: u16, target_key: &str) -> Option<String> {
    if job.flatten && !matches!(job.selection, Selection::Object { .. }) {
        return None; // The name does not say in which directory it was.
    }
    let name = || target_key.strip_prefix(&job.targets.get(usize::from(target))?.key);
    match &job.selection {
        Selection::Object { key } => Some(key.clone()),
        Selection::Prefix { prefix, .. } | Selection::List { prefix, .. } => Some(format!("{prefix}{}", name()?)),
        Selection::Several { members, .. } => {
            let name = name()?;
            members.iter().find_map(|member| match name.strip_prefix(&member.name)? {
                "" => Some(member.key.clone()),
                rest => rest.strip_prefix('/').map(|rest| format!("{}{rest}", member.key)),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_a_copy_is_found_by_its_name() {
        let source = |selection: serde_json::Value, key: &str, target_key: &str| {
            let job = serde_json::json!({
                "source": { "url": "file:///from" },
                "selection": selection,
                "targets": [{ "store": { "url": "file:///to" }, "key": key }],
            });
            source_key(&serde_json::from_value(job).unwrap(), 0, target_key)
        };
        let object = serde_json::json!({ "kind": "object", "key": "a/b" });
        assert_eq!(source(object, "x", "x").as_deref(), Some("a/b"));
        let prefix = serde_json::json!({ "kind": "prefix", "prefix": "p/" });
        assert_eq!(source(prefix.clone(), "to/", "to/a/b").as_deref(), Some("p/a/b"));
        assert_eq!(source(prefix, "to/", "elsewhere"), None);
        let members = [("p/log", "log"), ("p/logs/", "logs"), ("q/", "l")];
        let members = members.map(|(key, name)| serde_json::json!({ "key": key, "name": name }));
        let several = serde_json::json!({ "kind": "several", "members": members });
        for (target_key, expected) in
            [("to/log", "p/log"), ("to/logs/a", "p/logs/a"), ("to/l/a/b", "q/a/b"), ("to/logs/", "p/logs/")]
        {
            assert_eq!(source(several.clone(), "to/", target_key).as_deref(), Some(expected));
        }
        assert_eq!(source(several, "to/", "to/other"), None);
    }
}
