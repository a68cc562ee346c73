//! The lead's bookkeeping: what to send where, what to try again, when an object is finished or failed.
//!
//! An object is either **whole** (one write, many to a bundle) or in **parts** (open, parts in any order, close). The
//! lead is told of objects with [`Lead::add`] and of replies with [`Lead::done`] and [`Lead::fault`]; [`Lead::poll`]
//! returns the next [`Action`] until there is nothing more to do now. It holds sizes and ids; keys, tags and words stay
//! with the caller.

use crate::shares::{Blocked, RoutePlan, Shares};
use crate::{Fault, ObjectId, RequestId, RouteId};
use std::collections::{HashMap, VecDeque};

/// Tries of one object that end in [`Fault::Unavailable`] or [`Fault::Corrupt`] before it fails.
pub const TRIES_MAX: u32 = 4;
/// Losses of one object's requests in a row, with nothing acked between, before it fails.
pub const LOSSES_MAX: u32 = 64;
/// Tries to abort an upload; then it is left to the sweep of `jobs cancel`.
pub const ABORT_TRIES_MAX: u32 = 3;
/// Objects in parts that may be open at once.
pub const OPEN_OBJECTS_MAX: usize = 64;
/// A further object is opened while fewer than this many open ones have parts to send.
pub const SENDING_OBJECTS_MIN: usize = 3;
/// Objects the lead holds at once; [`Lead::wants_more`] is false beyond.
pub const OBJECTS_MAX: usize = 20_000;

/// How the lead is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The plan's routes.
    pub routes: Vec<RoutePlan>,
    /// See [`Shares::new`].
    pub ceiling_usd_per_gb: Option<f64>,
    /// Most object bytes in a bundle (one larger object goes alone).
    pub bundle_bytes_max: u64,
    /// Most objects in a bundle.
    pub bundle_objects_max: usize,
    /// Bytes per second to send, over all routes.
    pub rate_limit_bytes_per_s: Option<u64>,
    /// Give up when no route has been up for so long.
    pub stall_ms: u64,
    /// First request id.
    pub first_request: u64,
}

/// A new object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewObject {
    /// Length.
    pub bytes: u64,
    /// How it is cut.
    pub layout: Layout,
    /// Whether it may start again when the source changed under way.
    pub may_restart: bool,
    /// Bytes of it that travel: false for server-side copies, which pass no route's window or price.
    pub travels: bool,
}

/// How an object is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In one write.
    Whole,
    /// In parts of equal size but the last.
    Parts {
        /// Size of a part.
        part_bytes: u64,
        /// The upload is open already (resume).
        opened: bool,
        /// Parts (from 1) that are there already (resume).
        done: Vec<u32>,
    },
}

/// What a request does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Open a multipart upload.
    Open(ObjectId),
    /// Move one part.
    Part {
        /// Of this object.
        object: ObjectId,
        /// From 1.
        part: u32,
        /// Where it lies.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
    /// Move whole objects.
    Bundle(Vec<ObjectId>),
    /// Make the parts the object, and prove it.
    Close(ObjectId),
    /// Forget the upload.
    Abort(ObjectId),
}

/// What the caller must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this request.
    Send {
        /// Fresh id.
        request: RequestId,
        /// The way.
        route: RouteId,
        /// What.
        work: Work,
    },
    /// The object is done and proven; the lead has forgotten it.
    Finished(ObjectId),
    /// The object changed or its upload vanished: look at it again and [`Lead::add`] it anew. The lead has forgotten it.
    Restart(ObjectId),
    /// The object failed for the last fault given; the lead has forgotten it.
    Failed(ObjectId, Fault),
    /// A route went down.
    RouteDown(RouteId),
    /// A route came back.
    RouteUp(RouteId),
}

/// Why [`Lead::poll`] returned nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Nothing is left to do.
    Empty,
    /// Waiting for replies (or for more objects).
    Waiting,
    /// Nothing can be sent before this time.
    Until(u64),
    /// No route has been up for too long; give up.
    Stalled,
    /// Only routes that the cost ceiling forbids are left, and nothing is in flight.
    Ceiling,
}

