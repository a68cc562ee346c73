//! Limits of bytes per second: one clock per client and direction, which reads of all its connections move forward.
//!
//! A read books its bytes when it ends: it moves the clock by the time that they take at the limit, and its connection reads
//! again when that moment has come. So the connections of a client take turns in the order in which they have read, and
//! a booking is one atomic operation for each buffer, whatever the number of connections.

use crate::limits::{PACE_BURST, PACE_PARTS_PER_SECOND, PACE_READ_BYTES_MIN, PACES_SWEPT_INTERVAL, RELAY_BUFFER_BYTES};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The limit of one client in one direction.
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
    pub(crate) fn read_bytes_max(&self) -> usize {
        match self.limit.load(Ordering::Relaxed) {
            0 => RELAY_BUFFER_BYTES,
            limit => usize::try_from(limit / PACE_PARTS_PER_SECOND)
                .unwrap_or(RELAY_BUFFER_BYTES)
                .clamp(PACE_READ_BYTES_MIN, RELAY_BUFFER_BYTES),
        }
    }

    /// Books bytes that were read. Returns when the connection may read again; `None`: at once.
    pub(crate) fn book(&self, bytes: usize) -> Option<Instant> {
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

/// Both directions of one client.
#[derive(Clone, Debug)]
pub(crate) struct ClientPace {
    pub(crate) up: Arc<Pace>,
    pub(crate) down: Arc<Pace>,
}

/// The limits of all clients. A client without connections is forgotten once its bytes are paid for.
#[derive(Debug)]
pub(crate) struct Paces {
    limit: Arc<AtomicU64>,
    clients: Mutex<Clients>,
}

#[derive(Debug)]
struct Clients {
    paces: HashMap<IpAddr, ClientPace>,
    swept: Instant,
}

impl Paces {
    /// `bytes_per_s` of one client in each direction. `None`: no limit.
    pub(crate) fn new(bytes_per_s: Option<u64>) -> Self {
        let clients = Clients { paces: HashMap::new(), swept: Instant::now() };
        Self { limit: Arc::new(AtomicU64::new(bytes_per_s.unwrap_or(0))), clients: Mutex::new(clients) }
    }

    /// Replaces the limit, also of open connections.
    pub(crate) fn set(&self, bytes_per_s: Option<u64>) {
        self.limit.store(bytes_per_s.unwrap_or(0), Ordering::Relaxed);
    }

    /// The limit of a client, which all its connections share.
    pub(crate) fn of(&self, client: IpAddr, now: Instant) -> ClientPace {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(clients.swept) >= PACES_SWEPT_INTERVAL {
            clients.swept = now;
            let is_used = |pace: &Arc<Pace>| Arc::strong_count(pace) > 1 || !pace.is_paid(now);
            clients.paces.retain(|_, pace| is_used(&pace.up) || is_used(&pace.down));
        }
        let pace = || Arc::new(Pace::new(self.limit.clone(), now));
        clients.paces.entry(client).or_insert_with(|| ClientPace { up: pace(), down: pace() }).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn a_client_waits_for_the_time_of_its_bytes_whatever_its_connections() {
        let now = Instant::now();
        let paces = Paces::new(Some(1_000_000));
        let (first, second) = (paces.of(client(1), now), paces.of(client(1), now));
        let at = |bytes, pace: &ClientPace| pace.up.book_at(bytes, 1_000_000, now);
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
        let count = || paces.clients.lock().unwrap().paces.len();
        drop(paces.of(client(3), now + PACES_SWEPT_INTERVAL));
        assert_eq!(count(), 2, "1 owes bytes, 3 is new");
        drop(paces.of(client(3), now + Duration::from_secs(6)));
        assert_eq!(count(), 1);
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
