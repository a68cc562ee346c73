//! Measures the difference between this machine's clock and a server's from the `Date` of its answers.

use super::{header, parse_http_date};
use http::HeaderMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// No answer had a date yet.
const UNKNOWN: i64 = i64::MIN;

/// The difference shown by the last dated answer. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct ServerClock(Arc<Observed>);

#[derive(Debug)]
struct Observed {
    ahead_s: AtomicI64,
    date_unix_ms: AtomicI64,
}

impl Default for ServerClock {
    fn default() -> Self {
        Self(Arc::new(Observed { ahead_s: AtomicI64::new(UNKNOWN), date_unix_ms: AtomicI64::new(UNKNOWN) }))
    }
}

impl ServerClock {
    /// Reads the `Date` of an answer to a request that was sent and answered at these times of this machine.
    pub(super) fn observe(&self, sent_unix_ms: i64, answered_unix_ms: i64, headers: &HeaderMap) {
        if let Some(date_unix_ms) = header(headers, "date").and_then(parse_http_date) {
            self.0.ahead_s.store(least_ahead_s(sent_unix_ms, answered_unix_ms, date_unix_ms), Ordering::Relaxed);
            self.0.date_unix_ms.store(date_unix_ms, Ordering::Relaxed);
        }
    }

    /// The `Date` of the latest answer, in whole seconds.
    pub(super) fn date_unix_ms(&self) -> Option<i64> {
        known(&self.0.date_unix_ms)
    }

    /// This machine's clock minus the server's, seconds.
    pub(super) fn ahead_s(&self) -> Option<i64> {
        known(&self.0.ahead_s)
    }
}

fn known(value: &AtomicI64) -> Option<i64> {
    Some(value.load(Ordering::Relaxed)).filter(|value| *value != UNKNOWN)
}

/// The smallest difference that explains a date. The server wrote the date, truncated to the second, at some time
/// between request and answer, so a slow answer does not look like a wrong clock.
fn least_ahead_s(sent_unix_ms: i64, answered_unix_ms: i64, date_unix_ms: i64) -> i64 {
    let least_ms = sent_unix_ms - (date_unix_ms + 999);
    let most_ms = answered_unix_ms - date_unix_ms;
    // This machine's clock may have been set back between the two.
    0i64.clamp(least_ms, most_ms.max(least_ms)) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    #[test]
    fn an_undated_answer_changes_nothing() {
        let clock = ServerClock::default();
        clock.observe(0, 0, &HeaderMap::new());
        assert_eq!(clock.ahead_s(), None);
        let date = HeaderValue::from_static("Thu, 01 Jan 1970 00:01:00 GMT");
        clock.observe(0, 10, &HeaderMap::from_iter([(http::header::DATE, date)]));
        assert_eq!((clock.clone().ahead_s(), clock.date_unix_ms()), (Some(-59), Some(60_000)));
        let garbage = HeaderValue::from_static("yesterday");
        clock.observe(0, 10, &HeaderMap::from_iter([(http::header::DATE, garbage)]));
        assert_eq!(clock.ahead_s(), Some(-59));
    }

    #[test]
    fn a_slow_answer_does_not_look_like_a_wrong_clock() {
        assert_eq!(least_ahead_s(1_000_000, 1_090_000, 1_000_000), 0);
        assert_eq!(least_ahead_s(1_000_000, 1_090_000, 1_090_000), 0);
        assert_eq!(least_ahead_s(1_000_000, 1_000_050, 910_000), 89);
        assert_eq!(least_ahead_s(1_000_000, 1_000_050, 1_090_000), -89);
    }

    proptest! {
        #[test]
        fn never_more_than_the_true_difference(
            ahead_ms in -10_000_000i64..10_000_000,
            server_ms in 0i64..4_000_000_000_000,
            before_ms in 0i64..100_000,
            after_ms in 0i64..100_000,
        ) {
            let here_ms = server_ms + ahead_ms;
            let date_ms = server_ms / 1000 * 1000;
            let found_s = least_ahead_s(here_ms - before_ms, here_ms + after_ms, date_ms);
            prop_assert!(found_s == 0 || found_s.signum() == ahead_ms.signum());
            prop_assert!(found_s.abs() * 1000 <= ahead_ms.abs() + 999);
        }
    }
}
