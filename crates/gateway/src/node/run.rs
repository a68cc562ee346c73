//! From a program to running stations.

use super::attempts::Attempts;
use super::budget::MemoryBudget;
use super::clock::Pulse;
use super::hop::{Hop, HopSetup};
use super::inbound::{Inbound, Station};
use super::reply::Peers;
use super::seal::SealKey;
use super::sink::{Sink, Target};
use super::source::{Below, Source};
use crate::control::events::EventSender;
use crate::control::metrics::{self, MetricsSnapshot};
use crate::control::runner::{Runner, Running};
use crate::lead::run::{CannotBegin, LeadSetup, Way};
use crate::stores;
use crate::tls::Security;
use async_trait::async_trait;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tradewind_contract::{JobSpec, Program, Refusal, RouteSpec, StoreSpec};
use tradewind_store::Store;
use tradewind_wire::frame::{Frame, Hello};
use tradewind_wire::{RouteId, WIRE_VERSION_MAJOR};

/// Work in flight at a source or sink that is told to stop is waited for so long.
const DRAIN_MAX: Duration = Duration::from_secs(4);

/// Starts nodes.
#[derive(Debug, Default)]
pub struct NodeRunner;

/// A node that runs.
struct Node {
    name: String,
    hops: HashMap<String, Arc<Hop>>,
    source: Option<Arc<Source>>,
    sink: Option<Arc<Sink>>,
    peers: Peers,
    budget: MemoryBudget,
    /// Asks the lead to checkpoint; the token says when it has.
    lead: Option<(CancellationToken, CancellationToken)>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[async_trait]
impl Runner for NodeRunner {
    async fn start(
        &self,
        program: Program,
        security: Security,
        data_listener: Option<TcpListener>,
        events: EventSender,
    ) -> Result<Box<dyn Running>, Refusal> {
        let stop = CancellationToken::new();
        match Building::new(&program, security, &stop)?.finish(&program, data_listener, events).await {
            Ok(node) => Ok(Box::new(node)),
            Err(refusal) => {
                stop.cancel();
                Err(refusal)
            }
        }
    }
}

/// A node that is being put together: hops first, then what stands at the ends.
struct Building<'a> {
    security: Security,
    hello: Hello,
    silence_max: Duration,
    budget: MemoryBudget,
    key: Option<Arc<SealKey>>,
    tasks: TaskTracker,
    opened: Mutex<Vec<(StoreSpec, Arc<dyn Store>)>>,
    stop: &'a CancellationToken,
}

impl<'a> Building<'a> {
    fn new(program: &Program, security: Security, stop: &'a CancellationToken) -> Result<Self, Refusal> {
        let key = match &program.seal_key_hex {
            Some(hex) => {
                let key = SealKey::from_hex(hex).ok_or_else(|| refusal("seal_key_hex is not 64 hex digits", None))?;
                Some(Arc::new(key))
            }
            None => None,
        };
        Ok(Self {
            security,
            hello: Hello { version: WIRE_VERSION_MAJOR, job: program.job_id.clone(), node: program.node.clone() },
            silence_max: Duration::from_secs(program.limits.peer_silence_s.max(1).into()),
            budget: budget(program),
            key,
            tasks: TaskTracker::new(),
            opened: Mutex::default(),
            stop,
        })
    }

    async fn finish(
        self,
        program: &Program,
        data_listener: Option<TcpListener>,
        events: EventSender,
    ) -> Result<Node, Refusal> {
        let hops: HashMap<String, Arc<Hop>> =
            program.hops.iter().map(|spec| (spec.to.clone(), self.hop(spec))).collect();
        let sink = self.sink(program)?;
        let source = self.source(program, &hops, sink.as_ref())?;
        let peers = Peers::default();
        if let Some(listener) = data_listener {
            let inbound = self.inbound(program, &hops, source.as_ref(), sink.as_ref(), peers.clone());
            self.tasks.spawn(Arc::new(inbound).listen(listener));
        }
        let lead = match &program.lead {
            Some(job) => Some(self.lead(program, job, &hops, source.as_ref(), events).await?),
            None => None,
        };
        Ok(Node {
            name: program.node.clone(),
            hops,
            source,
            sink,
            peers,
            budget: self.budget,
            lead,
            tasks: self.tasks,
            stop: self.stop.clone(),
        })
    }

