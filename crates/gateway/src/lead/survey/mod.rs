//! The survey: finds the objects to transfer and sends them on while it is still listing.
//!
//! A prefix is listed by key ranges, several at once. With a comparison each destination is listed over the same ranges
//! and the listings are [joined](crate::lead::join). What is found goes through one bounded channel, so a slow
//! transfer slows the listing down; memory is bounded by pages and batches, whatever the number of objects.

mod error;
mod walk;

pub use error::{SurveyError, UNREACHABLE_HINT, answers_only_errors, nothing_selected, unreachable};

use crate::lead::copies::ProvenCopy;
use crate::lead::deletion::DeletionBacklog;
use crate::lead::journal::{DoneSet, DoneTotals};
use crate::node::work::Unsynced;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tradewind_contract::{FailedObject, JobSpec, Limits};
use tradewind_store::{Error, Expect, NameChanges, ObjectInfo, Store};

/// Maximum number of findings in the channel; at the limit the listing waits.
pub const FOUND_QUEUE_MAX: usize = 4096;
/// Maximum number of objects that are looked up and compared together.
const BATCH_OBJECTS_MAX: usize = 512;
/// Maximum number of objects for which the channel of findings is asked for room at once.
const ITEMS_AT_ONCE_MAX: usize = 64;
/// `HEAD` requests in flight, over all ranges and stores.
const HEADS_AT_ONCE_MAX: usize = 32;
/// Maximum number of names in one list file: their hashes are kept in memory (about 36 bytes each) to take each name
/// once.
pub const LIST_NAMES_MAX: usize = 4_000_000;

/// One object × one destination to transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkItem {
    /// Index of the destination.
    pub target: u16,
    /// Key at the destination.
    pub target_key: String,
    /// The source object, from a listing or its own request. The journal records its
    /// [fingerprint](crate::lead::journal::fingerprint).
    pub info: ObjectInfo,
    /// Whether the destination can copy it inside the store.
    pub server_side: bool,
    /// An earlier run has written it, and it is only to be seen whether it survived.
    pub check: Option<Box<Unsynced>>,
    /// A write of this run was lost and may still arrive at the destination.
    pub may_land_late: bool,
    /// The state that the next write may replace; `None` where the state of the destination is not known.
    pub expect: Option<Expect>,
    /// Uploads of this key that were opened by this run since then (Unix ms) may be ours, and nobody knows their names.
    pub orphans_since_unix_ms: Option<i64>,
    /// Set if the destination may take its name for that of another object of this job, or change it.
    pub twin: Option<Twin>,
}

/// An object whose name the destination may treat as that of another object, see [`names`](crate::lead::names). It
/// waits until the others are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Twin {
    /// The destination had it when it was listed. It stays as it is, unless the job has written the other one over it.
    pub is_there: bool,
    /// How one of the two names may be changed. Without these they differ only in letters.
    pub by: NameChanges,
}

/// Result of the survey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Objects to transfer.
    Item(Box<WorkItem>),
    /// The destination has them.
    Skipped {
        /// Index of the destination.
        target: u16,
        /// Number of objects.
        objects: u64,
        /// Sum of their lengths.
        bytes: u64,
    },
    /// An earlier run of this job has moved and proven them.
    AlreadyDone {
        /// Index of the destination.
        target: u16,
        /// Number of objects.
        objects: u64,
        /// Sum of their lengths.
        bytes: u64,
    },
    /// Copied by an earlier run of this job, whose sources are to be deleted; counted in [`Found::AlreadyDone`] too.
    CopiedBefore {
        /// The source as it is listed now, which is as it was copied.
        source: Box<ObjectInfo>,
        /// The objects that that run wrote.
        copy: Box<ProvenCopy>,
    },
    /// An object that is selected and cannot be transferred.
    Refused {
        /// The object, and the reason.
        failed: FailedObject,
        /// Index of the destination; `None` if the cause is not at a destination.
        target: Option<u16>,
        /// Its length, as far as known.
        bytes: u64,
    },
    /// An entry of a destination that cannot be listed, so it is unknown what to delete there.
    NotListed(FailedObject),
    /// The number of symbolic links in the source, which are not followed.
    LinksSkipped(u64),
    /// The source was listed to its end; nothing follows.
    Listed,
}

/// A survey, ready to run.
#[derive(Debug)]
pub struct Survey {
    /// The job.
    pub job: Arc<JobSpec>,
    /// The store of the source.
    pub source: Arc<dyn Store>,
    /// The destinations, in the order of [`JobSpec::targets`].
    pub targets: Vec<Arc<dyn Store>>,
    /// Limits of requests.
    pub limits: Limits,
    /// The objects that earlier runs have done.
    pub done: DoneSet,
    /// The work that earlier runs had done when one of them was about to delete the sources, by index of the destination.
    /// A missing source that was done counts as moved. `None` if no run got that far.
    pub done_before_deletion: Option<BTreeMap<u16, DoneTotals>>,
    /// Whether all destinations are written by this process, so that its boot is theirs.
    pub local: bool,
    /// Per destination, since when earlier runs may have written files there that lost their bytes in a power loss (Unix
    /// ms): length and time prove nothing about a file that changed since then. `None`: nothing was lost.
    pub suspect_since_unix_ms: Vec<Option<i64>>,
    /// Per destination, whether it may show the source's objects under other names.
    pub may_be_source: Vec<bool>,
    /// Per destination, the reason why it cannot be written. Such a destination gets no requests.
    pub shut: Vec<Option<Error>>,
    /// The channel for findings; [`FOUND_QUEUE_MAX`] is a good bound.
    pub out: mpsc::Sender<Found>,
    /// Stops the survey.
    pub cancel: CancellationToken,
}

/// The result of a completed survey.
#[derive(Debug, Default)]
pub struct SurveyEnd {
    /// Number of objects that the source has below the prefix, selected or not.
    pub source_objects: u64,
    /// Number of objects selected.
    pub objects: u64,
    /// Sum of their lengths.
    pub bytes: u64,
    /// Number of selected objects that cannot be transferred, each sent as [`Found::Refused`].
    pub refused: u64,
    /// Whether every key of the source was seen; false when entries were refused.
    pub listed_to_the_end: bool,
    /// True if `flatten` gave the name of one object to another one, which was refused.
    pub has_flat_twins: bool,
    /// With `delete`: selected objects, empty folders apart, that each destination had when it was listed.
    pub target_objects: Vec<u64>,
    /// With `delete`: what the destinations have and the source does not. Indices are those of the destinations.
    pub extraneous: Option<DeletionBacklog>,
}

impl Survey {
    /// Surveys the whole selection.
    ///
    /// # Errors
    /// An error that ends the whole job; [`SurveyError::outcome`] says how. Findings made before it have been sent.
    pub async fn run(self) -> Result<SurveyEnd, SurveyError> {
        let cancel = self.cancel.clone();
        cancel.run_until_cancelled(walk::look(self)).await.unwrap_or(Err(SurveyError::Cancelled))
    }
}

#[cfg(test)]
mod tests;
