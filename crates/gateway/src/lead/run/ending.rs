//! The end of a job: deletions, leftovers, summary, status.

use super::causes::{Cause, Place};
use super::emptied::{Emptied, is_empty_folder};
use super::spending::SPENDING_FILE;
use super::{Running, Stopping};
use crate::drain::drained;
use crate::failure::counted;
use crate::lead::deletion::{self, Deleted, DeletionBacklog, DeletionRun, EMPTY_SOURCE_HINT, Refusal};
use crate::lead::journal::{Entry, JOURNAL_FILE};
use crate::lead::report::{ObjectVerdict, Report, Verdict};
use crate::lead::state_dir::StateDir;
use crate::lead::status;
use crate::lead::survey::{SurveyEnd, SurveyError};
use crate::lead::sweep;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tradewind_contract::{Event, Outcome, Summary};
use tradewind_store::{ErrorKind, ObjectDeletion, Store};

/// Deletions told to the lead and not yet taken in.
const DELETED_QUEUE_MAX: usize = 1024;

/// How the job ends, and what to say of it.
struct Ending {
    outcome: Outcome,
    message: Option<String>,
    hint: Option<String>,
}

impl Ending {
    fn plain(outcome: Outcome) -> Self {
        Self { outcome, message: None, hint: None }
    }
}

impl Running {
    /// Does what comes after the last object, and tells the summary.
    pub(super) async fn end(
        &mut self,
        ended: Result<SurveyEnd, SurveyError>,
        state: Option<&StateDir>,
        stop: &CancellationToken,
    ) {
        let mut ending = match (self.stopping.take(), ended) {
            (Some(Stopping { closed: true, .. }), _) => self.after_failures(true),
            (Some(Stopping { outcome, message, hint, .. }), _) => Ending { outcome, message, hint },
            (None, Ok(end)) => match drained(stop, self.settle_doubted(stop)).await {
                Some(Err(error)) => self.after_error(&error),
                Some(Ok(())) if !stop.is_cancelled() => self.after_all(end, stop).await,
                _ => Ending::plain(Outcome::Interrupted),
            },
            (None, Err(error)) => match self.after_error(&error) {
                // Nobody will resume a job that is done.
                done if done.outcome == Outcome::Done => {
                    let swept = stop.run_until_cancelled(self.abort_leftovers()).await;
                    swept.map_or_else(|| Ending::plain(Outcome::Interrupted), |()| done)
                }
                ending => ending,
            },
        };
        if let Err(error) = self.journal.flush().await {
            ending = Ending {
                outcome: Outcome::Failed,
                message: Some(error.to_string()),
                hint: Some(error.hint().to_owned()),
            };
        }
        if let Some(report) = self.report.take()
            && let Err(error) = self.finish_report(report, ending.outcome).await
            && ending.outcome == Outcome::Done
        {
            ending = Ending { outcome: Outcome::Failed, message: Some(error.to_string()), hint: None };
        }
        let covered = self.cover_booked().map_err(|error| error.to_string());
        let synced =
            || self.spending.as_ref().map_or(Ok(()), |spending| spending.sync().map_err(|error| error.to_string()));
        if let Err(error) = covered.and_then(|()| synced()) {
            self.notice(format!("the cost of the job could not be written to disk: {error}"));
        }
        self.tell(ending, state);
    }

    /// A run that was told to stop leaves the lines of earlier runs to the next.
    async fn finish_report(&self, report: Report, outcome: Outcome) -> std::io::Result<()> {
        let completes = self.setup.job.resume && outcome != Outcome::Interrupted;
        let completed = if completes { self.report_earlier(&report).await } else { Ok(()) };
        report.finish().await.and(completed)
    }

    fn after_error(&self, error: &SurveyError) -> Ending {
        let nothing_there = matches!(error, SurveyError::NothingSelected { .. });
        if nothing_there && self.setup.job.allow_empty {
            return Ending::plain(Outcome::Done);
        }
        let is_empty = matches!(error, SurveyError::NothingSelected { source_objects: 0, .. });
        let hint = if is_empty && self.setup.job.delete.is_some() { Some(EMPTY_SOURCE_HINT) } else { error.hint() };
        let outcome = error.outcome();
        let left = if outcome == Outcome::SourceNotFound { self.unfinished.len() } else { 0 };
        let hint = if left > 0 { Some(source_gone_hint(left)) } else { hint.map(str::to_owned) };
        Ending { outcome, message: Some(error.to_string()), hint }
    }

