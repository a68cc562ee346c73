//! Decides when each packet leaves and which packets are dropped. The caller passes the time; the engine never reads a
//! clock.
//!
//! A parcel goes through up to four stages. Each stage that takes time ends in an event, and events are handled in
//! order of their times. Each stage is computed from the event's own time rather than the moment at which the host
//! handled it, so delays of the host do not accumulate.

use crate::Nanos;
use crate::loss::Loss;
use crate::network::Network;
use crate::pipe::{Pipe, PipeSpec};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Most memory for packets in transit, over all paths. Packets beyond it are dropped and counted as overflow, which
/// makes the run invalid. A path of 1 Gbit/s and 400 ms with a queue of the same length holds 100 MB.
pub const HELD_BYTES_MAX: u64 = 512 << 20;

/// One packet in transit, or several packets of one flow that the kernel joined.
pub trait Parcel: Sized {
    /// Number of packets on the wire.
    fn packets(&self) -> u32;
    /// Bytes on the wire of all its packets, including headers and framing.
    fn wire_bytes(&self) -> u64;
    /// Bytes on the wire of its longest packet.
    fn packet_bytes(&self) -> u64;
    /// Memory that it occupies, in bytes.
    fn held_bytes(&self) -> u64;
    /// Returns a parcel with only these packets. The range is never empty and never beyond `packets`.
    fn cut(&self, range: Range<u32>) -> Self;
}

/// State of an emulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// Runs normally.
    Running,
    /// Paused: its processes are stopped, its packets lost.
    Frozen,
    /// Without power.
    Gone,
}

/// Counts of one path. Packets are those on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// Packets that the path's pipe accepted.
    pub packets: u64,
    /// Bytes of these packets.
    pub wire_bytes: u64,
    /// Packets dropped because the queue of the pipe or of a cap was full.
    pub queue_drops: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets lost because the path was cut or a machine was not running.
    pub cut: u64,
}

/// Counts of the engine itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Parcels released.
    pub released: u64,
    /// Sum of the parcels' lateness: the time from being due to being released.
    pub sum_ns: u64,
    /// Greatest lateness of one parcel.
    pub max_ns: u64,
    /// Packets dropped because of [`HELD_BYTES_MAX`].
    pub overflows: u64,
}

/// A parcel that reaches its destination.
#[derive(Debug)]
pub struct Departure<P> {
    /// Machine that receives it.
    pub dst: usize,
    /// Machine that sent it.
    pub src: usize,
    /// When it was due.
    pub due: Nanos,
    /// The parcel.
    pub parcel: P,
}

struct MachineAtWork {
    egress: Option<Pipe>,
    ingress: Option<Pipe>,
    state: MachineState,
    /// Parcels accepted before this moment that have not arrived are lost.
    lost_before: Nanos,
}

struct PathAtWork {
    pipe: usize,
    delay_ns: Nanos,
    loss: Loss,
    up: bool,
    lost_before: Nanos,
    /// Arrival time of the last parcel. No later parcel arrives before it, even if the delay is reduced.
    last_arrival: Nanos,
    counts: PathCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// It has left the egress cap.
    EntersPipe,
    /// It has crossed the path.
    Arrives,
    /// It has left the ingress cap.
    Delivered,
}

struct Held<P> {
    stage: Stage,
    src: usize,
    dst: usize,
    accepted: Nanos,
    parcel: P,
}

/// All machines, pipes and paths, and the parcels in transit.
pub struct Engine<P> {
    machines: Vec<MachineAtWork>,
    pipes: Vec<Pipe>,
    /// Indexed by `src * machines.len() + dst`.
    paths: Vec<Option<PathAtWork>>,
    /// Due time, order of insertion, index in `held`.
    events: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    held: Vec<Option<Held<P>>>,
    free_places: Vec<usize>,
    held_bytes: u64,
    inserted: u64,
    lateness: Lateness,
}

