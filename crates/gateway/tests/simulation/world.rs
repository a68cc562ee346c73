//! Runs a scenario: one runtime for each gateway, all on one thread, their clocks in step.
//!
//! A gateway is a current-thread runtime with a paused clock that runs a node of the real [`NodeRunner`]. To kill it,
//! its runtime is dropped, with every task at its current await. To freeze it, it is not run; to end the freeze, its
//! clock is advanced in one step.

use crate::buckets::{Buckets, Object, Oracle, StoreFaults, md5_hex};
use crate::interpose;
use crate::network::{HostNetwork, HostPort, Network};
use crate::scenario::{FAULTS_MS, Fault, Scenario, Work, content};
use crate::state::{EPOCH_UNIX_MS, HostId, Shared};
use crate::store::SimulatedStores;
use futures::FutureExt;
use rand::Rng;
use rand::seq::SliceRandom;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tradewind_contract::{
    CONTRACT_VERSION, DialSpec, Event, HopSpec, JobSpec, KeyScope, Outcome, Program, RouteSpec, StoreSpec, Summary,
};
use tradewind_gateway::background::Background;
use tradewind_gateway::control::events::{self, EventReader};
use tradewind_gateway::control::metrics;
use tradewind_gateway::control::runner::{Runner, Running};
use tradewind_gateway::program::{Environment, NodeRunner};
use tradewind_gateway::tls::Security;

/// A job that has not ended this long after everything healed counts as hanging. The time to move its bytes is added.
const JOB_MS_MAX: u64 = 15 * 60_000;
/// Times that each byte may be moved: it may be lost, sent over two routes, or be of a version that is replaced.
const MOVES_MAX: u64 = 2;
/// Time for requests that are in flight after the job, and for those that are applied late.
const SETTLE_MS: u64 = 200_000;
/// Runs of one job, the resumed ones included. After the first nothing goes wrong, so two would do but for what is
/// still landing from before.
const RUNS_MAX: usize = 5;
/// Maximum step of the clock while the world is busy, and while it is idle.
const STEP_MS: std::ops::RangeInclusive<u64> = 10..=250;
const SOURCE_PREFIX: &str = "in/";
const TARGET_PREFIX: &str = "out/";
/// Connections from the lead to a source, as the client plans them.
const LEAD_CONNECTIONS: u16 = 2;

struct Host {
    name: String,
    runtime: Option<Runtime>,
    node: Option<Arc<dyn Running>>,
    frozen_at_ms: Option<u64>,
}

impl Host {
    /// Requests that its node has not answered, or waits for answers to.
    fn in_flight(&self) -> f64 {
        self.node.as_ref().map_or(0.0, |node| figure(&node.metrics(), &metrics::CHUNKS_IN_FLIGHT))
    }
}

fn figure(snapshot: &metrics::MetricsSnapshot, metric: &metrics::Metric) -> f64 {
    snapshot.samples().iter().find(|sample| sample.metric == metric).map_or(0.0, |sample| sample.value)
}

/// The result of a seed.
#[derive(Debug)]
pub(crate) struct Report {
    /// Broken invariants.
    pub(crate) violations: Vec<String>,
    /// Hash of the trace: equal for identical runs.
    pub(crate) trace_hash: u64,
    /// The last lines of the trace.
    pub(crate) trace: String,
    /// Simulated time.
    pub(crate) ms: u64,
    /// Outcomes of the runs.
    pub(crate) outcomes: Vec<String>,
}

/// The running scenario.
pub(crate) struct World {
    scenario: Scenario,
    shared: Shared,
    hosts: Vec<Host>,
    folder: tempfile::TempDir,
    reader: Option<EventReader>,
    idle_steps: u32,
    /// Gateways to start again, and those to thaw, with the time.
    pending: Vec<(u64, Pending)>,
}

enum Pending {
    Restart(HostId),
    Thaw(HostId),
    Heal(HostId, HostId),
}

enum Ended {
    Summary(Box<Summary>),
    Killed,
    Hangs,
}

