//! The allow-list of destinations, and the addresses that no wide rule covers.

use crate::destination::{Destination, Host, parse_port, split_port};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A set of addresses: a network, or one address without `/`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

impl Network {
    /// True if the network contains an address. IPv4 addresses in IPv6 form count as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                (base.to_bits() ^ address.to_bits()) & mask == 0
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                (base.to_bits() ^ address.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (base, prefix) = text.split_once('/').map_or((text, None), |(base, prefix)| (base, Some(prefix)));
        let base = base.parse::<IpAddr>().map_err(|_| format!("{text:?} is not an address or network"))?;
        let longest = if base.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => longest,
            Some(prefix) => prefix.parse().map_err(|_| format!("{text:?} has a bad prefix length"))?,
        };
        let canonical = base.to_canonical();
        // The bits before the IPv4 address, if it is in IPv6 form.
        let form = if canonical.is_ipv4() { longest - 32 } else { 0 };
        if !(form..=longest).contains(&prefix) {
            return Err(format!("{text:?} has a bad prefix length"));
        }
        Ok(Self { base: canonical, prefix: prefix - form })
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    /// One address.
    Exactly(IpAddr),
    Network(Network),
    Name(String),
    /// All names below a domain, with its leading dot.
    Below(String),
}

/// A pattern for destinations: `host:port`. The host is a name, `*.domain`, an address or a network; the port is a
/// number, `first-last` or `*`. IPv6 is in brackets: `[2001:db8::/32]:443`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern {
    hosts: Hosts,
    ports: RangeInclusive<u16>,
}

impl Pattern {
    /// True if the pattern matches a destination as it was requested, before its name is resolved.
    pub fn matches(&self, destination: &Destination) -> bool {
        self.ports.contains(&destination.port)
            && match (&self.hosts, &destination.host) {
                (Hosts::Exactly(only), Host::Address(address)) => only == address,
                (Hosts::Network(network), Host::Address(address)) => network.contains(*address),
                (Hosts::Name(only), Host::Name(name)) => only == name,
                (Hosts::Below(domain), Host::Name(name)) => name.ends_with(domain),
                _ => false,
            }
    }

    fn lists_exactly(&self, address: IpAddr, port: u16) -> bool {
        self.ports.contains(&port) && self.hosts == Hosts::Exactly(address)
    }

    /// True if it matches a port of all addresses of the version of IP that `every` is of.
    fn is_all_of(&self, every: IpAddr, port: u16) -> bool {
        self.ports.contains(&port) && self.hosts == Hosts::Network(Network { base: every, prefix: 0 })
    }

    fn is_of_addresses(&self) -> bool {
        matches!(self.hosts, Hosts::Exactly(_) | Hosts::Network(_))
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, ports) = split_port(text)?;
        let ports = match ports.split_once('-') {
            _ if ports == "*" => 1..=u16::MAX,
            None => parse_port(ports)?..=parse_port(ports)?,
            Some((first, last)) => parse_port(first)?..=parse_port(last)?,
        };
        if ports.is_empty() || *ports.start() == 0 {
            return Err(format!("{text:?} matches no port"));
        }
        let hosts = if let Some(domain) = host.strip_prefix("*.") {
            match domain.parse()? {
                Host::Name(domain) => Hosts::Below(format!(".{domain}")),
                Host::Address(_) => return Err(format!("{text:?} mixes `*` and an address")),
            }
        } else if host.contains('/') {
            Hosts::Network(host.parse()?)
        } else {
            match host.parse()? {
                Host::Address(address) => Hosts::Exactly(address),
                Host::Name(name) => Hosts::Name(name),
            }
        };
        Ok(Self { hosts, ports })
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The destinations that a proxy serves. An empty list serves none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct AllowList {
    patterns: Vec<Pattern>,
}

impl AllowList {
    /// The destinations that match one of the patterns.
    pub fn new(patterns: Vec<Pattern>) -> Self {
        Self { patterns }
    }

    /// True if a destination may be requested. For a name without a rule of its own, this is so if a rule of addresses
    /// has its port: then the exit decides by [`AllowList::allows_address`].
    pub fn allows_request(&self, destination: &Destination) -> bool {
        match &destination.host {
            Host::Address(address) => self.allows_address(destination, *address),
            Host::Name(_) => {
                let by_address =
                    |pattern: &Pattern| pattern.is_of_addresses() && pattern.ports.contains(&destination.port);
                self.patterns.iter().any(|pattern| pattern.matches(destination) || by_address(pattern))
            }
        }
    }

