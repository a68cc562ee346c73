//! Messages inside frames, between lead, source and sink of the simulation. The gateway has its own.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tradewind_wire::{Fault, ObjectId, RequestId, RouteId};

pub(crate) type Key = u32;
pub(crate) type Version = u32;
pub(crate) type Upload = u64;
pub(crate) type Etag = u64;

/// One request: the order that the lead gives to a source, and the manifest at the front of its body.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) request: RequestId,
    pub(crate) route: RouteId,
    pub(crate) op: Op,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Op {
    Open { object: ObjectId, key: Key },
    Part { object: ObjectId, key: Key, version: Version, part: u32, offset: u64, bytes: u64, upload: Upload },
    Bundle(Vec<Member>),
    Close { object: ObjectId, key: Key, upload: Upload, parts: Vec<Etag> },
    Abort { object: ObjectId, key: Key, upload: Upload },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) object: ObjectId,
    pub(crate) key: Key,
    pub(crate) version: Version,
    pub(crate) bytes: u64,
}

impl Op {
    pub(crate) fn carried_bytes(&self) -> u64 {
        match self {
            Op::Part { bytes, .. } => *bytes,
            Op::Bundle(members) => members.iter().map(|member| member.bytes).sum(),
            Op::Open { .. } | Op::Close { .. } | Op::Abort { .. } => 0,
        }
    }
}

/// The sink's reply, one outcome per object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SinkReply(pub(crate) Vec<(ObjectId, Result<Receipt, Fault>)>);

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Receipt {
    Done,
    Opened(Upload),
    Part(Etag),
}

pub(crate) fn pack<T: Serialize>(value: &T) -> Bytes {
    postcard::to_stdvec(value).expect("our own types serialise").into()
}

pub(crate) fn unpack<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> T {
    postcard::from_bytes(bytes).expect("what passed the hash is what was packed")
}

/// Replaces the seal and the store's ETag: any changed byte changes it.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
