//! The source: reads the objects that an order names, checks them against the store's checksums, and sends them down
//! the route.

use super::attempts::{Attempts, Describe, Patience};
use super::budget::{Held, MemoryBudget};
use super::dedup::cutting::Piece;
use super::dedup::known::{Known, Sent};
use super::hop::Hop;
use super::lanes::each;
use super::load::StageMeter;
use super::parcel::{Coded, Parcel};
use super::reply::{Owed, ReplyTo};
use super::scope::ReadScope;
use super::seal::Seal;
use super::sink::Sink;
use super::table::RouteTable;
use super::work::{Differs, Entry, Failure, Fetch, Manifest, Order, PartPlace, Proof, Side, SourceTask};
use crate::failure::ObjectUrl;
use bytes::Bytes;
use futures::TryStreamExt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_util::task::TaskTracker;
use tradewind_contract::CodecChoice;
use tradewind_store::{
    Checksums, Crcs, Error, ErrorKind, ObjectInfo, PartSource, PassingChecksums, Payload, Precondition, Store, Tags,
};
use tradewind_wire::{Fault, RouteId};

/// Objects of one bundle that are read at the same time. The store's throttle limits all bundles together.
const BUNDLE_READS_MAX: usize = 32;

/// The next station of a route after the source.
#[derive(Clone)]
pub enum Downstream {
    /// The sink is in this process.
    Memory(Arc<Sink>),
    /// Another gateway.
    Hop(Arc<Hop>),
}

/// See the module's documentation.
pub struct Source {
    /// The store to read.
    pub store: Arc<dyn Store>,
    /// The retries and throttle for its requests.
    pub attempts: Attempts,
    /// What the lead is told of its reading.
    pub meter: Arc<StageMeter>,
    /// The memory for bytes that are read and not yet sent.
    pub budget: MemoryBudget,
    /// The next station of each route.
    pub downstream: RouteTable<Downstream>,
    /// Keys that may be read.
    pub scope: ReadScope,
    /// Seals what goes over hops; `None` where every route stays in this process.
    pub seal: Option<Arc<Seal>>,
    /// Record of the bytes of earlier bodies that its sinks keep.
    pub known: Arc<Known>,
    /// Orders being executed.
    pub tasks: TaskTracker,
}

/// How a body is made shorter for a hop.
#[derive(Clone, Copy, Debug)]
struct Shortening {
    codec: Option<CodecChoice>,
    deduplicate: bool,
}

/// When checksums are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sums {
    /// While the bytes are read: at least these.
    WhenRead(Crcs),
    /// While they are sealed, except those that are compared with the source store's.
    WhenSealed,
}

impl Sums {
    fn when_read(self) -> Option<Crcs> {
        match self {
            Self::WhenRead(crcs) => Some(crcs),
            Self::WhenSealed => None,
        }
    }
}

impl Shortening {
    fn makes_copies(self) -> bool {
        self.codec.is_some() || self.deduplicate
    }
}

impl Source {
    /// Executes an order in its own task and sends the answer to `reply`. The lead's windows limit the number of
    /// orders.
    pub fn execute(self: &Arc<Self>, order: Order, reply: ReplyTo) {
        let owed = Owed::new(reply, order.request);
        // Spawning moves a future several times, and this one has some kilobytes.
        self.tasks.spawn(Box::pin(self.clone().executing(order, owed)));
    }

    /// The answer is owed before the first poll, so that a future that is dropped unpolled sends it too.
    pub(super) async fn executing(self: Arc<Self>, order: Order, owed: Owed) {
        self.answer(order, owed.reply()).await;
        owed.settled();
    }

    async fn answer(&self, order: Order, reply: &ReplyTo) {
        let (request, route) = (order.request, order.route);
        let shortening = Shortening { codec: order.codec, deduplicate: order.deduplicate };
        let Some(downstream) = self.downstream.get(route) else {
            let message = format!("route {} is unknown here", route.0);
            return reply.fail_unsent(request, Failure::new(Fault::RouteDown, "unavailable", message));
        };
        if let Err(failure) = self.scope.check(&order.task) {
            return reply.fail_unsent(request, failure);
        }
        let copies = if shortening.makes_copies() { 2 } else { 1 };
        let sums = match &downstream {
            // See `parcel`.
            Downstream::Hop(_) if !shortening.makes_copies() => Sums::WhenSealed,
            // The sink adds what its store needs.
            Downstream::Hop(_) => Sums::WhenRead(Crcs::Crc64),
            Downstream::Memory(sink) => Sums::WhenRead(sink.wanted_crcs().unwrap_or(Crcs::Crc64)),
        };
        match self.parcel(order, copies, sums).await {
            Ok(parcel) => self.send(&downstream, parcel, shortening, reply.clone()).await,
            Err(failure) => reply.fail_unsent(request, failure),
        }
    }

