//! A limit on the object bytes that a gateway holds.
//!
//! Each route may hold only its share of the memory, so that a slow route, or one with hostile gateways, leaves the
//! others theirs.

use super::adaptive_limit::{AdaptiveLimit, Change};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tradewind_wire::RouteId;

/// Permits are issued in units of this size, so that a semaphore can count any budget.
const UNIT_BYTES: u64 = 4 << 10;

/// An adaptive budget starts with the total divided by this.
const ADAPTIVE_START: u32 = 4;

/// Bytes that may be held at once, divided equally among the routes. A request larger than its route's whole share waits
/// until the route holds nothing else.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    units: Arc<Semaphore>,
    units_total: u32,
    level: Option<Arc<Mutex<Level>>>,
    shares: Arc<Shares>,
}

/// The shares of a budget, by route.
#[derive(Debug)]
struct Shares {
    routes: AtomicU32,
    by_route: Mutex<HashMap<RouteId, Arc<Share>>>,
}

/// Memory that one route holds.
#[derive(Debug, Default)]
struct Share {
    units: Mutex<u32>,
    freed: Notify,
    /// Lock of the route's queue: the first request in the queue holds it while it waits for room.
    turn: AsyncMutex<()>,
}

/// Units of a route's share, returned on drop.
#[derive(Debug)]
struct Claim {
    share: Arc<Share>,
    units: u32,
}

impl Shares {
    fn one() -> Arc<Self> {
        Arc::new(Self { routes: AtomicU32::new(1), by_route: Mutex::default() })
    }

    fn of(&self, route: RouteId) -> Arc<Share> {
        self.by_route.lock().unwrap_or_else(PoisonError::into_inner).entry(route).or_default().clone()
    }
}

impl Share {
    /// Waits until these units fit into the route's `units_max`, or until the route holds nothing else.
    async fn claim(self: Arc<Self>, units: u32, units_max: impl Fn() -> u32) -> Claim {
        let _turn = self.turn.lock().await;
        loop {
            let freed = self.freed.notified();
            if self.try_claim(units, units_max()) {
                return Claim { share: self.clone(), units };
            }
            freed.await;
        }
    }

    fn try_claim(&self, units: u32, units_max: u32) -> bool {
        let mut held = self.held();
        let fits = *held == 0 || *held + units <= units_max;
        *held += if fits { units } else { 0 };
        fits
    }

    fn held(&self) -> MutexGuard<'_, u32> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        *self.share.held() -= self.units;
        self.share.freed.notify_one();
    }
}

/// The state of an adaptive budget, which grows only while more memory raises the rate.
#[derive(Debug)]
struct Level {
    limit: AdaptiveLimit,
    /// Units issued or free.
    units: u32,
    /// The largest request so far. A lower level would never admit it.
    units_min: u32,
    /// Units to withdraw from their holders when these return them.
    debt: u32,
}

/// Bytes held, returned on drop.
#[derive(Debug)]
pub struct Held {
    permit: Option<OwnedSemaphorePermit>,
    budget: MemoryBudget,
    /// `None` if one route has the whole budget.
    _claim: Option<Claim>,
}