#[derive(Debug)]
struct Object {
    new: NewObject,
    phase: Phase,
    flights: usize,
    counted_open: bool,
    tries: u32,
    losses: u32,
    refused_by: Vec<RouteId>,
}

#[derive(Debug)]
enum Phase {
    Whole,
    Opening,
    Sending { next_part: u32, missing: u32 },
    Closing,
    /// Waits for its requests in flight, then aborts its upload if `opened`, then ends.
    Ending { end: End, opened: bool, abort_tries: u32 },
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
    work: Work,
}

/// See the module's head.
#[derive(Debug)]
pub struct Lead {
    config: Config,
    shares: Shares,
    objects: HashMap<ObjectId, Object>,
    flights: HashMap<RequestId, Flight>,
    ready: Ready,
    out: VecDeque<Action>,
    next_request: u64,
    paced_until_ms: f64,
    retries: u64,
    open_count: usize,
    draining: bool,
}

/// Work that can be sent now, most urgent first.
#[derive(Debug, Default)]
struct Ready {
    control: VecDeque<Work>,
    parts_again: VecDeque<(ObjectId, u32)>,
    to_open: VecDeque<ObjectId>,
    sending: VecDeque<ObjectId>,
    whole: VecDeque<ObjectId>,
    whole_turn: bool,
}

impl Lead {
    /// A lead with nothing to do yet.
    pub fn new(config: Config) -> Self {
        Self {
            shares: Shares::new(&config.routes, config.ceiling_usd_per_gb),
            next_request: config.first_request,
            config,
            objects: HashMap::new(),
            flights: HashMap::new(),
            ready: Ready::default(),
            out: VecDeque::new(),
            paced_until_ms: 0.0,
            retries: 0,
            open_count: 0,
            draining: false,
        }
    }

    /// Whether another object may be added. The caller stops reading its list while this is false.
    pub fn wants_more(&self) -> bool {
        !self.draining && self.objects.len() < OBJECTS_MAX
    }

    /// Takes an object on. `id` must be fresh.
    pub fn add(&mut self, id: ObjectId, new: NewObject) {
        let phase = match &new.layout {
            Layout::Whole => {
                self.ready.whole.push_back(id);
                Phase::Whole
            }
            Layout::Parts { opened: false, .. } => {
                self.ready.to_open.push_back(id);
                Phase::Opening
            }
            Layout::Parts { opened: true, .. } => Phase::Opening,
        };
        let opened = matches!(new.layout, Layout::Parts { opened: true, .. });
        self.objects.insert(id, Object { new, phase, flights: 0, counted_open: false, tries: 0, losses: 0, refused_by: Vec::new() });
        if opened {
            self.count_open(id);
            self.begin_parts(id);
        }
    }

    /// No new request is made from now on but aborts; those in flight are waited for (checkpoint, Ctrl-C).
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Requests in flight.
    pub fn flights(&self) -> usize {
        self.flights.len()
    }

    /// Requests given again so far.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Routes and money.
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// What the request was, if it is in flight.
    pub fn work(&self, request: RequestId) -> Option<&Work> {
        self.flights.get(&request).map(|flight| &flight.work)
    }

    /// The route of a request in flight.
    pub fn route_of(&self, request: RequestId) -> Option<RouteId> {
        self.flights.get(&request).map(|flight| flight.route)
    }

