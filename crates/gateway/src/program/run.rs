//! Starts the stations of a program.

use super::environment::Environment;
use super::reroute::{
    DialledHops, HopMaker, Hops, Stations, awaited, downstream_by_route, sources_by_route, stations,
    take_reported_routes,
};
use crate::control::events::EventSender;
use crate::control::metrics::{self, MetricsSnapshot};
use crate::control::runner::{Runner, Running};
use crate::lead::run::{CannotBegin, LeadSetup, Rerouted};
use crate::net::DataPort;
use crate::node::attempts::Attempts;
use crate::node::budget::MemoryBudget;
use crate::node::clock::FreezeDetector;
use crate::node::dedup::window::Window;
use crate::node::inbound::Inbound;
use crate::node::load::StageMeter;
use crate::node::replay::Taken;
use crate::node::reply::Peers;
use crate::node::scope::{ReadScope, WriteScope};
use crate::node::seal::Seal;
use crate::node::sink::{Counts, Fence, Sink, Target};
use crate::node::source::Source;
use crate::node::table::RouteTable;
use crate::tls::Security;
use async_trait::async_trait;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tradewind_contract::{JobSpec, Program, Refusal, RouteSpec, StoreSpec};
use tradewind_store::Store;
use tradewind_wire::WIRE_VERSION_MAJOR;
use tradewind_wire::frame::{Frame, Hello, HopEnd};

/// Time limit for work in flight when a source or sink must stop.
const DRAIN_MAX: Duration = Duration::from_secs(4);
/// Factor of a relay's request timeout over the lead's, whose deadline must come first.
const HOP_PATIENCE: u64 = 2;

/// Starts nodes.
#[derive(Debug, Default)]
pub struct NodeRunner {
    environment: Environment,
}

impl NodeRunner {
    /// Starts nodes in `environment`.
    pub fn new(environment: Environment) -> Self {
        Self { environment }
    }
}

/// The controls of a running lead.
pub(super) struct JobHandle {
    /// Asks the lead to checkpoint.
    stop: CancellationToken,
    /// Cancelled when the lead has ended.
    done: CancellationToken,
    pub(super) rerouted: watch::Sender<Option<Rerouted>>,
}

/// A running node.
pub(super) struct Node {
    name: String,
    hops: Mutex<Hops>,
    pub(super) hop_maker: HopMaker,
    pub(super) source: Option<Arc<Source>>,
    pub(super) sink: Option<Arc<Sink>>,
    pub(super) inbound: Option<Arc<Inbound>>,
    pub(super) dialled: Mutex<DialledHops>,
    peers: Peers,
    pub(super) budget: MemoryBudget,
    pub(super) lead: Option<JobHandle>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[async_trait]
impl Runner for NodeRunner {
    async fn start(
        &self,
        program: Program,
        security: Security,
        data_listener: Option<Box<dyn DataPort>>,
        events: EventSender,
    ) -> Result<Box<dyn Running>, Refusal> {
        let stop = CancellationToken::new();
        match Building::new(&program, security, &self.environment, &stop)?.finish(&program, data_listener, events).await
        {
            Ok(node) => Ok(Box::new(node)),
            Err(refusal) => {
                stop.cancel();
                Err(refusal)
            }
        }
    }
}

/// A node under construction: first the hops, then the stations at their ends.
struct Building<'a> {
    hop_maker: HopMaker,
    budget: MemoryBudget,
    seal: Option<Arc<Seal>>,
    tasks: TaskTracker,
    opened: Mutex<Vec<(StoreSpec, Arc<dyn Store>)>>,
    environment: &'a Environment,
    stop: &'a CancellationToken,
}

impl<'a> Building<'a> {
    fn new(
        program: &Program,
        security: Security,
        environment: &'a Environment,
        stop: &'a CancellationToken,
    ) -> Result<Self, Refusal> {
        let seal = match &program.seal_key_hex {
            Some(hex) => {
                let seal = Seal::from_hex(hex).ok_or_else(|| refusal("seal_key_hex is not 64 hex digits", None))?;
                Some(Arc::new(seal))
            }
            None => None,
        };
        let hop_maker = HopMaker {
            security,
            hello: Hello {
                version: WIRE_VERSION_MAJOR,
                job: program.job_id.clone(),
                node: program.node.clone(),
                end: HopEnd::Upstream,
            },
            silence_max: Duration::from_secs(program.limits.peer_silence_s.max(1).into()),
            request_max: Duration::from_secs(u64::from(program.limits.request_s.max(1)) * HOP_PATIENCE),
            stop: stop.clone(),
            network: environment.network.clone(),
            reports: Arc::default(),
        };
        let (budget, tasks) = (budget(program), TaskTracker::new());
        Ok(Self { hop_maker, budget, seal, tasks, opened: Mutex::default(), environment, stop })
    }

