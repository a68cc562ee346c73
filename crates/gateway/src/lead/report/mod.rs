//! The report: one JSON line per object with its verdict and its proof, written off the hot path.
//!
//! A killed process, or a full disk, may cost lines of objects that the journal has. So a resumed run adds, at its end, a
//! line for each object of the journal that the file does not name.

mod verdict;

pub use self::verdict::{CopiedLine, Line, ObjectVerdict, ProofNames, ProofRecord, Verdict};

use self::verdict::LINE_START;
use serde::Deserialize;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tradewind_store::{Disk, Kernel};

/// Bytes of lines that wait to be written; at the limit [`Report::add`] waits for the disk. Half of it wakes the writer.
pub const REPORT_BYTES_MAX: usize = 1 << 20;

/// Longest time that lines wait for others to be written together with. Waking the writer for each of them would cost
/// more than writing it.
const GATHER_MAX: Duration = Duration::from_millis(50);

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;

/// A longer line was not written by us.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Lines remembered, 8 bytes each. Objects of earlier runs whose lines lie behind them may be listed a second time.
const LISTED_MAX: usize = 1 << 26;

/// The mode of a new file: nobody else may read one in a private folder, such as the job's. Elsewhere the umask decides.
fn mode_in(folder: Option<&Path>) -> u32 {
    let is_private = folder.and_then(|folder| folder.metadata().ok()).is_some_and(|folder| folder.mode() & 0o077 == 0);
    if is_private { 0o600 } else { 0o666 }
}

/// Writes verdicts to a file from its own thread, which ends with it.
#[derive(Debug)]
pub struct Report {
    queue: Arc<Queue>,
    /// None once [`Report::finish`] waits for it.
    writer: Option<JoinHandle<io::Result<()>>>,
    thread: Thread,
    path: PathBuf,
    /// Length of the file when this run began.
    begins_at: u64,
}

/// Lines and requests that wait for the writer.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// Notified when lines were taken, or the writer has ended.
    has_room: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Whole lines.
    lines: Vec<u8>,
    /// Each is answered when the lines before it are in the file.
    flushes: Vec<oneshot::Sender<()>>,
    /// True if the writer sleeps until somebody wakes it.
    is_idle: bool,
    /// True if nothing follows.
    is_complete: bool,
    /// True if the writer has ended, after an error of its own that [`Report::finish`] returns.
    has_failed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // No code that can panic runs while it is locked.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line. Returns whether the writer must be woken; `None` if the line has no room yet.
    fn add(&self, line: &impl Line) -> Option<bool> {
        let mut waiting = self.lock();
        if waiting.has_failed {
            return Some(false);
        }
        let before = waiting.lines.len();
        if before >= REPORT_BYTES_MAX {
            return None;
        }
        match line.write(&mut waiting.lines) {
            Ok(()) => waiting.lines.push(b'\n'),
            // No verdict has a part that JSON cannot express.
            Err(_) => waiting.lines.truncate(before),
        }
        let is_urgent = before < REPORT_BYTES_MAX / 2 && waiting.lines.len() >= REPORT_BYTES_MAX / 2;
        Some(std::mem::take(&mut waiting.is_idle) || is_urgent)
    }
}

impl Report {
    /// Opens the file: empties it, or appends to it when the job is `resumed`, after the last whole line of earlier runs.
    ///
    /// # Errors
    /// The file system's error.
    pub fn open(path: &Path, resumed: bool) -> io::Result<Self> {
        let mode = mode_in(path.parent());
        let file = OpenOptions::new().create(true).append(true).read(resumed).mode(mode).open(path)?;
        let lines = if resumed { Lines::after_earlier(file)? } else { Lines::of_empty(file)? };
        let begins_at = lines.whole_bytes;
        let queue = Arc::<Queue>::default();
        let end = WriterEnd(queue.clone());
        let writer = std::thread::Builder::new().name("report".into()).spawn(move || write_all(lines, &end.0))?;
        let thread = writer.thread().clone();
        Ok(Self { queue, writer: Some(writer), thread, path: path.to_owned(), begins_at })
    }

    /// Adds a verdict. After a failed write verdicts are dropped and [`Report::finish`] says why.
    pub async fn add(&self, line: &impl Line) {
        loop {
            // Created before the queue is looked at, so that no notification is missed.
            let room = self.queue.has_room.notified();
            match self.queue.add(line) {
                Some(false) => return,
                Some(true) => return self.thread.unpark(),
                None => room.await,
            }
        }
    }

    /// The destinations that need no line of an earlier run: those that have one of this run, and those that an earlier
    /// run reported as copied.
    ///
    /// # Errors
    /// The file system's error. [`Report::finish`] says why nothing more can be written.
    pub async fn listed(&self) -> io::Result<Listed> {
        let (sender, written) = oneshot::channel();
        let ended = || io::Error::other("nothing more can be written");
        {
            let mut waiting = self.queue.lock();
            if waiting.has_failed {
                return Err(named(&self.path, &ended()));
            }
            waiting.flushes.push(sender);
        }
        self.thread.unpark();
        let (path, begins_at) = (self.path.clone(), self.begins_at);
        let read = tokio::task::spawn_blocking(move || {
            written.blocking_recv().map_err(|_| ended())?;
            Listed::read(&path, begins_at)
        });
        read.await.map_err(io::Error::other)?.map_err(|error| named(&self.path, &error))
    }

