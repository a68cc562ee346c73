//! The lead at work: joins the survey, the wire's state machine, the journal and the gateways below.
//!
//! One task owns everything and waits for one event at a time: something found, an answer, a tick, a wish to stop. It
//! holds no object bytes. [`cargo`](self::cargo) is what it knows of each object in progress, [`objects`](self::objects) takes
//! objects on and lets them go, [`orders`](self::orders) turns the state machine's decisions into orders,
//! [`answers`](self::answers) tells it what came back, [`tally`](self::tally) counts, [`causes`](self::causes) gathers why
//! objects failed, [`trouble`](self::trouble) closes stores that answer nothing but errors, [`doubted`](self::doubted) keeps
//! those that a late write may replace, [`twins`](self::twins) those whose names may be taken for others, [`outdated`](self::outdated) looks for sources that changed before their copies were
//! complete, [`earlier`](self::earlier) reports what earlier runs copied, [`moved`](self::moved) keeps what `mv` deletes,
//! [`outlook`](self::outlook) guesses what is at the destinations, [`spending`](self::spending) what was paid for,
//! [`routes`](self::routes) which routes there are and which are down; [`opening`](self::opening) begins the job,
//! [`ending`](self::ending) ends it.

mod answers;
mod cargo;
mod causes;
mod doubted;
#[cfg(test)]
mod drops;
mod earlier;
mod emptied;
mod ending;
mod moved;
mod objects;
mod opening;
mod orders;
mod outdated;
mod outlook;
mod routes;
mod spending;
mod tally;
mod trouble;
mod twins;

use crate::background::Background;
use crate::control::events::EventSender;
use crate::drain::DRAIN_MAX;
use crate::lead::availability::Lost;
use crate::lead::backlog::Backlog;
use crate::lead::journal::{Entry, Intent, Journal, UnfinishedUpload};
use crate::lead::places::Places;
use crate::lead::report::Report;
use crate::lead::state_dir::StateDir;
use crate::lead::survey::{FOUND_QUEUE_MAX, Found, Survey, SurveyEnd, SurveyError, UNREACHABLE_HINT, unreachable};
use crate::lead::{availability, probe, status};
use crate::node::clock::Clock;
use crate::node::work::Failure;
use crate::retry::RetryPolicy;
use cargo::{Cargo, Prepared};
use causes::Causes;
use doubted::Copied;
use moved::Moved;
pub use opening::{CannotBegin, begin};
use orders::Dispatch;
pub use orders::RouteSource;
use outdated::Outdated;
use outlook::Outlook;
pub use routes::Rerouted;
use routes::route_plan;
use spending::Spending;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tally::Tally;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tradewind_contract::{Event, JobSpec, Limits, Outcome, RouteSpec, ToDelete};
use tradewind_store::{Store, WORK_BYTES_PER_S_MIN};
use tradewind_wire::frame::Reply;
use tradewind_wire::scheduler::{Action, Config, Idle, Scheduler, Work};
use tradewind_wire::{Fault, ObjectId, RequestId, RouteId};
use twins::Twins;

/// Objects being looked up (`HEAD`) before they are given to the state machine.
const PREPARING_MAX: usize = 64;
/// Object bytes of one bundle.
const BUNDLE_BYTES_MAX: u64 = 4 << 20;
/// Objects of one bundle between gateways, where each request costs a way there and back.
const BUNDLE_OBJECTS_HOP: usize = 128;
/// Objects of one bundle in local mode, where the way costs nothing and finer grains keep both stores busy.
const BUNDLE_OBJECTS_MEMORY: usize = 16;
/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// Progress is written to the status file at every so many of its ticks.
const STATUS_TICKS: u64 = 4;
const OUT_OF_BYTES_HINT: &str = "`tradewind sync` with a higher --max-bytes copies only what is missing";
/// Why a job under a ceiling of cost ends.
const ONLY_DEARER: &str = "only routes dearer than the cost ceiling allows are left";
/// Mappings told by a dry run.
const DRY_RUN_EVENTS_MAX: u64 = 1000;

