//! Limits of bytes per second: one clock per client and direction, and one per destination and direction, which the reads of
//! all its connections move forward.
//!
//! A read books its bytes when it ends: it moves both clocks by the time that they take at the limit, and its connection reads
//! again when the later of both moments has come. So the connections of a client take turns in the order in which they have
//! read, and a booking is two atomic operations for each buffer, whatever the number of connections.

use crate::limits::{PACE_BURST, PACE_PARTS_PER_SECOND, PACE_READ_BYTES_MIN, PACES_SWEPT_INTERVAL, RELAY_BUFFER_BYTES};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The limit of one client or destination in one direction.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes per second; 0: no limit.
    limit: Arc<AtomicU64>,
    began: Instant,
    /// Time since `began` at which all booked bytes are paid for, in nanoseconds.
    paid_ns: AtomicU64,
}

impl Pace {
    fn new(limit: Arc<AtomicU64>, began: Instant) -> Self {
        Self { limit, began, paid_ns: AtomicU64::new(0) }
    }

    /// Most bytes of the next read: under a limit a small part of a second's, so that connections take turns.
    fn read_bytes_max(&self) -> usize {
        match self.limit.load(Ordering::Relaxed) {
            0 => RELAY_BUFFER_BYTES,
            limit => usize::try_from(limit / PACE_PARTS_PER_SECOND)
                .unwrap_or(RELAY_BUFFER_BYTES)
                .clamp(PACE_READ_BYTES_MIN, RELAY_BUFFER_BYTES),
        }
    }

    /// Books bytes that were read. Returns when the connection may read again; `None`: at once.
    fn book(&self, bytes: usize) -> Option<Instant> {
        match self.limit.load(Ordering::Relaxed) {
            0 => None,
            limit => self.book_at(bytes, limit, Instant::now()),
        }
    }

