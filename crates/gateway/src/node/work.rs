//! The messages of lead, source and sink, inside frames that relays forward unread.
//!
//! An [`Order`] tells a source what to do. The source then sends a parcel down the route: a [`Manifest`], which tells
//! the sink what to do, and the object bytes it describes. The sink answers with a [`SinkAnswer`].

use super::dedup::window::WindowState;
use super::load::StageLoad;
use crate::attributes::Inherited;
use crate::tags::TagRule;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use tradewind_contract::{CodecChoice, VerifyMode};
use tradewind_store::{
    Checksums, Error, ErrorKind, Expect, PartSource, PartTag, Precondition, PutOptions, UploadId, Written,
};
use tradewind_wire::{Fault, RequestId, RouteId};

/// Parses one `T` and nothing else. Any bytes after it are an error, since nothing would check them.
pub fn parse_exactly<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::take_from_bytes(bytes).ok().filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// One order from the lead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Its unique id.
    pub request: RequestId,
    /// The route on which the source sends the result.
    pub route: RouteId,
    /// How the bytes are compressed for hops; `None` if they are not.
    pub codec: Option<CodecChoice>,
    /// Leaves out bytes on hops that the sink has.
    pub deduplicate: bool,
    /// The source's task.
    pub task: SourceTask,
}

/// The task of an order.
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
        /// Where the bytes go.
        place: PartPlace,
        /// True if the source store states the CRC-32C of the whole object: then that of these bytes is computed.
        crc32c: bool,
    },
    /// Reads whole objects and sends them in one bundle.
    Bundle(Vec<Fetch>),
    /// Forwards the manifest, without any bytes.
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
    /// The checksums in the source store's listing.
    pub listed: Checksums,
    /// Where it goes; the source completes the attributes from the store's answer.
    pub place: WholePlace,
    /// The attributes that it gets in addition to those in `place`.
    pub inherited: Inherited,
    /// The treatment of its tags.
    pub tags: TagRule,
    /// The bucket to copy from inside the store, instead of reading the object.
    pub copy_from_bucket: Option<String>,
    /// Set if an earlier run has written the object: the sink checks whether it survived, and nothing is read.
    pub check: Option<Box<Unsynced>>,
}

/// Where a part goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartPlace {
    /// Index of the destination.
    pub target: u16,
    /// Key at the destination.
    pub key: String,
    /// Upload at the destination.
    pub upload: UploadId,
    /// Number of the part, from 1.
    pub part: u32,
    /// Its offset in the object, in bytes.
    pub offset: u64,
}

/// Where a whole object goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WholePlace {
    /// Index of the destination.
    pub target: u16,
    /// Key at the destination.
    pub key: String,
    /// Options of the write.
    pub options: PutOptions,
    /// The required proof.
    pub verify: VerifyMode,
    /// The state that the write may replace, as the lead knew the destination when it gave the order. Only the lead
    /// decides this: a sink that checked for itself might see the object of a later attempt, and replace it.
    pub expect: Option<Expect>,
    /// Whether an earlier attempt of this run may have written it.
    pub again: bool,
    /// True if the source has tags that are not in `options`.
    pub tags_dropped: bool,
}

/// A sink's task for a parcel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Manifest {
    /// Writes the bytes as one part.
    Part {
        /// Where the part goes.
        place: PartPlace,
        /// Checksums that the source computed.
        checksums: Checksums,
    },
    /// Checks whether a part of an earlier run survived; sent without bytes.
    CheckPart {
        /// Where it was written.
        place: PartPlace,
        /// The tag that the store returned for the part.
        part: PartTag,
    },
    /// Copies a part inside the store.
    CopyPart {
        /// Where the part goes.
        place: PartPlace,
        /// The object and range to copy.
        source: PartSource,
    },
    /// Writes whole objects, whose bytes follow in the same order.
    Bundle(Vec<Entry>),
    /// Opens an upload.
    Open {
        /// Index of the destination.
        target: u16,
        /// Key at the destination.
        key: String,
        /// Options with which the object will be written.
        options: PutOptions,
    },
    /// Completes the upload and proves the object.
    Close(Box<Close>),
    /// Aborts an upload.
    Abort {
        /// Index of the destination.
        target: u16,
        /// Key at the destination.
        key: String,
        /// Upload at the destination.
        upload: UploadId,
    },
    /// Withdraws all requests with lower ids than this one: those that have not arrived are refused, and an upload that
    /// is being opened is not left open.
    Fence,
}