/// What the lead works with.
pub struct LeadSetup {
    /// The job.
    pub job: Arc<JobSpec>,
    /// Limits of requests.
    pub limits: Limits,
    /// The plan's routes.
    pub routes: Vec<RouteSpec>,
    /// Where orders go, by route.
    pub sources: HashMap<RouteId, RouteSource>,
    /// True if every route lies in this process.
    pub local: bool,
    /// Where answers come from.
    pub replies: (mpsc::UnboundedSender<Reply>, mpsc::UnboundedReceiver<Reply>),
    /// The store to read.
    pub source: Arc<dyn Store>,
    /// The stores to write.
    pub targets: Vec<Arc<dyn Store>>,
    /// Tells the story.
    pub events: EventSender,
    /// Other routes, while the job runs. Only the latest change counts, for each names all routes.
    pub rerouted: watch::Receiver<Option<Rerouted>>,
    /// A wish to stop.
    pub stop: CancellationToken,
    /// Where blocking work runs.
    pub background: Background,
}

struct Running {
    setup: Arc<Shared>,
    /// True if source and sinks are in this process.
    local: bool,
    scheduler: Scheduler,
    dispatch: Dispatch,
    cargo: HashMap<ObjectId, Cargo>,
    unfinished: HashMap<(u16, String), UnfinishedUpload>,
    /// Objects whose upload was asked for more than once. Swept at the end: a request that was given up may open another
    /// upload after its object is done.
    asked_again: Backlog<Intent>,
    next_object: u64,
    preparing: usize,
    prepared: (mpsc::Sender<Prepared>, mpsc::Receiver<Prepared>),
    journal: Journal,
    report: Option<Report>,
    moved: Option<Moved>,
    /// See [`Places::refuse_overlaps`].
    proven_apart: Vec<bool>,
    /// Objects and bytes that a dry run would delete, or that wait for a confirmation.
    to_delete: Option<ToDelete>,
    /// None without a folder.
    spending: Option<Spending>,
    tally: Tally,
    causes: Causes,
    doubted: Backlog<Copied>,
    twins: Twins,
    outdated: Outdated,
    outlook: Outlook,
    /// Routes that are down, since when (ms), and whether that was told.
    down: HashMap<RouteId, (u64, bool)>,
    /// What a gateway said of a store that it cannot reach, until something is done again.
    unreachable: Option<String>,
    clock: Clock,
    rerouted: watch::Receiver<Option<Rerouted>>,
    /// Why the job stops before its end.
    stopping: Option<Stopping>,
}

/// What tasks of the lead share.
struct Shared {
    job: Arc<JobSpec>,
    source: Arc<dyn Store>,
    targets: Vec<Arc<dyn Store>>,
    policy: RetryPolicy,
    events: EventSender,
    /// A request without an answer is given up after this time.
    request_s: u32,
    /// By index of the destination: it was seen not to take one name for another.
    tells_names_apart: Vec<AtomicBool>,
}

#[derive(Clone, Debug)]
struct Stopping {
    outcome: Outcome,
    message: Option<String>,
    hint: Option<String>,
    /// What closed all stores of a side has its words when everything in flight is counted.
    closed: bool,
    deadline_ms: u64,
}

/// The survey, until its end is known.
struct Surveying {
    found: mpsc::Receiver<Found>,
    task: JoinHandle<Result<SurveyEnd, SurveyError>>,
    cancel: CancellationToken,
    listed: bool,
}

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
    let (mut running, replies) = Running::new(setup, journal, report, unfinished);
    running.spending = state.as_ref().map(|state| Spending::of(state.path(), background));
    let resumed = state.as_ref().filter(|_| running.setup.job.resume);
    let carried = resumed.map_or(Ok(()), |state| running.carry_over(state, counts));
    let mut lost = running.watch_availability();
    let prepared = match carried {
        Err(error) => Err(error.into()),
        Ok(()) => tokio::select! {
            prepared = running.prepare_to_run(&limits) => prepared,
            Ok(lost) = &mut lost => Err(SurveyError::Unreachable(Box::new(lost))),
            () = stop.cancelled() => Err(SurveyError::Cancelled),
        },
    };
    if stop.is_cancelled() {
        running.stop(Outcome::Interrupted, None, None);
    }
    let ended = match prepared {
        Ok(surveying) => running.run(surveying, replies, &stop, &mut lost, state.as_ref()).await,
        Err(error) => Err(error),
    };
    running.end(ended, state.as_ref(), &stop).await;
    drop(state);
}

