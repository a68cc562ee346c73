//! Limits what a route may have in flight. The window follows what the route carried recently, so a slow route holds
//! only seconds of work.
//!
//! The window begins at its start size. After that it is a minimum plus [`GAIN`] times the bytes acked over the last
//! [`SPAN_MS`] (or over the shortest time that a request takes, if that is longer). So each ack makes room for more
//! than it frees. While a route carries all it is given, its window at least doubles with each round trip, as in TCP's
//! slow start. When it carries no more, the window stays at that many seconds of its rate; when its rate falls, so does
//! the window. The caller supplies the time.

/// Time over which acked bytes fade, in ms.
pub const SPAN_MS: f64 = 1_000.0;
/// Bytes in flight for each byte acked within the span: one in transit, one waiting, so that no link runs idle.
pub const GAIN: f64 = 2.0;

/// The bytes that one route may have in flight.
#[derive(Clone, Debug)]
pub struct Window {
    least_bytes: u64,
    most_bytes: u64,
    /// Acked bytes, each fading with its age.
    recent_bytes: f64,
    /// When the last ack came.
    recent_ms: Option<u64>,
    /// The largest request acked so far, and the shortest time that one of at least half its size took.
    largest_bytes: u64,
    least_ms: f64,
}

impl Window {
    /// Returns a window between two bounds. It is `start_bytes` until the first ack; the part above the lower bound
    /// then fades as if it had just been acked.
    pub fn new(least_bytes: u64, start_bytes: u64, most_bytes: u64) -> Self {
        let least_bytes = least_bytes.min(most_bytes);
        let recent_bytes = start_bytes.saturating_sub(least_bytes) as f64 / GAIN;
        Self { least_bytes, most_bytes, recent_bytes, recent_ms: None, largest_bytes: 0, least_ms: 0.0 }
    }

    /// Returns the bytes that may be in flight.
    pub fn bytes(&self) -> u64 {
        let wanted_bytes = self.least_bytes.saturating_add((GAIN * self.recent_bytes) as u64);
        wanted_bytes.min(self.most_bytes)
    }

    /// Returns the recent rate in bytes per ms; `None` before the first ack.
    pub fn bytes_per_ms(&self) -> Option<f64> {
        self.recent_ms.map(|_| self.recent_bytes / self.least_ms.max(SPAN_MS))
    }