/// Runs `seed`.
pub(crate) fn run(seed: u64, verbose: bool) -> Report {
    let scenario = Scenario::of(seed);
    interpose::arm(seed, EPOCH_UNIX_MS);
    // Its own thread, so that the standard library's state of each thread is seeded too.
    let world = std::thread::spawn(move || World::new(scenario, verbose).run());
    world.join().unwrap_or_else(|_| panic!("seed {seed} panicked"))
}

impl World {
    fn new(scenario: Scenario, verbose: bool) -> Self {
        let oracle = Oracle {
            source_prefix: SOURCE_PREFIX.to_owned(),
            target_prefix: TARGET_PREFIX.to_owned(),
            moves: scenario.work == Work::Move,
            ..Oracle::default()
        };
        let mut buckets = Buckets::new(&scenario.stated, oracle);
        buckets.conditional = !scenario.seed.is_multiple_of(4);
        let shared = Shared::new(scenario.seed, Network::new(scenario.link), buckets, verbose);
        {
            let mut state = shared.lock();
            for (name, data) in &scenario.objects {
                state.write_source(name, data.clone(), 7_200_000);
            }
            for (target, name, data) in &scenario.existing {
                let modified_unix_ms = EPOCH_UNIX_MS - 3_600_000;
                let object = Object { etag: md5_hex(data), data: data.clone(), modified_unix_ms };
                state.buckets.list[*target].objects.insert(format!("{TARGET_PREFIX}{name}"), object);
            }
            state.trace(format!("{:?} over {:?}", scenario.work, scenario.routes));
            state.trace(format!("faults {:?} {:?}", scenario.store_faults, scenario.faults));
        }
        let host = |name: &String| Host { name: name.clone(), runtime: None, node: None, frozen_at_ms: None };
        let hosts = scenario.hosts.iter().map(host).collect();
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { scenario, shared, hosts, folder, reader: None, idle_steps: 0, pending: Vec::new() }
    }

    fn run(mut self) -> Report {
        let mut outcomes = Vec::new();
        let mut done = false;
        for run in 0..RUNS_MAX {
            let ended = self.run_job(run > 0);
            match ended {
                Ended::Summary(summary) => {
                    outcomes.push(format!("{:?}", summary.outcome));
                    done = summary.outcome == Outcome::Done;
                    if done {
                        self.check_done(&summary);
                    }
                }
                Ended::Killed => outcomes.push("Killed".to_owned()),
                Ended::Hangs => {
                    self.shared.lock().violation("the job does not end".to_owned());
                    break;
                }
            }
            self.end_hosts();
            if done {
                break;
            }
            let pause_ms = self.shared.lock().rng.random_range(1..5_000);
            self.pass(pause_ms);
        }
        if !done && self.shared.lock().violations.is_empty() {
            let last = format!("the job was resumed without any fault and is not done: {outcomes:?}");
            self.shared.lock().violation(last);
        }
        // Requests of a dead program may still be applied.
        self.pass(SETTLE_MS);
        if done {
            self.check_contents();
            self.check_uploads();
        }
        let state = self.shared.lock();
        Report {
            violations: state.violations.clone(),
            trace_hash: state.trace_hash(),
            trace: state.last_lines(),
            ms: state.now_ms,
            outcomes,
        }
    }

    fn run_job(&mut self, resume: bool) -> Ended {
        let started_ms = self.shared.lock().now_ms;
        let mut faults = if resume { Vec::new() } else { self.scenario.faults.clone() };
        faults.reverse();
        self.shared.lock().buckets.faults = if resume { StoreFaults::default() } else { self.scenario.store_faults };
        // From the sinks' end to the lead's, which begins at once.
        for host in (0..self.hosts.len()).rev() {
            self.start(host, resume);
        }
        let mut healed = resume;
        loop {
            let now_ms = self.shared.lock().now_ms;
            let elapsed_ms = now_ms - started_ms;
            if !healed && elapsed_ms > FAULTS_MS {
                self.heal();
                healed = true;
            }
            self.run_pending(now_ms, healed);
            while let Some((_, fault)) = faults.pop_if(|(at_ms, _)| *at_ms <= elapsed_ms) {
                if matches!(fault, Fault::KillAll) {
                    self.shared.lock().trace("the client is killed".to_owned());
                    return Ended::Killed;
                }
                self.inject(fault);
            }
            if let Some(summary) = self.summary() {
                return Ended::Summary(summary);
            }
            if elapsed_ms > FAULTS_MS + JOB_MS_MAX + self.moving_ms_max() {
                return Ended::Hangs;
            }
            let next_fault_ms = faults.last().map(|(at_ms, _)| started_ms + at_ms);
            self.step(next_fault_ms.unwrap_or(u64::MAX));
        }
    }

