//! Removes what no run will finish: uploads, and temporary files of small objects.

use crate::lead::journal::{Entry, Intent, Journal, JournalError, UnfinishedUpload};
use crate::retry::RetryPolicy;
use futures::StreamExt;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tradewind_store::{Error, ErrorKind, PendingUpload, Store, UploadId};

/// Searches for uploads, and aborts, in flight at once.
pub const ABORTS_AT_ONCE_MAX: usize = 8;

/// An upload that the store dates up to this long before its intent may still be ours. The store's answers give its
/// clock to within a second or two, and the machines of a store may differ a little.
const CLOCK_DIFFERENCE_MS_MAX: i64 = 60 * 1000;

/// The result of a sweep.
#[derive(Clone, Debug, Default)]
pub struct SweepEnd {
    /// Uploads aborted, and temporary files of small objects removed.
    pub aborted: u64,
    /// Uploads, files, or searches for them, that failed; they stay recorded for the next sweep.
    pub failed: Vec<Error>,
}

/// Name, without the number of the destination, of the lists in the job's folder of the small files that a run is writing.
const WRITE_LIST: &str = "writes-";

/// The paths of the lists, one for each destination. Only file systems have one.
pub fn write_lists(dir: &Path, targets: &[Arc<dyn Store>]) -> Vec<PathBuf> {
    (0..targets.len()).map(|index| dir.join(format!("{WRITE_LIST}{index}"))).collect()
}

/// Removes the temporary files of small objects that earlier runs were writing when they ended. No run may be writing.
pub async fn remove_unfinished_writes(dir: &Path, targets: &[Arc<dyn Store>]) -> SweepEnd {
    let mut end = SweepEnd::default();
    for (store, list) in targets.iter().zip(write_lists(dir, targets)) {
        match store.remove_listed_writes(&list).await {
            Ok(removed) => end.aborted += removed,
            Err(error) => end.failed.push(error),
        }
    }
    end
}

/// Notes from now on which small files are being written.
///
/// # Errors
/// A list cannot be created.
pub async fn list_writes(dir: &Path, targets: &[Arc<dyn Store>]) -> Result<(), Error> {
    for (store, list) in targets.iter().zip(write_lists(dir, targets)) {
        store.list_writes(&list).await?;
    }
    Ok(())
}

/// The fate of intents whose uploads were searched for and aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intents {
    /// They stay in the journal for another sweep: a gateway of a killed run, or a slow store, may still open an upload.
    Kept,
    /// They are over.
    Forgotten,
}

/// Aborts the uploads that no run can resume: superseded uploads, and uploads that may have been opened although their
/// ids never reached us. The latter are the store's uploads of exactly the intended keys, opened since the intent,
/// whose ids are not in the journal. Call it before a resumed job opens its own uploads, or after a job has ended them.
///
/// # Errors
/// The journal cannot be read or written.
pub async fn abort_orphans(
    journal: &Journal,
    targets: &[Arc<dyn Store>],
    policy: RetryPolicy,
    intents_are: Intents,
) -> Result<SweepEnd, JournalError> {
    let mut end = abort_known(journal, journal.superseded().await?, targets, policy).await?;
    let mut known: HashMap<(u16, String), Vec<UploadId>> = HashMap::new();
    for upload in journal.unfinished().await?.into_iter().chain(journal.superseded().await?) {
        known.entry((upload.intent.target, upload.intent.target_key)).or_default().push(upload.upload);
    }
    let intents = journal.pending_intents().await?;
    let searches = futures::stream::iter(intents.into_iter().map(|intent| {
        let known = known.get(&(intent.target, intent.target_key.clone())).cloned().unwrap_or_default();
        async move {
            let aborted = abort_orphans_of(&intent, &known, targets, policy).await;
            (intent, aborted)
        }
    }));
    let mut searches = std::pin::pin!(searches.buffer_unordered(ABORTS_AT_ONCE_MAX));
    while let Some((intent, aborted)) = searches.next().await {
        match aborted {
            Ok(aborted) => {
                end.aborted += aborted;
                if intents_are == Intents::Forgotten {
                    let Intent { target, target_key, .. } = intent;
                    journal.record(Entry::Abandoned { target, target_key, upload: None }).await?;
                }
            }
            Err(error) => end.failed.push(error),
        }
    }
    journal.flush().await?;
    Ok(end)
}

