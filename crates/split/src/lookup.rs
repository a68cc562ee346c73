//! Looks names up, at most so many at once.

use crate::refusal::{Cause, Refusal};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Runs a lookup on a thread of its own, if one of the `places` is free. The operating system cannot be told to give a
/// lookup up, so one that nobody awaits any more goes on, and keeps its place until it ends.
pub(crate) async fn look_up(
    places: &Arc<Semaphore>,
    lookup: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> Result<Vec<SocketAddr>, Refusal> {
    let full = |_| Refusal::new(Cause::Limit, "too many name lookups at once");
    let place = places.clone().try_acquire_owned().map_err(full)?;
    let looked_up = spawn_blocking(move || {
        let _place = place;
        lookup()
    });
    match looked_up.await {
        Ok(found) => found.map_err(|error| Refusal::new(Cause::NameNotFound, error.to_string())),
        Err(error) => Err(Refusal::new(Cause::Broken, error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn a_lookup_that_nobody_awaits_keeps_its_place_until_it_ends() {
        let places = Arc::new(Semaphore::new(1));
        let (end, ended) = mpsc::channel::<()>();
        let (began, has_begun) = tokio::sync::oneshot::channel::<()>();
        let slow = look_up(&places, move || {
            let _ = began.send(());
            let _ = ended.recv();
            Ok(Vec::new())
        });
        tokio::select! {
            _ = slow => panic!("the lookup ended before it was let go"),
            begun = has_begun => begun.unwrap(),
        }
        let refused = look_up(&places, || Ok(Vec::new())).await.unwrap_err();
        assert_eq!(refused.cause, Cause::Limit);
        drop(end);
        drop(places.acquire().await.unwrap());
        assert_eq!(look_up(&places, || Ok(Vec::new())).await, Ok(Vec::new()));
        let missing = look_up(&places, || Err(io::ErrorKind::NotFound.into())).await.unwrap_err();
        assert_eq!(missing.cause, Cause::NameNotFound);
    }
}
