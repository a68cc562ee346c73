//! What a job under a cost ceiling has spent, over the death of its lead.
//!
//! `status.json` is seconds old when a lead is killed, and what went out since then has been paid. So a sum is written to
//! a file of its own **before** it may be spent; the next run takes it for spent. A job that ends writes what it did spend.

use super::Running;
use crate::lead::journal::JournalError;
use crate::lead::state_dir::StateDir;
use crate::lead::status;
use std::path::{Path, PathBuf};
use std::{fs, io};
use tradewind_contract::JobState;

/// Name of the file in the job's folder: US dollars, as text.
pub(super) const SPENDING_FILE: &str = "spent_usd_max";
/// So much of the ceiling is written down at once, so that a job writes about a hundred times.
const AHEAD: f64 = 0.01;

/// The sum on disk.
#[derive(Debug)]
pub(super) struct Spending {
    path: PathBuf,
    written_usd: f64,
}

impl Spending {
    pub(super) fn of(dir: &Path) -> Self {
        Self { path: dir.join(SPENDING_FILE), written_usd: 0.0 }
    }

    /// What earlier runs may have spent; nothing if none had a ceiling.
    fn before(&self) -> io::Result<f64> {
        match fs::read_to_string(&self.path) {
            Ok(text) => text.parse().map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0.0),
            Err(error) => Err(error),
        }
    }

    /// Returns when the file names `spent_usd` or more. `most_usd`: the ceiling.
    fn cover(&mut self, spent_usd: f64, most_usd: f64) -> io::Result<()> {
        if spent_usd <= self.written_usd {
            return Ok(());
        }
        let ahead_usd = spent_usd.max((spent_usd + AHEAD * most_usd).min(most_usd));
        let fresh = self.path.with_extension("new");
        fs::write(&fresh, ahead_usd.to_string())?;
        fs::rename(fresh, &self.path)?;
        self.written_usd = ahead_usd;
        Ok(())
    }
}

impl Running {
    /// The cost ceiling is on all runs of the job together.
    pub(super) fn carry_over(&mut self, state: &StateDir) {
        let before = status::read(state.path()).and_then(|status| {
            let is_exact = status.as_ref().is_some_and(|status| status.state != JobState::Running);
            let at_most_usd = if is_exact { 0.0 } else { Spending::of(state.path()).before()? };
            let (bytes, usd) = status.map_or((0, 0.0), |status| (status.progress.bytes_done, status.progress.cost_usd));
            Ok((bytes, usd.max(at_most_usd)))
        });
        match before {
            Ok((bytes, usd)) => self.lead.carried_before(bytes, usd),
            Err(error) => self.notice(format!("what earlier runs spent is not known: {error}")),
        }
    }

    /// Writes down what has been booked, before it is sent.
    pub(super) fn cover_booked(&mut self) -> Result<(), JournalError> {
        let (Some(spending), Some(most_usd)) = (&mut self.spending, self.lead.shares().most_usd()) else {
            return Ok(());
        };
        spending
            .cover(self.lead.shares().spent_usd(), most_usd)
            .map_err(|error| JournalError::Io { path: spending.path.clone(), message: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_covers_what_is_spent_and_little_more_in_few_writes() {
        let dir = tempfile::tempdir().unwrap();
        let mut spending = Spending::of(dir.path());
        assert_eq!(spending.before().unwrap(), 0.0);
        let mut writes = 0;
        for step in 0..=10_000 {
            let spent_usd = f64::from(step) * 1e-4;
            let earlier_usd = spending.written_usd;
            spending.cover(spent_usd, 1.0).unwrap();
            let written_usd = Spending::of(dir.path()).before().unwrap_or_default();
            assert!(written_usd >= spent_usd && written_usd <= (spent_usd + AHEAD).min(1.0), "{written_usd}");
            writes += usize::from(spending.written_usd > earlier_usd);
        }
        assert!(writes <= 100, "{writes} writes");
    }
}
