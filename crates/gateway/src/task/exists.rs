//! `exists`: whether a name that looks like a pattern is an object or a folder after all.

use super::error::TaskResult;
use super::folders::folder_of;
use super::streams::Streams;
use crate::retry::RetryPolicy;
use serde::Serialize;
use std::sync::Arc;
use tradewind_store::{Error, ErrorKind, ListRequest, Store};

#[derive(Serialize)]
struct Found {
    object: bool,
    folder: bool,
}

/// Prints what has exactly this name. A listing that fails is an error: the caller must not take the name for a pattern
/// because it could not be looked up.
pub(super) async fn exists(
    store: &Arc<dyn Store>,
    key: &str,
    policy: RetryPolicy,
    streams: &mut Streams,
) -> TaskResult {
    let folder = first_key(store, &folder_of(key), policy).await?.is_some();
    let object = !key.is_empty() && !key.ends_with('/') && has_object(store, key, policy).await?;
    Ok(streams.json_line(&Found { object, folder })?)
}

async fn has_object(store: &Arc<dyn Store>, key: &str, policy: RetryPolicy) -> Result<bool, Error> {
    match policy.run("head", store.url(), || store.head(key)).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
        // A user who may list but not read; the object itself is the first key that begins with its name.
        Err(error) if error.kind == ErrorKind::Forbidden => {
            Ok(first_key(store, key, policy).await?.is_some_and(|first| first == key))
        }
        Err(error) => Err(error),
    }
}

/// The first key that begins with `prefix`.
async fn first_key(store: &Arc<dyn Store>, prefix: &str, policy: RetryPolicy) -> Result<Option<String>, Error> {
    let mut request = ListRequest { prefix: prefix.to_owned(), max_keys: Some(1), ..ListRequest::default() };
    loop {
        let page = policy.run("list", store.url(), || store.list(&request)).await?;
        if let Some(object) = page.objects.into_iter().next() {
            return Ok(Some(object.key));
        }
        // A store may return an empty page before the last one.
        let Some(next) = page.continuation else { return Ok(None) };
        request.continuation = Some(next);
    }
}
