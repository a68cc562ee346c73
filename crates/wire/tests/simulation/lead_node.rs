//! The lead's process: a list, a journal, and between them the real [`Scheduler`].

use crate::message::{Etag, Key, Member, Op, Order, Receipt, SinkReply, Upload, Version, pack, unpack};
use crate::net::{Arrival, End, Net, NodeId, Side};
use crate::world::Shared;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use tradewind_wire::flights::Flights;
use tradewind_wire::frame::{Frame, Reply, Verdict};
use tradewind_wire::scheduler::{ABORT_TRIES_MAX, Action, Config, Idle, Layout, NewObject, Scheduler, Work};
use tradewind_wire::shares::Before;
use tradewind_wire::{ConnectionId, Fault, ObjectId, RequestId, RouteId};

/// Part size of the simulation; longer objects are cut.
pub(crate) const PART_BYTES: u64 = 1_000;
/// Request ids reserved for each start of a lead's process, so that they never collide with those of an earlier life.
const REQUESTS_PER_LIFE: u64 = 1 << 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Finished(Version),
    Failed(Fault),
}

#[derive(Clone, Default)]
pub(crate) struct Record {
    version: Version,
    bytes: u64,
    upload: Option<Upload>,
    etags: BTreeMap<u32, Etag>,
    pub(crate) ended: Option<Ended>,
}

impl Record {
    pub(crate) fn listed(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }
}

/// State that outlives the lead's process.
#[derive(Default)]
pub(crate) struct Journal {
    pub(crate) records: BTreeMap<Key, Record>,
    /// Keys that may have an unknown upload: an open without an answer, or an abandoned abort.
    pub(crate) doubtful: BTreeSet<Key>,
    pub(crate) spent_usd: f64,
}

impl Journal {
    fn carried_bytes(&self) -> u64 {
        let parts = |record: &Record| {
            record.etags.keys().map(|part| PART_BYTES.min(record.bytes - u64::from(part - 1) * PART_BYTES)).sum()
        };
        let carried = |record: &Record| match record.ended {
            Some(Ended::Finished(_)) => record.bytes,
            _ => parts(record),
        };
        self.records.values().map(carried).sum()
    }

    pub(crate) fn complete(&self) -> bool {
        self.records.values().all(|record| record.ended.is_some())
    }
}

pub(crate) struct LeadNode {
    id: NodeId,
    scheduler: Scheduler,
    sources: HashMap<RouteId, NodeId>,
    keys: HashMap<ObjectId, Key>,
    /// Number of failed aborts of each object.
    aborts_undone: HashMap<ObjectId, u32>,
    list: VecDeque<Key>,
    next_object: u64,
    flights: Flights<()>,
    draining: bool,
    pub(crate) over: Option<Idle>,
}

impl LeadNode {
    pub(crate) fn new(
        id: NodeId,
        life: u64,
        config: Config,
        sources: HashMap<RouteId, NodeId>,
        shared: &mut Shared,
    ) -> Self {
        let mut scheduler = Scheduler::new(Config { first_request: life * REQUESTS_PER_LIFE, ..config });
        let journal = &mut shared.journal;
        // Objects in parts that have changed since are sent again, so their old parts do not count.
        for (key, record) in &mut journal.records {
            let now = shared.source.look(*key);
            if record.ended.is_none() && now != Some((record.version, record.bytes)) {
                if record.upload.is_some() {
                    journal.doubtful.insert(*key);
                }
                let (version, bytes) = now.unwrap_or_default();
                let ended = now.is_none().then_some(Ended::Failed(Fault::Changed));
                *record = Record { version, bytes, ended, ..Record::default() };
            }
        }
        scheduler.carried_before(Before {
            carried_bytes: journal.carried_bytes(),
            sent_bytes: journal.carried_bytes(),
            spent_usd: journal.spent_usd,
        });
        let left = journal.records.iter().filter(|(_, record)| record.ended.is_none());
        let list = left.map(|(key, _)| *key).collect();
        Self {
            id,
            scheduler,
            sources,
            keys: HashMap::new(),
            aborts_undone: HashMap::new(),
            list,
            next_object: 0,
            flights: Flights::default(),
            draining: false,
            over: None,
        }
    }

    pub(crate) fn drain(&mut self) {
        self.draining = true;
        self.scheduler.drain();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining
    }

    pub(crate) fn arrived(&mut self, net: &mut Net, shared: &mut Shared, arrival: Arrival) {
        match arrival {
            Arrival::Greeted => {}
            Arrival::Frame(Frame::Replies(replies)) => {
                for reply in replies {
                    self.reply(net, shared, reply);
                }
            }
            _ => panic!("only replies come to the lead"),
        }
        self.pump(net, shared);
    }

