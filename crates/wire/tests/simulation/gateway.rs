//! Source, relay and sink: forward requests, record them, and pass answers back.

use crate::message::{Op, Order, Receipt, SinkReply, digest, pack, unpack};
use crate::net::{Arrival, End, Net, NodeId, Side};
use crate::world::Shared;
use rand::Rng;
use std::collections::{BTreeMap, HashMap, VecDeque};
use tradewind_wire::flights::Flights;
use tradewind_wire::frame::{Codec, Frame, Head, Purpose, Reply, SEALER_ID_BYTES, SealId, Verdict};
use tradewind_wire::{ConnectionId, Fault, ObjectId, RequestId, RouteId};

/// A body in transit through this node.
struct Body {
    head: Head,
    /// Bytes that arrived (or were read) but were not forwarded yet.
    ready: Vec<u8>,
    left_bytes: u64,
    upstream: End,
    on: Option<usize>,
    /// Object bytes of a body that was made here, at its source.
    own_bytes: Option<u64>,
}

/// The body that is being received on a connection.
enum Receiving {
    Forward(u64),
    Collect { head: Head, bytes: Vec<u8> },
    Discard,
}

/// Work in progress at a store.
enum Pending {
    Read { order: Order, upstream: End },
    Write { head: Head, body: Vec<u8>, upstream: End },
    Answer { reply: Reply, upstream: End },
}

/// The connections to one next node: each takes its next body when it is ready.
#[derive(Default)]
struct Hop {
    waiting: VecDeque<u64>,
    busy: HashMap<usize, u64>,
}

pub(crate) struct Gateway {
    id: NodeId,
    /// The next node of each route; none at a sink.
    next: HashMap<RouteId, NodeId>,
    flights: Flights<End>,
    receiving: HashMap<End, Receiving>,
    bodies: HashMap<u64, Body>,
    /// Ordered, so that a seed replays.
    hops: BTreeMap<NodeId, Hop>,
    pending: HashMap<u64, Pending>,
    last_reply: Option<(End, Reply)>,
    next_id: u64,
    /// Object bytes that left their source, by route; the world removes them.
    pub(crate) sent: Vec<(RouteId, u64)>,
}

impl Gateway {
    pub(crate) fn new(id: NodeId, next: HashMap<RouteId, NodeId>) -> Self {
        Self {
            id,
            next,
            flights: Flights::default(),
            receiving: HashMap::new(),
            bodies: HashMap::new(),
            hops: BTreeMap::new(),
            pending: HashMap::new(),
            last_reply: None,
            next_id: 0,
            sent: Vec::new(),
        }
    }

    /// Returns how many requests the node has on record.
    pub(crate) fn remembers(&self) -> usize {
        self.flights.len() + self.bodies.len() + self.pending.len()
    }

    pub(crate) fn arrived(&mut self, net: &mut Net, shared: &mut Shared, from: End, arrival: Arrival) {
        match arrival {
            Arrival::Greeted => {
                if from.1 == Side::Upper {
                    self.pump(net);
                }
            }
            Arrival::Frame(Frame::Orders(orders)) => {
                for order in unpack::<Vec<Order>>(&orders) {
                    self.after_store(net, shared, Pending::Read { order, upstream: from });
                }
            }
            Arrival::Frame(Frame::Replies(replies)) => {
                for reply in replies {
                    if let Some(upstream) = self.flights.answered(reply.request) {
                        self.answer(net, upstream, reply);
                    }
                }
            }
            Arrival::Frame(other) => panic!("{other:?} at a gateway"),
            Arrival::Begin(head) => self.begin(net, from, head),
            Arrival::Piece { bytes, ends } => self.piece(net, shared, from, &bytes, ends),
            Arrival::GiveUp => self.give_up(net, from),
        }
    }

    fn begin(&mut self, net: &mut Net, from: End, head: Head) {
        if self.next.is_empty() {
            let bytes = Vec::with_capacity(head.wire_bytes as usize);
            self.receiving.insert(from, Receiving::Collect { head, bytes });
        } else {
            let body =
                Body { left_bytes: head.wire_bytes, head, ready: vec![], upstream: from, on: None, own_bytes: None };
            let id = self.take_on(net, body);
            self.receiving.insert(from, Receiving::Forward(id));
        }
    }

    fn piece(&mut self, net: &mut Net, shared: &mut Shared, from: End, piece: &[u8], ends: bool) {
        match self.receiving.get_mut(&from) {
            Some(Receiving::Collect { bytes, .. }) => bytes.extend_from_slice(piece),
            Some(Receiving::Forward(id)) => {
                let id = *id;
                if let Some(body) = self.bodies.get_mut(&id) {
                    body.ready.extend_from_slice(piece);
                    self.flush(net, id);
                }
            }
            Some(Receiving::Discard) | None => {}
        }
        if ends && let Some(Receiving::Collect { head, bytes }) = self.receiving.remove(&from) {
            self.after_store(net, shared, Pending::Write { head, body: bytes, upstream: from });
        }
    }