    /// `object`'s share of `request` was done (durable, opened, closed and proven, or aborted). Call once per object of
    /// a bundle; then [`Lead::answered`]. A reply to a request that is no longer in flight is ignored.
    pub fn done(&mut self, request: RequestId, object: ObjectId) {
        let Some(flight) = self.flights.get(&request) else { return };
        let work = flight.work.kind();
        let Some(state) = self.objects.get_mut(&object) else { return };
        state.flights -= 1;
        state.losses = 0;
        match (&mut state.phase, work) {
            (Phase::Ending { opened, .. }, WorkKind::Abort) => {
                *opened = false;
                self.settle(object);
            }
            (Phase::Ending { opened, .. }, kind) => {
                // Its end was decided while this was under way; an upload opened meanwhile must be aborted, too.
                *opened = (*opened || kind == WorkKind::Open) && kind != WorkKind::Close;
                self.settle(object);
            }
            (_, WorkKind::Open) => self.begin_parts(object),
            (Phase::Sending { missing, .. }, WorkKind::Part) => {
                *missing -= 1;
                if *missing == 0 {
                    self.begin_close(object);
                }
            }
            (_, WorkKind::Bundle | WorkKind::Close) => {
                self.forget(object);
                self.out.push_back(Action::Finished(object));
            }
            (_, WorkKind::Part | WorkKind::Abort) => {}
        }
    }

    /// `object`'s share of `request` was not done. Call once per object of a bundle; then [`Lead::answered`].
    pub fn fault(&mut self, request: RequestId, object: ObjectId, fault: Fault) {
        let Some(flight) = self.flights.get(&request) else { return };
        let (route, kind) = (flight.route, flight.work.kind());
        let part = match flight.work {
            Work::Part { part, .. } => Some(part),
            _ => None,
        };
        let Some(state) = self.objects.get_mut(&object) else { return };
        state.flights -= 1;
        if let Phase::Ending { opened, abort_tries, .. } = &mut state.phase {
            if kind == WorkKind::Abort {
                *abort_tries += 1;
                *opened = *opened && *abort_tries < ABORT_TRIES_MAX;
            }
            return self.settle(object);
        }
        match self.verdict(object, kind, route, fault) {
            Next::Again => {
                self.retries += 1;
                self.again(object, kind, part);
            }
            Next::End(end) => self.begin_end(object, end),
        }
    }

    /// All objects of the request have been reported on: it is no longer in flight.
    pub fn answered(&mut self, request: RequestId, fault: Option<Fault>, now_ms: u64) {
        let Some(flight) = self.flights.remove(&request) else { return };
        match fault {
            None | Some(Fault::Permanent | Fault::Changed | Fault::UploadGone) => {
                if self.shares.done(flight.route, flight.bytes) {
                    self.out.push_back(Action::RouteUp(flight.route));
                }
            }
            Some(Fault::Lost | Fault::RouteDown) => {
                self.shares.undone(flight.route, flight.bytes);
                if self.shares.rest(flight.route, now_ms) {
                    self.out.push_back(Action::RouteDown(flight.route));
                }
            }
            Some(Fault::Unavailable | Fault::Corrupt | Fault::Refused) => self.shares.undone(flight.route, flight.bytes),
        }
    }

    /// A whole request came back undone: every object of it has the same fault.
    pub fn failed(&mut self, request: RequestId, fault: Fault, now_ms: u64) {
        let Some(flight) = self.flights.get(&request) else { return };
        for object in flight.work.objects() {
            self.fault(request, object, fault);
        }
        self.answered(request, Some(fault), now_ms);
    }

    /// The next thing to do, or why there is none.
    pub fn poll(&mut self, now_ms: u64) -> Result<Action, Idle> {
        if let Some(action) = self.out.pop_front() {
            return Ok(action);
        }
        if self.shares.all_down_since_ms().is_some_and(|since| now_ms.saturating_sub(since) >= self.config.stall_ms) {
            return Err(if self.objects.is_empty() { Idle::Empty } else { Idle::Stalled });
        }
        match self.next_send(now_ms) {
            Some(Ok(action)) => Ok(action),
            Some(Err(blocked)) => Err(self.idle(blocked, now_ms)),
            None if self.flights.is_empty() && (self.draining || self.objects.is_empty()) => Err(Idle::Empty),
            None => Err(Idle::Waiting),
        }
    }