    pub(crate) fn connection_lost(&mut self, net: &mut Net, shared: &mut Shared, end: End) {
        for (request, ()) in self.flights.connection_lost(ConnectionId(end.0 as u64)) {
            self.failed(shared, request, Fault::Lost, net.now_ms);
        }
        self.pump(net, shared);
    }

    fn reply(&mut self, net: &mut Net, shared: &mut Shared, reply: Reply) {
        if self.flights.answered(reply.request).is_none() {
            return;
        }
        let now_ms = net.now_ms;
        match reply.verdict {
            Verdict::Failed { fault, unsent, .. } => {
                if unsent {
                    self.scheduler.unsent(reply.request);
                }
                self.failed(shared, reply.request, fault, now_ms);
            }
            Verdict::Sink(words) => {
                let SinkReply(outcomes) = unpack(&words);
                let only = if let [(_, Err(fault))] = outcomes[..] { Some(fault) } else { None };
                for (object, outcome) in outcomes {
                    if !self.scheduler.awaits(reply.request, object) {
                        continue;
                    }
                    match outcome {
                        Ok(receipt) => self.done(shared, reply.request, object, receipt),
                        Err(fault) => {
                            self.count_undone(shared, reply.request);
                            self.scheduler.fault(reply.request, object, fault);
                        }
                    }
                }
                self.scheduler.answered(reply.request, only, now_ms);
            }
        }
    }

    fn failed(&mut self, shared: &mut Shared, request: RequestId, fault: Fault, now_ms: u64) {
        self.count_undone(shared, request);
        self.scheduler.failed(request, fault, now_ms);
    }

    /// Counts doubtful uploads: an open without an answer may have left one; an abandoned abort has.
    fn count_undone(&mut self, shared: &mut Shared, request: RequestId) {
        match self.scheduler.work(request) {
            Some(Work::Open(object)) if self.scheduler.awaits(request, *object) => {
                shared.journal.doubtful.insert(self.keys[object]);
            }
            Some(Work::Abort(object)) => *self.aborts_undone.entry(*object).or_default() += 1,
            _ => {}
        }
    }

    /// Writes the journal first, then tells the scheduler.
    fn done(&mut self, shared: &mut Shared, request: RequestId, object: ObjectId, receipt: Receipt) {
        let key = self.keys[&object];
        let record = shared.journal.records.get_mut(&key).expect("every listed key has a record");
        match (self.scheduler.work(request), receipt) {
            (Some(Work::Open(_)), Receipt::Opened(upload)) => record.upload = Some(upload),
            (Some(Work::Part { part, .. }), Receipt::Part(etag)) => {
                record.etags.insert(*part, etag);
            }
            (Some(Work::Abort(_)), Receipt::Done) => record.upload = None,
            (Some(Work::Bundle(_) | Work::Close(_)), Receipt::Done) => {}
            (work, receipt) => panic!("{receipt:?} for {work:?}"),
        }
        self.scheduler.done(request, object);
    }

    pub(crate) fn pump(&mut self, net: &mut Net, shared: &mut Shared) {
        if self.over.is_some() {
            return;
        }
        while self.scheduler.wants_more() && net.chance(0.9) {
            let Some(key) = self.list.pop_front() else { break };
            self.add(shared, key, true);
        }
        let idle = self.act(net, shared);
        shared.journal.spent_usd = self.scheduler.shares().spent_usd();
        shared.check_cost(self.scheduler.shares().spent_usd());
        assert!(self.scheduler.flights() <= shared.window_requests(), "{} in flight", self.scheduler.flights());
        assert_eq!(self.scheduler.flights(), self.flights.len());
        let listed = self.list.is_empty() || self.draining;
        match idle {
            Idle::Until(at_ms) => {
                assert!(at_ms > net.now_ms, "a busy loop");
                net.due(self.id, at_ms, 0);
            }
            Idle::Empty | Idle::Ceiling | Idle::Stalled if listed => self.over = Some(idle),
            Idle::Waiting if listed => assert!(self.scheduler.flights() > 0, "waits for nothing"),
            _ => net.due(self.id, net.now_ms + 20, 0),
        }
    }