impl Running {
    fn new(
        setup: LeadSetup,
        journal: Journal,
        report: Option<Report>,
        unfinished: Vec<UnfinishedUpload>,
    ) -> (Self, mpsc::UnboundedReceiver<Reply>) {
        let LeadSetup { job, limits, routes, sources, local, replies, source, targets, events, rerouted, .. } = setup;
        let scheduler = Scheduler::new(Config {
            routes: routes.iter().map(|route| route_plan(route, job.chunk_bytes)).collect(),
            ceiling_usd_per_gb: job.ceiling_usd_per_gb,
            ceiling_usd: job.ceiling_usd,
            ceiling_bytes: job.ceiling_bytes,
            bundle_bytes_max: BUNDLE_BYTES_MAX.min(job.chunk_bytes),
            bundle_objects_max: if local { BUNDLE_OBJECTS_MEMORY } else { BUNDLE_OBJECTS_HOP },
            rate_limit_bytes_per_s: job.rate_limit_bytes_per_s,
            stall_ms: u64::from(job.stall_s) * 1000,
            first_request: 1,
        });
        let policy = RetryPolicy::of_job(&limits, &job);
        let dir = job.state_dir.as_ref().map(PathBuf::from);
        let tells_names_apart = targets.iter().map(|_| AtomicBool::new(false)).collect();
        let request_s = limits.request_s;
        let shared = Shared { job, source, targets, policy, events, request_s, tells_names_apart };
        let running = Self {
            dispatch: Dispatch::new(sources, replies.0),
            tally: Tally::new(&shared.job, &routes),
            outlook: Outlook::new(&shared.job),
            setup: Arc::new(shared),
            local,
            scheduler,
            cargo: HashMap::new(),
            unfinished: unfinished
                .into_iter()
                .map(|upload| ((upload.intent.target, upload.intent.target_key.clone()), upload))
                .collect(),
            asked_again: Backlog::new(dir.as_deref()),
            next_object: 1,
            preparing: 0,
            prepared: mpsc::channel(PREPARING_MAX),
            journal,
            report,
            moved: None,
            proven_apart: Vec::new(),
            to_delete: None,
            spending: None,
            causes: Causes::default(),
            doubted: Backlog::new(dir.as_deref()),
            twins: Twins::new(dir.as_deref()),
            outdated: Outdated::new(),
            down: HashMap::new(),
            unreachable: None,
            clock: Clock::start(),
            rerouted,
            stopping: None,
        };
        (running, replies.1)
    }

    /// Tells of stores out of reach, and ends when the job has waited for them long enough.
    fn watch_availability(&self) -> AbortOnDropHandle<Lost> {
        let (setup, events) = (self.setup.clone(), self.setup.events.clone());
        let patience = setup.patience();
        let say = move |message| events.send(Event::Notice { message });
        let watching = availability::until_lost(setup.source.clone(), setup.targets.clone(), patience, say);
        AbortOnDropHandle::new(tokio::spawn(watching))
    }

    /// Writes down in which boots this run writes. Returns since when each destination may have lost what earlier runs
    /// wrote there without syncing it: `None` where no machine was started again meanwhile.
    async fn note_boots(&self) -> Result<Vec<Option<i64>>, SurveyError> {
        let job = &self.setup.job;
        let earlier = if job.resume { self.journal.boots().await? } else { Vec::new() };
        if job.resume && earlier.is_empty() {
            // The row was lost, and later runs must not believe that this boot was the only one.
            self.journal.record(Entry::Began { boot: String::new(), unix_ms: 0 }).await?;
        }
        let mut suspect_since = Vec::with_capacity(self.setup.targets.len());
        for (store, target) in self.setup.targets.iter().zip(&job.targets) {
            let Some(boot) = store.volatile_boot().filter(|_| !target.store.fsync && !job.delete_source) else {
                suspect_since.push(None);
                continue;
            };
            // Sinks elsewhere have boots of their own.
            let boot = if self.local { boot } else { "" };
            self.journal.record(Entry::Began { boot: boot.to_owned(), unix_ms: status::now_unix_ms() }).await?;
            let same_boot =
                !earlier.is_empty() && earlier.iter().all(|(earlier, _)| earlier == boot && !boot.is_empty());
            let since = earlier.iter().map(|(_, began_unix_ms)| *began_unix_ms).min().unwrap_or(0);
            suspect_since.push((job.resume && !same_boot).then_some(since));
        }
        Ok(suspect_since)
    }