/// Aborts the orphans and every upload that the journal knows. After it the job can no longer be resumed inside an
/// upload; objects that are done stay done.
///
/// # Errors
/// The journal cannot be read or written.
pub async fn abort_all(
    journal: &Journal,
    targets: &[Arc<dyn Store>],
    policy: RetryPolicy,
) -> Result<SweepEnd, JournalError> {
    let mut end = abort_orphans(journal, targets, policy, Intents::Forgotten).await?;
    let known = abort_known(journal, journal.unfinished().await?, targets, policy).await?;
    end.aborted += known.aborted;
    end.failed.extend(known.failed);
    Ok(end)
}

async fn abort_known(
    journal: &Journal,
    uploads: Vec<UnfinishedUpload>,
    targets: &[Arc<dyn Store>],
    policy: RetryPolicy,
) -> Result<SweepEnd, JournalError> {
    let aborts = futures::stream::iter(uploads.into_iter().map(|upload| async move {
        let aborted = abort(&upload.intent, &upload.upload, targets, policy).await;
        (upload, aborted)
    }));
    let mut aborts = std::pin::pin!(aborts.buffer_unordered(ABORTS_AT_ONCE_MAX));
    let mut end = SweepEnd::default();
    while let Some((UnfinishedUpload { intent, upload, .. }, aborted)) = aborts.next().await {
        match aborted {
            Ok(()) => {
                end.aborted += 1;
                let Intent { target, target_key, .. } = intent;
                journal.record(Entry::Abandoned { target, target_key, upload: Some(upload) }).await?;
            }
            Err(error) => end.failed.push(error),
        }
    }
    journal.flush().await?;
    Ok(end)
}

/// Aborts the uploads of the intended key that were opened since the intent. Returns how many.
///
/// # Errors
/// The error of the store.
pub(crate) async fn abort_orphans_of(
    intent: &Intent,
    known: &[UploadId],
    targets: &[Arc<dyn Store>],
    policy: RetryPolicy,
) -> Result<u64, Error> {
    let store = target_of(intent, targets)?;
    let pending = match policy.run("list uploads", store.url(), || store.pending_uploads(&intent.target_key)).await {
        Ok(pending) => pending,
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::BucketNotFound) => return Ok(0),
        Err(error) => return Err(error),
    };
    let ahead_ms = store.clock_ahead_s().saturating_mul(1000);
    let oldest_unix_ms = intent.intent_unix_ms.saturating_sub(ahead_ms).saturating_sub(CLOCK_DIFFERENCE_MS_MAX);
    let mut aborted = 0;
    let is_orphan = |found: &PendingUpload| found.opened_unix_ms >= oldest_unix_ms && !known.contains(&found.upload);
    for upload in pending.into_iter().filter(is_orphan) {
        abort(intent, &upload.upload, targets, policy).await?;
        aborted += 1;
    }
    Ok(aborted)
}

async fn abort(
    intent: &Intent,
    upload: &UploadId,
    targets: &[Arc<dyn Store>],
    policy: RetryPolicy,
) -> Result<(), Error> {
    let store = target_of(intent, targets)?;
    let aborted = policy.run("abort upload", store.url(), || store.abort_upload(&intent.target_key, upload)).await;
    match aborted {
        Err(error) if matches!(error.kind, ErrorKind::UploadNotFound | ErrorKind::BucketNotFound) => Ok(()),
        aborted => aborted,
    }
}

fn target_of<'a>(intent: &Intent, targets: &'a [Arc<dyn Store>]) -> Result<&'a dyn Store, Error> {
    let store = targets.get(usize::from(intent.target)).map(Arc::as_ref);
    store.ok_or_else(|| {
        let message = format!("the journal names destination {}, but the job has {}", intent.target, targets.len());
        Error::new(ErrorKind::Configuration, "abort upload", intent.target_key.clone(), message)
    })
}

#[cfg(test)]
mod tests;