    /// Carries out the scheduler's actions until there are no more.
    fn act(&mut self, net: &mut Net, shared: &mut Shared) -> Idle {
        let mut orders: BTreeMap<usize, Vec<Order>> = BTreeMap::new();
        let idle = loop {
            match self.scheduler.poll(net.now_ms) {
                Ok(Action::Send { request, route, work }) => {
                    if let Work::Open(object) = &work
                        && self.scheduler.is_duplicated(request)
                    {
                        shared.journal.doubtful.insert(self.keys[object]);
                    }
                    shared.journal.spent_usd = self.scheduler.shares().spent_usd();
                    let connections = net.open(self.id, self.sources[&route], true);
                    let Some(connection) = connections.get(request.0 as usize % connections.len().max(1)) else {
                        self.scheduler.unsent(request);
                        self.scheduler.failed(request, Fault::RouteDown, net.now_ms);
                        continue;
                    };
                    self.flights.sent(request, ConnectionId(*connection as u64), ());
                    let op = self.op(shared, &work);
                    orders.entry(*connection).or_default().push(Order { request, route, op });
                }
                Ok(Action::Finished(object)) => {
                    let record = self.forget(shared, object);
                    record.ended = Some(Ended::Finished(record.version));
                }
                Ok(Action::Failed(object, fault)) => {
                    assert_ne!(fault, Fault::RouteDown, "a rest is no reason to fail");
                    self.leave_upload(shared, object);
                    self.forget(shared, object).ended = Some(Ended::Failed(fault));
                }
                Ok(Action::Restart(object)) => self.restart(shared, object),
                Ok(Action::RouteDown(_) | Action::RouteUp(_) | Action::RouteStalled(_)) => {}
                Err(idle) => break idle,
            }
        };
        for (connection, orders) in orders {
            net.write((connection, Side::Upper), &Frame::Orders(pack(&orders)));
        }
        idle
    }

    fn add(&mut self, shared: &mut Shared, key: Key, may_restart: bool) {
        self.next_object += 1;
        let object = ObjectId(self.next_object);
        self.keys.insert(object, key);
        let record = &shared.journal.records[&key];
        let layout = if record.bytes > PART_BYTES {
            let done = record.etags.keys().copied().collect();
            Layout::Parts { part_bytes: PART_BYTES, opened: record.upload.is_some(), done, to_check: Vec::new() }
        } else {
            Layout::Whole
        };
        self.scheduler.add(object, NewObject { bytes: record.bytes, layout, may_restart, travels: true });
    }

    fn restart(&mut self, shared: &mut Shared, object: ObjectId) {
        self.leave_upload(shared, object);
        let key = self.keys[&object];
        let now = shared.source.look(key);
        let record = self.forget(shared, object);
        let (version, bytes) = now.unwrap_or_default();
        let ended = now.is_none().then_some(Ended::Failed(Fault::Changed));
        *record = Record { version, bytes, ended, ..Record::default() };
        if now.is_some() {
            self.add(shared, key, false);
        }
    }

    /// Records that an object has ended. If its upload was not aborted, it is left to the cleanup.
    fn leave_upload(&mut self, shared: &mut Shared, object: ObjectId) {
        let key = self.keys[&object];
        let undone = self.aborts_undone.remove(&object).unwrap_or(0);
        if shared.journal.records[&key].upload.is_some() {
            assert!(undone >= ABORT_TRIES_MAX, "object {key} ended and its upload was not aborted");
            shared.journal.doubtful.insert(key);
        }
    }

    fn forget<'a>(&mut self, shared: &'a mut Shared, object: ObjectId) -> &'a mut Record {
        let key = self.keys.remove(&object).expect("the lead ends an object once");
        shared.journal.records.get_mut(&key).expect("every listed key has a record")
    }

    fn op(&self, shared: &Shared, work: &Work) -> Op {
        let record = |object: &ObjectId| (self.keys[object], &shared.journal.records[&self.keys[object]]);
        let upload = |record: &Record| record.upload.expect("it was opened");
        match work {
            Work::Open(object) => Op::Open { object: *object, key: record(object).0 },
            Work::Part { object, part, offset, bytes } => {
                let (key, record) = record(object);
                let (version, upload) = (record.version, upload(record));
                Op::Part { object: *object, key, version, part: *part, offset: *offset, bytes: *bytes, upload }
            }
            Work::Bundle(members) => {
                let member = |object: &ObjectId| {
                    let (key, record) = record(object);
                    Member { object: *object, key, version: record.version, bytes: record.bytes }
                };
                Op::Bundle(members.iter().map(member).collect())
            }
            Work::Close(object) => {
                let (key, record) = record(object);
                let count = record.bytes.div_ceil(PART_BYTES) as u32;
                let parts = (1..=count).map(|part| record.etags[&part]).collect();
                Op::Close { object: *object, key, upload: upload(record), parts }
            }
            Work::Abort(object) => {
                let (key, record) = record(object);
                Op::Abort { object: *object, key, upload: upload(record) }
            }
        }
    }
}