    /// Refuses overlapping places, clears what a killed run may have left open without a name, and starts the survey.
    async fn prepare_to_run(&mut self, limits: &Limits) -> Result<Surveying, SurveyError> {
        let setup = self.setup.clone();
        let is_fresh = self.journal.done_set()?.is_empty();
        let Shared { job, source, targets, policy, .. } = setup.as_ref();
        self.proven_apart = Places { job, source, targets, policy: *policy }.refuse_overlaps(is_fresh).await?;
        let shut = probe::shut_targets(&setup.job, &setup.targets).await;
        if let Some(Some(error)) = shut.first()
            && shut.iter().all(Option::is_some)
        {
            return Err(SurveyError::Target(error.clone()));
        }
        let suspect_since_unix_ms = self.note_boots().await?;
        if setup.job.resume {
            crate::lead::sweep::abort_orphans(&self.journal, &setup.targets, setup.policy).await?;
        }
        if setup.job.delete_source && !setup.job.dry_run {
            let moved = Moved::begin(&setup.job);
            self.moved = moved.inspect_err(|error| self.notice(format!("sources will not be deleted: {error}"))).ok();
        }
        let done = self.journal.done_set()?;
        let done_before_deletion = if setup.job.delete_source { done.totals_before_deletion().await? } else { None };
        let (out, found) = mpsc::channel(FOUND_QUEUE_MAX);
        let cancel = CancellationToken::new();
        let survey = Survey {
            job: setup.job.clone(),
            source: setup.source.clone(),
            targets: setup.targets.clone(),
            limits: limits.clone(),
            done,
            done_before_deletion,
            local: self.local,
            suspect_since_unix_ms,
            shut,
            out,
            cancel: cancel.clone(),
        };
        Ok(Surveying { found, task: tokio::spawn(survey.run()), cancel, listed: false })
    }

    async fn run(
        &mut self,
        mut surveying: Surveying,
        mut replies: mpsc::UnboundedReceiver<Reply>,
        stop: &CancellationToken,
        lost: &mut AbortOnDropHandle<Lost>,
        state: Option<&StateDir>,
    ) -> Result<SurveyEnd, SurveyError> {
        let worked = self.work_through(&mut surveying, &mut replies, stop, lost, state).await;
        surveying.cancel_unless_listed();
        if worked.is_err() {
            self.let_land(&mut replies).await;
        }
        let surveyed = surveying.task.await.unwrap_or(Err(SurveyError::Cancelled));
        worked.and(surveyed)
    }

    /// After a failure of the lead's own files: begins no more, and waits for the requests in flight, so that no sink in
    /// this process ends in the middle of a write. What they did is not counted.
    async fn let_land(&mut self, replies: &mut mpsc::UnboundedReceiver<Reply>) {
        self.scheduler.drain();
        self.dispatch.drop_batches();
        let landed = async {
            while self.scheduler.flights() > 0
                && let Some(reply) = replies.recv().await
            {
                // The failure that is known already comes again.
                drop(self.answer(reply).await);
            }
        };
        drop(tokio::time::timeout(DRAIN_MAX, landed).await);
    }

    /// Works until all is done or the job stops.
    async fn work_through(
        &mut self,
        surveying: &mut Surveying,
        replies: &mut mpsc::UnboundedReceiver<Reply>,
        stop: &CancellationToken,
        lost: &mut AbortOnDropHandle<Lost>,
        state: Option<&StateDir>,
    ) -> Result<(), SurveyError> {
        let mut ticks = tokio::time::interval(PROGRESS_EVERY);
        loop {
            let idle = self.act_while_possible().await?;
            self.load_twins()?;
            if self.is_over(idle, surveying) && (self.stopping.is_some() || !self.begin_round_of_twins()?) {
                return Ok(());
            }
            let now_ms = self.clock.now_ms();
            let wake = Duration::from_millis(self.wake_ms(idle).saturating_sub(now_ms));
            let takes_more = !surveying.listed
                && self.stopping.is_none()
                && self.preparing < PREPARING_MAX
                && !self.outlook.is_looking()
                && self.scheduler.wants_more();
            tokio::select! {
                Some(reply) = replies.recv() => {
                    self.answer(reply).await?;
                    while let Ok(reply) = replies.try_recv() {
                        self.answer(reply).await?;
                    }
                }
                found = surveying.found.recv(), if takes_more => self.found(found, surveying).await?,
                Some(prepared) = self.prepared.1.recv() => self.prepared(prepared).await,
                Some(looked) = self.outdated.next() => self.looked(looked).await?,
                Ok(()) = self.rerouted.changed() => self.take_routes(),
                () = stop.cancelled(), if self.stopping.is_none() => {
                    self.stop(Outcome::Interrupted, None, None);
                }
                Ok(lost) = &mut *lost, if self.stopping.is_none() => {
                    self.stop(Outcome::Unavailable, Some(unreachable(&lost)), Some(UNREACHABLE_HINT));
                }
                _ = ticks.tick() => self.tick(state),
                () = tokio::time::sleep(wake) => {}
            }
            if self.stopping.is_some() {
                surveying.cancel.cancel();
                surveying.found.close();
            }
        }
    }

