//! The control socket: one JSON line with a request, one JSON line with the answer, then the connection is closed.

use crate::carrier::Carrier;
use crate::engine::{Engine, Lateness, MachineState, PathChange};
use crate::fault::Fault;
use crate::namespace::{self, Namespace};
use crate::network::{DELAY_US_MAX, Network};
use crate::packet::Packet;
use crate::pipe::PipeSpec;
use crate::processes::{NamespaceId, namespace_id, signal_all};
use crate::report::{self, Description, MachineDescription, Stats};
use nix::sys::signal::Signal;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Minimum length, in MTU-sized packets, of a queue that is adapted to a changed rate.
const QUEUE_PACKETS_MIN: u64 = 64;

/// A request.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Returns machines, addresses, namespaces and states.
    Describe {},
    /// Returns the present state of all paths.
    Links {},
    /// Returns the counts.
    Stats {},
    /// Sets all counts to zero.
    Reset {},
    /// Changes all paths from `src` to `dst`; each is a machine, a region or `*`. Absent fields stay unchanged.
    Link {
        /// The sender.
        src: String,
        /// The receiver.
        dst: String,
        /// Rate of the pipes that the paths use.
        rate_bps: Option<u64>,
        /// Queue length of these pipes; follows the rate unless given.
        queue_bytes: Option<u64>,
        /// Delay, one way.
        delay_us: Option<u64>,
        /// Share of packets lost at random.
        loss: Option<f64>,
        /// False cuts the paths.
        up: Option<bool>,
    },
    /// Changes machines: one by name, all of a region, or all with `*`.
    Machine {
        /// The machine, region or `*`.
        name: String,
        /// Cap on outgoing traffic.
        egress_bps: Option<u64>,
        /// Cap on incoming traffic.
        ingress_bps: Option<u64>,
        /// Congestion control of new connections.
        congestion_control: Option<String>,
        /// Running, frozen or gone.
        state: Option<StateWord>,
    },
    /// Ends the emulator.
    Stop {},
}

/// The name of a state in a request.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateWord {
    /// Runs normally.
    Running,
    /// Paused.
    Frozen,
    /// Without power.
    Gone,
}

/// A running network, as the control socket sees it.
pub struct World {
    network: Arc<Network>,
    netns: Vec<OwnedFd>,
    ids: Vec<NamespaceId>,
    carrier: Carrier,
    counting_since: Instant,
}

impl World {
    /// Starts to carry packets.
    pub fn start(network: Network, namespaces: Vec<Namespace>) -> Result<Self, Fault> {
        let engine = Engine::<Packet>::new(&network);
        let (netns, devices): (Vec<_>, Vec<_>) = namespaces.into_iter().map(|made| (made.netns, made.device)).unzip();
        let ids = netns.iter().map(|netns| namespace_id(&format!("/proc/self/fd/{}", netns.as_raw_fd())));
        let ids: Option<Vec<_>> = ids.collect();
        let ids = ids.ok_or_else(|| Fault::failed("/proc is not mounted"))?;
        let carrier = Carrier::start(engine, devices, &network)?;
        Ok(Self { network: Arc::new(network), netns, ids, carrier, counting_since: Instant::now() })
    }

    /// Stops carrying packets.
    pub fn stop(self) {
        self.carrier.stop();
    }

    /// Answers one request; the caller handles `stop`.
    pub fn answer(&mut self, request: Request) -> Value {
        let answered = match request {
            Request::Describe {} => self.describe().map(|description| json!(description)),
            Request::Links {} => self.links(),
            Request::Stats {} => self.stats().map(|stats| json!(stats)),
            Request::Reset {} => {
                self.counting_since = Instant::now();
                self.carrier.with_engine(|engine, _| engine.reset_counts()).map(|()| json!({}))
            }
            link @ Request::Link { .. } => self.change_links(link),
            machine @ Request::Machine { .. } => self.change_machines(machine),
            Request::Stop {} => Ok(json!({})),
        };
        match answered {
            Ok(Value::Object(mut fields)) => {
                fields.insert("ok".into(), Value::Bool(true));
                Value::Object(fields)
            }
            Ok(other) => json!({"ok": true, "answer": other}),
            Err(fault) => refusal(&fault),
        }
    }

    /// Describes machines, addresses, namespaces and states.
    pub fn describe(&self) -> Result<Description, Fault> {
        let states = self.carrier.with_engine(|engine, _| {
            (0..engine.machines()).map(|machine| engine.machine_state(machine)).collect::<Vec<_>>()
        })?;
        let machines = self.network.machines.iter().zip(&self.netns).zip(states).map(|((machine, netns), state)| {
            MachineDescription {
                name: machine.name.clone(),
                region: machine.region.clone(),
                address: machine.address.to_string(),
                inbound: machine.inbound,
                netns_fd: netns.as_raw_fd(),
                state: report::state_word(state),
            }
        });
        Ok(Description { pid: std::process::id(), realtime: self.carrier.realtime, machines: machines.collect() })
    }

    fn links(&self) -> Result<Value, Fault> {
        let network = Arc::clone(&self.network);
        let links = self.carrier.with_engine(move |engine, _| report::links(&network, engine))?;
        Ok(json!({ "links": links }))
    }

    fn stats(&self) -> Result<Stats, Fault> {
        let network = Arc::clone(&self.network);
        let counted = move |engine: &mut Engine<Packet>, _| (engine.lateness(), report::path_stats(&network, engine));
        let (lateness, paths): (Lateness, _) = self.carrier.with_engine(counted)?;
        let (late_us_mean, late_us_max) = report::lateness_us(&lateness);
        Ok(Stats {
            elapsed_us: self.counting_since.elapsed().as_micros() as u64,
            delivered: lateness.released,
            late_us_mean,
            late_us_max,
            overflows: lateness.overflows,
            paths,
        })
    }