    fn hop(&self, spec: &tradewind_contract::HopSpec) -> Arc<Hop> {
        let setup = HopSetup {
            spec: spec.clone(),
            security: self.security.clone(),
            hello: self.hello.clone(),
            silence_max: self.silence_max,
        };
        Hop::start(setup, self.stop.clone())
    }

    fn sink(&self, program: &Program) -> Result<Option<Arc<Sink>>, Refusal> {
        if program.sinks.is_empty() {
            return Ok(None);
        }
        let target =
            |spec: &StoreSpec| Ok(Target { store: self.open(spec)?, attempts: Attempts::new(&program.limits) });
        let targets = program.sinks.iter().map(target).collect::<Result<_, Refusal>>()?;
        Ok(Some(Arc::new(Sink { targets, key: self.key.clone(), tasks: self.tasks.clone() })))
    }

    fn source(
        &self,
        program: &Program,
        hops: &HashMap<String, Arc<Hop>>,
        sink: Option<&Arc<Sink>>,
    ) -> Result<Option<Arc<Source>>, Refusal> {
        let Some(spec) = &program.source else { return Ok(None) };
        let is_ours = |route: &&RouteSpec| route.nodes.get(1).is_some_and(|name| *name == program.node);
        let below = |route: &RouteSpec| {
            let next = &route.nodes[2];
            let below = if *next == program.node {
                sink.cloned().map(Below::Memory)
            } else {
                hops.get(next).cloned().map(Below::Hop)
            };
            below
                .map(|below| (RouteId(route.id), below))
                .ok_or_else(|| refusal(format!("route {} goes nowhere", route.id), None))
        };
        Ok(Some(Arc::new(Source {
            store: self.open(spec)?,
            attempts: Attempts::new(&program.limits),
            budget: self.budget.clone(),
            below: program.routes.iter().filter(is_ours).map(below).collect::<Result<_, _>>()?,
            key: self.key.clone(),
            tasks: self.tasks.clone(),
        })))
    }

    fn inbound(
        &self,
        program: &Program,
        hops: &HashMap<String, Arc<Hop>>,
        source: Option<&Arc<Source>>,
        sink: Option<&Arc<Sink>>,
        peers: Peers,
    ) -> Inbound {
        let mut stations = HashMap::new();
        let mut upstream = HashSet::new();
        for route in &program.routes {
            let id = RouteId(route.id);
            for (place, pair) in route.nodes.windows(2).enumerate() {
                if pair[1] != program.node || pair[0] == pair[1] {
                    continue;
                }
                upstream.insert(pair[0].clone());
                let is_last = place + 2 == route.nodes.len();
                let next = route.nodes.get(place + 2).and_then(|next| hops.get(next));
                match (is_last, sink, next) {
                    (true, Some(sink), _) => drop(stations.insert(id, Station::Sink(sink.clone()))),
                    // Who stands second gets orders, not requests.
                    (false, _, Some(hop)) if place > 0 => drop(stations.insert(id, Station::Relay(hop.clone()))),
                    _ => {}
                }
            }
        }
        Inbound {
            security: self.security.clone(),
            hello: self.hello.clone(),
            upstream,
            stations,
            source: source.cloned(),
            peers,
            budget: self.budget.clone(),
            silence_max: self.silence_max,
            pulse: Pulse::start(self.silence_max, self.stop.clone()),
            stop: self.stop.clone(),
        }
    }

    async fn lead(
        &self,
        program: &Program,
        job: &JobSpec,
        hops: &HashMap<String, Arc<Hop>>,
        source: Option<&Arc<Source>>,
        events: EventSender,
    ) -> Result<(CancellationToken, CancellationToken), Refusal> {
        let way = |route: &RouteSpec| {
            let first = &route.nodes[1];
            let way = if *first == program.node {
                source.cloned().map(Way::Memory)
            } else {
                hops.get(first).cloned().map(Way::Hop)
            };
            way.map(|way| (RouteId(route.id), way))
                .ok_or_else(|| refusal(format!("route {} has no source", route.id), None))
        };
        let (stop, done) = (CancellationToken::new(), CancellationToken::new());
        let setup = LeadSetup {
            job: Arc::new(job.clone()),
            limits: program.limits.clone(),
            routes: program.routes.clone(),
            ways: program.routes.iter().map(way).collect::<Result<_, _>>()?,
            local: program.routes.iter().all(|route| route.nodes.iter().all(|name| *name == program.node)),
            replies: mpsc::unbounded_channel(),
            source: self.open(&job.source)?,
            targets: job.targets.iter().map(|target| self.open(&target.store)).collect::<Result<_, _>>()?,
            events,
            stop: stop.clone(),
        };
        let work =
            crate::lead::run::begin(setup).await.map_err(|CannotBegin { message, hint }| refusal(message, hint))?;
        let over = done.clone();
        tokio::spawn(async move {
            work.await;
            over.cancel();
        });
        Ok((stop, done))
    }

