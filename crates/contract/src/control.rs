//! The small documents of the control API and of start-up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The one line that `tradewind-gateway serve` prints on stdout when it can be talked to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Where the control API answers: `unix:PATH` or `ip:port`.
    pub control: String,
    /// Address of the data port, `ip:port`; null without one.
    pub data_address: Option<String>,
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
    /// Whether the other side proved the name `to` by a certificate of this fleet.
    pub peer_verified: bool,
}
