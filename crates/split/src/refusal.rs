//! Why a connection, or a configuration, was refused.

use crate::files::used_up;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// Why a connection was refused. It travels back to the entry, and is counted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The destination refused the connection.
    Refused,
    /// No route to the destination, or the network said so.
    Unreachable,
    /// The destination or a proxy did not answer in time.
    TimedOut,
    /// The name of the destination has no address.
    NameNotFound,
    /// The destination is not on the allow-list of a proxy, is an address that must be listed exactly, or is the proxy itself.
    NotAllowed,
    /// The client did not authenticate.
    Unauthenticated,
    /// The client or a proxy sent a request that is malformed or too large.
    Malformed,
    /// A limit of connections, of open files, of the accept rate or of name lookups is reached.
    Limit,
    /// The route names a proxy that the configuration does not have, or is too long.
    Route,
    /// The next proxy did not prove its identity, or broke the protocol.
    Hop,
    /// The connection broke before it was established.
    Broken,
}

impl Cause {
    /// The name by which it is counted; the same as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed_out",
            Self::NameNotFound => "name_not_found",
            Self::NotAllowed => "not_allowed",
            Self::Unauthenticated => "unauthenticated",
            Self::Malformed => "malformed",
            Self::Limit => "limit",
            Self::Route => "route",
            Self::Hop => "hop",
            Self::Broken => "broken",
        }
    }

    /// The cause of an error of the operating system while dialing.
    pub fn of_dial(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::TimedOut => Self::TimedOut,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Self::Unreachable,
            _ if used_up(error) => Self::Limit,
            _ => Self::Broken,
        }
    }
}

/// One refused connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub cause: Cause,
    /// Details for the log; never sent to a client.
    pub detail: String,
}

impl Refusal {
    /// A refusal with details for the log.
    pub fn new(cause: Cause, detail: impl Into<String>) -> Self {
        Self { cause, detail: detail.into() }
    }

    /// The client or peer broke the protocol, or the connection did.
    pub(crate) fn of_read(error: &io::Error) -> Self {
        let cause = match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Cause::Malformed,
            io::ErrorKind::TimedOut => Cause::TimedOut,
            _ => Cause::Broken,
        };
        Self::new(cause, error.to_string())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.cause, self.detail)
    }
}

/// Why a proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SplitError {
    /// The configuration contradicts itself or would be unsafe.
    #[error("configuration: {0}")]
    Config(String),
    /// A file of tokens cannot be used.
    #[error("tokens {path}: {reason}")]
    Tokens {
        /// The file.
        path: String,
        /// The fault, without text of the file.
        reason: String,
    },
    /// An address cannot be listened on.
    #[error("listener {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The fault.
        source: io::Error,
    },
}

impl SplitError {
    /// The remedy, for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Config(_) => "correct the configuration",
            Self::Tokens { .. } => "write one NAME:SHA256 per line, with the SHA-256 of the token in hexadecimal",
            Self::Listen { .. } => "choose an address of this machine and a free port",
        }
    }
}
