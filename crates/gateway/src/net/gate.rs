//! Limits handshakes, so that strangers that open silent connections cannot keep the fleet out.
//!
//! A new connection is always let in. Where that makes too many, the longest-waiting handshake of the address that has
//! most of them ends in its place, so a crowd from one address costs that address its own places. Addresses from which
//! a handshake has succeeded lately are known, and give way last.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// Addresses that are remembered because a handshake from them succeeded; the longest-unheard one is forgotten.
const KNOWN_ADDRESSES_MAX: usize = 256;

/// How many handshakes one port holds at once.
#[derive(Clone, Copy, Debug)]
pub struct GateLimits {
    /// In all.
    pub handshakes_max: usize,
    /// From one address.
    pub per_address_max: usize,
}

/// See the module's head. One per port; cheap to clone.
#[derive(Clone, Debug)]
pub struct Gate {
    limits: GateLimits,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// By age.
    waiting: BTreeMap<u64, Waiting>,
    /// The one heard last stands last.
    known: VecDeque<IpAddr>,
}

#[derive(Debug)]
struct Waiting {
    address: IpAddr,
    evicted: CancellationToken,
}

/// A place for one handshake, until it is dropped.
#[derive(Debug)]
pub struct Place {
    gate: Gate,
    number: u64,
    address: IpAddr,
    evicted: CancellationToken,
}

/// Another handshake has taken the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the handshake was dropped: too many from {0} were unfinished")]
pub struct Evicted(pub IpAddr);

impl Gate {
    /// An empty one.
    pub fn new(limits: GateLimits) -> Self {
        Self { limits, state: Arc::default() }
    }

    /// A place for a handshake with `address`, at another's cost if need be.
    pub fn enter(&self, address: IpAddr) -> Place {
        // A dual-stack socket writes IPv4 addresses in another form.
        let address = address.to_canonical();
        let mut state = self.state();
        let of_address = state.waiting.values().filter(|waiting| waiting.address == address).count();
        if of_address >= self.limits.per_address_max {
            state.evict_oldest_of(address);
        } else if state.waiting.len() >= self.limits.handshakes_max {
            state.evict_one();
        }
        let (number, evicted) = (state.next, CancellationToken::new());
        state.next += 1;
        state.waiting.insert(number, Waiting { address, evicted: evicted.clone() });
        drop(state);
        Place { gate: self.clone(), number, address, evicted }
    }

    /// Ends one handshake, because the system has no room for a new connection. Returns whether there was any.
    pub fn evict(&self) -> bool {
        self.state().evict_one()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn evict_oldest_of(&mut self, address: IpAddr) {
        let oldest = self.waiting.iter().find(|(_, waiting)| waiting.address == address).map(|(number, _)| *number);
        if let Some(waiting) = oldest.and_then(|number| self.waiting.remove(&number)) {
            waiting.evicted.cancel();
        }
    }

    /// The oldest of the address with most handshakes; known addresses only where there are no others.
    fn evict_one(&mut self) -> bool {
        let mut counts: BTreeMap<IpAddr, (usize, Reverse<u64>)> = BTreeMap::new();
        for (number, waiting) in &self.waiting {
            counts.entry(waiting.address).or_insert((0, Reverse(*number))).0 += 1;
        }
        // Of several that have as many, the one that waits for longest.
        let busiest = counts.into_iter().max_by_key(|(address, count)| (!self.known.contains(address), *count));
        busiest.inspect(|(address, _)| self.evict_oldest_of(*address)).is_some()
    }
}

impl Place {
    /// Runs the handshake in its place, and remembers the address if it succeeds.
    ///
    /// # Errors
    /// Another handshake has taken the place.
    pub async fn hold<T, E>(self, handshake: impl Future<Output = Result<T, E>>) -> Result<Result<T, E>, Evicted> {
        let done = self.evicted.run_until_cancelled(handshake).await.ok_or(Evicted(self.address))?;
        if done.is_ok() {
            let mut state = self.gate.state();
            state.known.retain(|known| *known != self.address);
            state.known.push_back(self.address);
            if state.known.len() > KNOWN_ADDRESSES_MAX {
                state.known.pop_front();
            }
        }
        Ok(done)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gate.state().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    fn gate() -> Gate {
        Gate::new(GateLimits { handshakes_max: 8, per_address_max: 4 })
    }

    #[test]
    fn a_crowd_from_one_address_costs_that_address_its_own_places() {
        let gate = gate();
        let other = gate.enter(address(9));
        let crowd: Vec<Place> = (0..20).map(|_| gate.enter(address(1))).collect();
        assert!(!other.evicted.is_cancelled());
        let left = crowd.iter().filter(|place| !place.evicted.is_cancelled()).count();
        assert_eq!((left, gate.state().waiting.len()), (4, 5));
        drop(crowd);
        assert_eq!(gate.state().waiting.len(), 1);
    }

    #[tokio::test]
    async fn known_addresses_give_way_last() {
        let gate = gate();
        let shaken: Result<Result<(), ()>, Evicted> = gate.enter(address(1)).hold(async { Ok(()) }).await;
        assert_eq!(shaken, Ok(Ok(())));
        let known: Vec<Place> = (0..3).map(|_| gate.enter(address(1))).collect();
        let strangers: Vec<Place> = (0..50).map(|last| gate.enter(address(100 + last))).collect();
        assert!(known.iter().all(|place| !place.evicted.is_cancelled()));
        assert_eq!(gate.state().waiting.len(), 8);
        assert!(gate.evict());
        assert_eq!(strangers.iter().filter(|place| !place.evicted.is_cancelled()).count(), 4);
        let evicted: Result<Result<(), ()>, Evicted> =
            strangers.into_iter().next().expect("many").hold(std::future::pending()).await;
        assert_eq!(evicted, Err(Evicted(address(100))));
    }
}