    fn idle(&self, blocked: Blocked, now_ms: u64) -> Idle {
        match blocked {
            Blocked::Full if self.paced_until_ms > now_ms as f64 => Idle::Until(self.paced_until_ms.ceil() as u64),
            Blocked::Full => Idle::Waiting,
            Blocked::Ceiling if self.flights.is_empty() && self.shares.next_retry_ms().is_none() => Idle::Ceiling,
            Blocked::Ceiling | Blocked::Down => {
                let stalled = self.shares.all_down_since_ms().map(|since| since + self.config.stall_ms);
                let next = [self.shares.next_retry_ms(), stalled].into_iter().flatten().filter(|at| *at > now_ms).min();
                next.map_or(Idle::Waiting, Idle::Until)
            }
        }
    }

    fn next_send(&mut self, now_ms: u64) -> Option<Result<Action, Blocked>> {
        while let Some(work) = self.ready.control.front() {
            if !self.objects.contains_key(&work.objects()[0]) {
                self.ready.control.pop_front();
                continue;
            }
            if self.draining && matches!(work, Work::Open(_)) {
                self.ready.control.pop_front();
                continue;
            }
            let (work, avoid) = (work.clone(), self.avoid(work.objects()[0]));
            return Some(self.send(work, 0, &avoid, now_ms).inspect(|_| {
                self.ready.control.pop_front();
            }));
        }
        if self.draining {
            return None;
        }
        self.skip_stale();
        self.promote_opens();
        self.ready.whole_turn = !self.ready.whole_turn;
        let whole_first = self.ready.whole_turn;
        let mut blocked = None;
        for whole in [whole_first, !whole_first] {
            let sent = if whole { self.send_bundle(now_ms) } else { self.send_part(now_ms) };
            match sent {
                Some(Ok(action)) => return Some(Ok(action)),
                Some(Err(why)) => blocked = Some(why),
                None => {}
            }
        }
        blocked.map(Err)
    }

    /// Drops queue heads whose object has ended meanwhile.
    fn skip_stale(&mut self) {
        let objects = &self.objects;
        let alive = |id: &ObjectId| objects.get(id).is_some_and(|object| !matches!(object.phase, Phase::Ending { .. }));
        while self.ready.parts_again.front().is_some_and(|(id, _)| !alive(id)) {
            self.ready.parts_again.pop_front();
        }
        for queue in [&mut self.ready.to_open, &mut self.ready.sending, &mut self.ready.whole] {
            while queue.front().is_some_and(|id| !alive(id)) {
                queue.pop_front();
            }
        }
    }

    /// Opens come one by one, so that no more uploads are open than [`OPEN_OBJECTS_MAX`].
    fn promote_opens(&mut self) {
        if self.open_count < OPEN_OBJECTS_MAX
            && self.ready.sending.len() < SENDING_OBJECTS_MIN
            && let Some(object) = self.ready.to_open.pop_front()
        {
            self.count_open(object);
            self.ready.control.push_back(Work::Open(object));
        }
    }

    fn send_part(&mut self, now_ms: u64) -> Option<Result<Action, Blocked>> {
        if let Some(&(object, part)) = self.ready.parts_again.front() {
            let sent = self.send_one_part(object, part, now_ms);
            if sent.is_ok() {
                self.ready.parts_again.pop_front();
            }
            return Some(sent);
        }
        let object = *self.ready.sending.front()?;
        let Some(part) = self.next_unsent_part(object) else {
            self.ready.sending.pop_front();
            return self.send_part(now_ms);
        };
        let sent = self.send_one_part(object, part, now_ms);
        if sent.is_ok()
            && let Some(Object { phase: Phase::Sending { next_part, .. }, .. }) = self.objects.get_mut(&object)
        {
            *next_part = part + 1;
        }
        Some(sent)
    }

    fn next_unsent_part(&self, object: ObjectId) -> Option<u32> {
        let object = self.objects.get(&object)?;
        let Phase::Sending { next_part, .. } = object.phase else { return None };
        let Layout::Parts { done, .. } = &object.new.layout else { return None };
        (next_part..=object.new.parts()).find(|part| done.binary_search(part).is_err())
    }