    async fn send(&self, downstream: &Downstream, parcel: Parcel, shortening: Shortening, reply: ReplyTo) {
        let sending = match downstream {
            Downstream::Memory(_) => None,
            Downstream::Hop(hop) => Some(hop.meter().clone()),
        };
        let reply = reply.from_source(self.meter.clone(), sending);
        match downstream {
            Downstream::Memory(sink) => sink.accept(parcel, reply),
            Downstream::Hop(hop) => match self.coded(&parcel, shortening) {
                Ok((coded, seal, sent)) => hop.send(&coded, &seal, &reply.from_downstream(seal.clone(), sent)).await,
                Err(failure) => reply.fail_unsent(parcel.request, failure),
            },
        }
    }

    fn coded(&self, parcel: &Parcel, shortening: Shortening) -> Result<(Coded, Arc<Seal>, Option<Sent>), Failure> {
        let seal = self.seal.clone().ok_or_else(Failure::without_seal)?;
        let (id, codec) = (seal.next_id(), shortening.codec);
        if !shortening.deduplicate {
            return Ok((parcel.encode(codec, id)?, seal, None));
        }
        let places = |pieces: &[Piece]| self.known.places(parcel.route, pieces);
        let (coded, contents) = parcel.encode_new(codec, id, places)?;
        let sent = contents.map(|contents| self.known.sending(parcel.route, id.count, contents));
        Ok((coded, seal, sent))
    }

    /// Builds the parcel for an order. `copies`: how many copies of the bytes exist at once until they are sent
    /// (compressing and deduplicating make another).
    async fn parcel(&self, order: Order, copies: u64, sums: Sums) -> Result<Parcel, Failure> {
        let Order { request, route, task, .. } = order;
        let (manifest, data, held) = match task {
            SourceTask::Pass(manifest) => (manifest, Payload::default(), None),
            SourceTask::Part { source_key, condition, range, place, crc32c } => {
                let sums = if crc32c { Sums::WhenRead(Crcs::Both) } else { sums };
                let held = self.budget.hold(route, copies * (range.end - range.start)).await;
                let (manifest, data) = self.part(&source_key, &condition, range, place, sums).await?;
                (manifest, data, Some(held))
            }
            SourceTask::Bundle(fetches) => {
                let (entries, data, held) = self.bundle(fetches, (route, copies), sums).await;
                (Manifest::Bundle(entries), data, held)
            }
        };
        Ok(Parcel { request, route, manifest, data, computed: Vec::new(), held })
    }

    async fn part(
        &self,
        key: &str,
        condition: &Precondition,
        range: Range<u64>,
        place: PartPlace,
        sums: Sums,
    ) -> Result<(Manifest, Payload), Failure> {
        let _busy = self.meter.busy();
        let (_, data, checksums) = self.read(key, Some(range), condition, |_| sums.when_read()).await?;
        Ok((Manifest::Part { place, checksums }, data))
    }

    /// Reads the objects of a bundle. If one cannot be read, its entry has the failure, and the others continue.
    async fn bundle(
        &self,
        fetches: Vec<Fetch>,
        (route, copies): (RouteId, u64),
        sums: Sums,
    ) -> (Vec<Entry>, Payload, Option<Held>) {
        let is_read = |fetch: &&Fetch| fetch.copy_from_bucket.is_none() && fetch.check.is_none();
        let bytes: u64 = fetches.iter().filter(is_read).map(|fetch| fetch.size_bytes).sum();
        let held = if bytes > 0 { Some(self.budget.hold(route, copies * bytes).await) } else { None };
        let _busy = self.meter.busy();
        let read = each(fetches, BUNDLE_READS_MAX, |fetch| self.whole(fetch, sums)).await;
        let mut segments = Vec::new();
        let entries = read.into_iter().map(|(entry, payload)| {
            segments.extend(payload.into_segments());
            entry
        });
        (entries.collect(), Payload::new(segments), held)
    }