    /// Writes all verdicts that were added.
    ///
    /// # Errors
    /// The first write that failed, with the file's name.
    pub async fn finish(mut self) -> io::Result<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        self.complete();
        let ended = tokio::task::spawn_blocking(move || writer.join()).await.map_err(io::Error::other)?;
        let written = ended.unwrap_or_else(|_| Err(io::Error::other("the writer panicked")));
        written.map_err(|error| named(&self.path, &error))
    }

    fn complete(&self) {
        self.queue.lock().is_complete = true;
        self.thread.unpark();
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.complete();
    }
}

/// Ends the waits of all others when the writer ends, also by a panic.
struct WriterEnd(Arc<Queue>);

impl Drop for WriterEnd {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.has_failed = true;
        waiting.flushes.clear();
        drop(waiting);
        self.0.has_room.notify_waiters();
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write the report {}: {error}", path.display()))
}

fn write_all(mut lines: Lines, queue: &Queue) -> io::Result<()> {
    loop {
        let (flushes, is_complete) = {
            let mut waiting = queue.lock();
            std::mem::swap(&mut waiting.lines, &mut lines.buffer);
            waiting.is_idle = lines.buffer.is_empty() && waiting.flushes.is_empty() && !waiting.is_complete;
            (std::mem::take(&mut waiting.flushes), waiting.is_complete)
        };
        queue.has_room.notify_waiters();
        match (lines.buffer.is_empty() && flushes.is_empty(), is_complete) {
            (true, true) => return lines.close(),
            (true, false) => std::thread::park(),
            (false, _) => {
                // Nobody knows when the next line comes, and a killed process writes nothing more.
                lines.write()?;
                for written in flushes {
                    // A receiver that no longer waits needs no answer.
                    written.send(()).ok();
                }
                // Whoever completes the report wakes this thread, before or after it sleeps.
                std::thread::park_timeout(if is_complete { Duration::ZERO } else { GATHER_MAX });
            }
        }
    }
}

/// The part of a line that says what became of which object.
#[derive(Deserialize)]
struct DestinationVerdict {
    destination: String,
    verdict: Verdict,
}

/// Destinations that a report names, as hashes in ascending order.
#[derive(Debug)]
pub struct Listed(Vec<u64>);

impl Listed {
    fn read(path: &Path, begins_at: u64) -> io::Result<Self> {
        let mut file = BufReader::with_capacity(READ_BYTES, File::open(path)?);
        let (mut listed, mut line, mut at) = (Vec::new(), Vec::new(), 0);
        while listed.len() < LISTED_MAX {
            line.clear();
            let read = file.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? as u64;
            if read == 0 {
                break;
            }
            // A line that does not parse was not written by us.
            if let Ok(found) = serde_json::from_slice::<DestinationVerdict>(&line)
                && (at >= begins_at || found.verdict == Verdict::Copied)
            {
                listed.push(hash_of(&found.destination));
            }
            at += read;
        }
        listed.sort_unstable();
        Ok(Self(listed))
    }

    /// Returns whether the report names the destination.
    pub fn contains(&self, destination: &str) -> bool {
        self.0.binary_search(&hash_of(destination)).is_ok()
    }
}

fn hash_of(destination: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    destination.hash(&mut hasher);
    hasher.finish()
}

/// The open file. It has whole lines only, unless the process is killed in the middle of a write.
#[derive(Debug)]
struct Lines {
    file: File,
    /// Whole lines.
    buffer: Vec<u8>,
    /// Where the last whole line in the file ends.
    whole_bytes: u64,
}

impl Lines {
    fn of_empty(file: File) -> io::Result<Self> {
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        Ok(Self { file, buffer: Vec::new(), whole_bytes: 0 })
    }

    fn after_earlier(file: File) -> io::Result<Self> {
        let whole_bytes = file.metadata()?.len();
        let mut lines = Self { file, buffer: Vec::new(), whole_bytes };
        lines.mend_end()?;
        Ok(lines)
    }

