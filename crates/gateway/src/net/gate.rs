//! Limits handshakes, so that strangers with silent connections cannot keep the fleet out.
//!
//! A new connection is always admitted. If there are then too many, the gate ends the oldest handshake of the address
//! that has most of them. So many connections from one address only displace each other. Addresses with a recent
//! successful handshake are known; their handshakes are ended last. All IPv6 addresses of one /64 count as one address,
//! because one machine can use them all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// Most addresses that are remembered because a handshake from them succeeded; the one with the oldest success is
/// forgotten.
const KNOWN_ADDRESSES_MAX: usize = 256;

/// Limits of concurrent handshakes on one port.
#[derive(Clone, Copy, Debug)]
pub struct GateLimits {
    /// Most handshakes in total.
    pub handshakes_max: usize,
    /// Most handshakes from one address.
    pub per_address_max: usize,
}

/// The gate of one port (see the module's documentation). Cheap to clone.
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
    /// Known addresses, ordered by their last success, the latest at the back.
    known: VecDeque<IpAddr>,
}

#[derive(Debug)]
struct Waiting {
    address: IpAddr,
    evicted: CancellationToken,
}

/// Room for one handshake. Dropping it frees the room.
#[derive(Debug)]
pub struct Admission {
    gate: Gate,
    number: u64,
    address: IpAddr,
    evicted: CancellationToken,
}

/// Another handshake was admitted instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the handshake was dropped: too many from {0} were unfinished")]
pub struct Evicted(pub IpAddr);

/// The address under which a peer's handshakes are counted.
fn counted(address: IpAddr) -> IpAddr {
    // A dual-stack socket reports IPv4 addresses in mapped form.
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

impl Gate {
    /// Creates an empty gate.
    pub fn new(limits: GateLimits) -> Self {
        Self { limits, state: Arc::default() }
    }

    /// Admits a handshake with `address`. If there is no room, evicts another handshake.
    pub fn enter(&self, address: IpAddr) -> Admission {
        let address = counted(address);
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
        Admission { gate: self.clone(), number, address, evicted }
    }

    /// Ends one handshake, because the system has no room for a new connection. Returns whether there was one.
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

    /// Ends the oldest handshake of the address with most of them; chooses known addresses only if there are no others.
    fn evict_one(&mut self) -> bool {
        let mut counts: BTreeMap<IpAddr, (usize, Reverse<u64>)> = BTreeMap::new();
        for (number, waiting) in &self.waiting {
            counts.entry(waiting.address).or_insert((0, Reverse(*number))).0 += 1;
        }
        // Among addresses with equal counts, the one that has waited longest.
        let busiest = counts.into_iter().max_by_key(|(address, count)| (!self.known.contains(address), *count));
        busiest.inspect(|(address, _)| self.evict_oldest_of(*address)).is_some()
    }
}

impl Admission {
    /// Runs the handshake, and remembers the address if it succeeds.
    ///
    /// # Errors
    /// Another handshake was admitted instead.
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

impl Drop for Admission {
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
    fn a_crowd_from_one_address_only_takes_places_of_that_address() {
        let gate = gate();
        let other = gate.enter(address(9));
        let crowd: Vec<Admission> = (0..20).map(|_| gate.enter(address(1))).collect();
        assert!(!other.evicted.is_cancelled());
        let left = crowd.iter().filter(|admission| !admission.evicted.is_cancelled()).count();
        assert_eq!((left, gate.state().waiting.len()), (4, 5));
        drop(crowd);
        assert_eq!(gate.state().waiting.len(), 1);
    }

    #[test]
    fn one_network_of_ipv6_counts_as_one_address() {
        let gate = gate();
        let in_network = |network: u16, host: u16| IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, host]);
        let others = [gate.enter(in_network(2, 1)), gate.enter(address(9))];
        let crowd: Vec<Admission> = (0..20).map(|host| gate.enter(in_network(1, host))).collect();
        assert!(others.iter().all(|other| !other.evicted.is_cancelled()));
        let left = crowd.iter().filter(|admission| !admission.evicted.is_cancelled()).count();
        assert_eq!((left, gate.state().waiting.len()), (4, 6));
        assert_eq!(counted("::ffff:127.0.0.1".parse().unwrap()), address(1));
    }

    #[tokio::test]
    async fn handshakes_of_known_addresses_are_ended_last() {
        let gate = gate();
        let shaken: Result<Result<(), ()>, Evicted> = gate.enter(address(1)).hold(async { Ok(()) }).await;
        assert_eq!(shaken, Ok(Ok(())));
        let known: Vec<Admission> = (0..3).map(|_| gate.enter(address(1))).collect();
        let strangers: Vec<Admission> = (0..50).map(|last| gate.enter(address(100 + last))).collect();
        assert!(known.iter().all(|admission| !admission.evicted.is_cancelled()));
        assert_eq!(gate.state().waiting.len(), 8);
        assert!(gate.evict());
        assert_eq!(strangers.iter().filter(|admission| !admission.evicted.is_cancelled()).count(), 4);
        let evicted: Result<Result<(), ()>, Evicted> =
            strangers.into_iter().next().expect("many").hold(std::future::pending()).await;
        assert_eq!(evicted, Err(Evicted(address(100))));
    }
}