impl Manifest {
    /// Returns the lengths of the objects whose bytes follow, in their order. A part is one whole.
    pub fn written_bytes(&self) -> impl Iterator<Item = u64> + '_ {
        let entries = if let Manifest::Bundle(entries) = self { &entries[..] } else { &[] };
        entries
            .iter()
            .filter_map(|entry| if let Entry::Write { size_bytes, .. } = entry { Some(*size_bytes) } else { None })
    }
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
        /// The proof of the bytes that the source read.
        source_proof: Proof,
    },
    /// Copied inside the store.
    Copy {
        /// Where it goes.
        place: WholePlace,
        /// Its length.
        size_bytes: u64,
        /// The object to copy.
        source: Box<PartSource>,
        /// The checksums in the source store's listing.
        listed: Checksums,
    },
    /// Written by an earlier run: the sink checks whether it survived.
    Check {
        /// Where it was written.
        place: WholePlace,
        /// Its length.
        size_bytes: u64,
        /// The journal's record of the object.
        unsynced: Unsynced,
    },
    /// The source could not read it: the sink only returns the failure.
    Failed(Failure),
}

/// See [`Manifest::Close`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Close {
    /// Where the object goes, with the options the upload was opened with.
    pub place: WholePlace,
    /// The upload.
    pub upload: UploadId,
    /// All its parts, ascending.
    pub parts: Vec<PartTag>,
    /// Length of the whole.
    pub size_bytes: u64,
    /// Checksums of the whole, combined from the parts.
    pub checksums: Checksums,
    /// The proof of the bytes that the source read.
    pub source_proof: Proof,
    /// Abort other uploads of this key opened since then (Unix ms), because an open was tried more than once.
    pub sweep_since_unix_ms: Option<i64>,
}

/// How bytes are proven, strongest first. [`Proof::name`] gives the names in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Proof {
    /// The store states the same CRC-64/NVME.
    Crc64Nvme,
    /// The store states the same CRC-32C.
    Crc32c,
    /// The store states the same MD5.
    Md5,
    /// The store's ETag is computed from the MD5s of all parts.
    PartsMd5,
    /// The bytes were read back and had the same checksums.
    ReadBack,
    /// Copied by the store itself, which states the same checksum or ETag for both.
    StoreCopy,
    /// Only the length (and the requested version) is known.
    Length,
}

/// Two checksums that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differs;

impl Proof {
    /// The name in reports.
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

    /// Returns the strongest checksum that both sides state, if all they state agrees; `Err` if one differs.
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

/// A sink's answer, with what is known of the body that it answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SinkAnswer {
    /// The answer.
    pub reply: SinkReply,
    /// Bytes that deduplication and compression saved on the hops.
    pub saved_bytes: u64,
    /// Part of `saved_bytes` that deduplication saved.
    pub deduplicated_bytes: u64,
    /// For a body with a recipe: the state of the sink's window.
    pub window: Option<WindowState>,
    /// What the sink reports about its limits, now and then.
    pub load: Option<StageLoad>,
}

/// Result of a sink's task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SinkReply {
    /// The store acknowledged the part. A file store syncs parts only when it completes the upload.
    Part(PartTag),
    /// One verdict per object of the bundle, in order.
    Bundle(Vec<Result<Placed, Failure>>),
    /// The upload is open.
    Opened {
        /// The store's id of the upload.
        upload: UploadId,
        /// Whether the store was asked more than once: an earlier request may have opened another upload, whose id is
        /// unknown.
        asked_again: bool,
        /// True if the store refused the optional tags, and opened it without them.
        tags_dropped: bool,
    },
    /// The object is visible and proven.
    Closed(Box<Placed>),
    /// The upload is aborted.
    Aborted,
    /// Nothing was done.
    Failed(Failure),
    /// The earlier requests are withdrawn, and none of them opens an upload any more.
    Fenced,
}

