//! The split proxy of a gateway: its program, and its state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Body of `PUT /v1/split`: a split proxy with the identity of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitProgram {
    /// [`crate::CONTRACT_VERSION`].
    pub contract: u32,
    /// Where connections are accepted.
    pub listeners: Vec<SplitListener>,
    /// The proxies that this one may dial: name in the certificate, and `host:port`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub proxies: BTreeMap<String, String>,
    /// The routes of destinations. The first that matches is used; without one, a flow goes direct.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<SplitRoute>,
    /// Patterns of the destinations that this proxy serves: `host:port`, `*.domain:port`, `network/bits:first-last`.
    pub allow: Vec<String>,
    /// Limits.
    #[serde(default)]
    pub limits: SplitLimits,
    /// Patterns of destinations that get a header of the PROXY protocol, version 2, from the exit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proxy_protocol: Vec<String>,
    /// Congestion control of the connections to other machines, if the machine permits it, such as `bbr`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Names of the next proxies to which it connects every few seconds, to know that they can be reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<String>,
}

/// The `listen` of a listener that takes over the data port of its gateway.
pub const DATA_PORT: &str = "data";

/// The way in which a listener of a split proxy learns the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SplitWay {
    /// Every connection goes to the same destination.
    Forward,
    /// SOCKS5, the command CONNECT.
    Socks5,
    /// The HTTP method CONNECT.
    Connect,
    /// The server name in the client's TLS handshake.
    Sni,
    /// A firewall on this machine redirected the connection. Linux only.
    Transparent,
    /// The client is another proxy of the fleet.
    Hop,
}

/// One listener of a split proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitListener {
    /// `ip:port`; port 0 lets the kernel choose. A listener for `hop` may also have `data`: the data port of the
    /// gateway, which then accepts no program.
    pub listen: String,
    /// The way in which it learns the destination.
    pub way: SplitWay,
    /// The destination of `forward`, `host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// The port of `sni`'s destinations [default: 443].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The clients of `socks5` or `connect`: name, and SHA-256 of the token in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<BTreeMap<String, String>>,
    /// The networks of clients. Empty: any, if the way in allows that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<String>,
    /// Connections begin with a header of the PROXY protocol, version 2, that names the client.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// A name of your choice, under which its flows are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its own routes, before those of the program. Not for `hop`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<SplitRoute>,
    /// The proxies that `hop` serves, by the name in their certificate, each with patterns of the destinations of its
    /// flows. Without it, `hop` serves every proxy of the fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callers: Option<BTreeMap<String, Vec<String>>>,
}

/// The route of some destinations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitRoute {
    /// Pattern of the destinations, as in `allow`.
    pub destination: String,
    /// Names of the proxies, from the next one to the exit. Empty: direct.
    pub through: Vec<String>,
}

/// Limits of a split proxy. A limit that is left out has the default of `tradewind-gateway split`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SplitLimits {
    /// Most connections at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_max: Option<u32>,
    /// Most connections of one client address at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_client_max: Option<u32>,
    /// Most connections of one other proxy at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_proxy_max: Option<u32>,
    /// Most connections to one destination at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_destination_max: Option<u32>,
    /// Most connections accepted per second, over all listeners, without those of strangers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepts_per_second_max: Option<u32>,
    /// Most of them of one client address [default: half].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepts_per_second_per_client_max: Option<u32>,
    /// Most of them to one destination [default: all].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepts_per_second_per_destination_max: Option<u32>,
    /// Most connections accepted per second of strangers, who must show a token or a certificate and have not done so
    /// lately [default: as many as of others].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepts_per_second_of_strangers_max: Option<u32>,
    /// Most bytes per second of one client address in each direction, over all its connections [default: no limit].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second_per_client_max: Option<u64>,
    /// Most bytes per second to one destination, and as many from it, over all connections to it [default: no limit].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second_per_destination_max: Option<u64>,
    /// Longest time until a client has sent its request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_timeout_ms: Option<u32>,
    /// Longest time to resolve and dial a destination, through all proxies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dial_timeout_ms: Option<u32>,
    /// A connection without a byte for this time is reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<u32>,
    /// Time that flows have to end when the proxy, or their listener, ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_timeout_ms: Option<u32>,
    /// Connections that are kept ready for each next proxy, 0 to 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<u32>,
    /// A connection that is ready for longer is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_age_ms: Option<u32>,
    /// Without a flow to a next proxy for this time, the connections that are ready for it are closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_idle_ms: Option<u32>,
}

