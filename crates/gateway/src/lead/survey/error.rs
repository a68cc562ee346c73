//! Why a survey did not complete, and what that means for the job.

use super::LIST_NAMES_MAX;
use crate::failure::outcome_of;
use crate::lead::availability::Lost;
use crate::lead::join::{JoinError, Side};
use crate::lead::journal::JournalError;
use crate::lead::select::BadRule;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tradewind_contract::Outcome;
use tradewind_store::{Error, ErrorKind, Relation, Unreachable};

/// Why a survey did not complete.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// The source cannot be listed or read.
    #[error("{0}")]
    Source(Error),
    /// A destination cannot be listed.
    #[error("{0}")]
    Target(Error),
    /// The source, or every destination, was unreachable or returned only errors for as long as the job may stall.
    #[error("{}", unreachable(.0))]
    Unreachable(Box<Lost>),
    /// The source is named as one object, but only a directory has this name.
    #[error("{url} is a directory, not an object")]
    IsDirectory {
        /// The source.
        url: String,
    },
    /// The source is named as a directory, but only an object has this name.
    #[error("{url} is an object, not a directory")]
    IsObject {
        /// The source.
        url: String,
    },
    /// The source has no object, or the filter leaves none.
    #[error("{}", nothing_selected(.url, *.source_objects))]
    NothingSelected {
        /// The source.
        url: String,
        /// Number of objects that the filter left out, and of folders that were therefore not listed.
        source_objects: u64,
    },
    /// A filter rule is no glob.
    #[error(transparent)]
    BadRule(#[from] BadRule),
    /// The list of names cannot be read.
    #[error("list of names {}: {error}", .path.display())]
    ListFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A list file names more than [`LIST_NAMES_MAX`] objects.
    #[error("the list names more than {LIST_NAMES_MAX} objects")]
    TooManyNames,
    /// More than [`LIST_NAMES_MAX`] objects would lose their directories.
    #[error("--flatten takes at most {LIST_NAMES_MAX} objects")]
    TooManyFlat,
    /// Two places of the job are one place, or share a part.
    #[error("{}", overlapping(.one, .other, *.relation))]
    Overlap {
        /// The source, or an earlier destination.
        one: String,
        /// A destination.
        other: String,
        /// How they relate.
        relation: Relation,
    },
    /// One of several sources is where another one is to be written.
    #[error(
        "{source_url} could be overwritten before it is read, because {other_url} is to be written to {destination}"
    )]
    WrittenOver {
        /// The source.
        source_url: String,
        /// The other source.
        other_url: String,
        /// Where the other source is to be written.
        destination: String,
    },
    /// Nothing tells the objects of source and destination apart.
    #[error("{source_url} and {destination} may be one place under two names: their objects cannot be told apart")]
    NotApart {
        /// The source.
        source_url: String,
        /// The destination.
        destination: String,
    },
    /// No object of the source stayed as it was long enough to be compared with its counterpart.
    #[error(
        "cannot prove that {source_url} and {destination} are two places: every object checked was missing or changing"
    )]
    Undecided {
        /// The source.
        source_url: String,
        /// The destination.
        destination: String,
    },
    /// The list file has no names.
    #[error("the list has no names")]
    EmptyList,
    /// Tags must be kept, and a store of the job has none.
    #[error("--tags keep: {url} does not keep tags of objects")]
    NoTags {
        /// The store.
        url: String,
    },
    /// `delete` with a selection that is no prefix.
    #[error("--delete needs a whole prefix, not selected objects")]
    DeletionNeedsPrefix,
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The work for the end of the job cannot be written to disk.
    #[error("cannot use a temporary file of the job: {0}")]
    Backlog(io::Error),
    /// Stopped, or nobody listens any more.
    #[error("the listing was stopped")]
    Cancelled,
}

/// Advice where a store is unreachable or returns only errors.
pub const UNREACHABLE_HINT: &str =
    "check the endpoint and the network with `tradewind doctor URL`, then run `tradewind jobs resume`";

