//! Whether a server can be reached: what the latest tries to connect came to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A server to which no connection could be made, from the first failed try since it last answered to the latest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Scheme, host and port.
    pub origin: String,
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
pub(super) struct Reach(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    connected: bool,
    failing: Option<Unreachable>,
}

impl Reach {
    /// A try that began at `began` could not connect.
    pub(super) fn failed(&self, origin: &str, began: Instant, why: &str) {
        let mut state = self.lock();
        let since = state.failing.as_ref().map_or(began, |failing| failing.since.min(began));
        let (origin, why) = (origin.to_owned(), why.to_owned());
        state.failing = Some(Unreachable { origin, why, since, latest: Instant::now() });
    }

    /// There was a connection: the server answered, or the request may at least have come to it.
    pub(super) fn connected(&self) {
        *self.lock() = State { connected: true, failing: None };
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
        let reach = Reach::default();
        assert!(reach.failing().is_none() && !reach.was_connected());
        let began = Instant::now() - Duration::from_secs(7);
        reach.failed("http://h:1", began, "refused");
        reach.clone().failed("http://h:1", began + Duration::from_secs(3), "no route");
        let failing = reach.failing().unwrap();
        assert_eq!((failing.since, failing.why.as_str()), (began, "no route"));
        assert!(failing.lasted() >= Duration::from_secs(7));
        assert!(!reach.was_connected());
        reach.connected();
        assert!(reach.failing().is_none() && reach.was_connected());
    }
}
