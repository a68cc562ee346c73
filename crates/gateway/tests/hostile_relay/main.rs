//! A real lead, source and sink with a hostile relay between them: whatever it does, the job ends, and no wrong object
//! is reported as copied.
//!
//! `TRADEWIND_HOSTILE_SEEDS=N` tries each edit at N places instead of one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod edits;
mod late;
mod relay;

use edits::{Change, Edit};
use futures::{StreamExt, stream};
use late::Claim;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use relay::{Hostility, Mischief};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tradewind_contract::Program;
use tradewind_gateway::control::events;
use tradewind_gateway::control::runner::Runner;
use tradewind_gateway::program::NodeRunner;
use tradewind_gateway::tls::Security;
use tradewind_wire::Fault;

/// A job that has not ended by then hangs. Nothing else depends on it.
const HANG: Duration = Duration::from_secs(240);
/// Runs at the same time.
const RUNS_AT_ONCE: usize = 12;
const SEED: u64 = 20_261_122;

/// How a run ended.
struct Ended {
    name: String,
    /// Keys that are reported as copied and differ from the source.
    wrong: Vec<String>,
    outcome: String,
    mischief: usize,
}

fn contents() -> BTreeMap<&'static str, Vec<u8>> {
    let mut random = StdRng::seed_from_u64(SEED);
    let lengths = [("a", 5_000), ("dir/b", 0), ("dir/c", 1), ("large", 200_000), ("larger", 330_001)];
    let mut contents: BTreeMap<_, Vec<u8>> =
        BTreeMap::from(lengths.map(|(key, length)| (key, (0..length).map(|_| random.random()).collect())));
    contents.insert("twin", contents["larger"].clone());
    contents
}

fn program(node: &str, more: Value) -> Program {
    let mut document = json!({
        "contract": tradewind_contract::CONTRACT_VERSION, "job_id": "job", "node": node,
        "seal_key_hex": "5e".repeat(32),
        "limits": {
            "memory_bytes": 8 << 20, "store_retry_s": 1, "store_tries_max": 2, "store_idle_s": 5,
            "peer_silence_s": 3, "request_s": 2,
        },
    });
    let fields = document.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    serde_json::from_value(document).unwrap()
}

async fn bound() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// One job from folder to folder, over the relay.
async fn run(hostility: Hostility, at: usize, always: bool, compress: bool) -> Ended {
    let name = format!("{hostility:?} at {at}, always {always}, compressed and deduplicated {compress}");
    let folders = Folders::with(&contents());
    let mischief = Mischief::new(hostility, at, always);
    let relay = |port, sink| relay::relay(port, sink, mischief.clone());
    let outcome = folders.copied_over(&name, Job { compress, ..Job::default() }, relay).await;
    Ended { wrong: folders.called_good_and_wrong(), name, outcome, mischief: mischief.done() }
}

/// Options of a job.
#[derive(Clone, Copy)]
struct Job {
    /// Compress and deduplicate.
    compress: bool,
    /// Also use a route past the relay, for a tenth of the bytes.
    has_detour: bool,
    /// Longest time without a route that works.
    stall_s: u32,
}

impl Default for Job {
    fn default() -> Self {
        Self { compress: false, has_detour: false, stall_s: 3 }
    }
}

impl Job {
    fn routes(self) -> Value {
        let over_relay = json!({ "id": 0, "nodes": ["home", "home", "relay", "sink"], "share": 0.9 });
        let direct = json!({ "id": 1, "nodes": ["home", "home", "sink"], "share": 0.1 });
        if self.has_detour { json!([over_relay, direct]) } else { json!([over_relay]) }
    }
}

/// Source, destination and report of a job.
struct Folders {
    from: PathBuf,
    to: PathBuf,
    report: PathBuf,
    _folder: tempfile::TempDir,
}

impl Folders {
    fn with(contents: &BTreeMap<&'static str, Vec<u8>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (from, to, report) = (folder.path().join("from"), folder.path().join("to"), folder.path().join("report"));
        for (key, content) in contents {
            let path = from.join(key);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        std::fs::create_dir(&to).unwrap();
        Self { from, to, report, _folder: folder }
    }

    /// As [`Folders::ended_over`]. Returns the outcome.
    async fn copied_over<R: Future<Output = ()> + Send + 'static>(
        &self,
        name: &str,
        job: Job,
        relay: impl FnOnce(TcpListener, SocketAddr) -> R,
    ) -> String {
        let events = self.ended_over(name, job, relay).await;
        events.last().expect("a job says that it is done")["outcome"].to_string()
    }