impl<P: Parcel> Engine<P> {
    /// An idle engine for a network that has been checked.
    pub fn new(network: &Network) -> Self {
        let count = network.machines.len();
        let machines = network.machines.iter().map(|machine| MachineAtWork {
            egress: machine.egress.map(Pipe::new),
            ingress: machine.ingress.map(Pipe::new),
            state: MachineState::Running,
            lost_before: 0,
        });
        let mut paths: Vec<Option<PathAtWork>> = (0..count * count).map(|_| None).collect();
        for path in &network.paths {
            let index = path.src * count + path.dst;
            paths[index] = Some(PathAtWork {
                pipe: path.pipe,
                delay_ns: path.delay_us * 1_000,
                // Each path has its own sequence, so that paths do not influence each other.
                loss: Loss::new(
                    path.loss,
                    network.seed.wrapping_add((index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
                ),
                up: true,
                lost_before: 0,
                last_arrival: 0,
                counts: PathCounts::default(),
            });
        }
        Self {
            machines: machines.collect(),
            pipes: network.pipes.iter().copied().map(Pipe::new).collect(),
            paths,
            events: BinaryHeap::new(),
            held: Vec::new(),
            free_places: Vec::new(),
            held_bytes: 0,
            inserted: 0,
            lateness: Lateness::default(),
        }
    }

    /// Accepts a parcel that `src` sent to `dst` at `now`.
    pub fn accept(&mut self, now: Nanos, src: usize, dst: usize, parcel: P) {
        let running = self.machines[src].state == MachineState::Running;
        let index = self.index(src, dst);
        let Some(path) = &mut self.paths[index] else { return };
        if !path.up || !running {
            path.counts.cut += u64::from(parcel.packets());
            return;
        }
        let held = Held { stage: Stage::EntersPipe, src, dst, accepted: now, parcel };
        match &mut self.machines[src].egress {
            None => self.enter_pipe(now, held),
            Some(cap) => match through(cap, now, held.parcel, &mut path.counts) {
                None => {}
                Some((left, parcel)) => self.hold(left, Held { parcel, ..held }),
            },
        }
    }

    /// Returns when the next event is due.
    pub fn next_due(&self) -> Option<Nanos> {
        self.events.peek().map(|Reverse((due, ..))| *due)
    }

    /// Returns the next parcel that is due at `now`, if any.
    pub fn release(&mut self, now: Nanos) -> Option<Departure<P>> {
        while let Some(&Reverse((due, _, place))) = self.events.peek() {
            if due > now {
                return None;
            }
            self.events.pop();
            // Only this line empties a place, and removes its event with it.
            let Some(held) = self.held[place].take() else { continue };
            self.free_places.push(place);
            self.held_bytes -= held.parcel.held_bytes();
            match held.stage {
                Stage::EntersPipe => self.enter_pipe(due, held),
                Stage::Arrives => {
                    if let Some(held) = self.arrive(due, held) {
                        return Some(self.depart(now, due, held));
                    }
                }
                Stage::Delivered => {
                    if self.alive(&held) {
                        return Some(self.depart(now, due, held));
                    }
                }
            }
        }
        None
    }

    fn enter_pipe(&mut self, now: Nanos, held: Held<P>) {
        let index = self.index(held.src, held.dst);
        let Some(path) = &mut self.paths[index] else { return };
        if !path.up || held.accepted < path.lost_before {
            path.counts.cut += u64::from(held.parcel.packets());
            return;
        }
        let Some((left, parcel)) = through(&mut self.pipes[path.pipe], now, held.parcel, &mut path.counts) else {
            return;
        };
        path.counts.packets += u64::from(parcel.packets());
        path.counts.wire_bytes += parcel.wire_bytes();
        let arrival = (left + path.delay_ns).max(path.last_arrival);
        path.last_arrival = arrival;
        let survivors = path.loss.survivors(parcel.packets());
        let surviving: u32 = survivors.iter().map(|range| range.end - range.start).sum();
        path.counts.lost += u64::from(parcel.packets() - surviving);
        let held = Held { stage: Stage::Arrives, parcel, ..held };
        if surviving == held.parcel.packets() {
            self.hold(arrival, held);
            return;
        }
        for range in survivors {
            self.hold(arrival, Held { parcel: held.parcel.cut(range), ..held });
        }
    }

    /// Returns the parcel if it is delivered now; `None` if it must pass the ingress cap first, or is dropped.
    fn arrive(&mut self, now: Nanos, held: Held<P>) -> Option<Held<P>> {
        if !self.alive(&held) {
            return None;
        }
        let index = self.index(held.src, held.dst);
        let (Some(cap), Some(path)) = (&mut self.machines[held.dst].ingress, &mut self.paths[index]) else {
            return Some(held);
        };
        let (left, parcel) = through(cap, now, held.parcel, &mut path.counts)?;
        self.hold(left, Held { stage: Stage::Delivered, parcel, ..held });
        None
    }

    /// Returns whether a parcel may still arrive; if not, counts it as cut.
    fn alive(&mut self, held: &Held<P>) -> bool {
        let index = self.index(held.src, held.dst);
        let machine = &self.machines[held.dst];
        let Some(path) = &mut self.paths[index] else { return false };
        let alive = path.up
            && machine.state == MachineState::Running
            && held.accepted >= path.lost_before
            && held.accepted >= machine.lost_before;
        if !alive {
            path.counts.cut += u64::from(held.parcel.packets());
        }
        alive
    }

    fn hold(&mut self, due: Nanos, held: Held<P>) {
        let bytes = held.parcel.held_bytes();
        if self.held_bytes + bytes > HELD_BYTES_MAX {
            self.lateness.overflows += u64::from(held.parcel.packets());
            return;
        }
        self.held_bytes += bytes;
        let place = self.free_places.pop().unwrap_or_else(|| {
            self.held.push(None);
            self.held.len() - 1
        });
        self.held[place] = Some(held);
        self.inserted += 1;
        self.events.push(Reverse((due, self.inserted, place)));
    }

    fn depart(&mut self, now: Nanos, due: Nanos, held: Held<P>) -> Departure<P> {
        let late_ns = now - due;
        self.lateness.released += 1;
        self.lateness.sum_ns += late_ns;
        self.lateness.max_ns = self.lateness.max_ns.max(late_ns);
        Departure { dst: held.dst, src: held.src, due, parcel: held.parcel }
    }

    fn index(&self, src: usize, dst: usize) -> usize {
        src * self.machines.len() + dst
    }
}

/// Queries, and changes that are possible while packets are in transit.
impl<P> Engine<P> {
    /// Number of machines.
    pub fn machines(&self) -> usize {
        self.machines.len()
    }

    /// State of a machine.
    pub fn machine_state(&self, machine: usize) -> MachineState {
        self.machines[machine].state
    }

    /// Changes the state of a machine. When it runs again, packets that were in transit to it are lost.
    pub fn set_machine_state(&mut self, now: Nanos, machine: usize, state: MachineState) {
        let machine = &mut self.machines[machine];
        if state == MachineState::Running && machine.state != MachineState::Running {
            machine.lost_before = now;
        }
        machine.state = state;
    }

    /// Changes the caps of a machine.
    pub fn set_caps(&mut self, machine: usize, egress: Option<PipeSpec>, ingress: Option<PipeSpec>) {
        let machine = &mut self.machines[machine];
        for (cap, spec) in [(&mut machine.egress, egress), (&mut machine.ingress, ingress)] {
            match (cap, spec) {
                (Some(pipe), Some(spec)) => pipe.change(spec),
                (cap, spec) => *cap = spec.map(Pipe::new),
            }
        }
    }

    /// The caps of a machine, egress and ingress.
    pub fn caps(&self, machine: usize) -> (Option<PipeSpec>, Option<PipeSpec>) {
        let machine = &self.machines[machine];
        (machine.egress.as_ref().map(Pipe::spec), machine.ingress.as_ref().map(Pipe::spec))
    }

    /// Returns pipe, delay, loss and state of a path; `None` if there is no path.
    pub fn path(&self, src: usize, dst: usize) -> Option<PathView> {
        let path = self.paths[src * self.machines.len() + dst].as_ref()?;
        Some(PathView {
            pipe: path.pipe,
            spec: self.pipes[path.pipe].spec(),
            delay_ns: path.delay_ns,
            loss: path.loss.share(),
            up: path.up,
            counts: path.counts,
        })
    }

    /// Changes a pipe, for all paths that use it.
    pub fn set_pipe(&mut self, pipe: usize, spec: PipeSpec) {
        self.pipes[pipe].change(spec);
    }

    /// Changes a path; `None` fields stay unchanged. A path that is cut loses its packets in transit.
    pub fn change_path(&mut self, now: Nanos, src: usize, dst: usize, change: PathChange) {
        let index = src * self.machines.len() + dst;
        let Some(path) = &mut self.paths[index] else { return };
        if let Some(delay_ns) = change.delay_ns {
            path.delay_ns = delay_ns;
        }
        if let Some(share) = change.loss {
            path.loss.change(share);
        }
        if let Some(up) = change.up {
            if up && !path.up {
                path.lost_before = now;
            }
            path.up = up;
        }
    }

    /// Counts released packets that their machine did not accept.
    pub fn count_refused(&mut self, src: usize, dst: usize, packets: u32) {
        let index = src * self.machines.len() + dst;
        if let Some(path) = &mut self.paths[index] {
            path.counts.queue_drops += u64::from(packets);
        }
    }

    /// The counts of the engine itself.
    pub fn lateness(&self) -> Lateness {
        self.lateness
    }

    /// Sets all counts to zero.
    pub fn reset_counts(&mut self) {
        self.lateness = Lateness::default();
        for path in self.paths.iter_mut().flatten() {
            path.counts = PathCounts::default();
        }
    }
}

/// The present state of a path.
#[derive(Clone, Copy, Debug)]
pub struct PathView {
    /// Index of its pipe.
    pub pipe: usize,
    /// Its pipe's properties.
    pub spec: PipeSpec,
    /// Delay, one way.
    pub delay_ns: Nanos,
    /// Share of packets lost at random.
    pub loss: f64,
    /// False if the path is cut.
    pub up: bool,
    /// Its counts.
    pub counts: PathCounts,
}

/// Changes to a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathChange {
    /// Delay, one way.
    pub delay_ns: Option<Nanos>,
    /// Share of packets lost at random.
    pub loss: Option<f64>,
    /// False cuts the path.
    pub up: Option<bool>,
}

/// Sends the packets that have room in a pipe; `None` if no packet has. Counts the dropped ones.
fn through<P: Parcel>(pipe: &mut Pipe, now: Nanos, parcel: P, counts: &mut PathCounts) -> Option<(Nanos, P)> {
    let packets = parcel.packets();
    let room = pipe.room(now, packets, parcel.packet_bytes());
    counts.queue_drops += u64::from(packets - room);
    let parcel = match room {
        0 => return None,
        _ if room == packets => parcel,
        _ => parcel.cut(0..room),
    };
    Some((pipe.send(now, parcel.wire_bytes()), parcel))
}
