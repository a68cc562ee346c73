//! Checksums of files. File systems store none, so a file is read if the other side of the comparison has a checksum.

use crate::lead::compare::{self, Times, Verdict};
use crate::reading::{Summing, windows};
use crate::retry::RetryPolicy;
use futures::TryStreamExt;
use std::sync::Arc;
use tradewind_contract::Comparison;
use tradewind_store::{Checksums, Error, ObjectInfo, Store};

/// Pieces of one file that are read ahead.
const WINDOWS_MAX: usize = 2;

/// Compares two objects whose attributes (`HEAD`) are known. If one is a file and only the other side has a checksum,
/// reads the file, unless times decide. Reads two files if only checksums decide.
///
/// # Errors
/// A file cannot be read.
pub async fn decide_reading(
    rule: Comparison,
    source: (&Arc<dyn Store>, ObjectInfo),
    target: (&Arc<dyn Store>, ObjectInfo),
    policy: RetryPolicy,
) -> Result<Verdict, Error> {
    let ((source, mut ours), (target, mut theirs)) = (source, target);
    let times = Times::between(source.as_ref(), target.as_ref());
    let is_decided =
        rule == Comparison::Time || rule == Comparison::Auto && compare::is_decided_by_time(times, &ours, &theirs);
    if ours.size_bytes == theirs.size_bytes && !is_decided {
        if rule == Comparison::Checksum && is_file(source) && is_file(target) {
            ours.checksums = read(source.as_ref(), &ours, &Checksums::default(), policy).await?;
        }
        fill(source, &mut ours, &theirs.checksums, policy).await?;
        fill(target, &mut theirs, &ours.checksums, policy).await?;
    }
    Ok(compare::decide_headed(rule, times, &ours, &theirs))
}

async fn fill(
    store: &Arc<dyn Store>,
    object: &mut ObjectInfo,
    stated: &Checksums,
    policy: RetryPolicy,
) -> Result<(), Error> {
    let silent = object.checksums == Checksums::default();
    if silent && *stated != Checksums::default() && is_file(store) {
        object.checksums = read(store.as_ref(), object, stated, policy).await?;
    }
    Ok(())
}

/// Returns whether the objects of a store are files.
pub fn is_file(store: &Arc<dyn Store>) -> bool {
    store.url().starts_with("file:")
}

/// Reads the object and returns the checksums needed to compare it with `stated`.
///
/// # Errors
/// The object cannot be read, or is no longer in the given state.
pub async fn read(
    store: &dyn Store,
    object: &ObjectInfo,
    stated: &Checksums,
    policy: RetryPolicy,
) -> Result<Checksums, Error> {
    let mut summing = Summing::against(stated);
    let mut windows = std::pin::pin!(windows(store, object, 0..object.size_bytes, WINDOWS_MAX, policy));
    while let Some(segments) = windows.try_next().await? {
        segments.iter().for_each(|segment| summing.update(segment));
    }
    Ok(summing.finish())
}
