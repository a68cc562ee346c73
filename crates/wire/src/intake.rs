//! Follows the frames of one connection: where a request's body begins, goes on and ends.

use crate::frame::{Frame, FrameError, Head, Header, Kind};

/// What the reader of a connection must do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request begins; its body follows as `Data` (none if `wire_bytes` is 0: the request is complete).
    Begin(Head),
    /// The request begun last will not be finished.
    GiveUp,
    /// Anything else.
    Other(Frame),
}

/// State of the reading side of one connection.
#[derive(Debug, Default)]
pub struct Intake {
    greeted: bool,
    body_bytes_left: u64,
}

impl Intake {
    /// A connection on which nothing has been read.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a body has begun and not ended: losing the connection now loses a request.
    pub fn in_body(&self) -> bool {
        self.body_bytes_left > 0
    }

    /// A `Data` header was read. Returns whether the body ends with this frame's payload.
    pub fn data(&mut self, header: &Header) -> Result<bool, FrameError> {
        let length = header.length as u64;
        if length == 0 || length > self.body_bytes_left {
            return Err(FrameError::Unexpected(Kind::Data, "more bytes than the head announced"));
        }
        self.body_bytes_left -= length;
        Ok(self.body_bytes_left == 0)
    }

    /// A whole frame other than `Data` was read.
    pub fn frame(&mut self, frame: Frame) -> Result<Step, FrameError> {
        let is_hello = matches!(frame, Frame::Hello(_));
        if is_hello == self.greeted {
            let why = if is_hello { "a second hello" } else { "before the hello" };
            return Err(FrameError::Unexpected(kind_of(&frame), why));
        }
        self.greeted = true;
        match frame {
            Frame::Head(_) if self.in_body() => Err(FrameError::Unexpected(Kind::Head, "the last body has not ended")),
            Frame::Head(head) => {
                self.body_bytes_left = head.wire_bytes;
                Ok(Step::Begin(head))
            }
            Frame::Abort if !self.in_body() => Err(FrameError::Unexpected(Kind::Abort, "no body to give up")),
            Frame::Abort => {
                self.body_bytes_left = 0;
                Ok(Step::GiveUp)
            }
            other => Ok(Step::Other(other)),
        }
    }
}

fn kind_of(frame: &Frame) -> Kind {
    match frame {
        Frame::Hello(_) => Kind::Hello,
        Frame::Orders(_) => Kind::Orders,
        Frame::Head(_) => Kind::Head,
        Frame::Abort => Kind::Abort,
        Frame::Replies(_) => Kind::Replies,
        Frame::Ping(_) => Kind::Ping,
        Frame::Pong(_) => Kind::Pong,
        Frame::Drain => Kind::Drain,
    }
}
