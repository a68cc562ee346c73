//! Gives work to the routes. The scheduler decides what is sent next and where; the dispatcher keeps the data that the
//! orders need of each object, sends the orders, and books their cost before they leave.

use super::context::Context;
use super::fences::Fences;
use super::limits::Limits;
use super::order_queue::{OrderQueue, RouteSource};
use super::orders::{Made, order};
use super::outlook::Outlook;
use super::recorder::Recorder;
use super::routes::{DownRoutes, Rerouted, route_plan};
use super::spending::Spending;
use super::transfer::ObjectTransfer;
use crate::lead::journal::{Journal, JournalError};
use crate::lead::status;
use crate::node::clock::Clock;
use crate::node::work::Failure;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tradewind_contract::{Progress, RouteSpec};
use tradewind_store::WORK_BYTES_PER_S_MIN;
use tradewind_wire::by_number::ByNumber;
use tradewind_wire::frame::Reply;
use tradewind_wire::scheduler::{Action, Config, Idle, Scheduler, Work};
use tradewind_wire::shares::{Before, RoutePlan};
use tradewind_wire::{Fault, ObjectId, RequestId, RouteId};

/// Maximum object bytes in one bundle.
const BUNDLE_BYTES_MAX: u64 = 4 << 20;
/// Maximum objects in one bundle between gateways, where each request costs a round trip.
const BUNDLE_OBJECTS_HOP: usize = 128;
/// Maximum objects in a bundle between gateways beyond its share of a short queue: a source and a sink work on so many at
/// the same time.
const GRAIN_OBJECTS_HOP: usize = 32;
/// Maximum objects in one bundle in local mode, where a round trip costs nothing and a finer grain keeps both stores
/// busy.
const BUNDLE_OBJECTS_MEMORY: usize = 16;

/// A silence of all routes is reported if it lasts for this long. Shorter ones are common at busy stores, and on a slow
/// link that must carry what another one has lost.
const SILENCE_REPORTED_MS: u64 = 30_000;

/// See the module's documentation.
pub(super) struct Dispatcher {
    pub(super) context: Arc<Context>,
    pub(super) scheduler: Scheduler,
    pub(super) transfers: ByNumber<Box<ObjectTransfer>>,
    next_object: u64,
    pub(super) orders: OrderQueue,
    pub(super) fences: Fences,
    /// `None` for a job without a folder.
    spending: Option<Spending>,
    pub(super) down: DownRoutes,
    /// Routes that stood still and were reported, each once.
    stalled: HashSet<RouteId>,
    /// For how many ticks in a row the silence of all routes has been too long. It is reported with the second one: after
    /// a freeze of this process, the first tick comes before the answers that have arrived meanwhile.
    silent_ticks: u32,
    /// A gateway's message about a store that it cannot reach, until something is done again.
    pub(super) unreachable: Option<String>,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
}

/// An object that the scheduler has finished with.
pub(super) enum Ended {
    /// It is done at its destination.
    Finished(Box<ObjectTransfer>),
    /// It used up its retries and failed with this fault.
    Failed(Box<ObjectTransfer>, Fault),
    /// It must be inspected and transferred again.
    Restart(Box<ObjectTransfer>),
}

impl Dispatcher {
    pub(super) fn new(
        context: Arc<Context>,
        routes: &[RouteSpec],
        sources: HashMap<RouteId, RouteSource>,
        replies: mpsc::UnboundedSender<Reply>,
    ) -> Self {
        let job = &context.job;
        let scheduler = Scheduler::new(Config {
            routes: routes.iter().map(|route| route_plan(route, job.chunk_bytes)).collect(),
            ceiling_usd_per_gb: job.ceiling_usd_per_gb,
            ceiling_usd: job.ceiling_usd,
            ceiling_bytes: job.ceiling_bytes,
            bundle_bytes_max: BUNDLE_BYTES_MAX.min(job.chunk_bytes),
            bundle_objects_max: if context.local { BUNDLE_OBJECTS_MEMORY } else { BUNDLE_OBJECTS_HOP },
            grain_objects_max: if context.local { 1 } else { GRAIN_OBJECTS_HOP },
            duplicate_fraction_max: job.duplicate_fraction_max,
            rate_limit_bytes_per_s: job.rate_limit_bytes_per_s,
            stall_ms: u64::from(job.stall_s) * 1000,
            first_request: 1,
        });
        Self {
            context,
            scheduler,
            transfers: ByNumber::default(),
            next_object: 1,
            orders: OrderQueue::new(sources, replies),
            fences: Fences::of(routes),
            spending: None,
            down: DownRoutes::of(routes),
            stalled: HashSet::new(),
            silent_ticks: 0,
            unreachable: None,
            clock: Clock::start(),
            limits: Limits::default(),
        }
    }

    /// Books costs in `spending`, which includes those of earlier runs.
    pub(super) fn book_in(&mut self, spending: Spending) {
        self.spending = Some(spending);
    }

    pub(super) fn carried_before(&mut self, before: Before) {
        self.scheduler.carried_before(before);
    }

