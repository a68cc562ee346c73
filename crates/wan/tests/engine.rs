//! The engine under simulated time: rate, delay, order, queue and loss, for random traffic.

use proptest::prelude::*;
use std::net::Ipv4Addr;
use std::ops::Range;
use tradewind_wan::Nanos;
use tradewind_wan::engine::{Engine, MachineState, Parcel, PathChange};
use tradewind_wan::network::{Machine, Network, Path};
use tradewind_wan::pipe::PipeSpec;

const MS: Nanos = 1_000_000;
const S: Nanos = 1_000_000_000;
/// Wide enough that nothing is dropped unless a test intends it.
const WIDE: PipeSpec = PipeSpec { rate_bps: 1_000_000_000, queue_bytes: 1 << 30 };

/// Numbered packets of one size: `first` and the next `count - 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    first: u32,
    count: u32,
    packet_bytes: u64,
}

impl Parcel for Run {
    fn packets(&self) -> u32 {
        self.count
    }
    fn wire_bytes(&self) -> u64 {
        u64::from(self.count) * self.packet_bytes
    }
    fn packet_bytes(&self) -> u64 {
        self.packet_bytes
    }
    fn held_bytes(&self) -> u64 {
        self.wire_bytes()
    }
    fn cut(&self, range: Range<u32>) -> Self {
        assert!(range.start < range.end && range.end <= self.count, "{range:?} of {}", self.count);
        Self { first: self.first + range.start, count: range.end - range.start, ..self.clone() }
    }
}

fn run(first: u32, count: u32, packet_bytes: u64) -> Run {
    Run { first, count, packet_bytes }
}

/// `count` machines, each with a path to every other one through a pipe of its own.
fn mesh(count: usize, pipe: PipeSpec, delay_us: u64, loss: f64) -> Network {
    let machines = (0..count).map(|index| Machine {
        name: format!("m{index}"),
        region: "site:lab".into(),
        address: Ipv4Addr::new(10, 77, 1, index as u8 + 1),
        congestion_control: "cubic".into(),
        egress: None,
        ingress: None,
        inbound: true,
    });
    let pairs = (0..count).flat_map(|src| (0..count).filter(move |dst| *dst != src).map(move |dst| (src, dst)));
    let paths: Vec<Path> =
        pairs.enumerate().map(|(index, (src, dst))| Path { src, dst, pipe: index, delay_us, loss }).collect();
    Network { mtu_bytes: 1500, seed: 1, machines: machines.collect(), pipes: vec![pipe; paths.len()], paths }
}

/// Releases everything that is due until `until`, each parcel at its due time, as (time, destination, parcel).
fn drain(engine: &mut Engine<Run>, until: Nanos) -> Vec<(Nanos, usize, Run)> {
    let mut out = Vec::new();
    while let Some(due) = engine.next_due().filter(|due| *due <= until) {
        if let Some(departure) = engine.release(due) {
            out.push((due, departure.dst, departure.parcel));
        }
    }
    out
}

fn packets(released: &[(Nanos, usize, Run)]) -> u32 {
    released.iter().map(|(_, _, parcel)| parcel.count).sum()
}

#[test]
fn a_packet_takes_its_time_on_the_wire_and_the_delay() {
    let mut engine = Engine::new(&mesh(2, PipeSpec { rate_bps: 8_000_000, queue_bytes: 100_000 }, 20_000, 0.0));
    engine.accept(5 * MS, 0, 1, run(0, 1, 1_000));
    assert_eq!(drain(&mut engine, S), vec![(5 * MS + MS + 20 * MS, 1, run(0, 1, 1_000))]);
    assert_eq!(engine.lateness().sum_ns, 0);
}

#[test]
fn lateness_of_the_host_does_not_accumulate() {
    let mut network = mesh(2, WIDE, 10_000, 0.0);
    network.machines[0].egress = Some(WIDE);
    network.machines[1].ingress = Some(WIDE);
    let mut engine = Engine::new(&network);
    engine.accept(0, 0, 1, run(0, 1, 1_000));
    // The egress cap releases it at 8 µs; the host looks 5 ms later. It still arrives on time.
    assert!(engine.release(5 * MS).is_none());
    let departure = engine.release(20 * MS).expect("long due");
    assert_eq!(departure.due, 10 * MS + 3 * 8_000);
    assert_eq!(engine.lateness().max_ns, 20 * MS - departure.due);
}

