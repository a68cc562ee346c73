//! Drops a lead at any await and resumes the job: it must end done, with every byte right, nothing lost in transit and
//! no upload left open. The same holds for a lead that is asked to stop when its stores no longer answer, and that lead
//! must also end in time.

use super::{LeadSetup, PROGRESS_EVERY, RouteSource, begin};
use crate::background::Background;
use crate::control::events;
use crate::directory_tree::DirectoryTree;
use crate::drain::DRAIN_MAX;
use crate::drop_after::DropAfter;
use crate::lead::report::{ObjectVerdict, Verdict};
use crate::lead::status;
use crate::node::attempts::Attempts;
use crate::node::budget::MemoryBudget;
use crate::node::dedup::window::Window;
use crate::node::load::StageMeter;
use crate::node::replay::Taken;
use crate::node::scope::{ReadScope, WriteScope};
use crate::node::sink::{Counts, Fence, Sink, Target};
use crate::node::source::{Downstream, Source};
use crate::node::table::RouteTable;
use crate::stepped::{Stepped, Steps};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tradewind_contract::{JobSpec, JobState, Limits, RouteSpec};
use tradewind_wire::RouteId;

const CHUNK_BYTES: u64 = 64 << 10;
/// Far more than the job has awaits or steps of stores.
const CUTS_MAX: usize = 20_000;
/// One in this many places is tested, except where all are.
const STRIDE: usize = 7;
/// A job that has not ended in this time never ends. The clock is virtual: it advances when nothing else happens.
const HANG: Duration = Duration::from_secs(1_000_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Copy,
    Move,
    /// With `--delete`.
    Sync,
}

const VERBS: [Verb; 3] = [Verb::Copy, Verb::Move, Verb::Sync];

/// The destination of a `sync` already has this object, and another that the source does not have.
const KEPT: &str = "a/2";

/// When a run is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// The process dies after the lead was polled this many times.
    DiesAtPoll(usize),
    /// The lead is dropped after this many polls, but source and sink finish their orders.
    LeadDroppedAtPoll(usize),
    /// The process dies when its stores have made this many steps, whichever task made them.
    DiesAtStep(usize),
    /// The run continues, but the task that makes this step panics.
    PanicsAtStep(usize),
    /// The stores stop answering after this many steps, and the lead is asked to stop.
    StoppedAtStep(usize),
    Never,
}

struct World {
    from: DirectoryTree,
    to: DirectoryTree,
    state: tempfile::TempDir,
    verb: Verb,
    files: BTreeMap<String, Vec<u8>>,
}

impl World {
    fn new(verb: Verb) -> Self {
        let large: Vec<u8> = (0..3 * CHUNK_BYTES - 77).map(|index| (index % 251) as u8).collect();
        let larger = [&large[..], &large[..]].concat();
        let objects: [(&str, &[u8]); 5] =
            [("a/1", b""), ("a/2", b"small"), ("b/1", &large), ("b/2", b"small too"), ("b/3", &larger)];
        let (from, to) = (DirectoryTree::with(&objects), DirectoryTree::new());
        let files = from.files();
        if verb == Verb::Sync {
            to.write(KEPT, &files[KEPT]);
            to.write("z", b"extraneous");
            [&from, &to].iter().for_each(|tree| tree.set_modified(KEPT, 1_700_000_000_000));
        }
        Self { from, to, state: tempfile::tempdir().unwrap(), verb, files }
    }

    fn job(&self, resume: bool) -> JobSpec {
        let job = serde_json::json!({
            "source": self.from.spec(),
            "selection": { "kind": "prefix", "prefix": "" },
            "targets": [{ "store": self.to.spec(), "key": "" }],
            "delete_source": self.verb == Verb::Move,
            "compare": (self.verb == Verb::Sync).then_some("auto"),
            "delete": (self.verb == Verb::Sync).then_some(serde_json::json!({ "over_half": true })),
            "chunk_bytes": CHUNK_BYTES,
            "state_dir": self.state.path(),
            "report_file": self.report(),
            "allow_empty": true,
            "resume": resume,
        });
        serde_json::from_value(job).unwrap()
    }

    fn report(&self) -> PathBuf {
        self.state.path().join("report.jsonl")
    }

    /// Files that the report names as copied. If a `mv` is cut off while it deletes, emptied directories are copied
    /// too.
    fn reported(&self) -> BTreeSet<String> {
        let text = std::fs::read_to_string(self.report()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<ObjectVerdict>(line).unwrap());
        let copied = lines.filter(|line| line.verdict == Verdict::Copied);
        let root = format!("{}/", self.to.store.url());
        let keys = copied.map(|line| line.destination.strip_prefix(&root).unwrap().to_owned());
        keys.filter(|key| !key.ends_with('/')).collect()
    }

