//! One run: a random network, a job, and its failures.

use crate::gateway::Gateway;
use crate::lead_node::{Ended, Journal, LeadNode, PART_BYTES, Record};
use crate::message::{Etag, Key, Upload};
use crate::net::{End, Event, Net, NodeId};
use crate::store::{SinkStore, SourceStore};
use rand::Rng;
use std::collections::{BTreeSet, HashMap};
use tradewind_wire::scheduler::{Config, Idle};
use tradewind_wire::shares::RoutePlan;
use tradewind_wire::{Fault, RouteId};

const LEAD: NodeId = 0;
/// Longest duration of a job, whatever happens to it.
const JOB_MS_MAX: u64 = 4 * 3_600_000;
/// Time after the job in which frozen nodes thaw, dead ones return and all late answers arrive.
const QUIET_MS: u64 = 120_000;

/// State that the nodes share: the stores, the journal, and the run's random faults.
pub(crate) struct Shared {
    pub(crate) source: SourceStore,
    pub(crate) sink: SinkStore,
    pub(crate) journal: Journal,
    pub(crate) store_ms_max: u64,
    pub(crate) fault_chance: f64,
    pub(crate) actual_usd: f64,
    plans: Vec<RoutePlan>,
    ceiling_usd_per_gb: Option<f64>,
    job_bytes: u64,
    outage_until_ms: u64,
    refusing_until_ms: HashMap<NodeId, u64>,
}

impl Shared {
    pub(crate) fn price(&self, route: RouteId) -> f64 {
        self.plans[usize::from(route.0)].usd_per_gb
    }

    pub(crate) fn window_requests(&self) -> usize {
        self.plans.iter().map(|plan| plan.window_requests).sum()
    }

    pub(crate) fn source_fault(&self, net: &mut Net, node: NodeId) -> Option<Fault> {
        self.fault(net, node)
    }

    pub(crate) fn sink_fault(&self, net: &mut Net, node: NodeId) -> Option<Fault> {
        let corrupt = net.chance(self.fault_chance / 4.0).then_some(Fault::Corrupt);
        self.fault(net, node).or(corrupt)
    }

    fn fault(&self, net: &mut Net, node: NodeId) -> Option<Fault> {
        if self.refusing_until_ms.get(&node).is_some_and(|until_ms| net.now_ms < *until_ms) {
            return Some(Fault::Refused);
        }
        (net.now_ms < self.outage_until_ms || net.chance(self.fault_chance)).then_some(Fault::Unavailable)
    }

    pub(crate) fn put(&mut self, key: Key, bytes: Vec<u8>) -> Result<(), Fault> {
        self.sink.put(key, bytes)?;
        self.check_visible(key);
        Ok(())
    }

    pub(crate) fn close(&mut self, key: Key, upload: Upload, parts: &[Etag]) -> Result<(), Fault> {
        self.sink.close(key, upload, parts)?;
        self.check_visible(key);
        Ok(())
    }

    /// Checks that a reader sees exactly one version of the source object, at any time.
    fn check_visible(&self, key: Key) {
        let Some(seen) = self.sink.visible(key) else { return };
        let whole = self.source.versions(key).any(|version| self.source.content(key, version) == seen);
        assert!(whole, "object {key} is visible and is no version of the source");
    }

    /// Checks that neither the lead's own count of its cost nor the true cost exceeds the ceiling.
    pub(crate) fn check_cost(&self, spent_usd: f64) {
        let rounding_usd = 1e-15;
        assert!(self.actual_usd <= spent_usd * (1.0 + 1e-9) + rounding_usd, "sent more than was booked");
        if let Some(ceiling) = self.ceiling_usd_per_gb {
            let most_usd = ceiling * self.job_bytes as f64 / 1e9;
            assert!(spent_usd <= most_usd * (1.0 + 1e-6) + rounding_usd, "{spent_usd} is over {most_usd} USD");
        }
    }
}

