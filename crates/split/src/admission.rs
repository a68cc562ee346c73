//! Limits of connections: in all, per client, per destination, and accepted per second.

use crate::config::Limits;
use crate::refusal::{Cause, Refusal};
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The party that a connection counts for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Client(IpAddr),
    /// An address from which proxies connect, until they have shown who they are.
    Opening(IpAddr),
    Proxy(String),
    Destination(String),
}

#[derive(Debug)]
struct Counts {
    limits: Limits,
    open: usize,
    by_key: HashMap<Key, usize>,
    /// Accepts that are still possible now, at most those of one second.
    tokens: f64,
    filled: Instant,
}

/// Counts the open connections of a proxy.
#[derive(Debug)]
pub(crate) struct Admission {
    counts: Mutex<Counts>,
}

/// One place. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
    /// `None`: a place of the total.
    key: Option<Key>,
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        let tokens = f64::from(limits.accepts_per_second_max);
        let counts = Counts { limits, open: 0, by_key: HashMap::new(), tokens, filled: Instant::now() };
        Arc::new(Self { counts: Mutex::new(counts) })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the limits. Places that are taken stay taken.
    pub(crate) fn set_limits(&self, limits: Limits) {
        self.counts().limits = limits;
    }

    /// Connections that have a place now.
    pub(crate) fn open(&self) -> usize {
        self.counts().open
    }

    /// Takes a place of the total and one accept of this second.
    pub(crate) fn accept(self: &Arc<Self>, now: Instant) -> Result<Place, Refusal> {
        let mut counts = self.counts();
        let rate = f64::from(counts.limits.accepts_per_second_max);
        let since = now.saturating_duration_since(counts.filled).as_secs_f64();
        counts.tokens = (counts.tokens + since * rate).min(rate);
        counts.filled = now;
        if counts.tokens < 1.0 {
            return Err(Refusal::new(Cause::Limit, "accepts per second"));
        }
        if counts.open >= counts.limits.connections_max {
            return Err(Refusal::new(Cause::Limit, "connections"));
        }
        counts.tokens -= 1.0;
        counts.open += 1;
        Ok(Place { admission: self.clone(), key: None })
    }

    /// Takes a place of a client or destination.
    pub(crate) fn enter(self: &Arc<Self>, key: Key) -> Result<Place, Refusal> {
        let mut counts = self.counts();
        let most = match key {
            Key::Client(_) => counts.limits.connections_per_client_max,
            Key::Opening(_) | Key::Proxy(_) => counts.limits.connections_per_proxy_max,
            Key::Destination(_) => counts.limits.connections_per_destination_max,
        };
        let count = counts.by_key.entry(key.clone()).or_insert(0);
        if *count >= most {
            let refusal = Refusal::new(Cause::Limit, format!("connections of {key:?}"));
            if *count == 0 {
                counts.by_key.remove(&key);
            }
            return Err(refusal);
        }
        *count += 1;
        Ok(Place { admission: self.clone(), key: Some(key) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.admission.counts();
        let Some(key) = &self.key else {
            counts.open -= 1;
            return;
        };
        if let Some(count) = counts.by_key.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                counts.by_key.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn admission() -> Arc<Admission> {
        let limits = Limits {
            connections_max: 3,
            connections_per_client_max: 2,
            connections_per_destination_max: 1,
            accepts_per_second_max: 4,
            ..Limits::default()
        };
        Admission::new(limits)
    }

    #[test]
    fn places_are_limited_and_freed() {
        let admission = admission();
        let now = Instant::now();
        let places: Vec<_> = (0..3).map(|_| admission.accept(now).unwrap()).collect();
        assert_eq!(admission.accept(now).unwrap_err().cause, Cause::Limit);
        drop(places);
        assert_eq!(admission.open(), 0);
        admission.accept(now).unwrap();
    }

    #[test]
    fn accepts_are_limited_per_second() {
        let admission = admission();
        let now = Instant::now();
        for _ in 0..4 {
            admission.accept(now).unwrap();
        }
        assert_eq!(admission.accept(now).unwrap_err().detail, "accepts per second");
        admission.accept(now + Duration::from_millis(250)).unwrap();
    }

    #[test]
    fn a_key_that_nobody_holds_is_forgotten() {
        let admission = admission();
        let client = Key::Client("10.0.0.1".parse().unwrap());
        let places: Vec<_> = (0..2).map(|_| admission.enter(client.clone()).unwrap()).collect();
        assert!(admission.enter(client).is_err());
        let destination = admission.enter(Key::Destination("a:1".to_owned())).unwrap();
        assert!(admission.enter(Key::Destination("a:1".to_owned())).is_err());
        admission.enter(Key::Destination("b:1".to_owned())).unwrap();
        drop((places, destination));
        assert!(admission.counts().by_key.is_empty());
    }
}