/// The stage of a gateway's split proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SplitState {
    /// It accepts connections.
    Running,
    /// It accepts none, and waits for its flows.
    Draining,
    /// It has ended; the counts are final.
    Ended,
}

/// Answer of `PUT`, `GET` and `DELETE /v1/split`. Counts are since the start of the proxy; new routes keep them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitStatus {
    /// Its stage.
    pub state: SplitState,
    /// The bound addresses, `ip:port`, in the order of the listeners.
    pub listening: Vec<String>,
    /// Connections that are open now, without those that are `waiting`.
    pub open: u64,
    /// Connections that other proxies keep ready for their next flows.
    #[serde(default)]
    pub waiting: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Flows that both sides closed.
    pub closed: u64,
    /// Flows that were reset because one side broke.
    pub reset: u64,
    /// Flows that were reset because nothing moved.
    pub idle: u64,
    /// Connections that another proxy kept ready and that ended without a flow.
    #[serde(default)]
    pub unused: u64,
    /// Refused connections by cause.
    pub refused: BTreeMap<String, u64>,
    /// Bytes from clients towards destinations.
    pub bytes_up: u64,
    /// Bytes from destinations towards clients.
    pub bytes_down: u64,
    /// Established flows by route and destination.
    pub traffic: Vec<SplitTraffic>,
    /// The next proxies by name.
    pub hops: BTreeMap<String, SplitHop>,
    /// The effective congestion control of its connections; absent where the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Largest receive buffer that the kernel gives a connection; absent where the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer_bytes_max: Option<u64>,
    /// Largest send buffer that the kernel gives a connection; absent where the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer_bytes_max: Option<u64>,
}

/// The established flows of one listener and route to one destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitTraffic {
    /// The name of the listener, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// `host:port` as requested; null for the flows over one next proxy that are beyond the limit of pairs counted one by one.
    pub destination: Option<String>,
    /// The proxies after this one.
    pub through: Vec<String>,
    /// Flows that were established.
    pub connections: u64,
    /// Flows that were not, although their destination did not refuse them.
    #[serde(default)]
    pub failed: u64,
    /// Bytes towards the destination.
    pub bytes_up: u64,
    /// Bytes towards the client.
    pub bytes_down: u64,
}

/// The state of one of the next proxies, as a split proxy knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitHop {
    /// Connections opened to it, those that were kept ready included.
    pub dialed: u64,
    /// Shortest time of a TCP handshake with it: about one round trip.
    pub connect_ms_min: f64,
    /// Latest time of a TCP handshake with it.
    pub connect_ms_last: f64,
    /// Connections that are ready for flows now.
    #[serde(default)]
    pub ready: u64,
    /// Flows that took a connection that was ready.
    #[serde(default)]
    pub taken: u64,
    /// Flows that opened a connection themselves.
    #[serde(default)]
    pub missed: u64,
    /// Connections that broke while they were ready, or before the answer to their first request.
    #[serde(default)]
    pub dead: u64,
    /// Connections that could not be opened, TLS included, since one was.
    #[serde(default)]
    pub failures: u64,
    /// Why the last of them could not; absent if the last one was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Median time from the request of a client to the first byte from its destination, over the latest flows that took a
    /// ready connection; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_ms_taken: Option<f64>,
    /// The same over the latest flows that opened their connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_ms_missed: Option<f64>,
}