enum Role {
    Lead(Box<LeadNode>),
    Gateway(Box<Gateway>),
}

/// How a run ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) finished: usize,
    pub(crate) failed: usize,
    pub(crate) lead_lives: u64,
    pub(crate) over_ceiling: usize,
    pub(crate) swept_uploads: usize,
    pub(crate) simulated_ms: u64,
}

impl Summary {
    pub(crate) fn add(&mut self, other: &Summary) {
        self.finished += other.finished;
        self.failed += other.failed;
        self.lead_lives += other.lead_lives;
        self.over_ceiling += other.over_ceiling;
        self.swept_uploads += other.swept_uploads;
        self.simulated_ms += other.simulated_ms;
    }
}

pub(crate) struct World {
    net: Net,
    shared: Shared,
    roles: Vec<Role>,
    deferred: Vec<Vec<Event>>,
    config: Config,
    /// Nodes of each route: source, relays, sink.
    ways: Vec<Vec<NodeId>>,
    connections_per_hop: usize,
    calm: bool,
    over: Option<Idle>,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut net = Net::new(seed, 1 + 3 + 3 + 3);
        let (ways, plans) = topology(&mut net);
        let calm = net.chance(0.05);
        let ceiling_usd_per_gb = net.chance(0.4).then(|| net.rng.random_range(0.03..0.2));
        let mut shared = Shared {
            source: SourceStore::default(),
            sink: SinkStore::default(),
            journal: Journal::default(),
            store_ms_max: [2, 50, 800][net.rng.random_range(0..3)],
            fault_chance: if calm { 0.0 } else { [0.0, 0.02, 0.15][net.rng.random_range(0..3)] },
            actual_usd: 0.0,
            plans: plans.clone(),
            ceiling_usd_per_gb: ceiling_usd_per_gb.filter(|_| !calm),
            job_bytes: 0,
            outage_until_ms: 0,
            refusing_until_ms: HashMap::new(),
        };
        if calm {
            net.never_flip();
        }
        fill_source(&mut net, &mut shared, calm);
        let config = Config {
            routes: plans,
            ceiling_usd_per_gb: shared.ceiling_usd_per_gb,
            ceiling_usd: None,
            ceiling_bytes: None,
            bundle_bytes_max: net.rng.random_range(1..4_000),
            bundle_objects_max: net.rng.random_range(1..10),
            grain_objects_max: net.rng.random_range(1..5),
            duplicate_fraction_max: [0.0, 0.02, 1.0][net.rng.random_range(0..3)],
            rate_limit_bytes_per_s: net.chance(0.2).then(|| net.rng.random_range(2_000..50_000)),
            stall_ms: 600_000,
            first_request: 0,
        };
        let connections_per_hop = net.rng.random_range(1..4);
        let mut world = Self {
            roles: Vec::new(),
            deferred: (0..net.lives.len()).map(|_| Vec::new()).collect(),
            net,
            shared,
            config,
            ways,
            connections_per_hop,
            calm,
            over: None,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for node in 0..self.net.lives.len() {
            let role = self.fresh_role(node);
            self.roles.push(role);
            let at_ms = self.net.rng.random_range(0..500);
            self.net.at(at_ms, Event::Start { node });
        }
        let troubles = if self.calm { 0 } else { self.net.rng.random_range(0..14) };
        let span_ms = [1_000, 10_000, 60_000][self.net.rng.random_range(0..3)];
        for _ in 0..troubles {
            let at_ms = self.net.rng.random_range(0..span_ms);
            self.net.at(at_ms, Event::Chaos);
        }
    }

