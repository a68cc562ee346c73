//! Why a request was not done, as far as it decides what happens next.

use serde::{Deserialize, Serialize};

/// Class of a negative reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Fault {
    /// The way was lost (connection, gateway): nobody knows whether it was done. Tried again, on any route.
    Lost,
    /// A hop of the route has no connection at all: tried again elsewhere, and the route rests for a while.
    RouteDown,
    /// The store could not do it now, after the gateway's own tries.
    Unavailable,
    /// Bytes did not match their hash or checksum.
    Corrupt,
    /// This gateway cannot (disk full, not permitted): another one may.
    Refused,
    /// No gateway can (no such object, key not possible): the object ends here.
    Permanent,
    /// The source object is not the one that was listed: start again once.
    Changed,
    /// The multipart upload is gone: start again once.
    UploadGone,
}
