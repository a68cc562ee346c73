//! Knows how soon a route usually answers, and so from when on its silence means that something stands still.
//!
//! While requests are in flight on a route, answers are expected one after another. The longest recent wait for an
//! answer is the usual one; it fades slowly while answers come sooner. The caller supplies the time.

/// Shortest silence that counts as a stall, in ms.
pub const PATIENCE_MS_MIN: u64 = 2_000;
/// A route is silent for too long after this multiple of its usual time to answer.
pub const PATIENCE_FACTOR: f64 = 4.0;
/// Number of usual waits over which the usual time fades.
const FADE_WAITS: f64 = 16.0;

/// The usual time to answer of one route.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    usual_ms: Option<f64>,
    /// When the wait for the next answer began: with the latest answer, or with the first request after none.
    since_ms: u64,
}

impl Pace {
    /// Records that a request is in flight and none was before.
    pub fn begins(&mut self, now_ms: u64) {
        self.since_ms = now_ms;
    }

    /// Records an answer. A wait beyond the patience counts only up to it, so that a single outage does not make the
    /// route seem slow for long.
    pub fn answered(&mut self, now_ms: u64) {
        let waited_ms = now_ms.saturating_sub(self.since_ms) as f64;
        self.since_ms = self.since_ms.max(now_ms);
        self.usual_ms = Some(self.usual_ms.map_or(waited_ms, |usual_ms| {
            let waited_ms = waited_ms.min(patience_ms(usual_ms) as f64);
            waited_ms.max(usual_ms * (-waited_ms / (FADE_WAITS * usual_ms.max(1.0))).exp())
        }));
    }

    /// Returns the usual time to answer, in ms; `None` before the first answer.
    pub fn usual_ms(&self) -> Option<f64> {
        self.usual_ms
    }

    /// Returns when the route will have been silent for too long, if an answer usually takes `usual_ms`.
    pub fn patient_until_ms(&self, usual_ms: f64) -> u64 {
        self.since_ms.saturating_add(patience_ms(usual_ms))
    }

    /// Returns for how long the next answer has been awaited, in ms.
    pub fn waited_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.since_ms)
    }
}

/// Returns the longest silence, in ms, of a route whose answers usually take `usual_ms`.
fn patience_ms(usual_ms: f64) -> u64 {
    PATIENCE_MS_MIN.max((PATIENCE_FACTOR * usual_ms).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_that_come_together_do_not_hide_the_waits_between_them() {
        let mut pace = Pace::default();
        pace.begins(0);
        for round in 1..=20u64 {
            (0..64).for_each(|_| pace.answered(round * 5_000));
            assert!(pace.usual_ms().unwrap() > 4_000.0, "round {round}");
        }
        assert_eq!(pace.patient_until_ms(5_000.0), 100_000 + 20_000);
    }

    #[test]
    fn one_outage_makes_a_route_seem_slow_only_for_a_while() {
        let mut pace = Pace::default();
        pace.begins(0);
        let mut now_ms = 0;
        let mut answers = |pace: &mut Pace, count: u64, every_ms: u64| {
            for _ in 0..count {
                now_ms += every_ms;
                pace.answered(now_ms);
            }
        };
        answers(&mut pace, 100, 100);
        answers(&mut pace, 1, 60_000);
        assert!(pace.usual_ms().unwrap() <= PATIENCE_MS_MIN as f64);
        answers(&mut pace, 2_000, 100);
        assert!(pace.usual_ms().unwrap() < 200.0);
    }

    proptest! {
        #[test]
        fn steady_answers_are_never_late(every_ms in 1u64..60_000, count in 1usize..200) {
            let mut pace = Pace::default();
            pace.begins(7);
            for answer in 1..=count as u64 {
                let now_ms = 7 + answer * every_ms;
                if let Some(usual_ms) = pace.usual_ms() {
                    prop_assert!(now_ms < pace.patient_until_ms(usual_ms).max(now_ms - every_ms + PATIENCE_MS_MIN + every_ms));
                    prop_assert!(usual_ms >= every_ms as f64 * 0.9);
                }
                pace.answered(now_ms);
            }
        }

        #[test]
        fn a_silence_is_noticed(waits in prop::collection::vec(0u64..10_000, 1..50)) {
            let mut pace = Pace::default();
            pace.begins(0);
            let mut now_ms = 0;
            for waited_ms in &waits {
                now_ms += waited_ms;
                pace.answered(now_ms);
            }
            let until_ms = pace.patient_until_ms(pace.usual_ms().unwrap());
            prop_assert!(until_ms >= now_ms + PATIENCE_MS_MIN);
            prop_assert!(until_ms <= now_ms + PATIENCE_MS_MIN.max(4 * waits.iter().max().unwrap() + 1));
        }
    }
}