    /// Runs the job until it ends or is cut off. Returns whether it ended.
    fn run(&self, resume: bool, cut: Cut) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (polls, steps) = match cut {
            Cut::DiesAtPoll(polls) | Cut::LeadDroppedAtPoll(polls) => (polls, Steps::new(usize::MAX)),
            Cut::DiesAtStep(steps) | Cut::StoppedAtStep(steps) => (usize::MAX, Steps::new(steps)),
            Cut::PanicsAtStep(steps) => (usize::MAX, Steps::panicking(steps)),
            Cut::Never => (usize::MAX, Steps::new(usize::MAX)),
        };
        runtime.block_on(async {
            let tasks = TaskTracker::new();
            let make = || {
                let stores = [Stepped::with(&self.from.store, &steps), Stepped::with(&self.to.store, &steps)];
                setup(self.job(resume), stores, &tasks)
            };
            let first = make();
            let stop = first.stop.clone();
            let lead = async {
                let mut begun = begin(first).await;
                // A test beside this one that starts a program has a copy of the lock for a moment, between fork and exec.
                while begun.as_ref().is_err_and(|cannot| cannot.message.contains("holds the lock")) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    begun = begin(LeadSetup { stop: stop.clone(), ..make() }).await;
                }
                begun.unwrap_or_else(|cannot| panic!("{}", cannot.message)).await;
            };
            if let Cut::PanicsAtStep(_) = cut {
                tokio::time::timeout(HANG, lead).await.unwrap_or_else(|_| panic!("the job hangs, {cut:?}"));
                return !steps.are_over();
            }
            if let Cut::StoppedAtStep(_) = cut {
                return ends_in_time(lead, &steps, &stop).await;
            }
            let ended = tokio::select! {
                ended = DropAfter::new(polls, lead) => ended.is_some(),
                () = steps.over() => false,
            };
            while matches!(cut, Cut::LeadDroppedAtPoll(_)) && !tasks.is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            ended
        })
    }

    fn is_right(&self, tree: &DirectoryTree, key: &str) -> bool {
        std::fs::read(tree.path(key)).is_ok_and(|bytes| bytes == self.files[key])
    }

    /// Checks that no object is lost, and that none at the destination is wrong.
    fn check(&self, when: &str) {
        for key in self.files.keys() {
            let arrived = self.is_right(&self.to, key);
            assert!(arrived || self.is_right(&self.from, key), "{key} is lost {when}");
            assert!(arrived || !self.to.path(key).exists(), "{key} is wrong {when}");
            assert!(arrived || self.verb != Verb::Sync || key != KEPT, "{key} was deleted {when}");
        }
    }

    fn is_complete(&self) -> bool {
        let left = if self.verb == Verb::Move { BTreeMap::new() } else { self.files.clone() };
        (self.to.files(), self.from.files()) == (self.files.clone(), left)
    }

    /// Checks that a stopped job reports so, and counts no object as deleted that still exists.
    fn check_stopped(&self, when: &str) {
        let status = status::read(self.state.path()).unwrap().unwrap();
        assert_eq!(status.state, JobState::Interrupted, "{when}: {:?}", status.summary);
        let gone = match self.verb {
            Verb::Copy => 0,
            Verb::Move => self.files.len() - self.from.files().len(),
            Verb::Sync => usize::from(!self.to.path("z").exists()),
        };
        let deleted = status.summary.map_or(0, |summary| summary.objects_deleted);
        assert!(deleted <= gone as u64, "{when}: {deleted} of {gone} were deleted");
    }

    fn check_end(&self, when: &str) {
        let status = status::read(self.state.path()).unwrap().unwrap();
        assert_eq!(status.state, JobState::Done, "{when}: {:?}", status.summary);
        assert!(self.is_complete(), "{when}: {:?} and {:?}", self.from.keys(), self.to.keys());
        // A `sync` skips objects that it has copied but not yet recorded.
        if self.verb != Verb::Sync {
            assert_eq!(self.reported(), self.files.keys().cloned().collect(), "{when}");
        }
    }
}