    /// Time in which a single connection moves all objects to all destinations.
    fn moving_ms_max(&self) -> u64 {
        let Scenario { objects, stated, link, .. } = &self.scenario;
        let bytes: u64 = objects.iter().map(|(_, data)| data.len() as u64).sum();
        MOVES_MAX * bytes * (stated.len() as u64 - 1) / link.bytes_per_ms_min(*STEP_MS.start())
    }

    /// Advances the time without running a gateway.
    fn pass(&mut self, ms: u64) {
        let until_ms = self.shared.lock().now_ms + ms;
        while self.shared.lock().now_ms < until_ms {
            self.step(until_ms);
        }
    }

    fn step(&mut self, until_ms: u64) {
        let before = {
            let mut state = self.shared.lock();
            let cap_ms = (STEP_MS.start() << (self.idle_steps / 4).min(10)).min(*STEP_MS.end());
            let pending = self.pending.iter().map(|(at_ms, _)| *at_ms).min();
            let due = [state.next_due_ms(), state.network.next_due_ms(), pending, Some(until_ms)];
            let next_ms = due.into_iter().flatten().min().unwrap_or(u64::MAX);
            let step_ms = next_ms.saturating_sub(state.now_ms).clamp(1, cap_ms);
            state.now_ms += step_ms;
            interpose::set_unix_ms(state.unix_ms());
            let now_ms = state.now_ms;
            state.network.deliver(now_ms);
            state.run_due();
            (state.activity, step_ms)
        };
        let (activity, step_ms) = before;
        let mut order: Vec<HostId> = (0..self.hosts.len()).collect();
        order.shuffle(&mut self.shared.lock().rng);
        for host in order {
            if let Some(runtime) = self.hosts[host].runtime.as_ref().filter(|_| self.hosts[host].frozen_at_ms.is_none())
            {
                runtime.block_on(async { tokio::time::sleep(Duration::from_millis(step_ms)).await });
            }
        }
        let busy = self.shared.lock().activity != activity;
        if busy {
            self.check_memory();
        }
        self.idle_steps = if busy { 0 } else { self.idle_steps + 1 };
    }

    fn check_memory(&self) {
        for host in &self.hosts {
            let Some(node) = &host.node else { continue };
            let snapshot = node.metrics();
            let held = figure(&snapshot, &metrics::MEMORY_HELD_BYTES);
            let limit = figure(&snapshot, &metrics::MEMORY_LIMIT_BYTES);
            if held > limit {
                self.shared.lock().violation(format!("{} holds {held} bytes, its limit is {limit}", host.name));
            }
            let kept = figure(&snapshot, &metrics::DEDUPLICATION_WINDOW_BYTES);
            if kept > self.scenario.limits.dedup_window_bytes as f64 {
                self.shared.lock().violation(format!("{} keeps {kept} bytes in its window", host.name));
            }
        }
    }

