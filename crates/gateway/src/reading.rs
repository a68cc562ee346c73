//! Reads whole objects in order, several windows ahead, in bounded memory. A failed window resumes where it stopped.

use crate::failure::object_url;
use crate::retry::{RetryPolicy, backoff};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use md5::{Digest as _, Md5};
use std::ops::Range;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tradewind_crc::{PassingCrc32, PassingCrc64};
use tradewind_store::{Checksums, Error, ErrorKind, ObjectInfo, Precondition, Result, Store};

/// Length of one request.
pub(crate) const WINDOW_BYTES: u64 = 8 << 20;

/// The windows of `bytes` of an object, in order, each as segments. `windows_max` of them are read concurrently; the read takes up
/// to [`WINDOW_BYTES`] × `windows_max` of memory.
pub(crate) fn windows<'a>(
    store: &'a dyn Store,
    info: &'a ObjectInfo,
    bytes: Range<u64>,
    windows_max: usize,
    policy: RetryPolicy,
) -> impl Stream<Item = Result<Vec<Bytes>>> + 'a {
    let count = (bytes.end - bytes.start).div_ceil(WINDOW_BYTES);
    let reads = (0..count).map(move |index| {
        let start = bytes.start + index * WINDOW_BYTES;
        let range = start..(start + WINDOW_BYTES).min(bytes.end);
        Window { store, info, range, segments: Vec::new() }.read(policy)
    });
    futures::stream::iter(reads).buffered(windows_max)
}

struct Window<'a> {
    store: &'a dyn Store,
    info: &'a ObjectInfo,
    /// The bytes still to be read.
    range: Range<u64>,
    segments: Vec<Bytes>,
}

impl Window<'_> {
    async fn read(mut self, policy: RetryPolicy) -> Result<Vec<Bytes>> {
        let deadline = Instant::now() + policy.total_max;
        let mut tries = 0;
        loop {
            let before = self.range.start;
            let Err(error) = self.read_on(policy.idle_max).await else { return Ok(self.segments) };
            // An attempt that delivered bytes resets the count.
            tries = if self.range.start > before { 1 } else { tries + 1 };
            let wait = backoff(tries, error.kind);
            let is_over = tries >= policy.tries_max || Instant::now() + wait > deadline;
            if !error.kind.is_transient() || is_over {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn read_on(&mut self, idle_max: Duration) -> Result<()> {
        let (key, condition) = (&self.info.key, Precondition::listed(self.info));
        let silent = || {
            let message = format!("no byte for {} s", idle_max.as_secs());
            Error::new(ErrorKind::Timeout, "get", object_url(self.store, key), message)
        };
        let opened = timeout(idle_max, self.store.get(key, Some(self.range.clone()), &condition)).await;
        let mut body = opened.map_err(|_| silent())??.body;
        while self.range.start < self.range.end {
            match timeout(idle_max, body.next()).await.map_err(|_| silent())? {
                Some(bytes) => {
                    let bytes = bytes?;
                    self.range.start += bytes.len() as u64;
                    self.segments.push(bytes);
                }
                None => {
                    let url = object_url(self.store, key);
                    return Err(Error::new(ErrorKind::Truncated, "get", url, "the body ended early"));
                }
            }
        }
        Ok(())
    }
}

/// Computes checksums of passing bytes. MD5 is the most expensive, and is computed only if a store states nothing else.
pub(crate) struct Summing {
    crc64nvme: PassingCrc64,
    crc32c: PassingCrc32,
    md5: Option<Md5>,
}

impl Summing {
    /// Computes the checksums needed to compare the bytes with `stated`.
    pub(crate) fn against(stated: &Checksums) -> Self {
        let is_md5_needed = stated.md5.is_some() && stated.crc64nvme.is_none() && stated.crc32c.is_none();
        Self { crc64nvme: PassingCrc64::default(), crc32c: PassingCrc32::default(), md5: is_md5_needed.then(Md5::new) }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.crc64nvme.update(bytes);
        self.crc32c.update(bytes);
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
    }

    pub(crate) fn finish(self) -> Checksums {
        Checksums {
            crc64nvme: Some(self.crc64nvme.checksum()),
            crc32c: Some(self.crc32c.checksum()),
            md5: self.md5.map(|md5| md5.finalize().into()),
        }
    }
}