    /// True if a destination has a rule of its own: a name counts by rules of names only, whatever it resolves to.
    pub fn lists(&self, destination: &Destination) -> bool {
        match &destination.host {
            Host::Address(address) => self.allows_address(destination, *address),
            Host::Name(_) => self.patterns.iter().any(|pattern| pattern.matches(destination)),
        }
    }

    /// True if a destination may be requested of a proxy that resolves names itself: a name needs a rule of its own, or
    /// rules for all addresses.
    pub fn allows_unresolved(&self, destination: &Destination) -> bool {
        let allows_all = |every: IpAddr| self.patterns.iter().any(|pattern| pattern.is_all_of(every, destination.port));
        let every = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        self.lists(destination) || (matches!(destination.host, Host::Name(_)) && every.into_iter().all(allows_all))
    }

    /// True if a destination may be dialed at an address to which it resolved.
    pub fn allows_address(&self, destination: &Destination, address: IpAddr) -> bool {
        let (address, port) = (address.to_canonical(), destination.port);
        if is_special(address) {
            return self.patterns.iter().any(|pattern| pattern.lists_exactly(address, port));
        }
        let resolved = Destination { host: Host::Address(address), port };
        self.patterns.iter().any(|pattern| pattern.matches(destination) || pattern.matches(&resolved))
    }
}

/// Addresses of metadata services outside the link-local networks: Azure, Alibaba, Oracle, AWS (of machines and of
/// pods), Google.
const METADATA: [IpAddr; 6] = [
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// True if an address is reachable only from the proxy's own machine or link, or is a metadata service. Only a rule
/// for exactly this address allows it: a name or network may contain it by mistake, or by an attack on the DNS.
pub fn is_special(address: IpAddr) -> bool {
    if METADATA.contains(&address) {
        return true;
    }
    match address {
        IpAddr::V4(v4) => {
            v4.octets()[0] == 0 || v4.is_loopback() || v4.is_link_local() || v4.is_multicast() || v4.is_broadcast()
        }
        IpAddr::V6(v6) => match embedded_v4(v6) {
            Some(v4) => is_special(IpAddr::V4(v4)),
            None if local_translations(v6).into_iter().any(|v4| is_special(IpAddr::V4(v4))) => true,
            None => v6.is_unspecified() || v6.is_loopback() || v6.is_unicast_link_local() || v6.is_multicast(),
        },
    }
}

/// The IPv4 address that a translator (NAT64, 6to4, SIIT, mapped or compatible form) would connect to.
fn embedded_v4(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let last = Ipv4Addr::from_bits(v6.to_bits() as u32);
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] | [0, 0, 0, 0, 0, 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => Some(last),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 || low > 1 => Some(last),
        [0x2002, high, low, ..] => Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))),
        _ => None,
    }
}

