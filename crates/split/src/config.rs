//! The configuration of a split proxy: a strict document, in which unknown fields are errors.

use crate::allow::{AllowList, Network, Pattern};
use crate::destination::{Destination, Host};
use crate::limits::{
    HOPS_MAX, KEPT_READY_MAX, LISTENERS_MAX, PACE_BYTES_PER_S_MIN, POOL_AGE_MIN, POOL_MAX, TOKENS_BYTES_MAX,
};
use crate::refusal::{Cause, Refusal, SplitError};
use crate::token::Tokens;
use crate::upstream::{Login, Upstream};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// An address, of all ports or of one: `ADDRESS` or `ADDRESS:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct NamedAddress {
    /// The address.
    pub address: IpAddr,
    /// The port; `None`: all that have no name of their own.
    pub port: Option<u16>,
}

impl TryFrom<String> for NamedAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let of_port = |socket: SocketAddr| Self { address: socket.ip(), port: Some(socket.port()) };
        let of_all = |address| Self { address, port: None };
        let parsed = text.parse().map(of_all).or_else(|_| text.parse().map(of_port));
        parsed.map_err(|_| format!("{text:?} is not ADDRESS or ADDRESS:PORT"))
    }
}

/// The configuration of a split proxy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where connections are accepted.
    pub listeners: Vec<Listener>,
    /// The proxies that this one may dial: name in the certificate, and address.
    #[serde(default)]
    pub proxies: BTreeMap<String, Destination>,
    /// Proxies outside the fleet, by names of your choice. Each can only be the only proxy of a route.
    #[serde(default)]
    pub upstreams: BTreeMap<String, Upstream>,
    /// Names of addresses, of all ports or of one: a `transparent` connection to such an address counts as one to the name.
    #[serde(default)]
    pub names: BTreeMap<NamedAddress, String>,
    /// The routes of destinations. The first that matches is used.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Names of the proxies to other destinations. Empty: they go direct.
    #[serde(default)]
    pub default_route: Vec<String>,
    /// The destinations that this proxy serves.
    pub allow: AllowList,
    /// The folder of this proxy's identity (`ca.pem`, `cert.pem`, `key.pem`). Proxies need it to reach each other.
    #[serde(default)]
    pub identity: Option<PathBuf>,
    /// Limits.
    #[serde(default)]
    pub limits: Limits,
    /// Destinations that get a header of the PROXY protocol, version 2, from the exit.
    #[serde(default)]
    pub proxy_protocol: Vec<Pattern>,
    /// Congestion control of the connections to other machines, if this machine permits it, such as `bbr`.
    #[serde(default)]
    pub congestion_control: Option<String>,
    /// Names of the next proxies to which it connects now and then, to know that they can be reached.
    #[serde(default)]
    pub probes: Vec<String>,
}

/// The way in which a listener learns the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Every connection goes to the same destination.
    Forward,
    /// SOCKS5 (RFC 1928), the command CONNECT.
    Socks5,
    /// The HTTP method CONNECT.
    Connect,
    /// The destination is the server name in the client's TLS handshake, which is passed on unchanged.
    Sni,
    /// A firewall on this machine redirected the connection; the kernel knows its destination. Linux only.
    Transparent,
    /// The client is another proxy of the fleet.
    Hop,
}

/// The place of a listener's tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "PathBuf")]
pub enum TokenSource {
    /// A file, as a configuration names it.
    File(PathBuf),
    /// Tokens that are already known.
    Known(Tokens),
}

impl From<PathBuf> for TokenSource {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

/// One listener.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Address and port; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// The way in which it learns the destination.
    pub way: Way,
    /// The destination of `forward`.
    #[serde(default)]
    pub destination: Option<Destination>,
    /// The port of `sni`'s destinations [default: 443].
    #[serde(default)]
    pub port: Option<u16>,
    /// The file of tokens that `socks5` or `connect` clients must know one of ([`crate::token::Tokens`]).
    #[serde(default)]
    pub tokens: Option<TokenSource>,
    /// The networks of clients. Empty: any, if the way in allows that.
    #[serde(default)]
    pub clients: Vec<Network>,
    /// Connections begin with a header of the PROXY protocol, version 2, that names the client.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// A name of your choice, under which its flows are counted.
    #[serde(default)]
    pub name: Option<String>,
    /// Its own routes of destinations, before those of the configuration.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// The proxies that `hop` serves, by the name in their certificate, each with the destinations of its flows. Without
    /// it, `hop` serves every proxy of the fleet.
    #[serde(default)]
    pub callers: Option<BTreeMap<String, AllowList>>,
}

