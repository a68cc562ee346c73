//! Drops the work of a source and a sink at any await: the request must be answered once, no memory stays held, no
//! wrong byte is visible, and the next attempt succeeds.

use super::attempts::Attempts;
use super::budget::MemoryBudget;
use super::dedup::window::Window;
use super::load::{Answer, StageMeter};
use super::parcel::Parcel;
use super::replay::Taken;
use super::reply::{Owed, ReplyTo};
use super::scope::{ReadScope, WriteScope};
use super::seal;
use super::sink::{Counts, Fence, Sink, Target};
use super::source::{Downstream, Source};
use super::table::RouteTable;
use super::work::{
    Close, Entry, Fetch, Manifest, Order, PartPlace, Proof, SinkAnswer, SinkReply, SourceTask, Unsynced, WholePlace,
    parse_exactly,
};
use crate::attributes::Inherited;
use crate::directory_tree::DirectoryTree;
use crate::drop_after::DropAfter;
use crate::stepped::Stepped;
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use tradewind_contract::{KeyScope, Limits, VerifyMode};
use tradewind_store::{Checksums, PartTag, Payload, Precondition, PutOptions, Store, UploadId};
use tradewind_wire::frame::{Reply, Verdict};
use tradewind_wire::{Fault, RequestId, RouteId};

pub(super) const KEY: &str = "folder/object";
const PART_BYTES: usize = 70_000;
const PARTS: u32 = 2;
/// Far more than any of these futures has awaits.
const POLLS_MAX: usize = 1_000;
const PAUSE: Duration = Duration::from_millis(1);

/// A source and a sink in one process, over folders.
pub(super) struct Ends {
    from: DirectoryTree,
    pub(super) to: DirectoryTree,
    pub(super) source: Arc<Source>,
    pub(super) sink: Arc<Sink>,
    pub(super) budget: MemoryBudget,
}

/// Runs a test with one thread for blocking work, and a virtual clock that advances when nothing else happens.
pub(super) fn block_on(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).max_blocking_threads(1).build().unwrap().block_on(test);
}

pub(super) fn content() -> Vec<u8> {
    (0..PARTS as usize * PART_BYTES).map(|index| (index % 251) as u8).collect()
}

pub(super) fn payload(bytes: &[u8]) -> Payload {
    Payload::new(bytes.chunks(30_000).map(Bytes::copy_from_slice).collect())
}

impl Ends {
    pub(super) fn new() -> Self {
        let (from, to) = (DirectoryTree::with(&[(KEY, &content()), ("empty", b"")]), DirectoryTree::new());
        let (limits, tasks, budget) = (Limits::default(), TaskTracker::new(), MemoryBudget::new(64 << 20));
        let keys = KeyScope::Prefix { prefix: String::new() };
        let target = Target::new("local", 0, Stepped::new(&to.store), &limits);
        let sink = Arc::new(Sink {
            targets: vec![target],
            scope: WriteScope::new(vec![keys.clone()]),
            seal: Some(seal::of_tests()),
            taken: Taken::default(),
            fence: Fence::default(),
            window: Window::new(0),
            counts: Counts::default(),
            tasks: tasks.clone(),
        });
        let attempts = Attempts::of_reading(&limits);
        let source = Arc::new(Source {
            store: Stepped::new(&from.store),
            meter: StageMeter::of_reading("local", &attempts),
            attempts,
            budget: budget.clone(),
            downstream: RouteTable::new(HashMap::from(
                [0, 1].map(|route| (RouteId(route), Downstream::Memory(sink.clone()))),
            )),
            scope: ReadScope::new(keys),
            seal: Some(seal::of_tests()),
            known: Arc::default(),
            tasks,
        });
        Self { from, to, source, sink, budget }
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.to.store
    }

    async fn open(&self) -> UploadId {
        self.store().open_upload(KEY, &options()).await.unwrap()
    }

    async fn put_parts(&self, upload: &UploadId) -> Vec<PartTag> {
        let mut parts = Vec::new();
        for number in 0..PARTS {
            let bytes = payload(&content()[part_range(number)]);
            let checksums = Checksums::of_segments(bytes.segments());
            let offset = part_range(number).start as u64;
            let tag = self.store().put_part(KEY, upload, number + 1, offset, bytes, &checksums).await.unwrap();
            parts.push(PartTag { checksums, size_bytes: PART_BYTES as u64, ..tag });
        }
        parts
    }