impl MemoryBudget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Self {
        let units_total = (bytes / UNIT_BYTES).clamp(1, u64::from(u32::MAX >> 4)) as u32;
        let units = Arc::new(Semaphore::new(units_total as usize));
        Self { units, units_total, level: None, shares: Shares::one() }
    }

    /// A budget of `bytes` that starts with a fraction and grows while that makes the work faster.
    pub fn adaptive(bytes: u64) -> Self {
        let whole = Self::new(bytes);
        let units = (whole.units_total / ADAPTIVE_START).max(1);
        let level = Level { limit: AdaptiveLimit::new(), units, units_min: 1, debt: 0 };
        Self {
            units: Arc::new(Semaphore::new(units as usize)),
            units_total: whole.units_total,
            level: Some(Arc::new(Mutex::new(level))),
            shares: whole.shares,
        }
    }

    /// Divides the budget equally among this many routes from now on.
    pub fn divide_among(&self, routes: usize) {
        self.shares.routes.store(u32::try_from(routes).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
    }

    /// Units that one route may hold.
    fn share_units(&self) -> u32 {
        (self.units_total / self.shares.routes.load(Ordering::Relaxed)).max(1)
    }

    /// Waits for room in the share of `route`, first come first served.
    pub async fn hold(&self, route: RouteId, bytes: u64) -> Held {
        let units = bytes.div_ceil(UNIT_BYTES).clamp(1, u64::from(self.share_units())) as u32;
        let is_shared = self.share_units() < self.units_total;
        let claim = match is_shared {
            true => Some(self.shares.of(route).claim(units, || self.share_units()).await),
            false => None,
        };
        if let Some(mut level) = self.level() {
            level.units_min = level.units_min.max(units);
            let more = level.units_min.saturating_sub(level.units);
            self.grow(&mut level, more);
            if self.units.available_permits() < units as usize {
                level.limit.waited();
            }
        }
        let permit = self.units.clone().acquire_many_owned(units).await;
        let permit = permit.expect("the semaphore is never closed: nothing here closes it");
        Held { permit: Some(permit), budget: self.clone(), _claim: claim }
    }

    /// Returns the bytes held now, and the budget.
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
        match level.limit.released(units.into(), whole.into(), Instant::now()) {
            Change::Keep => {}
            Change::Double => {
                let more = level.units.min(self.units_total - level.units);
                self.grow(&mut level, more);
            }
            Change::Revert => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_route_that_holds_its_share_leaves_the_others_theirs() {
        let (slow, fast) = (RouteId(0), RouteId(1));
        let budget = MemoryBudget::new(8 * UNIT_BYTES);
        budget.divide_among(2);
        let body = 2 * UNIT_BYTES;
        let held = [budget.hold(slow, body).await, budget.hold(slow, body).await];
        let mut third = std::pin::pin!(budget.hold(slow, body));
        let mut fourth = std::pin::pin!(budget.hold(slow, 1));
        assert!(futures::poll!(&mut third).is_pending() && futures::poll!(&mut fourth).is_pending());
        let of_fast = [budget.hold(fast, body).await, budget.hold(fast, body).await];
        assert_eq!(budget.usage_bytes().0, 8 * UNIT_BYTES);
        let [first, second] = held;
        drop(first);
        let third = third.await;
        assert!(futures::poll!(&mut fourth).is_pending(), "the slow route has its share again");
        // Larger than the share: it waits until its route holds nothing else.
        let mut long = std::pin::pin!(budget.hold(slow, 100 * UNIT_BYTES));
        drop((second, third));
        let fourth = fourth.await;
        assert!(futures::poll!(&mut long).is_pending());
        drop(fourth);
        drop((long.await, of_fast));
        assert_eq!(budget.usage_bytes().0, 0);
    }

    #[tokio::test]
    async fn one_route_has_the_whole_budget() {
        let budget = MemoryBudget::new(8 * UNIT_BYTES);
        budget.divide_among(1);
        let _held = [budget.hold(RouteId(0), 4 * UNIT_BYTES).await, budget.hold(RouteId(0), 4 * UNIT_BYTES).await];
        assert_eq!(budget.usage_bytes().0, 8 * UNIT_BYTES);
    }

    #[tokio::test]
    async fn more_than_the_budget_waits_to_be_alone() {
        let budget = MemoryBudget::new(1 << 20);
        let held = budget.hold(RouteId(0), 1 << 30).await;
        assert_eq!(budget.usage_bytes().0, 1 << 20);
        drop(held);
        assert_eq!(budget.usage_bytes().0, 0);
    }

    #[tokio::test]
    async fn an_adaptive_budget_lets_everybody_in_and_never_passes_its_whole() {
        let budget = MemoryBudget::adaptive(64 * UNIT_BYTES);
        assert_eq!(budget.units.available_permits(), 16);
        let whole = budget.hold(RouteId(0), 64 * UNIT_BYTES).await;
        assert_eq!(budget.usage_bytes().0, 64 * UNIT_BYTES);
        drop(whole);
        for round in 0..200 {
            let route = RouteId(0);
            let held = [budget.hold(route, (round % 9 + 1) * UNIT_BYTES).await, budget.hold(route, UNIT_BYTES).await];
            let mut level = budget.level().expect("it adapts");
            let (more, less) = (level.units.min(64 - level.units), (level.units / 2).min(level.units - 16));
            if round % 3 == 0 {
                budget.shrink(&mut level, less)
            } else {
                budget.grow(&mut level, more)
            }
            drop(level);
            drop(held);
            let level = budget.level().expect("it adapts").units;
            assert!((16..=64).contains(&level) && budget.units.available_permits() == level as usize);
        }
        assert_eq!(budget.usage_bytes().0, 0);
    }

    #[tokio::test]
    async fn what_is_taken_back_from_a_holder_is_not_handed_out_again() {
        let budget = MemoryBudget::adaptive(64 * UNIT_BYTES);
        let held = budget.hold(RouteId(0), 16 * UNIT_BYTES).await;
        let mut level = budget.level().expect("it adapts");
        level.units_min = 1;
        budget.shrink(&mut level, 8);
        drop(level);
        assert_eq!(budget.usage_bytes().0, 16 * UNIT_BYTES);
        drop(held);
        assert_eq!((budget.units.available_permits(), budget.usage_bytes().0), (8, 0));
    }
}
