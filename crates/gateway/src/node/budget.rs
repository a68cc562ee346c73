//! Bounds on what a gateway holds: object bytes in memory, and requests to a store.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Permits are handed out in units of this size, so that a semaphore can count any budget.
const UNIT_BYTES: u64 = 4 << 10;

/// Bytes that may be held at once. What is over the whole budget waits until it is alone.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    units: Arc<Semaphore>,
    units_total: u32,
}

/// Bytes held; given back on drop.
#[derive(Debug)]
pub struct Held {
    _permit: OwnedSemaphorePermit,
}

impl MemoryBudget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Self {
        let units_total = (bytes / UNIT_BYTES).clamp(1, u64::from(u32::MAX >> 4)) as u32;
        Self { units: Arc::new(Semaphore::new(units_total as usize)), units_total }
    }

    /// Waits for room, first come first served.
    pub async fn hold(&self, bytes: u64) -> Held {
        let units = bytes.div_ceil(UNIT_BYTES).clamp(1, u64::from(self.units_total)) as u32;
        let permit = self.units.clone().acquire_many_owned(units).await;
        Held { _permit: permit.expect("the semaphore is never closed: nothing here closes it") }
    }

    /// Bytes held now, and the budget.
    pub fn usage_bytes(&self) -> (u64, u64) {
        let free = self.units.available_permits() as u64;
        let total = u64::from(self.units_total);
        ((total - free.min(total)) * UNIT_BYTES, total * UNIT_BYTES)
    }
}

/// Requests in flight at first.
const CONCURRENCY_START: f64 = 16.0;
/// A burst of refusals within this time counts as one.
const DECREASE_PAUSE: Duration = Duration::from_millis(500);

/// Adaptive concurrency towards one store: one more for each round of successes, half when the store says SlowDown.
#[derive(Debug)]
pub struct Throttle {
    state: Mutex<ThrottleState>,
    freed: Notify,
    limit_max: f64,
}

#[derive(Debug)]
struct ThrottleState {
    limit: f64,
    active: usize,
    decreased: Option<Instant>,
}

/// One request in flight; ends on drop.
#[derive(Debug)]
pub struct Slot {
    throttle: Arc<Throttle>,
}

impl Throttle {
    /// At most `requests_max` at once.
    pub fn new(requests_max: u32) -> Arc<Self> {
        let limit_max = f64::from(requests_max.max(1));
        let state = ThrottleState { limit: CONCURRENCY_START.min(limit_max), active: 0, decreased: None };
        Arc::new(Self { state: Mutex::new(state), freed: Notify::new(), limit_max })
    }

    /// Waits until one more request may be in flight.
    pub async fn slot(self: &Arc<Self>) -> Slot {
        loop {
            let freed = self.freed.notified();
            if self.try_enter() {
                return Slot { throttle: self.clone() };
            }
            freed.await;
        }
    }

    /// Requests that may be in flight now.
    pub fn limit(&self) -> usize {
        self.lock().limit as usize
    }

    fn try_enter(&self) -> bool {
        let mut state = self.lock();
        let free = state.active < state.limit.max(1.0) as usize;
        state.active += usize::from(free);
        free
    }

    /// A request went well.
    pub fn succeeded(&self) {
        let mut state = self.lock();
        state.limit = (state.limit + 1.0 / state.limit).min(self.limit_max);
        drop(state);
        self.freed.notify_one();
    }

    /// The store asked for fewer.
    pub fn slow_down(&self) {
        let mut state = self.lock();
        if state.decreased.is_none_or(|at| at.elapsed() >= DECREASE_PAUSE) {
            state.limit = (state.limit / 2.0).max(1.0);
            state.decreased = Some(Instant::now());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ThrottleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.throttle.lock().active -= 1;
        self.throttle.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn slots_never_exceed_the_limit() {
        let throttle = Throttle::new(2);
        let (first, _second) = (throttle.slot().await, throttle.slot().await);
        let third = tokio::spawn({
            let throttle = throttle.clone();
            async move { throttle.slot().await }
        });
        tokio::task::yield_now().await;
        assert!(!third.is_finished());
        drop(first);
        third.await.expect("gets the freed slot");
    }

    #[test]
    fn slow_down_halves_once_per_burst() {
        let throttle = Throttle::new(64);
        throttle.slow_down();
        throttle.slow_down();
        assert_eq!(throttle.limit(), 8);
    }

    #[tokio::test]
    async fn more_than_the_budget_waits_to_be_alone() {
        let budget = MemoryBudget::new(1 << 20);
        let held = budget.hold(1 << 30).await;
        assert_eq!(budget.usage_bytes().0, 1 << 20);
        drop(held);
        assert_eq!(budget.usage_bytes().0, 0);
    }
}