    /// Waits for work that continues in the background.
    pub(super) async fn settle(&self) {
        while !self.sink.tasks.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
        // There is one thread for blocking work (see `block_on`), so blocking work of a dropped request ends before
        // this.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    }

    pub(super) fn assert_nothing_is_held(&self, when: &str) {
        assert_eq!(self.budget.usage_bytes().0, 0, "{when}");
        assert_eq!((self.source.attempts.active(), self.sink.targets[0].attempts.active()), (0, 0), "{when}");
    }

    /// Checks that the object at the destination is either whole or absent.
    pub(super) fn assert_no_wrong_byte(&self, when: &str) {
        if let Ok(bytes) = std::fs::read(self.to.path(KEY)) {
            assert!(bytes == content(), "{when}: wrong bytes are visible");
        }
    }
}

fn part_range(number: u32) -> std::ops::Range<usize> {
    let start = number as usize * PART_BYTES;
    start..start + PART_BYTES
}

fn options() -> PutOptions {
    PutOptions { modified_unix_ms: Some(1_000_000), size_bytes: Some(content().len() as u64), ..PutOptions::default() }
}

pub(super) fn whole_place(key: &str, verify: VerifyMode, durable: bool) -> WholePlace {
    WholePlace {
        target: 0,
        key: key.to_owned(),
        options: PutOptions { durable, ..options() },
        verify,
        expect: None,
        again: false,
        tags_dropped: false,
    }
}

fn part_place(upload: &UploadId) -> PartPlace {
    let (offset, upload) = (part_range(1).start as u64, upload.clone());
    PartPlace { target: 0, key: KEY.to_owned(), upload, part: 2, offset }
}

/// A request to a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Write,
    WriteAndReadBack,
    Check,
    Open,
    Part,
    CheckPart,
    Close,
    Abort,
}

const REQUESTS: [Request; 8] = [
    Request::Write,
    Request::WriteAndReadBack,
    Request::Check,
    Request::Open,
    Request::Part,
    Request::CheckPart,
    Request::Close,
    Request::Abort,
];

/// Carries out the preceding requests, and returns the manifest and the bytes of this one.
async fn manifest(request: Request, ends: &Ends) -> (Manifest, Vec<u8>) {
    let whole = Checksums::of_segments(payload(&content()).segments());
    let size_bytes = content().len() as u64;
    let write = |verify| {
        let (place, checksums) = (whole_place(KEY, verify, true), whole);
        let manifest =
            Manifest::Bundle(vec![Entry::Write { place, size_bytes, checksums, source_proof: Proof::Length }]);
        (manifest, content())
    };
    match request {
        Request::Write => write(VerifyMode::Auto),
        Request::WriteAndReadBack => write(VerifyMode::Read),
        Request::Check => {
            ends.store().put(KEY, payload(&content()), &whole, &options()).await.unwrap();
            let unsynced = Unsynced { boot: "an earlier one".to_owned(), checksums: whole };
            let place = whole_place(KEY, VerifyMode::Auto, true);
            (Manifest::Bundle(vec![Entry::Check { place, size_bytes, unsynced }]), Vec::new())
        }
        Request::Open => (Manifest::Open { target: 0, key: KEY.to_owned(), options: options() }, Vec::new()),
        Request::Part => {
            let (place, bytes) = (part_place(&ends.open().await), content()[part_range(1)].to_vec());
            let checksums = Checksums::of_segments(payload(&bytes).segments());
            (Manifest::Part { place, checksums }, bytes)
        }
        Request::CheckPart => {
            let upload = ends.open().await;
            let part = ends.put_parts(&upload).await.remove(1);
            let part = PartTag { tag: "an earlier boot".to_owned(), ..part };
            (Manifest::CheckPart { place: part_place(&upload), part }, Vec::new())
        }
        Request::Close => {
            let upload = ends.open().await;
            let parts = ends.put_parts(&upload).await;
            let close = Close {
                place: whole_place(KEY, VerifyMode::Read, true),
                upload,
                parts,
                size_bytes,
                checksums: whole,
                source_proof: Proof::Length,
                sweep_since_unix_ms: Some(0),
            };
            (Manifest::Close(Box::new(close)), Vec::new())
        }
        Request::Abort => (Manifest::Abort { target: 0, key: KEY.to_owned(), upload: ends.open().await }, Vec::new()),
    }
}

