//! What lead, source and sink say to each other, inside frames that relays pass on unread.
//!
//! An [`Order`] tells a source what to do. What the source then sends down the route is a parcel: a [`Manifest`] that
//! tells the sink what to do, and the object bytes it speaks of. The sink answers with a [`SinkReply`].

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use tradewind_contract::VerifyMode;
use tradewind_store::{
    Attributes, Checksums, Error, ErrorKind, Expect, PartSource, PartTag, Precondition, PutOptions, UploadId, Written,
};
use tradewind_wire::{Fault, RequestId, RouteId};

/// Parses one `T` and nothing else: bytes behind it would be bytes that nobody has looked at.
pub fn parse_exactly<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::take_from_bytes(bytes).ok().filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// One order of the lead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Fresh id.
    pub request: RequestId,
    /// Downstream.
    pub route: RouteId,
    /// Compress for hops when a sample says that it pays.
    pub compress: bool,
    /// What the source does.
    pub task: SourceTask,
}

/// What a source does with an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SourceTask {
    /// Reads a range of one object and sends it as one part.
    Part {
        /// Key at the source.
        source_key: String,
        /// State the object must be in.
        condition: Precondition,
        /// Bytes to read.
        range: Range<u64>,
        /// Where they go.
        place: PartPlace,
    },
    /// Reads whole objects and sends them in one bundle.
    Bundle(Vec<Fetch>),
    /// Passes the manifest on; no bytes go with it.
    Pass(Manifest),
}

/// One whole object to read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fetch {
    /// Key at the source.
    pub source_key: String,
    /// State the object must be in.
    pub condition: Precondition,
    /// Length as listed.
    pub size_bytes: u64,
    /// What the source store's listing said of it.
    pub listed: Checksums,
    /// Where it goes; attributes are filled in by the source from the store's answer.
    pub place: WholePlace,
    /// Copy inside the store instead of reading (the bucket to read from).
    pub copy_from_bucket: Option<String>,
    /// An earlier run has written it: the sink looks whether it survived, and nothing is read.
    pub check: Option<Unsynced>,
}

/// Where a part goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartPlace {
    /// Index of the destination.
    pub target: u16,
    /// Key there.
    pub key: String,
    /// Upload there.
    pub upload: UploadId,
    /// From 1.
    pub part: u32,
    /// Where it lies in the object.
    pub offset: u64,
}

/// Where a whole object goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WholePlace {
    /// Index of the destination.
    pub target: u16,
    /// Key there.
    pub key: String,
    /// How to write it.
    pub options: PutOptions,
    /// How hard to prove it.
    pub verify: VerifyMode,
    /// What the write may replace, as the lead knew the destination when it gave the order. Only the lead may say: a sink
    /// that looks for itself may see what a later attempt has written, and replace it.
    pub expect: Option<Expect>,
    /// An earlier attempt of this run may have written it.
    pub again: bool,
}

/// What a sink does with a parcel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Manifest {
    /// Writes the bytes as one part.
    Part {
        /// Where.
        place: PartPlace,
        /// Checksums that the source computed.
        checksums: Checksums,
    },
    /// Looks whether a part of an earlier run survived; no bytes go with it.
    CheckPart {
        /// Where it was written.
        place: PartPlace,
        /// The tag that the store returned for the part.
        part: PartTag,
    },
    /// Copies a part inside the store.
    CopyPart {
        /// Where.
        place: PartPlace,
        /// From where.
        source: PartSource,
    },
    /// Writes whole objects; their bytes follow one another in this order.
    Bundle(Vec<Entry>),
    /// Opens an upload.
    Open {
        /// Index of the destination.
        target: u16,
        /// Key there.
        key: String,
        /// How the object will be written.
        options: PutOptions,
    },
    /// Makes the parts the object and proves it.
    Close(Box<Close>),
    /// Forgets an upload.
    Abort {
        /// Index of the destination.
        target: u16,
        /// Key there.
        key: String,
        /// Upload there.
        upload: UploadId,
    },
}

/// One object of a bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Entry {
    /// Its bytes are in the bundle.
    Write {
        /// Where it goes.
        place: WholePlace,
        /// Its length.
        size_bytes: u64,
        /// Checksums that the source computed.
        checksums: Checksums,
        /// What vouches for the bytes that the source read.
        source_proof: Proof,
    },
    /// Copied inside the store.
    Copy {
        /// Where it goes.
        place: WholePlace,
        /// Its length.
        size_bytes: u64,
        /// From where.
        source: PartSource,
        /// What the source store said of it.
        listed: Checksums,
    },
    /// Written by an earlier run: the sink looks whether it survived.
    Check {
        /// Where it was written.
        place: WholePlace,
        /// Its length.
        size_bytes: u64,
        /// The journal's record of the object.
        unsynced: Unsynced,
    },
    /// The source could not read it: the sink only hands the words back.
    Failed(Failure),
}

