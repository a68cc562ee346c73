//! Derives a scenario from a seed: a job, its gateways and the faults.

use crate::buckets::{Stated, StoreFaults};
use crate::network::LinkSpec;
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use tradewind_contract::Limits;

/// Faults happen within this time of the start; then everything heals.
pub(crate) const FAULTS_MS: u64 = 20_000;

/// The work of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// `cp -r`.
    Copy,
    /// `sync --delete`.
    Sync,
    /// `mv -r`.
    Move,
}

/// A fault at one moment. Hosts are numbered as in [`Scenario::hosts`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// A connection breaks when some more bytes have been written to it.
    Cut {
        /// Index among the connections that are open then.
        pipe: u64,
        /// Bytes that still pass before it breaks.
        bytes: u64,
    },
    /// Nothing passes between two hosts for a while, in one direction or both.
    Block {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
        /// The other direction too.
        both: bool,
        /// Duration.
        ms: u64,
    },
    /// A gateway dies and may be started again with its program.
    Kill {
        /// Index.
        host: usize,
        /// Its machine vanishes: nobody resets its connections.
        silently: bool,
        /// Time of its restart.
        restart_after_ms: Option<u64>,
    },
    /// A gateway is frozen.
    Freeze {
        /// Index.
        host: usize,
        /// Duration.
        ms: u64,
    },
    /// The client dies, and every gateway with it; the job is resumed.
    KillAll,
    /// Ctrl-C; the job is resumed.
    Drain,
    /// The source's owner writes an object again.
    Rewrite {
        /// Index.
        object: usize,
    },
}

/// A scenario: job, gateways, links and faults.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// The seed of the scenario.
    pub(crate) seed: u64,
    /// The work of the job.
    pub(crate) work: Work,
    /// Names of the gateways; the lead is the first.
    pub(crate) hosts: Vec<String>,
    /// Routes, by station.
    pub(crate) routes: Vec<Vec<String>>,
    /// Hops, upstream end first, whose downstream ends open the connections.
    pub(crate) opened_downstream: BTreeSet<(String, String)>,
    /// Connections of a hop between gateways that move bytes.
    pub(crate) connections: u16,
    /// All links.
    pub(crate) link: LinkSpec,
    /// The checksums that each store states; the source first.
    pub(crate) stated: Vec<Stated>,
    /// Name and content of the sources.
    pub(crate) objects: Vec<(String, Bytes)>,
    /// Destination, name and content of the objects that exist before the job.
    pub(crate) existing: Vec<(usize, String, Bytes)>,
    /// Limits of every gateway.
    pub(crate) limits: Limits,
    /// Part size.
    pub(crate) chunk_bytes: u64,
    /// `--verify read`.
    pub(crate) verify_read: bool,
    /// `--compress`.
    pub(crate) compress: bool,
    /// `--dedup on`.
    pub(crate) deduplicate: bool,
    /// `--stall`.
    pub(crate) stall_s: u32,
    /// `--duplicates`.
    pub(crate) duplicate_fraction_max: f64,
    /// Faults, in order of time.
    pub(crate) faults: Vec<(u64, Fault)>,
    /// Faults of the stores until everything heals.
    pub(crate) store_faults: StoreFaults,
}