#[test]
fn a_cap_is_shared_by_all_that_a_machine_sends() {
    let mut network = mesh(3, WIDE, 1_000, 0.0);
    network.machines[0].egress = Some(PipeSpec { rate_bps: 8_000_000, queue_bytes: 1 << 20 });
    let mut engine = Engine::new(&network);
    for index in 0..100 {
        engine.accept(0, 0, 1 + index as usize % 2, run(index, 1, 1_000));
    }
    let released = drain(&mut engine, S);
    assert_eq!(packets(&released), 100);
    let last = released.iter().map(|(at, ..)| *at).max().unwrap();
    assert_eq!(last, 100 * MS + MS + 8_000, "100 packets at 1 ms each, then the delay and the pipe");
}

#[test]
fn a_cap_is_shared_by_all_that_a_machine_receives() {
    let mut network = mesh(3, WIDE, 1_000, 0.0);
    network.machines[2].ingress = Some(PipeSpec { rate_bps: 8_000_000, queue_bytes: 50_000 });
    let mut engine = Engine::new(&network);
    for index in 0..100 {
        engine.accept(0, index as usize % 2, 2, run(index, 1, 1_000));
    }
    let released = drain(&mut engine, S);
    assert_eq!(packets(&released), 50, "the queue holds 50 packets, the rest is dropped");
    let drops: u64 = (0..2).map(|src| engine.path(src, 2).unwrap().counts.queue_drops).sum();
    assert_eq!(drops, 50);
}

#[test]
fn paths_that_share_a_pipe_share_its_rate() {
    let mut network = mesh(3, PipeSpec { rate_bps: 8_000_000, queue_bytes: 1 << 20 }, 1_000, 0.0);
    let shared = network.paths[0].pipe;
    network.paths.iter_mut().filter(|path| path.src == 0).for_each(|path| path.pipe = shared);
    let mut engine = Engine::new(&network);
    for index in 0..20 {
        engine.accept(0, 0, 1 + index as usize % 2, run(index, 1, 1_000));
    }
    let last = drain(&mut engine, S).iter().map(|(at, ..)| *at).max().unwrap();
    assert_eq!(last, 21 * MS);
}

#[test]
fn a_pipe_shared_by_two_machines_is_not_blocked_by_the_cap_of_one() {
    let mut network = mesh(3, WIDE, 0, 0.0);
    network.machines[0].egress = Some(PipeSpec { rate_bps: 8_000_000, queue_bytes: 1 << 20 });
    let pipe = network.paths.iter().find(|path| (path.src, path.dst) == (0, 2)).unwrap().pipe;
    network.paths.iter_mut().filter(|path| path.dst == 2).for_each(|path| path.pipe = pipe);
    let mut engine = Engine::new(&network);
    engine.accept(0, 0, 2, run(0, 50, 1_000));
    engine.accept(0, 1, 2, run(100, 1, 1_000));
    let released = drain(&mut engine, S);
    assert_eq!(released[0].2.first, 100, "the machine without a cap goes first");
    assert_eq!(released[0].0, 8_000);
}

#[test]
fn a_cut_path_loses_what_is_on_it_and_what_comes() {
    let mut engine = Engine::new(&mesh(2, WIDE, 50_000, 0.0));
    engine.accept(0, 0, 1, run(0, 3, 1_000));
    engine.change_path(10 * MS, 0, 1, PathChange { up: Some(false), ..PathChange::default() });
    engine.accept(11 * MS, 0, 1, run(3, 2, 1_000));
    engine.change_path(12 * MS, 0, 1, PathChange { up: Some(true), ..PathChange::default() });
    engine.accept(13 * MS, 0, 1, run(5, 1, 1_000));
    let released = drain(&mut engine, S);
    assert_eq!(released.iter().map(|(.., parcel)| parcel.first).collect::<Vec<_>>(), vec![5]);
    assert_eq!(engine.path(0, 1).unwrap().counts.cut, 5);
    assert!(engine.path(1, 0).unwrap().up, "the other direction is another path");
}

