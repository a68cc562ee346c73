//! Tracks from the latest requests whether a server can be reached and answers with anything but errors.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A server that cannot be reached, or answers with transient errors only. Covers the time from the first request that
/// failed after the last good answer, to the latest. Any answer but a transient error is good, including a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Scheme, host and port.
    pub origin: String,
    /// Whether the latest request failed after a connection was made.
    pub is_connected: bool,
    /// Why the latest attempt failed.
    pub why: String,
    /// When the first failed attempt began.
    pub since: Instant,
    /// When the latest attempt failed.
    pub latest: Instant,
}

impl Unreachable {
    /// Time for which attempts have failed. Does not grow while nobody tries.
    pub fn lasted(&self) -> Duration {
        self.latest - self.since
    }
}

/// The state of one server. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Availability(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    connected: bool,
    failing: Option<Unreachable>,
    answered: Option<Instant>,
}

impl Availability {
    /// Notes that a request that began at `began` failed: it could not connect, got a transient error, or got no
    /// answer. A request with a connection may have moved bytes for a long time, so for it only the moment of failure
    /// counts.
    pub(super) fn failed(&self, origin: &str, began: Instant, is_connected: bool, why: &str) {
        let mut state = self.lock();
        let first = if is_connected { Instant::now() } else { began };
        let since = state.failing.as_ref().map_or(first, |failing| failing.since.min(first));
        let since = state.answered.map_or(since, |answered| answered.max(since));
        let (origin, why) = (origin.to_owned(), why.to_owned());
        state.connected |= is_connected;
        state.failing = Some(Unreachable { origin, is_connected, why, since, latest: Instant::now() });
    }

    /// Notes that a connection was made, so a request may have reached the server.
    pub(super) fn connected(&self) {
        self.lock().connected = true;
    }

    /// Notes that the server answered, or that bytes of an object move.
    pub(crate) fn answered(&self) {
        *self.lock() = State { connected: true, failing: None, answered: Some(Instant::now()) };
    }

    pub(super) fn was_answered(&self) -> bool {
        self.lock().answered.is_some()
    }

    pub(super) fn was_connected(&self) -> bool {
        self.lock().connected
    }

    pub(super) fn failing(&self) -> Option<Unreachable> {
        self.lock().failing.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_count_from_the_first_try_since_the_last_connection() {
        let availability = Availability::default();
        assert!(availability.failing().is_none() && !availability.was_connected());
        let began = Instant::now() - Duration::from_secs(7);
        availability.failed("http://h:1", began, false, "refused");
        availability.clone().failed("http://h:1", began + Duration::from_secs(3), false, "no route");
        let failing = availability.failing().unwrap();
        assert_eq!((failing.since, failing.why.as_str()), (began, "no route"));
        assert!(failing.lasted() >= Duration::from_secs(7));
        assert!(!availability.was_connected());
        availability.failed("http://h:1", began, true, "HTTP 503");
        let failing = availability.failing().unwrap();
        assert!(failing.is_connected && failing.since == began && availability.was_connected());
        availability.answered();
        assert!(availability.failing().is_none() && availability.was_connected());
        availability.failed("http://h:1", began, true, "HTTP 503");
        assert!(
            availability.failing().unwrap().lasted() < Duration::from_secs(1),
            "a slow request proves no long failure"
        );
    }
}
