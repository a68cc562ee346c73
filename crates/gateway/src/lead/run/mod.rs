//! Runs the lead: joins the survey, the scheduler, the journal and the gateways of its routes.
//!
//! One task owns everything and waits for one event at a time: an object that was found, a reply, a tick, a request to
//! stop. It holds no object bytes. It passes each event to the responsible part:
//!
//! - [`intake`](self::intake) takes objects from the survey and inspects them first where that is needed;
//!   [`looking`](self::looking), [`outlook`](self::outlook) and [`twins`](self::twins) decide when and how.
//! - [`dispatcher`](self::dispatcher) assigns their [`transfer`](self::transfer)s to the routes: it makes and queues
//!   [`orders`](self::orders) ([`order_queue`](self::order_queue)), handles [`answers`](self::answers), follows
//!   failures and changes of [`routes`](self::routes), and books [`spending`](self::spending) before anything is sent.
//! - [`finisher`](self::finisher) takes what was written: [`outdated`](self::outdated) and [`doubted`](self::doubted)
//!   copies are checked once more; [`source_deletions`](self::source_deletions), [`deletions`](self::deletions) and
//!   [`leftovers`](self::leftovers) wait for the end. [`fences`](self::fences) keep late orders from making more.
//! - [`recorder`](self::recorder) records what was done: journal, report, [`tally`](self::tally), and the
//!   [`causes`](self::causes) of failures.
//!
//! The parts share a [`context`](self::context). [`opening`](self::opening) begins the job, [`ending`](self::ending)
//! ends it.

mod answers;
mod causes;
mod context;
mod deletions;
mod dispatcher;
mod doubted;
#[cfg(test)]
mod drops;
mod earlier_runs;
mod emptied_directories;
mod ending;
mod fences;
mod finisher;
mod intake;
mod leftovers;
mod limits;
mod looking;
mod opening;
mod order_queue;
mod orders;
mod outdated;
mod outlook;
mod recorder;
mod routes;
mod source_deletions;
mod spending;
mod tally;
mod transfer;
mod twins;

use self::looking::Beginning;
use crate::background::Background;
use crate::control::events::EventSender;
use crate::drain::DRAIN_MAX;
use crate::failure::human_bytes;
use crate::lead::availability::{self, Lost};
use crate::lead::journal::{Journal, UnfinishedUpload};
use crate::lead::report::Report;
use crate::lead::state_dir::StateDir;
use crate::lead::status;
use crate::lead::survey::{Found, SurveyEnd, SurveyError, UNREACHABLE_HINT, WorkItem, unreachable};
use crate::node::hop_reports::HopReports;
use crate::retry::RetryPolicy;
use causes::{Cause, FailureSite};
use context::{Context, ToldApart};
use dispatcher::{Dispatcher, Ended};
use finisher::Finisher;
use intake::{Admitted, Intake};
pub use opening::{CannotBegin, begin};
pub use order_queue::RouteSource;
use recorder::Recorder;
pub use routes::Rerouted;
use spending::{Spending, spent_before};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tally::Tally;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tradewind_contract::{Event, JobSpec, Limits, Outcome, RouteSpec};
use tradewind_store::Store;
use tradewind_wire::RouteId;
use tradewind_wire::frame::Reply;
use tradewind_wire::scheduler::Idle;

/// Interval between two progress events of a job.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// Number of progress ticks from one write of the status file to the next.
const STATUS_TICKS: u64 = 4;
const OUT_OF_BYTES_HINT: &str = "run `tradewind sync` with a higher --max-bytes to copy only what is missing";
/// Maximum number of findings that are taken before the next orders are made.
const FINDINGS_AT_ONCE_MAX: usize = 256;
/// Advice where all routes damage everything.
const DAMAGED_HINT: &str = "nothing damaged was written: replace that machine or leave it out, then resume the job";
/// Why a job under a cost ceiling ends.
const ONLY_DEARER: &str = "the remaining routes cost more than the cost ceiling allows";

