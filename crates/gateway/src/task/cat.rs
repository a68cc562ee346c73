//! `cat`: writes objects to stdout, one after the other.

use super::{Streams, TaskError, TaskResult};
use crate::failure::object_url;
use crate::reading::{Summing, windows};
use crate::retry::RetryPolicy;
use futures::TryStreamExt;
use std::io::Write;
use std::sync::Arc;
use tradewind_contract::Outcome;
use tradewind_store::Store;

/// Most windows of one object that are read concurrently.
const WINDOWS_MAX: usize = 8;

/// Writes the objects in the order of `keys`. The bytes of each are compared with the store's checksum after they have been
/// written: a mismatch is an error with its own exit code, but the bytes are already out.
pub(super) async fn cat(
    store: Arc<dyn Store>,
    keys: &[String],
    policy: RetryPolicy,
    streams: &mut Streams,
) -> TaskResult {
    for key in keys {
        let info = policy.run("head", store.url(), || store.head(key)).await?;
        let mut summing = Summing::against(&info.checksums);
        let mut windows = std::pin::pin!(windows(store.as_ref(), &info, WINDOWS_MAX, policy));
        while let Some(segments) = windows.try_next().await? {
            for segment in segments {
                summing.update(&segment);
                streams.data.write_all(&segment)?;
            }
        }
        if summing.finish().agrees_with(&info.checksums) == Some(false) {
            let url = object_url(store.as_ref(), key);
            let message = format!("the bytes read from {url} do not have the checksum that the store states");
            return Err(TaskError::ended(Outcome::Mismatch, message, Some("do not use the output")));
        }
    }
    Ok(())
}
