//! Request and answer bodies: payload segments out, exact lengths in.

use super::{Availability, Call};
use crate::rest::still_at_work;
use crate::{ErrorKind, Payload, Result};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Longest answer read into memory: a page of 5,000 keys of 1 KiB each, escaped, is about 25 MiB.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The segments of a payload as a request body with a known length.
#[derive(Debug)]
pub(crate) struct SendBody {
    payload: Payload,
    next_segment: usize,
    bytes_left: u64,
    life: Option<Availability>,
}

impl SendBody {
    /// Reports each segment that is sent, except the first, to `life`.
    pub(crate) fn new(payload: Payload, life: Option<Availability>) -> Self {
        Self { bytes_left: payload.len(), next_segment: 0, payload, life }
    }
}

impl Body for SendBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(segment) = self.payload.segments().get(self.next_segment).cloned() else { return Poll::Ready(None) };
        // The first segment may only fill buffers of this machine.
        if let Some(life) = self.life.as_ref().filter(|_| self.next_segment > 0) {
            life.answered();
        }
        self.next_segment += 1;
        self.bytes_left -= segment.len() as u64;
        self.payload.sent(segment.len() as u64);
        Poll::Ready(Some(Ok(Frame::data(segment))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes_left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}

/// Reads a small answer (XML) into memory.
pub(crate) async fn read_all(call: &Call, body: Incoming) -> Result<Bytes> {
    read_up_to(ANSWER_BYTES_MAX, call, body).await
}

/// Reads an answer of at most `bytes_max` bytes into memory.
pub(crate) async fn read_up_to(bytes_max: usize, call: &Call, mut body: Incoming) -> Result<Bytes> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| call.error(ErrorKind::Truncated, format!("answer cut short: {error}")))?;
        if let Ok(data) = frame.into_data() {
            // Servers send white space while they work. Any other byte begins the answer, which is small: a slow answer
            // gets the time limit of any other answer, and no more.
            if data.iter().all(u8::is_ascii_whitespace) {
                still_at_work(call)?;
            }
            if all.len() + data.len() > bytes_max {
                return Err(call.error(ErrorKind::Server, format!("answer longer than {bytes_max} bytes")));
            }
            if all.is_empty() && body.is_end_stream() {
                return Ok(data);
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(all.freeze())
}

/// A body of exactly `expected` bytes; any other length is an error at its end.
pub(crate) fn stream_exactly(
    call: Call,
    body: Incoming,
    expected: u64,
    life: Availability,
) -> BoxStream<'static, Result<Bytes>> {
    let state = (body, expected, call, life, false);
    futures::stream::unfold(state, |(mut body, left, call, life, ended)| async move {
        if ended {
            return None;
        }
        let fail = |message: String| call.error(ErrorKind::Truncated, message);
        let item = loop {
            match body.frame().await {
                None if left == 0 => return None,
                None => break Err(fail(format!("body ended {left} bytes early"))),
                Some(Err(error)) => {
                    break Err(fail(format!(
                        "the connection was lost {left} bytes before the end of the body: {error}"
                    )));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.len() as u64 > left => {
                        break Err(fail("body longer than announced".to_owned()));
                    }
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => {
                        life.answered();
                        break Ok(data);
                    }
                    Err(_trailers) => {}
                },
            }
        };
        let ended = item.is_err();
        let left = left - item.as_ref().map_or(0, |data| data.len() as u64);
        Some((item, (body, left, call, life, ended)))
    })
    .boxed()
}
