//! When each packet leaves, and which are dropped. Given the time, never asking for it.
//!
//! A parcel goes through up to four stages; each that takes time ends in an event, and events are handled in the order
//! of their times. What happens at a stage is reckoned from the event's own time, not from the moment at which the
//! host got round to it: lateness of the host does not add up from stage to stage.

use crate::Nanos;
use crate::loss::Loss;
use crate::network::Network;
use crate::pipe::{Pipe, PipeSpec};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Most memory of packets on their way, all paths together. What would exceed it is dropped and counted as overflow: the
/// run is invalid then. A path of 1 Gbit/s and 400 ms with a queue as long holds 100 MB.
pub const HELD_BYTES_MAX: u64 = 512 << 20;

/// Something that travels: one packet, or several of one flow joined by the kernel.
pub trait Parcel: Sized {
    /// Packets on the wire.
    fn packets(&self) -> u32;
    /// Bytes on the wire of all its packets, headers and framing included.
    fn wire_bytes(&self) -> u64;
    /// Bytes on the wire of its longest packet.
    fn packet_bytes(&self) -> u64;
    /// Memory that it takes.
    fn held_bytes(&self) -> u64;
    /// A parcel of these of its packets alone. Never asked for an empty range, nor for one beyond `packets`.
    fn cut(&self, range: Range<u32>) -> Self;
}

/// State of an emulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// As usual.
    Running,
    /// Paused: its processes are stopped, its packets lost.
    Frozen,
    /// Without power.
    Gone,
}

/// What was counted on one path. Packets are those of the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// Accepted by the path's pipe.
    pub packets: u64,
    /// Their bytes.
    pub wire_bytes: u64,
    /// Found a queue full: of the pipe or of a cap.
    pub queue_drops: u64,
    /// Lost at random.
    pub lost: u64,
    /// Found the path or a machine dead.
    pub cut: u64,
}

/// What was counted of the engine itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Parcels released.
    pub released: u64,
    /// Sum over them of how long after its due time each was released.
    pub sum_ns: u64,
    /// The worst of them.
    pub max_ns: u64,
    /// Packets dropped because of [`HELD_BYTES_MAX`].
    pub overflows: u64,
}

/// A parcel at its end.
#[derive(Debug)]
pub struct Departure<P> {
    /// Machine that gets it.
    pub dst: usize,
    /// Machine that sent it.
    pub src: usize,
    /// When it is due.
    pub due: Nanos,
    /// It.
    pub parcel: P,
}

struct MachineAtWork {
    egress: Option<Pipe>,
    ingress: Option<Pipe>,
    state: MachineState,
    /// What was accepted before this moment and has not arrived is lost.
    lost_before: Nanos,
}

struct PathAtWork {
    pipe: usize,
    delay_ns: Nanos,
    loss: Loss,
    up: bool,
    lost_before: Nanos,
    /// No later parcel arrives before an earlier one, even if the delay is made shorter.
    last_arrival: Nanos,
    counts: PathCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Has left the egress cap.
    EntersPipe,
    /// Has travelled the path.
    Arrives,
    /// Has left the ingress cap.
    Delivered,
}

struct Held<P> {
    stage: Stage,
    src: usize,
    dst: usize,
    accepted: Nanos,
    parcel: P,
}

/// All machines, pipes and paths, and what is on its way.
pub struct Engine<P> {
    machines: Vec<MachineAtWork>,
    pipes: Vec<Pipe>,
    /// By `src * machines.len() + dst`.
    paths: Vec<Option<PathAtWork>>,
    /// Due time, order of insertion, place in `held`.
    events: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    held: Vec<Option<Held<P>>>,
    free_places: Vec<usize>,
    held_bytes: u64,
    inserted: u64,
    lateness: Lateness,
}

impl<P: Parcel> Engine<P> {
    /// An idle engine. The network has been checked.
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
                // Each path has its own sequence, so that what happens on one does not depend on the others.
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

    /// Takes a parcel that `src` sent to `dst` at `now`.
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

    /// When the next parcel is due, or something else must be done.
    pub fn next_due(&self) -> Option<Nanos> {
        self.events.peek().map(|Reverse((due, ..))| *due)
    }

    /// The next parcel that is due at `now`, if any.
    pub fn release(&mut self, now: Nanos) -> Option<Departure<P>> {
        while let Some(&Reverse((due, _, place))) = self.events.peek() {
            if due > now {
                return None;
            }
            self.events.pop();
            // A place is emptied here alone, and its event is popped with it.
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

    /// The parcel itself if it is delivered now; None if it must pass the ingress cap first, or is dropped.
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

    /// Returns whether a parcel may still arrive; counts it if not.
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

/// What can be changed and asked while packets are on their way.
impl<P> Engine<P> {
    /// Number of machines.
    pub fn machines(&self) -> usize {
        self.machines.len()
    }

    /// State of a machine.
    pub fn machine_state(&self, machine: usize) -> MachineState {
        self.machines[machine].state
    }

    /// Changes the state of a machine. What was on its way to it is lost when it runs again.
    pub fn set_machine_state(&mut self, now: Nanos, machine: usize, state: MachineState) {
        let machine = &mut self.machines[machine];
        if state == MachineState::Running && machine.state != MachineState::Running {
            machine.lost_before = now;
        }
        machine.state = state;
    }

    /// Gives a machine other caps.
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

    /// What a path is: its pipe, delay, loss and whether it is up. None if there is no path.
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

    /// Changes a pipe, for all paths that lead through it.
    pub fn set_pipe(&mut self, pipe: usize, spec: PipeSpec) {
        self.pipes[pipe].change(spec);
    }

    /// Changes a path; what is None stays. A path that is cut loses what is on it.
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

    /// Counts packets that were released and that their machine did not take.
    pub fn count_refused(&mut self, src: usize, dst: usize, packets: u32) {
        let index = src * self.machines.len() + dst;
        if let Some(path) = &mut self.paths[index] {
            path.counts.queue_drops += u64::from(packets);
        }
    }

    /// What was counted of the engine itself.
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

/// How a path is at present.
#[derive(Clone, Copy, Debug)]
pub struct PathView {
    /// Index of its pipe.
    pub pipe: usize,
    /// What that pipe is.
    pub spec: PipeSpec,
    /// One way.
    pub delay_ns: Nanos,
    /// Share of packets lost at random.
    pub loss: f64,
    /// True if anything gets through.
    pub up: bool,
    /// What was counted.
    pub counts: PathCounts,
}

/// What to change of a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathChange {
    /// One way.
    pub delay_ns: Option<Nanos>,
    /// Share of packets lost at random.
    pub loss: Option<f64>,
    /// True if anything gets through.
    pub up: Option<bool>,
}

/// Sends what finds room in a pipe; None if nothing does. What does not is counted.
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
