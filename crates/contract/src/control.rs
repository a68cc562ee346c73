//! The small documents of the control API and of start-up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The one line that `tradewind-gateway serve` prints on stdout when it can be talked to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Where the control API answers: `unix:PATH` or `ip:port`; null for a gateway that calls home.
    pub control: Option<String>,
    /// Address of the data port, `ip:port`; null without one.
    pub data_address: Option<String>,
    /// Version of the gateway program.
    pub gateway: String,
    /// [`crate::CONTRACT_VERSION`]; a client of another one talks no further.
    pub contract: u32,
}

/// Body of every answer of the control API that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// One line.
    pub error: String,
    /// One line of advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Body of `POST /v1/lease`: whoever wants the gateway to live says so again before its lease lapses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// Seconds from now that the gateway lives on without a further renewal, 1 to 86,400.
    pub lease_s: u32,
}

/// Body of `POST /v1/probe`: how far is that gateway from this one?
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
    /// Least time of a TCP handshake: one round trip, answered by the other kernel.
    pub rtt_ms_min: f64,
    /// Median of the same.
    pub rtt_ms_median: f64,
    /// Time of the mutual TLS handshake after that; absent on plain hops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_handshake_ms: Option<f64>,
    /// True if the other side proved the name `to` by a certificate of this fleet.
    pub peer_verified: bool,
}

/// Body of `POST /v1/probe/receive`: measure what arrives from another gateway, which sends at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiveRequest {
    /// Name of the gateway that will send; nobody else is listened to.
    pub from: String,
    /// Connections that it will open, 1 to 64.
    pub connections: u16,
    /// So long after the last of them is there nothing is counted: they are still finding their rate.
    pub warmup_ms: u32,
    /// So long is counted, 1 to 60,000.
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
    /// Payload that arrived while it was counted.
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
    /// Stop after so long even if it does not close, 1 to 120,000.
    pub at_most_ms: u32,
}

/// Answer of `POST /v1/probe/send`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendReport {
    /// The gateway that measured.
    pub to: String,
    /// Payload that was given to the kernel.
    pub bytes: u64,
    /// Least time of a TCP handshake: one round trip, answered by the other kernel before there was any load.
    pub rtt_ms_min: f64,
    /// TCP segments that this machine sent meanwhile, all its connections together; absent where the system does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<u64>,
    /// Number of these that were sent again, because they were lost or seemed to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments_again: Option<u64>,
}