    fn send_one_part(&mut self, object: ObjectId, part: u32, now_ms: u64) -> Result<Action, Blocked> {
        let (offset, bytes, travels) = match self.objects.get(&object) {
            Some(state) => {
                let (offset, bytes) = state.new.part_range(part);
                (offset, bytes, state.new.travels)
            }
            None => return Err(Blocked::Full),
        };
        let avoid = self.avoid(object);
        let work = Work::Part { object, part, offset, bytes };
        self.send(work, if travels { bytes } else { 0 }, &avoid, now_ms)
    }

    fn send_bundle(&mut self, now_ms: u64) -> Option<Result<Action, Blocked>> {
        let first = *self.ready.whole.front()?;
        let (members, bytes) = self.bundle_from(first);
        let avoid = self.avoid(first);
        let count = members.len();
        let sent = self.send(Work::Bundle(members), bytes, &avoid, now_ms);
        if sent.is_ok() {
            self.ready.whole.drain(..count);
        }
        Some(sent)
    }

    /// A run of the queue's head that fits one bundle. Bundles stay small while the queue is short, so that all workers
    /// get some. An object that some route has refused, or that does not travel, goes with its like only.
    fn bundle_from(&self, first: ObjectId) -> (Vec<ObjectId>, u64) {
        let count_max = (self.ready.whole.len() / 16).clamp(1, self.config.bundle_objects_max);
        let head = &self.objects[&first];
        let (mut members, mut bytes) = (Vec::new(), 0);
        for id in self.ready.whole.iter().take(count_max) {
            let Some(object) = self.objects.get(id) else { break };
            let alike = object.new.travels == head.new.travels && object.refused_by == head.refused_by;
            let fits = members.is_empty() || bytes + object.new.bytes <= self.config.bundle_bytes_max;
            if !alike || !fits || !matches!(object.phase, Phase::Whole) {
                break;
            }
            members.push(*id);
            bytes += object.new.bytes;
        }
        (members, if head.new.travels { bytes } else { 0 })
    }

    fn send(&mut self, work: Work, bytes: u64, avoid: &[RouteId], now_ms: u64) -> Result<Action, Blocked> {
        if bytes > 0 && self.paced_until_ms > now_ms as f64 {
            return Err(Blocked::Full);
        }
        let route = self.shares.pick(bytes, avoid, now_ms)?;
        self.shares.sent(route, bytes);
        if let Some(rate) = self.config.rate_limit_bytes_per_s {
            self.paced_until_ms = self.paced_until_ms.max(now_ms as f64) + bytes as f64 * 1000.0 / rate.max(1) as f64;
        }
        let request = RequestId(self.next_request);
        self.next_request += 1;
        for object in work.objects() {
            if let Some(object) = self.objects.get_mut(&object) {
                object.flights += 1;
            }
        }
        self.flights.insert(request, Flight { route, bytes, work: work.clone() });
        Ok(Action::Send { request, route, work })
    }

    fn avoid(&self, object: ObjectId) -> Vec<RouteId> {
        self.objects.get(&object).map(|object| object.refused_by.clone()).unwrap_or_default()
    }

    /// What a fault means for an object that has not ended yet.
    fn verdict(&mut self, object: ObjectId, kind: WorkKind, route: RouteId, fault: Fault) -> Next {
        let routes = self.shares.ids().count();
        let Some(object) = self.objects.get_mut(&object) else { return Next::Again };
        let restart = if object.new.may_restart { End::Restart } else { End::Failed(fault) };
        let again_unless = |exhausted: bool| if exhausted { Next::End(End::Failed(fault)) } else { Next::Again };
        match fault {
            Fault::RouteDown => Next::Again,
            Fault::Lost => {
                object.losses += 1;
                again_unless(object.losses >= LOSSES_MAX)
            }
            Fault::Corrupt if kind == WorkKind::Close => Next::End(restart),
            Fault::Unavailable | Fault::Corrupt => {
                object.tries += 1;
                again_unless(object.tries >= TRIES_MAX)
            }
            Fault::Refused => {
                if !object.refused_by.contains(&route) {
                    object.refused_by.push(route);
                }
                again_unless(object.refused_by.len() >= routes)
            }
            Fault::Permanent => Next::End(End::Failed(fault)),
            Fault::Changed | Fault::UploadGone => Next::End(restart),
        }
    }