    async fn whole(&self, fetch: Fetch, sums: Sums) -> (Entry, Payload) {
        if let Some(unsynced) = fetch.check {
            let entry = Entry::Check { place: fetch.place, size_bytes: fetch.size_bytes, unsynced: *unsynced };
            return (entry, Payload::default());
        }
        if let Some(bucket) = fetch.copy_from_bucket {
            let (key, condition) = (fetch.source_key, fetch.condition);
            let source = Box::new(PartSource { bucket, key, condition, range: None });
            let entry = Entry::Copy { place: fetch.place, size_bytes: fetch.size_bytes, source, listed: fetch.listed };
            return (entry, Payload::default());
        }
        match self.whole_bytes(&fetch, sums).await {
            Ok((info, data, checksums, source_proof)) => {
                let tags = if fetch.tags.reads(&info, self.store.as_ref()) {
                    Some(self.tags(&fetch.source_key, &Precondition::exact(&info)).await)
                } else {
                    None
                };
                let mut place = fetch.place;
                place.options.attributes = fetch.inherited.complete(&place.options.attributes, &info.attributes).into();
                place.tags_dropped = match fetch.tags.settle(tags, &info, &mut place.options) {
                    Ok(dropped) => dropped,
                    Err(error) => {
                        let failure = Failure::of_store(&error, Side::Source);
                        return (Entry::Failed(failure), Payload::default());
                    }
                };
                (Entry::Write { place, size_bytes: fetch.size_bytes, checksums, source_proof }, data)
            }
            Err(failure) => (Entry::Failed(failure), Payload::default()),
        }
    }

    async fn tags(&self, key: &str, condition: &Precondition) -> Result<Tags, Error> {
        let progress = Arc::new(AtomicU64::new(0));
        let describe = Describe { operation: "get tags", url: ObjectUrl::of(self.store.as_ref(), key) };
        self.attempts.run(describe, Patience::Transfer, &progress, || self.store.tags(key, condition)).await
    }

    async fn whole_bytes(&self, fetch: &Fetch, sums: Sums) -> Result<(ObjectInfo, Payload, Checksums, Proof), Failure> {
        let crcs_when_read = |info: &ObjectInfo| {
            let compared = match stated_checksums(&info.checksums, &fetch.listed) {
                Checksums { crc32c: Some(_), .. } => Some(Crcs::Both),
                stated => (info.size_bytes == 0 || stated != Checksums::default()).then_some(Crcs::Crc64),
            };
            sums.when_read().max(compared)
        };
        let (info, data, mut checksums) = self.read(&fetch.source_key, None, &fetch.condition, crcs_when_read).await?;
        if data.len() != fetch.size_bytes {
            let message =
                format!("{} is {} bytes, but was listed with {}", fetch.source_key, data.len(), fetch.size_bytes);
            return Err(Failure::new(Fault::Changed, "changed", message));
        }
        let stated = stated_checksums(&info.checksums, &fetch.listed);
        if checksums.agrees_with(&stated).is_none() && stated.md5.is_some() {
            checksums.md5 = Some(md5_of(data.segments()));
        }
        let proof = Proof::compare(&checksums, &stated).map_err(|Differs| {
            Failure::mismatch(format!("{}: the bytes read do not match the store's checksum", fetch.source_key))
        })?;
        Ok((info, data, checksums, proof))
    }

    /// Reads a range (or all) of an object, from the start again if an attempt fails. Computes these CRCs, unless that is
    /// done later.
    async fn read(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        condition: &Precondition,
        crcs_when_read: impl Fn(&ObjectInfo) -> Option<Crcs>,
    ) -> Result<(ObjectInfo, Payload, Checksums), Failure> {
        let progress = Arc::new(AtomicU64::new(0));
        let describe = Describe { operation: "get", url: ObjectUrl::of(self.store.as_ref(), key) };
        let once = || async {
            let download = self.store.get(key, range.clone(), condition).await?;
            let mut passing = crcs_when_read(&download.info).map(PassingChecksums::new);
            let count = |piece: &Bytes| {
                progress.fetch_add(piece.len() as u64, Ordering::Relaxed);
                if let Some(passing) = &mut passing {
                    passing.update(piece);
                }
            };
            let segments: Vec<Bytes> = download.body.inspect_ok(count).try_collect().await?;
            let data = Payload::new(segments);
            let wanted = range.as_ref().map_or(download.info.size_bytes, |range| range.end - range.start);
            if data.len() != wanted {
                let message = format!("the body has {} bytes, {wanted} were requested", data.len());
                return Err(Error::new(ErrorKind::Truncated, "get", describe.url.to_string(), message));
            }
            Ok((download.info, data, passing.map(|passing| passing.checksums()).unwrap_or_default()))
        };
        self.attempts
            .run(describe, Patience::Transfer, &progress, once)
            .await
            .map_err(|error| Failure::of_store(&error, Side::Source))
    }
}

