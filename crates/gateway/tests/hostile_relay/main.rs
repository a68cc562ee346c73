//! A real lead, source and sink with a hostile relay between them: whatever it does, the job ends, and no wrong object
//! is reported as copied.
//!
//! `TRADEWIND_HOSTILE_SEEDS=N` tries each edit at N places instead of one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod edits;
mod relay;

use edits::Edit;
use futures::{StreamExt, stream};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use relay::{Hostility, Mischief};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
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
        "routes": [{ "id": 0, "nodes": ["home", "home", "relay", "sink"], "share": 1.0 }],
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
    let folder = tempfile::tempdir().unwrap();
    let (from, to, report) = (folder.path().join("from"), folder.path().join("to"), folder.path().join("report"));
    for (key, content) in contents() {
        let path = from.join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    std::fs::create_dir(&to).unwrap();
    let url = |path: &Path| json!({ "url": format!("file://{}", path.display()) });
    let ((sink_port, sink_address), (relay_port, relay_address)) = (bound().await, bound().await);
    let mischief = Mischief::new(hostility, at, always);
    let relaying = tokio::spawn(relay::relay(relay_port, sink_address.parse().unwrap(), mischief.clone()));
    let writes = json!([{ "kind": "prefix", "prefix": "" }]);
    let sink = program("sink", json!({ "sinks": [url(&to)], "writes": writes }));
    let home = program(
        "home",
        json!({
            "hops": [{ "to": "relay", "address": relay_address, "connections": 2 }],
            "source": url(&from),
            "lead": {
                "source": url(&from), "selection": { "kind": "prefix", "prefix": "" },
                "targets": [{ "store": url(&to), "key": "" }], "chunk_bytes": 64 << 10, "stall_s": 3,
                "compress": compress, "deduplicate": compress, "report_file": report,
            },
        }),
    );
    let (quiet, _unread) = events::channel();
    let sink =
        NodeRunner::default().start(sink, Security::Plain, Some(Box::new(sink_port)), quiet).await.expect("a sink");
    let (teller, log) = events::channel();
    let mut story = log.subscribe();
    let home = NodeRunner::default().start(home, Security::Plain, None, teller).await.expect("a lead");
    let outcome = tokio::time::timeout(HANG, async {
        loop {
            let lines = story.next().await.expect("a job says that it is done");
            for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let event: Value = serde_json::from_slice(line).unwrap();
                if event["event"] == "done" {
                    return event["outcome"].to_string();
                }
            }
        }
    });
    let outcome = outcome.await.unwrap_or_else(|_| panic!("{name}: the job hangs"));
    home.drain().await;
    sink.drain().await;
    relaying.abort();
    Ended { wrong: called_good_and_wrong(&from, &to, &report), name, outcome, mischief: mischief.done() }
}

fn called_good_and_wrong(from: &Path, to: &Path, report: &Path) -> Vec<String> {
    let lines = std::fs::read_to_string(report).unwrap();
    let verdicts = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let good = verdicts.filter(|verdict| verdict["verdict"] == "copied");
    let keys = good.map(|verdict| {
        let url = verdict["source"].as_str().unwrap().to_owned();
        url.strip_prefix(&format!("file://{}/", from.display())).expect("a source below the root").to_owned()
    });
    keys.filter(|key| std::fs::read(from.join(key)).ok() != std::fs::read(to.join(key)).ok()).collect()
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