    async fn act_while_possible(&mut self) -> Result<Idle, SurveyError> {
        loop {
            match self.scheduler.poll(self.clock.now_ms()) {
                Ok(action) => self.act(action).await?,
                Err(idle) => {
                    self.cover_booked()?;
                    self.dispatch.flush();
                    return Ok(idle);
                }
            }
        }
    }

    fn is_over(&mut self, idle: Idle, surveying: &Surveying) -> bool {
        let now_ms = self.clock.now_ms();
        if let Some(stopping) = &self.stopping {
            return self.scheduler.flights() == 0 && self.outdated.is_idle() || now_ms >= stopping.deadline_ms;
        }
        match idle {
            Idle::Stalled => {
                let stall_s = self.setup.job.stall_s;
                let (message, hint) = match &self.unreachable {
                    Some(why) => (format!("nothing arrived for {stall_s} s: {why}"), Some(UNREACHABLE_HINT)),
                    None => (format!("no route has worked for {stall_s} s"), None),
                };
                self.stop(Outcome::Unavailable, Some(message), hint);
                true
            }
            // While the list goes on every object that it adds brings money with it.
            Idle::Ceiling if surveying.listed => {
                let (message, hint) = match self.scheduler.shares().lacks_bytes() {
                    true => (self.out_of_bytes(), OUT_OF_BYTES_HINT),
                    false => (ONLY_DEARER.to_owned(), "raise --max-cost, or wait for the cheaper routes and resume"),
                };
                self.stop(Outcome::Ceiling, Some(message), Some(hint));
                true
            }
            Idle::Empty => {
                surveying.listed && self.preparing == 0 && self.outdated.is_idle() && surveying.found.is_empty()
            }
            Idle::Waiting | Idle::Until(_) | Idle::Ceiling => false,
        }
    }

    /// Why a job under a ceiling of bytes ends.
    fn out_of_bytes(&self) -> String {
        let ceiling = self.setup.job.ceiling_bytes.unwrap_or_default();
        format!("--max-bytes allows {ceiling} bytes, which is not enough for the rest: bytes lost in transit count")
    }

    fn wake_ms(&self, idle: Idle) -> u64 {
        let now_ms = self.clock.now_ms();
        let of_idle = match idle {
            Idle::Until(at_ms) => at_ms.max(now_ms + 1),
            _ => now_ms + PROGRESS_EVERY.as_millis() as u64,
        };
        self.stopping.as_ref().map_or(of_idle, |stopping| of_idle.min(stopping.deadline_ms.max(now_ms + 1)))
    }

    /// Begins no more; what is in flight may still land.
    fn stop(&mut self, outcome: Outcome, message: Option<String>, hint: Option<&str>) {
        let deadline_ms = self.clock.now_ms() + DRAIN_MAX.as_millis() as u64;
        self.scheduler.drain();
        let hint = hint.map(str::to_owned);
        self.stopping.get_or_insert(Stopping { outcome, message, hint, closed: false, deadline_ms });
    }

    /// As [`Running::stop`], because the source, or every destination, is closed to us.
    fn stop_closed(&mut self) {
        let fresh = self.stopping.is_none();
        self.stop(Outcome::Failed, None, None);
        if let Some(stopping) = self.stopping.as_mut().filter(|_| fresh) {
            stopping.closed = true;
        }
    }