/// Everything the lead needs to run a job.
pub struct LeadSetup {
    /// The job.
    pub job: Arc<JobSpec>,
    /// Limits of requests.
    pub limits: Limits,
    /// The plan's routes.
    pub routes: Vec<RouteSpec>,
    /// The source of each route: where its orders go.
    pub sources: HashMap<RouteId, RouteSource>,
    /// Whether every route lies in this process.
    pub local: bool,
    /// The channel of the replies.
    pub replies: (mpsc::UnboundedSender<Reply>, mpsc::UnboundedReceiver<Reply>),
    /// Reports of relays about their hops.
    pub hop_reports: Arc<HopReports>,
    /// The store to read.
    pub source: Arc<dyn Store>,
    /// The stores to write.
    pub targets: Vec<Arc<dyn Store>>,
    /// The recipient of the events.
    pub events: EventSender,
    /// Other routes, while the job runs. Each change names all routes, so only the latest counts.
    pub rerouted: watch::Receiver<Option<Rerouted>>,
    /// Cancelled when the job should stop.
    pub stop: CancellationToken,
    /// Where blocking work runs.
    pub background: Background,
}

/// One run of a job. See the module's documentation.
struct Run {
    context: Arc<Context>,
    intake: Intake,
    dispatcher: Dispatcher,
    finisher: Finisher,
    recorder: Recorder,
    rerouted: watch::Receiver<Option<Rerouted>>,
    hop_reports: Arc<HopReports>,
    /// Why the job stops before its end.
    stopping: Option<Stopping>,
}

#[derive(Clone, Debug)]
struct Stopping {
    outcome: Outcome,
    message: Option<String>,
    hint: Option<String>,
    /// Whether failures closed every store of a side. The failures are counted and named when everything in flight has
    /// ended.
    closed: bool,
    deadline_ms: u64,
}

/// The survey, until its result is known.
struct Surveying {
    found: mpsc::Receiver<Found>,
    /// Findings that were received together and are handled next.
    received: std::vec::IntoIter<Found>,
    task: JoinHandle<Result<SurveyEnd, SurveyError>>,
    cancel: CancellationToken,
    listed: bool,
}

impl Surveying {
    fn cancel_unless_listed(&mut self) {
        if !self.listed {
            self.cancel.cancel();
        }
        self.found.close();
    }

    /// Returns the next finding; `None` after the last one. A call that is dropped loses none.
    async fn next(&mut self) -> Option<Found> {
        if let Some(found) = self.received.next() {
            return Some(found);
        }
        let mut received = Vec::new();
        self.found.recv_many(&mut received, FINDINGS_AT_ONCE_MAX).await;
        self.received = received.into_iter();
        self.received.next()
    }

    fn is_empty(&self) -> bool {
        self.received.as_slice().is_empty() && self.found.is_empty()
    }
}

/// The sources of events while a run works.
struct Events<'a> {
    surveying: &'a mut Surveying,
    replies: &'a mut mpsc::UnboundedReceiver<Reply>,
    stop: &'a CancellationToken,
    /// Ends when the source, or every destination, was unreachable for as long as the job may stall.
    lost: &'a mut AbortOnDropHandle<Lost>,
}

