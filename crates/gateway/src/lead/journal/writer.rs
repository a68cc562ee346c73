//! The journal's own thread: takes entries from a bounded queue and commits many at once.

use super::JournalError;
use super::entry::{self, Entry};
use super::schema::SCHEMA;
use crate::background::Background;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

/// Maximum number of entries in the queue; at the limit [`super::Journal::record`] waits.
pub const QUEUE_MAX: usize = 16_384;
/// Maximum number of entries in one transaction.
pub const BATCH_ENTRIES_MAX: usize = 4_096;
/// Longest time that an entry waits for others to share its transaction.
pub const BATCH_MS_MAX: u64 = 100;

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all commands are entries; a box each would cost more")]
enum Command {
    Record(Entry),
    Flush(oneshot::Sender<()>),
}

/// The sending end. Dropping the last one makes the thread write the remaining entries and exit; the drop waits for
/// that.
#[derive(Debug)]
pub(super) struct Writer {
    sender: Option<mpsc::Sender<Command>>,
    failure: Arc<OnceLock<JournalError>>,
    path: PathBuf,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Writer {
    pub(super) fn spawn(path: PathBuf, connection: Connection, background: Background) -> Result<Self, JournalError> {
        let io = |error: std::io::Error| JournalError::Io { path: path.clone(), message: error.to_string() };
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let failure = Arc::new(OnceLock::new());
        let (work_failure, work_path) = (failure.clone(), path.clone());
        let work = async move {
            let (mut receiver, mut batch) = (receiver, Batch::default());
            if let Err(error) = write_all(connection, &mut receiver, &mut batch).await {
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
        Ok(Self { sender: Some(sender), failure, path, thread })
    }

    pub(super) async fn record(&self, entry: Entry) -> Result<(), JournalError> {
        self.send(Command::Record(entry)).await
    }

    pub(super) async fn flush(&self) -> Result<(), JournalError> {
        let (sender, written) = oneshot::channel();
        self.send(Command::Flush(sender)).await?;
        written.await.map_err(|_| self.failed())
    }

    async fn send(&self, command: Command) -> Result<(), JournalError> {
        let Some(sender) = &self.sender else { return Err(self.failed()) };
        sender.send(command).await.map_err(|_| self.failed())
    }

    fn failed(&self) -> JournalError {
        let general = || JournalError::Io { path: self.path.clone(), message: "the writer has stopped".to_owned() };
        self.failure.get().cloned().unwrap_or_else(general)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed, and a drop can report it to nobody.
            thread.join().ok();
        }
    }
}

/// Entries that share a transaction, and the flushes that wait for the disk.
#[derive(Default)]
struct Batch {
    entries: Vec<Entry>,
    flushes: Vec<oneshot::Sender<()>>,
}

async fn write_all(
    mut connection: Connection,
    receiver: &mut mpsc::Receiver<Command>,
    batch: &mut Batch,
) -> rusqlite::Result<()> {
    while let Some(first) = receiver.recv().await {
        let deadline = Instant::now() + Duration::from_millis(BATCH_MS_MAX);
        let mut next = Some(first);
        while let Some(command) = next.take() {
            batch.add(command);
            if batch.entries.len() >= BATCH_ENTRIES_MAX {
                break;
            }
            next = match receiver.try_recv() {
                Ok(command) => Some(command),
                // A waiting flush is not delayed for more entries.
                Err(_) if !batch.flushes.is_empty() => None,
                Err(_) => timeout_at(deadline, receiver.recv()).await.unwrap_or(None),
            };
        }
        batch.commit(&mut connection)?;
    }
    Ok(())
}

impl Batch {
    fn add(&mut self, command: Command) {
        match command {
            Command::Record(entry) => self.entries.push(entry),
            Command::Flush(done) => self.flushes.push(done),
        }
    }

    /// Writes all entries in one transaction; if a flush is among them, waits for the disk.
    fn commit(&mut self, connection: &mut Connection) -> rusqlite::Result<()> {
        let is_durable = !self.flushes.is_empty();
        if is_durable {
            connection.pragma_update(None, "synchronous", "full")?;
        }
        let transaction = connection.transaction()?;
        for entry in self.entries.drain(..) {
            entry::write(&transaction, &entry)?;
        }
        if is_durable {
            // Only a transaction that changes a page syncs the log, and with it all commits before.
            transaction.pragma_update(None, "user_version", SCHEMA)?;
        }
        transaction.commit()?;
        if is_durable {
            connection.pragma_update(None, "synchronous", "normal")?;
        }
        for done in self.flushes.drain(..) {
            // A receiver that no longer waits needs no answer.
            done.send(()).ok();
        }
        Ok(())
    }
}