/// Message about a store that did not answer in time.
pub fn unreachable(lost: &Lost) -> String {
    let Unreachable { origin, is_connected, why, .. } = &lost.how;
    match is_connected {
        true => answers_only_errors(&lost.url, lost.patience, why),
        false => format!("cannot reach {origin} for {} s: {why}", lost.how.lasted().as_secs()),
    }
}

/// Message about a store that has returned only errors for as long as a job may stall.
pub fn answers_only_errors(url: &str, patience: Duration, why: &str) -> String {
    format!("{url} has returned only errors for {} s (--stall): {why}", patience.as_secs())
}

fn overlapping(one: &str, other: &str, relation: Relation) -> String {
    match relation {
        Relation::FirstWithin => format!("{one} lies within {other}"),
        Relation::SecondWithin => format!("{other} lies within {one}"),
        Relation::Crossed => format!("{one} and {other} share a directory"),
        Relation::Same | Relation::Apart => format!("{one} and {other} are the same place"),
    }
}

/// Message if nothing is there, or if the filter excludes all of this number of objects and folders.
pub fn nothing_selected(url: &str, source_objects: u64) -> String {
    match source_objects {
        0 => format!("nothing exists at {url}"),
        _ => format!("the filter excludes everything in {url}"),
    }
}

impl SurveyError {
    /// How the job ends.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Source(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::BucketNotFound) => {
                Outcome::SourceNotFound
            }
            Self::Source(error) | Self::Target(error) => outcome_of(error),
            Self::NothingSelected { .. } | Self::EmptyList | Self::IsDirectory { .. } | Self::IsObject { .. } => {
                Outcome::SourceNotFound
            }
            Self::Overlap { .. }
            | Self::WrittenOver { .. }
            | Self::NotApart { .. }
            | Self::Undecided { .. }
            | Self::NoTags { .. } => Outcome::Refused,
            Self::Unreachable(_) => Outcome::Unavailable,
            Self::Cancelled => Outcome::Interrupted,
            _ => Outcome::Failed,
        }
    }

    /// One line of advice.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            // It was tried for as long as the job may stall.
            Self::Source(error) | Self::Target(error) if error.kind == ErrorKind::Connection => Some(UNREACHABLE_HINT),
            Self::Source(error) | Self::Target(error) => error.hint(),
            Self::Unreachable(_) => Some(UNREACHABLE_HINT),
            Self::IsDirectory { .. } => Some("add -r to include everything below it"),
            Self::IsObject { .. } => Some("to copy one object: tradewind cp SRC DST, without -r and a final slash"),
            Self::NothingSelected { source_objects: 0, .. } => {
                Some("check the name with `tradewind ls`, or pass --allow-empty")
            }
            Self::EmptyList => Some("pass --allow-empty if that is expected"),
            Self::NothingSelected { .. } => Some("--explain KEY shows which rule decides, or pass --allow-empty"),
            Self::BadRule(rule) => Some(rule.hint()),
            Self::ListFile { .. } => Some("write one relative name per line, in UTF-8"),
            Self::TooManyNames => Some("split the list, or select by prefix with --include"),
            Self::TooManyFlat => Some("copy a part of them at a time"),
            Self::Overlap { .. } => Some("choose places that do not contain each other"),
            Self::WrittenOver { .. } => {
                Some("transfer it first, with a command of its own; --as-subdir keeps the name of a single directory")
            }
            Self::NotApart { .. } => {
                Some("name both by the same endpoint and bucket; if they are two places, empty the destination first")
            }
            Self::Undecided { .. } => Some("try again when nothing writes to the source, or use `cp` and `rm`"),
            Self::NoTags { .. } => {
                Some("--tags auto keeps them where both stores can, and counts those that are dropped")
            }
            Self::DeletionNeedsPrefix => Some("leave out --delete, or sync a whole prefix"),
            Self::Journal(error) => Some(error.hint()),
            Self::Backlog(_) => Some("free some space for temporary files"),
            Self::Cancelled => None,
        }
    }
}

impl From<JoinError> for SurveyError {
    fn from(failed: JoinError) -> Self {
        match failed.side {
            Side::Source => Self::Source(failed.error),
            Side::Target(_) => Self::Target(failed.error),
        }
    }
}
