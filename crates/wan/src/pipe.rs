//! A pipe: sends packets one after the other at its rate, with a queue of limited length.
//!
//! It needs no real queue. Packets leave in their order of arrival, so the departure time of the last one determines
//! how many bytes wait and when the next one can leave.

use crate::Nanos;
use serde::Deserialize;

/// Lowest rate of a pipe, bit/s: below it a packet takes seconds.
pub const RATE_BPS_MIN: u64 = 8_000;
/// Highest rate of a pipe, bit/s: above it nanoseconds round to nothing.
pub const RATE_BPS_MAX: u64 = 100_000_000_000;
/// Longest queue of a pipe, bytes.
pub const QUEUE_BYTES_MAX: u64 = 1 << 30;

const BITS_PER_BYTE_NS: u64 = 8_000_000_000;

/// Properties of a pipe.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct PipeSpec {
    /// Rate on the wire, bit/s.
    pub rate_bps: u64,
    /// Most bytes that may wait, including the packet being sent.
    pub queue_bytes: u64,
}

impl PipeSpec {
    /// Describes what is wrong with the properties, if anything.
    pub fn wrong(&self) -> Option<String> {
        if !(RATE_BPS_MIN..=RATE_BPS_MAX).contains(&self.rate_bps) {
            return Some(format!("rate_bps {} is not between {RATE_BPS_MIN} and {RATE_BPS_MAX}", self.rate_bps));
        }
        if !(1..=QUEUE_BYTES_MAX).contains(&self.queue_bytes) {
            return Some(format!("queue_bytes {} is not between 1 and {QUEUE_BYTES_MAX}", self.queue_bytes));
        }
        None
    }

    /// Returns the same pipe at another rate: its queue keeps its length in time, but is at least `queue_bytes_min`.
    pub fn at_rate(self, rate_bps: u64, queue_bytes_min: u64) -> Self {
        let scaled = u128::from(self.queue_bytes) * u128::from(rate_bps) / u128::from(self.rate_bps);
        let queue_bytes = scaled.clamp(u128::from(queue_bytes_min), u128::from(QUEUE_BYTES_MAX)) as u64;
        Self { rate_bps, queue_bytes }
    }
}

/// A pipe with its state.
#[derive(Debug)]
pub struct Pipe {
    spec: PipeSpec,
    free_at: Nanos,
}

impl Pipe {
    /// An empty pipe.
    pub fn new(spec: PipeSpec) -> Self {
        Self { spec, free_at: 0 }
    }

    /// Its properties.
    pub fn spec(&self) -> PipeSpec {
        self.spec
    }

    /// Changes its properties. Packets that already wait leave at their earlier times.
    pub fn change(&mut self, spec: PipeSpec) {
        self.spec = spec;
    }

    /// Bytes that wait at `now`, including the packet being sent.
    pub fn backlog_bytes(&self, now: Nanos) -> u64 {
        let busy_ns = u128::from(self.free_at.saturating_sub(now));
        (busy_ns * u128::from(self.spec.rate_bps)).div_ceil(u128::from(BITS_PER_BYTE_NS)) as u64
    }

    /// Returns how many of `count` packets of up to `packet_bytes` each have room at `now`. An idle pipe takes at least
    /// one.
    pub fn room(&self, now: Nanos, count: u32, packet_bytes: u64) -> u32 {
        let backlog = self.backlog_bytes(now);
        if backlog == 0 && packet_bytes > self.spec.queue_bytes {
            return count.min(1);
        }
        let free = self.spec.queue_bytes.saturating_sub(backlog) / packet_bytes.max(1);
        count.min(u32::try_from(free).unwrap_or(u32::MAX))
    }

    /// Accepts `bytes` at `now` and returns when they will have left.
    pub fn send(&mut self, now: Nanos, bytes: u64) -> Nanos {
        // 64 KiB · 8e9 fits into 64 bits. Rounding up keeps the rate at or below the requested one.
        let sending_ns = (bytes * BITS_PER_BYTE_NS).div_ceil(self.spec.rate_bps);
        self.free_at = self.free_at.max(now) + sending_ns;
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe(rate_bps: u64, queue_bytes: u64) -> Pipe {
        Pipe::new(PipeSpec { rate_bps, queue_bytes })
    }

    #[test]
    fn a_packet_takes_its_bits_over_the_rate() {
        let mut pipe = pipe(8_000_000, 10_000);
        assert_eq!(pipe.send(1_000, 1_000), 1_000 + 1_000_000);
        assert_eq!(pipe.send(1_000, 500), 1_000 + 1_500_000, "behind the first");
        assert_eq!(pipe.send(9_000_000, 1), 9_001_000, "an idle pipe starts at once");
    }

    #[test]
    fn the_queue_holds_bytes_that_have_not_left() {
        let mut pipe = pipe(8_000_000, 3_000);
        assert_eq!(pipe.room(0, 10, 1_000), 3);
        pipe.send(0, 2_500);
        assert_eq!(pipe.backlog_bytes(0), 2_500);
        assert_eq!(pipe.room(0, 10, 1_000), 0);
        assert_eq!(pipe.room(500_000, 10, 1_000), 1, "half a millisecond drains 500 bytes");
        assert_eq!(pipe.backlog_bytes(2_500_000), 0);
    }

    #[test]
    fn an_idle_pipe_takes_a_packet_longer_than_its_queue() {
        let mut pipe = pipe(8_000_000, 100);
        assert_eq!(pipe.room(0, 5, 1_500), 1);
        pipe.send(0, 1_500);
        assert_eq!(pipe.room(1, 5, 1_500), 0);
    }

    #[test]
    fn a_queue_keeps_its_length_in_time_when_the_rate_changes() {
        let spec = PipeSpec { rate_bps: 100_000_000, queue_bytes: 1_000_000 };
        assert_eq!(spec.at_rate(10_000_000, 1), PipeSpec { rate_bps: 10_000_000, queue_bytes: 100_000 });
        assert_eq!(spec.at_rate(8_000, 96_000).queue_bytes, 96_000);
    }
}
