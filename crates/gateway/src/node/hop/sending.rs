//! Writes one request to a connection that is reserved for it.

use super::{Hop, Outgoing, lost_downstream};
use crate::net::{ConnectionError, FrameWriter, Pipe};
use crate::node::reply::verdict_of;
use crate::node::seal::Sealing;
use crate::node::throttle::Slot;
use std::sync::atomic::Ordering;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;
use tradewind_wire::RequestId;
use tradewind_wire::frame::{DATA_BYTES_MAX, Frame, Head};

/// A request being sent piece by piece, as a relay does. If it is dropped before its end, it is answered `Lost`, and
/// its connection is closed if it may hold a partial request.
pub struct Sending<'a> {
    // Fields are dropped in this order: the connection becomes free for others only when nothing writes to it.
    pub(super) writer: OwnedMutexGuard<FrameWriter>,
    pub(super) flight: InFlight<'a, [RequestId; 1]>,
    pub(super) lent: Lent<'a>,
    /// Bytes of the body that are not written yet.
    pub(super) body_left: u64,
}

/// Requests that are registered as sent. If they are dropped before they are completely sent, they are answered `Lost`.
pub(super) struct InFlight<'a, R: AsRef<[RequestId]>> {
    pub(super) hop: &'a Hop,
    pub(super) requests: R,
    pub(super) sent: bool,
}

impl<R: AsRef<[RequestId]>> InFlight<'_, R> {
    /// Notes that everything has been sent. From now on the peer answers, or the loss of the connection does.
    pub(super) fn sent(mut self) {
        self.sent = true;
        let now_ms = self.hop.clock.now_ms();
        let mut flights = self.hop.flights();
        self.requests.as_ref().iter().for_each(|request| flights.whole(*request, now_ms));
    }
}

impl<R: AsRef<[RequestId]>> Drop for InFlight<'_, R> {
    fn drop(&mut self) {
        if self.sent {
            return;
        }
        for request in self.requests.as_ref() {
            let asker = self.hop.flights().answered(*request);
            if let Some(asker) = asker {
                asker.send(*request, verdict_of(lost_downstream(self.hop)));
            }
        }
    }
}

/// A connection taken from the queue of free ones. When it is dropped, it returns there if nothing was begun on it;
/// otherwise it is closed, because an unknown part of a frame has been written.
pub(super) struct Lent<'a> {
    pub(super) hop: &'a Hop,
    pub(super) outgoing: Outgoing,
    pub(super) begun: bool,
    /// Bytes of bodies written since it was taken.
    pub(super) sent_bytes: u64,
    pub(super) _slot: Slot,
}

impl Lent<'_> {
    /// Lets the connection take no more requests if its keys are near their limit.
    pub(super) fn retire_if_worn(&self, writer: &FrameWriter) {
        if writer.is_worn() {
            self.outgoing.retired.store(true, Ordering::Relaxed);
        }
    }

    /// Marks the request as complete, so that the connection is kept.
    pub(super) fn give_back(mut self) {
        self.begun = false;
        self.hop.throttle.succeeded(self.sent_bytes);
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if self.begun {
            self.hop.throttle.failed();
            self.outgoing.closed.cancel();
        } else {
            self.hop.give_back(self.outgoing.clone());
        }
    }
}

impl Sending<'_> {
    /// Begins the request. The head is written together with what follows it.
    pub fn head(&mut self, head: &Head) {
        self.lent.begun = true;
        self.body_left = head.wire_bytes;
        self.writer.queue(&Frame::Head(head.clone()));
    }

    /// Writes what is queued, if nothing follows the head.
    pub async fn flush(&mut self) -> Result<(), ConnectionError> {
        self.lent.hop.guarded(&self.lent.outgoing, self.writer.flush()).await
    }

    /// Seals a request and writes it, one `Data` frame at a time.
    pub async fn body(&mut self, mut sealing: Sealing<'_>) -> Result<(), ConnectionError> {
        self.head(sealing.head());
        let mut wire = std::mem::take(&mut self.writer.piece);
        let wanted = DATA_BYTES_MAX.min(sealing.wire_bytes_left() as usize);
        if wire.len() < wanted {
            wire.resize(wanted, 0);
        }
        loop {
            match sealing.fill(&mut wire).map_err(ConnectionError::Peer)? {
                0 => break,
                filled => self.piece(&wire[..filled], 0).await?,
            }
        }
        self.writer.piece = wire;
        Ok(())
    }

    /// Writes a frame between pieces (the header, an abort, a ping).
    pub async fn frame(&mut self, frame: &Frame) -> Result<(), ConnectionError> {
        self.lent.hop.guarded(&self.lent.outgoing, self.writer.frame(frame)).await
    }

    /// Writes bytes of the body. `more` follow in the same `Data` frame.
    pub async fn piece(&mut self, bytes: &[u8], more: usize) -> Result<(), ConnectionError> {
        self.lent.hop.guarded(&self.lent.outgoing, self.writer.part_of_data(bytes, more)).await?;
        self.count(bytes.len() as u64);
        Ok(())
    }

    /// As [`Sending::piece`], with the `length` bytes that are in a pipe.
    pub async fn piped(&mut self, pipe: &mut Pipe, length: usize, more: usize) -> Result<(), ConnectionError> {
        self.lent.hop.guarded(&self.lent.outgoing, self.writer.piped_part_of_data(pipe, more)).await?;
        self.count(length as u64);
        Ok(())
    }

    /// Returns whether [`Sending::piped`] works on this connection.
    pub fn splices(&self) -> bool {
        self.writer.splices()
    }

    fn count(&mut self, bytes: u64) {
        self.body_left = self.body_left.saturating_sub(bytes);
        self.lent.sent_bytes += bytes;
        self.lent.hop.counts.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Ends a completely written request: the connection is free for the next one.
    pub fn finish(self) {
        let Self { writer, flight, lent, .. } = self;
        lent.retire_if_worn(&writer);
        lent.hop.counts.requests.fetch_add(1, Ordering::Relaxed);
        drop(writer);
        flight.sent();
        lent.give_back();
    }

    /// Cancels a request whose body will not come: tells the peer to drop it, and sends no answer.
    pub async fn abort(mut self) {
        self.forget();
        if self.cut_short().await.is_ok() {
            self.finish();
        }
    }

    /// Ends the body before its end. If the frame that was begun is the last, its padding completes the body, and only
    /// the sink can tell: the seal is broken.
    async fn cut_short(&mut self) -> Result<(), ConnectionError> {
        let completes = self.writer.data_left() as u64 == self.body_left;
        self.lent.hop.guarded(&self.lent.outgoing, self.writer.pad_data()).await?;
        if completes { Ok(()) } else { self.frame(&Frame::Abort).await }
    }

    /// Handles a broken connection. Returns whether the request must still be answered here; if not, it has been
    /// answered.
    pub fn lost(self) -> bool {
        self.lent.outgoing.closed.cancel();
        self.forget()
    }

    /// Ignores any answer from downstream from now on. Returns whether the request was unanswered.
    fn forget(&self) -> bool {
        let [request] = self.flight.requests;
        self.lent.hop.flights().answered(request).is_some()
    }
}

/// Runs a write that ends at once when the connection is closed.
pub(super) async fn guarded(
    closed: &CancellationToken,
    write: impl Future<Output = Result<(), ConnectionError>>,
) -> Result<(), ConnectionError> {
    tokio::select! {
        biased;
        () = closed.cancelled() => Err(ConnectionError::Closed),
        written = write => written,
    }
}