/// Tells the lead to stop once its stores no longer answer. Returns whether it ended before that.
async fn ends_in_time(lead: impl Future<Output = ()>, steps: &Steps, stop: &CancellationToken) -> bool {
    let mut lead = std::pin::pin!(lead);
    tokio::select! {
        () = &mut lead => return true,
        () = steps.over() => stop.cancel(),
    }
    let ended = tokio::time::timeout(DRAIN_MAX + PROGRESS_EVERY, lead).await;
    ended.expect("a lead that is asked to stop waits for its stores no longer than it may");
    false
}

/// A lead with its source and its sink in one process.
pub(super) fn setup(job: JobSpec, [from, to]: [Arc<Stepped>; 2], tasks: &TaskTracker) -> LeadSetup {
    let limits = Limits::default();
    let sink = Arc::new(Sink {
        targets: vec![Target::new("local", 0, to.clone(), &limits)],
        scope: WriteScope::new(job.writes()),
        seal: None,
        taken: Taken::default(),
        fence: Fence::default(),
        window: Window::new(0),
        counts: Counts::default(),
        tasks: tasks.clone(),
    });
    let attempts = Attempts::of_reading(&limits);
    let source = Arc::new(Source {
        store: from.clone(),
        meter: StageMeter::of_reading("local", &attempts),
        attempts,
        budget: MemoryBudget::new(limits.memory_bytes),
        downstream: RouteTable::new(HashMap::from([(RouteId(0), Downstream::Memory(sink))])),
        scope: ReadScope::new(job.reads()),
        seal: None,
        known: Arc::default(),
        tasks: tasks.clone(),
    });
    let nodes = ["local"; 3].map(str::to_owned).to_vec();
    LeadSetup {
        job: Arc::new(job),
        limits,
        routes: vec![RouteSpec { id: 0, nodes, share: 1.0, usd_per_gb: 0.0 }],
        sources: HashMap::from([(RouteId(0), RouteSource::Memory(source))]),
        local: true,
        replies: mpsc::unbounded_channel(),
        hop_reports: Arc::default(),
        source: from,
        targets: vec![to],
        events: events::channel().0,
        rerouted: watch::channel(None).1,
        stop: CancellationToken::new(),
        background: Background::Inline,
    }
}

/// Cuts the job off at every `stride`th place.
fn cut_off(verb: Verb, cut: fn(usize) -> Cut, stride: usize) {
    for number in (0..CUTS_MAX).step_by(stride) {
        let (world, when) = (World::new(verb), format!("{verb:?}, {:?}", cut(number)));
        let ended = world.run(false, cut(number));
        world.check(&when);
        if matches!(cut(number), Cut::PanicsAtStep(_)) {
            let status = status::read(world.state.path()).unwrap().unwrap();
            assert_ne!(status.state, JobState::Running, "{when}: the status does not say that the job is over");
            assert!(ended || status.state != JobState::Done || world.is_complete(), "{when}: not all is done");
        }
        if let (Cut::StoppedAtStep(_), false) = (cut(number), ended) {
            world.check_stopped(&when);
        }
        if ended {
            world.check_end(&when);
            assert!(number > 10, "{when}: it was never cut off");
            return;
        }
        assert!(world.run(true, Cut::Never));
        world.check_end(&when);
    }
    panic!("it never ends");
}

/// A resumed job is stopped too, with the uploads and files that an earlier run has left open.
#[test]
fn a_job_that_is_resumed_and_stopped_ends_in_time() {
    for number in (0..CUTS_MAX).step_by(3) {
        let world = World::new(Verb::Move);
        assert!(!world.run(false, Cut::DiesAtStep(60)), "it was to leave something open");
        let when = format!("resumed, stopped at step {number}");
        if world.run(true, Cut::StoppedAtStep(number)) {
            return world.check_end(&when);
        }
        world.check(&when);
        world.check_stopped(&when);
        assert!(world.run(true, Cut::Never));
        world.check_end(&when);
    }
    panic!("it never ends");
}

/// All kinds of cuts.
const CUTS: [fn(usize) -> Cut; 5] =
    [Cut::DiesAtPoll, Cut::LeadDroppedAtPoll, Cut::DiesAtStep, Cut::PanicsAtStep, Cut::StoppedAtStep];

fn cut_off_in_all_ways(stride: usize) {
    for verb in VERBS {
        for cut in CUTS {
            cut_off(verb, cut, stride);
        }
    }
}

#[test]
fn a_job_whose_lead_is_dropped_or_whose_task_panics_at_some_places_ends_done() {
    cut_off_in_all_ways(STRIDE);
}

#[test]
#[ignore = "a minute: make test-all"]
fn a_job_whose_lead_is_dropped_or_whose_task_panics_at_any_place_ends_done() {
    cut_off_in_all_ways(1);
}