    /// Accepts an object.
    pub(super) fn add(&mut self, transfer: Box<ObjectTransfer>) {
        let id = ObjectId(self.next_object);
        self.next_object += 1;
        self.scheduler.add(id, transfer.new_object());
        self.transfers.insert(id, transfer);
    }

    /// Makes orders until the scheduler finishes with an object, or has nothing more to do now.
    pub(super) fn next(&mut self, recorder: &Recorder, outlook: &Outlook) -> Result<Ended, Idle> {
        loop {
            match self.scheduler.poll(self.clock.now_ms())? {
                Action::Send { request, route, work } => {
                    self.send(request, route, &work, &recorder.journal, outlook);
                }
                Action::Finished(object) => {
                    if let Some(transfer) = self.transfers.remove(object) {
                        return Ok(Ended::Finished(transfer));
                    }
                }
                Action::Failed(object, fault) => {
                    if let Some(transfer) = self.transfers.remove(object) {
                        return Ok(Ended::Failed(transfer, fault));
                    }
                }
                Action::Restart(object) => {
                    if let Some(transfer) = self.transfers.remove(object) {
                        return Ok(Ended::Restart(transfer));
                    }
                }
                Action::RouteStalled(route) => {
                    if self.stalled.insert(route) {
                        let name = recorder.tally.route_name(route);
                        self.context.notice(format!("route {name} stands still; other routes also send what it holds"));
                    }
                }
                Action::RouteDown(route) => self.down.went_down(route, self.clock.now_ms()),
                Action::RouteUp(route) => {
                    if self.down.is_up(route) {
                        self.context.notice(format!("route {} is up again", recorder.tally.route_name(route)));
                    }
                }
            }
        }
    }

    fn send(&mut self, request: RequestId, route: RouteId, work: &Work, journal: &Journal, outlook: &Outlook) {
        let is_duplicate = self.scheduler.is_duplicated(request);
        if is_duplicate {
            self.expect_two_writes(work);
        }
        self.drop_guesses(work, outlook);
        let is_first_attempt = self.scheduler.is_first_attempt(request);
        if let Work::Open(object) = work
            && let Some(transfer) = self.transfers.get_mut(*object)
            && !is_duplicate
        {
            let intent = transfer.intend(status::now_unix_ms());
            let order = order(request, route, work, is_first_attempt, &self.transfers, &self.context);
            let order = order.map(Made::into_order);
            return self.orders.after_intent(journal.clone(), intent, request, order);
        }
        if let Work::Close(object) = work
            && let Some(transfer) = self.transfers.get_mut(*object)
            && transfer.source_proof().is_err()
        {
            transfer.failed(Failure::mismatch("the bytes read do not match the checksum of the source store"));
            return self.scheduler.failed(request, Fault::Corrupt, self.clock.now_ms());
        }
        let order = order(request, route, work, is_first_attempt, &self.transfers, &self.context);
        self.orders.push(request, order);
    }

    /// Notes that two requests do the same work: the slower one may write after the other is proven, or open another
    /// upload. The intent of the first one is in the journal already.
    fn expect_two_writes(&mut self, work: &Work) {
        for object in work.objects() {
            let Some(transfer) = self.transfers.get_mut(object) else { continue };
            match work {
                Work::Bundle(_) | Work::Close(_) => transfer.item.may_land_late = true,
                Work::Open(_) => transfer.may_have_orphans(),
                Work::Part { .. } | Work::Abort(_) => {}
            }
        }
    }

    /// Makes the writes of objects that were assumed to be new, but no longer are, unconditional. A guess that an order
    /// has already used stays: if that order's write comes late, only the guess can refuse it.
    fn drop_guesses(&mut self, work: &Work, outlook: &Outlook) {
        for object in work.objects() {
            if let Some(transfer) = self.transfers.get_mut(object)
                && !outlook.is_free(transfer.item.target)
            {
                transfer.drop_guess();
            }
        }
    }

    /// Sends the pending orders once their cost is recorded.
    pub(super) fn flush(&mut self) -> Result<(), JournalError> {
        self.cover_booked()?;
        self.orders.flush();
        Ok(())
    }

    pub(super) fn cover_booked(&mut self) -> Result<(), JournalError> {
        let has_ceiling = self.context.job.ceiling_bytes.is_some();
        self.spending.as_mut().map_or(Ok(()), |spending| spending.cover(self.scheduler.shares(), has_ceiling))
    }

    /// Starts to sync the recorded spending in the background.
    pub(super) fn sync_spending_behind(&mut self) {
        if let Some(spending) = &mut self.spending {
            spending.sync_behind();
        }
    }

    /// Writes the spending to disk and syncs it. An error is one line.
    pub(super) fn finish_spending(&mut self) -> Result<(), String> {
        self.cover_booked().map_err(|error| error.to_string())?;
        self.spending.as_ref().map_or(Ok(()), |spending| spending.sync().map_err(|error| error.to_string()))
    }

    /// Begins no new requests; those in flight may still complete.
    pub(super) fn drain(&mut self) {
        self.scheduler.drain();
    }