    fn again(&mut self, object: ObjectId, kind: WorkKind, part: Option<u32>) {
        match (kind, part) {
            (WorkKind::Part, Some(part)) => self.ready.parts_again.push_back((object, part)),
            (WorkKind::Bundle, _) => self.ready.whole.push_back(object),
            (WorkKind::Open, _) => self.ready.control.push_back(Work::Open(object)),
            (WorkKind::Close, _) => self.ready.control.push_back(Work::Close(object)),
            (WorkKind::Part | WorkKind::Abort, _) => {}
        }
    }

    fn begin_parts(&mut self, id: ObjectId) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        let Layout::Parts { done, .. } = &mut object.new.layout else { return };
        done.sort_unstable();
        done.dedup();
        let missing = object.new.parts() - object.new.parts_done();
        object.phase = Phase::Sending { next_part: 1, missing };
        if missing == 0 {
            self.begin_close(id);
        } else {
            self.ready.sending.push_back(id);
        }
    }

    fn begin_close(&mut self, id: ObjectId) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.phase = Phase::Closing;
            self.ready.control.push_back(Work::Close(id));
        }
    }

    fn begin_end(&mut self, id: ObjectId, end: End) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        let opened = matches!(object.phase, Phase::Sending { .. } | Phase::Closing);
        object.phase = Phase::Ending { end, opened, abort_tries: 0 };
        self.settle(id);
    }

    /// Takes an ending object one step further once nothing of it is in flight.
    fn settle(&mut self, id: ObjectId) {
        let Some(Object { phase: Phase::Ending { end, opened, .. }, flights: 0, .. }) = self.objects.get(&id) else {
            return;
        };
        if *opened {
            self.ready.control.push_back(Work::Abort(id));
            return;
        }
        let action = match *end {
            End::Restart => Action::Restart(id),
            End::Failed(fault) => Action::Failed(id, fault),
        };
        self.forget(id);
        self.out.push_back(action);
    }

    fn count_open(&mut self, id: ObjectId) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.counted_open = true;
            self.open_count += 1;
        }
    }

    fn forget(&mut self, id: ObjectId) {
        if self.objects.remove(&id).is_some_and(|object| object.counted_open) {
            self.open_count -= 1;
        }
    }
}

/// What comes after a fault.
enum Next {
    Again,
    End(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkKind {
    Open,
    Part,
    Bundle,
    Close,
    Abort,
}

impl Work {
    /// The objects it serves.
    pub fn objects(&self) -> Vec<ObjectId> {
        match self {
            Work::Open(object) | Work::Part { object, .. } | Work::Close(object) | Work::Abort(object) => vec![*object],
            Work::Bundle(objects) => objects.clone(),
        }
    }

    fn kind(&self) -> WorkKind {
        match self {
            Work::Open(_) => WorkKind::Open,
            Work::Part { .. } => WorkKind::Part,
            Work::Bundle(_) => WorkKind::Bundle,
            Work::Close(_) => WorkKind::Close,
            Work::Abort(_) => WorkKind::Abort,
        }
    }
}

impl NewObject {
    /// How many parts it has; 1 when it is whole.
    pub fn parts(&self) -> u32 {
        match self.layout {
            Layout::Whole => 1,
            // The caller chooses part sizes for at most 10,000 parts, so this fits.
            Layout::Parts { part_bytes, .. } => self.bytes.div_ceil(part_bytes).max(1) as u32,
        }
    }

    fn parts_done(&self) -> u32 {
        match &self.layout {
            Layout::Whole => 0,
            Layout::Parts { done, .. } => done.len() as u32,
        }
    }

    /// Offset and length of `part` (from 1).
    pub fn part_range(&self, part: u32) -> (u64, u64) {
        match self.layout {
            Layout::Whole => (0, self.bytes),
            Layout::Parts { part_bytes, .. } => {
                let offset = u64::from(part - 1) * part_bytes;
                (offset, part_bytes.min(self.bytes - offset))
            }
        }
    }
}