    /// Records the ack of a request of `bytes` that was sent at `sent_ms`.
    pub fn acked(&mut self, bytes: u64, sent_ms: u64, now_ms: u64) {
        if bytes == 0 {
            return;
        }
        let took_ms = now_ms.saturating_sub(sent_ms) as f64;
        if bytes / 2 > self.largest_bytes {
            self.least_ms = took_ms;
        } else if bytes >= self.largest_bytes / 2 {
            self.least_ms = self.least_ms.min(took_ms);
        }
        self.largest_bytes = self.largest_bytes.max(bytes);
        let age_ms = now_ms.saturating_sub(self.recent_ms.unwrap_or(now_ms)) as f64;
        self.recent_bytes = self.recent_bytes * (-age_ms / self.least_ms.max(SPAN_MS)).exp() + bytes as f64;
        self.recent_ms = Some(now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const CHUNK_BYTES: u64 = 1 << 20;
    const LEAST_BYTES: u64 = 8 * CHUNK_BYTES;

    /// A link that carries one chunk after another; each is acked `delay_ms` after its last byte was sent.
    struct Link {
        window: Window,
        /// When each chunk that waits or is being sent entered the queue.
        queue: VecDeque<u64>,
        /// Chunks that were carried: time sent, time acked.
        over: VecDeque<(u64, f64)>,
        /// Bytes already carried of the chunk being sent.
        carried_bytes: f64,
        now_ms: u64,
    }

    impl Link {
        fn new(most_bytes: u64) -> Self {
            Self::starting_with(LEAST_BYTES, most_bytes)
        }

        fn starting_with(start_bytes: u64, most_bytes: u64) -> Self {
            let window = Window::new(LEAST_BYTES, start_bytes, most_bytes);
            Self { window, queue: VecDeque::new(), over: VecDeque::new(), carried_bytes: 0.0, now_ms: 0 }
        }

        fn flight_bytes(&self) -> u64 {
            (self.queue.len() + self.over.len()) as u64 * CHUNK_BYTES
        }

        /// Runs for `lasting_ms`. Returns how many bytes were acked.
        fn run(&mut self, lasting_ms: u64, bytes_per_ms: f64, delay_ms: f64) -> u64 {
            let mut acked_bytes = 0;
            for _ in 0..lasting_ms {
                self.now_ms += 1;
                while self.flight_bytes() + CHUNK_BYTES <= self.window.bytes() {
                    self.queue.push_back(self.now_ms);
                }
                self.carried_bytes += bytes_per_ms;
                while self.carried_bytes >= CHUNK_BYTES as f64
                    && let Some(sent_ms) = self.queue.pop_front()
                {
                    self.carried_bytes -= CHUNK_BYTES as f64;
                    self.over.push_back((sent_ms, self.now_ms as f64 + delay_ms));
                }
                if self.queue.is_empty() {
                    self.carried_bytes = 0.0;
                }
                while self.over.front().is_some_and(|(_, due_ms)| *due_ms <= self.now_ms as f64) {
                    let (sent_ms, _) = self.over.pop_front().unwrap();
                    self.window.acked(CHUNK_BYTES, sent_ms, self.now_ms);
                    acked_bytes += CHUNK_BYTES;
                }
            }
            acked_bytes
        }
    }

    #[test]
    fn a_link_that_slows_to_a_third_soon_holds_a_third() {
        let mut link = Link::new(1 << 40);
        link.run(20_000, 12_500.0, 60.0);
        let before_bytes = link.flight_bytes();
        link.run(10_000, 12_500.0 / 3.0, 60.0);
        let held_ms = link.flight_bytes() as f64 / (12_500.0 / 3.0);
        assert!(link.flight_bytes() < before_bytes * 6 / 10, "{} of {before_bytes}", link.flight_bytes());
        assert!(held_ms < GAIN * SPAN_MS + LEAST_BYTES as f64 / (12_500.0 / 3.0) + 500.0, "{held_ms} ms of work");
    }

    #[test]
    fn the_window_of_a_fast_route_opens_within_a_few_round_trips() {
        let most_bytes = 384 * CHUNK_BYTES;
        let mut link = Link::new(most_bytes);
        link.run(1_000, 1e9, 100.0);
        assert_eq!(link.window.bytes(), most_bytes, "ten rounds at a tenth of a second");
    }

    #[test]
    fn an_unused_starting_window_fades() {
        let start_bytes = 64 * CHUNK_BYTES;
        let mut link = Link::starting_with(start_bytes, 1 << 40);
        assert_eq!(link.window.bytes(), start_bytes);
        link.run(60, 1_000.0, 60.0);
        assert_eq!(link.window.bytes(), start_bytes, "nothing is known before the first ack");
        link.run(30_000, 1_000.0, 60.0);
        let steady = LEAST_BYTES + (GAIN * SPAN_MS * 1_000.0) as u64;
        assert!(link.window.bytes() < steady * 12 / 10, "{} of {steady}", link.window.bytes());
    }

    #[test]
    fn small_requests_between_large_ones_do_not_hide_how_long_large_ones_take() {
        let mut window = Window::new(LEAST_BYTES, LEAST_BYTES, u64::MAX);
        for second in 10..100_u64 {
            window.acked(1_000, second * 1_000 - 10, second * 1_000);
            window.acked(CHUNK_BYTES, second * 1_000 - 8_000, second * 1_000);
        }
        // One chunk a second, and each takes eight seconds: sixteen chunks keep the link busy.
        assert!(window.bytes() >= LEAST_BYTES + 14 * CHUNK_BYTES, "{}", window.bytes());
    }

    proptest! {
        #[test]
        fn a_window_stays_within_its_bounds(
            bounds in (1u64..1 << 40, 1u64..1 << 40),
            start_bytes in 0u64..1 << 41,
            acks in prop::collection::vec((0u64..1 << 30, 0u64..5_000, 0u64..100_000), 0..200),
        ) {
            let mut window = Window::new(bounds.0, start_bytes, bounds.1);
            let mut now_ms = 0;
            for (bytes, pause_ms, took_ms) in acks {
                now_ms += pause_ms;
                window.acked(bytes, now_ms.saturating_sub(took_ms), now_ms);
                prop_assert!((bounds.0.min(bounds.1)..=bounds.1).contains(&window.bytes()));
            }
        }

        /// A growing window never leaves a link idle, whatever its rate and however long an answer takes.
        #[test]
        fn no_window_leaves_a_link_idle(bytes_per_ms in 100.0..200_000.0f64, delay_ms in 1.0..6_000.0f64) {
            let mut link = Link::new(1 << 50);
            link.run(60_000, bytes_per_ms, delay_ms);
            let carried = link.run(20_000, bytes_per_ms, delay_ms) as f64;
            prop_assert!(carried >= 0.97 * 20_000.0 * bytes_per_ms - CHUNK_BYTES as f64, "{carried}");
        }
    }
}
