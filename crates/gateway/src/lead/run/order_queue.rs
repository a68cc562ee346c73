//! Sends orders to the sources of their routes, many in one frame where they cross a hop.

use super::orders::Made;
use crate::lead::journal::{Entry, Intent, Journal};
use crate::node::bundle_order::BundleOrder;
use crate::node::hop::Hop;
use crate::node::reply::{Owed, ReplyTo};
use crate::node::source::Source;
use crate::node::work::{Failure, Manifest, Order, SourceTask};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tradewind_wire::frame::{CONTROL_BYTES_MAX, Frame, Reply};
use tradewind_wire::{Fault, RequestId, RouteId};

/// Maximum size of one frame's orders, in bytes; a single order may be longer.
const BATCH_BYTES: usize = 256 << 10;

/// The source of a route: where its orders go.
#[derive(Clone)]
pub enum RouteSource {
    /// The source is in this process.
    Memory(Arc<Source>),
    /// The source is another gateway.
    Hop(Arc<Hop>),
}

/// Orders waiting to be sent, by route.
pub(super) struct OrderQueue {
    sources: HashMap<RouteId, RouteSource>,
    replies: mpsc::UnboundedSender<Reply>,
    batches: HashMap<RouteId, Vec<Order>>,
    /// Bundles for hops.
    encoded: HashMap<RouteId, Vec<EncodedOrders>>,
}

/// Encoded orders of one frame.
#[derive(Default)]
struct EncodedOrders {
    /// One after the other.
    bytes: Vec<u8>,
    requests: Vec<RequestId>,
}

impl EncodedOrders {
    /// Encoded like a `Vec<Order>`.
    fn into_payload(self) -> postcard::Result<(Vec<u8>, Vec<RequestId>)> {
        let mut payload = postcard::to_stdvec(&self.requests.len())?;
        payload.extend_from_slice(&self.bytes);
        Ok((payload, self.requests))
    }
}

impl OrderQueue {
    pub(super) fn new(sources: HashMap<RouteId, RouteSource>, replies: mpsc::UnboundedSender<Reply>) -> Self {
        Self { sources, replies, batches: HashMap::new(), encoded: HashMap::new() }
    }

    /// Adds more routes.
    pub(super) fn know(&mut self, sources: HashMap<RouteId, RouteSource>) {
        self.sources.extend(sources);
    }

    /// Puts an order into the next batch of its route. If the order could not be made (`None`), its request is answered
    /// at once. That happens only if data it needs is missing, which the state machine prevents.
    pub(super) fn push(&mut self, request: RequestId, made: Option<Made<'_>>) {
        let Some(made) = made else { return not_made(request, &ReplyTo::memory(self.replies.clone())) };
        let order = match made {
            Made::Bundle(bundle) if matches!(self.sources.get(&bundle.route()), Some(RouteSource::Hop(_))) => {
                return self.encode(request, &bundle);
            }
            made => made.into_order(),
        };
        self.batches.entry(order.route).or_default().push(order);
    }

    fn encode(&mut self, request: RequestId, bundle: &BundleOrder<'_>) {
        let Ok(encoded) = postcard::to_stdvec(bundle) else {
            return not_made(request, &ReplyTo::memory(self.replies.clone()));
        };
        let frames = self.encoded.entry(bundle.route()).or_default();
        match frames.last_mut().filter(|frame| frame.bytes.len() + encoded.len() <= BATCH_BYTES) {
            Some(frame) => {
                frame.bytes.extend_from_slice(&encoded);
                frame.requests.push(request);
            }
            None => frames.push(EncodedOrders { bytes: encoded, requests: vec![request] }),
        }
    }

    /// Sends an order that opens an upload as soon as the journal holds the intent.
    pub(super) fn after_intent(&self, journal: Journal, intent: Intent, request: RequestId, order: Option<Order>) {
        let reply = ReplyTo::memory(self.replies.clone());
        let Some(order) = order else { return not_made(request, &reply) };
        let source = self.sources.get(&order.route).cloned();
        let owed = Owed::new(reply, request);
        tokio::spawn(async move {
            match (journal.record_durably(Entry::Intent(Box::new(intent))).await, source) {
                (Ok(()), Some(source)) => source.send(vec![order], owed.reply().clone()).await,
                (Ok(()), None) => no_source(request, order.route, owed.reply()),
                (Err(error), _) => {
                    let failure = Failure::new(Fault::Permanent, "no_space", error.to_string());
                    owed.reply().fail_unsent(request, failure);
                }
            }
            owed.settled();
        });
    }

    /// Answers the orders of all batches instead of sending them.
    pub(super) fn drop_batches(&mut self) {
        let reply = ReplyTo::memory(self.replies.clone());
        let message = "the job ended before it was sent";
        let encoded = self.encoded.values_mut().flat_map(std::mem::take).flat_map(|frame| frame.requests);
        let others = self.batches.values_mut().flat_map(std::mem::take).map(|order| order.request);
        for request in encoded.chain(others) {
            reply.fail_unsent(request, Failure::new(Fault::Lost, "unavailable", message));
        }
    }

