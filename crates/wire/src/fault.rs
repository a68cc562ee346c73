//! Reasons why a request failed, as far as they decide what happens next.

use serde::{Deserialize, Serialize};

/// Class of a negative reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Fault {
    /// The connection or gateway was lost, so the outcome is unknown. Retried on any route.
    Lost,
    /// A hop of the route has no connection at all. Retried on another route, and this route rests for a while.
    RouteDown,
    /// The store could not do it now, even after the gateway's own retries.
    Unavailable,
    /// Bytes did not match their hash or checksum.
    Corrupt,
    /// This gateway cannot do it (disk full, not permitted), but another one may.
    Refused,
    /// No gateway can do it (no such object, impossible key): the object fails.
    Permanent,
    /// The source object is not the version that was listed: restart once.
    Changed,
    /// The multipart upload no longer exists: restart once.
    UploadGone,
}
