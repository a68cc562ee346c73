//! Looks up the objects and folders that a task names.

use super::error::TaskError;
use crate::failure::object_url;
use crate::lead::pages::{Listing, NameSpan};
use crate::lead::select::Selector;
use crate::retry::RetryPolicy;
use futures::StreamExt;
use std::sync::Arc;
use tradewind_contract::Outcome;
use tradewind_store::{Skips, Store};

/// Returns whether anything exists below a key that is not an object. A failed listing counts as empty.
pub(super) async fn is_folder(store: &Arc<dyn Store>, key: &str, policy: RetryPolicy) -> bool {
    let (store, prefix) = (store.clone(), folder_of(key));
    let listing = Listing::new(store, prefix, policy, NameSpan::default(), Skips::default());
    let Ok(pages) = listing.in_any_order().await else { return false };
    let first = std::pin::pin!(pages).next().await;
    first.is_some_and(|page| page.is_ok_and(|page| !page.objects.is_empty()))
}

/// Returns the error if nothing was found in the folder `prefix`, of which the filter left out `excluded` objects.
/// `advice` says what to do with the URL of an object that has the folder's name.
pub(super) async fn nothing_in(
    store: &Arc<dyn Store>,
    prefix: &str,
    (selector, excluded): (&Selector, u64),
    policy: RetryPolicy,
    advice: impl Fn(&str) -> String,
) -> TaskError {
    let url = object_url(store.as_ref(), prefix);
    let (url, excluded) = selector.missing(&url, excluded);
    let has_wildcards = selector.within().is_some();
    match object_instead(store, prefix, policy).await.filter(|_| excluded == 0 && !has_wildcards) {
        Some(object) => no_directory(&object, &advice(&object)),
        None => TaskError::nothing_selected(&url, excluded),
    }
}

/// Returns whether a place exists although its listing has no entry: a whole bucket or directory, whose listing fails if
/// it is missing. A prefix exists only as the beginning of keys.
pub(super) fn is_only_empty(prefix: &str, selector: &Selector, excluded: u64) -> bool {
    prefix.is_empty() && excluded == 0 && selector.within().is_none()
}

pub(super) fn no_directory(url: &str, advice: &str) -> TaskError {
    TaskError::ended(Outcome::SourceNotFound, format!("{url} is an object, not a directory"), Some(advice))
}

/// Returns the URL of the object that has the name of a folder. One that cannot be looked up does not count.
pub(super) async fn object_instead(store: &Arc<dyn Store>, folder: &str, policy: RetryPolicy) -> Option<String> {
    let key = folder.trim_end_matches('/');
    let is_object = !key.is_empty() && policy.run("head", store.url(), || store.head(key)).await.is_ok();
    is_object.then(|| object_url(store.as_ref(), key))
}

/// A prefix means a folder: `te` is everything below `te/`, never `test/`.
pub(super) fn folder_of(prefix: &str) -> String {
    if prefix.is_empty() || prefix.ends_with('/') { prefix.to_owned() } else { format!("{prefix}/") }
}