    fn inject(&mut self, fault: Fault) {
        let now_ms = self.shared.lock().now_ms;
        self.shared.lock().trace(format!("fault {fault:?}"));
        match fault {
            Fault::Cut { pipe, bytes } => {
                let mut state = self.shared.lock();
                let live = state.network.live_pipes();
                if !live.is_empty() {
                    state.network.cut_after(live[(pipe % live.len() as u64) as usize], bytes);
                }
            }
            Fault::Block { from, to, both, ms } => {
                let pairs = if both { vec![(from, to), (to, from)] } else { vec![(from, to)] };
                for (from, to) in pairs {
                    self.shared.lock().network.block(from, to);
                    self.pending.push((now_ms + ms, Pending::Heal(from, to)));
                }
            }
            Fault::Kill { host, silently, restart_after_ms } => {
                self.kill(host, silently);
                let restart = restart_after_ms.map(|after_ms| (now_ms + after_ms, Pending::Restart(host)));
                self.pending.extend(restart);
            }
            Fault::Freeze { host, ms } => {
                if self.hosts[host].runtime.is_some() && self.hosts[host].frozen_at_ms.is_none() {
                    self.hosts[host].frozen_at_ms = Some(now_ms);
                    self.pending.push((now_ms + ms, Pending::Thaw(host)));
                }
            }
            Fault::Drain => {
                let lead = &self.hosts[0];
                if let (Some(runtime), Some(node)) = (&lead.runtime, lead.node.clone()) {
                    drop(runtime.spawn(async move { node.drain().await }));
                }
            }
            Fault::Rewrite { object } => {
                let mut state = self.shared.lock();
                let (name, before) = self.scenario.objects[object].clone();
                if state.buckets.list[0].objects.contains_key(&format!("{SOURCE_PREFIX}{name}")) {
                    let bytes = if state.rng.random_bool(0.5) { before.len() } else { before.len() + 7 };
                    let data = content(&mut state.rng, bytes);
                    state.write_source(&name, data, 0);
                }
            }
            Fault::KillAll => {}
        }
    }

    fn run_pending(&mut self, now_ms: u64, resume: bool) {
        while let Some(at) = self.pending.iter().position(|(at_ms, _)| *at_ms <= now_ms) {
            match self.pending.remove(at).1 {
                Pending::Restart(host) if self.hosts[host].runtime.is_none() => self.start(host, resume),
                Pending::Restart(_) => {}
                Pending::Thaw(host) => self.thaw(host),
                Pending::Heal(from, to) => self.shared.lock().network.heal(from, to),
            }
        }
    }

    /// Heals all faults now, except gateways that stay dead.
    fn heal(&mut self) {
        self.shared.lock().buckets.faults = StoreFaults::default();
        for (at_ms, _) in &mut self.pending {
            *at_ms = 0;
        }
    }

    fn thaw(&mut self, host: HostId) {
        let now_ms = self.shared.lock().now_ms;
        let Some(frozen_at_ms) = self.hosts[host].frozen_at_ms.take() else { return };
        if let Some(runtime) = &self.hosts[host].runtime {
            runtime.block_on(tokio::time::advance(Duration::from_millis(now_ms - frozen_at_ms)));
        }
        self.shared.lock().trace(format!("{} thaws", self.hosts[host].name));
    }

    fn kill(&mut self, host: HostId, silently: bool) {
        self.hosts[host].frozen_at_ms = None;
        if self.hosts[host].runtime.is_none() {
            return;
        }
        self.shared.lock().network.host_died(host, silently);
        self.hosts[host].node = None;
        self.hosts[host].runtime = None;
    }

    fn end_hosts(&mut self) {
        self.pending.retain(|(_, pending)| matches!(pending, Pending::Heal(..)));
        self.heal();
        self.run_pending(0, true);
        self.reader = None;
        for host in 0..self.hosts.len() {
            self.kill(host, false);
        }
    }

    fn start(&mut self, host: HostId, resume: bool) {
        let program = self.program(host, resume);
        let address = address(host);
        self.shared.lock().network.host_started(host, &address);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without drivers of the system");
        let runner = NodeRunner::new(Environment {
            network: Arc::new(HostNetwork { shared: self.shared.clone(), host }),
            stores: Arc::new(SimulatedStores(self.shared.clone())),
            background: Background::Inline,
        });
        let port = Box::new(HostPort { shared: self.shared.clone(), address });
        let (sender, log) = events::channel();
        let node = runtime.block_on(runner.start(program, Security::Plain, Some(port), sender));
        match node {
            Ok(node) => {
                self.hosts[host].node = Some(node.into());
                self.hosts[host].runtime = Some(runtime);
            }
            Err(refusal) => {
                self.shared.lock().violation(format!("{} refuses: {}", self.hosts[host].name, refusal.error))
            }
        }
        if host == 0 {
            self.reader = Some(log.subscribe());
        }
    }