impl Scenario {
    /// Returns the scenario of `seed`.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let work = [Work::Copy, Work::Copy, Work::Sync, Work::Move][rng.random_range(0..4)];
        let (hosts, routes) = routes(&mut rng);
        let chunk_bytes = [4 << 10, 16 << 10, 64 << 10][rng.random_range(0..3)];
        let stated = (0..=rng.random_range(1..=2)).map(|_| stated(&mut rng)).collect::<Vec<_>>();
        let mut objects = objects(&mut rng, chunk_bytes);
        let deduplicate = seed.is_multiple_of(3);
        if deduplicate {
            repeat_the_longest(&mut objects);
        }
        let existing = existing(&mut rng, work, &objects, stated.len());
        let mut scenario = Self {
            seed,
            work,
            opened_downstream: opened_downstream(seed, &routes),
            connections: rng.random_range(1..=4),
            link: link(&mut rng),
            stated,
            objects,
            existing,
            limits: limits(&mut rng),
            chunk_bytes,
            verify_read: rng.random_bool(0.2),
            compress: rng.random_bool(0.3),
            deduplicate,
            stall_s: rng.random_range(10..60),
            duplicate_fraction_max: [0.0, 0.02, 1.0][rng.random_range(0..3)],
            faults: Vec::new(),
            store_faults: StoreFaults::default(),
            hosts,
            routes,
        };
        scenario.add_faults(&mut rng);
        scenario
    }

    fn add_faults(&mut self, rng: &mut SmallRng) {
        if rng.random_bool(0.7) {
            let chance = [0.0, 0.01, 0.05, 0.2];
            let mut pick = || chance[rng.random_range(0..chance.len())];
            self.store_faults = StoreFaults {
                refused: pick(),
                answer_lost: pick(),
                slow: pick() / 2.0,
                twice: pick(),
                body_cut: pick(),
            };
        }
        for _ in 0..rng.random_range(0..=8) {
            // Most jobs take a few seconds, so most faults come early.
            let within_ms = if rng.random_bool(0.8) { 3_000 } else { FAULTS_MS };
            let at_ms = rng.random_range(20..within_ms);
            let fault = self.fault(rng);
            self.faults.push((at_ms, fault));
        }
        self.faults.sort_by_key(|(at_ms, _)| *at_ms);
    }

    fn fault(&self, rng: &mut SmallRng) -> Fault {
        let hosts = self.hosts.len();
        let later = hosts > 1;
        match rng.random_range(0..16) {
            0..=3 if later => Fault::Cut { pipe: rng.random(), bytes: rng.random_range(0..60_000) },
            4..=5 if later => Fault::Block {
                from: rng.random_range(0..hosts),
                to: rng.random_range(0..hosts),
                both: rng.random_bool(0.6),
                ms: rng.random_range(50..30_000),
            },
            6..=8 if later => Fault::Kill {
                host: rng.random_range(1..hosts),
                silently: rng.random_bool(0.4),
                restart_after_ms: rng.random_bool(0.8).then(|| rng.random_range(10..10_000)),
            },
            9..=11 => Fault::Freeze { host: rng.random_range(0..hosts), ms: rng.random_range(50..40_000) },
            12 => Fault::KillAll,
            13 => Fault::Drain,
            _ => Fault::Rewrite { object: rng.random_range(0..self.objects.len()) },
        }
    }
}

fn routes(rng: &mut SmallRng) -> (Vec<String>, Vec<Vec<String>>) {
    if rng.random_bool(0.1) {
        return (vec!["local".to_owned()], vec![vec!["local".to_owned(); 3]]);
    }
    let (sources, relays, sinks) = (rng.random_range(1..=2), rng.random_range(0..=3), rng.random_range(1..=2));
    let name = |kind: &str, number: usize| format!("{kind}-{number}");
    let mut routes = Vec::new();
    for _ in 0..rng.random_range(1..=3) {
        let mut route = vec!["lead".to_owned(), name("source", rng.random_range(0..sources))];
        // Relays in rising order, so that no route passes one twice.
        route.extend((0..relays).filter(|_| rng.random_bool(0.6)).map(|number| name("relay", number)));
        route.push(name("sink", rng.random_range(0..sinks)));
        routes.push(route);
    }
    routes.sort();
    routes.dedup();
    let mut hosts: Vec<String> = routes.iter().flatten().filter(|name| *name != "lead").cloned().collect();
    hosts.sort();
    hosts.dedup();
    hosts.insert(0, "lead".to_owned());
    (hosts, routes)
}