    /// Answers the orders that have not been sent, instead of sending them.
    pub(super) fn drop_unsent(&mut self) {
        self.orders.drop_batches();
    }

    /// Switches to the routes of `change`, and to its limits.
    pub(super) fn reroute(&mut self, change: Rerouted) {
        let chunk_bytes = self.context.job.chunk_bytes;
        let plans: Vec<RoutePlan> = change.routes.iter().map(|route| route_plan(route, chunk_bytes)).collect();
        self.orders.know(change.sources);
        self.fences.know(&change.routes);
        self.scheduler.change_routes(&plans, change.ceiling_usd_per_gb, change.rate_limit_bytes_per_s);
        self.down.keep(&change.routes);
    }

    /// Reports routes that stay down.
    pub(super) fn report_down(&mut self, recorder: &Recorder) {
        // If the stores are in this process, they report themselves that they are unreachable.
        if self.unreachable.is_some() && self.context.local {
            return;
        }
        for route in self.down.take_unreported(self.clock.now_ms()) {
            let name = recorder.tally.route_name(route);
            self.context.notice(match (&self.unreachable, self.down.damage(route)) {
                (Some(why), _) => format!("route {name} cannot be used: {why}; retrying"),
                (None, Some(why)) => format!("route {name} is down: {why}"),
                (None, None) => format!("route {name} is down"),
            });
        }
    }

    /// Reports when no route answers, for example because the disk of the only destination hangs, and when one does
    /// again. What a store is known to work on by itself may take long, and is not reported.
    pub(super) fn report_silence(&mut self) {
        let now_ms = self.clock.now_ms();
        let waited_ms =
            self.scheduler.shares().silence_ms(now_ms).filter(|waited_ms| *waited_ms >= SILENCE_REPORTED_MS);
        let Some(waited_ms) = waited_ms else {
            if std::mem::take(&mut self.silent_ticks) > 1 {
                self.context.notice("answers arrive again".to_owned());
            }
            return;
        };
        let is_explained = self.unreachable.is_some() || self.is_worked_on();
        if self.silent_ticks > 1 || !is_explained {
            self.silent_ticks = self.silent_ticks.saturating_add(1);
        }
        if self.silent_ticks == 2 {
            let waited_s = waited_ms / 1000;
            self.context.notice(format!(
                "nothing was acknowledged for {waited_s} s: a disk, a store or a link hangs; the job continues when it answers"
            ));
        }
    }

    /// Returns whether a store must process bytes by itself to answer a request in flight.
    fn is_worked_on(&self) -> bool {
        self.scheduler.in_flight().any(|request| self.worked_on_bytes(request) > 0)
    }

    /// Abandons requests that were not answered in time; their writes may still have succeeded.
    pub(super) fn give_up_overdue(&mut self) {
        let now_ms = self.clock.now_ms();
        let limit_ms = u64::from(self.context.request_s) * 1000;
        for request in self.scheduler.overdue(now_ms, limit_ms) {
            let work_ms = self.worked_on_bytes(request).saturating_mul(1000) / WORK_BYTES_PER_S_MIN;
            if work_ms > 0 && !self.scheduler.overdue(now_ms, limit_ms.saturating_add(work_ms)).contains(&request) {
                continue;
            }
            let message = format!("the request was not answered within {} s", self.context.request_s);
            let failure = Failure::new(Fault::Unavailable, "unavailable", message);
            for object in self.scheduler.work(request).map(Work::objects).unwrap_or_default() {
                if self.scheduler.is_last(request, object)
                    && let Some(transfer) = self.transfers.get_mut(object)
                {
                    transfer.failed(failure.clone());
                }
            }
            self.lost(request);
            self.scheduler.give_up(request, now_ms);
        }
    }

    /// Returns how many bytes a store must process by itself to answer the request.
    fn worked_on_bytes(&self, request: RequestId) -> u64 {
        let size_bytes =
            |object: &ObjectId| self.transfers.get(*object).map_or(0, |transfer| transfer.item.info.size_bytes);
        let is_copied =
            |object: &&ObjectId| self.transfers.get(**object).is_some_and(|transfer| transfer.item.server_side);
        match self.scheduler.work(request) {
            Some(Work::Close(object)) => size_bytes(object),
            Some(Work::Part { object, bytes, .. }) if is_copied(&object) => *bytes,
            Some(Work::Bundle(objects)) => objects.iter().filter(is_copied).map(size_bytes).sum(),
            _ => 0,
        }
    }

    /// Progress for an event, with the recent rate.
    pub(super) fn progress(&self, recorder: &mut Recorder) -> Progress {
        let progress = recorder.tally.progress(self.scheduler.retries(), self.scheduler.shares());
        let in_flight = progress.hops.iter().map(|route| route.requests_in_flight).sum();
        Progress { limits: self.limits.now(in_flight, Instant::now()), ..progress }
    }

    /// Progress for the summary, with the mean rate.
    pub(super) fn totals(&self, recorder: &Recorder) -> Progress {
        recorder.tally.totals(self.scheduler.retries(), self.scheduler.shares())
    }
}
