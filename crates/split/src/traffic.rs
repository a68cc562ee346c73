//! Counts the flows of a proxy by route and destination.

use crate::limits::TRAFFIC_MAX;
use crate::relay::Bytes;
use crate::status::Traffic;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The counts of one route to one destination.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    connections: AtomicU64,
    failed: AtomicU64,
    pub(crate) bytes: Bytes,
}

/// A listener's name, a route, and a destination; `None` for the flows over the same next proxy that are counted
/// together.
type Kind = (Option<String>, Vec<String>, Option<String>);

/// The counts of all kinds of flows.
#[derive(Debug, Default)]
pub(crate) struct Tallies(Mutex<BTreeMap<Kind, Arc<Tally>>>);

impl Tallies {
    /// Counts a flow, and returns where its bytes are counted.
    pub(crate) fn established(&self, listener: Option<&str>, route: &[String], destination: &str) -> Arc<Tally> {
        let tally = self.of(listener, route, destination);
        tally.connections.fetch_add(1, Ordering::Relaxed);
        tally
    }

    /// Counts a flow that was not established.
    pub(crate) fn failed(&self, listener: Option<&str>, route: &[String], destination: &str) {
        self.of(listener, route, destination).failed.fetch_add(1, Ordering::Relaxed);
    }

    fn of(&self, listener: Option<&str>, route: &[String], destination: &str) -> Arc<Tally> {
        let mut tallies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kind = (listener.map(ToOwned::to_owned), route.to_vec(), Some(destination.to_owned()));
        if tallies.len() >= TRAFFIC_MAX && !tallies.contains_key(&kind) {
            // The next proxy is one of the configuration, so these are few.
            kind = (None, route.first().cloned().into_iter().collect(), None);
        }
        tallies.entry(kind).or_default().clone()
    }

    /// The counts now.
    pub(crate) fn traffic(&self) -> Vec<Traffic> {
        let tallies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = tallies.iter().map(|((listener, through, destination), tally)| Traffic {
            listener: listener.clone(),
            destination: destination.clone(),
            through: through.clone(),
            connections: tally.connections.load(Ordering::Relaxed),
            failed: tally.failed.load(Ordering::Relaxed),
            bytes_up: tally.bytes.up.load(Ordering::Relaxed),
            bytes_down: tally.bytes.down.load(Ordering::Relaxed),
        });
        counted.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_limit_flows_are_counted_together() {
        let tallies = Tallies::default();
        for index in 0..TRAFFIC_MAX + 3 {
            tallies.established(Some("a"), &[], &format!("host-{index}:1"));
        }
        tallies.established(Some("a"), &[], "host-0:1");
        let traffic = tallies.traffic();
        assert_eq!(traffic.len(), TRAFFIC_MAX + 1);
        let of = |destination: Option<&str>| {
            traffic.iter().find(|each| each.destination.as_deref() == destination).unwrap().connections
        };
        assert_eq!((of(None), of(Some("host-0:1"))), (3, 2));
    }
}
