//! Limits of connections: in all, per client, per destination, and accepted per second.
//!
//! A *stranger* is an address that must show a token or a certificate and has not done so lately. Strangers have a budget
//! of accepts and a share of the places of their own, so that they cannot use up those of clients. One stranger gets at most
//! half of each. All IPv6 addresses of one /64 count as one stranger, because one machine can use them all.

use crate::config::Limits;
use crate::limits::{KNOWN_FOR, KNOWN_MAX, LOOKUPS_PER_CLIENT_MAX, LOOKUPS_PER_PROXY_MAX, STRANGERS_PART};
use crate::rates::{Bucket, Rates};
use crate::refusal::{Cause, Refusal};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
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
    /// A client, for the names that are looked up for it.
    LookupsOfClient(IpAddr),
    /// The same of a proxy.
    LookupsOfProxy(String),
}

impl Key {
    /// Describes what is refused: `counted` of this party.
    fn party(&self, counted: &str) -> String {
        match self {
            Self::Client(address) => format!("{counted} of client {address}"),
            Self::Opening(address) => format!("{counted} of proxies at {address} without a request"),
            Self::Proxy(name) => format!("{counted} of proxy {name}"),
            Self::Destination(destination) => format!("{counted} to {destination}"),
            Self::LookupsOfClient(address) => format!("name lookups for client {address}"),
            Self::LookupsOfProxy(name) => format!("name lookups for proxy {name}"),
        }
    }
}

/// The party whose accepts per second are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Rated {
    Stranger(IpAddr),
    Client(IpAddr),
    Destination(String),
}

#[derive(Debug)]
struct Counts {
    limits: Limits,
    open: usize,
    /// Open connections of strangers, in all and of each.
    strangers: usize,
    by_stranger: HashMap<IpAddr, usize>,
    by_key: HashMap<Key, usize>,
    /// Accepts that are still possible now, at most those of one second.
    accepts: Bucket,
    stranger_accepts: Bucket,
    rates: Rates<Rated>,
    /// Addresses that have shown a token or a certificate, and when.
    known: HashMap<IpAddr, Instant>,
}

impl Counts {
    fn is_known(&self, address: IpAddr, now: Instant) -> bool {
        self.known.get(&address).is_some_and(|shown| now.saturating_duration_since(*shown) < KNOWN_FOR)
    }

    /// Remembers an address, in place of the oldest one if there is no room.
    fn remember(&mut self, address: IpAddr, now: Instant) {
        if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&address) {
            let oldest = self.known.iter().min_by_key(|(_, shown)| **shown).map(|(address, _)| *address);
            oldest.map(|oldest| self.known.remove(&oldest));
        }
        self.known.insert(address, now);
    }

    /// Takes an accept and a place of a stranger.
    fn admit_stranger(&mut self, stranger: IpAddr, now: Instant) -> Result<(), Refusal> {
        let most = (self.limits.connections_max / STRANGERS_PART).max(1);
        if self.strangers >= most {
            return Err(over("connections of strangers"));
        }
        if self.by_stranger.get(&stranger).copied().unwrap_or_default() >= (most / 2).max(1) {
            return Err(over(format_args!("connections of stranger {stranger}")));
        }
        let (each, all) = (self.limits.accepts_per_client(), self.limits.accepts_of_strangers());
        if !self.rates.take(Rated::Stranger(stranger), each, now) || !self.stranger_accepts.take(all, now) {
            return Err(over("accepts of strangers per second"));
        }
        self.strangers += 1;
        *self.by_stranger.entry(stranger).or_insert(0) += 1;
        Ok(())
    }

    /// Frees the place of a stranger.
    fn free_stranger(&mut self, stranger: IpAddr) {
        self.strangers -= 1;
        if let Entry::Occupied(mut places) = self.by_stranger.entry(stranger) {
            *places.get_mut() -= 1;
            if *places.get() == 0 {
                places.remove();
            }
        }
    }

    fn take_accept(&mut self, now: Instant) -> Result<(), Refusal> {
        let rate = f64::from(self.limits.accepts_per_second_max);
        self.accepts.take(rate, now).then_some(()).ok_or_else(|| over("accepts per second"))
    }
}

/// The address under which a stranger is counted.
fn stranger(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
    }
}

