//! The events of a job, from the node that sends them to the readers of `GET /v1/events`.
//!
//! The sender never waits: [`EventSender::send`] only appends. Readers get this:
//!
//! - **Progress is lossy.** Only the newest is kept, so a slow or late reader sees the latest counts, not all of them.
//! - **Everything else is kept** in order, and a late reader gets it from the start, up to [`EVENT_BACKLOG_BYTES_MAX`].
//!   Beyond that the oldest lines are dropped. A reader that missed some gets a `notice` with their number. The job's
//!   report file has them all.
//! - **`done` is the last line** and is never dropped: nothing follows it.

use crate::failure::counted;
use crate::limits::{EVENT_BACKLOG_BYTES_MAX, EVENT_BATCH_BYTES};
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tradewind_contract::{Event, Progress};

/// Sends events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EventSender {
    shared: Arc<Shared>,
}

/// The log that readers subscribe to.
#[derive(Clone, Debug)]
pub struct EventLog {
    shared: Arc<Shared>,
}

/// One reader's position in the log.
#[derive(Debug)]
pub struct EventReader {
    shared: Arc<Shared>,
    changes: watch::Receiver<()>,
    next_line: u64,
    progress_seen: u64,
}

/// Creates an empty log and returns both of its ends.
pub fn channel() -> (EventSender, EventLog) {
    let shared = Arc::new(Shared { backlog: Mutex::default(), changes: watch::Sender::new(()) });
    (EventSender { shared: shared.clone() }, EventLog { shared })
}

#[derive(Debug)]
struct Shared {
    backlog: Mutex<EventBacklog>,
    changes: watch::Sender<()>,
}

impl Shared {
    /// The backlog is a plain list that is consistent after each change, so a panic elsewhere does not corrupt it.
    fn backlog(&self) -> MutexGuard<'_, EventBacklog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct EventBacklog {
    /// Lossless lines, oldest first; the first one has the number `first_line`.
    lines: VecDeque<Bytes>,
    first_line: u64,
    lines_bytes: usize,
    progress: Option<Latest>,
    progress_told: u64,
    ended: bool,
}

/// The newest progress: the value and its line, its serial number, and how many lossless lines preceded it.
#[derive(Debug)]
struct Latest {
    progress: Progress,
    line: Bytes,
    serial: u64,
    after_lines: u64,
}

impl EventBacklog {
    fn lines_told(&self) -> u64 {
        self.first_line + self.lines.len() as u64
    }

    fn push(&mut self, event: &Event) {
        let line = json_line(event);
        if let Event::Progress(progress) = event {
            self.progress_told += 1;
            let (progress, serial, after_lines) = (progress.clone(), self.progress_told, self.lines_told());
            self.progress = Some(Latest { progress, line, serial, after_lines });
            return;
        }
        self.ended = matches!(event, Event::Done(_));
        self.lines_bytes += line.len();
        self.lines.push_back(line);
        while self.lines_bytes > EVENT_BACKLOG_BYTES_MAX && self.lines.len() > 1 {
            if let Some(oldest) = self.lines.pop_front() {
                self.lines_bytes -= oldest.len();
                self.first_line += 1;
            }
        }
    }

    /// Returns what a reader has not read yet, about [`EVENT_BATCH_BYTES`] at most; empty if it has read everything.
    fn read(&self, next_line: &mut u64, progress_seen: &mut u64) -> Bytes {
        let mut batch = BytesMut::new();
        let missed = self.first_line.saturating_sub(*next_line);
        if missed > 0 {
            let lines = counted(missed, "earlier line", "earlier lines");
            let message = format!("nobody read {lines} in time; the job's report has the results");
            batch.put(json_line(&Event::Notice { message }));
            *next_line = self.first_line;
        }
        let mut progress = self.progress.as_ref().filter(|latest| latest.serial > *progress_seen);
        loop {
            if let Some(latest) = progress.take_if(|latest| latest.after_lines <= *next_line) {
                batch.put_slice(&latest.line);
                *progress_seen = latest.serial;
            }
            let Some(line) = self.lines.get((*next_line - self.first_line) as usize) else { break };
            if batch.len() >= EVENT_BATCH_BYTES {
                break;
            }
            batch.put_slice(line);
            *next_line += 1;
        }
        batch.freeze()
    }
}

fn json_line(event: &Event) -> Bytes {
    let mut line = BytesMut::new().writer();
    // Writing JSON fails only for maps with keys that are not strings, and an `Event` has none; a `BytesMut` always
    // grows.
    if let Err(error) = serde_json::to_writer(&mut line, event) {
        tracing::error!(%error, "an event could not be written as JSON");
        return Bytes::new();
    }
    let mut line = line.into_inner();
    line.put_u8(b'\n');
    line.freeze()
}

impl EventSender {
    /// Sends one event. Never waits and never fails; does nothing after `done` or after the node's end.
    pub fn send(&self, event: Event) {
        {
            let mut backlog = self.shared.backlog();
            if backlog.ended {
                return;
            }
            backlog.push(&event);
        }
        self.shared.changes.send_replace(());
    }
}

