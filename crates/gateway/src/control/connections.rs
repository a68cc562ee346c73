//! Places for control connections. Peers that may not control the gateway have few places, and never those of
//! controllers: a stolen key of one relay must not block the renewal of another gateway's lease.

use crate::limits::{CONTROL_CONNECTIONS_MAX, CONTROL_CONNECTIONS_PER_PEER_MAX, CONTROL_PEER_CONNECTIONS_MAX};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// All places of one port. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ConnectionPlaces {
    controllers: Arc<Semaphore>,
    peers: Peers,
}

/// Number of connections of each peer that may not control the gateway, by name.
#[derive(Clone, Debug, Default)]
struct Peers(Arc<Mutex<HashMap<String, usize>>>);

/// A place for one connection. Dropping it frees the place.
#[derive(Debug)]
pub(super) enum ConnectionPlace {
    /// A place for a controller.
    Controller { _permit: OwnedSemaphorePermit },
    /// A place for another peer.
    Peer { _place: PeerPlace },
}

/// See [`ConnectionPlace::Peer`].
#[derive(Debug)]
pub(super) struct PeerPlace {
    peers: Peers,
    name: String,
}

impl ConnectionPlaces {
    /// All places, free.
    pub(super) fn new() -> Self {
        Self { controllers: Arc::new(Semaphore::new(CONTROL_CONNECTIONS_MAX)), peers: Peers::default() }
    }

    /// Takes a place for a controller, if one is free.
    pub(super) fn enter_controller(&self) -> Option<ConnectionPlace> {
        let permit = self.controllers.clone().try_acquire_owned().ok()?;
        Some(ConnectionPlace::Controller { _permit: permit })
    }

    /// Takes a place for the peer `name`, if one is free and the peer does not have too many.
    pub(super) fn enter_peer(&self, name: &str) -> Option<ConnectionPlace> {
        let mut open = self.peers.lock();
        let (of_all, of_peer) = (open.values().sum::<usize>(), open.get(name).copied().unwrap_or(0));
        if of_all >= CONTROL_PEER_CONNECTIONS_MAX || of_peer >= CONTROL_CONNECTIONS_PER_PEER_MAX {
            return None;
        }
        open.insert(name.to_owned(), of_peer + 1);
        let place = PeerPlace { peers: self.peers.clone(), name: name.to_owned() };
        Some(ConnectionPlace::Peer { _place: place })
    }
}

impl Peers {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PeerPlace {
    fn drop(&mut self) {
        let mut open = self.peers.lock();
        if let Some(count) = open.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_have_few_places_and_those_of_controllers_stay_free() {
        let places = ConnectionPlaces::new();
        let enter = |name: &str| std::iter::from_fn(|| places.enter_peer(name)).collect::<Vec<_>>();
        let of_relay = enter("relay");
        assert_eq!(of_relay.len(), CONTROL_CONNECTIONS_PER_PEER_MAX);
        let others: Vec<_> = (0..CONTROL_CONNECTIONS_MAX).map(|number| enter(&format!("other-{number}"))).collect();
        let open = of_relay.len() + others.iter().map(Vec::len).sum::<usize>();
        assert_eq!(open, CONTROL_PEER_CONNECTIONS_MAX);
        let controllers: Vec<_> = std::iter::from_fn(|| places.enter_controller()).collect();
        assert_eq!(controllers.len(), CONTROL_CONNECTIONS_MAX);
        drop((of_relay, others));
        assert!(places.peers.lock().is_empty());
        assert!(places.enter_peer("relay").is_some());
    }
}
