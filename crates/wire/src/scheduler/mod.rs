//! The scheduler's bookkeeping: what to send where, what to retry, when an object is finished or failed.
//!
//! An object is either **whole** (one write, many to a bundle) or in **parts** (open, parts in any order, close). The
//! scheduler learns of objects with [`Scheduler::add`] and of replies with [`Scheduler::done`] and [`Scheduler::fault`].
//! [`Scheduler::poll`] returns the next [`Action`] until there is nothing more to do now. It holds sizes and ids only;
//! the caller keeps keys, tags and messages.
//!
//! A reply names each object of its request with one `done` or `fault`, then `answered` ends the request. Replies come
//! from other machines, so the scheduler does not trust them: it ignores an object that is named twice or was not in
//! the request, and counts an object that the reply left out as not done.
//!
//! If a route stands still, its requests may also be sent over another route ([`duplicates`](self::duplicates)). The
//! first answer that the work is done counts. A failure counts only if no other request in flight may still do the work.

mod answers;
mod duplicates;
mod object;
mod phases;
mod ready;
#[cfg(test)]
mod route_tests;
mod send;
#[cfg(test)]
mod tests;
mod work;

pub use object::{Layout, NewObject};
pub use work::{Action, Config, Idle, Work};

use crate::by_number::ByNumber;
use crate::shares::{Before, RoutePlan, Shares};
use crate::{Fault, ObjectId, RequestId, RouteId};
use duplicates::Rescue;
use ready::{Ready, Tries};
use send::Obstacles;
use std::collections::{HashMap, VecDeque};

/// Most attempts at one piece of work (a part, a whole object, an open or a close) that end in [`Fault::Unavailable`]
/// or [`Fault::Corrupt`]; after them its object fails.
pub const TRIES_MAX: u32 = 4;
/// Most attempts at one piece of work that are lost; after them its object fails.
pub const LOSSES_MAX: u32 = 64;
/// Most answered attempts to abort an upload; after them the upload is left to the cleanup by `jobs cancel`.
pub const ABORT_TRIES_MAX: u32 = 3;
/// Most objects in parts that may be open at once.
pub const OPEN_OBJECTS_MAX: usize = 64;
/// A further object is opened while fewer than this many open ones have parts to send.
pub const SENDING_OBJECTS_MIN: usize = 3;
/// A request that waits behind others of its route is not overdue before they could have passed at this rate.
pub const SLOWEST_BYTES_PER_S: u64 = 64 << 10;
/// Time for a route that went down to come back before the job stalls, however long nothing had moved before.
pub const REPAIR_MS: u64 = 5_000;
/// Longest time until a dead gateway is noticed. A gateway that was silent for longer was at work, so its silence is
/// not a stall.
pub const DEATH_NOTICED_MS: u64 = 60_000;
/// Most objects that the scheduler holds at once; [`Scheduler::wants_more`] is false beyond.
pub const OBJECTS_MAX: usize = 20_000;
/// Most whole objects that wait for a route, in bundles of the most objects: more would only use memory. A bundle takes a
/// sixteenth of those that wait, so fewer would make bundles smaller.
pub const BUNDLES_WAITING_MAX: usize = 32;

#[derive(Debug)]
struct Object {
    new: NewObject,
    phase: Phase,
    /// Requests in flight that serve it.
    flights: usize,
    /// The bundle it is in, while in flight, and a second one that it is in as well.
    bundle: Option<RequestId>,
    second_bundle: Option<RequestId>,
    counted_open: bool,
    /// Bytes that a route still has to carry.
    owed_bytes: u64,
    /// Attempts at a whole object; parts and control requests carry their own counts.
    tries: Tries,
    /// Routes that refused the object, in ascending order.
    refused_by: Vec<RouteId>,
}

#[derive(Debug)]
enum Phase {
    Whole,
    Opening,
    Sending {
        next_part: u32,
        missing: u32,
    },
    Closing,
    /// Waits for its requests in flight, then aborts its upload if `opened`, then ends.
    Ending {
        end: End,
        opened: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum End {
    Restart,
    Failed(Fault),
}

#[derive(Debug)]
struct Flight {
    route: RouteId,
    bytes: u64,
    /// The bytes of `bytes` that are paid for.
    paid_bytes: u64,
    sent_ms: u64,
    /// Bytes in flight on its route when it was sent, including its own.
    queued_bytes: u64,
    work: Work,
    tries: Tries,
    /// True if the object of a single-object request has been reported on.
    reported: bool,
    /// True if some of its work must be sent again.
    again: bool,
    /// Objects for which its answer counts.
    awaited: usize,
    /// True if another request has done all its work.
    superseded: bool,
    /// The other request in flight with the same work.
    twin: Option<RequestId>,
    /// Number of its duplicates that were sent.
    duplicates: u8,
    /// Bytes of `bytes` that a twin carries as well, or has carried.
    surplus_bytes: u64,
}

/// The scheduler; see the module documentation.
#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    shares: Shares,
    objects: ByNumber<Object>,
    flights: HashMap<RequestId, Flight>,
    ready: Ready,
    out: VecDeque<Action>,
    next_request: u64,
    paced_until_ms: f64,
    /// Time of the latest answer, or the latest time at which no answer was pending.
    moved_ms: u64,
    stuck_since_ms: Option<u64>,
    /// Time at which a piece of work was last completed.
    done_ms: Option<u64>,
    /// True if the latest fault was an unreachable store.
    is_out_of_reach: bool,
    retries: u64,
    /// Routes whose latest requests were lost; all of these losses count as one retry.
    losing: Vec<RouteId>,
    open_count: usize,
    draining: bool,
    /// Requests in flight whose answers count for nothing but their routes.
    superseded: usize,
    rescue: Rescue,
}

impl Scheduler {
    /// Returns a scheduler without work.
    pub fn new(config: Config) -> Self {
        Self {
            shares: Shares::new(&config.routes, config.ceiling_usd_per_gb)
                .within(config.ceiling_usd)
                .within_bytes(config.ceiling_bytes)
                .with_duplicates(config.duplicate_fraction_max),
            next_request: config.first_request,
            config,
            objects: ByNumber::default(),
            flights: HashMap::new(),
            ready: Ready::default(),
            out: VecDeque::new(),
            paced_until_ms: 0.0,
            moved_ms: 0,
            stuck_since_ms: None,
            done_ms: None,
            is_out_of_reach: false,
            retries: 0,
            losing: Vec::new(),
            open_count: 0,
            draining: false,
            superseded: 0,
            rescue: Rescue::default(),
        }
    }