    async fn finish(
        self,
        program: &Program,
        data_listener: Option<Box<dyn DataPort>>,
        events: EventSender,
    ) -> Result<Node, Refusal> {
        let hops: Hops = program.hops.iter().map(|spec| (spec.to.clone(), self.hop_maker.start(spec))).collect();
        let sink = self.sink(program)?;
        let source = self.source(program, &hops, sink.as_ref())?;
        let peers = Peers::default();
        let reports = self.hop_maker.reports.clone();
        take_reported_routes(&reports, program, &hops);
        let is_reached = data_listener.is_some() || !program.dials.is_empty();
        // The lead takes them itself.
        if program.lead.is_none() && is_reached {
            tokio::spawn(reports.pass_on(peers.clone(), self.stop.clone()));
        }
        let inbound =
            is_reached.then(|| Arc::new(self.inbound(program, &hops, source.as_ref(), sink.as_ref(), peers.clone())));
        if let (Some(inbound), Some(listener)) = (&inbound, data_listener) {
            self.tasks.spawn(inbound.clone().listen(listener));
        }
        let dialled = inbound.iter().flat_map(|inbound| {
            program.dials.iter().map(|spec| (spec.upstream.clone(), self.hop_maker.start_dialled(spec, inbound)))
        });
        let dialled = Mutex::new(dialled.collect());
        let lead = match &program.lead {
            Some(job) => Some(self.lead(program, job, &hops, source.as_ref(), events).await?),
            None => None,
        };
        Ok(Node {
            name: program.node.clone(),
            hops: Mutex::new(hops),
            hop_maker: self.hop_maker,
            source,
            sink,
            inbound,
            dialled,
            peers,
            budget: self.budget,
            lead,
            tasks: self.tasks,
            stop: self.stop.clone(),
        })
    }

    fn sink(&self, program: &Program) -> Result<Option<Arc<Sink>>, Refusal> {
        if program.sinks.is_empty() {
            return Ok(None);
        }
        let target = |(index, spec): (u16, &StoreSpec)| {
            let target = Target::new(&program.node, index, self.open_target(spec)?, &program.limits);
            Ok(target.hiding_words(spec.hides_words))
        };
        let targets = (0..).zip(&program.sinks).map(target).collect::<Result<_, Refusal>>()?;
        Ok(Some(Arc::new(Sink {
            targets,
            scope: WriteScope::of(program),
            seal: self.seal.clone(),
            taken: Taken::default(),
            fence: Fence::default(),
            window: Window::new(program.limits.dedup_window_bytes),
            counts: Counts::default(),
            tasks: self.tasks.clone(),
        })))
    }

    fn source(&self, program: &Program, hops: &Hops, sink: Option<&Arc<Sink>>) -> Result<Option<Arc<Source>>, Refusal> {
        let Some(spec) = &program.source else { return Ok(None) };
        let scope =
            ReadScope::of(program).ok_or_else(|| refusal("the program does not say which keys to read", None))?;
        let attempts = Attempts::of_reading(&program.limits);
        Ok(Some(Arc::new(Source {
            store: self.open(spec)?,
            meter: StageMeter::of_reading(&program.node, &attempts),
            attempts,
            budget: self.budget.clone(),
            downstream: RouteTable::new(downstream_by_route(program, hops, sink)?),
            scope,
            seal: self.seal.clone(),
            known: Arc::default(),
            tasks: self.tasks.clone(),
        })))
    }

    fn inbound(
        &self,
        program: &Program,
        hops: &Hops,
        source: Option<&Arc<Source>>,
        sink: Option<&Arc<Sink>>,
        peers: Peers,
    ) -> Inbound {
        let Stations { stations, leads, upstream } = stations(program, hops, sink);
        Inbound {
            security: self.hop_maker.security.clone(),
            hello: self.hop_maker.hello.clone(),
            upstream: RwLock::new(upstream),
            awaited: RwLock::new(awaited(hops)),
            stations: RouteTable::new(stations),
            leads: RouteTable::new(leads),
            source: source.cloned(),
            peers,
            budget: self.budget.clone(),
            silence_max: self.hop_maker.silence_max,
            request_max: self.hop_maker.request_max,
            freezes: FreezeDetector::start(self.hop_maker.silence_max, self.stop.clone()),
            stop: self.stop.clone(),
        }
    }

    async fn lead(
        &self,
        program: &Program,
        job: &JobSpec,
        hops: &Hops,
        source: Option<&Arc<Source>>,
        events: EventSender,
    ) -> Result<JobHandle, Refusal> {
        let (stop, done) = (CancellationToken::new(), CancellationToken::new());
        let (rerouted, changes) = watch::channel(None);
        let source_store = self.open(&job.source)?;
        let targets: Vec<_> =
            job.targets.iter().map(|target| self.open_target(&target.store)).collect::<Result<_, _>>()?;
        let local = program.routes.iter().all(|route| route.nodes.iter().all(|name| *name == program.node));
        // A sink in another process has no credentials for the source.
        if job.server_side_copy && local {
            targets.iter().for_each(|target| target.copy_from(&source_store));
        }
        let setup = LeadSetup {
            job: Arc::new(job.clone()),
            limits: program.limits.clone(),
            routes: program.routes.clone(),
            sources: sources_by_route(program, hops, source)?,
            rerouted: changes,
            local,
            replies: mpsc::unbounded_channel(),
            hop_reports: self.hop_maker.reports.clone(),
            source: source_store,
            targets,
            events,
            stop: stop.clone(),
            background: self.environment.background,
        };
        let work =
            crate::lead::run::begin(setup).await.map_err(|CannotBegin { message, hint }| refusal(message, hint))?;
        let over = done.clone();
        tokio::spawn(async move {
            work.await;
            over.cancel();
        });
        Ok(JobHandle { stop, done, rerouted })
    }