    /// A destination as the summary names it.
    fn target_url(&self, index: usize) -> String {
        let destinations = self.tally.destinations();
        destinations.get(index).map(|destination| destination.url.clone()).unwrap_or_default()
    }

    /// `stopped`: not all that was to be moved was tried.
    fn after_failures(&self, stopped: bool) -> Ending {
        let outcome = self.causes.outcome(self.tally.any_done() && !stopped);
        let untouched = |place| {
            let took_any = match place {
                Place::Target(target) => self.tally.any_done_at(target),
                _ => self.tally.any_done(),
            };
            (stopped || !took_any).then(|| self.place_url(place).to_owned())
        };
        let words = self.causes.words(untouched, self.tally.objects_total() == 1, stopped);
        let (message, hint) = words.map_or((None, None), |(message, hint)| (Some(message), hint));
        Ending { outcome, message, hint }
    }

    async fn after_all(&mut self, end: SurveyEnd, stop: &CancellationToken) -> Ending {
        if stop.run_until_cancelled(self.abort_leftovers()).await.is_none() {
            return Ending::plain(Outcome::Interrupted);
        }
        let ending = self.after_failures(false);
        let (ask, dry_run) = (self.setup.job.delete.is_some_and(|rules| rules.ask), self.setup.job.dry_run);
        if let (Some(rules), Some(_)) = (&self.setup.job.delete, &end.extraneous)
            && let Some(Refusal { why, hint, allowed_by }) =
                deletion::refusal(rules, &end, self.tally.objects_failed(), |index| self.target_url(index))
        {
            if dry_run && let Some(allowed_by) = allowed_by {
                self.notice(format!("without --dry-run nothing would be deleted: {why}; {allowed_by}"));
            } else if ending.outcome == Outcome::Done {
                let message = Some(format!("nothing is deleted: {why}"));
                return Ending { outcome: Outcome::Failed, message, hint: Some(hint.to_owned()) };
            } else {
                self.notice(format!("nothing is deleted: {why}"));
                return ending;
            }
        }
        if let Some(totals) = end.extraneous.as_ref().map(DeletionBacklog::totals)
            && (dry_run || ask && totals.objects > 0)
        {
            self.to_delete = Some(totals);
            if !dry_run {
                let message = format!(
                    "nothing is deleted yet: a confirmation is needed for {}",
                    counted(totals.objects, "object", "objects")
                );
                let hint = Some("-y skips the question".to_owned());
                return match ending.outcome {
                    Outcome::Done => Ending { outcome: Outcome::Failed, message: Some(message), hint },
                    _ => ending,
                };
            }
        }
        let targets = self.setup.targets.clone();
        let mut left = 0;
        if let Some(backlog) = end.extraneous {
            let mut emptied = Emptied::of(&self.setup.job);
            left += self.delete(targets, backlog, stop, |store, key| emptied.add(store, key)).await;
            if !dry_run && left == 0 && !self.remove_emptied_targets(emptied, stop).await {
                return Ending::plain(Outcome::Interrupted);
            }
        }
        if let Some(moved) = self.moved.take() {
            let (backlog, directories) = moved.end();
            if backlog.keys() > 0
                && let Err(error) =
                    self.journal.record_durably(Entry::Deleting { unix_ms: status::now_unix_ms() }).await
            {
                self.notice(format!("sources are not deleted: {error}"));
                // The flush at the end says it again, as the outcome.
                return ending;
            }
            left += self.delete(vec![self.setup.source.clone()], backlog, stop, |_, _| ()).await;
            if left == 0 && !self.remove_emptied(directories, stop).await {
                return Ending::plain(Outcome::Interrupted);
            }
        }
        if left > 0 {
            self.notice(format!("{} may still have to be deleted", counted(left, "object", "objects")));
            return Ending::plain(Outcome::Interrupted);
        }
        if ending.outcome == Outcome::Done { self.after_failures(false) } else { ending }
    }

