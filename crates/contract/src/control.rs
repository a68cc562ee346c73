//! The small documents of the control API and of start-up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The one line that `tradewind-gateway serve` prints on stdout when it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Where the control API answers: `unix:PATH` or `ip:port`; null for a gateway that calls home.
    pub control: Option<String>,
    /// Address of the data port, `ip:port`; null without one.
    pub data_address: Option<String>,
    /// Version of the gateway program.
    pub gateway: String,
    /// [`crate::CONTRACT_VERSION`]; a client of another version stops here.
    pub contract: u32,
}

/// Body of every error response of the control API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// One line.
    pub error: String,
    /// One line of advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Body of `POST /v1/lease`: renew the gateway's lease before it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// Seconds from now until the lease expires, 1 to 86,400.
    pub lease_s: u32,
}

/// Body of `POST /v1/probe`: measure the round trip to another gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbeRequest {
    /// Name of the other gateway, which its certificate must carry.
    pub to: String,
    /// Its data port, `ip:port`.
    pub address: String,
    /// Connections to time, 1 to 20.
    #[serde(default = "default_connects")]
    pub connects: u16,
}

fn default_connects() -> u16 {
    5
}

/// Answer of `POST /v1/probe`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbeReport {
    /// Name of the other gateway.
    pub to: String,
    /// Its data port.
    pub address: String,
    /// Shortest TCP handshake: one round trip, answered by the other kernel.
    pub rtt_ms_min: f64,
    /// Median of the TCP handshakes.
    pub rtt_ms_median: f64,
    /// Time of the mutual TLS handshake that follows; absent on plain hops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_handshake_ms: Option<f64>,
    /// True if the other side proved the name `to` by a certificate of this fleet.
    pub peer_verified: bool,
}

/// Body of `POST /v1/probe/receive`: measure what arrives from another gateway, which sends at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiveRequest {
    /// Name of the gateway that will send; connections from others are refused.
    pub from: String,
    /// Connections that it will open, 1 to 64.
    pub connections: u16,
    /// Milliseconds after the last connection opens that are not counted, because the rates still grow.
    pub warmup_ms: u32,
    /// Duration of the measurement in milliseconds, 1 to 60,000.
    pub measure_ms: u32,
}

/// Answer of `POST /v1/probe/receive`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiveReport {
    /// The gateway that sent.
    pub from: String,
    /// Connections that were counted.
    pub connections: u16,
    /// Payload bytes that arrived during the measurement.
    pub bytes: u64,
    /// Duration of the measurement.
    pub seconds: f64,
}

/// Body of `POST /v1/probe/send`: send to a gateway that measures, until it closes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendRequest {
    /// Name of the gateway that measures, which its certificate must carry.
    pub to: String,
    /// Its data port, `ip:port`.
    pub address: String,
    /// Connections to open, 1 to 64.
    pub connections: u16,
    /// Time limit in milliseconds if the receiver does not close, 1 to 120,000.
    pub at_most_ms: u32,
}

/// Answer of `POST /v1/probe/send`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendReport {
    /// The gateway that measured.
    pub to: String,
    /// Payload bytes that were given to the kernel.
    pub bytes: u64,
    /// Shortest TCP handshake: one round trip, answered by the other kernel before there was any load.
    pub rtt_ms_min: f64,
    /// TCP segments that this machine sent meanwhile on all its connections; absent where the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<u64>,
    /// Segments that were retransmitted, because they were lost or seemed to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments_again: Option<u64>,
}