    /// Copies all objects over a relay that gets its port and the sink's address. Returns the events, with the summary at
    /// the end.
    async fn ended_over<R: Future<Output = ()> + Send + 'static>(
        &self,
        name: &str,
        job: Job,
        relay: impl FnOnce(TcpListener, SocketAddr) -> R,
    ) -> Vec<Value> {
        let url = |path: &Path| json!({ "url": format!("file://{}", path.display()) });
        let ((sink_port, sink_address), (relay_port, relay_address)) = (bound().await, bound().await);
        let relaying = tokio::spawn(relay(relay_port, sink_address.parse().unwrap()));
        let writes = json!([{ "kind": "prefix", "prefix": "" }]);
        let sink = program("sink", json!({ "routes": job.routes(), "sinks": [url(&self.to)], "writes": writes }));
        let mut hops = vec![json!({ "to": "relay", "address": relay_address, "connections": 2 })];
        if job.has_detour {
            hops.push(json!({ "to": "sink", "address": sink_address, "connections": 2 }));
        }
        let home = program(
            "home",
            json!({
                "routes": job.routes(), "hops": hops, "source": url(&self.from),
                "lead": {
                    "source": url(&self.from), "selection": { "kind": "prefix", "prefix": "" },
                    "targets": [{ "store": url(&self.to), "key": "" }], "chunk_bytes": 64 << 10, "stall_s": job.stall_s,
                    "compress": job.compress, "deduplicate": job.compress, "report_file": self.report,
                },
            }),
        );
        let (quiet, _unread) = events::channel();
        let sink =
            NodeRunner::default().start(sink, Security::Plain, Some(Box::new(sink_port)), quiet).await.expect("a sink");
        let (teller, log) = events::channel();
        let mut story = log.subscribe();
        let home = NodeRunner::default().start(home, Security::Plain, None, teller).await.expect("a lead");
        let events = tokio::time::timeout(HANG, async {
            let mut events = Vec::new();
            loop {
                let lines = story.next().await.expect("a job says that it is done");
                for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    let event: Value = serde_json::from_slice(line).unwrap();
                    let is_last = event["event"] == "done";
                    events.push(event);
                    if is_last {
                        return events;
                    }
                }
            }
        });
        let events = events.await.unwrap_or_else(|_| panic!("{name}: the job hangs"));
        home.drain().await;
        sink.drain().await;
        relaying.abort();
        events
    }

    fn called_good_and_wrong(&self) -> Vec<String> {
        let differs = |key: &String| std::fs::read(self.from.join(key)).ok() != std::fs::read(self.to.join(key)).ok();
        self.verdicts()
            .into_iter()
            .filter(|(_, verdict)| verdict == "copied")
            .map(|(key, _)| key)
            .filter(differs)
            .collect()
    }

    /// Keys of the report with their verdicts.
    fn verdicts(&self) -> Vec<(String, String)> {
        let lines = std::fs::read_to_string(&self.report).unwrap();
        let verdicts = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let root = format!("file://{}/", self.from.display());
        let named = verdicts.map(|verdict| {
            let url = verdict["source"].as_str().unwrap();
            let key = url.strip_prefix(&root).expect("a source below the root").to_owned();
            (key, verdict["verdict"].as_str().unwrap().to_owned())
        });
        named.collect()
    }
}

/// Each edit at some places, some of them for good.
fn plan(edits: Vec<Edit>) -> Vec<(Hostility, usize, bool, bool)> {
    let seeds: u64 = std::env::var("TRADEWIND_HOSTILE_SEEDS").ok().map_or(1, |text| text.parse().expect("a number"));
    let mut random = StdRng::seed_from_u64(SEED);
    let mut plan = Vec::new();
    for edit in edits {
        for seed in 0..seeds {
            let (at, compress) = (random.random_range(0..9), random.random());
            plan.push((Hostility::Edit(edit.clone()), at, seed % 4 == 3, compress));
        }
    }
    plan
}

async fn run_all(plan: Vec<(Hostility, usize, bool, bool)>) -> Vec<Ended> {
    let runs = plan.into_iter().map(|(hostility, at, always, compress)| async move {
        tokio::spawn(run(hostility, at, always, compress)).await.unwrap()
    });
    stream::iter(runs).buffer_unordered(RUNS_AT_ONCE).collect().await
}

fn assert_none_wrong(ended: &[Ended]) {
    let wrong: Vec<String> = ended
        .iter()
        .filter(|ended| !ended.wrong.is_empty())
        .map(|ended| format!("{}: {:?} ({})", ended.name, ended.wrong, ended.outcome))
        .collect();
    assert!(wrong.is_empty(), "called good and wrong:\n{}", wrong.join("\n"));
    let edited = ended.iter().filter(|ended| ended.mischief > 0).count();
    assert!(edited * 2 > ended.len(), "only {edited} of {} runs were edited", ended.len());
}