    /// One store of a kind for all that stands here: one pool of connections, and one knowledge of whether it can be
    /// reached.
    fn open(&self, spec: &StoreSpec) -> Result<Arc<dyn Store>, Refusal> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, store)) = opened.iter().find(|(known, _)| known == spec) {
            return Ok(store.clone());
        }
        let store = stores::open(spec).map_err(|error| refusal(error.to_string(), error.hint().map(str::to_owned)))?;
        opened.push((spec.clone(), store.clone()));
        Ok(store)
    }
}

/// Where reading and writing are one process, what is held is what is under way at the stores, and finds its own measure.
/// With hops, what is under way is on them too.
fn budget(program: &Program) -> MemoryBudget {
    let bytes = program.limits.memory_bytes;
    let is_local = program.hops.is_empty() && program.source.is_some() && !program.sinks.is_empty();
    if is_local { MemoryBudget::climbing(bytes) } else { MemoryBudget::new(bytes) }
}

fn refusal(error: impl Into<String>, hint: Option<String>) -> Refusal {
    Refusal { error: error.into(), hint }
}

#[async_trait]
impl Running for Node {
    async fn drain(&self) {
        if let Some((stop, done)) = &self.lead {
            stop.cancel();
            done.cancelled().await;
        } else {
            self.peers.broadcast(&Frame::Drain);
            let idle = async {
                while self.in_flight() > 0 {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            drop(tokio::time::timeout(DRAIN_MAX, idle).await);
        }
        self.stop.cancel();
    }

    fn metrics(&self) -> MetricsSnapshot {
        let mut snapshot = MetricsSnapshot::default();
        for (name, hop) in &self.hops {
            let labels = || [("from", self.name.clone().into()), ("to", name.clone().into())];
            snapshot.add(&metrics::HOP_BYTES, labels(), hop.counts().sent_bytes.load(Ordering::Relaxed) as f64);
            snapshot.add(&metrics::HOP_CHUNKS, labels(), hop.counts().requests.load(Ordering::Relaxed) as f64);
            snapshot.add(&metrics::HOP_CONNECTIONS, labels(), hop.connections() as f64);
        }
        snapshot.add(&metrics::CHUNKS_IN_FLIGHT, [], self.in_flight() as f64);
        let (held, limit) = self.budget.usage_bytes();
        snapshot.add(&metrics::MEMORY_HELD_BYTES, [], held as f64);
        snapshot.add(&metrics::MEMORY_LIMIT_BYTES, [], limit as f64);
        for (store, attempts) in self.stores() {
            let counts = attempts.counts();
            let ends = [
                ("ok", &counts.ok),
                ("retried", &counts.retried),
                ("slow_down", &counts.slow_down),
                ("failed", &counts.failed),
            ];
            for (end, count) in ends {
                let labels = [("store", store.url().to_owned().into()), ("end", end.into())];
                snapshot.add(&metrics::STORE_REQUESTS, labels, count.load(Ordering::Relaxed) as f64);
            }
            snapshot.add(
                &metrics::STORE_REQUESTS_LIMIT,
                [("store", store.url().to_owned().into())],
                attempts.concurrency() as f64,
            );
        }
        snapshot
    }
}

impl Node {
    fn in_flight(&self) -> usize {
        let at_ends = self.tasks.len().saturating_sub(1);
        at_ends + self.hops.values().map(|hop| hop.in_flight()).sum::<usize>()
    }

    fn stores(&self) -> impl Iterator<Item = (&Arc<dyn Store>, &Attempts)> {
        let read = self.source.iter().map(|source| (&source.store, &source.attempts));
        let written = self.sink.iter().flat_map(|sink| &sink.targets).map(|target| (&target.store, &target.attempts));
        read.chain(written)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