    fn fresh_role(&mut self, node: NodeId) -> Role {
        let routes = (0..).map(RouteId).zip(&self.ways);
        if node == LEAD {
            let sources = routes.map(|(route, way)| (route, way[0])).collect();
            let life = self.net.lives[LEAD].epoch;
            return Role::Lead(Box::new(LeadNode::new(LEAD, life, self.config.clone(), sources, &mut self.shared)));
        }
        let next = |way: &Vec<NodeId>| way.windows(2).find(|pair| pair[0] == node).map(|pair| pair[1]);
        Role::Gateway(Box::new(Gateway::new(
            node,
            routes.filter_map(|(route, way)| Some((route, next(way)?))).collect(),
        )))
    }

    /// Returns the nodes that `node` dials.
    fn below(&self, node: NodeId) -> BTreeSet<NodeId> {
        if node == LEAD {
            return self.ways.iter().map(|way| way[0]).collect();
        }
        self.ways.iter().flat_map(|way| way.windows(2)).filter(|pair| pair[0] == node).map(|pair| pair[1]).collect()
    }

    pub(crate) fn run(mut self) -> Summary {
        let mut quiet_from_ms = None;
        while let Some(event) = self.net.next() {
            assert!(self.net.now_ms < JOB_MS_MAX, "the job does not end");
            match event {
                Event::Start { node } => self.start(node),
                Event::Thaw { node } => self.thaw(node),
                Event::Chaos if self.over.is_none() => self.chaos(),
                Event::Chaos => {}
                event => {
                    if let Some(node) = self.net.owner(&event) {
                        if self.net.lives[node].frozen {
                            self.deferred[node].push(event);
                        } else {
                            self.dispatch(node, event);
                        }
                    }
                }
            }
            self.count_sent();
            self.look_at_lead();
            if self.over.is_some() {
                let from_ms = *quiet_from_ms.get_or_insert(self.net.now_ms);
                if self.net.now_ms > from_ms + QUIET_MS {
                    break;
                }
            }
        }
        self.check_end()
    }

    fn dispatch(&mut self, node: NodeId, event: Event) {
        let Self { net, shared, roles, .. } = self;
        match event {
            Event::Bytes { to, bytes } => match net.arrived(to, &bytes) {
                Some(arrivals) => {
                    for arrival in arrivals {
                        match &mut roles[node] {
                            Role::Lead(lead) => lead.arrived(net, shared, arrival),
                            Role::Gateway(gateway) => gateway.arrived(net, shared, to, arrival),
                        }
                    }
                }
                None => self.give_up(node, to),
            },
            Event::Closed { to } => {
                if net.closed(to) {
                    self.lost(node, to);
                }
            }
            Event::Due { ticket, .. } => match &mut roles[node] {
                Role::Lead(lead) => lead.pump(net, shared),
                Role::Gateway(gateway) => gateway.due(net, shared, ticket),
            },
            Event::Tick { .. } => self.tick(node),
            Event::Start { .. } | Event::Thaw { .. } | Event::Chaos => {}
        }
    }

    fn give_up(&mut self, node: NodeId, end: End) {
        if self.net.is_open(end) {
            self.net.close(end);
            self.lost(node, end);
        }
    }

    fn lost(&mut self, node: NodeId, end: End) {
        let Self { net, shared, roles, .. } = self;
        match &mut roles[node] {
            Role::Lead(lead) => lead.connection_lost(net, shared, end),
            Role::Gateway(gateway) => gateway.connection_lost(net, end),
        }
    }

    fn tick(&mut self, node: NodeId) {
        for end in self.net.look_for_silence(node) {
            self.give_up(node, end);
        }
        for lower in self.below(node) {
            if self.net.lives[lower].alive && self.net.open(node, lower, false).len() < self.connections_per_hop {
                self.net.dial(node, lower);
            }
        }
        let (epoch, at_ms) = (self.net.lives[node].epoch, self.net.now_ms + self.net.rng.random_range(300..1_000));
        self.net.at(at_ms, Event::Tick { node, epoch });
    }

    fn start(&mut self, node: NodeId) {
        let life = &mut self.net.lives[node];
        if life.alive {
            return;
        }
        life.alive = true;
        life.epoch += 1;
        self.roles[node] = self.fresh_role(node);
        self.tick(node);
        self.dispatch(node, Event::Due { node, epoch: 0, ticket: 0 });
    }