    fn change_links(&self, request: Request) -> Result<Value, Fault> {
        let Request::Link { src, dst, rate_bps, queue_bytes, delay_us, loss, up } = request else {
            unreachable!("called for links alone")
        };
        if delay_us.is_some_and(|delay_us| delay_us > DELAY_US_MAX)
            || loss.is_some_and(|loss| !(0.0..=1.0).contains(&loss))
        {
            return Err(Fault::usage("delay or loss is out of range"));
        }
        let (from, to) = (self.selected(&src)?, self.selected(&dst)?);
        let pairs: Vec<(usize, usize)> = self.network.paths.iter().map(|path| (path.src, path.dst)).collect();
        let pairs: Vec<_> = pairs.into_iter().filter(|pair| from.contains(&pair.0) && to.contains(&pair.1)).collect();
        if pairs.is_empty() {
            return Err(Fault::usage(format!("there is no link from {src} to {dst}")));
        }
        let queue_bytes_min = QUEUE_PACKETS_MIN * u64::from(self.network.mtu_bytes);
        let change = PathChange { delay_ns: delay_us.map(|delay_us| delay_us * 1_000), loss, up };
        self.carrier.with_engine(move |engine, now| {
            let mut pipes = std::collections::BTreeMap::new();
            for (src, dst) in &pairs {
                if let Some(view) = engine.path(*src, *dst) {
                    pipes.insert(view.pipe, changed_pipe(view.spec, rate_bps, queue_bytes, queue_bytes_min));
                }
            }
            if let Some(wrong) = pipes.values().find_map(PipeSpec::wrong) {
                return Err(Fault::usage(wrong));
            }
            pipes.into_iter().for_each(|(pipe, spec)| engine.set_pipe(pipe, spec));
            pairs.iter().for_each(|(src, dst)| engine.change_path(now, *src, *dst, change));
            Ok(json!({ "changed": pairs.len() }))
        })?
    }

    fn change_machines(&self, request: Request) -> Result<Value, Fault> {
        let Request::Machine { name, egress_bps, ingress_bps, congestion_control, state } = request else {
            unreachable!("called for machines alone")
        };
        let machines = self.selected(&name)?;
        if let Some(control) = congestion_control {
            let chosen: Vec<_> = machines.iter().map(|machine| &self.netns[*machine]).collect();
            namespace::choose_control(&chosen, &control)?;
        }
        let queue_bytes_min = QUEUE_PACKETS_MIN * u64::from(self.network.mtu_bytes);
        let which = machines.clone();
        self.carrier
            .with_engine(move |engine, _| change_caps(engine, &which, egress_bps, ingress_bps, queue_bytes_min))??;
        if let Some(word) = state {
            self.change_state(&machines, word)?;
        }
        Ok(json!({ "changed": machines.len() }))
    }

    /// Changes the state of machines. The network is cut before processes are killed, so that no other machine sees
    /// them end.
    fn change_state(&self, machines: &HashSet<usize>, word: StateWord) -> Result<(), Fault> {
        let (state, signal) = match word {
            StateWord::Running => (MachineState::Running, Signal::SIGCONT),
            StateWord::Frozen => (MachineState::Frozen, Signal::SIGSTOP),
            StateWord::Gone => (MachineState::Gone, Signal::SIGKILL),
        };
        let which = machines.clone();
        self.carrier.with_engine(move |engine, now| {
            which.iter().for_each(|machine| engine.set_machine_state(now, *machine, state));
        })?;
        signal_all(&machines.iter().map(|machine| self.ids[*machine]).collect(), signal);
        Ok(())
    }

    /// Selects machines by name, by region, or all with `*`.
    fn selected(&self, selector: &str) -> Result<HashSet<usize>, Fault> {
        let machines = self.network.machines.iter().enumerate();
        let chosen =
            machines.filter(|(_, machine)| selector == "*" || machine.name == selector || machine.region == selector);
        let chosen: HashSet<usize> = chosen.map(|(index, _)| index).collect();
        if chosen.is_empty() {
            return Err(Fault::usage(format!("there is no machine and no region {selector}")));
        }
        Ok(chosen)
    }
}

/// The answer to a request that failed.
pub fn refusal(fault: &Fault) -> Value {
    json!({"ok": false, "error": fault.to_string(), "hint": fault.hint()})
}

fn changed_pipe(spec: PipeSpec, rate_bps: Option<u64>, queue_bytes: Option<u64>, queue_bytes_min: u64) -> PipeSpec {
    let spec = rate_bps.map_or(spec, |rate_bps| spec.at_rate(rate_bps, queue_bytes_min));
    PipeSpec { queue_bytes: queue_bytes.unwrap_or(spec.queue_bytes), ..spec }
}

fn change_caps(
    engine: &mut Engine<Packet>,
    machines: &HashSet<usize>,
    egress_bps: Option<u64>,
    ingress_bps: Option<u64>,
    queue_bytes_min: u64,
) -> Result<(), Fault> {
    // 50 ms, the default of a sky file for caps.
    let fresh = |rate_bps: u64| PipeSpec { rate_bps, queue_bytes: (rate_bps / 8 / 20).max(queue_bytes_min) };
    let caps = [egress_bps, ingress_bps].map(|rate_bps| rate_bps.map(fresh));
    if let Some(wrong) = caps.iter().flatten().find_map(PipeSpec::wrong) {
        return Err(Fault::usage(wrong));
    }
    for machine in machines {
        let (egress, ingress) = engine.caps(*machine);
        engine.set_caps(*machine, caps[0].or(egress), caps[1].or(ingress));
    }
    Ok(())
}