/// The store's checksums of the object: from the answer, or else from its listing.
fn stated_checksums(answer: &Checksums, listed: &Checksums) -> Checksums {
    Checksums {
        crc64nvme: answer.crc64nvme.or(listed.crc64nvme),
        crc32c: answer.crc32c.or(listed.crc32c),
        md5: answer.md5.or(listed.md5),
    }
}

/// MD5 of the segments, in order. It costs about 1.5 CPU-s per GB, so it is used only where a store states nothing
/// better.
pub fn md5_of(segments: &[Bytes]) -> [u8; 16] {
    use md5::Digest;
    let mut md5 = md5::Md5::new();
    for segment in segments {
        md5.update(segment);
    }
    md5.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::drops::{Ends, KEY, block_on, content, payload, whole_place};
    use tradewind_contract::VerifyMode;

    fn fetch(key: &str, size_bytes: u64, listed: Checksums) -> Fetch {
        Fetch {
            source_key: key.to_owned(),
            condition: Precondition::default(),
            size_bytes,
            listed,
            place: whole_place(key, VerifyMode::Auto, false),
            inherited: Default::default(),
            tags: Default::default(),
            copy_from_bucket: None,
            check: None,
        }
    }

    #[test]
    fn checksums_are_left_to_the_seal_only_where_the_store_states_none() {
        let whole = Checksums::of_segments(payload(&content()).segments());
        let md5 = Checksums { md5: Some(md5_of(payload(&content()).segments())), ..Checksums::default() };
        let crc32c = Checksums { crc32c: whole.crc32c, ..Checksums::default() };
        let crc64 = Checksums { crc64nvme: whole.crc64nvme, ..Checksums::default() };
        for (sums, listed, expected, proof) in [
            (Sums::WhenSealed, Checksums::default(), Checksums::default(), Proof::Length),
            (Sums::WhenRead(Crcs::Crc64), Checksums::default(), crc64, Proof::Length),
            (Sums::WhenRead(Crcs::Both), Checksums::default(), whole, Proof::Length),
            (Sums::WhenSealed, crc32c, whole, Proof::Crc32c),
            (Sums::WhenRead(Crcs::Crc64), crc32c, whole, Proof::Crc32c),
            (Sums::WhenSealed, crc64, crc64, Proof::Crc64Nvme),
            (Sums::WhenSealed, md5, Checksums { md5: md5.md5, ..crc64 }, Proof::Md5),
        ] {
            block_on(async {
                let (entry, data) = Ends::new().source.whole(fetch(KEY, content().len() as u64, listed), sums).await;
                let Entry::Write { checksums, source_proof, .. } = entry else { panic!("{entry:?}") };
                assert_eq!((checksums, source_proof), (expected, proof), "{sums:?} {listed:?}");
                assert!(data.segments().concat() == content());
            });
        }
    }

    #[test]
    fn bytes_that_contradict_the_store_never_leave_the_source() {
        let wrong = Checksums { crc64nvme: Some(1), ..Checksums::default() };
        block_on(async {
            let (entry, data) =
                Ends::new().source.whole(fetch(KEY, content().len() as u64, wrong), Sums::WhenSealed).await;
            let Entry::Failed(failure) = entry else { panic!("{entry:?}") };
            assert_eq!((failure.fault, &failure.kind[..], data.len()), (Fault::Corrupt, "mismatch", 0));
        });
    }

    #[test]
    fn an_empty_object_has_its_checksums_in_the_manifest() {
        block_on(async {
            let (entry, _) = Ends::new().source.whole(fetch("empty", 0, Checksums::default()), Sums::WhenSealed).await;
            let Entry::Write { checksums, .. } = entry else { panic!("{entry:?}") };
            assert_eq!(checksums, Checksums::computed(&[], Crcs::Crc64));
        });
    }
}