impl Listener {
    /// The destinations of a proxy's flows. `None`: all that this proxy serves.
    ///
    /// # Errors
    /// The listener does not serve the proxy.
    pub(crate) fn caller(&self, name: &str) -> Result<Option<&AllowList>, Refusal> {
        let Some(callers) = &self.callers else { return Ok(None) };
        callers.get(name).map(Some).ok_or_else(|| Refusal::new(Cause::NotAllowed, name))
    }

    /// Its tokens, read from their file if they are in one.
    ///
    /// # Errors
    /// The file cannot be read or is refused.
    pub(crate) fn read_tokens(&self) -> Result<Option<Tokens>, SplitError> {
        let path = match &self.tokens {
            None => return Ok(None),
            Some(TokenSource::Known(tokens)) => return Ok(Some(tokens.clone())),
            Some(TokenSource::File(path)) => path,
        };
        let fault = |reason: String| SplitError::Tokens { path: path.display().to_string(), reason };
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(TOKENS_BYTES_MAX + 1).read_to_end(&mut bytes));
        if read.map_err(|error| fault(error.to_string()))? as u64 > TOKENS_BYTES_MAX {
            return Err(fault(format!("the file has more than {TOKENS_BYTES_MAX} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| fault("the file is not UTF-8".to_owned()))?;
        text.parse().map(Some).map_err(fault)
    }
}

/// The route of some destinations.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The destinations.
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
    /// Most connections of one client address at once, also if they come through other proxies.
    pub connections_per_client_max: usize,
    /// Most connections of one proxy at once, and most of one address that have not yet shown which proxy they are of.
    pub connections_per_proxy_max: usize,
    /// Most connections to one destination at once.
    pub connections_per_destination_max: usize,
    /// Most connections accepted per second, over all listeners, without those of strangers.
    pub accepts_per_second_max: u32,
    /// Most of them of one client address, and of one address of a stranger [default: half].
    pub accepts_per_second_per_client_max: Option<u32>,
    /// Most of them to one destination [default: all].
    pub accepts_per_second_per_destination_max: Option<u32>,
    /// Most connections accepted per second of strangers, who must show a token or a certificate and have not done so
    /// lately [default: as many as of others].
    pub accepts_per_second_of_strangers_max: Option<u32>,
    /// Most bytes per second of one client address in each direction, over all its connections, also if they come through
    /// other proxies [default: no limit].
    pub bytes_per_second_per_client_max: Option<u64>,
    /// Most bytes per second to one destination, and as many from it, over all connections of this proxy to it, also through
    /// other proxies [default: no limit].
    pub bytes_per_second_per_destination_max: Option<u64>,
    /// Longest time until a client has sent its request, including TLS handshakes.
    pub request_timeout_ms: u64,
    /// Longest time to resolve and dial a destination, through all proxies.
    pub dial_timeout_ms: u64,
    /// A connection without a byte in either direction for this time is reset.
    pub idle_timeout_ms: u64,
    /// After the order to stop, flows may end on their own for this time. Then they are reset.
    pub drain_timeout_ms: u64,
    /// Connections that are kept ready for each next proxy. 0: none.
    pub pool: usize,
    /// A connection that is ready for longer is replaced.
    pub pool_age_ms: u64,
    /// Without a flow to a next proxy for this time, the connections that are ready for it are closed.
    pub pool_idle_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 20_000,
            connections_per_client_max: 4_096,
            connections_per_proxy_max: 16_384,
            connections_per_destination_max: 16_384,
            accepts_per_second_max: 5_000,
            accepts_per_second_per_client_max: None,
            accepts_per_second_per_destination_max: None,
            accepts_per_second_of_strangers_max: None,
            bytes_per_second_per_client_max: None,
            bytes_per_second_per_destination_max: None,
            request_timeout_ms: 5_000,
            dial_timeout_ms: 10_000,
            idle_timeout_ms: 3_600_000,
            drain_timeout_ms: 30_000,
            pool: 0,
            pool_age_ms: 60_000,
            pool_idle_ms: 120_000,
        }
    }
}

impl Limits {
    pub(crate) fn accepts_per_client(&self) -> f64 {
        let half = (self.accepts_per_second_max / 2).max(1);
        self.accepts_per_second_per_client_max.unwrap_or(half).into()
    }

