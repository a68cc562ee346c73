//! Destinations and patterns as text, and the addresses that no wide rule covers.

use std::net::{IpAddr, Ipv4Addr};
use tradewind_split::allow::{AllowList, Pattern, is_special};
use tradewind_split::destination::{Destination, Host};

/// Parses `data` as a destination and as a pattern. No text may lead to an address in a form that the rules do not see,
/// and no wide rule to an address of this machine.
pub(crate) fn run(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let pattern = text.parse::<Pattern>();
    let Ok(destination) = text.parse::<Destination>() else { return };
    assert_eq!(Ok(&destination), destination.to_string().parse().as_ref(), "it changes on its way to the next proxy");
    if let Ok(pattern) = pattern {
        assert!(pattern.matches(&destination), "its own pattern does not match {destination}");
    }
    match &destination.host {
        Host::Name(name) => assert_eq!(number(name), None, "the resolver reads {name} as an address"),
        Host::Address(address) => {
            assert_eq!(*address, address.to_canonical());
            assert_ne!(wide().allows_request(&destination), is_special(*address), "{address}");
        }
    }
}

fn wide() -> AllowList {
    AllowList::new(["0.0.0.0/0:*", "[::/0]:*"].map(|rule| rule.parse().expect("the rule is well-formed")).into())
}

/// The address that `inet_aton` reads, which resolvers ask before they ask the DNS: one to four numbers, each decimal,
/// octal or hexadecimal, of which the last fills the rest.
fn number(name: &str) -> Option<IpAddr> {
    let parts: Vec<u32> = name.split('.').map(part).collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    let bytes = 4_u32.checked_sub(first.len().try_into().ok()?).filter(|bytes| *bytes > 0)?;
    if first.iter().any(|part| *part > 255) || u64::from(*last) >= 1 << (8 * bytes) {
        return None;
    }
    let head = first.iter().fold(0, |head, part| head << 8 | u64::from(*part)) << (8 * bytes);
    Some(IpAddr::V4(Ipv4Addr::from_bits((head | u64::from(*last)).try_into().ok()?)))
}

fn part(text: &str) -> Option<u32> {
    match text.strip_prefix('0') {
        Some(rest) if rest.starts_with(['x', 'X']) => u32::from_str_radix(&rest[1..], 16).ok(),
        Some(rest) if !rest.is_empty() => u32::from_str_radix(rest, 8).ok(),
        _ => text.parse().ok(),
    }
}
