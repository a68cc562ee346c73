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
    pub(crate) bytes: Bytes,
}

/// A route, and a destination; `None` for the flows that are counted together.
type Pair = (Vec<String>, Option<String>);

/// The counts of all pairs of a route and a destination.
#[derive(Debug, Default)]
pub(crate) struct Tallies(Mutex<BTreeMap<Pair, Arc<Tally>>>);

impl Tallies {
    /// Counts a flow, and returns where its bytes are counted.
    pub(crate) fn established(&self, route: &[String], destination: &str) -> Arc<Tally> {
        let mut tallies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pair = (route.to_vec(), Some(destination.to_owned()));
        if tallies.len() >= TRAFFIC_MAX && !tallies.contains_key(&pair) {
            pair = (Vec::new(), None);
        }
        let tally = tallies.entry(pair).or_default().clone();
        tally.connections.fetch_add(1, Ordering::Relaxed);
        tally
    }

    /// The counts now.
    pub(crate) fn traffic(&self) -> Vec<Traffic> {
        let tallies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = tallies.iter().map(|((through, destination), tally)| Traffic {
            destination: destination.clone(),
            through: through.clone(),
            connections: tally.connections.load(Ordering::Relaxed),
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
            tallies.established(&[], &format!("host-{index}:1"));
        }
        tallies.established(&[], "host-0:1");
        let traffic = tallies.traffic();
        assert_eq!(traffic.len(), TRAFFIC_MAX + 1);
        let of = |destination: Option<&str>| {
            traffic.iter().find(|each| each.destination.as_deref() == destination).unwrap().connections
        };
        assert_eq!((of(None), of(Some("host-0:1"))), (3, 2));
    }
}
