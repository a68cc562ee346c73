//! Runs the code of each task, on the stores that the task names.

use super::error::{TaskError, TaskResult};
use super::rm_versions::RmVersions;
use super::streams::Streams;
use super::{buckets, cancel, cat, check, doctor, du, exists, explain, list, locate, presign, put, rm, stat};
use crate::failure::{hint_for_named, outcome_of};
use crate::retry::RetryPolicy;
use crate::stores::config_of;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;
use tradewind_contract::{Limits, StoreSpec, Task};
use tradewind_store::{Account, ErrorKind, Store};

/// Attempts per request while a user waits for a listing: 1.5 s of pauses if nobody answers. Transfers allow more.
const PROMPT_TRIES_MAX: u32 = 5;

/// The stores that a task has opened, to report those that cannot be reached. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Opened(Arc<Mutex<Vec<Arc<dyn Store>>>>);

impl Opened {
    pub(super) fn open(&self, spec: &StoreSpec) -> Result<Arc<dyn Store>, TaskError> {
        let store = crate::stores::open(spec)?;
        self.lock().push(store.clone());
        Ok(store)
    }

    pub(super) fn stores(&self) -> Vec<Arc<dyn Store>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn Store>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn dispatch(
    task: Task,
    streams: &mut Streams,
    cancel: CancellationToken,
    opened: &Opened,
) -> TaskResult {
    use Task::*;
    let open = |spec: &StoreSpec| opened.open(spec);
    let policy = RetryPolicy::from(&Limits::default());
    let prompt = RetryPolicy { tries_max: PROMPT_TRIES_MAX, ..policy };
    match task {
        Ls { store, prefix, recursive, filter, long, human, json } => {
            let form = list::Form::of(long, human, json);
            list::ls(open(&store)?, &prefix, recursive, &filter, form, prompt, streams).await
        }
        Exists { store, key } => exists::exists(&open(&store)?, &key, prompt, streams).await,
        Du { store, prefix, filter, human, depth, json } => {
            let form = list::Form::of(true, human, json);
            let du = du::Du { store: open(&store)?, form, depth: depth.unwrap_or(0), policy: prompt };
            du.run(&prefix, &filter, streams).await
        }
        Buckets { store, project, long, json } => {
            let account = Account::open(&config_of(&store), project)?;
            buckets::list(&account, list::Form::of(long, false, json), prompt, streams).await
        }
        MakeBucket { store, project, json } => {
            buckets::make(&config_of(&store), project.as_deref(), json, prompt, streams).await
        }
        RemoveBucket { store, force, json } => {
            buckets::remove(&config_of(&store), open(&store)?, force, json, policy, streams).await
        }
        Stat { store, key, json } => stat::stat(open(&store)?, &key, json, prompt, streams).await,
        Presign { store, key, expires_s, json } => {
            presign::presign(&config_of(&store), &key, expires_s, json, streams).await
        }
        Rm { store, key, recursive, filter, dry_run, json, allow_empty, versions: true, .. } => {
            let rm = RmVersions { dry_run, json, allow_empty, ..RmVersions::counting(&store, policy)? };
            rm.run(&key, recursive, &filter, streams).await
        }
        Rm { store, key, keys, continues_list, recursive, filter, dry_run, json, allow_empty, versions: false } => {
            let rm = rm::Rm { store: open(&store)?, dry_run, json, allow_empty, policy };
            match keys {
                Some(names) => rm.run_named(&key, names, continues_list, streams).await,
                None => rm.run(&key, recursive, &filter, streams).await,
            }
        }
        CountVersions { store, key, recursive, filter } => {
            RmVersions::counting(&store, policy)?.count(&key, recursive, &filter, streams).await
        }
        Cat { store, keys, below, filter, range, .. } => {
            let cat = cat::Cat { store: open(&store)?, range, policy };
            match below {
                Some(folder) => cat.matching(&folder, &filter, streams).await,
                None => cat.named(&keys, streams).await,
            }
        }
        Put { store, key, chunk_bytes, storage_class, object_lock, attributes, json } => {
            let store = open(&store)?;
            let put =
                put::Put { store, key, chunk_bytes, storage_class, object_lock, attributes, json, policy, cancel };
            put.run(streams).await.map_err(not_written)
        }
        Check { source, source_prefix, destination, destination_prefix, filter, compare, read, one_way, json } => {
            let sides = [(open(&source)?, source_prefix), (open(&destination)?, destination_prefix)];
            check::Check::new(sides, compare, read, one_way, json, policy).run(&filter, streams).await
        }
        Explain { name, size_bytes, filter, job } => {
            explain::Explain { name, size_bytes, filter, job, opened, policy: prompt }.run(streams).await
        }
        Doctor { stores, clouds, json } => doctor::doctor(&clouds, &stores, json, policy, streams).await,
        Locate { stores } => locate::locate(&stores, policy, streams).await,
        Cancel { state_dir, stores } => {
            let stores = stores.iter().map(open).collect::<Result<_, _>>()?;
            cancel::cancel(Path::new(&state_dir), stores, policy, cancel, streams).await
        }
    }
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