#[test]
fn a_machine_that_is_gone_neither_sends_nor_receives() {
    let mut engine = Engine::new(&mesh(3, WIDE, 10_000, 0.0));
    engine.accept(0, 0, 1, run(0, 1, 1_000));
    engine.accept(0, 1, 2, run(1, 1, 1_000));
    engine.set_machine_state(MS, 1, MachineState::Gone);
    engine.accept(2 * MS, 0, 1, run(2, 1, 1_000));
    engine.accept(2 * MS, 1, 2, run(3, 1, 1_000));
    engine.accept(2 * MS, 0, 2, run(4, 1, 1_000));
    engine.set_machine_state(3 * MS, 1, MachineState::Running);
    engine.accept(4 * MS, 0, 1, run(5, 1, 1_000));
    let firsts: Vec<u32> = drain(&mut engine, S).into_iter().map(|(.., parcel)| parcel.first).collect();
    assert_eq!(firsts, vec![1, 4, 5], "what had left it before arrives, and all that has nothing to do with it");
}

#[test]
fn too_many_packets_in_transit_are_dropped_and_counted() {
    let mut engine = Engine::new(&mesh(2, WIDE, 1_000_000, 0.0));
    for index in 0..600 {
        engine.accept(0, 0, 1, run(index, 1, 1 << 20));
    }
    assert_eq!(engine.lateness().overflows, 600 - 512);
    assert_eq!(packets(&drain(&mut engine, 60 * S)), 512);
    engine.accept(61 * S, 0, 1, run(0, 1, 1 << 20));
    assert_eq!(packets(&drain(&mut engine, 90 * S)), 1, "room again");
}

#[test]
fn counts_begin_anew() {
    let mut engine = Engine::new(&mesh(2, WIDE, 1, 0.0));
    engine.accept(0, 0, 1, run(0, 5, 100));
    drain(&mut engine, S);
    assert_eq!(engine.path(0, 1).unwrap().counts.wire_bytes, 500);
    engine.reset_counts();
    assert_eq!((engine.path(0, 1).unwrap().counts.packets, engine.lateness().released), (0, 0));
}

/// Times, sizes and counts of parcels on one path.
fn traffic() -> impl Strategy<Value = Vec<(Nanos, u32, u64)>> {
    prop::collection::vec((0..20 * MS, 1_u32..45, 60_u64..9_038), 1..200)
}

/// Sends the parcels and returns those that arrived.
fn carry(engine: &mut Engine<Run>, parcels: &[(Nanos, u32, u64)]) -> Vec<(Nanos, usize, Run)> {
    let (mut now, mut first, mut out) = (0, 0, Vec::new());
    for (gap, count, packet_bytes) in parcels {
        now += gap;
        out.extend(drain(engine, now));
        engine.accept(now, 0, 1, run(first, *count, *packet_bytes));
        first += count;
    }
    out.extend(drain(engine, now + 3_600 * S));
    out
}