impl EventLog {
    /// Returns a reader that starts at the oldest line still kept.
    pub fn subscribe(&self) -> EventReader {
        let changes = self.shared.changes.subscribe();
        EventReader { shared: self.shared.clone(), changes, next_line: 0, progress_seen: 0 }
    }

    /// Returns the newest progress; `None` before the first, and always on a node without a lead.
    pub fn progress(&self) -> Option<Progress> {
        self.shared.backlog().progress.as_ref().map(|latest| latest.progress.clone())
    }

    /// Ends the log without a `done`, when a node without a lead stops. Readers get the remaining lines, and then the
    /// end.
    pub fn close(&self) {
        self.shared.backlog().ended = true;
        self.shared.changes.send_replace(());
    }
}

impl EventReader {
    /// Waits for the next lines (NDJSON) and returns them; `None` after the last.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.changes.mark_unchanged();
            {
                let backlog = self.shared.backlog();
                let batch = backlog.read(&mut self.next_line, &mut self.progress_seen);
                if !batch.is_empty() {
                    return Some(batch);
                }
                if backlog.ended {
                    return None;
                }
            }
            // The sender of changes is part of `shared`, which this reader holds, so this cannot fail.
            self.changes.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tradewind_contract::{Outcome, Summary};

    fn progress(bytes_done: u64) -> Event {
        Event::Progress(Progress { bytes_done, ..Progress::default() })
    }

    fn notice(message: impl Into<String>) -> Event {
        Event::Notice { message: message.into() }
    }

    fn done() -> Event {
        Event::Done(Summary {
            outcome: Outcome::Done,
            message: None,
            hint: None,
            progress: Progress::default(),
            objects_deleted: 0,
            objects_not_deleted: 0,
            to_delete: None,
            tags_dropped: 0,
            attributes_ignored: 0,
            proofs: Default::default(),
            destinations: Vec::new(),
        })
    }

    fn parse(batch: &Bytes) -> Vec<Event> {
        batch
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    async fn read_all(mut reader: EventReader) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(batch) = reader.next().await {
            events.extend(parse(&batch));
        }
        events
    }

    #[tokio::test]
    async fn a_late_reader_gets_every_notice_but_only_the_latest_progress() {
        let (sender, log) = channel();
        for event in [progress(1), notice("a"), progress(2), notice("b"), done()] {
            sender.send(event);
        }
        assert_eq!(read_all(log.subscribe()).await, [notice("a"), progress(2), notice("b"), done()]);
    }

    #[tokio::test]
    async fn each_reader_gets_everything() {
        let (sender, log) = channel();
        let early = tokio::spawn(read_all(log.subscribe()));
        sender.send(notice("a"));
        sender.send(done());
        assert_eq!(early.await.unwrap(), [notice("a"), done()]);
        assert_eq!(read_all(log.subscribe()).await, [notice("a"), done()]);
    }

    #[tokio::test]
    async fn a_reader_that_keeps_up_gets_each_line_when_it_is_sent() {
        let (sender, log) = channel();
        let mut reader = log.subscribe();
        for bytes in 0..100 {
            sender.send(progress(bytes));
            assert_eq!(parse(&reader.next().await.unwrap()), [progress(bytes)]);
        }
    }

    #[tokio::test]
    async fn nothing_is_sent_after_done() {
        let (sender, log) = channel();
        for event in [done(), notice("late"), progress(1)] {
            sender.send(event);
        }
        assert_eq!(read_all(log.subscribe()).await, [done()]);
    }

    #[tokio::test]
    async fn closing_ends_the_events_of_a_node_without_lead() {
        let (sender, log) = channel();
        let waiting = tokio::spawn(read_all(log.subscribe()));
        sender.send(notice("a"));
        log.close();
        sender.send(notice("b"));
        assert_eq!(waiting.await.unwrap(), [notice("a")]);
    }

    #[tokio::test]
    async fn the_backlog_is_bounded_and_reports_dropped_lines() {
        let (sender, log) = channel();
        let message = "x".repeat(1 << 20);
        let told = EVENT_BACKLOG_BYTES_MAX / (1 << 20) + 10;
        for _ in 0..told {
            sender.send(notice(&message));
        }
        sender.send(done());
        assert!(log.shared.backlog().lines_bytes <= EVENT_BACKLOG_BYTES_MAX);
        let events = read_all(log.subscribe()).await;
        let dropped = told + 1 - (events.len() - 1);
        assert!(dropped > 0);
        assert_eq!(
            events[0],
            notice(format!("nobody read {dropped} earlier lines in time; the job's report has the results"))
        );
        assert_eq!(events.last(), Some(&done()));
    }

    #[tokio::test]
    async fn a_reader_that_keeps_up_loses_nothing() {
        let (sender, log) = channel();
        let mut reader = log.subscribe();
        let message = "x".repeat(1 << 20);
        for number in 0..EVENT_BACKLOG_BYTES_MAX / (1 << 20) + 10 {
            let event = notice(format!("{number} {message}"));
            sender.send(event.clone());
            assert_eq!(parse(&reader.next().await.unwrap()), [event]);
        }
    }
}
