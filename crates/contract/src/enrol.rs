//! Messages by which a gateway joins a fleet, and requests to the fleet's owner.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Name of the owner in the certificates of its fleet. No gateway may have it.
pub const OWNER_NAME: &str = "tradewind-owner";

/// Input of `tradewind-gateway serve --join`: all that a machine needs to join its fleet. It is small enough for user
/// data. Its only secret is the token, which works once and for minutes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// [`crate::CONTRACT_VERSION`].
    pub contract: u32,
    /// Id of the fleet: 1 to 64 of `[a-z0-9-]`.
    pub fleet: String,
    /// Name of this gateway: a DNS label.
    pub name: String,
    /// The join token: 32 random bytes in hexadecimal. Secret.
    pub token_hex: String,
    /// Time until which the owner accepts the token, by the owner's clock.
    pub expires_unix_s: u64,
    /// Certificate of the fleet's CA.
    pub ca_pem: String,
    /// The side that opens connections for enrolment and control.
    pub control: JoinControl,
    /// Where it listens for other gateways, `ip:port`; absent if none connects to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

/// The dial direction of enrolment and control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum JoinControl {
    /// The gateway listens, and the owner dials it.
    Listen {
        /// Where it listens, `ip:port`; port 0 for any free one.
        address: String,
    },
    /// The gateway calls home: it dials the owner, and listens nowhere for control.
    Call {
        /// The owner's address, `host:port`.
        owner: String,
    },
    /// The gateway runs beside the owner: it calls the owner to enrol, and listens for control at a socket of this machine.
    Beside {
        /// The owner's address, `host:port`.
        owner: String,
        /// Path of the socket.
        socket: String,
    },
}

impl fmt::Debug for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { contract, fleet, name, token_hex: _, expires_unix_s, ca_pem: _, control, data } = self;
        f.debug_struct("Join")
            .field("contract", contract)
            .field("fleet", fleet)
            .field("name", name)
            .field("token_hex", &"redacted")
            .field("expires_unix_s", expires_unix_s)
            .field("control", control)
            .field("data", data)
            .finish_non_exhaustive()
    }
}

/// Body of `POST /v1/join`: the gateway forgets everything, and joins its fleet again with this token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinAgain {
    /// The new join token, as in [`Join`]. Secret.
    pub token_hex: String,
    /// Time until which the owner accepts the token, by the owner's clock.
    pub expires_unix_s: u64,
}

impl fmt::Debug for JoinAgain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token_hex: _, expires_unix_s } = self;
        f.debug_struct("JoinAgain").field("token_hex", &"redacted").field("expires_unix_s", expires_unix_s).finish()
    }
}

/// A gateway's request for an identity: answer of `POST /v1/identity`, and part of an enrolment. It has room for a name
/// and a key and for nothing else that a certificate could carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyRequest {
    /// Name of the gateway.
    pub name: String,
    /// Its new public key: a point of P-256, uncompressed, in hexadecimal (130 digits).
    pub public_key_hex: String,
    /// Signature by that key (ECDSA with SHA-256, ASN.1) of name and key, in hexadecimal.
    pub signature_hex: String,
}

/// Body of `PUT /v1/identity`, and the end of an enrolment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentityGrant {
    /// The certificate for the requested key, signed by the fleet's CA.
    pub certificate_pem: String,
}

/// The one line that `tradewind-gateway owner` prints on stdout when it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnerReady {
    /// Version of the program.
    pub gateway: String,
    /// [`crate::CONTRACT_VERSION`].
    pub contract: u32,
    /// Certificate of the fleet's CA.
    pub ca_pem: String,
    /// Where gateways that call home reach the owner, `ip:port`; null if it does not listen.
    pub home: Option<String>,
}

/// Body of `PUT /v1/gateways/NAME` on the owner's admin socket. A repeated request changes nothing; another address to
/// dial replaces the earlier one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayEntry {
    /// Its join token. Absent for a gateway that enrolled with an earlier owner of the same fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_hex: Option<String>,
    /// When the token expires.
    pub expires_unix_s: u64,
    /// True if the gateway calls home; otherwise the owner dials it.
    #[serde(default)]
    pub calls_home: bool,
    /// Where the owner dials it, `host:port`; absent while that is unknown, and if it calls home. `unix:PATH`, relative
    /// to the fleet's folder, for a gateway beside the owner: it calls home to enrol, and has its own control socket, so
    /// the owner makes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dial: Option<String>,
}

impl fmt::Debug for GatewayEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token_hex, expires_unix_s, calls_home, dial } = self;
        f.debug_struct("GatewayEntry")
            .field("token_hex", &token_hex.as_ref().map(|_| "redacted"))
            .field("expires_unix_s", expires_unix_s)
            .field("calls_home", calls_home)
            .field("dial", dial)
            .finish()
    }
}

/// Answer of `GET /v1/gateways` on the owner's admin socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayStates {
    /// All gateways that were added and not removed, by name.
    pub gateways: Vec<GatewayState>,
}

/// One gateway as its owner knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayState {
    /// Its name.
    pub name: String,
    /// True if it has an identity.
    pub enrolled: bool,
    /// True if the last attempt to reach it succeeded, or it keeps a connection to the owner.
    pub reachable: bool,
    /// Time of its last message; null if there was none.
    pub seen_unix_ms: Option<u64>,
    /// When its identity ends; null before it has one.
    pub expires_unix_s: Option<u64>,
    /// Why the last attempt to enrol, reach or renew it failed; null if it succeeded.
    pub failure: Option<String>,
    /// When it drains because the cloud takes its machine back; null while the cloud has announced nothing.
    pub leaves_unix_s: Option<u64>,
}