proptest! {
    #[test]
    fn nothing_is_faster_than_its_rate_nor_earlier_than_its_delay(
        parcels in traffic(), rate_bps in 1_000_000_u64..1_000_000_000, delay_us in 0_u64..300_000,
    ) {
        let mut engine = Engine::new(&mesh(2, PipeSpec { rate_bps, queue_bytes: 1 << 30 }, delay_us, 0.0));
        let released = carry(&mut engine, &parcels);
        let sent: u32 = parcels.iter().map(|parcel| parcel.1).sum();
        prop_assert_eq!(packets(&released), sent, "a queue without end drops nothing");
        // Between any two arrivals, no more bytes arrived than the rate allows.
        let (mut bytes, mut began) = (0_u128, None);
        for (at, _, parcel) in &released {
            prop_assert!(*at >= delay_us * 1_000);
            match began {
                None => began = Some(*at),
                Some(began) => {
                    bytes += u128::from(parcel.wire_bytes());
                    let allowed = u128::from(at - began) * u128::from(rate_bps) / 8_000_000_000;
                    prop_assert!(bytes <= allowed + 1, "{bytes} bytes in {} ns", at - began);
                }
            }
        }
    }

    #[test]
    fn order_is_kept_whatever_happens_to_the_delay(
        parcels in traffic(), changes in prop::collection::vec(0_u64..200, 1..50), loss in 0.0_f64..0.3,
    ) {
        let mut engine = Engine::new(&mesh(2, PipeSpec { rate_bps: 50_000_000, queue_bytes: 200_000 }, 100_000, loss));
        let (mut now, mut first, mut out) = (0, 0, Vec::new());
        for (index, (gap, count, packet_bytes)) in parcels.iter().enumerate() {
            now += gap;
            let delay_ns = Some(changes[index % changes.len()] * MS);
            engine.change_path(now, 0, 1, PathChange { delay_ns, ..PathChange::default() });
            engine.accept(now, 0, 1, run(first, *count, *packet_bytes));
            first += count;
            out.extend(drain(&mut engine, now));
        }
        out.extend(drain(&mut engine, now + 3_600 * S));
        prop_assert!(out.windows(2).all(|pair| pair[0].2.first + pair[0].2.count <= pair[1].2.first));
        prop_assert!(out.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }

    #[test]
    fn each_packet_arrives_or_is_counted_as_dropped(
        parcels in traffic(), queue_bytes in 1_u64..500_000, loss in 0.0_f64..1.0,
        egress in prop::option::of(1_000_000_u64..50_000_000), ingress in prop::option::of(1_000_000_u64..50_000_000),
    ) {
        let mut network = mesh(2, PipeSpec { rate_bps: 20_000_000, queue_bytes }, 5_000, loss);
        network.machines[0].egress = egress.map(|rate_bps| PipeSpec { rate_bps, queue_bytes });
        network.machines[1].ingress = ingress.map(|rate_bps| PipeSpec { rate_bps, queue_bytes });
        let mut engine = Engine::new(&network);
        let arrived = u64::from(packets(&carry(&mut engine, &parcels)));
        let counts = engine.path(0, 1).unwrap().counts;
        let sent: u64 = parcels.iter().map(|parcel| u64::from(parcel.1)).sum();
        prop_assert_eq!(arrived + counts.queue_drops + counts.lost + counts.cut, sent);
    }

    #[test]
    fn nobody_waits_longer_than_the_queue(parcels in traffic(), queue_bytes in 10_000_u64..500_000) {
        let rate_bps = 10_000_000;
        let mut engine = Engine::new(&mesh(2, PipeSpec { rate_bps, queue_bytes }, 0, 0.0));
        let (mut now, mut accepted_at) = (0, Vec::new());
        let mut out = Vec::new();
        for (gap, count, packet_bytes) in &parcels {
            now += gap;
            out.extend(drain(&mut engine, now));
            accepted_at.push(now);
            // The number identifies the time of acceptance.
            engine.accept(now, 0, 1, run((accepted_at.len() as u32 - 1) * 1_000, *count, *packet_bytes));
        }
        out.extend(drain(&mut engine, now + 3_600 * S));
        for (at, _, parcel) in out {
            let waited = at - accepted_at[parcel.first as usize / 1_000];
            prop_assert!(waited <= queue_bytes * 8_000_000_000 / rate_bps + 1_000, "waited {waited} ns");
        }
    }

    #[test]
    fn the_share_that_is_lost_is_the_share_asked_for(share in 0.001_f64..0.2, seed in any::<u64>(), at_once in 1_u32..45) {
        let mut network = mesh(2, WIDE, 0, share);
        network.seed = seed;
        let mut engine = Engine::new(&network);
        let rounds = 100_000 / at_once;
        for round in 0..rounds {
            let now = u64::from(round) * MS;
            engine.accept(now, 0, 1, run(0, at_once, 1_500));
            drain(&mut engine, now + MS);
        }
        let (sent, lost) = (f64::from(rounds * at_once), engine.path(0, 1).unwrap().counts.lost as f64);
        let deviation = (sent * share * (1.0 - share)).sqrt();
        prop_assert!((lost - sent * share).abs() < 6.0 * deviation, "{lost} of {sent} at {share}");
    }
}