    fn program(&self, host: HostId, resume: bool) -> Program {
        let scenario = &self.scenario;
        let name = &scenario.hosts[host];
        let share = 1.0 / scenario.routes.len() as f64;
        let routes: Vec<RouteSpec> = (0u16..)
            .zip(&scenario.routes)
            .filter(|(_, nodes)| nodes.contains(name))
            .map(|(id, nodes)| RouteSpec { id, nodes: nodes.clone(), share, usd_per_gb: 0.0 })
            .collect();
        let (mut hops, mut dials): (Vec<HopSpec>, Vec<DialSpec>) = (Vec::new(), Vec::new());
        let address_of = |name: &String| {
            address(scenario.hosts.iter().position(|host| host == name).expect("a host of the scenario"))
        };
        for pair in routes.iter().flat_map(|route| route.nodes.windows(2)).filter(|pair| pair[0] != pair[1]) {
            let (from, to) = (&pair[0], &pair[1]);
            let is_opened_downstream = scenario.opened_downstream.contains(&(from.clone(), to.clone()));
            let connections = if *from == scenario.hosts[0] { LEAD_CONNECTIONS } else { scenario.connections };
            if from == name && hops.iter().all(|hop| hop.to != *to) {
                let address = (!is_opened_downstream).then(|| address_of(to));
                hops.push(HopSpec { to: to.clone(), address, connections });
            }
            if to == name && is_opened_downstream && dials.iter().all(|dial| dial.upstream != *from) {
                dials.push(DialSpec { upstream: from.clone(), address: address_of(from), connections });
            }
        }
        let is_source = routes.iter().any(|route| route.nodes[1] == *name);
        let is_sink = routes.iter().any(|route| route.nodes.last() == Some(name));
        Program {
            contract: CONTRACT_VERSION,
            job_id: "simulated".to_owned(),
            node: name.clone(),
            hops,
            dials,
            lead: (host == 0).then(|| self.job(resume)),
            source: is_source.then(|| store("s3://source")),
            sinks: if is_sink { self.targets() } else { Vec::new() },
            reads: (is_source && host > 0).then(|| KeyScope::Prefix { prefix: SOURCE_PREFIX.to_owned() }),
            writes: if is_sink && host > 0 {
                vec![KeyScope::Prefix { prefix: TARGET_PREFIX.to_owned() }; scenario.stated.len() - 1]
            } else {
                Vec::new()
            },
            copies: None,
            seal_key_hex: (is_source || is_sink).then(|| "0a".repeat(32)),
            limits: scenario.limits.clone(),
            routes,
        }
    }

    fn targets(&self) -> Vec<StoreSpec> {
        (1..self.scenario.stated.len()).map(|number| store(&format!("s3://target-{number}"))).collect()
    }

    fn job(&self, resume: bool) -> JobSpec {
        let scenario = &self.scenario;
        let targets: Vec<_> = self
            .targets()
            .into_iter()
            .map(|store| serde_json::json!({ "store": store, "key": TARGET_PREFIX }))
            .collect();
        let folder: PathBuf = self.folder.path().join("job");
        let codec = ["auto", "lz4", "zstd:1", "zstd:9"][scenario.seed as usize % 4];
        let mut job = serde_json::json!({
            "source": store("s3://source"),
            "selection": { "kind": "prefix", "prefix": SOURCE_PREFIX },
            "targets": targets,
            "delete_source": scenario.work == Work::Move,
            "verify": if scenario.verify_read { "read" } else { "auto" },
            "allow_empty": true,
            "chunk_bytes": scenario.chunk_bytes,
            "compress": scenario.compress,
            "codec": codec,
            "deduplicate": scenario.deduplicate,
            "stall_s": scenario.stall_s,
            "duplicate_fraction_max": scenario.duplicate_fraction_max,
            "state_dir": folder,
            "resume": resume,
        });
        if scenario.work == Work::Sync {
            job["compare"] = "auto".into();
            job["delete"] = serde_json::json!({ "over_half": true });
        }
        serde_json::from_value(job).expect("a job of the contract")
    }

