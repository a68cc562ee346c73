//! Whether a server can be reached, and answers anything but errors: what the latest requests came to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A server that cannot be reached or answers nothing but passing errors, from the first request that failed since its
/// last good answer to the latest. Any answer that is no passing error is a good one, a refusal too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Scheme, host and port.
    pub origin: String,
    /// Whether the latest failed after a connection was made.
    pub is_connected: bool,
    /// What the latest try met.
    pub why: String,
    /// When the first of the tries began.
    pub since: Instant,
    /// When the latest failed.
    pub latest: Instant,
}

impl Unreachable {
    /// So long it was tried in vain. It does not grow while nobody tries.
    pub fn lasted(&self) -> Duration {
        self.latest - self.since
    }
}

/// What is known of one server. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Availability(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    connected: bool,
    failing: Option<Unreachable>,
    answered: Option<Instant>,
}

impl Availability {
    /// A request that began at `began` failed: it could not connect, or was answered with a passing error or not at all.
    /// One that had a connection may have moved bytes for long, so only the moment when it failed counts.
    pub(super) fn failed(&self, origin: &str, began: Instant, is_connected: bool, why: &str) {
        let mut state = self.lock();
        let first = if is_connected { Instant::now() } else { began };
        let since = state.failing.as_ref().map_or(first, |failing| failing.since.min(first));
        let since = state.answered.map_or(since, |answered| answered.max(since));
        let (origin, why) = (origin.to_owned(), why.to_owned());
        state.connected |= is_connected;
        state.failing = Some(Unreachable { origin, is_connected, why, since, latest: Instant::now() });
    }

    /// There was a connection: a request may at least have come to the server.
    pub(super) fn connected(&self) {
        self.lock().connected = true;
    }

    /// The server answered, or bytes of an object move.
    pub(crate) fn answered(&self) {
        *self.lock() = State { connected: true, failing: None, answered: Some(Instant::now()) };
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
