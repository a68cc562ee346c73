//! Ends a job: the work after the last object, the outcome, and the summary.

use super::causes::FailureSite;
use super::spending::SPENDING_FILE;
use super::{Run, Stopping};
use crate::drain::drained;
use crate::failure::counted;
use crate::lead::deletion::{self, DeletionBacklog, EMPTY_SOURCE_HINT, Refusal};
use crate::lead::journal::JOURNAL_FILE;
use crate::lead::state_dir::StateDir;
use crate::lead::status;
use crate::lead::survey::{SurveyEnd, SurveyError};
use crate::lead::sweep::write_lists;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tradewind_contract::{Event, Outcome, Summary, ToDelete};
use tradewind_store::Store;
use tradewind_wire::frame::Reply;

/// A second move, or a resumed one, would find only the other object and write it over the copy.
const FLAT_TWINS_NOTICE: &str = "no source is deleted, because several objects have one name without their directories \
    (--flatten): leave all but one out with --exclude, and move the others under other names";

/// Replies of sources and sinks.
type Replies = mpsc::UnboundedReceiver<Reply>;

/// How the job ends, with the message for the summary.
struct Ending {
    outcome: Outcome,
    message: Option<String>,
    hint: Option<String>,
    /// Objects and bytes that a dry run would delete, or that wait for confirmation.
    to_delete: Option<ToDelete>,
}

impl Ending {
    fn plain(outcome: Outcome) -> Self {
        Self { outcome, message: None, hint: None, to_delete: None }
    }

    fn failed(message: String, hint: Option<String>) -> Self {
        Self { outcome: Outcome::Failed, message: Some(message), hint, to_delete: None }
    }

    /// Returns the other ending, with this one's `to_delete` if there is one.
    fn then(self, other: Self) -> Self {
        Self { to_delete: self.to_delete.or(other.to_delete), ..other }
    }
}

impl Run {
    /// Does the work after the last object, and reports the summary.
    pub(super) async fn end(
        &mut self,
        ended: Result<SurveyEnd, SurveyError>,
        state: Option<&StateDir>,
        stop: &CancellationToken,
        replies: &mut Replies,
    ) {
        let mut ending = match (self.stopping.take(), ended) {
            (Some(Stopping { closed: true, .. }), _) => self.after_failures(true),
            (Some(Stopping { outcome, message, hint, .. }), _) => Ending { outcome, message, hint, to_delete: None },
            (None, Ok(end)) => match drained(stop, self.finisher.settle_doubted(stop, &mut self.recorder)).await {
                Some(Err(error)) => self.after_error(&error),
                Some(Ok(())) if !stop.is_cancelled() => self.after_all(end, stop, replies).await,
                _ => Ending::plain(Outcome::Interrupted),
            },
            (None, Err(error)) => match self.after_error(&error) {
                // A job that is done is never resumed, so its uploads would stay.
                done if done.outcome == Outcome::Done => {
                    if self.abort_leftovers(stop, replies).await {
                        done
                    } else {
                        Ending::plain(Outcome::Interrupted)
                    }
                }
                ending => ending,
            },
        };
        if let Err(error) = self.recorder.journal.flush().await {
            ending = ending.then(Ending::failed(error.to_string(), Some(error.hint().to_owned())));
        }
        if let Err(error) = self.recorder.finish_report(ending.outcome).await
            && ending.outcome == Outcome::Done
        {
            ending = ending.then(Ending::failed(error.to_string(), None));
        }
        if let Err(error) = self.dispatcher.finish_spending() {
            self.context.notice(format!("cannot write the job's cost to disk: {error}"));
        }
        self.summarise(ending, state);
    }

    fn after_error(&self, error: &SurveyError) -> Ending {
        let nothing_there = matches!(error, SurveyError::NothingSelected { .. });
        if nothing_there && self.context.job.allow_empty {
            return Ending::plain(Outcome::Done);
        }
        let is_empty = matches!(error, SurveyError::NothingSelected { source_objects: 0, .. });
        let hint = if is_empty && self.context.job.delete.is_some() { Some(EMPTY_SOURCE_HINT) } else { error.hint() };
        let outcome = error.outcome();
        let left = if outcome == Outcome::SourceNotFound { self.intake.unfinished() } else { 0 };
        let fitting = |hint: &str| self.context.fitting(hint.to_owned());
        let hint = if left > 0 { Some(source_gone_hint(left)) } else { hint.map(fitting) };
        Ending { outcome, message: Some(error.to_string()), hint, to_delete: None }
    }

    /// The ending after failures. `stopped`: not everything that was to be moved was tried.
    fn after_failures(&self, stopped: bool) -> Ending {
        let (tally, causes) = (&self.recorder.tally, &self.recorder.causes);
        let outcome = causes.outcome(tally.any_done() && !stopped);
        let untouched = |site| {
            let took_any = match site {
                FailureSite::Target(target) => tally.any_done_at(target),
                _ => tally.any_done(),
            };
            (stopped || !took_any).then(|| self.context.site_url(site).to_owned())
        };
        let words = causes.words(untouched, tally.objects_total() == 1 && !tally.any_done(), stopped);
        let (message, hint) = words.map_or((None, None), |(message, hint)| (Some(message), hint));
        Ending { outcome, message, hint, to_delete: None }
    }

    async fn after_all(&mut self, end: SurveyEnd, stop: &CancellationToken, replies: &mut Replies) -> Ending {
        if !self.abort_leftovers(stop, replies).await {
            return Ending::plain(Outcome::Interrupted);
        }
        let copied = self.after_failures(false);
        let (copied, may_delete) = self.may_delete(&end, copied);
        if !may_delete {
            return copied;
        }
        if end.has_flat_twins && self.context.job.delete_source {
            self.finisher.keep_sources();
            self.context.notice(FLAT_TWINS_NOTICE.to_owned());
        }
        let to_delete = copied.to_delete;
        Ending { to_delete, ..self.delete(end.extraneous, copied, stop).await }
    }