/// See [`Manifest::Close`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Close {
    /// Where, with the options the upload was opened with.
    pub place: WholePlace,
    /// The upload.
    pub upload: UploadId,
    /// All its parts, ascending.
    pub parts: Vec<PartTag>,
    /// Length of the whole.
    pub size_bytes: u64,
    /// Checksums of the whole, combined from the parts.
    pub checksums: Checksums,
    /// What vouches for the bytes that the source read.
    pub source_proof: Proof,
    /// Abort other uploads of this key opened since (Unix ms): an open was tried more than once.
    pub sweep_since_unix_ms: Option<i64>,
}

/// What vouches for bytes, strongest first. The names in reports are those of [`Proof::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Proof {
    /// The store states the same CRC-64/NVME.
    Crc64Nvme,
    /// The store states the same CRC-32C.
    Crc32c,
    /// The store states the same MD5.
    Md5,
    /// Every part's MD5 is what the store states.
    PartsMd5,
    /// The bytes were read back and had the same checksums.
    ReadBack,
    /// Copied by the store itself, which states the same checksum or entity tag for both.
    StoreCopy,
    /// Only the length (and the version that was asked for) is known.
    Length,
}

/// Two statements about the same bytes that cannot both be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differs;

impl Proof {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Proof::Crc64Nvme => "crc64nvme",
            Proof::Crc32c => "crc32c",
            Proof::Md5 => "md5",
            Proof::PartsMd5 => "parts-md5",
            Proof::ReadBack => "read-back",
            Proof::StoreCopy => "store-copy",
            Proof::Length => "length",
        }
    }

    /// The strongest checksum that both sides state, if all they state agrees; `Err` when one differs.
    pub fn compare(computed: &Checksums, stated: &Checksums) -> Result<Proof, Differs> {
        match computed.agrees_with(stated) {
            Some(false) => Err(Differs),
            None => Ok(Proof::Length),
            Some(true) if computed.crc64nvme.is_some() && stated.crc64nvme.is_some() => Ok(Proof::Crc64Nvme),
            Some(true) if computed.crc32c.is_some() && stated.crc32c.is_some() => Ok(Proof::Crc32c),
            Some(true) => Ok(Proof::Md5),
        }
    }
}

/// A sink's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SinkReply {
    /// The part is durable.
    Part(PartTag),
    /// One verdict per object of the bundle, in order.
    Bundle(Vec<Result<Placed, Failure>>),
    /// The upload is open.
    Opened {
        /// The store's name for it.
        upload: UploadId,
        /// The store was asked more than once: an earlier request may have opened another upload, whose name nobody knows.
        asked_again: bool,
    },
    /// The object is visible and proven.
    Closed(Placed),
    /// The upload is gone.
    Aborted,
    /// None of it was done.
    Failed(Failure),
}

/// An object that is visible at the destination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// What the store says of it.
    pub written: Written,
    /// What vouches for what was read.
    pub source_proof: Proof,
    /// What vouches for what was written.
    pub target_proof: Proof,
    /// Its length.
    pub size_bytes: u64,
    /// Set while a power loss may undo the write.
    pub unsynced: Option<Unsynced>,
}

/// Bytes that a store acked before they were on its disk: a power loss of that machine may undo the write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsynced {
    /// The boot of the machine that took them; empty when nobody said. See [`Store::volatile_boot`].
    ///
    /// [`Store::volatile_boot`]: tradewind_store::Store::volatile_boot
    pub boot: String,
    /// Their checksums; without any, they can only be written again.
    pub checksums: Checksums,
}

/// Kind of [`Failure::lost`].
const LOST: &str = "lost";
/// Kind of a failure of a store that cannot be reached or does not answer; reports say `unavailable`.
const OUT_OF_REACH: &str = "out_of_reach";
/// Kind of [`Failure::unmet`].
const UNMET: &str = "unmet_condition";

/// Why something was not done, in words and as a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What follows from it.
    pub fault: Fault,
    /// Meaning for the report, e.g. `forbidden`.
    pub kind: String,
    /// One line.
    pub message: String,
    /// One line of advice.
    pub hint: Option<String>,
    /// Whose store said it; `None` for what is no store's.
    pub side: Option<Side>,
    /// The state of the destination, where it is not the one that the order expected, or not any more.
    pub leaves: Option<Box<Leaves>>,
}

/// What a failure leaves at the destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leaves {
    /// This was seen there.
    Seen(Expect),
    /// Nobody knows.
    Unknown,
    /// No upload: the only request to open one was refused.
    NoUpload,
}

/// On which side of the job a store stands; decides what its errors mean for the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Read from.
    Source,
    /// Written to.
    Target,
}

impl Failure {
    /// A failure that is no store's.
    pub fn new(fault: Fault, kind: &str, message: impl Into<String>) -> Self {
        Self { fault, kind: kind.to_owned(), message: message.into(), hint: None, side: None, leaves: None }
    }

    /// Bytes that are not what they should be.
    pub fn mismatch(message: impl Into<String>) -> Self {
        Self::new(Fault::Corrupt, "mismatch", message)
    }