    fn thaw(&mut self, node: NodeId) {
        self.net.lives[node].frozen = false;
        for event in std::mem::take(&mut self.deferred[node]) {
            if self.net.owner(&event) == Some(node) {
                self.dispatch(node, event);
            }
        }
    }

    /// Kills a process. Its kernel may notify the peers, but not if the machine no longer exists.
    fn kill(&mut self, node: NodeId, down_ms: u64) {
        if !self.net.lives[node].alive {
            return;
        }
        let silently = self.net.chance(0.3);
        for end in self.net.ends_of(node) {
            self.net.closed(end);
            self.net.cut(end.0, silently);
        }
        let life = &mut self.net.lives[node];
        life.alive = false;
        life.frozen = false;
        self.deferred[node].clear();
        self.net.at(self.net.now_ms + down_ms, Event::Start { node });
    }

    /// Charges the bytes that left a source for the whole route, however far they got.
    fn count_sent(&mut self) {
        for role in &mut self.roles {
            let Role::Gateway(gateway) = role else { continue };
            for (route, bytes) in gateway.sent.drain(..) {
                self.shared.actual_usd += bytes as f64 / 1e9 * self.shared.price(route);
            }
        }
    }

    fn look_at_lead(&mut self) {
        let Role::Lead(lead) = &self.roles[LEAD] else { return };
        let Some(idle) = lead.over.filter(|_| self.over.is_none() && self.net.lives[LEAD].alive) else { return };
        match idle {
            Idle::Empty if !self.shared.journal.complete() => {
                assert!(lead.is_draining(), "ends with work left");
                self.kill(LEAD, 1_000);
            }
            Idle::Ceiling => {
                assert!(self.shared.ceiling_usd_per_gb.is_some());
                self.over = Some(idle);
            }
            Idle::Empty => self.over = Some(idle),
            other => panic!("{other:?} in a network that always heals"),
        }
    }

    fn chaos(&mut self) {
        let nodes = self.net.lives.len();
        let node = self.net.rng.random_range(0..nodes);
        let ms = self.net.rng.random_range(1..40_000);
        let keys = self.shared.source.list();
        let key = if keys.is_empty() { 0 } else { keys[self.net.rng.random_range(0..keys.len())] };
        match self.net.rng.random_range(0..16) {
            0..=3 => {
                let open = self.net.open_connections();
                if !open.is_empty() {
                    let connection = open[self.net.rng.random_range(0..open.len())];
                    let silently = self.net.chance(0.5);
                    self.net.cut(connection, silently);
                }
            }
            4..=6 => {
                if node == LEAD {
                    self.shared.journal.doubtful.extend(self.shared.journal.records.keys());
                }
                self.kill(node, ms);
            }
            7 | 8 => {
                if self.net.lives[node].alive && !self.net.lives[node].frozen {
                    self.net.lives[node].frozen = true;
                    self.net.at(self.net.now_ms + ms, Event::Thaw { node });
                }
            }
            9 | 10 if !keys.is_empty() => {
                let (_, bytes) = self.shared.source.look(key).expect("it was listed");
                // With a ceiling the size stays, so that "ceiling × all bytes" is one number.
                let changed = if self.shared.ceiling_usd_per_gb.is_some() { bytes } else { ms % (6 * PART_BYTES) };
                self.shared.source.put(key, changed);
            }
            11 => self.shared.source.delete(key),
            12 => {
                if let Role::Lead(lead) = &mut self.roles[LEAD] {
                    lead.drain();
                }
            }
            13 => {
                self.shared.refusing_until_ms.insert(node, self.net.now_ms + ms);
            }
            14 => self.shared.outage_until_ms = self.net.now_ms + ms / 20,
            _ => {
                self.shared.sink.uploads.pop_first();
            }
        }
    }

