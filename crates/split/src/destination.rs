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
        Ok(Self::Name(name))
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
            return Err("port 0 is no destination".to_owned());
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

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = split_port(text)?;
        let port = port.parse().map_err(|_| format!("{port:?} is not a port"))?;
        Self::new(host.parse()?, port)
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
        for text in ["", "a", "a:", ":1", "a:0", "a:65536", "a b:1", "::1:80", "[::1:80", "a..b:1", "a\0:1", "*.a:1"] {
            assert!(text.parse::<Destination>().is_err(), "{text:?}");
        }
        assert!(format!("{}:1", "a".repeat(64)).parse::<Destination>().is_err());
    }
}