#[test]
fn every_field_of_the_frames_is_edited() {
    let edits = edits::all();
    let named = |field: &str| {
        edits.iter().any(|edit| match edit {
            Edit::HeadField(path, _) | Edit::ReplyField(path, _) => path == field,
            _ => false,
        })
    };
    for field in [
        "/request",
        "/route",
        "/purpose",
        "/manifest_bytes",
        "/recipe_bytes",
        "/referenced_bytes",
        "/raw_bytes",
        "/wire_bytes",
        "/codec",
        "/seal/sealer",
        "/seal/count",
        "/verdict/Sink",
        "/verdict/Failed/fault",
        "/verdict/Failed/kind",
        "/verdict/Failed/message",
        "/verdict/Failed/unsent",
    ] {
        assert!(named(field), "{field} is never edited");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_mischief_goes_well() {
    let never = Hostility::Edit(Edit::DropRequest);
    let ended = run(never, usize::MAX, false, false).await;
    assert_eq!((ended.wrong.len(), ended.outcome.as_str(), ended.mischief), (0, "\"done\"", 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_edit_of_a_frame_makes_a_wrong_object_good() {
    assert_none_wrong(&run_all(plan(edits::all())).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_cannot_forge_a_body_or_an_answer() {
    for ended in
        run_all([Hostility::ForgeBody, Hostility::ForgeAnswer].map(|forgery| (forgery, 2, true, false)).into()).await
    {
        assert!(
            ended.wrong.is_empty() && ended.mischief > 0 && ended.outcome != "\"done\"",
            "{}: {}",
            ended.name,
            ended.outcome
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_swallows_everything_does_not_hold_the_job_for_ever() {
    for edit in [Edit::DropRequest, Edit::DropReply, Edit::AbortRequest, Edit::ForgeFailure(Fault::Lost)] {
        let ended = run(Hostility::Edit(edit), 0, true, false).await;
        assert!(ended.wrong.is_empty() && ended.outcome != "\"done\"", "{}: {}", ended.name, ended.outcome);
    }
}

/// The destination has other objects of these names, so only the first write of the job has a condition.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_a_relay_delivers_late_does_not_leave_an_older_version_that_is_called_good() {
    const OBJECT_BYTES: usize = 5_000;
    let mut wrong = Vec::new();
    let claims = [Claim::BrokenBody, Claim::BrokenAnswer, Claim::Failed(Fault::Lost), Claim::Failed(Fault::RouteDown)];
    for claim in claims {
        let folders = Folders::with(&BTreeMap::from([("a", vec![1; 10]), ("b", vec![1; OBJECT_BYTES])]));
        ["a", "b"].iter().for_each(|key| std::fs::write(folders.to.join(key), b"before").unwrap());
        let (object, next) = (folders.from.join("b"), folders.to.with_extension("next"));
        std::fs::write(&next, vec![2; OBJECT_BYTES]).unwrap();
        let change = Arc::new(move || std::fs::rename(&next, &object).unwrap());
        let name = format!("{claim:?}");
        let relay = |port, sink| late::relay(port, sink, claim, OBJECT_BYTES as u64, change);
        let outcome = folders.copied_over(&name, Job::default(), relay).await;
        let late = std::fs::read(folders.to.join("b")).unwrap() == vec![1; OBJECT_BYTES];
        assert!(late, "{name}: nothing landed late ({outcome}, {:?})", folders.verdicts());
        if !folders.called_good_and_wrong().is_empty() {
            wrong.push(format!("{name} ({outcome})"));
        }
    }
    assert!(wrong.is_empty(), "called good and wrong: {}", wrong.join(", "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_damages_everything_fails_its_route_and_not_the_objects() {
    for edit in [Edit::Body(Change::FlipInside), Edit::ForgeWords(vec![0; 64])] {
        let name = format!("always {edit:?}");
        let folders = Folders::with(&contents());
        let mischief = Mischief::new(Hostility::Edit(edit), 0, true);
        let relay = |port, sink| relay::relay(port, sink, mischief.clone());
        let outcome = folders.copied_over(&name, Job { has_detour: true, ..Job::default() }, relay).await;
        assert!(mischief.done() > 0, "{name}");
        assert_eq!(outcome, "\"done\"", "{name}: {:?}", folders.verdicts());
        assert!(folders.called_good_and_wrong().is_empty(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_damages_everything_on_the_only_route_is_named_and_ends_the_job_soon() {
    for edit in [Edit::Body(Change::FlipInside), Edit::ForgeWords(vec![0; 64])] {
        let name = format!("always {edit:?}");
        let folders = Folders::with(&contents());
        let mischief = Mischief::new(Hostility::Edit(edit), 0, true);
        let relay = |port, sink| relay::relay(port, sink, mischief.clone());
        let began = Instant::now();
        let events = folders.ended_over(&name, Job { stall_s: 600, ..Job::default() }, relay).await;
        assert!(began.elapsed() < Duration::from_secs(60), "{name}: {:?}", began.elapsed());
        let summary = events.last().unwrap();
        let damaged = "everything that came over relay relay was damaged";
        assert_eq!(summary["outcome"], "mismatch", "{name}");
        assert_eq!(summary["message"], format!("{damaged} for 10 s"), "{name}");
        let notices: Vec<&str> = events.iter().filter_map(|event| event["message"].as_str()).collect();
        let first = format!("route home → relay → sink is down: {damaged}");
        assert!(notices.contains(&first.as_str()), "{name}: {notices:?}");
        assert!(folders.called_good_and_wrong().is_empty(), "{name}");
    }
}