    pub(crate) fn accepts_per_destination(&self) -> f64 {
        self.accepts_per_second_per_destination_max.unwrap_or(self.accepts_per_second_max).into()
    }

    pub(crate) fn accepts_of_strangers(&self) -> f64 {
        self.accepts_per_second_of_strangers_max.unwrap_or(self.accepts_per_second_max).into()
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }

    pub(crate) fn dial_timeout(&self) -> Duration {
        Duration::from_millis(self.dial_timeout_ms)
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_timeout_ms)
    }

    pub(crate) fn pool_age(&self) -> Duration {
        Duration::from_millis(self.pool_age_ms)
    }

    pub(crate) fn pool_idle(&self) -> Duration {
        Duration::from_millis(self.pool_idle_ms)
    }

    pub(crate) fn drain_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_timeout_ms)
    }
}

impl Config {
    /// Checks what the types cannot express. `identified`: the proxy has an identity of its fleet.
    ///
    /// # Errors
    /// A listener that anybody could use, a route through unknown proxies, a proxy without an identity.
    pub fn check(&self, identified: bool) -> Result<(), SplitError> {
        let fault = |text: String| Err(SplitError::Config(text));
        if self.listeners.is_empty() {
            return fault("it has no listener".to_owned());
        }
        if self.listeners.len() > LISTENERS_MAX {
            return fault(format!("it has more than {LISTENERS_MAX} listeners"));
        }
        for listener in &self.listeners {
            self.check_listener(listener, identified)?;
        }
        for upstream in self.upstreams.values() {
            upstream.login.as_ref().map_or(Ok(()), Login::check).or_else(fault)?;
        }
        for name in self.names.values() {
            name.parse::<Host>().map(drop).or_else(fault)?;
        }
        for (name, most) in [
            ("bytes_per_second_per_client_max", self.limits.bytes_per_second_per_client_max),
            ("bytes_per_second_per_destination_max", self.limits.bytes_per_second_per_destination_max),
        ] {
            if let Some(most) = most.filter(|most| *most < PACE_BYTES_PER_S_MIN) {
                return fault(format!("`{name}` is {most}, and at least {PACE_BYTES_PER_S_MIN}"));
            }
        }
        if self.limits.pool > POOL_MAX {
            return fault(format!("`pool` is {}, and at most {POOL_MAX}", self.limits.pool));
        }
        if !(POOL_AGE_MIN..KEPT_READY_MAX).contains(&self.limits.pool_age()) {
            let range = format!("at least {POOL_AGE_MIN:?} and less than {KEPT_READY_MAX:?}");
            return fault(format!("`pool_age_ms` is {}, and {range}", self.limits.pool_age_ms));
        }
        let routes = self.listeners.iter().flat_map(|listener| &listener.routes).chain(&self.routes);
        for through in routes.map(|route| &route.through).chain([&self.default_route]) {
            self.check_route(through)?;
        }
        if let Some(name) = self.probes.iter().find(|name| !self.proxies.contains_key(*name)) {
            return fault(format!("`probes` has {name}, which is not in `proxies`"));
        }
        if !identified && !self.proxies.is_empty() {
            return fault("`proxies` need an `identity`".to_owned());
        }
        Ok(())
    }

    fn check_route(&self, through: &[String]) -> Result<(), SplitError> {
        let fault = |text: String| Err(SplitError::Config(text));
        if let [name] = through
            && self.upstreams.contains_key(name)
        {
            return Ok(());
        }
        if let Some(name) = through.iter().find(|name| !self.proxies.contains_key(*name)) {
            // Only the first must be known here, but a name that is nowhere is most likely a mistake.
            return fault(format!("a route leads through {name}, which is not in `proxies`"));
        }
        if through.len() > HOPS_MAX {
            return fault(format!("a route has more than {HOPS_MAX} proxies"));
        }
        Ok(())
    }