    /// Opens a destination. Links in it are never followed, whatever the job says, so that nothing is written outside
    /// its root.
    fn open_target(&self, spec: &StoreSpec) -> Result<Arc<dyn Store>, Refusal> {
        self.open(&StoreSpec { follow_symlinks: false, ..spec.clone() })
    }

    /// Opens a store, once for all its users in this gateway. They share its pool of connections and its record of
    /// failures.
    fn open(&self, spec: &StoreSpec) -> Result<Arc<dyn Store>, Refusal> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, store)) = opened.iter().find(|(known, _)| known == spec) {
            return Ok(store.clone());
        }
        let store = self.environment.stores.open(spec);
        let store = store.map_err(|error| refusal(error.to_string(), error.hint().map(str::to_owned)))?;
        opened.push((spec.clone(), store.clone()));
        Ok(store)
    }
}

/// The memory budget. If reading and writing are in one process, the memory held is in progress at the stores, so the
/// budget adapts to them. With hops, the hops hold some of it too.
fn budget(program: &Program) -> MemoryBudget {
    let bytes = program.limits.memory_bytes;
    let is_local = program.hops.is_empty() && program.source.is_some() && !program.sinks.is_empty();
    let budget = if is_local { MemoryBudget::adaptive(bytes) } else { MemoryBudget::new(bytes) };
    budget.divide_among(routes_held(program));
    budget
}

/// Number of routes whose bodies are held here: those that begin or end at this gateway.
pub(super) fn routes_held(program: &Program) -> usize {
    let ends_here = |route: &&RouteSpec| {
        route.nodes.get(1).is_some_and(|first| *first == program.node) || route.nodes.last() == Some(&program.node)
    };
    program.routes.iter().filter(ends_here).count()
}

fn refusal(error: impl Into<String>, hint: Option<String>) -> Refusal {
    Refusal { error: error.into(), hint }
}

#[async_trait]
impl Running for Node {
    async fn drain(&self) {
        if let Some(lead) = &self.lead {
            lead.stop.cancel();
            lead.done.cancelled().await;
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

    fn reroute(&self, program: &Program) -> Result<(), Refusal> {
        self.take_routes(program)
    }

    fn metrics(&self) -> MetricsSnapshot {
        let mut snapshot = MetricsSnapshot::default();
        for (name, hop) in self.hops().iter() {
            let labels = || [("from", self.name.clone().into()), ("to", name.clone().into())];
            snapshot.add(&metrics::HOP_BYTES, labels(), hop.counts().sent_bytes.load(Ordering::Relaxed) as f64);
            snapshot.add(&metrics::HOP_CHUNKS, labels(), hop.counts().requests.load(Ordering::Relaxed) as f64);
            snapshot.add(&metrics::HOP_CONNECTIONS, labels(), hop.connections() as f64);
            snapshot.add(&metrics::HOP_SENDERS_LIMIT, labels(), f64::from(hop.concurrency()));
        }
        snapshot.add(&metrics::CHUNKS_IN_FLIGHT, [], self.in_flight() as f64);
        let (held, limit) = self.budget.usage_bytes();
        snapshot.add(&metrics::MEMORY_HELD_BYTES, [], held as f64);
        snapshot.add(&metrics::MEMORY_LIMIT_BYTES, [], limit as f64);
        if let Some(bytes) =
            self.source.as_ref().map(|source| source.known.referenced_bytes()).filter(|bytes| *bytes > 0)
        {
            snapshot.add(&metrics::DEDUPLICATED_BYTES, [], bytes as f64);
        }
        if let Some(counts) = self.sink.as_ref().map(|sink| &sink.counts) {
            let (saved, deduplicated) = counts.saved_bytes();
            snapshot.add(&metrics::SINK_WRITTEN_BYTES, [], counts.written_bytes() as f64);
            snapshot.add(&metrics::SINK_SAVED_BYTES, [], saved as f64);
            snapshot.add(&metrics::SINK_DEDUPLICATED_BYTES, [], deduplicated as f64);
        }
        if let Some((bytes, refused)) = self.sink.as_ref().and_then(|sink| sink.window.usage()) {
            snapshot.add(&metrics::DEDUPLICATION_WINDOW_BYTES, [], bytes as f64);
            snapshot.add(&metrics::DEDUPLICATION_REFUSED, [], refused as f64);
        }
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
                f64::from(attempts.concurrency()),
            );
        }
        snapshot
    }
}

impl Node {
    pub(super) fn hops(&self) -> MutexGuard<'_, Hops> {
        self.hops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_flight(&self) -> usize {
        let at_ends = self.tasks.len().saturating_sub(1);
        at_ends + self.hops().values().map(|hop| hop.in_flight()).sum::<usize>()
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