    fn check_end(&mut self) -> Summary {
        let over = self.over.expect("the queue of events ended before the job");
        let mut summary =
            Summary { lead_lives: self.net.lives[LEAD].epoch, simulated_ms: self.net.now_ms, ..Summary::default() };
        for (key, record) in &self.shared.journal.records {
            match record.ended {
                Some(Ended::Finished(version)) => {
                    summary.finished += 1;
                    assert!(self.shared.sink.visible(*key).is_some(), "object {key} is said to be there and is not");
                    if self.shared.source.versions(*key).count() == 1 {
                        assert_eq!(version, 0);
                    }
                    self.shared.check_visible(*key);
                }
                Some(Ended::Failed(fault)) => {
                    summary.failed += 1;
                    assert!(!self.calm, "object {key} failed with {fault:?} although nothing went wrong");
                }
                None => assert_eq!(over, Idle::Ceiling, "object {key} was forgotten"),
            }
        }
        summary.over_ceiling = usize::from(over == Idle::Ceiling);
        summary.swept_uploads = self.sweep(over);
        self.shared.check_cost(self.shared.journal.spent_usd);
        for (node, role) in self.roles.iter().enumerate() {
            if let Role::Gateway(gateway) = role {
                assert_eq!(gateway.remembers(), 0, "node-{node} still remembers requests");
            }
        }
        summary
    }

    /// Simulates `jobs cancel`: aborts the uploads of keys that the journal marks as doubtful, and all if the job has
    /// not ended. None may be left.
    fn sweep(&mut self, over: Idle) -> usize {
        let mut swept = 0;
        self.shared.sink.uploads.retain(|_, open| {
            let known = over == Idle::Ceiling || self.shared.journal.doubtful.contains(&open.key);
            swept += usize::from(known);
            !known
        });
        let left: Vec<Key> = self.shared.sink.uploads.values().map(|open| open.key).collect();
        assert!(left.is_empty(), "uploads of {left:?} are left open and nobody knows");
        swept
    }
}

/// Returns random routes over 1–3 sources, 0–3 relays and 1–3 sinks.
fn topology(net: &mut Net) -> (Vec<Vec<NodeId>>, Vec<RoutePlan>) {
    let (sources, relays, sinks) =
        (net.rng.random_range(1..=3), net.rng.random_range(0..=3), net.rng.random_range(1..=3));
    let (mut ways, mut plans) = (Vec::new(), Vec::new());
    for id in 0..net.rng.random_range(1..=4) {
        let mut way = vec![1 + net.rng.random_range(0..sources)];
        way.extend((4..4 + relays).filter(|_| net.rng.random_bool(0.4)));
        way.push(7 + net.rng.random_range(0..sinks));
        ways.push(way);
        plans.push(RoutePlan {
            id: RouteId(id),
            share: net.rng.random_range(0.1..1.0),
            usd_per_gb: net.rng.random_range(0.0..0.2),
            window_bytes_min: net.rng.random_range(1_000..20_000),
            window_bytes_start: net.rng.random_range(1_000..40_000),
            window_bytes: net.rng.random_range(1_000..60_000),
            window_requests: net.rng.random_range(1..10),
        });
    }
    (ways, plans)
}

fn fill_source(net: &mut Net, shared: &mut Shared, calm: bool) {
    for key in 0..net.rng.random_range(0..25) {
        let bytes = match net.rng.random_range(0..6) {
            0 => 0,
            1..4 => net.rng.random_range(1..500),
            _ => net.rng.random_range(PART_BYTES..8 * PART_BYTES),
        };
        shared.source.put(key, bytes);
        shared.journal.records.insert(key, Record::listed(bytes));
        shared.job_bytes += bytes;
        if !calm && net.chance(0.03) {
            shared.sink.impossible.insert(key);
        }
        if !calm && net.chance(0.03) {
            shared.source.forbidden.insert(key);
        }
    }
}