/// Runs a job to its end.
async fn work(
    setup: LeadSetup,
    state: Option<StateDir>,
    journal: Journal,
    report: Option<Report>,
    unfinished: Vec<UnfinishedUpload>,
) {
    let stop = setup.stop.clone();
    let (limits, background) = (setup.limits.clone(), setup.background);
    let counts = setup.job.has_ceiling() || setup.routes.iter().any(|route| route.usd_per_gb > 0.0);
    let (mut run, mut replies) = Run::new(setup, journal, report, unfinished);
    if let Some(state) = &state {
        run.dispatcher.book_in(Spending::of(state.path(), background));
    }
    let resumed = state.as_ref().filter(|_| run.context.job.resume);
    let before = resumed.map(|state| spent_before(state, counts)).transpose();
    let mut lost = run.watch_availability();
    let prepared = match before {
        Err(error) => Err(error.into()),
        Ok(before) => {
            before.into_iter().for_each(|before| run.dispatcher.carried_before(before));
            tokio::select! {
                prepared = run.prepare(&limits) => prepared,
                Ok(lost) = &mut lost => Err(SurveyError::Unreachable(Box::new(lost))),
                () = stop.cancelled() => Err(SurveyError::Cancelled),
            }
        }
    };
    if stop.is_cancelled() {
        run.stop(Outcome::Interrupted, None, None);
    }
    let ended = match prepared {
        Ok(mut surveying) => {
            let events = Events { surveying: &mut surveying, replies: &mut replies, stop: &stop, lost: &mut lost };
            let worked = run.work_to_the_end(events, state.as_ref()).await;
            let surveyed = surveying.task.await.unwrap_or(Err(SurveyError::Cancelled));
            worked.and(surveyed)
        }
        Err(error) => Err(error),
    };
    run.end(ended, state.as_ref(), &stop, &mut replies).await;
    drop(state);
}

impl Run {
    fn new(
        setup: LeadSetup,
        journal: Journal,
        report: Option<Report>,
        unfinished: Vec<UnfinishedUpload>,
    ) -> (Self, mpsc::UnboundedReceiver<Reply>) {
        let (rerouted, hop_reports) = (setup.rerouted, setup.hop_reports);
        let LeadSetup { job, limits, routes, sources, local, replies, source, targets, events, .. } = setup;
        let policy = RetryPolicy::of_job(&limits, &job);
        let tells_names_apart = targets.iter().map(|_| ToldApart::default()).collect();
        let request_s = limits.request_s;
        let context = Arc::new(Context { job, source, targets, local, policy, events, request_s, tells_names_apart });
        let dir = context.job.state_dir.as_deref().map(Path::new);
        let run = Self {
            intake: Intake::new(context.clone(), unfinished, dir),
            dispatcher: Dispatcher::new(context.clone(), &routes, sources, replies.0),
            finisher: Finisher::new(context.clone(), dir),
            recorder: Recorder::new(context.clone(), journal, report, Tally::new(&context.job, &routes)),
            rerouted,
            hop_reports,
            stopping: None,
            context: context.clone(),
        };
        (run, replies.1)
    }

    /// Reports unreachable stores, and ends when the job has waited for them long enough.
    fn watch_availability(&self) -> AbortOnDropHandle<Lost> {
        let (context, events) = (self.context.clone(), self.context.events.clone());
        let say = move |message| events.send(Event::Notice { message });
        let patience = context.patience();
        let watching = availability::until_lost(context.source.clone(), context.targets.clone(), patience, say);
        AbortOnDropHandle::new(tokio::spawn(watching))
    }

    /// Works until everything is done or the job stops, and the survey has ended.
    async fn work_to_the_end(&mut self, mut events: Events<'_>, state: Option<&StateDir>) -> Result<(), SurveyError> {
        let worked = self.work_through(&mut events, state).await;
        events.surveying.cancel_unless_listed();
        if worked.is_err() {
            self.let_land(events.replies).await;
        }
        worked
    }

    /// Handles a failure of the lead's own files: begins no new requests, and waits for those in flight, so that no
    /// sink in this process ends in the middle of a write. Their results are not counted.
    async fn let_land(&mut self, replies: &mut mpsc::UnboundedReceiver<Reply>) {
        self.dispatcher.drain();
        self.dispatcher.drop_unsent();
        let landed = async {
            while self.dispatcher.scheduler.awaited_flights() > 0
                && let Some(reply) = replies.recv().await
            {
                // It may return the failure that is known already.
                drop(self.reply(reply).await);
            }
        };
        drop(tokio::time::timeout(DRAIN_MAX, landed).await);
    }

