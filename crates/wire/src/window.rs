//! How much a route may have in flight: what it carried lately, so that one that slows down holds seconds of work.
//!
//! The window begins at its start. Then it is a floor and [`GAIN`] times what was acked over the last [`SPAN_MS`] (or over the time that a request
//! takes at least, if that is longer). Each ack thus makes room for more than it frees: while a route carries all it is
//! given its window doubles and more with each round, as TCP's slow start does; when it carries no more, the window
//! stays at that many seconds of its rate; when its rate falls, so does the window. Time is the caller's.

/// Acked bytes count for about so long.
pub const SPAN_MS: f64 = 1_000.0;
/// Bytes in flight for each byte acked within the span: one is on its way, one waits, so that no link runs dry.
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
    /// A window between two bounds. It is `start_bytes` until the first ack; what is above the lower bound then fades
    /// as if it had just been acked.
    pub fn new(least_bytes: u64, start_bytes: u64, most_bytes: u64) -> Self {
        let least_bytes = least_bytes.min(most_bytes);
        let recent_bytes = start_bytes.saturating_sub(least_bytes) as f64 / GAIN;
        Self { least_bytes, most_bytes, recent_bytes, recent_ms: None, largest_bytes: 0, least_ms: 0.0 }
    }

    /// Bytes that may be in flight.
    pub fn bytes(&self) -> u64 {
        let wanted_bytes = self.least_bytes.saturating_add((GAIN * self.recent_bytes) as u64);
        wanted_bytes.min(self.most_bytes)
    }

    /// A request of `bytes` that was sent at `sent_ms` was acked.
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

    /// A link that carries one chunk after the other, each acked `delay_ms` after its last byte went over.
    struct Link {
        window: Window,
        /// When each chunk that waits or goes over was sent.
        queue: VecDeque<u64>,
        /// Those that are over: when sent, when acked.
        over: VecDeque<(u64, f64)>,
        /// Of the chunk that goes over.
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

        /// Runs for so long; says how many bytes were acked.
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
    fn a_route_that_can_carry_all_is_given_all_within_a_few_rounds() {
        let most_bytes = 384 * CHUNK_BYTES;
        let mut link = Link::new(most_bytes);
        link.run(1_000, 1e9, 100.0);
        assert_eq!(link.window.bytes(), most_bytes, "ten rounds at a tenth of a second");
    }

    #[test]
    fn what_a_route_begins_with_fades_if_it_is_not_carried() {
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
        // A chunk a second, each under way for eight: sixteen chunks keep it so.
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

        /// Whatever its rate, and however long an answer takes, a link whose window may grow is never idle for it.
        #[test]
        fn no_link_runs_dry_for_its_window(bytes_per_ms in 100.0..200_000.0f64, delay_ms in 1.0..6_000.0f64) {
            let mut link = Link::new(1 << 50);
            link.run(60_000, bytes_per_ms, delay_ms);
            let carried = link.run(20_000, bytes_per_ms, delay_ms) as f64;
            prop_assert!(carried >= 0.97 * 20_000.0 * bytes_per_ms - CHUNK_BYTES as f64, "{carried}");
        }
    }
}