    async fn act(&mut self, action: Action) -> Result<(), SurveyError> {
        match action {
            Action::Send { request, route, work } => self.send(request, route, &work),
            Action::Finished(object) => self.finished(object).await?,
            Action::Failed(object, fault) => {
                if let Some(cargo) = self.cargo.remove(&object) {
                    self.tally.unacked(cargo.item.target, cargo.acked_bytes(), cargo.earlier_bytes);
                    self.ended_badly(cargo, fault).await;
                }
            }
            Action::Restart(object) => {
                if let Some(mut cargo) = self.cargo.remove(&object) {
                    self.tally.unacked(cargo.item.target, cargo.acked_bytes(), cargo.earlier_bytes);
                    self.tally.retried();
                    self.remember_orphans(&mut cargo);
                    self.load(cargo.item, true);
                }
            }
            Action::RouteDown(route) => {
                self.down.insert(route, (self.clock.now_ms(), false));
            }
            Action::RouteUp(route) => {
                if let Some((_, true)) = self.down.remove(&route) {
                    self.notice(format!("route {} is up again", self.tally.route_name(route)));
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, request: RequestId, route: RouteId, work: &Work) {
        self.drop_guesses(work);
        if let Work::Open(object) = work
            && let Some(cargo) = self.cargo.get_mut(object)
        {
            let intent = cargo.intend(status::now_unix_ms());
            let order = orders::order(request, route, work, &self.cargo, &self.setup);
            return self.dispatch.after_intent(self.journal.clone(), intent, request, order);
        }
        if let Work::Close(object) = work
            && let Some(cargo) = self.cargo.get_mut(object)
            && cargo.source_proof().is_err()
        {
            cargo.failed(Failure::mismatch("what was read is not what the source store states"));
            return self.scheduler.failed(request, Fault::Corrupt, self.clock.now_ms());
        }
        let order = orders::order(request, route, work, &self.cargo, &self.setup);
        self.dispatch.push(request, order);
    }

    /// Objects that were taken for new, and that are no longer, are written whatever is there. A guess that an order has
    /// named stays: nothing else refuses the write of that order if it comes late.
    fn drop_guesses(&mut self, work: &Work) {
        for object in work.objects() {
            if let Some(cargo) = self.cargo.get_mut(&object)
                && !self.outlook.is_free(cargo.item.target)
            {
                cargo.drop_guess();
            }
        }
    }

    /// Gives up requests that nobody has answered in time, whatever became of them.
    fn give_up_overdue(&mut self) {
        let now_ms = self.clock.now_ms();
        let limit_ms = u64::from(self.setup.request_s) * 1000;
        for request in self.scheduler.overdue(now_ms, limit_ms) {
            let work_ms = self.worked_on_bytes(request).saturating_mul(1000) / WORK_BYTES_PER_S_MIN;
            if work_ms > 0 && !self.scheduler.overdue(now_ms, limit_ms.saturating_add(work_ms)).contains(&request) {
                continue;
            }
            let message = format!("the request was not answered within {} s", self.setup.request_s);
            let failure = Failure::new(Fault::Unavailable, "unavailable", message);
            for object in self.scheduler.work(request).map(Work::objects).unwrap_or_default() {
                if let Some(cargo) = self.cargo.get_mut(&object) {
                    cargo.failed(failure.clone());
                }
            }
            self.scheduler.give_up(request, now_ms);
        }
    }

    /// Bytes on which a store works by itself to answer the request.
    fn worked_on_bytes(&self, request: RequestId) -> u64 {
        let size_bytes = |object: &ObjectId| self.cargo.get(object).map_or(0, |cargo| cargo.item.info.size_bytes);
        let is_copied = |object: &&ObjectId| self.cargo.get(object).is_some_and(|cargo| cargo.item.server_side);
        match self.scheduler.work(request) {
            Some(Work::Close(object)) => size_bytes(object),
            Some(Work::Part { object, bytes, .. }) if is_copied(&object) => *bytes,
            Some(Work::Bundle(objects)) => objects.iter().filter(is_copied).map(size_bytes).sum(),
            _ => 0,
        }
    }

    fn tick(&mut self, state: Option<&StateDir>) {
        self.tell_down();
        self.close_failing_targets();
        self.give_up_overdue();
        if let Some(spending) = &mut self.spending {
            spending.sync_behind();
        }
        let progress = self.progress();
        if let Some(state) = state
            && self.tally.ticks().is_multiple_of(STATUS_TICKS)
            && let Err(error) = status::write(state.path(), &status::running(progress.clone()))
        {
            tracing::warn!(%error, "cannot write the job's status");
        }
        self.setup.events.send(Event::Progress(progress));
    }

    fn progress(&mut self) -> tradewind_contract::Progress {
        self.tally.progress(self.scheduler.retries(), self.scheduler.shares())
    }

    fn notice(&self, message: String) {
        self.setup.events.send(Event::Notice { message });
    }
}

impl Surveying {
    fn cancel_unless_listed(&mut self) {
        if !self.listed {
            self.cancel.cancel();
        }
        self.found.close();
    }
}