    /// Waits for events and passes them on.
    async fn work_through(&mut self, events: &mut Events<'_>, state: Option<&StateDir>) -> Result<(), SurveyError> {
        let Events { surveying, replies, stop, lost } = events;
        let mut ticks = tokio::time::interval(PROGRESS_EVERY);
        loop {
            let idle = self.dispatch().await?;
            self.intake.load_twins(self.dispatcher.scheduler.wants_more())?;
            if self.is_over(idle, surveying) && (self.stopping.is_some() || !self.begin_round_of_twins()?) {
                return Ok(());
            }
            let now_ms = self.dispatcher.clock.now_ms();
            let wake = Duration::from_millis(self.wake_ms(idle).saturating_sub(now_ms));
            let takes_more = self.takes_more(surveying);
            tokio::select! {
                Some(reply) = replies.recv() => {
                    self.reply(reply).await?;
                    while let Ok(reply) = replies.try_recv() {
                        self.reply(reply).await?;
                    }
                }
                found = surveying.next(), if takes_more => {
                    self.found(found, surveying).await?;
                    self.take_findings(surveying).await?;
                }
                Some(looked) = self.intake.next() => {
                    let admitted = self.intake.looked(looked, &mut self.recorder).await;
                    self.admit(admitted);
                }
                Some(rechecked) = self.finisher.outdated.next() => {
                    let is_stopping = self.stopping.is_some();
                    let again = self.finisher.rechecked(rechecked, is_stopping, &mut self.recorder).await?;
                    again.into_iter().for_each(|item| self.load(item, Beginning::Changed));
                }
                Ok(()) = self.rerouted.changed() => self.take_routes(),
                () = stop.cancelled(), if self.stopping.is_none() => self.stop(Outcome::Interrupted, None, None),
                Ok(lost) = &mut **lost, if self.stopping.is_none() => {
                    self.stop(Outcome::Unavailable, Some(unreachable(&lost)), Some(UNREACHABLE_HINT));
                }
                _ = ticks.tick() => self.tick(state),
                () = tokio::time::sleep(wake) => {}
            }
            self.close_failed();
            if self.stopping.is_some() {
                surveying.cancel.cancel();
                surveying.found.close();
            }
        }
    }

    async fn reply(&mut self, reply: Reply) -> Result<(), SurveyError> {
        self.dispatcher.answer(reply, &mut self.recorder, &mut self.intake.outlook).await?;
        self.close_failed();
        Ok(())
    }

    fn takes_more(&self, surveying: &Surveying) -> bool {
        !surveying.listed && self.intake.has_room() && self.dispatcher.scheduler.wants_more()
    }

    /// Takes findings that are there already.
    async fn take_findings(&mut self, surveying: &mut Surveying) -> Result<(), SurveyError> {
        for _ in 0..FINDINGS_AT_ONCE_MAX {
            if self.stopping.is_some() || !self.takes_more(surveying) {
                break;
            }
            if surveying.is_empty() {
                break;
            }
            let found = surveying.next().await;
            self.found(found, surveying).await?;
        }
        Ok(())
    }

    async fn found(&mut self, found: Option<Found>, surveying: &mut Surveying) -> Result<(), SurveyError> {
        match found {
            Some(Found::Item(item)) => {
                let admitted = self.intake.item(item, &mut self.recorder).await?;
                self.admit(admitted);
            }
            Some(Found::Skipped { target, objects, .. }) => self.recorder.tally.skipped(target, objects),
            Some(Found::AlreadyDone { target, objects, bytes }) => {
                self.recorder.tally.already_done(target, objects, bytes);
            }
            Some(Found::CopiedBefore { source, copy }) => {
                self.finisher.copied(&source, *copy, &mut self.recorder).await;
            }
            Some(Found::Refused { failed, target, bytes }) => self.recorder.refused(failed, target, bytes).await,
            Some(Found::NotListed(failed)) => self.recorder.not_deleted(failed).await,
            Some(Found::LinksSkipped(links)) => self.context.notice(links_skipped(links)),
            Some(Found::Listed) => {
                self.recorder.tally.listed = true;
                surveying.listed = true;
            }
            None => surveying.listed = true,
        }
        Ok(())
    }

