//! CPU and wall time of one store: `store_bench put|get|small-put|small-get|list CONFIG-URL ENDPOINT [BYTES] [COUNT]`.
//!
//! Prints one JSON line with the client's own CPU seconds, so that it can be set beside other tools.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;
use std::time::Instant;
use tradewind_store::{Checksums, KeyRange, Payload, Precondition, PutOptions, Store, StoreConfig, list_range, open};

const PART_BYTES: u64 = 16 * 1024 * 1024;
const SEGMENT_BYTES: usize = 1024 * 1024;
const IN_FLIGHT: usize = 8;
const SMALL_IN_FLIGHT: usize = 64;
const SMALL_BYTES: usize = 64 * 1024;

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().expect("utime") + fields[12].parse::<f64>().expect("stime");
    ticks / 100.0
}

async fn put(store: &Arc<dyn Store>, segment: &Bytes, bytes: u64) {
    let options = PutOptions::default();
    let upload = store.open_upload("bench/big", &options).await.expect("open");
    let part_sums = Checksums::of_segments(&vec![segment.clone(); PART_BYTES as usize / SEGMENT_BYTES]);
    let parts = bytes.div_ceil(PART_BYTES);
    let writes = (0..parts).map(|index| {
        let payload = Payload::new(vec![segment.clone(); PART_BYTES as usize / SEGMENT_BYTES]);
        // As a sink does: the sums come with the chunk.
        let sums = Checksums::of_segments(payload.segments());
        let (store, upload) = (store, &upload);
        async move { store.put_part("bench/big", upload, index as u32 + 1, index * PART_BYTES, payload, &sums).await }
    });
    let tags: Vec<_> = futures::stream::iter(writes).buffered(IN_FLIGHT).try_collect().await.expect("parts");
    let whole = (1..parts).fold(part_sums, |sum, _| Checksums::concat(&sum, &part_sums, PART_BYTES));
    store.complete_upload("bench/big", &upload, &tags, &whole, &options).await.expect("complete");
}

async fn get(store: &Arc<dyn Store>, bytes: u64) {
    let reads = (0..bytes.div_ceil(PART_BYTES)).map(|index| async move {
        let range = index * PART_BYTES..(index + 1) * PART_BYTES;
        let download = store.get("bench/big", Some(range), &Precondition::default()).await.expect("get");
        download.body.try_fold(0, |sum, part| std::future::ready(Ok(sum + part.len()))).await.expect("body")
    });
    let read: usize = futures::stream::iter(reads).buffered(IN_FLIGHT).fold(0, |a, b| std::future::ready(a + b)).await;
    assert_eq!(read as u64, bytes.next_multiple_of(PART_BYTES));
}

async fn small_put(store: &Arc<dyn Store>, segment: &Bytes, count: u64) {
    let writes = (0..count).map(|index| async move {
        let payload = Payload::from(segment.slice(..SMALL_BYTES));
        let sums = Checksums::of_segments(payload.segments());
        store.put(&format!("bench/small/{index:06}"), payload, &sums, &PutOptions::default()).await.expect("put");
    });
    futures::stream::iter(writes).buffer_unordered(SMALL_IN_FLIGHT).collect::<Vec<()>>().await;
}

async fn small_get(store: &Arc<dyn Store>, count: u64) {
    let reads = (0..count).map(|index| async move {
        let key = format!("bench/small/{index:06}");
        let download = store.get(&key, None, &Precondition::default()).await.expect("get");
        let parts: Vec<Bytes> = download.body.try_collect().await.expect("body");
        assert_eq!(parts.iter().map(Bytes::len).sum::<usize>(), SMALL_BYTES);
    });
    futures::stream::iter(reads).buffer_unordered(SMALL_IN_FLIGHT).collect::<Vec<()>>().await;
}

async fn list(store: &Arc<dyn Store>) -> usize {
    let pages = list_range(Arc::clone(store), "", &KeyRange::default());
    pages.try_fold(0, |sum, page| std::future::ready(Ok(sum + page.objects.len()))).await.expect("list")
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number =
        |index: usize, otherwise: u64| arguments.get(index).map_or(otherwise, |text| text.parse().expect("number"));
    let endpoint = Some(arguments[3].clone()).filter(|endpoint| endpoint != "-");
    let config = StoreConfig { url: arguments[2].clone(), endpoint, ..StoreConfig::default() };
    let store = open(&config).expect("open");
    let segment = Bytes::from((0..SEGMENT_BYTES).map(|index| ((index * 31) >> 3) as u8).collect::<Vec<u8>>());
    let (bytes, count) = (number(4, 2 << 30), number(5, 5000));
    let (start, cpu) = (Instant::now(), cpu_seconds());
    match arguments[1].as_str() {
        "put" => put(&store, &segment, bytes).await,
        "get" => get(&store, bytes).await,
        "small-put" => small_put(&store, &segment, count).await,
        "small-get" => small_get(&store, count).await,
        "list" => println!("{} keys", list(&store).await),
        other => panic!("unknown work `{other}`"),
    }
    println!(
        "{{\"work\":\"{}\",\"wall_s\":{:.2},\"cpu_s\":{:.2}}}",
        arguments[1],
        start.elapsed().as_secs_f64(),
        cpu_seconds() - cpu
    );
}