    fn book_at(&self, bytes: usize, limit: u64, now: Instant) -> Option<Instant> {
        let now_ns = nanoseconds(now.saturating_duration_since(self.began));
        // What was not used for long may be used at once, up to the burst.
        let least_ns = now_ns.saturating_sub(nanoseconds(PACE_BURST));
        let takes_ns = (bytes as u64).saturating_mul(1_000_000_000) / limit;
        let paid = |paid_ns: u64| paid_ns.max(least_ns).saturating_add(takes_ns);
        let before = self.paid_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid_ns| Some(paid(paid_ns)));
        let paid_ns = paid(before.unwrap_or_else(|paid_ns| paid_ns));
        (paid_ns > now_ns).then(|| now + Duration::from_nanos(paid_ns - now_ns))
    }

    fn is_paid(&self, now: Instant) -> bool {
        self.paid_ns.load(Ordering::Relaxed) <= nanoseconds(now.saturating_duration_since(self.began))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Both directions of one client or destination.
#[derive(Clone, Debug)]
pub(crate) struct BothWays {
    up: Arc<Pace>,
    down: Arc<Pace>,
}

/// The limits of a flow, towards its destination and towards its client.
#[derive(Debug)]
pub(crate) struct FlowPace {
    pub(crate) up: DirectionPace,
    pub(crate) down: DirectionPace,
}

impl FlowPace {
    pub(crate) fn new(client: BothWays, destination: BothWays) -> Self {
        Self { up: DirectionPace([client.up, destination.up]), down: DirectionPace([client.down, destination.down]) }
    }
}

/// The limits of a flow in one direction: that of its client and that of its destination.
#[derive(Debug)]
pub(crate) struct DirectionPace([Arc<Pace>; 2]);

impl DirectionPace {
    /// Most bytes of the next read.
    pub(crate) fn read_bytes_max(&self) -> usize {
        let [client, destination] = &self.0;
        client.read_bytes_max().min(destination.read_bytes_max())
    }

    /// Books bytes that were read, at both. Returns when the connection may read again; `None`: at once.
    pub(crate) fn book(&self, bytes: usize) -> Option<Instant> {
        self.0.iter().filter_map(|pace| pace.book(bytes)).max()
    }
}

/// The limits of all clients, or of all destinations. One without connections is forgotten once its bytes are paid for.
#[derive(Debug)]
pub(crate) struct Paces<Key> {
    limit: Arc<AtomicU64>,
    known: Mutex<Known<Key>>,
}

#[derive(Debug)]
struct Known<Key> {
    paces: HashMap<Key, BothWays>,
    swept: Instant,
}

impl<Key: Eq + Hash> Paces<Key> {
    /// `bytes_per_s` of each key in each direction. `None`: no limit.
    pub(crate) fn new(bytes_per_s: Option<u64>) -> Self {
        let known = Known { paces: HashMap::new(), swept: Instant::now() };
        Self { limit: Arc::new(AtomicU64::new(bytes_per_s.unwrap_or(0))), known: Mutex::new(known) }
    }

    /// Replaces the limit, also of open connections.
    pub(crate) fn set(&self, bytes_per_s: Option<u64>) {
        self.limit.store(bytes_per_s.unwrap_or(0), Ordering::Relaxed);
    }

    /// The limit of a key, which all its connections share.
    pub(crate) fn of(&self, key: Key, now: Instant) -> BothWays {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(known.swept) >= PACES_SWEPT_INTERVAL {
            known.swept = now;
            let is_used = |pace: &Arc<Pace>| Arc::strong_count(pace) > 1 || !pace.is_paid(now);
            known.paces.retain(|_, pace| is_used(&pace.up) || is_used(&pace.down));
        }
        let pace = || Arc::new(Pace::new(self.limit.clone(), now));
        known.paces.entry(key).or_insert_with(|| BothWays { up: pace(), down: pace() }).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn client(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn a_client_waits_for_the_time_of_its_bytes_whatever_its_connections() {
        let now = Instant::now();
        let paces = Paces::new(Some(1_000_000));
        let (first, second) = (paces.of(client(1), now), paces.of(client(1), now));
        let at = |bytes, pace: &BothWays| pace.up.book_at(bytes, 1_000_000, now);
        assert_eq!(at(500_000, &first), Some(now + Duration::from_millis(500)));
        assert_eq!(at(500_000, &second), Some(now + Duration::from_secs(1)));
        assert_eq!(at(500_000, &first), Some(now + Duration::from_millis(1_500)));
        assert_eq!(first.down.book_at(1, 1_000_000, now + PACE_BURST), None, "the other direction has its own");
        assert_eq!(at(500_000, &paces.of(client(2), now)), Some(now + Duration::from_millis(500)));
    }

    #[test]
    fn unused_time_counts_up_to_the_burst() {
        let now = Instant::now();
        let pace = Paces::new(Some(1_000)).of(client(1), now).up;
        let later = now + Duration::from_secs(100);
        let burst = usize::try_from(PACE_BURST.as_millis()).unwrap();
        assert_eq!(pace.book_at(burst, 1_000, later), None);
        assert_eq!(pace.book_at(1_000, 1_000, later), Some(later + Duration::from_secs(1)));
    }

    #[test]
    fn a_client_that_owes_nothing_is_forgotten() {
        let paces = Paces::new(Some(1_000));
        let now = Instant::now();
        paces.of(client(1), now).up.book_at(5_000, 1_000, now);
        drop(paces.of(client(2), now));
        let count = || paces.known.lock().unwrap().paces.len();
        drop(paces.of(client(3), now + PACES_SWEPT_INTERVAL));
        assert_eq!(count(), 2, "1 owes bytes, 3 is new");
        drop(paces.of(client(3), now + Duration::from_secs(6)));
        assert_eq!(count(), 1);
    }

    #[test]
    fn a_flow_waits_for_the_later_of_its_client_and_its_destination() {
        let now = Instant::now();
        let (clients, destinations) = (Paces::new(Some(1_000_000)), Paces::new(Some(100_000)));
        let up = |last, destination| FlowPace::new(clients.of(client(last), now), destinations.of(destination, now)).up;
        let waits = |pace: &DirectionPace| pace.book(100_000).map_or(Duration::ZERO, |until| until - now);
        let long = Duration::from_millis(700);
        assert!(waits(&up(1, "a:1")) >= long, "the destination is slower than the client");
        assert!(waits(&up(2, "a:1")) >= 2 * long, "another client, the same destination");
        assert!(waits(&up(1, "b:1")) >= long && waits(&up(3, "b:1")) >= 2 * long);
        assert_eq!(up(1, "a:1").read_bytes_max(), 100_000 / usize::try_from(PACE_PARTS_PER_SECOND).unwrap());
        destinations.set(None);
        assert!(waits(&up(1, "c:1")) < long, "the client has only its own limit now");
    }

    #[test]
    fn without_a_limit_nothing_waits_and_a_limit_may_come_later() {
        let paces = Paces::new(None);
        let pace = paces.of(client(1), Instant::now()).up;
        assert_eq!((pace.book(1 << 40), pace.read_bytes_max()), (None, RELAY_BUFFER_BYTES));
        paces.set(Some(500_000));
        assert!(pace.book(500_000).is_some());
        assert!((PACE_READ_BYTES_MIN..RELAY_BUFFER_BYTES).contains(&pace.read_bytes_max()));
    }
}