    fn admit(&mut self, admitted: Admitted) {
        match admitted {
            Admitted::Nothing => {}
            Admitted::Transfer(transfer) => self.dispatcher.add(transfer),
            Admitted::OverCeiling { message, hint } => self.stop(Outcome::Ceiling, Some(message), Some(hint)),
        }
    }

    fn load(&mut self, item: Box<WorkItem>, beginning: Beginning) {
        let admitted = self.intake.load(item, beginning, &mut self.recorder);
        self.admit(admitted);
    }

    fn begin_round_of_twins(&mut self) -> Result<bool, SurveyError> {
        self.intake.begin_round_of_twins(self.dispatcher.scheduler.wants_more())
    }

    /// Sends the orders that can be sent now, and handles the objects that end as a result.
    async fn dispatch(&mut self) -> Result<Idle, SurveyError> {
        loop {
            match self.dispatcher.next(&self.recorder, &self.intake.outlook) {
                Ok(ended) => self.ended(ended).await?,
                Err(idle) => {
                    self.dispatcher.flush()?;
                    return Ok(idle);
                }
            }
            self.close_failed();
        }
    }

    async fn ended(&mut self, ended: Ended) -> Result<(), SurveyError> {
        match ended {
            Ended::Finished(transfer) => self.finisher.finished(transfer, &mut self.recorder).await?,
            Ended::Failed(transfer, fault) => {
                if let Some((item, beginning)) = self.finisher.failed(transfer, fault, &mut self.recorder).await {
                    self.load(item, beginning);
                }
            }
            Ended::Restart(transfer) => {
                self.intake.note_upload_gone(&transfer);
                let beginning = if transfer.has_changed() { Beginning::Changed } else { Beginning::Again };
                let item = self.finisher.restarted(transfer, &mut self.recorder);
                self.load(item, beginning);
            }
        }
        Ok(())
    }

    /// Switches to the routes of the latest change.
    fn take_routes(&mut self) {
        let Some(change) = self.rerouted.borrow_and_update().clone() else { return };
        self.recorder.tally.know(&change.routes);
        self.dispatcher.reroute(change);
    }

    fn is_over(&mut self, idle: Idle, surveying: &Surveying) -> bool {
        let is_settled = self.finisher.outdated.is_idle();
        if let Some(stopping) = &self.stopping {
            let has_landed = self.dispatcher.scheduler.awaited_flights() == 0 && is_settled;
            return has_landed || self.dispatcher.clock.now_ms() >= stopping.deadline_ms;
        }
        match idle {
            Idle::Stalled => {
                let stall_s = self.context.job.stall_s;
                let down = self.dispatcher.down.reasons();
                let (message, hint) = match &self.dispatcher.unreachable {
                    Some(why) => (format!("nothing arrived for {stall_s} s: {why}"), Some(UNREACHABLE_HINT)),
                    None if down.is_empty() => (format!("no route has worked for {stall_s} s"), None),
                    None => (format!("no route has worked for {stall_s} s: {down}"), None),
                };
                self.stop(Outcome::Unavailable, Some(message), hint);
                true
            }
            // Until the listing ends, every object that it adds raises the amount that may be spent.
            Idle::Ceiling if surveying.listed => {
                let (message, hint) = match self.dispatcher.scheduler.shares().lacks_bytes() {
                    true => (self.out_of_bytes(), OUT_OF_BYTES_HINT),
                    false => (ONLY_DEARER.to_owned(), "raise --max-cost, or wait for the cheaper routes and resume"),
                };
                self.stop(Outcome::Ceiling, Some(message), Some(hint));
                true
            }
            Idle::Empty => surveying.listed && self.intake.is_idle() && is_settled && surveying.is_empty(),
            Idle::Waiting | Idle::Until(_) | Idle::Ceiling => false,
        }
    }