    /// Handles an upstream node that will not complete the body it has begun.
    fn give_up(&mut self, net: &mut Net, from: End) {
        let Some(Receiving::Forward(id)) = self.receiving.remove(&from) else { return };
        let Some(body) = self.bodies.remove(&id) else { return };
        let next = self.next[&body.head.route];
        if let (Some(connection), Some(hop)) = (body.on, self.hops.get_mut(&next)) {
            net.write((connection, Side::Upper), &Frame::Abort);
            hop.busy.remove(&connection);
            self.flights.answered(body.head.request);
        } else if let Some(hop) = self.hops.get_mut(&next) {
            hop.waiting.retain(|waiting| *waiting != id);
        }
        self.pump(net);
    }

    fn take_on(&mut self, net: &mut Net, body: Body) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        let next = self.next[&body.head.route];
        self.bodies.insert(id, body);
        self.hops.entry(next).or_default().waiting.push_back(id);
        self.pump(net);
        id
    }

    /// Gives waiting bodies to idle connections; without any connection they are sent back.
    fn pump(&mut self, net: &mut Net) {
        let nexts: Vec<NodeId> = self.hops.keys().copied().collect();
        for next in nexts {
            let connections = net.open(self.id, next, true);
            while let Some(hop) = self.hops.get_mut(&next)
                && !hop.waiting.is_empty()
            {
                let idle = connections.iter().find(|connection| !hop.busy.contains_key(connection));
                let Some(&connection) = idle else { break };
                let Some(id) = hop.waiting.pop_front() else { break };
                hop.busy.insert(connection, id);
                let Some(body) = self.bodies.get_mut(&id) else { continue };
                body.on = Some(connection);
                self.sent.extend(body.own_bytes.map(|bytes| (body.head.route, bytes)));
                self.flights.sent(body.head.request, ConnectionId(connection as u64), body.upstream);
                net.write((connection, Side::Upper), &Frame::Head(body.head.clone()));
                self.flush(net, id);
            }
            if connections.is_empty() {
                let waiting = self.hops.get_mut(&next).map(|hop| std::mem::take(&mut hop.waiting));
                for id in waiting.into_iter().flatten() {
                    if let Some(body) = self.drop_body(id) {
                        let unsent = body.own_bytes.is_some();
                        self.fail(net, body.upstream, body.head.request, Fault::RouteDown, unsent);
                    }
                }
            }
        }
    }

    /// Forwards what has arrived of a body; after its last byte the connection is free for the next.
    fn flush(&mut self, net: &mut Net, id: u64) {
        let Some(body) = self.bodies.get_mut(&id) else { return };
        let Some(connection) = body.on else { return };
        let ready = std::mem::take(&mut body.ready);
        net.write_data((connection, Side::Upper), &ready);
        body.left_bytes -= ready.len() as u64;
        if body.left_bytes > 0 {
            return;
        }
        let next = self.next[&body.head.route];
        if let Some(hop) = self.hops.get_mut(&next) {
            hop.busy.remove(&connection);
        }
        self.bodies.remove(&id);
        self.pump(net);
    }

    fn drop_body(&mut self, id: u64) -> Option<Body> {
        let body = self.bodies.remove(&id)?;
        if let Some(receiving) = self.receiving.get_mut(&body.upstream)
            && matches!(receiving, Receiving::Forward(of) if *of == id)
        {
            *receiving = Receiving::Discard;
        }
        Some(body)
    }

    pub(crate) fn connection_lost(&mut self, net: &mut Net, end: End) {
        if end.1 == Side::Lower {
            self.give_up(net, end);
            self.receiving.remove(&end);
            return;
        }
        let busy: Vec<u64> = self.hops.values_mut().filter_map(|hop| hop.busy.remove(&end.0)).collect();
        for id in busy {
            self.drop_body(id);
        }
        for (request, upstream) in self.flights.connection_lost(ConnectionId(end.0 as u64)) {
            self.fail(net, upstream, request, Fault::Lost, false);
        }
        self.pump(net);
    }

    fn fail(&mut self, net: &mut Net, upstream: End, request: RequestId, fault: Fault, unsent: bool) {
        let message = format!("node-{}: {fault:?}", self.id);
        let verdict = Verdict::Failed { fault, kind: "simulated".into(), message, unsent };
        self.answer(net, upstream, Reply { request, verdict });
    }

    fn answer(&mut self, net: &mut Net, upstream: End, reply: Reply) {
        // Sometimes an old answer is repeated.
        let stale = self.last_reply.replace((upstream, reply.clone())).filter(|_| net.chance(0.05));
        net.write(upstream, &Frame::Replies(vec![reply]));
        if let Some((end, reply)) = stale {
            net.write(end, &Frame::Replies(vec![reply]));
        }
    }

    /// Makes a store work for a while; then [`Gateway::due`] is called.
    fn after_store(&mut self, net: &mut Net, shared: &Shared, pending: Pending) {
        self.next_id += 1;
        self.pending.insert(self.next_id, pending);
        let at_ms = net.now_ms + net.rng.random_range(1..=shared.store_ms_max);
        net.due(self.id, at_ms, self.next_id);
    }

    pub(crate) fn due(&mut self, net: &mut Net, shared: &mut Shared, ticket: u64) {
        match self.pending.remove(&ticket) {
            // Drop an order of a lead that has died: its successor will order again.
            Some(Pending::Read { upstream, .. }) if !net.is_open(upstream) => {}
            Some(Pending::Read { order, upstream }) => self.read(net, shared, order, upstream),
            Some(Pending::Write { head, body, upstream }) => {
                let verdict = self.write(net, shared, &head, &body);
                let reply = Reply { request: head.request, verdict };
                self.after_store(net, shared, Pending::Answer { reply, upstream });
            }
            Some(Pending::Answer { reply, upstream }) => self.answer(net, upstream, reply),
            None => {}
        }
    }

    /// Turns an order into a request with a body, at a source.
    fn read(&mut self, net: &mut Net, shared: &mut Shared, order: Order, upstream: End) {
        let (request, route) = (order.request, order.route);
        let mut lost: Vec<(ObjectId, Result<Receipt, Fault>)> = Vec::new();
        let mut bytes = Vec::new();
        let mut order = order;
        if let Some(fault) = shared.source_fault(net, self.id) {
            return self.fail(net, upstream, request, fault, true);
        }
        match &mut order.op {
            Op::Part { key, version, offset, bytes: length, .. } => {
                match shared.source.read(*key, *version, *offset, *length) {
                    Ok(read) => bytes = read,
                    Err(fault) => return self.fail(net, upstream, request, fault, true),
                }
            }
            Op::Bundle(members) => members.retain(|member| {
                match shared.source.read(member.key, member.version, 0, member.bytes) {
                    Ok(read) => bytes.extend(read),
                    Err(fault) => lost.push((member.object, Err(fault))),
                }
                lost.last().is_none_or(|(object, _)| *object != member.object)
            }),
            Op::Open { .. } | Op::Close { .. } | Op::Abort { .. } => {}
        }
        let manifest = pack(&(&order, SinkReply(lost)));
        let body: Vec<u8> = manifest.iter().copied().chain(bytes).collect();
        // In place of a seal, which would be broken: the digest of the body.
        let seal = SealId { sealer: [0; SEALER_ID_BYTES], count: digest(&body) };
        let head = Head {
            request,
            route,
            purpose: if order.op.carried_bytes() > 0 { Purpose::Chunk } else { Purpose::Control },
            manifest_bytes: manifest.len() as u32,
            recipe_bytes: 0,
            referenced_bytes: 0,
            checksums: 0,
            raw_bytes: body.len() as u64,
            wire_bytes: body.len() as u64,
            codec: Codec::Raw,
            seal,
        };
        let own_bytes = Some(order.op.carried_bytes());
        self.take_on(net, Body { left_bytes: head.wire_bytes, head, ready: body, upstream, on: None, own_bytes });
    }

    /// Makes a request durable at a sink, if it is what the source sent.
    fn write(&mut self, net: &mut Net, shared: &mut Shared, head: &Head, body: &[u8]) -> Verdict {
        let failed = |fault| Verdict::Failed { fault, kind: "simulated".into(), message: "sink".into(), unsent: false };
        if head.seal.count != digest(body) {
            return failed(Fault::Corrupt);
        }
        let (manifest, bytes) = body.split_at(head.manifest_bytes as usize);
        let (order, SinkReply(mut outcomes)): (Order, SinkReply) = unpack(manifest);
        assert_eq!((order.request, order.route), (head.request, head.route));
        if let Some(fault) = shared.sink_fault(net, self.id) {
            return failed(fault);
        }
        let mut apply = |object, outcome: Result<Receipt, Fault>| outcomes.push((object, outcome));
        match order.op {
            Op::Open { object, key } => apply(object, shared.sink.open(key).map(Receipt::Opened)),
            Op::Part { object, part, upload, .. } => {
                apply(object, shared.sink.put_part(upload, part, bytes.to_vec()).map(Receipt::Part));
            }
            Op::Bundle(members) => {
                let mut rest = bytes;
                for member in members {
                    let (mine, others) = rest.split_at(member.bytes as usize);
                    rest = others;
                    apply(member.object, shared.put(member.key, mine.to_vec()).map(|()| Receipt::Done));
                }
            }
            Op::Close { object, key, upload, parts } => {
                apply(object, shared.close(key, upload, &parts).map(|()| Receipt::Done));
            }
            Op::Abort { object, upload, .. } => {
                shared.sink.abort(upload);
                apply(object, Ok(Receipt::Done));
            }
        }
        // The write succeeded, but the store answers otherwise.
        if net.chance(shared.fault_chance / 2.0) {
            return failed(Fault::Unavailable);
        }
        Verdict::Sink(pack(&SinkReply(outcomes)))
    }
}