    fn summary(&mut self) -> Option<Box<Summary>> {
        let mut ended = None;
        while let Some(Some(batch)) = self.reader.as_mut().and_then(|reader| reader.next().now_or_never()) {
            for line in batch.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                match serde_json::from_slice(line) {
                    Ok(Event::Done(summary)) => {
                        self.shared.lock().trace(format!("done {:?} {:?}", summary.outcome, summary.message));
                        ended = Some(Box::new(summary));
                    }
                    Ok(Event::Progress(_)) => {}
                    Ok(other) => self.shared.lock().trace(format!("event {other:?}")),
                    Err(error) => self.shared.lock().violation(format!("an event does not parse: {error}")),
                }
            }
        }
        ended
    }

    /// Checks the invariants when the job reports that it is done, while its gateways still run.
    fn check_done(&mut self, summary: &Summary) {
        if summary.progress.objects_failed > 0 {
            self.shared.lock().violation("the job is done and objects failed".to_owned());
        }
        self.check_contents();
        let until_ms = self.shared.lock().now_ms + SETTLE_MS;
        self.heal();
        while self.shared.lock().now_ms < until_ms && self.hosts.iter().any(|host| host.in_flight() > 0.0) {
            let now_ms = self.shared.lock().now_ms;
            self.run_pending(now_ms, true);
            self.step(until_ms);
        }
        for host in &self.hosts {
            let in_flight = host.in_flight();
            if in_flight > 0.0 {
                let what = format!("{in_flight} requests are in flight at {} long after the job", host.name);
                self.shared.lock().violation(what);
            }
        }
    }

    /// Checks that no upload is left once no request is in flight.
    fn check_uploads(&self) {
        let mut state = self.shared.lock();
        let targets = state.buckets.list.iter().enumerate().skip(1);
        let left = targets.flat_map(|(number, target)| target.uploads.values().map(move |upload| (number, upload)));
        let left = left.filter(|(_, upload)| !upload.late);
        let left: Vec<_> = left
            .map(|(number, upload)| format!("an upload of {} is left at destination {number}", upload.key))
            .collect();
        left.into_iter().for_each(|what| state.violation(what));
    }

    /// Checks the objects of the stores once the job is done.
    fn check_contents(&self) {
        let mut state = self.shared.lock();
        let mut wrong = Vec::new();
        let versions = &state.buckets.oracle.versions;
        for (number, target) in state.buckets.list.iter().enumerate().skip(1) {
            for (name, versions) in versions {
                match target.objects.get(&format!("{TARGET_PREFIX}{name}")) {
                    None => wrong.push(format!("{name} is missing at destination {number}")),
                    Some(object) if !versions.contains(&object.data) => {
                        wrong.push(format!("{name} has wrong bytes at destination {number}"));
                    }
                    Some(_) => {}
                }
            }
            let left = target.objects.keys().filter_map(|key| key.strip_prefix(TARGET_PREFIX));
            let extraneous = left.filter(|name| !versions.contains_key(*name)).count();
            if self.scenario.work == Work::Sync && extraneous > 0 {
                wrong.push(format!("{extraneous} objects were not deleted at destination {number}"));
            }
        }
        if self.scenario.work == Work::Move && !state.buckets.list[0].objects.is_empty() {
            wrong.push("sources are left".to_owned());
        }
        wrong.into_iter().for_each(|what| state.violation(what));
    }
}

fn address(host: HostId) -> String {
    format!("10.0.0.{host}:7000")
}

fn store(url: &str) -> StoreSpec {
    StoreSpec { url: url.to_owned(), ..StoreSpec::default() }
}
