//! Bounds on what a gateway holds: object bytes in memory, and requests to a store.

use super::climb::{Climb, Step};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Permits are handed out in units of this size, so that a semaphore can count any budget.
const UNIT_BYTES: u64 = 4 << 10;

/// What a climbing budget begins with: this part of the whole.
const CLIMB_START: u32 = 4;

/// Bytes that may be held at once. What is over the whole budget waits until it is alone.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    units: Arc<Semaphore>,
    units_total: u32,
    level: Option<Arc<Mutex<Level>>>,
}

/// Of a budget that uses as much of itself as pays.
#[derive(Debug)]
struct Level {
    climb: Climb,
    /// Handed out or free.
    units: u32,
    /// Most that anybody asked for at once: a lower level would never let him in.
    units_min: u32,
    /// To be taken from those who hold them, as they give them back.
    debt: u32,
}

/// Bytes held; given back on drop.
#[derive(Debug)]
pub struct Held {
    permit: Option<OwnedSemaphorePermit>,
    budget: MemoryBudget,
}

impl MemoryBudget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Self {
        let units_total = (bytes / UNIT_BYTES).clamp(1, u64::from(u32::MAX >> 4)) as u32;
        Self { units: Arc::new(Semaphore::new(units_total as usize)), units_total, level: None }
    }

    /// A budget of `bytes` that begins with a part of it and takes more while that makes the work faster.
    pub fn climbing(bytes: u64) -> Self {
        let whole = Self::new(bytes);
        let units = (whole.units_total / CLIMB_START).max(1);
        let level = Level { climb: Climb::new(), units, units_min: 1, debt: 0 };
        Self {
            units: Arc::new(Semaphore::new(units as usize)),
            units_total: whole.units_total,
            level: Some(Arc::new(Mutex::new(level))),
        }
    }

    /// Waits for room, first come first served.
    pub async fn hold(&self, bytes: u64) -> Held {
        let units = bytes.div_ceil(UNIT_BYTES).clamp(1, u64::from(self.units_total)) as u32;
        if let Some(mut level) = self.level() {
            level.units_min = level.units_min.max(units);
            let more = level.units_min.saturating_sub(level.units);
            self.grow(&mut level, more);
            if self.units.available_permits() < units as usize {
                level.climb.waited();
            }
        }
        let permit = self.units.clone().acquire_many_owned(units).await;
        let permit = permit.expect("the semaphore is never closed: nothing here closes it");
        Held { permit: Some(permit), budget: self.clone() }
    }

    /// Bytes held now, and the budget.
    pub fn usage_bytes(&self) -> (u64, u64) {
        let handed_out = self.level().map_or(self.units_total, |level| level.units + level.debt);
        let free = self.units.available_permits() as u64;
        (u64::from(handed_out).saturating_sub(free) * UNIT_BYTES, u64::from(self.units_total) * UNIT_BYTES)
    }

    fn level(&self) -> Option<MutexGuard<'_, Level>> {
        self.level.as_ref().map(|level| level.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn grow(&self, level: &mut Level, units: u32) {
        let forgiven = units.min(level.debt);
        level.debt -= forgiven;
        level.units += units;
        self.units.add_permits((units - forgiven) as usize);
    }

    fn shrink(&self, level: &mut Level, units: u32) {
        let taken = self.units.forget_permits(units as usize) as u32;
        level.units -= units;
        level.debt += units - taken;
    }

    fn released(&self, permit: &mut OwnedSemaphorePermit) {
        let Some(mut level) = self.level() else { return };
        let (units, whole) = (permit.num_permits() as u32, level.units);
        match level.climb.released(units.into(), whole.into(), Instant::now()) {
            Step::Stay => {}
            Step::Double => {
                let more = level.units.min(self.units_total - level.units);
                self.grow(&mut level, more);
            }
            Step::Back => {
                let less = (level.units / 2).min(level.units - level.units_min);
                self.shrink(&mut level, less);
            }
        }
        let owed = units.min(level.debt);
        if let Some(owed) = permit.split(owed as usize) {
            level.debt -= owed.num_permits() as u32;
            owed.forget();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(mut permit) = self.permit.take() {
            self.budget.released(&mut permit);
        }
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

    /// Requests in flight.
    #[cfg(test)]
    pub(super) fn active(&self) -> usize {
        self.lock().active
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

    #[tokio::test]
    async fn a_climbing_budget_lets_everybody_in_and_never_passes_its_whole() {
        let budget = MemoryBudget::climbing(64 * UNIT_BYTES);
        assert_eq!(budget.units.available_permits(), 16);
        let whole = budget.hold(64 * UNIT_BYTES).await;
        assert_eq!(budget.usage_bytes().0, 64 * UNIT_BYTES);
        drop(whole);
        for round in 0..200 {
            let held = [budget.hold((round % 9 + 1) * UNIT_BYTES).await, budget.hold(UNIT_BYTES).await];
            let mut level = budget.level().expect("it climbs");
            let (more, less) = (level.units.min(64 - level.units), (level.units / 2).min(level.units - 16));
            if round % 3 == 0 {
                budget.shrink(&mut level, less)
            } else {
                budget.grow(&mut level, more)
            }
            drop(level);
            drop(held);
            let level = budget.level().expect("it climbs").units;
            assert!((16..=64).contains(&level) && budget.units.available_permits() == level as usize);
        }
        assert_eq!(budget.usage_bytes().0, 0);
    }

    #[tokio::test]
    async fn what_is_taken_back_from_a_holder_is_not_handed_out_again() {
        let budget = MemoryBudget::climbing(64 * UNIT_BYTES);
        let held = budget.hold(16 * UNIT_BYTES).await;
        let mut level = budget.level().expect("it climbs");
        level.units_min = 1;
        budget.shrink(&mut level, 8);
        drop(level);
        assert_eq!(budget.usage_bytes().0, 16 * UNIT_BYTES);
        drop(held);
        assert_eq!((budget.units.available_permits(), budget.usage_bytes().0), (8, 0));
    }
}