fn over(what: impl fmt::Display) -> Refusal {
    Refusal::new(Cause::Limit, format!("too many {what}"))
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
    /// The stranger that has a place of the total.
    stranger: Option<IpAddr>,
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        let now = Instant::now();
        let accepts = Bucket::full(f64::from(limits.accepts_per_second_max), now);
        let stranger_accepts = Bucket::full(limits.accepts_of_strangers(), now);
        let (by_key, by_stranger, rates, known) = (HashMap::new(), HashMap::new(), Rates::new(now), HashMap::new());
        let counts =
            Counts { limits, open: 0, strangers: 0, by_stranger, by_key, accepts, stranger_accepts, rates, known };
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

    /// Takes a place of the total and one accept of this second. `needs_proof`: the listener serves only those who show a
    /// token or a certificate.
    pub(crate) fn accept(self: &Arc<Self>, address: IpAddr, needs_proof: bool, now: Instant) -> Result<Place, Refusal> {
        let mut counts = self.counts();
        if counts.open >= counts.limits.connections_max {
            return Err(over("connections"));
        }
        let stranger = (needs_proof && !counts.is_known(address, now)).then(|| stranger(address));
        match stranger {
            Some(stranger) => counts.admit_stranger(stranger, now)?,
            None => counts.take_accept(now)?,
        }
        counts.open += 1;
        Ok(Place { admission: self.clone(), key: None, stranger })
    }

    /// Takes a place of a client or destination, and one of its accepts of this second.
    pub(crate) fn enter(self: &Arc<Self>, key: Key, now: Instant) -> Result<Place, Refusal> {
        let mut counts = self.counts();
        let (most, rated) = match &key {
            Key::Client(address) => (
                counts.limits.connections_per_client_max,
                Some((Rated::Client(*address), counts.limits.accepts_per_client())),
            ),
            Key::Opening(_) | Key::Proxy(_) => (counts.limits.connections_per_proxy_max, None),
            Key::LookupsOfClient(_) => (LOOKUPS_PER_CLIENT_MAX, None),
            Key::LookupsOfProxy(_) => (LOOKUPS_PER_PROXY_MAX, None),
            Key::Destination(destination) => (
                counts.limits.connections_per_destination_max,
                Some((Rated::Destination(destination.clone()), counts.limits.accepts_per_destination())),
            ),
        };
        if counts.by_key.get(&key).copied().unwrap_or_default() >= most {
            return Err(over(key.party("connections")));
        }
        if let Some((rated, rate)) = rated
            && !counts.rates.take(rated, rate, now)
        {
            return Err(over(key.party("accepts per second")));
        }
        *counts.by_key.entry(key.clone()).or_insert(0) += 1;
        Ok(Place { admission: self.clone(), key: Some(key), stranger: None })
    }

    /// Takes the places of a name lookup for a client, and for the proxy that names it.
    pub(crate) fn look_up(
        self: &Arc<Self>,
        client: IpAddr,
        proxy: Option<&str>,
        now: Instant,
    ) -> Result<(Place, Option<Place>), Refusal> {
        let of_proxy = proxy.map(|name| self.enter(Key::LookupsOfProxy(name.to_owned()), now)).transpose()?;
        Ok((self.enter(Key::LookupsOfClient(client.to_canonical()), now)?, of_proxy))
    }

    /// Takes in that an address has shown a wrong token or certificate, or none: it is a stranger from now on.
    pub(crate) fn unproven(&self, address: IpAddr) {
        self.counts().known.remove(&address);
    }
}