    /// Why a job under a ceiling of bytes ends.
    fn out_of_bytes(&self) -> String {
        let ceiling = human_bytes(self.context.job.ceiling_bytes.unwrap_or_default());
        format!("--max-bytes allows {ceiling}, which is not enough for the rest (bytes lost in transit count)")
    }

    fn wake_ms(&self, idle: Idle) -> u64 {
        let now_ms = self.dispatcher.clock.now_ms();
        let of_idle = match idle {
            Idle::Until(at_ms) => at_ms.max(now_ms + 1),
            _ => now_ms + PROGRESS_EVERY.as_millis() as u64,
        };
        self.stopping.as_ref().map_or(of_idle, |stopping| of_idle.min(stopping.deadline_ms.max(now_ms + 1)))
    }

    /// Begins no new requests; those in flight may still complete.
    fn stop(&mut self, outcome: Outcome, message: Option<String>, hint: Option<&str>) {
        let deadline_ms = self.dispatcher.clock.now_ms() + DRAIN_MAX.as_millis() as u64;
        self.dispatcher.drain();
        let hint = hint.map(str::to_owned);
        self.stopping.get_or_insert(Stopping { outcome, message, hint, closed: false, deadline_ms });
    }

    /// Closes stores that the latest event has shown to be unusable. If no other store remains on their side, the job
    /// ends; it can be resumed.
    fn close_failed(&mut self) {
        for (site, message) in self.recorder.take_failing() {
            self.close(site, message);
        }
        if self.recorder.take_all_closed() {
            let is_first = self.stopping.is_none();
            self.stop(Outcome::Failed, None, None);
            if let Some(stopping) = self.stopping.as_mut().filter(|_| is_first) {
                stopping.closed = true;
            }
        }
    }

    /// Closes each of several destinations that has failed for too long. If all have, the job ends anyway.
    fn close_failing_targets(&mut self) {
        let patience = self.context.patience();
        let targets = self.context.targets.iter().enumerate();
        let lost: Vec<_> = targets
            .filter_map(|(index, store)| Some((index as u16, availability::lost(store.as_ref(), patience)?)))
            .collect();
        if lost.len() < self.context.targets.len() {
            for (target, lost) in lost {
                self.close(FailureSite::Target(target), unreachable(&lost));
            }
        }
    }

    fn close(&mut self, site: FailureSite, message: String) {
        if self.stopping.is_some() || self.recorder.causes.closed(site).is_some() {
            return;
        }
        let hint = Some(UNREACHABLE_HINT.to_owned());
        self.recorder.causes.close(Cause { site, kind: "unavailable".to_owned(), message: message.clone(), hint });
        if self.recorder.nothing_is_open() {
            return self.stop(Outcome::Unavailable, Some(message), Some(UNREACHABLE_HINT));
        }
        self.context.notice(format!("{message}; it gets no more requests in this run: resume the job later"));
    }

    fn tick(&mut self, state: Option<&StateDir>) {
        self.dispatcher.report_down(&self.recorder);
        self.dispatcher.report_silence();
        self.dispatcher.heard_of_hops(self.hop_reports.take());
        self.close_failing_targets();
        if let Some(why) = self.dispatcher.down.damaged_everywhere(self.context.patience())
            && self.stopping.is_none()
        {
            self.stop(Outcome::Mismatch, Some(why), Some(DAMAGED_HINT));
        }
        self.dispatcher.give_up_overdue();
        self.dispatcher.sync_spending_behind();
        let progress = self.dispatcher.progress(&mut self.recorder);
        if let Some(state) = state
            && self.recorder.tally.ticks().is_multiple_of(STATUS_TICKS)
            && let Err(error) = status::write(state.path(), &status::running(progress.clone()))
        {
            tracing::warn!(%error, "cannot write the job's status");
        }
        self.context.events.send(Event::Progress(progress));
    }
}

fn links_skipped(links: u64) -> String {
    let what = if links == 1 { "1 symbolic link".to_owned() } else { format!("{links} symbolic links") };
    format!("{what} skipped; --follow-symlinks copies what they point to")
}
