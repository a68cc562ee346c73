//! Follows the frames of one connection: where a request's body begins, continues and ends.

use crate::frame::{Frame, FrameError, Head, Header, Kind};

/// The next step of the reader of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request begins; its body follows as `Data` (none if `wire_bytes` is 0: the request is complete).
    Begin(Head),
    /// The request that began last will not be completed.
    GiveUp,
    /// Any other frame.
    Other(Frame),
}

/// State of the reading side of one connection.
#[derive(Debug, Default)]
pub struct Intake {
    greeted: bool,
    body_bytes_left: u64,
}

impl Intake {
    /// Returns the state of a connection on which nothing has been read.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the state of a connection whose Hello was read elsewhere.
    pub fn greeted() -> Self {
        Self { greeted: true, body_bytes_left: 0 }
    }

    /// Returns whether a body has begun and not ended. If so, losing the connection loses a request.
    pub fn in_body(&self) -> bool {
        self.body_bytes_left > 0
    }

    /// Records a `Data` header. Returns whether the body ends with this frame's payload.
    pub fn data(&mut self, header: &Header) -> Result<bool, FrameError> {
        let length = header.length as u64;
        if length == 0 || length > self.body_bytes_left {
            return Err(FrameError::Unexpected(Kind::Data, "more bytes than the head announced"));
        }
        self.body_bytes_left -= length;
        Ok(self.body_bytes_left == 0)
    }

    /// Records a complete frame other than `Data`. Returns what to do next.
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
        Frame::HopReports(_) => Kind::HopReports,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Codec, Hello, HopEnd, Purpose, SealId};
    use crate::{RequestId, RouteId, WIRE_VERSION_MAJOR};
    use proptest::prelude::*;

    fn hello() -> Frame {
        Frame::Hello(Hello {
            version: WIRE_VERSION_MAJOR,
            job: "job".into(),
            node: "node".into(),
            end: HopEnd::Upstream,
        })
    }

    fn head(wire_bytes: u64) -> Frame {
        Frame::Head(Head {
            request: RequestId(1),
            route: RouteId(0),
            purpose: Purpose::Chunk,
            manifest_bytes: 0,
            recipe_bytes: 0,
            referenced_bytes: 0,
            checksums: 0,
            raw_bytes: wire_bytes,
            wire_bytes,
            codec: Codec::Raw,
            seal: SealId { sealer: [0; 16], count: 0 },
        })
    }

    fn data(length: usize) -> Header {
        Header { kind: Kind::Data, route: RouteId(0), length }
    }

    fn greeted() -> Intake {
        let mut intake = Intake::new();
        intake.frame(hello()).unwrap();
        intake
    }

    #[test]
    fn nothing_comes_before_the_hello_and_no_second_one_after_it() {
        for early in [head(1), Frame::Ping(1), Frame::Replies(vec![]), Frame::Drain] {
            assert!(Intake::new().frame(early).is_err());
        }
        assert!(Intake::new().data(&data(1)).is_err());
        assert!(greeted().frame(hello()).is_err());
    }

    #[test]
    fn a_request_without_a_body_is_complete_at_once() {
        let mut intake = greeted();
        for _ in 0..2 {
            assert!(matches!(intake.frame(head(0)), Ok(Step::Begin(_))));
            assert!(!intake.in_body());
        }
        assert!(intake.frame(Frame::Abort).is_err());
    }

    #[test]
    fn a_body_may_be_given_up_and_the_next_begins() {
        let mut intake = greeted();
        intake.frame(head(10)).unwrap();
        assert_eq!(intake.data(&data(9)), Ok(false));
        assert!(intake.frame(head(1)).is_err());
        assert_eq!(intake.frame(Frame::Abort), Ok(Step::GiveUp));
        assert!(intake.data(&data(1)).is_err());
        assert!(matches!(intake.frame(head(1)), Ok(Step::Begin(_))));
        assert_eq!(intake.data(&data(1)), Ok(true));
    }

    proptest! {
        /// A body ends exactly with its last byte, however it is cut and whichever frames come between its pieces.
        #[test]
        fn a_body_ends_with_its_last_byte(bodies in prop::collection::vec(prop::collection::vec((1usize..5_000, any::<bool>()), 1..10), 1..8)) {
            let mut intake = greeted();
            for pieces in bodies {
                let total: usize = pieces.iter().map(|(length, _)| length).sum();
                intake.frame(head(total as u64)).unwrap();
                let mut left = total;
                for (length, ping_first) in pieces {
                    prop_assert!(intake.in_body());
                    if ping_first {
                        prop_assert_eq!(intake.frame(Frame::Ping(1)), Ok(Step::Other(Frame::Ping(1))));
                    }
                    prop_assert!(intake.data(&data(left + 1)).is_err());
                    prop_assert!(intake.data(&data(0)).is_err());
                    left -= length;
                    prop_assert_eq!(intake.data(&data(length)), Ok(left == 0));
                }
                prop_assert!(!intake.in_body());
            }
        }
    }
}