    /// Adds the sums of earlier runs of the job, because ceilings cover all runs. Call it before the first
    /// [`Scheduler::add`].
    pub fn carried_before(&mut self, before: Before) {
        self.shares.carried_before(before);
    }

    /// Replaces the routes, and with them the price ceiling and the rate limit; see [`Shares::change`]. Work that a
    /// route refused may be tried on it again.
    pub fn change_routes(
        &mut self,
        routes: &[RoutePlan],
        ceiling_usd_per_gb: Option<f64>,
        rate_limit_bytes_per_s: Option<u64>,
    ) {
        self.config.rate_limit_bytes_per_s = rate_limit_bytes_per_s;
        self.shares.change(routes, ceiling_usd_per_gb);
        self.ready.join_lanes();
        for object in self.objects.values_mut() {
            object.refused_by.clear();
        }
    }

    /// Returns whether another object may be added. The caller stops reading its list while this is false.
    pub fn wants_more(&self) -> bool {
        !self.draining && self.objects.len() < OBJECTS_MAX && self.ready.waiting() < self.waiting_max()
    }

    /// Most whole objects that wait. Under a ceiling, the bytes of all objects that are listed decide what may be spent, so
    /// none are held back.
    fn waiting_max(&self) -> usize {
        match self.shares.has_ceiling() {
            true => OBJECTS_MAX,
            false => self.config.bundle_objects_max.saturating_mul(BUNDLES_WAITING_MAX),
        }
    }

    /// Adds an object. The scheduler must not hold an object of this id already.
    pub fn add(&mut self, id: ObjectId, mut new: NewObject) {
        debug_assert!(self.objects.get(id).is_none(), "{id:?} is held already");
        new.tidy();
        let owed_bytes = new.bytes_to_carry();
        self.shares.listed(owed_bytes);
        let opened = matches!(new.layout, Layout::Parts { opened: true, .. });
        let phase = match &new.layout {
            Layout::Whole => {
                self.ready.lane(&[], new.travels).whole.push_back(id);
                Phase::Whole
            }
            Layout::Parts { opened, .. } => {
                if !opened {
                    self.ready.to_open.push_back(id);
                }
                Phase::Opening
            }
        };
        self.objects.insert(
            id,
            Object {
                new,
                phase,
                flights: 0,
                bundle: None,
                second_bundle: None,
                counted_open: false,
                owed_bytes,
                tries: Tries::default(),
                refused_by: Vec::new(),
            },
        );
        if opened {
            self.count_open(id);
            self.begin_parts(id);
        }
    }

    /// Begins nothing from now on: no new part, bundle or upload. Still waits for requests in flight, closes uploads
    /// that have all their parts, and aborts those of ended objects (checkpoint, Ctrl-C).
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Returns the id for a request that the caller sends itself. It is higher than those of all requests before.
    pub fn next_request(&mut self) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        request
    }

    /// Returns the number of requests in flight.
    pub fn flights(&self) -> usize {
        self.flights.len()
    }

    /// Returns the number of requests in flight whose answers count. The others repeat work that is done.
    pub fn awaited_flights(&self) -> usize {
        self.flights.len() - self.superseded
    }

    /// Returns the number of retries so far. All requests that a route loses until it answers again (for example those
    /// on one broken connection) count once.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Returns the shares and costs of the routes.
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Returns the requests in flight.
    pub fn in_flight(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.flights.keys().copied()
    }

    /// Returns what the request does, if it is in flight.
    pub fn work(&self, request: RequestId) -> Option<&Work> {
        self.flights.get(&request).map(|flight| &flight.work)
    }

    /// Returns whether no attempt at any part of a request in flight has failed before.
    pub fn is_first_attempt(&self, request: RequestId) -> bool {
        let is_untried = |object: &ObjectId| self.objects.get(*object).is_some_and(|object| object.tries.is_none());
        self.flights.get(&request).is_some_and(|flight| match &flight.work {
            Work::Bundle(objects) => objects.iter().all(is_untried),
            _ => flight.tries.is_none(),
        })
    }

    /// Returns the route of a request in flight.
    pub fn route_of(&self, request: RequestId) -> Option<RouteId> {
        self.flights.get(&request).map(|flight| flight.route)
    }

    /// Returns the next action, or why there is none.
    pub fn poll(&mut self, now_ms: u64) -> Result<Action, Idle> {
        if let Some(action) = self.out.pop_front() {
            return Ok(action);
        }
        let mut obstacles = Obstacles::default();
        self.next_send(now_ms, &mut obstacles).ok_or_else(|| self.idle(&obstacles, now_ms))
    }
}