    /// Sends all batches.
    pub(super) fn flush(&mut self) {
        self.flush_encoded();
        for (route, orders) in &mut self.batches {
            if orders.is_empty() {
                continue;
            }
            let (orders, reply) = (std::mem::take(orders), ReplyTo::memory(self.replies.clone()));
            match self.sources.get(route).cloned() {
                Some(RouteSource::Memory(source)) => {
                    orders.into_iter().for_each(|order| source.execute(order, reply.clone()))
                }
                Some(RouteSource::Hop(hop)) => {
                    let owed = owed(&orders, &reply);
                    drop(tokio::spawn(async move { send_over(&hop, orders, owed, &reply).await }));
                }
                None => orders.iter().for_each(|order| no_source(order.request, *route, &reply)),
            }
        }
    }

    fn flush_encoded(&mut self) {
        for (route, frames) in self.encoded.iter_mut().filter(|(_, frames)| !frames.is_empty()) {
            let (frames, reply) = (std::mem::take(frames), ReplyTo::memory(self.replies.clone()));
            let requests = frames.iter().flat_map(|frame| &frame.requests);
            let Some(RouteSource::Hop(hop)) = self.sources.get(route).cloned() else {
                requests.for_each(|request| no_source(*request, *route, &reply));
                continue;
            };
            let owed: Vec<Owed> = requests.map(|request| Owed::new(reply.clone(), *request)).collect();
            drop(tokio::spawn(async move {
                for frame in frames {
                    // A number always has an encoding. Owed answers are sent when they are dropped.
                    let Ok((payload, requests)) = frame.into_payload() else { return };
                    send_payload(&hop, payload, &requests, &reply).await;
                }
                owed.into_iter().for_each(Owed::settled);
            }));
        }
    }
}

fn not_made(request: RequestId, reply: &ReplyTo) {
    let message = "the lead could not make the order";
    reply.fail_unsent(request, Failure::new(Fault::Unavailable, "unavailable", message));
}

fn no_source(request: RequestId, route: RouteId, reply: &ReplyTo) {
    let message = format!("the lead has no connection to the source of route {}", route.0);
    reply.fail_unsent(request, Failure::new(Fault::RouteDown, "unavailable", message));
}

impl RouteSource {
    async fn send(&self, orders: Vec<Order>, reply: ReplyTo) {
        match self {
            RouteSource::Memory(source) => orders.into_iter().for_each(|order| source.execute(order, reply.clone())),
            RouteSource::Hop(hop) => {
                let owed = owed(&orders, &reply);
                send_over(hop, orders, owed, &reply).await;
            }
        }
    }
}

/// Registers each answer as owed separately, so that a panic while one batch is sent loses none.
fn owed(orders: &[Order], reply: &ReplyTo) -> Vec<Owed> {
    orders.iter().map(|order| Owed::new(reply.clone(), order.request)).collect()
}

async fn send_over(hop: &Hop, orders: Vec<Order>, owed: Vec<Owed>, reply: &ReplyTo) {
    for batch in batches(orders) {
        send_batch(hop, batch, reply).await;
    }
    owed.into_iter().for_each(Owed::settled);
}

async fn send_batch(hop: &Hop, batch: Vec<Order>, reply: &ReplyTo) {
    let requests: Vec<RequestId> = batch.iter().map(|order| order.request).collect();
    match postcard::to_stdvec(&batch) {
        Ok(payload) => send_payload(hop, payload, &requests, reply).await,
        Err(_) => too_large(&requests, reply),
    }
}

async fn send_payload(hop: &Hop, payload: Vec<u8>, requests: &[RequestId], reply: &ReplyTo) {
    match payload.len() <= CONTROL_BYTES_MAX {
        true => hop.send_orders(&Frame::Orders(payload.into()), requests, reply).await,
        false => too_large(requests, reply),
    }
}

fn too_large(requests: &[RequestId], reply: &ReplyTo) {
    for request in requests {
        reply.fail(*request, Fault::Permanent, "too_large", "the order is longer than a frame");
    }
}

/// Cuts orders into batches by their estimated length.
fn batches(orders: Vec<Order>) -> Vec<Vec<Order>> {
    let mut batches = vec![Vec::new()];
    let mut bytes = 0;
    for order in orders {
        let length = estimated_bytes(&order);
        if bytes + length > BATCH_BYTES && bytes > 0 {
            batches.push(Vec::new());
            bytes = 0;
        }
        bytes += length;
        if let Some(batch) = batches.last_mut() {
            batch.push(order);
        }
    }
    batches
}

fn estimated_bytes(order: &Order) -> usize {
    const PER_OBJECT: usize = 512;
    const PER_PART: usize = 128;
    match &order.task {
        SourceTask::Bundle(fetches) => {
            fetches.iter().map(|fetch| PER_OBJECT + fetch.source_key.len() + fetch.place.key.len()).sum()
        }
        SourceTask::Pass(Manifest::Close(close)) => PER_OBJECT + PER_PART * close.parts.len(),
        _ => PER_OBJECT,
    }
}
