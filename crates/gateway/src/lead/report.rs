//! The report: one JSON line per object with its verdict and its proof, written off the hot path.

use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use tokio::sync::mpsc;
use tradewind_contract::FailedObject;

/// Verdicts that wait to be written; at the limit [`Report::add`] waits for the disk.
pub const REPORT_QUEUE_MAX: usize = 4096;

/// Bytes gathered for one write.
const BUFFER_BYTES: usize = 256 << 10;

/// What became of one object at one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectVerdict {
    /// Source URL.
    pub source: String,
    /// Destination URL.
    pub destination: String,
    /// Length.
    pub size_bytes: u64,
    /// What became of it.
    pub verdict: Verdict,
    /// What stands behind a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<ProofRecord>,
    /// Orders given again for it.
    #[serde(default)]
    pub retries: u64,
    /// For a failure: its meaning, as in [`FailedObject::kind`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// For a failure: one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What became of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Moved and proven.
    #[default]
    Copied,
    /// The destination had it.
    Skipped,
    /// Deleted at the destination (`--delete`), or at the source (`mv`).
    Deleted,
    /// Not moved.
    Failed,
}

/// Which proofs a copy has, in the words of `docs/concepts/integrity.md`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofRecord {
    /// Against what the source store states.
    pub source: String,
    /// On the way.
    pub hop: String,
    /// Against what the destination store states.
    pub destination: String,
}

impl From<&FailedObject> for ObjectVerdict {
    fn from(failed: &FailedObject) -> Self {
        Self {
            source: failed.source.clone(),
            destination: failed.destination.clone(),
            verdict: Verdict::Failed,
            kind: Some(failed.kind.clone()),
            message: Some(failed.message.clone()),
            ..Self::default()
        }
    }
}

/// Writes verdicts to a file from its own thread.
#[derive(Debug)]
pub struct Report {
    sender: mpsc::Sender<ObjectVerdict>,
    writer: JoinHandle<io::Result<()>>,
    path: PathBuf,
}

impl Report {
    /// Opens the file: empties it, or appends to it when the job is `resumed`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(path: &Path, resumed: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true);
        let file = if resumed { options.append(true) } else { options.write(true).truncate(true) }.open(path)?;
        let (sender, mut receiver) = mpsc::channel::<ObjectVerdict>(REPORT_QUEUE_MAX);
        let writer = std::thread::Builder::new().name("report".into()).spawn(move || {
            let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
            while let Some(verdict) = receiver.blocking_recv() {
                serde_json::to_writer(&mut file, &verdict).map_err(io::Error::from)?;
                file.write_all(b"\n")?;
            }
            file.flush()
        })?;
        Ok(Self { sender, writer, path: path.to_owned() })
    }

    /// Adds a verdict. After a failed write verdicts are dropped and [`Report::finish`] says why.
    pub async fn add(&self, verdict: ObjectVerdict) {
        // An error means that the writer has ended with one of its own, which `finish` returns.
        self.sender.send(verdict).await.ok();
    }

    /// Writes all that was added.
    ///
    /// # Errors
    /// The first write that failed, with the file's name.
    pub async fn finish(self) -> io::Result<()> {
        drop(self.sender);
        let writer = self.writer;
        let ended = tokio::task::spawn_blocking(move || writer.join()).await.map_err(io::Error::other)?;
        let written = ended.unwrap_or_else(|_| Err(io::Error::other("the writer panicked")));
        written.map_err(|error| io::Error::new(error.kind(), format!("report {}: {error}", self.path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(index: usize) -> ObjectVerdict {
        ObjectVerdict { source: format!("s3://a/{index}"), size_bytes: index as u64, ..ObjectVerdict::default() }
    }

    fn read(path: &Path) -> Vec<ObjectVerdict> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[tokio::test]
    async fn more_verdicts_than_the_queue_holds_are_all_written_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.jsonl");
        let count = 2 * REPORT_QUEUE_MAX + 1;
        let report = Report::open(&path, false).unwrap();
        for index in 0..count {
            report.add(verdict(index)).await;
        }
        report.finish().await.unwrap();
        assert_eq!(read(&path), (0..count).map(verdict).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_resumed_job_goes_on_and_a_new_one_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.jsonl");
        for (resumed, expected) in [(false, vec![1]), (true, vec![1, 1]), (false, vec![1])] {
            let report = Report::open(&path, resumed).unwrap();
            report.add(verdict(1)).await;
            report.finish().await.unwrap();
            assert_eq!(read(&path), expected.into_iter().map(verdict).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn a_full_disk_is_reported_and_does_not_stop_the_job() {
        let report = Report::open(Path::new("/dev/full"), false).unwrap();
        for index in 0..2 * REPORT_QUEUE_MAX {
            report.add(verdict(index)).await;
        }
        let error = report.finish().await.unwrap_err();
        assert!(error.to_string().contains("/dev/full"), "{error}");
    }
}
