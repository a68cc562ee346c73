//! Where a flow goes: a host and a port.

use crate::limits::NAME_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A host: an address, or a name that the exit resolves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address. IPv4 addresses in IPv6 form are kept as IPv4.
    Address(IpAddr),
    /// A name in lower case, without a final dot.
    Name(String),
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        if name.len() > NAME_BYTES_MAX || !name.split('.').all(label) {
            return Err(format!("{text:?} is not a host"));
        }
        if ends_in_number(&name) {
            return Err(format!("{text:?} is not an address: write four decimal numbers from 0 to 255"));
        }
        Ok(Self::Name(name))
    }
}

/// True for names that resolvers may read as addresses, such as `127.1` and `0x7f.1` (`inet_aton`). In these forms, an
/// address would pass rules, routes and limits for it. No domain ends in a number (RFC 3696, section 2).
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    match last.strip_prefix("0x") {
        Some(hexadecimal) => hexadecimal.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// A host and a port, written `host:port`; IPv6 addresses are in brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Destination {
    /// The host.
    pub host: Host,
    /// The port, not 0.
    pub port: u16,
}

impl Destination {
    /// A destination from its parts.
    ///
    /// # Errors
    /// The port is 0.
    pub fn new(host: Host, port: u16) -> Result<Self, String> {
        if port == 0 {
            return Err("port 0 is not a destination".to_owned());
        }
        Ok(Self { host, port })
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self { host: Host::Address(address.ip().to_canonical()), port: address.port() }
    }
}

/// Splits `host:port`, without brackets.
pub(crate) fn split_port(text: &str) -> Result<(&str, &str), String> {
    let (host, port) = text.rsplit_once(':').ok_or_else(|| format!("{text:?} has no port"))?;
    match host.strip_prefix('[') {
        Some(inner) => {
            let inner = inner.strip_suffix(']').ok_or_else(|| format!("{text:?} has an open bracket"))?;
            Ok((inner, port))
        }
        None if host.contains(':') => Err(format!("write {text:?} with the IPv6 address in brackets")),
        None => Ok((host, port)),
    }
}

/// A port in decimal digits. The standard library would also take a sign.
pub(crate) fn parse_port(text: &str) -> Result<u16, String> {
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| format!("{text:?} is not a port"))
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = split_port(text)?;
        Self::new(host.parse()?, parse_port(port)?)
    }
}

impl TryFrom<String> for Destination {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Destination> for String {
    fn from(destination: Destination) -> Self {
        destination.to_string()
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(address) => write!(f, "{}", SocketAddr::new(*address, self.port)),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_survive_printing_and_parsing() {
        for text in ["example.com:443", "10.0.0.1:80", "[2001:db8::1]:22"] {
            assert_eq!(text.parse::<Destination>().unwrap().to_string(), text);
        }
        assert_eq!("EXAMPLE.com.:1".parse::<Destination>().unwrap().to_string(), "example.com:1");
        assert_eq!("[::ffff:10.0.0.1]:1".parse::<Destination>().unwrap().to_string(), "10.0.0.1:1");
    }

    #[test]
    fn other_text_is_refused() {
        for text in
            ["", "a", "a:", ":1", "a:0", "a:65536", "a:+1", "a b:1", "::1:80", "[::1:80", "a..b:1", "a\0:1", "*.a:1"]
        {
            assert!(text.parse::<Destination>().is_err(), "{text:?}");
        }
        assert!(format!("{}:1", "a".repeat(64)).parse::<Destination>().is_err());
    }

    #[test]
    fn addresses_are_refused_in_forms_that_only_resolvers_read() {
        for text in ["127.1", "2130706433", "0x7f.1", "127.0x1", "0177.0.0.1", "127.0.0.1.", "127.0.0.256", "a.0", "0X"]
        {
            assert!(text.parse::<Host>().is_err(), "{text:?}");
        }
        for text in ["1.a", "0x7f.example", "a.0xg", "3com.com", "1-1", "x0", "1e5"] {
            assert_eq!(text.parse(), Ok(Host::Name(text.to_owned())));
        }
    }
}