    /// Directories that `mv` took the last entry of. A store of files leaves one that holds anything as it is. Returns
    /// false if it was stopped before all were tried.
    async fn remove_emptied(&self, directories: impl Iterator<Item = String>, stop: &CancellationToken) -> bool {
        for directory in directories {
            if !self.remove_directory(self.setup.source.as_ref(), directory, stop).await {
                return false;
            }
        }
        true
    }

    /// Directories of destinations that `--delete` took the last file of. Those that the source has stay, empty. Returns
    /// false if it was stopped before all were tried.
    async fn remove_emptied_targets(&self, emptied: Emptied, stop: &CancellationToken) -> bool {
        let (setup, policy) = (&self.setup, self.setup.policy);
        for (index, name) in emptied.deepest_first() {
            let store = &setup.targets[index];
            let key = format!("{}{name}", setup.job.targets[index].key);
            let at_source = emptied.at_source(&name);
            let looking = async {
                if !is_empty_folder(store.as_ref(), &key, policy).await {
                    return false;
                }
                let found = policy.run("head", setup.source.url(), || setup.source.head(&at_source)).await;
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

    /// Removes a directory if it is empty. Returns false if nobody knows, because of a wish to stop.
    async fn remove_directory(&self, store: &dyn Store, directory: String, stop: &CancellationToken) -> bool {
        let deletion = vec![ObjectDeletion::any(directory)];
        let verdicts = deletion::delete_until_stopped(stop, store, deletion, self.setup.policy).await;
        for (_, removed) in &verdicts {
            if let Err(error) = removed {
                self.notice(format!("an emptied directory stays behind: {error}"));
            }
        }
        !verdicts.is_empty()
    }

    /// Uploads of an earlier run whose objects are no longer as they were: nobody will finish them.
    async fn abort_leftovers(&mut self) {
        // An open whose answer was lost, of an object that failed: nobody learned the upload's name. Where all is done in
        // this process, and no request ever came to the store, there is none.
        let none_can_be = |store: &Arc<dyn Store>| self.local && !store.was_reached();
        if !self.setup.job.resume && self.setup.targets.iter().all(none_can_be) {
            return;
        }
        let swept = sweep::abort_orphans(&self.journal, &self.setup.targets, self.setup.policy).await;
        for error in swept.map(|end| end.failed).unwrap_or_default() {
            self.notice(format!("an unfinished upload may be left behind: {error}"));
        }
        self.abort_asked_again().await;
        for ((target, target_key), upload) in std::mem::take(&mut self.unfinished) {
            let store = &self.setup.targets[usize::from(target)];
            let url = format!("{}/{target_key}", store.url());
            let aborted =
                self.setup.policy.run("abort upload", &url, || store.abort_upload(&target_key, &upload.upload)).await;
            match aborted {
                Ok(()) => {
                    // The earlier run may have opened more than one.
                    let swept =
                        sweep::abort_orphans_of(&upload.intent, &[], &self.setup.targets, self.setup.policy).await;
                    if let Err(error) = swept {
                        self.notice(format!("an unfinished upload may be left behind: {error}"));
                    }
                    let upload = Some(upload.upload);
                    drop(self.journal.record(Entry::Abandoned { target, target_key, upload }).await);
                }
                Err(error) => self.notice(format!("an unfinished upload is left behind: {error}")),
            }
        }
    }

    /// Uploads whose opening was asked for more than once.
    async fn abort_asked_again(&mut self) {
        let left_behind = |error: &dyn std::fmt::Display| format!("unfinished uploads may be left behind: {error}");
        let intents = match self.asked_again.take() {
            Ok(intents) => intents,
            Err(error) => return self.notice(left_behind(&error)),
        };
        for intent in intents {
            let (targets, policy) = (&self.setup.targets, self.setup.policy);
            match intent {
                Ok(intent) => {
                    if let Err(error) = sweep::abort_orphans_of(&intent, &[], targets, policy).await {
                        self.notice(left_behind(&error));
                    }
                }
                Err(error) => return self.notice(left_behind(&error)),
            }
        }
    }

    /// Deletes what was put down. Returns of how many objects nobody knows whether they are gone, because the job was
    /// stopped: most of them were not tried.
    /// `gone` is told the store's index and the key of each object that is deleted.
    async fn delete(
        &mut self,
        stores: Vec<Arc<dyn Store>>,
        backlog: DeletionBacklog,
        stop: &CancellationToken,
        mut gone: impl FnMut(u16, &str),
    ) -> u64 {
        let mut untried = backlog.keys();
        if untried == 0 {
            return 0;
        }
        let dry_run = self.setup.job.dry_run;
        let (out, mut deleted) = mpsc::channel(DELETED_QUEUE_MAX);
        let (targets, policy) = (self.setup.targets.clone(), self.setup.policy);
        let has_written = self.tally.has_written();
        let proven_apart = self.proven_apart.clone();
        let run = DeletionRun { stores, targets, proven_apart, policy, dry_run, has_written, stop: stop.clone() };
        let running = tokio::spawn(run.run(backlog, out));
        while let Some(deleted) = deleted.recv().await {
            untried = untried.saturating_sub(1);
            match deleted {
                Deleted::Gone { url, .. } if dry_run => self.setup.events.send(Event::WouldDelete { destination: url }),
                Deleted::Gone { store, key, url } => {
                    gone(store, &key);
                    self.deleted(url).await;
                }
                Deleted::Failed(failed) => {
                    self.tally.not_deleted += 1;
                    self.say_failed(failed, Place::Elsewhere, 0).await;
                }
                Deleted::Kept { failed, lost } => {
                    self.tally.not_deleted += 1;
                    self.say_failed(failed, Place::Elsewhere, 0).await;
                    self.forget_copies(lost).await;
                }
            }
        }
        let ended = running.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        if let Err(error) = ended {
            let message = format!("not everything was deleted: {error}");
            self.notice(message.clone());
            self.causes.failed(Cause { place: Place::Elsewhere, kind: "no_space".to_owned(), message, hint: None });
        }
        if stop.is_cancelled() { untried } else { 0 }
    }

    /// Copies that are gone are made again when the job is resumed. A journal that fails says so when it is flushed.
    async fn forget_copies(&self, lost: Vec<(u16, String)>) {
        for (target, target_key) in lost {
            drop(self.journal.record(Entry::Undone { target, target_key }).await);
        }
    }

    async fn deleted(&mut self, destination: String) {
        self.tally.objects_deleted += 1;
        if let Some(report) = &self.report {
            report.add(ObjectVerdict { destination, verdict: Verdict::Deleted, ..ObjectVerdict::default() }).await;
        }
    }

    fn tell(&mut self, ending: Ending, state: Option<&StateDir>) {
        let summary = Summary {
            outcome: ending.outcome,
            message: ending.message,
            hint: ending.hint,
            progress: self.tally.totals(self.scheduler.retries(), self.scheduler.shares()),
            objects_deleted: self.tally.objects_deleted,
            objects_not_deleted: self.tally.not_deleted,
            to_delete: self.to_delete,
            proofs: self.tally.proofs(),
            destinations: self.tally.destinations(),
        };
        if let Some(state) = state {
            if let Err(error) = status::write(state.path(), &status::ended(summary.clone())) {
                tracing::warn!(%error, "cannot write the job's status");
            }
            if summary.outcome == Outcome::Done {
                forget_journal(state);
            }
        }
        self.setup.events.send(Event::Done(summary));
    }
}

/// Advice where a resumed job finds no source. Its uploads stay: the source may come back, as that of an unmounted disk does.
fn source_gone_hint(uploads: usize) -> String {
    let left = counted(uploads as u64, "unfinished upload", "unfinished uploads");
    format!("bring the source back and run `tradewind jobs resume`, or abort its {left} with `tradewind jobs cancel`")
}

/// A job that is done is never resumed; its journal may be large.
fn forget_journal(state: &StateDir) {
    let journal = ["", "-wal", "-shm"].map(|suffix| format!("{JOURNAL_FILE}{suffix}"));
    for name in journal.iter().map(String::as_str).chain([SPENDING_FILE]) {
        let path = state.path().join(name);
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %path.display(), "it stays behind");
        }
    }
}