    /// Bytes that an earlier run wrote and that are not there any more.
    pub fn lost(message: impl Into<String>) -> Self {
        Self::new(Fault::Corrupt, LOST, message)
    }

    /// Returns whether this is a [`Failure::lost`].
    pub fn is_lost(&self) -> bool {
        self.kind == LOST
    }

    /// Whether its store could not be reached, or did not answer, when it was asked from that gateway.
    pub fn is_out_of_reach(&self) -> bool {
        self.kind == OUT_OF_REACH
    }

    /// Whether a store understood the request and did nothing of it. An answer that breaks the protocol does not say so.
    pub fn is_plain_refusal(&self) -> bool {
        matches!(self.fault, Fault::Permanent | Fault::Refused)
            && !matches!(self.kind.as_str(), "protocol" | "unavailable" | "overwritten")
    }

    /// As reports word it.
    pub fn reported(self) -> Self {
        let kind = if self.is_out_of_reach() { "unavailable".to_owned() } else { self.kind };
        Self { kind, ..self }
    }

    /// The destination is not in the state that the order expected, so nothing was written. The lead orders it anew.
    pub fn unmet(url: &str, leaves: Leaves) -> Self {
        let message = format!("{url}: another writer was at work on this key again and again");
        Self::new(Fault::Unavailable, UNMET, message).leaving(leaves)
    }

    /// Whether it is of [`Failure::unmet`].
    pub fn is_unmet(&self) -> bool {
        self.kind == UNMET
    }

    /// The same, with what it leaves at the destination.
    pub fn leaving(self, leaves: Leaves) -> Self {
        Self { leaves: Some(Box::new(leaves)), ..self }
    }

    /// The object at the destination is not the one that was written there.
    pub fn overwritten(url: &str) -> Self {
        let message = format!("{url}: the object that was written has been replaced or removed, so it is not proven");
        let hint = "another writer, or an earlier attempt that arrived late, wrote this key: run the transfer again; \
                    where the store's ETags are not stable, with --verify read";
        Self { hint: Some(hint.to_owned()), ..Self::new(Fault::Permanent, "overwritten", message) }
    }

    /// A store's error, after the gateway's own tries.
    pub fn of_store(error: &Error, side: Side) -> Self {
        let (fault, kind) = classify(error.kind, side);
        let (message, hint) = (error.to_string(), error.hint().map(str::to_owned));
        let leaves = (error.kind == ErrorKind::Lost).then(|| Box::new(Leaves::Seen(Expect::Absent)));
        Self { fault, kind: kind.to_owned(), message, hint, side: Some(side), leaves }
    }
}

fn classify(kind: ErrorKind, side: Side) -> (Fault, &'static str) {
    match kind {
        ErrorKind::NotFound => (Fault::Permanent, "not_found"),
        ErrorKind::BucketNotFound => (Fault::Permanent, "bucket_not_found"),
        ErrorKind::Forbidden => (Fault::Refused, "forbidden"),
        ErrorKind::Unauthenticated => (Fault::Refused, "unauthenticated"),
        ErrorKind::PreconditionFailed if side == Side::Source => (Fault::Changed, "changed"),
        ErrorKind::PreconditionFailed => (Fault::Permanent, "precondition_failed"),
        ErrorKind::UploadNotFound => (Fault::UploadGone, "upload_gone"),
        ErrorKind::Timeout | ErrorKind::Connection => (Fault::Unavailable, OUT_OF_REACH),
        ErrorKind::SlowDown | ErrorKind::Server | ErrorKind::Truncated => (Fault::Unavailable, "unavailable"),
        // Asked for again, it would begin anew.
        ErrorKind::Unfinished => (Fault::Permanent, "unavailable"),
        ErrorKind::Occupied => (Fault::Permanent, "occupied"),
        ErrorKind::Overwritten => (Fault::Permanent, "overwritten"),
        ErrorKind::Archived => (Fault::Permanent, "archived"),
        ErrorKind::HasSnapshots => (Fault::Permanent, "has_snapshots"),
        ErrorKind::ChecksumMismatch | ErrorKind::Lost => (Fault::Corrupt, "mismatch"),
        ErrorKind::InvalidKey | ErrorKind::Link | ErrorKind::BrokenLink => (Fault::Permanent, "invalid_key"),
        ErrorKind::NoSpace => (Fault::Refused, "no_space"),
        ErrorKind::BadRequest => (Fault::Permanent, "bad_request"),
        ErrorKind::Unsupported => (Fault::Permanent, "unsupported"),
        ErrorKind::Protocol => (Fault::Permanent, "protocol"),
        ErrorKind::Configuration => (Fault::Refused, "configuration"),
    }
}

/// The attributes to write: those of the source object, unless the job sets its own.
pub fn attributes_of(options: &PutOptions, source: &Attributes) -> Attributes {
    if options.attributes == Attributes::default() { source.clone() } else { options.attributes.clone() }
}