impl Place {
    /// Takes in that the peer has shown a token or a certificate. A stranger then takes an accept of clients.
    pub(crate) fn proven(&mut self, address: IpAddr, now: Instant) -> Result<(), Refusal> {
        let mut counts = self.admission.counts();
        counts.remember(address, now);
        if let Some(stranger) = self.stranger.take() {
            counts.free_stranger(stranger);
            return counts.take_accept(now);
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.admission.counts();
        let Some(key) = &self.key else {
            counts.open -= 1;
            if let Some(stranger) = self.stranger {
                counts.free_stranger(stranger);
            }
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
            connections_max: 8,
            connections_per_client_max: 2,
            connections_per_destination_max: 1,
            accepts_per_second_max: 8,
            ..Limits::default()
        };
        Admission::new(limits)
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn places_are_limited_and_freed() {
        let admission = admission();
        let now = Instant::now();
        let places: Vec<_> = (0..8).map(|_| admission.accept(address(1), false, now).unwrap()).collect();
        let later = now + Duration::from_secs(1);
        assert_eq!(admission.accept(address(1), false, later).unwrap_err().detail, "too many connections");
        drop(places);
        assert_eq!(admission.open(), 0);
        admission.accept(address(1), false, later).unwrap();
    }

    #[test]
    fn accepts_are_limited_per_second() {
        let admission = admission();
        let now = Instant::now();
        for _ in 0..8 {
            admission.accept(address(1), false, now).unwrap();
        }
        assert_eq!(admission.accept(address(1), false, now).unwrap_err().detail, "too many accepts per second");
        admission.accept(address(1), false, now + Duration::from_millis(125)).unwrap();
    }

    #[test]
    fn strangers_have_places_and_accepts_of_their_own() {
        let admission = admission();
        let now = Instant::now();
        let refused = |last| admission.accept(address(last), true, now).unwrap_err().detail;
        let held = admission.accept(address(1), true, now).unwrap();
        assert_eq!(refused(1), "too many connections of stranger 192.0.2.1");
        let held = (held, admission.accept(address(2), true, now).unwrap());
        assert_eq!(refused(3), "too many connections of strangers");
        drop(held);
        // One address gets half of the budget of all strangers.
        for _ in 0..3 {
            admission.accept(address(1), true, now).unwrap();
        }
        assert_eq!(refused(1), "too many accepts of strangers per second");
        for _ in 0..3 {
            admission.accept(address(2), true, now).unwrap();
        }
        assert_eq!(refused(3), "too many accepts of strangers per second");
        for _ in 0..8 {
            admission.accept(address(9), false, now).unwrap();
        }
    }

    #[test]
    fn an_address_that_has_shown_a_token_is_no_stranger_until_it_shows_a_wrong_one() {
        let admission = admission();
        let now = Instant::now();
        let mut first = admission.accept(address(1), true, now).unwrap();
        first.proven(address(1), now).unwrap();
        drop(first);
        for _ in 0..8 {
            drop(admission.accept(address(2), true, now));
            drop(admission.accept(address(3), true, now));
        }
        for _ in 0..7 {
            admission.accept(address(1), true, now).unwrap().proven(address(1), now).unwrap();
        }
        assert_eq!(admission.accept(address(1), true, now).unwrap_err().detail, "too many accepts per second");
        let later = now + Duration::from_secs(1);
        admission.unproven(address(1));
        assert!(admission.accept(address(1), true, later).unwrap().stranger.is_some());
        let mut again = admission.accept(address(1), true, later).unwrap();
        again.proven(address(1), later).unwrap();
        assert!(admission.accept(address(1), true, later).unwrap().stranger.is_none());
        let forgotten = later + KNOWN_FOR;
        assert!(admission.accept(address(1), true, forgotten).unwrap().stranger.is_some());
        drop(again);
        assert_eq!((admission.open(), admission.counts().strangers), (0, 0));
        assert!(admission.counts().by_stranger.is_empty());
    }

    #[test]
    fn one_network_of_ipv6_is_one_stranger() {
        let (admission, now) = (Admission::new(Limits { connections_max: 16, ..Limits::default() }), Instant::now());
        let accept = |address: &str| admission.accept(address.parse().unwrap(), true, now);
        let _held: Vec<_> = ["2001:db8::1", "2001:db8::2"].map(|address| accept(address).unwrap()).into();
        let refused = accept("2001:db8::3").unwrap_err().detail;
        assert_eq!(refused, "too many connections of stranger 2001:db8::");
        let _other: Vec<_> = ["2001:db8:0:1::1", "192.0.2.1"].map(|address| accept(address).unwrap()).into();
        assert_eq!(accept("192.0.2.2").unwrap_err().detail, "too many connections of strangers");
    }

    #[test]
    fn known_addresses_are_bounded() {
        let admission = admission();
        let now = Instant::now();
        for number in 0..=u32::try_from(KNOWN_MAX).unwrap() {
            let address = std::net::Ipv4Addr::from_bits(number).into();
            admission.counts().remember(address, now + Duration::from_millis(number.into()));
        }
        let counts = admission.counts();
        assert_eq!((counts.known.len(), counts.known.contains_key(&IpAddr::from([0; 4]))), (KNOWN_MAX, false));
    }

    #[test]
    fn one_client_cannot_use_up_the_accepts_of_the_others() {
        let admission = admission();
        let now = Instant::now();
        let client = |last| Key::Client(address(last));
        for _ in 0..4 {
            admission.enter(client(1), now).unwrap();
        }
        let refused = admission.enter(client(1), now).unwrap_err();
        assert_eq!(refused.detail, "too many accepts per second of client 192.0.2.1");
        admission.enter(client(2), now).unwrap();
        admission.enter(client(1), now + Duration::from_millis(250)).unwrap();
    }

    #[test]
    fn accepts_of_a_destination_are_limited_if_the_configuration_says_so() {
        let limits = Limits { accepts_per_second_per_destination_max: Some(1), ..Limits::default() };
        let (admission, now) = (Admission::new(limits), Instant::now());
        let to = |name: &str| Key::Destination(name.to_owned());
        admission.enter(to("a:1"), now).unwrap();
        assert!(admission.enter(to("a:1"), now).is_err());
        admission.enter(to("b:1"), now).unwrap();
        admission.enter(to("a:1"), now + Duration::from_secs(1)).unwrap();
    }

    #[test]
    fn one_client_cannot_use_up_the_name_lookups_of_the_others() {
        let (admission, now) = (Admission::new(Limits::default()), Instant::now());
        let look_up = |last| admission.look_up(address(last), None, now);
        let held: Vec<_> = (0..LOOKUPS_PER_CLIENT_MAX).map(|_| look_up(1).unwrap()).collect();
        let refused = look_up(1).unwrap_err();
        assert_eq!((refused.cause, &*refused.detail), (Cause::Limit, "too many name lookups for client 192.0.2.1"));
        let _other = look_up(2).unwrap();
        drop(held);
        let _again = look_up(1).unwrap();
    }

    #[test]
    fn one_proxy_cannot_use_up_the_name_lookups_of_the_others_whichever_clients_it_names() {
        let (admission, now) = (Admission::new(Limits::default()), Instant::now());
        let look_up = |client, proxy| admission.look_up(address(client), Some(proxy), now);
        let held: Vec<_> = (0..LOOKUPS_PER_PROXY_MAX).map(|number| look_up(number as u8, "a").unwrap()).collect();
        assert_eq!(look_up(255, "a").unwrap_err().detail, "too many name lookups for proxy a");
        let _other = look_up(255, "b").unwrap();
        drop(held);
        let _again = look_up(255, "a").unwrap();
    }

    #[test]
    fn a_refused_lookup_holds_no_place() {
        let (admission, now) = (Admission::new(Limits::default()), Instant::now());
        let look_up = |client| admission.look_up(address(client), Some("a"), now);
        let held: Vec<_> = (0..LOOKUPS_PER_CLIENT_MAX).map(|_| look_up(1).unwrap()).collect();
        for _ in 0..LOOKUPS_PER_PROXY_MAX {
            look_up(1).unwrap_err();
        }
        let _other = look_up(2).unwrap();
        drop(held);
    }

    #[test]
    fn a_refusal_names_the_party_plainly() {
        let keys = [
            (Key::Client(address(1)), "connections of client 192.0.2.1"),
            (Key::Opening(address(1)), "connections of proxies at 192.0.2.1 without a request"),
            (Key::Proxy("a".to_owned()), "connections of proxy a"),
            (Key::Destination("a:1".to_owned()), "connections to a:1"),
        ];
        for (key, text) in keys {
            assert_eq!(key.party("connections"), text);
        }
    }

    #[test]
    fn a_key_that_nobody_holds_is_forgotten() {
        let (admission, now) = (admission(), Instant::now());
        let client = Key::Client(address(1));
        let places: Vec<_> = (0..2).map(|_| admission.enter(client.clone(), now).unwrap()).collect();
        assert!(admission.enter(client, now).is_err());
        let destination = admission.enter(Key::Destination("a:1".to_owned()), now).unwrap();
        assert!(admission.enter(Key::Destination("a:1".to_owned()), now).is_err());
        admission.enter(Key::Destination("b:1".to_owned()), now).unwrap();
        drop((places, destination));
        assert!(admission.counts().by_key.is_empty());
    }
}