    fn check_listener(&self, listener: &Listener, identified: bool) -> Result<(), SplitError> {
        let fault = |text: &str| Err(SplitError::Config(format!("listener {}: {text}", listener.listen)));
        if listener.destination.is_some() != (listener.way == Way::Forward) {
            return fault("`forward` has a `destination`, and no other way has one");
        }
        let takes_tokens = matches!(listener.way, Way::Socks5 | Way::Connect);
        if listener.tokens.is_some() && !takes_tokens {
            return fault("only `socks5` and `connect` have `tokens`");
        }
        if listener.port.is_some() && listener.way != Way::Sni {
            return fault("only `sni` has a `port`");
        }
        if listener.port == Some(0) {
            return fault("port 0 is not a destination");
        }
        if !listener.routes.is_empty() && listener.way == Way::Hop {
            return fault("`hop` learns the route from the proxy, without `routes`");
        }
        if listener.callers.is_some() && listener.way != Way::Hop {
            return fault("only `hop` has `callers`");
        }
        if listener.proxy_protocol && listener.way == Way::Hop {
            return fault("`hop` learns the client from the proxy, without `proxy_protocol`");
        }
        let open = !listener.listen.ip().is_loopback() && listener.clients.is_empty();
        match listener.way {
            Way::Hop if !identified => fault("`hop` needs an `identity`"),
            Way::Hop => Ok(()),
            Way::Transparent if !cfg!(target_os = "linux") => fault("`transparent` needs Linux"),
            _ if open && listener.proxy_protocol => {
                fault("anybody could claim to be another client: list the load balancers in `clients`")
            }
            Way::Socks5 | Way::Connect if !listener.listen.ip().is_loopback() && listener.tokens.is_none() => {
                fault("other machines need `tokens`")
            }
            Way::Socks5 | Way::Connect => Ok(()),
            Way::Forward | Way::Sni | Way::Transparent if open => {
                fault("this way in cannot authenticate clients: list their networks in `clients`")
            }
            Way::Forward | Way::Sni | Way::Transparent => Ok(()),
        }
    }

    /// The destination of a redirected connection: with the name of its address, if it has one.
    pub(crate) fn named(&self, destination: Destination) -> Destination {
        let Host::Address(address) = destination.host else { return destination };
        let of = |port| self.names.get(&NamedAddress { address, port });
        let name = of(Some(destination.port)).or_else(|| of(None)).and_then(|name| name.parse().ok());
        name.map_or(destination.clone(), |host| Destination { host, port: destination.port })
    }

    /// The proxies between this one and the destination of a listener's client.
    pub(crate) fn route(&self, listener: &Listener, destination: &Destination) -> Vec<String> {
        let mut routes = listener.routes.iter().chain(&self.routes);
        let found = routes.find(|route| route.destination.matches(destination));
        found.map_or(&self.default_route, |route| &route.through).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// The tokens of a file with one token, made longer by a comment of this character.
    fn read(bytes: u64, filler: char) -> Result<Option<Tokens>, SplitError> {
        let mut text = format!("ann:{}\n#", "0".repeat(64));
        let room = usize::try_from(bytes).unwrap() - text.len();
        text.extend(std::iter::repeat_n('x', room % filler.len_utf8()));
        text.extend(std::iter::repeat_n(filler, room / filler.len_utf8()));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let listener = Listener {
            listen: "127.0.0.1:0".parse().unwrap(),
            way: Way::Socks5,
            destination: None,
            port: None,
            tokens: Some(TokenSource::File(file.path().to_owned())),
            clients: Vec::new(),
            proxy_protocol: false,
            name: None,
            routes: Vec::new(),
            callers: None,
        };
        listener.read_tokens()
    }

    #[test]
    fn a_file_of_tokens_is_read_whole_or_refused() {
        for filler in ['x', '\u{20ac}'] {
            assert!(read(TOKENS_BYTES_MAX, filler).unwrap().is_some());
            let error = read(TOKENS_BYTES_MAX + 1, filler).unwrap_err().to_string();
            assert!(error.ends_with("the file has more than 1048576 bytes"), "{error}");
        }
    }

    #[test]
    fn an_address_may_have_a_name_for_each_port() {
        let config =
            |names| serde_json::from_value::<Config>(serde_json::json!({"listeners": [], "allow": [], "names": names}));
        let names = serde_json::json!({"192.0.2.1": "all.example", "192.0.2.1:443": "one.example", "[2001:db8::1]:443": "six.example"});
        let config_of_names = config(names).unwrap();
        for (dialed, named) in [
            ("192.0.2.1:443", "one.example:443"),
            ("192.0.2.1:80", "all.example:80"),
            ("192.0.2.2:443", "192.0.2.2:443"),
            ("[2001:db8::1]:443", "six.example:443"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
        ] {
            let destination = Destination::try_from(dialed.to_owned()).unwrap();
            assert_eq!(config_of_names.named(destination).to_string(), named);
        }
        let error = config(serde_json::json!({"a.example": "b.example"})).unwrap_err().to_string();
        assert!(error.contains("\"a.example\" is not ADDRESS or ADDRESS:PORT"), "{error}");
    }
}
