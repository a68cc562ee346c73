//! The journal's own thread: takes entries from a bounded queue and commits many at once.
//!
//! While it gathers entries it is not woken for each of them, which would cost more than writing them: only a flush, a
//! full batch and the end of the journal wake it before its time.

use super::JournalError;
use super::entry::{Entry, Writing};
use super::schema::SCHEMA;
use crate::background::Background;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

/// Maximum number of entries in the queue; at the limit [`super::Journal::record`] waits.
pub const QUEUE_MAX: usize = 16_384;
/// Maximum number of entries in one transaction.
pub const BATCH_ENTRIES_MAX: usize = 4_096;
/// Longest time that an entry waits for others to share its transaction.
pub const BATCH_MS_MAX: u64 = 100;

#[derive(Debug)]
enum Command {
    Record(Entry),
    /// Answered once all entries before are committed.
    Commit(oneshot::Sender<()>),
    /// Answered once all entries before are on disk.
    Flush(oneshot::Sender<()>),
}

/// The sending end. Dropping the last one makes the thread write the remaining entries and exit; the drop waits for
/// that.
#[derive(Debug)]
pub(super) struct Writer {
    sender: Option<mpsc::Sender<Command>>,
    /// Ends the gathering of entries.
    urgent: Arc<Notify>,
    failure: Arc<OnceLock<JournalError>>,
    path: PathBuf,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Writer {
    pub(super) fn spawn(path: PathBuf, connection: Connection, background: Background) -> Result<Self, JournalError> {
        let io = |error: std::io::Error| JournalError::Io { path: path.clone(), message: error.to_string() };
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let (failure, urgent) = (Arc::new(OnceLock::new()), Arc::new(Notify::new()));
        let (work_failure, work_path, work_urgent) = (failure.clone(), path.clone(), urgent.clone());
        let work = async move {
            let (mut receiver, mut batch) = (receiver, Batch::default());
            if let Err(error) = write_all(connection, &mut receiver, &work_urgent, &mut batch).await {
                // Set before the queue and the waiting flushes are dropped, so that whoever sees them dropped finds the
                // reason.
                work_failure.set(JournalError::from_sqlite(&work_path, &error)).ok();
            }
        };
        let thread = match background {
            Background::Threads => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(io)?;
                let work = move || runtime.block_on(work);
                Some(std::thread::Builder::new().name("journal".into()).spawn(work).map_err(io)?)
            }
            Background::Inline => {
                tokio::spawn(work);
                None
            }
        };
        Ok(Self { sender: Some(sender), urgent, failure, path, thread })
    }

    pub(super) async fn record(&self, entry: Entry) -> Result<(), JournalError> {
        self.send(Command::Record(entry)).await
    }

    pub(super) async fn flush(&self) -> Result<(), JournalError> {
        self.written(Command::Flush).await
    }

    /// Waits until the entries so far are visible to readers. It does not wait for the disk.
    pub(super) async fn commit(&self) -> Result<(), JournalError> {
        self.written(Command::Commit).await
    }

    async fn written(&self, command: fn(oneshot::Sender<()>) -> Command) -> Result<(), JournalError> {
        let (sender, written) = oneshot::channel();
        self.send(command(sender)).await?;
        self.urgent.notify_one();
        written.await.map_err(|_| self.failed())
    }

    async fn send(&self, command: Command) -> Result<(), JournalError> {
        let Some(sender) = &self.sender else { return Err(self.failed()) };
        sender.send(command).await.map_err(|_| self.failed())?;
        if sender.capacity() <= QUEUE_MAX - BATCH_ENTRIES_MAX {
            self.urgent.notify_one();
        }
        Ok(())
    }

    fn failed(&self) -> JournalError {
        let general = || JournalError::Io { path: self.path.clone(), message: "the writer has stopped".to_owned() };
        self.failure.get().cloned().unwrap_or_else(general)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.sender = None;
        self.urgent.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed, and a drop can report it to nobody.
            thread.join().ok();
        }
    }
}

/// Entries that share a transaction, and who waits for it.
#[derive(Default)]
struct Batch {
    entries: Vec<Entry>,
    commits: Vec<oneshot::Sender<()>>,
    flushes: Vec<oneshot::Sender<()>>,
    /// True if all earlier transactions are known to be on disk. An earlier process may have left others, so a journal
    /// begins without.
    is_synced: bool,
}

async fn write_all(
    mut connection: Connection,
    receiver: &mut mpsc::Receiver<Command>,
    urgent: &Notify,
    batch: &mut Batch,
) -> rusqlite::Result<()> {
    while let Some(first) = receiver.recv().await {
        let deadline = Instant::now() + Duration::from_millis(BATCH_MS_MAX);
        batch.add(first);
        batch.take_from(receiver);
        // A waiting commit or flush is not delayed for more entries.
        if !batch.is_full() && !batch.is_awaited() {
            timeout_at(deadline, urgent.notified()).await.ok();
            batch.take_from(receiver);
        }
        batch.commit(&mut connection)?;
    }
    Ok(())
}

impl Batch {
    fn add(&mut self, command: Command) {
        match command {
            Command::Record(entry) => self.entries.push(entry),
            Command::Commit(done) => self.commits.push(done),
            Command::Flush(done) => self.flushes.push(done),
        }
    }

    fn is_awaited(&self) -> bool {
        !self.commits.is_empty() || !self.flushes.is_empty()
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= BATCH_ENTRIES_MAX
    }

    /// Adds what is in the queue, until the batch is full.
    fn take_from(&mut self, receiver: &mut mpsc::Receiver<Command>) {
        while !self.is_full()
            && let Ok(command) = receiver.try_recv()
        {
            self.add(command);
        }
    }

    /// Writes all entries in one transaction; if a flush is among them, waits for the disk, unless it has everything.
    fn commit(&mut self, connection: &mut Connection) -> rusqlite::Result<()> {
        let has_entries = !self.entries.is_empty();
        let syncs = !self.flushes.is_empty() && (has_entries || !self.is_synced);
        if has_entries || syncs {
            self.write(connection, syncs)?;
            self.is_synced = syncs;
        }
        for done in self.commits.drain(..).chain(self.flushes.drain(..)) {
            // A receiver that no longer waits needs no answer.
            done.send(()).ok();
        }
        Ok(())
    }

    fn write(&mut self, connection: &mut Connection, syncs: bool) -> rusqlite::Result<()> {
        if syncs {
            connection.pragma_update(None, "synchronous", "full")?;
        }
        let transaction = connection.transaction()?;
        let mut writing = Writing::begin(&transaction)?;
        for entry in self.entries.drain(..) {
            writing.write(&entry)?;
        }
        drop(writing);
        if syncs {
            // Only a transaction that changes a page syncs the log, and with it all commits before.
            transaction.pragma_update(None, "user_version", SCHEMA)?;
        }
        transaction.commit()?;
        if syncs {
            connection.pragma_update(None, "synchronous", "normal")?;
        }
        Ok(())
    }
}
