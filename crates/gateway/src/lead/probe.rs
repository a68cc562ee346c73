//! Probes the destinations before the first object, so that a missing bucket or rejected credentials are reported once
//! and not once per object.

use std::sync::Arc;
use std::time::Duration;
use tradewind_contract::{JobSpec, Selection};
use tradewind_store::{Error, ErrorKind, ListRequest, Store};

/// A destination that does not answer within this time is left to the first object.
const PROBE_MAX: Duration = Duration::from_secs(5);

/// Returns, for each destination, why nothing can be written there; `None` if no reason is known. A store that forbids
/// listing may still accept writes, so only errors that apply to every request count. A single object needs no probe,
/// since it is one itself, and neither does the only destination of a sync that deletes nothing, which is listed at once
/// (a deletion needs the server's clock before). A dry run writes nothing and needs none either.
pub async fn shut_targets(job: &JobSpec, targets: &[Arc<dyn Store>]) -> Vec<Option<Error>> {
    let is_prefix = matches!(job.selection, Selection::Prefix { .. });
    let is_listed = job.compare.is_some() && job.delete.is_none() && !job.flatten && is_prefix;
    let is_one = matches!(job.selection, Selection::Object { .. });
    if job.dry_run || is_one || (is_listed && targets.len() == 1) {
        return vec![None; targets.len()];
    }
    let probes = targets.iter().zip(&job.targets).map(|(store, target)| probe(store.as_ref(), &target.key));
    futures::future::join_all(probes).await
}

async fn probe(store: &dyn Store, prefix: &str) -> Option<Error> {
    if store.makes_root() {
        return None;
    }
    let request = ListRequest { prefix: prefix.to_owned(), max_keys: Some(1), ..ListRequest::default() };
    let answer = tokio::time::timeout(PROBE_MAX, store.list(&request)).await.ok()?;
    answer.err().filter(|error| matches!(error.kind, ErrorKind::BucketNotFound | ErrorKind::Unauthenticated))
}
