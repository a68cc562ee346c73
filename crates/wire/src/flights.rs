//! A node's record of the requests that it forwarded on a hop and that are not answered yet.

use crate::{ConnectionId, RequestId};
use std::collections::HashMap;

/// Requests forwarded and not yet answered. `U` says where the answer goes (an upstream connection, an order, …).
///
/// Its size is limited by what upstream may have in flight: the node's own limits admitted every request here.
#[derive(Debug)]
pub struct Flights<U> {
    by_request: HashMap<RequestId, Flight<U>>,
}

#[derive(Debug)]
struct Flight<U> {
    connection: ConnectionId,
    upstream: U,
    /// When its last byte was sent.
    whole_ms: Option<u64>,
}

impl<U> Default for Flights<U> {
    fn default() -> Self {
        Self { by_request: HashMap::new() }
    }
}

impl<U> Flights<U> {
    /// Records that `request` began on `connection`. Call this **before** writing its first byte, so that no answer can
    /// arrive early.
    pub fn sent(&mut self, request: RequestId, connection: ConnectionId, upstream: U) {
        self.by_request.insert(request, Flight { connection, upstream, whole_ms: None });
    }

    /// Records that all of `request` was sent: from now on it waits for its answer.
    pub fn whole(&mut self, request: RequestId, now_ms: u64) {
        if let Some(flight) = self.by_request.get_mut(&request) {
            flight.whole_ms = Some(now_ms);
        }
    }

    /// Removes and returns the requests that were sent completely and have waited longer than `limit_ms`, in ascending
    /// order.
    pub fn overdue(&mut self, now_ms: u64, limit_ms: u64) -> Vec<(RequestId, U)> {
        self.take(|flight| flight.whole_ms.is_some_and(|whole_ms| now_ms.saturating_sub(whole_ms) > limit_ms))
    }

    /// Records an answer. Returns `None` if it is late (the request had timed out): drop it.
    pub fn answered(&mut self, request: RequestId) -> Option<U> {
        self.by_request.remove(&request).map(|flight| flight.upstream)
    }

    /// Records that a connection died. Returns the requests that were lost with it, in ascending order.
    pub fn connection_lost(&mut self, connection: ConnectionId) -> Vec<(RequestId, U)> {
        self.take(|flight| flight.connection == connection)
    }

    fn take(&mut self, is_wanted: impl Fn(&Flight<U>) -> bool) -> Vec<(RequestId, U)> {
        let wanted = self.by_request.iter().filter(|(_, flight)| is_wanted(flight));
        let mut taken: Vec<RequestId> = wanted.map(|(request, _)| *request).collect();
        taken.sort_unstable();
        taken.into_iter().filter_map(|request| self.answered(request).map(|upstream| (request, upstream))).collect()
    }

    /// Returns whether `request` is in flight.
    pub fn is_in_flight(&self, request: RequestId) -> bool {
        self.by_request.contains_key(&request)
    }

    /// Returns whether anything is in flight on `connection`.
    pub fn is_on(&self, connection: ConnectionId) -> bool {
        self.by_request.values().any(|flight| flight.connection == connection)
    }

    /// Returns the number of requests in flight.
    pub fn len(&self) -> usize {
        self.by_request.len()
    }

    /// Returns whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.by_request.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_hands_back_its_own_requests_once() {
        let mut flights = Flights::default();
        for request in (0..10).rev() {
            flights.sent(RequestId(request), ConnectionId(request % 2), request);
        }
        assert_eq!(flights.answered(RequestId(4)), Some(4));
        assert_eq!(flights.answered(RequestId(4)), None, "answered twice");
        let lost: Vec<u64> = flights.connection_lost(ConnectionId(0)).into_iter().map(|(_, up)| up).collect();
        assert_eq!(lost, [0, 2, 6, 8]);
        assert!(flights.connection_lost(ConnectionId(0)).is_empty());
        assert_eq!(flights.answered(RequestId(2)), None, "late");
        assert_eq!(flights.len(), 5);
    }

    #[test]
    fn a_request_that_waits_too_long_is_given_up_once_and_only_when_all_of_it_was_sent() {
        let mut flights = Flights::default();
        for request in [3, 1, 2] {
            flights.sent(RequestId(request), ConnectionId(0), request);
        }
        flights.whole(RequestId(3), 1_000);
        flights.whole(RequestId(1), 1_000);
        assert!(flights.overdue(2_000, 1_000).is_empty());
        assert_eq!(flights.overdue(2_001, 1_000), [(RequestId(1), 1), (RequestId(3), 3)]);
        assert!(flights.overdue(u64::MAX, 1_000).is_empty(), "the other one is still being sent");
        assert_eq!(flights.answered(RequestId(1)), None, "late");
    }
}