/// An object that is visible at the destination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// The store's description of it.
    pub written: Written,
    /// The proof of the bytes that were read.
    pub source_proof: Proof,
    /// The proof of the bytes that were written.
    pub target_proof: Proof,
    /// Its length.
    pub size_bytes: u64,
    /// Checksums of the bytes that were written. Empty for a copy by the store, whose bytes passed through no gateway.
    pub sent: Checksums,
    /// True if it lacks tags of its source.
    pub tags_dropped: bool,
    /// True if it is a file that lacks a mode, owner or time which its metadata states, because it cannot be read.
    pub attributes_ignored: bool,
    /// Set while a power loss may undo the write.
    pub unsynced: Option<Unsynced>,
}

/// Bytes that a store acked before they were on its disk: a power loss of that machine may undo the write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsynced {
    /// The boot ID of the machine that took them; empty if it is unknown. See [`Store::volatile_boot`].
    ///
    /// [`Store::volatile_boot`]: tradewind_store::Store::volatile_boot
    pub boot: String,
    /// Their checksums. If there are none, the bytes cannot be checked and must be written again.
    pub checksums: Checksums,
}

/// Kind of a failure to read an object that is encrypted with its owner's key.
const CUSTOMER_KEY: &str = "customer_key";
const UNMET_WORDS: &str = "another writer kept changing this key";
/// Kind of a failure because an upload no longer exists, or cannot be used.
pub const UPLOAD_GONE: &str = "upload_gone";
/// Kind of [`Failure::lost`].
const LOST: &str = "lost";
/// Kind of a failure where a store cannot be reached or does not answer; reports call it `unavailable`.
const OUT_OF_REACH: &str = "out_of_reach";
/// Kind of [`Failure::unmet`].
const UNMET: &str = "unmet_condition";

/// Why something was not done, with its class and its message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The class, which decides how the lead reacts.
    pub fault: Fault,
    /// Meaning for the report, e.g. `forbidden`.
    pub kind: String,
    /// One-line message.
    pub message: String,
    /// One line of advice.
    pub hint: Option<String>,
    /// The side whose store failed; `None` if no store did.
    pub side: Option<Side>,
    /// The state of the destination, if it is not, or no longer, the one that the order expected.
    pub leaves: Option<Box<Leaves>>,
}

/// State in which a failure leaves the destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leaves {
    /// The state that was seen there.
    Seen(Expect),
    /// The state is unknown.
    Unknown,
    /// No upload: the only request to open one was refused.
    NoUpload,
}

/// The side of the job on which a store is. It decides what the store's errors mean for the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Read from.
    Source,
    /// Written to.
    Target,
}

impl Failure {
    /// A failure that did not come from a store.
    pub fn new(fault: Fault, kind: &str, message: impl Into<String>) -> Self {
        Self { fault, kind: kind.to_owned(), message: message.into(), hint: None, side: None, leaves: None }
    }

    /// A failure because bytes are not what they should be.
    pub fn mismatch(message: impl Into<String>) -> Self {
        Self::new(Fault::Corrupt, "mismatch", message)
    }

    /// A message does not open. So it is unknown whether the request is carried out: a relay may deliver it later.
    pub fn damaged(message: impl Into<String>) -> Self {
        Self::new(Fault::Lost, "mismatch", message)
    }

    /// Returns whether this is a [`Failure::damaged`]. Sources and sinks say so sealed: a relay cannot.
    pub fn is_damaged(&self) -> bool {
        self.fault == Fault::Lost && self.kind == "mismatch"
    }

    /// A failure because a source or a sink has hops and no key. The check of programs refuses such programs.
    pub fn without_seal() -> Self {
        Self::new(Fault::Permanent, "configuration", "this gateway has no key to seal and open bodies")
    }