/// Returns the only answer to a request, and panics if there is another.
fn only_answer(answers: &mut mpsc::UnboundedReceiver<Reply>, when: &str) -> Verdict {
    let Ok(Reply { verdict, .. }) = answers.try_recv() else { panic!("{when}: nobody is answered") };
    assert!(answers.try_recv().is_err(), "{when}: answered twice");
    verdict
}

/// The sink's reply in an answer, from the sink itself or by way of a source.
pub(super) fn sink_reply(words: &[u8]) -> Option<SinkReply> {
    let by_source = parse_exactly::<Answer>(words).map(|answer| answer.sink);
    by_source.or_else(|| parse_exactly::<SinkAnswer>(words)).map(|answer| answer.reply)
}

pub(super) fn assert_done(verdict: &Verdict, when: &str) {
    let Verdict::Sink(words) = verdict else { panic!("{when}: {verdict:?}") };
    let done = match sink_reply(words).unwrap() {
        SinkReply::Bundle(verdicts) => verdicts.iter().all(Result::is_ok),
        SinkReply::Failed(_) => false,
        _ => true,
    };
    assert!(done, "{when}: {verdict:?}");
}

/// Gives the parcel to the sink, as if it came over a hop or from a source in this process, and drops its work after
/// `polls`. Returns whether the work ended before, and the answer.
async fn at_sink(ends: &Ends, parcel: Parcel, over_hop: bool, polls: usize, when: &str) -> (bool, Verdict) {
    let (answers_in, mut answers) = mpsc::unbounded_channel();
    let reply = ReplyTo::memory(answers_in);
    let reply = if over_hop { reply.from_downstream(seal::of_tests(), None) } else { reply };
    let owed = Owed::new(reply, parcel.request);
    let held = ends.budget.hold(parcel.route, parcel.data.len().max(1)).await;
    let sink = ends.sink.clone();
    let ended = if over_hop {
        let coded = parcel.encode(None, seal::of_tests().next_id()).unwrap();
        let mut opening = sink.opening(&coded.head).unwrap();
        opening.push(BytesMut::from(&coded.sealed()[..]));
        DropAfter::new(polls, sink.accepting_sealed(opening, held, owed)).await
    } else {
        DropAfter::new(polls, sink.accepting(Parcel { held: Some(held), ..parcel }, owed)).await
    };
    ends.settle().await;
    ends.assert_nothing_is_held(when);
    let verdict = only_answer(&mut answers, when);
    if ended.is_none() {
        assert!(matches!(verdict, Verdict::Failed { fault: Fault::Lost, .. }), "{when}: {verdict:?}");
    }
    (ended.is_some(), verdict)
}

/// Returns whether a close failed because its upload no longer exists: a dropped close has completed it. A file store
/// states no checksum by which the sink could recognize the object, so the lead restarts it.
fn is_completed_before(request: Request, verdict: &Verdict) -> bool {
    let Verdict::Sink(words) = verdict else { return false };
    request == Request::Close
        && matches!(sink_reply(words), Some(SinkReply::Failed(failure)) if failure.fault == Fault::UploadGone)
}

