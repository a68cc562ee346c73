//! Work that needs neither gateways nor a journal: `ls`, `du`, `stat`, `mb`, `rb`, `rm`, `cat`, `put`, `presign`,
//! `check`, `explain`, `doctor`, `locate`, `cancel`.
//!
//! The input is a [`Task`] in JSON. Data goes to stdout, messages to stderr, and the exit code is that of the command
//! line.

mod buckets;
mod cancel;
mod cat;
mod check;
mod doctor;
mod du;
mod exists;
mod explain;
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

pub use streams::{Streams, Talk};

use crate::failure::{exit_code, hint_for_named, object_url, outcome_of};
use crate::lead::availability;
use crate::lead::journal::JournalError;
use crate::lead::pages::{Listing, NameSpan};
use crate::lead::select::{BadRule, Selector};
use crate::lead::state_dir::StateDirError;
use crate::lead::survey::nothing_selected;
use crate::retry::RetryPolicy;
use crate::stores::config_of;
use futures::StreamExt;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;
use tradewind_contract::{CONTRACT_VERSION, Limits, Outcome, StoreSpec, Task};
use tradewind_store::{Account, Error, ErrorKind, Skips, Store, Versions};

/// Attempts per request while a user waits for a listing: 1.5 s of pauses if nobody answers. Transfers allow more.
const PROMPT_TRIES_MAX: u32 = 5;
/// The contract of a task that names none: the first contract had no such field.
const UNSAID_CONTRACT: u32 = 1;
/// Longest task that is read, in bytes.
const TASK_BYTES_MAX: u64 = 16 << 20;

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
    fn ended(outcome: Outcome, message: impl Into<String>, hint: Option<&str>) -> Self {
        Self::Ended { outcome, message: message.into(), hint: hint.map(str::to_owned) }
    }

    /// The error if the source, or everything under it, does not exist, or if the filter leaves out all its `excluded`
    /// objects.
    fn nothing_selected(url: &str, excluded: u64) -> Self {
        let hint = if excluded == 0 { "check the name with `tradewind ls`" } else { "check the rules of the filter" };
        Self::ended(Outcome::SourceNotFound, nothing_selected(url, excluded), Some(hint))
    }

    fn exit_code(&self) -> u8 {
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

    fn hint(&self) -> Option<&str> {
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

type TaskResult = Result<(), TaskError>;

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
    let telling = tokio::spawn(availability::tell(
        move || watched.lock().clone(),
        move |line| talk.say(&format!("note: {line}")),
    ));
    let done = dispatch(task, streams, cancel, &opened).await;
    telling.abort();
    let flushed = streams.data.flush().map_err(TaskError::from);
    let done = done.and(flushed);
    end(if needs_reader { done.map_err(unread) } else { done }, streams)
}

/// Keeps a missing destination from being reported as a missing source.
fn not_written(error: TaskError) -> TaskError {
    match error {
        TaskError::Store(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::BucketNotFound) => {
            TaskError::ended(outcome_of(&error), error.to_string(), error.hint().map(hint_for_named))
        }
        error => error,
    }
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

async fn dispatch(task: Task, streams: &mut Streams, cancel: CancellationToken, opened: &Opened) -> TaskResult {
    let open = |spec: &StoreSpec| opened.open(spec);
    let policy = RetryPolicy::from(&Limits::default());
    let prompt = RetryPolicy { tries_max: PROMPT_TRIES_MAX, ..policy };
    match task {
        Task::Ls { store, prefix, recursive, filter, long, human, json } => {
            let form = list::Form::of(long, human, json);
            list::ls(open(&store)?, &prefix, recursive, &filter, form, prompt, streams).await
        }
        Task::Exists { store, key } => exists::exists(&open(&store)?, &key, prompt, streams).await,
        Task::Du { store, prefix, filter, human, depth, json } => {
            let form = if json { list::Form::Json } else { list::Form::Long { human } };
            let du = du::Du { store: open(&store)?, form, depth: depth.unwrap_or(0), policy: prompt };
            du.run(&prefix, &filter, streams).await
        }
        Task::Buckets { store, project, long, json } => {
            let account = Account::open(&config_of(&store), project)?;
            buckets::list(&account, list::Form::of(long, false, json), prompt, streams).await
        }
        Task::MakeBucket { store, project } => {
            buckets::make(&config_of(&store), project.as_deref(), prompt, streams).await
        }
        Task::RemoveBucket { store, force, json } => {
            buckets::remove(&config_of(&store), open(&store)?, force, json, policy, streams).await
        }
        Task::Stat { store, key, json } => stat::stat(open(&store)?, &key, json, prompt, streams).await,
        Task::Presign { store, key, expires_s, json } => {
            presign::presign(&config_of(&store), &key, expires_s, json, streams).await
        }
        Task::Rm { store, key, recursive, filter, dry_run, json, allow_empty, versions: true, .. } => {
            let rm = rm_versions(&store, policy)?;
            let rm = rm_versions::RmVersions { dry_run, json, allow_empty, ..rm };
            rm.run(&key, recursive, &filter, streams).await
        }
        Task::CountVersions { store, key, recursive, filter } => {
            rm_versions(&store, policy)?.count(&key, recursive, &filter, streams).await
        }
        Task::Rm {
            store,
            key,
            keys,
            continues_list,
            recursive,
            filter,
            dry_run,
            json,
            allow_empty,
            versions: false,
        } => {
            let rm = rm::Rm { store: open(&store)?, dry_run, json, allow_empty, policy };
            match keys {
                Some(names) => rm.run_named(&key, names, continues_list, streams).await,
                None => rm.run(&key, recursive, &filter, streams).await,
            }
        }
        Task::Cat { store, keys, below, filter, range, .. } => {
            let cat = cat::Cat { store: open(&store)?, range, policy };
            match below {
                Some(folder) => cat.matching(&folder, &filter, streams).await,
                None => cat.named(&keys, streams).await,
            }
        }
        Task::Put { store, key, chunk_bytes, storage_class, object_lock, attributes, json } => {
            let store = open(&store)?;
            let put =
                put::Put { store, key, chunk_bytes, storage_class, object_lock, attributes, json, policy, cancel };
            put.run(streams).await.map_err(not_written)
        }
        Task::Check {
            source,
            source_prefix,
            destination,
            destination_prefix,
            filter,
            compare,
            read,
            one_way,
            json,
        } => {
            let sides = [(open(&source)?, source_prefix), (open(&destination)?, destination_prefix)];
            let rule = check::Rule::between(&sides, compare, read);
            let (tags, excluded, passed_over) = Default::default();
            check::Check { sides, rule, one_way, json, policy, tags, excluded, passed_over }.run(&filter, streams).await
        }
        Task::Explain { name, size_bytes, filter, job } => {
            explain::Explain { name, size_bytes, filter, job, opened, policy: prompt }.run(streams).await
        }
        Task::Doctor { stores, clouds, json } => {
            doctor::look_at_clouds(&clouds, json, streams).await?;
            doctor::doctor(&stores, json, policy, streams).await
        }
        Task::Locate { stores } => locate::locate(&stores, policy, streams).await,
        Task::Cancel { state_dir, stores } => {
            let stores = stores.iter().map(open).collect::<Result<_, _>>()?;
            cancel::cancel(Path::new(&state_dir), stores, policy, cancel, streams).await
        }
    }
}

fn rm_versions(store: &StoreSpec, policy: RetryPolicy) -> Result<rm_versions::RmVersions, TaskError> {
    let versions = Versions::open(&config_of(store))?;
    let url = store.url.trim_end_matches('/').to_owned();
    Ok(rm_versions::RmVersions { versions, url, dry_run: true, json: false, allow_empty: true, policy })
}

/// The stores that a task has opened, to report those that cannot be reached. Clones share them.
#[derive(Clone, Default)]
struct Opened(Arc<Mutex<Vec<Arc<dyn Store>>>>);

impl Opened {
    fn open(&self, spec: &StoreSpec) -> Result<Arc<dyn Store>, TaskError> {
        let store = crate::stores::open(spec)?;
        self.lock().push(store.clone());
        Ok(store)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn Store>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Returns whether anything exists below a key that is not an object. A failed listing counts as empty.
async fn is_folder(store: &Arc<dyn Store>, key: &str, policy: RetryPolicy) -> bool {
    let (store, prefix) = (store.clone(), folder_of(key));
    let listing = Listing::new(store, prefix, policy, NameSpan::default(), Skips::default());
    let Ok(pages) = listing.in_any_order().await else { return false };
    let first = std::pin::pin!(pages).next().await;
    first.is_some_and(|page| page.is_ok_and(|page| !page.objects.is_empty()))
}

/// Returns the error if nothing was found in the folder `prefix`, of which the filter left out `excluded` objects.
/// `advice` says what to do with the URL of an object that has the folder's name.
async fn nothing_in(
    store: &Arc<dyn Store>,
    prefix: &str,
    (selector, excluded): (&Selector, u64),
    policy: RetryPolicy,
    advice: impl Fn(&str) -> String,
) -> TaskError {
    let url = object_url(store.as_ref(), prefix);
    let (url, excluded) = selector.missing(&url, excluded);
    let has_wildcards = selector.within().is_some();
    match object_instead(store, prefix, policy).await.filter(|_| excluded == 0 && !has_wildcards) {
        Some(object) => no_directory(&object, &advice(&object)),
        None => TaskError::nothing_selected(&url, excluded),
    }
}

/// Returns whether a place exists although its listing has no entry: a whole bucket or directory, whose listing fails if
/// it is missing. A prefix exists only as the beginning of keys.
fn is_only_empty(prefix: &str, selector: &Selector, excluded: u64) -> bool {
    prefix.is_empty() && excluded == 0 && selector.within().is_none()
}

fn no_directory(url: &str, advice: &str) -> TaskError {
    TaskError::ended(Outcome::SourceNotFound, format!("{url} is an object, not a directory"), Some(advice))
}

/// Returns the URL of the object that has the name of a folder. One that cannot be looked up does not count.
async fn object_instead(store: &Arc<dyn Store>, folder: &str, policy: RetryPolicy) -> Option<String> {
    let key = folder.trim_end_matches('/');
    let is_object = !key.is_empty() && policy.run("head", store.url(), || store.head(key)).await.is_ok();
    is_object.then(|| object_url(store.as_ref(), key))
}

/// A prefix means a folder: `te` is everything below `te/`, never `test/`.
fn folder_of(prefix: &str) -> String {
    if prefix.is_empty() || prefix.ends_with('/') { prefix.to_owned() } else { format!("{prefix}/") }
}

#[cfg(test)]
mod tests;