    /// A failure because bytes that an earlier run wrote no longer exist.
    pub fn lost(message: impl Into<String>) -> Self {
        Self::new(Fault::Corrupt, LOST, message)
    }

    /// Returns whether this is a [`Failure::lost`].
    pub fn is_lost(&self) -> bool {
        self.kind == LOST
    }

    /// Returns whether its store could not be reached from that gateway, or did not answer.
    pub fn is_out_of_reach(&self) -> bool {
        self.kind == OUT_OF_REACH
    }

    /// Returns whether a store understood the request and carried out none of it. An answer that breaks the protocol
    /// does not prove that.
    pub fn is_plain_refusal(&self) -> bool {
        matches!(self.fault, Fault::Permanent | Fault::Refused)
            && !matches!(self.kind.as_str(), "protocol" | "unavailable" | "overwritten")
    }

    /// The failure in the terms of reports.
    pub fn reported(self) -> Self {
        let kind = if self.is_out_of_reach() { "unavailable".to_owned() } else { self.kind };
        Self { kind, ..self }
    }

    /// The destination is not in the state that the order expected, so nothing was written. The lead orders it again.
    pub fn unmet(url: &str, leaves: Leaves) -> Self {
        let message = format!("{url}: {UNMET_WORDS}");
        Self::new(Fault::Unavailable, UNMET, message).leaving(leaves)
    }

    /// The failure in a job that never replaces an object: one that another writer has made meanwhile stays.
    pub fn keeping_existing(self) -> Self {
        if !self.is_unmet() || !matches!(self.leaves.as_deref(), Some(Leaves::Seen(Expect::Is(_)))) {
            return self;
        }
        let url = self.message.trim_end_matches(UNMET_WORDS);
        let message = format!("{url}another writer made this object meanwhile, and it is kept");
        Self { side: self.side, ..Self::new(Fault::Permanent, "occupied", message) }
    }

    /// Returns whether this is a [`Failure::unmet`].
    pub fn is_unmet(&self) -> bool {
        self.kind == UNMET
    }

    /// The same failure, with the state it leaves at the destination.
    pub fn leaving(self, leaves: Leaves) -> Self {
        Self { leaves: Some(Box::new(leaves)), ..self }
    }

    /// A failure because the object at the destination is not the one that was written there.
    pub fn overwritten(url: &str) -> Self {
        let message = format!("{url}: the written object was replaced or removed, so it is not proven");
        let hint = "run the transfer again: another writer or a late attempt wrote this key";
        Self { hint: Some(hint.to_owned()), ..Self::new(Fault::Permanent, "overwritten", message) }
    }

    /// The failure of a copy by the store, which may be due to its source: only reads need a customer's key.
    pub fn of_copy(self) -> Self {
        let side = if self.kind == CUSTOMER_KEY { Some(Side::Source) } else { self.side };
        Self { side, ..self }
    }

    /// A store's error, after the gateway's own retries.
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
        ErrorKind::Expired => (Fault::Unavailable, "expired"),
        ErrorKind::PreconditionFailed if side == Side::Source => (Fault::Changed, "changed"),
        ErrorKind::PreconditionFailed => (Fault::Permanent, "precondition_failed"),
        ErrorKind::UploadNotFound => (Fault::UploadGone, UPLOAD_GONE),
        ErrorKind::Timeout | ErrorKind::Connection => (Fault::Unavailable, OUT_OF_REACH),
        ErrorKind::SlowDown | ErrorKind::Server | ErrorKind::Truncated => (Fault::Unavailable, "unavailable"),
        // A retry would start from the beginning.
        ErrorKind::Unfinished => (Fault::Permanent, "unavailable"),
        ErrorKind::Occupied => (Fault::Permanent, "occupied"),
        ErrorKind::Overwritten => (Fault::Permanent, "overwritten"),
        ErrorKind::Archived => (Fault::Permanent, "archived"),
        ErrorKind::CustomerKey => (Fault::Permanent, CUSTOMER_KEY),
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