/// The IPv4 addresses that a NAT64 translator of a network operator may connect to: `64:ff9b:1::/48` (RFC 8215) is for
/// prefixes of 48, 56, 64 or 96 bits, each with the IPv4 address in its own place (RFC 6052, section 2.2). Which one the
/// translator has is unknown here, so all are judged. Those in 0.0.0.0/8 are left out: translators drop them, and most
/// addresses have zeros in the places of the other prefixes.
fn local_translations(v6: Ipv6Addr) -> Vec<Ipv4Addr> {
    let bytes = v6.octets();
    if bytes[..6] != [0, 0x64, 0xff, 0x9b, 0, 1] {
        return Vec::new();
    }
    // The eighth byte is no part of an address.
    let places = [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], [12, 13, 14, 15]];
    let found = places.map(|place| Ipv4Addr::from(place.map(|index: usize| bytes[index])));
    found.into_iter().filter(|v4| v4.octets()[0] != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(patterns: &[&str]) -> AllowList {
        AllowList::new(patterns.iter().map(|pattern| pattern.parse().unwrap()).collect())
    }

    fn at(text: &str) -> Destination {
        text.parse().unwrap()
    }

    #[test]
    fn patterns_match_names_networks_and_ports() {
        let list = list(&["example.com:443", "*.example.org:8000-8001", "10.0.0.0/8:*", "[2001:db8::/32]:22"]);
        for good in ["example.com:443", "a.example.org:8001", "10.255.0.1:9", "[2001:db8:1::1]:22"] {
            assert!(list.allows_request(&at(good)), "{good}");
        }
        for bad in ["example.org:8001", "10.0.0.1.example.org:1", "11.0.0.1:9", "[2001:db9::1]:22", "[2001:db8::1]:23"]
        {
            let destination = at(bad);
            assert!(!list.patterns.iter().any(|pattern| pattern.matches(&destination)), "{bad}");
        }
        for bad in ["a:1-0", "a:0-9", "10.0.0.0/33:1", "*.10.0.0.1:1", "*.1:1", "a:+1", "*:1", "a/8:1"] {
            assert!(bad.parse::<Pattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_network_of_ipv4_in_ipv6_form_is_that_of_ipv4() {
        for text in ["::ffff:10.0.0.0/104", "::ffff:10.1.2.3"] {
            let network: Network = text.parse().unwrap();
            assert!(network.contains("10.1.2.3".parse().unwrap()), "{text}");
            assert!(!network.contains("11.1.2.3".parse().unwrap()), "{text}");
        }
        assert!("::ffff:0:0/95".parse::<Network>().is_err());
    }

    #[test]
    fn a_name_is_allowed_by_its_own_rule_or_by_its_addresses() {
        let names = list(&["example.com:443"]);
        assert!(names.allows_address(&at("example.com:443"), "93.184.216.34".parse().unwrap()));
        assert!(!names.allows_request(&at("other.com:443")));
        let networks = list(&["10.0.0.0/8:443"]);
        assert!(networks.allows_request(&at("inside:443")));
        assert!(!networks.allows_request(&at("inside:80")));
        assert!(networks.allows_address(&at("inside:443"), "10.1.1.1".parse().unwrap()));
        assert!(!networks.allows_address(&at("inside:443"), "11.1.1.1".parse().unwrap()));
    }

    #[test]
    fn an_unresolved_name_needs_a_rule_of_its_own_or_rules_for_all_addresses() {
        let some = list(&["10.0.0.0/8:443", "0.0.0.0/0:80", "example.com:443"]);
        for good in ["example.com:443", "10.1.1.1:443", "8.8.8.8:80"] {
            assert!(some.allows_unresolved(&at(good)), "{good}");
        }
        for bad in ["other.com:443", "other.com:80", "11.1.1.1:443", "127.0.0.1:80"] {
            assert!(!some.allows_unresolved(&at(bad)), "{bad}");
        }
        let all = list(&["0.0.0.0/0:*", "[::/0]:443"]);
        assert!(all.allows_unresolved(&at("other.com:443")));
        assert!(!all.allows_unresolved(&at("other.com:80")));
    }

    #[test]
    fn special_addresses_must_be_listed_exactly() {
        let special = [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "168.63.129.16",
            "0.0.0.0",
            "::ffff:127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::6464:64c8",
            "64:ff9b:1::7f00:1",
            "64:ff9b:1:ffff::a9fe:a9fe",
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1:a9:fe:a9fe::",
            "64:ff9b:1:0:a9:fea9:fe00:0",
            "64:ff9b:1:a8:3f:8110:0:1",
            "::7f00:1",
            "2002:7f00:1::",
            "::",
            "224.0.0.1",
            "255.255.255.255",
        ];
        let wide = list(&["0.0.0.0/0:*", "[::/0]:*", "rebound.example:80", "127.0.0.0/8:80"]);
        let exact = list(&["127.0.0.1:80"]);
        for address in special {
            let address: IpAddr = address.parse().unwrap();
            assert!(!wide.allows_address(&at("rebound.example:80"), address), "{address}");
            let direct = Destination { host: Host::Address(address.to_canonical()), port: 80 };
            assert!(!wide.allows_request(&direct), "{address}");
        }
        assert!(exact.allows_request(&at("127.0.0.1:80")));
        assert!(!exact.allows_request(&at("127.0.0.1:81")));
        assert!(!exact.allows_request(&at("127.0.0.2:80")));
        for address in ["8.8.8.8", "[64:ff9b::808:808]", "[64:ff9b:1::808:808]", "[64:ff9b:1:808:8:800::]"] {
            assert!(wide.allows_request(&at(&format!("{address}:53"))), "{address}");
        }
    }
}