    /// Aborts the uploads that no run will finish. Returns false if the job was stopped before that was complete.
    async fn abort_leftovers(&mut self, stop: &CancellationToken, replies: &mut Replies) -> bool {
        let unfinished = self.intake.take_unfinished();
        let aborted = async {
            self.dispatcher.fence_sinks(replies).await;
            self.finisher.abort_leftovers(unfinished, &self.recorder).await;
        };
        stop.run_until_cancelled(aborted).await.is_some()
    }

    /// Returns how the job ends if nothing is deleted, and whether deleting is allowed: not where a limit forbids it,
    /// nor before it is confirmed.
    fn may_delete(&self, end: &SurveyEnd, copied: Ending) -> (Ending, bool) {
        let job = &self.context.job;
        let (ask, dry_run) = (job.delete.is_some_and(|rules| rules.ask), job.dry_run);
        if let (Some(rules), Some(_)) = (&job.delete, &end.extraneous)
            && let Some(Refusal { why, hint, allowed_by }) =
                deletion::refusal(rules, end, self.recorder.tally.objects_failed(), |index| self.target_url(index))
        {
            if dry_run && let Some(allowed_by) = allowed_by {
                self.context.notice(format!("without --dry-run nothing would be deleted: {why}; {allowed_by}"));
            } else if copied.outcome == Outcome::Done {
                return (Ending::failed(format!("nothing was deleted: {why}"), Some(hint.to_owned())), false);
            } else {
                self.context.notice(format!("nothing was deleted: {why}"));
                return (copied, false);
            }
        }
        let Some(totals) = end.extraneous.as_ref().map(DeletionBacklog::totals) else { return (copied, true) };
        if !(dry_run || ask && totals.objects > 0) {
            return (copied, true);
        }
        let unconfirmed = Ending { to_delete: Some(totals), ..copied };
        if dry_run || unconfirmed.outcome != Outcome::Done {
            return (unconfirmed, dry_run);
        }
        let objects = counted(totals.objects, "object", "objects");
        let message = format!("nothing was deleted yet: deleting {objects} needs confirmation");
        (unconfirmed.then(Ending::failed(message, Some("pass -y to skip the question".to_owned()))), false)
    }

    /// Deletes extraneous objects at the destinations, and the sources of a `mv`.
    async fn delete(
        &mut self,
        extraneous: Option<DeletionBacklog>,
        copied: Ending,
        stop: &CancellationToken,
    ) -> Ending {
        let mut left = 0;
        if let Some(extraneous) = extraneous {
            let deleted = self.finisher.delete_extraneous(extraneous, stop, &mut self.recorder).await;
            if deleted.directories_left {
                return Ending::plain(Outcome::Interrupted);
            }
            left += deleted.untried;
        }
        match self.finisher.delete_sources(left, stop, &mut self.recorder).await {
            Ok(deleted) if deleted.directories_left => return Ending::plain(Outcome::Interrupted),
            Ok(deleted) => left += deleted.untried,
            Err(error) => {
                self.context.notice(format!("sources were not deleted: {error}"));
                // The flush at the end reports the error again, as the outcome.
                return copied;
            }
        }
        if left > 0 {
            self.context.notice(format!("{} may still have to be deleted", counted(left, "object", "objects")));
            return Ending::plain(Outcome::Interrupted);
        }
        if copied.outcome == Outcome::Done { self.after_failures(false) } else { copied }
    }

    /// The URL of a destination as the summary names it.
    fn target_url(&self, index: usize) -> String {
        let destinations = self.recorder.tally.destinations();
        destinations.get(index).map(|destination| destination.url.clone()).unwrap_or_default()
    }

    fn summarise(&self, ending: Ending, state: Option<&StateDir>) {
        let tally = &self.recorder.tally;
        let summary = Summary {
            outcome: ending.outcome,
            message: ending.message,
            hint: ending.hint,
            progress: self.dispatcher.totals(&self.recorder),
            objects_deleted: tally.objects_deleted,
            objects_not_deleted: tally.not_deleted,
            to_delete: ending.to_delete,
            tags_dropped: tally.tags_dropped,
            attributes_ignored: tally.attributes_ignored,
            proofs: tally.proofs(),
            destinations: tally.destinations(),
        };
        if let Some(state) = state {
            if let Err(error) = status::write(state.path(), &status::ended(summary.clone())) {
                tracing::warn!(%error, "cannot write the job's status");
            }
            if summary.outcome == Outcome::Done {
                forget_journal(state, &self.context.targets);
            }
        }
        self.context.events.send(Event::Done(summary));
    }
}

/// Advice where a resumed job does not find its source. Its uploads stay, because the source may come back, for example
/// as an unmounted disk.
fn source_gone_hint(uploads: usize) -> String {
    let left = counted(uploads as u64, "unfinished upload", "unfinished uploads");
    format!("restore the source and run `tradewind jobs resume`, or abort its {left} with `tradewind jobs cancel`")
}

/// Deletes the journal, which may be large, and what belongs to it. A job that is done is never resumed.
fn forget_journal(state: &StateDir, targets: &[Arc<dyn Store>]) {
    let journal = ["", "-wal", "-shm"].map(|suffix| format!("{JOURNAL_FILE}{suffix}"));
    let names = journal.iter().map(String::as_str).chain([SPENDING_FILE]).map(|name| state.path().join(name));
    for path in names.chain(write_lists(state.path(), targets)) {
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %path.display(), "it stays behind");
        }
    }
}
