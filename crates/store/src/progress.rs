//! Signs of life of a request whose body says nothing of how far it is: a server that copies or puts parts together
//! sends white space, or reports that it is not done yet.
//!
//! The caller scopes a request with [`with_progress`]; what happens deep inside it counts itself with [`sign_of_life`].
//! A task-local and not an argument, because only the innermost readers of answers know, and only watchdogs care.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

tokio::task_local! {
    static PROGRESS: Arc<AtomicU64>;
}

/// Runs `request`; each sign of life of the server adds to `progress`.
pub async fn with_progress<F: Future>(progress: Arc<AtomicU64>, request: F) -> F::Output {
    PROGRESS.scope(progress, request).await
}

/// The server sent something.
pub(crate) fn sign_of_life() {
    // Without a scope nobody watches.
    let _ = PROGRESS.try_with(|progress| progress.fetch_add(1, Ordering::Relaxed));
}
