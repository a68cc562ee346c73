//! Records the bytes and US dollars that a job has spent, so that the sums survive a crash of its lead.
//!
//! `status.json` is seconds old when a lead is killed, and everything sent since then has been charged. So the sums are
//! written to a separate file **before** anything is sent, and the next run continues from them. The file is
//! overwritten in place, in one short write, so that a kill leaves either the old sums or the new ones. It is synced
//! when it is created, at every tick of the lead while it changes, and at the end of a run: a power loss may lose the
//! spending since the last tick.

use crate::background::Background;
use crate::lead::journal::JournalError;
use crate::lead::state_dir::StateDir;
use crate::lead::status;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;
use tradewind_wire::shares::{Before, Shares};

/// Name of the file in the job's folder. It holds US dollars and bytes, as text with a fixed width.
pub(super) const SPENDING_FILE: &str = "spent";

/// The bytes and costs that a job has booked. They are booked before they are sent, so some may never have been sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Booked {
    usd: f64,
    bytes: u64,
}

impl Booked {
    fn of(shares: &Shares) -> Self {
        Self { usd: shares.spent_usd(), bytes: shares.sent_bytes() }
    }

    /// The sums as a line of text. Scientific notation keeps even the shortest exact form of a number within the width.
    fn line(self) -> String {
        format!("{:<32} {:>20}\n", format!("{:e}", self.usd), self.bytes)
    }

    fn parse(line: &str) -> Option<Self> {
        let (usd, bytes) = line.trim().split_once(' ')?;
        Some(Self { usd: usd.parse().ok()?, bytes: bytes.trim().parse().ok()? })
    }
}

/// The sums on disk.
#[derive(Debug)]
pub(super) struct Spending {
    path: PathBuf,
    file: Option<Arc<File>>,
    written: Booked,
    /// The sums that survive a power loss.
    synced: Arc<Mutex<Booked>>,
    syncing: Option<JoinHandle<()>>,
    background: Background,
}

impl Spending {
    pub(super) fn of(dir: &Path, background: Background) -> Self {
        let (path, written) = (dir.join(SPENDING_FILE), Booked::default());
        Self { path, file: None, written, synced: Arc::default(), syncing: None, background }
    }

    /// Reads the bookings of earlier runs; `None` if they wrote none, because no route had a price and there was no
    /// ceiling.
    fn before(&self) -> io::Result<Option<Booked>> {
        match std::fs::read_to_string(&self.path) {
            Ok(text) => Booked::parse(&text).map(Some).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{} is damaged", self.path.display()))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the booked sums before the bytes are sent. Without costs and without a ceiling, writes nothing.
    pub(super) fn cover(&mut self, shares: &Shares, has_ceiling: bool) -> Result<(), JournalError> {
        let booked = Booked::of(shares);
        if booked.usd == 0.0 && !has_ceiling {
            return Ok(());
        }
        self.write(booked).map_err(|error| JournalError::Io { path: self.path.clone(), message: error.to_string() })
    }

    /// Writes these sums to the file.
    fn write(&mut self, booked: Booked) -> io::Result<()> {
        if booked == self.written {
            return Ok(());
        }
        if let Some(file) = &self.file {
            file.write_all_at(booked.line().as_bytes(), 0)?;
            self.written = booked;
            return Ok(());
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
        file.write_all_at(booked.line().as_bytes(), 0)?;
        self.file = Some(Arc::new(file));
        self.written = booked;
        // The file's name must survive a power loss too: a missing file would count as no spending.
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        self.sync()
    }

    /// Syncs the written sums to disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| sync(file, self.written, &self.synced))
    }

    /// Starts to sync the written sums in the background, unless an earlier sync is still running.
    pub(super) fn sync_behind(&mut self) {
        let is_busy = self.syncing.as_ref().is_some_and(|syncing| !syncing.is_finished());
        let Some(file) = self.file.clone().filter(|_| !is_busy && self.written != self.synced()) else { return };
        let (written, synced, background) = (self.written, self.synced.clone(), self.background);
        let work = move || {
            if let Err(error) = sync(&file, written, &synced) {
                tracing::warn!(%error, "cannot sync the job's spending");
            }
        };
        self.syncing = Some(tokio::spawn(async move { drop(background.run(work).await) }));
    }

    fn synced(&self) -> Booked {
        *self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sync(file: &File, written: Booked, synced: &Mutex<Booked>) -> io::Result<()> {
    file.sync_data()?;
    *synced.lock().unwrap_or_else(PoisonError::into_inner) = written;
    Ok(())
}

/// Returns what earlier runs have spent. Ceilings and the reported cost cover all runs of the job together. `counts`:
/// the job has a ceiling, or a route with a price.
///
/// # Errors
/// The bookings of earlier runs cannot be read, so no ceiling could be kept.
pub(super) fn spent_before(state: &StateDir, counts: bool) -> Result<Before, JournalError> {
    let spending = Spending::of(state.path(), Background::default());
    let unknown = |path: PathBuf, error: &io::Error| JournalError::Spent { path, message: error.to_string() };
    let booked = spending.before().map_err(|error| unknown(spending.path.clone(), &error))?;
    let status = match status::read(state.path()) {
        Err(error) if counts && booked.is_none() => {
            return Err(unknown(state.path().join(status::STATUS_FILE), &error));
        }
        Err(error) => {
            tracing::warn!(%error, "the status of the earlier run cannot be read, and is not needed");
            None
        }
        Ok(status) => status,
    };
    let (carried_bytes, usd) = status.map_or((0, 0.0), |status| (status.progress.bytes_done, status.progress.cost_usd));
    let booked = booked.unwrap_or(Booked { usd, bytes: carried_bytes });
    Ok(Before { carried_bytes, sent_bytes: booked.bytes, spent_usd: booked.usd })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_last_is_read_back_to_the_bit(sums in prop::collection::vec((0.0..1e12f64, any::<u64>()), 1..20)) {
            let dir = tempfile::tempdir().unwrap();
            let mut spending = Spending::of(dir.path(), Background::default());
            prop_assert_eq!(spending.before().unwrap(), None);
            for (usd, bytes) in sums {
                let booked = Booked { usd, bytes };
                spending.write(booked).unwrap();
                prop_assert_eq!(Spending::of(dir.path(), Background::default()).before().unwrap(), (booked != Booked::default()).then_some(booked));
            }
        }
    }

    #[tokio::test]
    async fn the_first_sums_are_on_the_disk_before_anything_is_sent_and_later_ones_follow() {
        for background in [Background::Threads, Background::Inline] {
            let dir = tempfile::tempdir().unwrap();
            let mut spending = Spending::of(dir.path(), background);
            let [first, later] = [100, 200].map(|bytes| Booked { usd: 0.0, bytes });
            spending.write(first).unwrap();
            assert_eq!(spending.synced(), first);
            spending.write(later).unwrap();
            assert_eq!(spending.synced(), first, "a sync for each batch of orders would be slow");
            spending.sync_behind();
            spending.syncing.take().unwrap().await.unwrap();
            assert_eq!(spending.synced(), later);
            spending.sync_behind();
            assert!(spending.syncing.is_none(), "nothing is new");
        }
    }

    #[test]
    fn damage_is_an_error_and_not_a_job_that_cost_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let spending = Spending::of(dir.path(), Background::default());
        for text in ["", "1.5", "1.5 many", "free 12"] {
            std::fs::write(&spending.path, text).unwrap();
            assert!(spending.before().is_err(), "{text:?}");
        }
    }
}
