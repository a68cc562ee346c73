//! `status.json`: the progress of the job, for `jobs list` and `jobs show`. It is replaced by a rename, so a reader
//! never sees a partial file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use tradewind_contract::{JobState, JobStatus, Outcome, Progress, Summary};

/// Name of the file in the job's folder.
pub const STATUS_FILE: &str = "status.json";

/// Milliseconds since the Unix epoch.
pub fn now_unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The status of a running job.
pub fn running(progress: Progress) -> JobStatus {
    JobStatus { state: JobState::Running, progress, summary: None, updated_unix_ms: now_unix_ms() }
}

/// The status of a job that has ended.
pub fn ended(summary: Summary) -> JobStatus {
    let state = match summary.outcome {
        Outcome::Done => JobState::Done,
        // Nothing is wrong with the objects: a resumed job continues where this one stopped.
        Outcome::Interrupted | Outcome::Unavailable | Outcome::Ceiling => JobState::Interrupted,
        _ => JobState::Failed,
    };
    JobStatus { state, progress: summary.progress.clone(), summary: Some(summary), updated_unix_ms: now_unix_ms() }
}

/// Replaces the status file. The call blocks, but the file is small. The last status of a run is synced; a power loss
/// may leave an earlier one empty.
///
/// # Errors
/// The file system's error; the previous status stays.
pub fn write(dir: &Path, status: &JobStatus) -> io::Result<()> {
    let json = serde_json::to_vec(status).map_err(io::Error::other)?;
    let fresh = dir.join("status.json.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(&json)?;
    if status.summary.is_some() {
        file.sync_data()?;
    }
    fs::rename(fresh, dir.join(STATUS_FILE))
}

/// Reads the latest status; `None` if none has been written yet.
///
/// # Errors
/// The file system's or the JSON parser's error.
pub fn read(dir: &Path) -> io::Result<Option<JobStatus>> {
    match fs::read(dir.join(STATUS_FILE)) {
        Ok(json) => serde_json::from_slice(&json).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_status_is_read_back_and_nothing_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        let first = running(Progress { objects_total: 3, ..Progress::default() });
        write(dir.path(), &first).unwrap();
        let second = JobStatus { state: JobState::Cancelled, ..first };
        write(dir.path(), &second).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(second));
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [STATUS_FILE]);
    }
}
