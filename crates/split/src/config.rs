//! The configuration of a split proxy: a strict document, in which unknown fields are errors.

use crate::allow::{AllowList, Pattern};
use crate::destination::Destination;
use crate::limits::HOPS_MAX;
use crate::refusal::SplitError;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The configuration of a split proxy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where connections are accepted.
    pub listeners: Vec<Listener>,
    /// The proxies that this one may dial: name in the certificate, and address.
    #[serde(default)]
    pub proxies: BTreeMap<String, Destination>,
    /// The routes of destinations. The first that matches is used; without one, a flow goes direct.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// The destinations that this proxy serves.
    pub allow: AllowList,
    /// The folder of this proxy's identity (`ca.pem`, `cert.pem`, `key.pem`). Proxies need it to reach each other.
    #[serde(default)]
    pub identity: Option<PathBuf>,
    /// Limits.
    #[serde(default)]
    pub limits: Limits,
    /// Congestion control of all connections, if this machine permits it, such as `bbr`.
    #[serde(default)]
    pub congestion_control: Option<String>,
}

/// How a listener learns the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Every connection goes to the same destination.
    Forward,
    /// The client is another proxy of the fleet.
    Hop,
}

/// One listener.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Address and port; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// How it learns the destination.
    pub way: Way,
    /// The destination of `forward`.
    #[serde(default)]
    pub destination: Option<Destination>,
}

/// The route of some destinations.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Which destinations.
    pub destination: Pattern,
    /// Names of the proxies, from the next one to the exit. Empty: direct.
    pub through: Vec<String>,
}

/// Limits that a user may change. Beyond a limit of connections or accepts, a connection is reset.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Most connections at once.
    pub connections_max: usize,
    /// Most connections of one client address at once. On a `hop` listener the client is the proxy, by its name.
    pub connections_per_client_max: usize,
    /// Most connections to one destination at once.
    pub connections_per_destination_max: usize,
    /// Most connections accepted per second, over all listeners.
    pub accepts_per_second_max: u32,
    /// Longest time until a client has sent its request, including TLS handshakes.
    pub request_timeout_ms: u64,
    /// Longest time to resolve and dial a destination, through all proxies.
    pub dial_timeout_ms: u64,
    /// A connection without a byte in either direction for this time is reset.
    pub idle_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 20_000,
            connections_per_client_max: 4_096,
            connections_per_destination_max: 16_384,
            accepts_per_second_max: 5_000,
            request_timeout_ms: 5_000,
            dial_timeout_ms: 10_000,
            idle_timeout_ms: 3_600_000,
        }
    }
}

impl Limits {
    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }

    pub(crate) fn dial_timeout(&self) -> Duration {
        Duration::from_millis(self.dial_timeout_ms)
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_timeout_ms)
    }
}

impl Config {
    /// Checks what the types cannot express.
    ///
    /// # Errors
    /// A listener that anybody could use, a route through unknown proxies, a proxy without an identity.
    pub fn check(&self) -> Result<(), SplitError> {
        let fault = |text: String| Err(SplitError::Config(text));
        if self.listeners.is_empty() {
            return fault("it has no listener".to_owned());
        }
        for listener in &self.listeners {
            self.check_listener(listener)?;
        }
        for route in &self.routes {
            if let Some(name) = route.through.iter().find(|name| !self.proxies.contains_key(*name)) {
                // Only the first must be known here, but a name that is nowhere is most likely a mistake.
                return fault(format!("a route leads through {name}, which is not in `proxies`"));
            }
            if route.through.len() > HOPS_MAX {
                return fault(format!("a route has more than {HOPS_MAX} proxies"));
            }
        }
        if self.identity.is_none() && !self.proxies.is_empty() {
            return fault("`proxies` need an `identity`".to_owned());
        }
        Ok(())
    }

    fn check_listener(&self, listener: &Listener) -> Result<(), SplitError> {
        let fault = |text: &str| Err(SplitError::Config(format!("listener {}: {text}", listener.listen)));
        if listener.destination.is_some() != (listener.way == Way::Forward) {
            return fault("`forward` has a `destination`, and no other way has one");
        }
        match listener.way {
            Way::Hop if self.identity.is_none() => fault("`hop` needs an `identity`"),
            Way::Forward if !listener.listen.ip().is_loopback() => {
                fault("`forward` cannot authenticate clients, so it listens on loopback only")
            }
            Way::Hop | Way::Forward => Ok(()),
        }
    }

    /// The proxies between this one and a destination.
    pub(crate) fn route(&self, destination: &Destination) -> Vec<String> {
        let found = self.routes.iter().find(|route| route.destination.matches(destination));
        found.map(|route| route.through.clone()).unwrap_or_default()
    }
}
