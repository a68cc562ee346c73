//! Why a task failed, its exit code and its hint.

use crate::failure::{exit_code, hint_for_named, outcome_of};
use crate::lead::journal::JournalError;
use crate::lead::select::BadRule;
use crate::lead::state_dir::StateDirError;
use crate::lead::survey::nothing_selected;
use std::io;
use tradewind_contract::Outcome;
use tradewind_store::{Error, ErrorKind};

/// Exit code for invalid usage.
const EXIT_USAGE: u8 = 2;

/// Why a task failed.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The task is not understood.
    #[error("{0}")]
    Usage(String),
    /// A rule of the filter is not a valid glob.
    #[error(transparent)]
    BadRule(#[from] BadRule),
    /// A store failed.
    #[error("{0}")]
    Store(#[from] Error),
    /// The task was carried out as far as possible, but did not end well.
    #[error("{message}")]
    Ended {
        /// The outcome.
        outcome: Outcome,
        /// The error, in one line.
        message: String,
        /// One line of advice.
        hint: Option<String>,
    },
    /// stdout or stdin failed. For tasks that only show something, a closed pipe is not a failure.
    #[error("{0}")]
    Stream(#[from] io::Error),
}

impl TaskError {
    pub(super) fn ended(outcome: Outcome, message: impl Into<String>, hint: Option<&str>) -> Self {
        Self::Ended { outcome, message: message.into(), hint: hint.map(str::to_owned) }
    }

    /// The error if the source, or everything under it, does not exist, or if the filter leaves out all its `excluded`
    /// objects.
    pub(super) fn nothing_selected(url: &str, excluded: u64) -> Self {
        let hint = if excluded == 0 { "check the name with `tradewind ls`" } else { "check the rules of the filter" };
        Self::ended(Outcome::SourceNotFound, nothing_selected(url, excluded), Some(hint))
    }

    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::BadRule(_) => EXIT_USAGE,
            Self::Store(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::BucketNotFound) => {
                exit_code(Outcome::SourceNotFound)
            }
            Self::Store(error) => exit_code(outcome_of(error)),
            Self::Ended { outcome, .. } => exit_code(*outcome),
            Self::Stream(_) => exit_code(Outcome::Failed),
        }
    }

    pub(super) fn hint(&self) -> Option<&str> {
        match self {
            Self::Store(error) => error.hint().map(hint_for_named),
            Self::Ended { hint, .. } => hint.as_deref(),
            Self::BadRule(rule) => Some(rule.hint()),
            Self::Usage(_) | Self::Stream(_) => None,
        }
    }
}

impl From<StateDirError> for TaskError {
    fn from(error: StateDirError) -> Self {
        Self::ended(Outcome::Failed, error.to_string(), Some(error.hint()))
    }
}

impl From<JournalError> for TaskError {
    fn from(error: JournalError) -> Self {
        Self::ended(Outcome::Failed, error.to_string(), Some(error.hint()))
    }
}

pub(super) type TaskResult = Result<(), TaskError>;