/// Uses its own random numbers, so that the rest of a seed's scenario does not change.
fn opened_downstream(seed: u64, routes: &[Vec<String>]) -> BTreeSet<(String, String)> {
    let mut rng = SmallRng::seed_from_u64(!seed);
    let share = [0.0, 0.0, 0.5, 1.0][rng.random_range(0..4)];
    let hops: BTreeSet<_> = routes
        .iter()
        .flat_map(|route| route.windows(2))
        .filter(|pair| pair[0] != pair[1])
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect();
    hops.into_iter().filter(|_| rng.random_bool(share)).collect()
}

fn stated(rng: &mut SmallRng) -> Stated {
    [Stated::Crc64, Stated::Crc32c, Stated::Md5, Stated::Nothing][rng.random_range(0..4)]
}

fn link(rng: &mut SmallRng) -> LinkSpec {
    LinkSpec {
        delay_ms_max: rng.random_range(1..60),
        bytes_per_ms: [20, 100, 1_000][rng.random_range(0..3)],
        window_bytes: [1 << 10, 8 << 10, 64 << 10][rng.random_range(0..3)],
    }
}

fn limits(rng: &mut SmallRng) -> Limits {
    Limits {
        memory_bytes: [64 << 10, 256 << 10, 1 << 20][rng.random_range(0..3)],
        dedup_window_bytes: 100_000,
        store_requests_max: rng.random_range(1..=16),
        read_requests_start: Limits::default().read_requests_start,
        write_requests_start: Limits::default().write_requests_start,
        store_tries_max: rng.random_range(3..=8),
        store_retry_s: rng.random_range(10..=60),
        store_reach_s: Limits::default().store_reach_s,
        store_idle_s: rng.random_range(2..=10),
        store_work_s: rng.random_range(30..100),
        peer_silence_s: rng.random_range(3..=15),
        // Longer than the slowest store, as it must be.
        request_s: rng.random_range(300..400),
    }
}

fn objects(rng: &mut SmallRng, chunk_bytes: u64) -> Vec<(String, Bytes)> {
    let count = rng.random_range(1..=40);
    let most = chunk_bytes as usize;
    (0..count)
        .map(|number| {
            let bytes = match rng.random_range(0..10) {
                0 => 0,
                1..=5 => rng.random_range(1..2_000),
                6..=8 => rng.random_range(1..=most),
                _ => rng.random_range(most..=6 * most),
            };
            (format!("{}/{number:03}", ["a", "b", "c"][number % 3]), content(rng, bytes))
        })
        .collect()
}

/// Every third object gets the content of the longest, behind as many bytes as its number.
fn repeat_the_longest(objects: &mut [(String, Bytes)]) {
    let longest = objects.iter().map(|(_, content)| content.clone()).max_by_key(Bytes::len).unwrap_or_default();
    for (number, (_, content)) in objects.iter_mut().enumerate().filter(|(number, _)| number % 3 == 2) {
        *content = [&vec![0; number][..], &longest].concat().into();
    }
}

/// Half of it can be compressed.
pub(crate) fn content(rng: &mut SmallRng, bytes: usize) -> Bytes {
    let range = if rng.random_bool(0.5) { 255 } else { 3 };
    (0..bytes).map(|_| rng.random_range(0..=range) as u8).collect()
}

/// For `sync`: some of the sources, some others of the same name, some that the source does not have.
fn existing(rng: &mut SmallRng, work: Work, objects: &[(String, Bytes)], stores: usize) -> Vec<(usize, String, Bytes)> {
    let mut existing = Vec::new();
    if work != Work::Sync {
        return existing;
    }
    for target in 1..stores {
        for (name, data) in objects {
            match rng.random_range(0..4) {
                0 => existing.push((target, name.clone(), data.clone())),
                // Of another length, so that no comparison takes it for the same.
                1 => existing.push((target, name.clone(), content(rng, data.len() + 1))),
                _ => {}
            }
        }
        for number in 0..rng.random_range(0..20) {
            existing.push((target, format!("z/{number}"), content(rng, 10)));
        }
    }
    existing
}
