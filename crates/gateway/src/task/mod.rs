//! Work that needs neither gateways nor a journal: `ls`, `du`, `stat`, `mb`, `rb`, `rm`, `cat`, `put`, `presign`,
//! `check`, `explain`, `doctor`, `locate`, `cancel`.
//!
//! The input is a [`Task`] in JSON. Data goes to stdout, messages to stderr, and the exit code is that of the command
//! line.

mod backlog;
mod buckets;
mod cancel;
mod cat;
mod check;
mod dispatch;
mod doctor;
mod du;
mod error;
mod exists;
mod explain;
mod folders;
mod list;
mod locate;
mod presign;
mod put;
mod refused;
mod rm;
mod rm_versions;
mod stat;
mod streams;
mod text;
mod unlisted;

pub use error::TaskError;
pub use streams::{Streams, Talk};

use crate::lead::availability;
use dispatch::{Opened, dispatch};
use error::TaskResult;
use std::io::{self, Read};
use std::path::Path;
use tokio_util::sync::CancellationToken;
use tradewind_contract::{CONTRACT_VERSION, Outcome, Task};

/// The contract of a task that names none: the first contract had no such field.
const UNSAID_CONTRACT: u32 = 1;
/// Longest task that is read, in bytes.
const TASK_BYTES_MAX: u64 = 16 << 20;

/// `tradewind-gateway task`: reads a task from `file` (stdin if `None`), runs it, and returns the exit code. With
/// `quiet`, its only messages are errors. SIGINT and SIGTERM stop a `put` or `cancel` cleanly; other tasks end at once,
/// because they leave nothing behind.
pub async fn main(file: Option<&Path>, quiet: bool) -> u8 {
    let mut streams = Streams::of_process(quiet);
    let task = match read_task(file) {
        Ok(task) => task,
        Err(error) => return end(Err(error), &mut streams),
    };
    let cancel = CancellationToken::new();
    if matches!(task, Task::Put { .. } | Task::Cancel { .. })
        && let Err(error) = cancel_on_signals(cancel.clone())
    {
        return end(Err(error.into()), &mut streams);
    }
    run(task, &mut streams, cancel).await
}

/// Runs a task and returns the exit code; errors are written to `streams.talk`.
pub async fn run(task: Task, streams: &mut Streams, cancel: CancellationToken) -> u8 {
    if matches!(
        task,
        Task::Rm { .. } | Task::RemoveBucket { .. } | Task::Check { .. } | Task::Put { .. } | Task::Cancel { .. }
    ) {
        streams.outlive_reader();
    }
    let needs_reader = matches!(task, Task::Cat { whole: true, .. });
    let opened = Opened::default();
    let (watched, talk) = (opened.clone(), streams.talk.clone());
    let telling =
        tokio::spawn(availability::tell(move || watched.stores(), move |line| talk.say(&format!("note: {line}"))));
    let done = dispatch(task, streams, cancel, &opened).await;
    telling.abort();
    let flushed = streams.data.flush().map_err(TaskError::from);
    let done = done.and(flushed);
    end(if needs_reader { done.map_err(unread) } else { done }, streams)
}

/// Turns a closed stdout into a failure, for a task that must write everything.
fn unread(error: TaskError) -> TaskError {
    match error {
        TaskError::Stream(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            let hint = "to write the start of an object only, use `tradewind cat`";
            TaskError::ended(Outcome::Failed, "standard output was closed before all bytes were written", Some(hint))
        }
        error => error,
    }
}

fn read_task(file: Option<&Path>) -> Result<Task, TaskError> {
    let mut json = Vec::new();
    let read = match file {
        Some(path) => std::fs::File::open(path).and_then(|file| file.take(TASK_BYTES_MAX + 1).read_to_end(&mut json)),
        None => io::stdin().lock().take(TASK_BYTES_MAX + 1).read_to_end(&mut json),
    };
    let read = read.map_err(|error| TaskError::Usage(format!("cannot read the task: {error}")))?;
    if read as u64 > TASK_BYTES_MAX {
        return Err(TaskError::Usage(format!("the task is longer than {TASK_BYTES_MAX} bytes")));
    }
    parse_task(&json)
}

/// Parses a task. Pure, for the fuzzer.
///
/// # Errors
/// It is not a task of this contract.
pub fn parse_task(json: &[u8]) -> Result<Task, TaskError> {
    let misunderstood = |error| TaskError::Usage(format!("cannot parse the task: {error}"));
    let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(json).map_err(misunderstood)?;
    let (contract, client) = (fields.remove("contract"), fields.remove("client"));
    let contract = contract.unwrap_or_else(|| UNSAID_CONTRACT.into());
    if contract != CONTRACT_VERSION {
        let client = client.as_ref().and_then(serde_json::Value::as_str).unwrap_or("of an unknown version");
        let ours = env!("CARGO_PKG_VERSION");
        let message = format!(
            "tradewind {client} uses contract {contract}, tradewind-gateway {ours} uses contract {CONTRACT_VERSION}"
        );
        let hint = "install the same version of both; TRADEWIND_GATEWAY sets the gateway program to use";
        return Err(TaskError::ended(Outcome::Failed, message, Some(hint)));
    }
    serde_json::from_value(fields.into()).map_err(misunderstood)
}

/// Prints what went wrong, and returns the exit code of the process.
fn end(done: TaskResult, streams: &mut Streams) -> u8 {
    match done {
        Ok(()) => 0,
        Err(TaskError::Stream(error)) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            streams.say_error(&error.to_string(), error.hint());
            error.exit_code()
        }
    }
}

fn cancel_on_signals(cancel: CancellationToken) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        cancel.cancel();
    });
    Ok(())
}

#[cfg(test)]
mod tests;
