//! Deletes at the end of a job: extraneous objects at the destinations, sources of a `mv`, and the directories that
//! this empties.

use super::causes::{Cause, FailureSite};
use super::emptied_directories::{EmptiedDirectories, is_empty_folder};
use super::finisher::Finisher;
use super::recorder::Recorder;
use crate::lead::deletion::{self, Deleted, DeletionBacklog, DeletionRun, Origin};
use crate::lead::journal::{Entry, JournalError};
use crate::lead::status;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tradewind_contract::Event;
use tradewind_store::{ErrorKind, ObjectDeletion, Store};

/// Finished deletions that wait for the lead to record them.
const DELETED_QUEUE_MAX: usize = 1024;

/// How the deletions ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deletions {
    /// Objects that may or may not be deleted, because the job was stopped. Most were not tried.
    pub(super) untried: u64,
    /// Whether the job was stopped before all directories were tried.
    pub(super) directories_left: bool,
}

impl Finisher {
    /// Deletes extraneous objects at the destinations.
    pub(super) async fn delete_extraneous(
        &self,
        extraneous: DeletionBacklog,
        stop: &CancellationToken,
        recorder: &mut Recorder,
    ) -> Deletions {
        let mut emptied = EmptiedDirectories::of(&self.context.job);
        let targets = self.context.targets.clone();
        let origin = Some(Origin::of(&self.context.job, &self.context.source));
        let gone = |store, key: &str| emptied.add(store, key);
        let untried = self.delete((targets, origin), extraneous, stop, recorder, gone).await;
        let tries_directories = !self.context.job.dry_run && untried == 0;
        let directories_left = tries_directories && !self.remove_emptied_targets(emptied, stop).await;
        Deletions { untried, directories_left }
    }

    /// Keeps all sources of a `mv`.
    pub(super) fn keep_sources(&mut self) {
        self.source_deletions = None;
    }

    /// Deletes the sources of a `mv`. `before`: objects that earlier deletions have left untried.
    ///
    /// # Errors
    /// The journal failed before anything was deleted.
    pub(super) async fn delete_sources(
        &mut self,
        before: u64,
        stop: &CancellationToken,
        recorder: &mut Recorder,
    ) -> Result<Deletions, JournalError> {
        let Some(deletions) = self.source_deletions.take() else { return Ok(Deletions::default()) };
        let (backlog, directories) = deletions.end();
        if backlog.keys() > 0 {
            recorder.journal.record_durably(Entry::Deleting { unix_ms: status::now_unix_ms() }).await?;
        }
        let source = vec![self.context.source.clone()];
        let untried = self.delete((source, None), backlog, stop, recorder, |_, _| ()).await;
        let directories_left = before + untried == 0 && !self.remove_emptied_sources(directories, stop).await;
        Ok(Deletions { untried, directories_left })
    }

    /// Deletes the objects of a backlog. Returns how many of them may or may not be deleted, because the job was
    /// stopped. `origin`: the source that must lack them, if they are not its own. `gone` is called with the store's index
    /// and the key of each deleted object.
    async fn delete(
        &self,
        (stores, origin): (Vec<Arc<dyn Store>>, Option<Origin>),
        backlog: DeletionBacklog,
        stop: &CancellationToken,
        recorder: &mut Recorder,
        mut gone: impl FnMut(u16, &str),
    ) -> u64 {
        let mut untried = backlog.keys();
        if untried == 0 {
            return 0;
        }
        let dry_run = self.context.job.dry_run;
        let (out, mut deleted) = mpsc::channel(DELETED_QUEUE_MAX);
        let (targets, policy) = (self.context.targets.clone(), self.context.policy);
        let has_written = recorder.tally.has_written();
        let proven_apart = self.proven_apart.clone();
        let run =
            DeletionRun { stores, targets, proven_apart, origin, policy, dry_run, has_written, stop: stop.clone() };
        let running = tokio::spawn(run.run(backlog, out));
        while let Some(deleted) = deleted.recv().await {
            untried = untried.saturating_sub(1);
            match deleted {
                Deleted::Gone { url, .. } if dry_run => {
                    self.context.events.send(Event::WouldDelete { destination: url });
                }
                Deleted::Gone { store, key, url } => {
                    gone(store, &key);
                    recorder.deleted(url).await;
                }
                Deleted::Failed(failed) => recorder.not_deleted(failed).await,
                Deleted::Kept { failed, lost } => {
                    recorder.not_deleted(failed).await;
                    forget_copies(lost, recorder).await;
                }
            }
        }
        let ended = running.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        if let Err(error) = ended {
            let message = format!("not everything was deleted: {error}");
            self.context.notice(message.clone());
            let cause = Cause { site: FailureSite::Elsewhere, kind: "no_space".to_owned(), message, hint: None };
            recorder.causes.failed(cause);
        }
        if stop.is_cancelled() { untried } else { 0 }
    }

    /// Removes source directories whose last entry `mv` has moved. A file store keeps a directory that is not empty.
    /// Returns false if it was stopped before all were tried.
    async fn remove_emptied_sources(
        &self,
        directories: impl Iterator<Item = String>,
        stop: &CancellationToken,
    ) -> bool {
        for directory in directories {
            if !self.remove_directory(self.context.source.as_ref(), directory, stop).await {
                return false;
            }
        }
        true
    }

    /// Removes destination directories whose last file `--delete` has deleted. Directories that the source has too
    /// stay, empty. Returns false if it was stopped before all were tried.
    async fn remove_emptied_targets(&self, emptied: EmptiedDirectories, stop: &CancellationToken) -> bool {
        let (context, policy) = (&self.context, self.context.policy);
        for (index, name) in emptied.deepest_first() {
            let store = &context.targets[index];
            let key = format!("{}{name}", context.job.targets[index].key);
            let at_source = emptied.at_source(&name);
            let looking = async {
                if !is_empty_folder(store.as_ref(), &key, policy).await {
                    return false;
                }
                let found = policy.run("head", context.source.url(), || context.source.head(&at_source)).await;
                found.is_err_and(|error| error.kind == ErrorKind::NotFound)
            };
            match stop.run_until_cancelled(looking).await {
                None => return false,
                Some(false) => {}
                Some(true) if self.remove_directory(store.as_ref(), key, stop).await => {}
                Some(true) => return false,
            }
        }
        true
    }

    /// Removes a directory if it is empty. Returns false if the result is unknown because of a stop.
    async fn remove_directory(&self, store: &dyn Store, directory: String, stop: &CancellationToken) -> bool {
        let deletion = vec![ObjectDeletion::any(directory)];
        let verdicts = deletion::delete_until_stopped(stop, store, deletion, self.context.policy).await;
        for (_, removed) in &verdicts {
            if let Err(error) = removed {
                self.context.notice(format!("cannot remove an emptied directory: {error}"));
            }
        }
        !verdicts.is_empty()
    }
}

/// Makes a resumed job copy the lost copies again. If the journal fails, its flush reports the error.
async fn forget_copies(lost: Vec<(u16, String)>, recorder: &Recorder) {
    for (target, target_key) in lost {
        drop(recorder.record(Entry::Undone { target, target_key }).await);
    }
}