    /// Cuts off a line that a killed run began. A partial line that no run wrote stays.
    fn mend_end(&mut self) -> io::Result<()> {
        let mut end = vec![0; self.whole_bytes.min(LINE_BYTES_MAX) as usize];
        let from = self.whole_bytes - end.len() as u64;
        self.file.read_exact_at(&mut end, from)?;
        let line_at = end.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        let line = &end[line_at.unwrap_or(0)..];
        let begins_like_ours = line.starts_with(LINE_START) || LINE_START.starts_with(line);
        if line.is_empty() {
            return Ok(());
        }
        if begins_like_ours && serde_json::from_slice::<ObjectVerdict>(line).is_err() {
            self.whole_bytes -= line.len() as u64;
            return self.file.set_len(self.whole_bytes);
        }
        self.buffer.push(b'\n');
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        let mut written = 0;
        while written < self.buffer.len() {
            match self.file.write(&self.buffer[written..]) {
                Ok(0) => return self.cut(written, io::ErrorKind::WriteZero.into()),
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.cut(written, error),
            }
        }
        self.whole_bytes += written as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Returns the error that the file system has kept until now. See [`Disk::flush`].
    fn close(&self) -> io::Result<()> {
        Ok(Kernel.flush(self.file.as_fd())?)
    }

    /// After a write that failed: takes the piece of a line back that was written.
    fn cut(&mut self, written: usize, error: io::Error) -> io::Result<()> {
        let whole = self.buffer[..written].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.whole_bytes += whole as u64;
        self.buffer.clear();
        if whole < written {
            // If it stays, the next run finds it.
            drop(self.file.set_len(self.whole_bytes));
        }
        Err(error)
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
    async fn a_report_that_is_dropped_ends_its_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.jsonl");
        let mut report = Report::open(&path, false).unwrap();
        let writer = report.writer.take().unwrap();
        report.add(&verdict(1)).await;
        drop(report);
        tokio::task::spawn_blocking(move || writer.join().unwrap().unwrap()).await.unwrap();
        assert_eq!(read(&path), [verdict(1)]);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_writer_that_has_panicked() {
        let dir = tempfile::tempdir().unwrap();
        let report = Report::open(&dir.path().join("report.jsonl"), false).unwrap();
        let writer = WriterEnd(report.queue.clone());
        let panics = move || {
            let _writer = writer;
            panic!("on purpose");
        };
        assert!(std::thread::spawn(panics).join().is_err());
        for index in 0..3 * REPORT_BYTES_MAX / 100 {
            report.add(&verdict(index)).await;
        }
        assert!(report.listed().await.is_err());
    }

    #[tokio::test]
    async fn more_lines_than_the_queue_holds_are_all_written_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.jsonl");
        let line_bytes = serde_json::to_vec(&verdict(0)).unwrap().len();
        let count = 3 * REPORT_BYTES_MAX / line_bytes;
        let report = Report::open(&path, false).unwrap();
        for index in 0..count {
            report.add(&verdict(index)).await;
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
            report.add(&verdict(1)).await;
            report.finish().await.unwrap();
            assert_eq!(read(&path), expected.into_iter().map(verdict).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn a_torn_line_of_ours_is_cut_off_and_any_other_end_stays() {
        let line = serde_json::to_string(&verdict(1)).unwrap();
        let whole = format!("{line}\n");
        let torn = [1, 5, line.len() / 2, line.len() - 1].map(|bytes| line[..bytes].to_owned());
        let cases = torn.into_iter().map(|torn| (torn, String::new()));
        let cases = cases.chain([("".into(), "".into()), (line.clone(), whole.clone()), ("x".into(), "x\n".into())]);
        for (end, kept) in cases {
            for before in ["", &whole, "a note\n"] {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("report.jsonl");
                std::fs::write(&path, format!("{before}{end}")).unwrap();
                let report = Report::open(&path, true).unwrap();
                report.add(&verdict(1)).await;
                report.finish().await.unwrap();
                let text = std::fs::read_to_string(&path).unwrap();
                assert_eq!(text, format!("{before}{kept}{whole}"), "{before:?} {end:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_resumed_report_knows_what_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.jsonl");
        let of = |name: &str, verdict| ObjectVerdict { destination: name.to_owned(), verdict, ..Default::default() };
        for (resumed, verdicts) in [
            (false, [of("copied", Verdict::Copied), of("failed", Verdict::Failed)]),
            (true, [of("failed now", Verdict::Failed), of("copied now", Verdict::Copied)]),
        ] {
            let report = Report::open(&path, resumed).unwrap();
            for verdict in verdicts {
                report.add(&verdict).await;
            }
            if resumed {
                let listed = report.listed().await.unwrap();
                let names = ["copied", "failed", "failed now", "copied now", "never"];
                assert_eq!(names.map(|name| listed.contains(name)), [true, false, true, true, false]);
                report.add(&of("failed", Verdict::Copied)).await;
            }
            report.finish().await.unwrap();
        }
        assert_eq!(read(&path).len(), 5);
    }

    #[tokio::test]
    async fn lines_that_nobody_waits_for_are_written_soon() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.jsonl");
        let report = Report::open(&path, false).unwrap();
        for index in 0..3 {
            report.add(&verdict(index)).await;
            tokio::time::sleep(4 * GATHER_MAX).await;
            assert_eq!(read(&path).len(), index + 1);
        }
        report.finish().await.unwrap();
    }

    #[tokio::test]
    async fn a_full_disk_is_reported_and_does_not_stop_the_job() {
        let report = Report::open(Path::new("/dev/full"), false).unwrap();
        for index in 0..REPORT_BYTES_MAX / 16 {
            report.add(&verdict(index)).await;
        }
        let error = report.finish().await.unwrap_err();
        assert!(error.to_string().contains("/dev/full"), "{error}");
    }
}
