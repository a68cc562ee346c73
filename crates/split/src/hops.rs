//! Counts of the next proxies: connections to them, and the time until flows over them get their first byte.

use crate::limits::{FAILURE_CHARS_MAX, FIRST_BYTES};
use crate::status::Hop;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How a flow got its connection to the next proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// It was ready.
    Taken,
    /// The flow opened it.
    Missed,
}

/// The latest times to the first byte, in milliseconds.
#[derive(Debug, Default)]
struct Latest(VecDeque<f64>);

impl Latest {
    fn add(&mut self, ms: f64) {
        if self.0.len() == FIRST_BYTES {
            self.0.pop_front();
        }
        self.0.push_back(ms);
    }

    fn median(&self) -> Option<f64> {
        let mut sorted: Vec<_> = self.0.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }
}

/// The counts of one next proxy.
#[derive(Debug, Default)]
pub(crate) struct HopCounts {
    hop: Hop,
    taken: Latest,
    missed: Latest,
    /// When a connection was last opened, TLS included.
    reached: Option<Instant>,
}

impl HopCounts {
    /// A TCP handshake took this long.
    pub(crate) fn connected(&mut self, time: Duration) {
        let (hop, ms) = (&mut self.hop, time.as_secs_f64() * 1e3);
        hop.connect_ms_min = if hop.dialed == 0 { ms } else { hop.connect_ms_min.min(ms) };
        hop.connect_ms_last = ms;
        hop.dialed += 1;
    }

    /// A connection was opened, TLS included.
    pub(crate) fn reached(&mut self, now: Instant) {
        (self.reached, self.hop.failures, self.hop.failure) = (Some(now), 0, None);
    }

    /// A connection could not be opened.
    pub(crate) fn failed(&mut self, why: &str) {
        self.hop.failures += 1;
        self.hop.failure = Some(why.chars().take(FAILURE_CHARS_MAX).collect());
    }

    /// True if a connection was opened within this time.
    pub(crate) fn was_reached(&self, within: Duration, now: Instant) -> bool {
        self.reached.is_some_and(|reached| now.saturating_duration_since(reached) < within)
    }

    /// A flow has its connection.
    pub(crate) fn used(&mut self, source: Source) {
        match source {
            Source::Taken => self.hop.taken += 1,
            Source::Missed => self.hop.missed += 1,
        }
    }

    /// Connections that were ready broke.
    pub(crate) fn died(&mut self, count: usize) {
        self.hop.dead += count as u64;
    }

    /// A flow got its first byte this long after its request.
    pub(crate) fn first_byte(&mut self, source: Source, time: Duration) {
        let ms = time.as_secs_f64() * 1e3;
        match source {
            Source::Taken => self.taken.add(ms),
            Source::Missed => self.missed.add(ms),
        }
    }

    /// The counts now, with `ready` connections.
    pub(crate) fn hop(&self, ready: usize) -> Hop {
        let (taken, missed) = (self.taken.median(), self.missed.median());
        Hop { ready, first_byte_ms_taken: taken, first_byte_ms_missed: missed, ..self.hop.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_count_until_a_connection_is_opened() {
        let (mut counts, now) = (HopCounts::default(), Instant::now());
        counts.failed("refused");
        counts.failed(&"x".repeat(2 * FAILURE_CHARS_MAX));
        let hop = counts.hop(0);
        assert_eq!((hop.failures, hop.failure.map(|why| why.len())), (2, Some(FAILURE_CHARS_MAX)));
        assert!(!counts.was_reached(Duration::MAX, now));
        counts.reached(now);
        assert_eq!((counts.hop(0).failures, counts.hop(0).failure), (0, None));
        assert!(counts.was_reached(Duration::from_secs(1), now));
        assert!(!counts.was_reached(Duration::from_secs(1), now + Duration::from_secs(1)));
    }

    #[test]
    fn the_latest_first_bytes_count_by_source() {
        let mut counts = HopCounts::default();
        assert_eq!(counts.hop(0), Hop::default());
        counts.first_byte(Source::Missed, Duration::from_millis(900));
        for ms in 1..=3 * FIRST_BYTES as u64 {
            counts.first_byte(Source::Taken, Duration::from_millis(ms));
        }
        let hop = counts.hop(2);
        assert_eq!((hop.ready, hop.first_byte_ms_missed), (2, Some(900.0)));
        assert_eq!(hop.first_byte_ms_taken, Some(2.5 * FIRST_BYTES as f64 + 1.0));
    }
}