async fn sink_is_dropped_everywhere(request: Request) {
    for (polls, over_hop) in (0..POLLS_MAX).flat_map(|polls| [(polls, true), (polls, false)]) {
        let when = format!("{request:?} after {polls} polls, over a hop: {over_hop}");
        let ends = Ends::new();
        let (manifest, bytes) = manifest(request, &ends).await;
        let parcel = |request| {
            let (request, route, manifest) = (RequestId(request), RouteId(0), manifest.clone());
            Parcel { request, route, manifest, data: payload(&bytes), computed: Vec::new(), held: None }
        };
        let (ended, verdict) = at_sink(&ends, parcel(1), over_hop, polls, &when).await;
        ends.assert_no_wrong_byte(&when);
        if ended {
            assert_done(&verdict, &when);
        }
        // The lead sends the request again with another id.
        let (_, verdict) = at_sink(&ends, parcel(2), over_hop, usize::MAX, &when).await;
        ends.assert_no_wrong_byte(&when);
        if !is_completed_before(request, &verdict) {
            assert_done(&verdict, &when);
        }
        let (written, sent) = (ends.sink.counts.written_bytes(), bytes.len() as u64);
        let least = if ended { 2 * sent } else { sent };
        assert!((least..=2 * sent).contains(&written), "{when}: {written} bytes are counted");
        let left = ends.store().pending_uploads(KEY).await.unwrap().len();
        match request {
            Request::Open => assert!((1..=2).contains(&left), "{when}"),
            Request::Part | Request::CheckPart => assert_eq!(left, 1, "{when}"),
            Request::Abort => assert_eq!(ends.to.keys(), [""; 0], "{when}"),
            _ => assert_eq!(ends.to.keys(), [KEY], "{when}"),
        }
        if ended && !over_hop {
            assert!(polls > 2, "{when}: nothing was dropped");
            return;
        }
    }
    panic!("{request:?} never ends");
}

#[test]
fn a_sink_dropped_at_any_await_answers_once_and_the_next_try_succeeds() {
    block_on(async {
        for request in REQUESTS {
            sink_is_dropped_everywhere(request).await;
        }
    });
}

/// An order to a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Bundle,
    Part,
    Pass,
}

impl Task {
    fn order(self, request: u64, upload: &UploadId) -> Order {
        let fetch = |key: &str, size_bytes| Fetch {
            source_key: key.to_owned(),
            condition: Precondition::default(),
            size_bytes,
            listed: Checksums::default(),
            place: whole_place(key, VerifyMode::Auto, false),
            inherited: Inherited::default(),
            tags: Default::default(),
            copy_from_bucket: None,
            check: None,
        };
        let task = match self {
            Self::Bundle => SourceTask::Bundle(vec![fetch(KEY, content().len() as u64), fetch("empty", 0)]),
            Self::Part => SourceTask::Part {
                source_key: KEY.to_owned(),
                condition: Precondition::default(),
                range: part_range(1).start as u64..part_range(1).end as u64,
                place: part_place(upload),
                crc32c: false,
            },
            Self::Pass => SourceTask::Pass(Manifest::Abort { target: 0, key: KEY.to_owned(), upload: upload.clone() }),
        };
        Order { request: RequestId(request), route: RouteId(0), codec: None, deduplicate: false, task }
    }
}

async fn at_source(ends: &Ends, order: Order, polls: usize, when: &str) -> bool {
    let (answers_in, mut answers) = mpsc::unbounded_channel();
    let owed = Owed::new(ReplyTo::memory(answers_in), order.request);
    let executing = ends.source.clone().executing(order, owed);
    let ended = DropAfter::new(polls, executing).await;
    ends.settle().await;
    ends.assert_nothing_is_held(when);
    let verdict = only_answer(&mut answers, when);
    if ended.is_some() {
        assert_done(&verdict, when);
    } else {
        assert!(matches!(verdict, Verdict::Failed { fault: Fault::Lost, .. }), "{when}: {verdict:?}");
    }
    ended.is_some()
}

async fn source_is_dropped_everywhere(task: Task) {
    for polls in 0..POLLS_MAX {
        let (when, ends) = (format!("{task:?} after {polls} polls"), Ends::new());
        let upload = ends.open().await;
        let ended = at_source(&ends, task.order(1, &upload), polls, &when).await;
        ends.assert_no_wrong_byte(&when);
        assert!(at_source(&ends, task.order(2, &upload), usize::MAX, &when).await);
        if task == Task::Bundle {
            assert_eq!(std::fs::read(ends.to.path(KEY)).unwrap(), content(), "{when}");
        }
        assert_eq!(ends.from.keys(), ["empty", KEY], "{when}");
        if ended {
            assert!(polls > 2 || task == Task::Pass, "{when}: nothing was dropped");
            return;
        }
    }
    panic!("{task:?} never ends");
}

#[test]
fn a_source_dropped_at_any_await_answers_once_and_the_next_try_succeeds() {
    block_on(async {
        for task in [Task::Bundle, Task::Part, Task::Pass] {
            source_is_dropped_everywhere(task).await;
        }
    });
}
