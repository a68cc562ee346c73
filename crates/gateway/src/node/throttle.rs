//! Limits how many requests to one store, or over one hop, are in flight, and measures how long requests wait for that.

use super::tuner::{Change, Tuner};
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::Instant;

/// Changes kept for the next report. Further ones are joined with those before them.
const CHANGES_MAX: usize = 4;

/// A limit that tunes itself ([`Tuner`]), and those who wait for it.
#[derive(Debug)]
pub struct Throttle {
    state: Mutex<State>,
    freed: Notify,
    /// Lock of the queue: the first in it holds the lock.
    turn: AsyncMutex<()>,
}

#[derive(Debug)]
struct State {
    tuner: Tuner,
    active: u32,
    /// How many queue for a slot. While somebody does, nobody else takes one: a connection whose next request is there
    /// already would take each slot again that it has freed, and the others would wait until it ends.
    queued_for_slot: u32,
    waiting: u32,
    /// When the first of those who wait now began to.
    waiting_since: Instant,
    /// Time in which somebody waited.
    queued: Duration,
    changes: Vec<Change>,
}

/// What a throttle reports to the lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// Requests that may be in flight.
    pub(super) limit: u32,
    /// The highest limit that is allowed.
    pub(super) limit_max: u32,
    /// Time in which somebody waited for a turn, since the start.
    pub(super) queued: Duration,
    /// Changes since the last reading, oldest first.
    pub(super) changes: Vec<Change>,
}

/// One request in flight. It ends on drop.
#[derive(Debug)]
pub struct Slot {
    throttle: Arc<Throttle>,
}

/// A place in the queue for a slot. Dropped when it is left.
struct Queued<'a>(&'a Throttle);

/// Somebody who waits. Dropped when the wait ends.
struct Waiting<'a>(&'a Throttle);

impl Throttle {
    /// Starts with `limit` and stays within `bounds`.
    pub(super) fn new(limit: u32, bounds: RangeInclusive<u32>) -> Arc<Self> {
        let tuner = Tuner::new(limit, bounds);
        let (waiting_since, queued) = (Instant::now(), Duration::ZERO);
        let state =
            State { tuner, active: 0, queued_for_slot: 0, waiting: 0, waiting_since, queued, changes: Vec::new() };
        Arc::new(Self { state: Mutex::new(state), freed: Notify::new(), turn: AsyncMutex::new(()) })
    }

    /// Waits until one more request may be in flight, first come first served.
    pub(super) async fn slot(self: &Arc<Self>) -> Slot {
        self.counted(self.free_slot()).await
    }

    async fn free_slot(self: &Arc<Self>) -> Slot {
        let slot = || Slot { throttle: self.clone() };
        let Err(_queued) = self.enter_or_queue() else { return slot() };
        let _turn = self.turn.lock().await;
        loop {
            let freed = self.freed.notified();
            if self.try_enter() {
                return slot();
            }
            freed.await;
        }
    }

    /// Runs a wait for what this throttle limits. If it does not end at once, it counts as waiting.
    pub(super) async fn counted<T>(&self, wait: impl Future<Output = T>) -> T {
        let mut wait = pin!(wait);
        if let Poll::Ready(done) = futures::poll!(&mut wait) {
            return done;
        }
        let _waiting = Waiting::begin(self);
        wait.await
    }

    /// Takes a free slot for which nobody queues, or queues.
    fn enter_or_queue(&self) -> Result<(), Queued<'_>> {
        let mut state = self.lock();
        if state.queued_for_slot == 0 && state.enter() {
            return Ok(());
        }
        state.queued_for_slot += 1;
        Err(Queued(self))
    }

    fn try_enter(&self) -> bool {
        self.lock().enter()
    }

    /// Requests that may be in flight now.
    pub(super) fn limit(&self) -> u32 {
        self.lock().tuner.limit()
    }

    /// Requests in flight.
    #[cfg(test)]
    pub(super) fn active(&self) -> u32 {
        self.lock().active
    }

    /// Allows more requests from now on.
    pub(super) fn raise_max(&self, limit_max: u32) {
        self.lock().tuner.raise_max(limit_max);
        self.freed.notify_waiters();
    }

    /// Records a success that moved `bytes`.
    pub(super) fn succeeded(&self, bytes: u64) {
        self.tune(|tuner, now| tuner.succeeded(bytes, now));
    }

    /// Records that the store asked for fewer requests.
    pub(super) fn slow_down(&self) {
        self.tune(Tuner::slow_down);
    }

    /// Records a request that failed for a reason that may be temporary, or timed out.
    pub(super) fn failed(&self) {
        self.tune(Tuner::failed);
    }

    fn tune(&self, event: impl FnOnce(&mut Tuner, Instant) -> Option<Change>) {
        let mut state = self.lock();
        let Some(change) = event(&mut state.tuner, Instant::now()) else { return };
        state.keep(change);
        drop(state);
        for _ in change.from..change.to {
            self.freed.notify_one();
        }
    }

    /// Returns the state, and the changes since the last reading.
    pub(super) fn read(&self) -> Reading {
        let mut state = self.lock();
        let waits_now = if state.waiting > 0 { state.waiting_since.elapsed() } else { Duration::ZERO };
        Reading {
            limit: state.tuner.limit(),
            limit_max: state.tuner.limit_max(),
            queued: state.queued + waits_now,
            changes: std::mem::take(&mut state.changes),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enter(&mut self) -> bool {
        let free = self.active < self.tuner.limit();
        self.active += u32::from(free);
        free
    }

    /// Steps in one direction for one reason are one change.
    fn keep(&mut self, change: Change) {
        match self.changes.last_mut() {
            Some(last) if last.reason == change.reason => last.to = change.to,
            _ => self.changes.push(change),
        }
        if self.changes.len() > CHANGES_MAX {
            let oldest = self.changes.remove(0);
            self.changes[0].from = oldest.from;
        }
    }
}

impl<'a> Waiting<'a> {
    fn begin(throttle: &'a Throttle) -> Self {
        let mut state = throttle.lock();
        if state.waiting == 0 {
            state.waiting_since = Instant::now();
        }
        state.waiting += 1;
        state.tuner.waited();
        Self(throttle)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.lock().queued_for_slot -= 1;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.waiting -= 1;
        if state.waiting == 0 {
            let waited = state.waiting_since.elapsed();
            state.queued += waited;
        }
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
    use tradewind_contract::LimitReason;

    #[tokio::test(start_paused = true)]
    async fn slots_never_exceed_the_limit_and_waits_are_measured() {
        let throttle = Throttle::new(2, 1..=2);
        let (first, second) = (throttle.slot().await, throttle.slot().await);
        assert_eq!(throttle.read().queued, Duration::ZERO);
        let third = tokio::spawn({
            let throttle = throttle.clone();
            async move { throttle.slot().await }
        });
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!third.is_finished());
        assert_eq!(throttle.read().queued.as_secs(), 3, "a wait counts while it lasts");
        drop(first);
        let third = third.await.expect("gets the freed slot");
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!((throttle.read().queued.as_secs(), throttle.active()), (3, 2));
        drop((second, third));
        assert_eq!(throttle.active(), 0);
    }

    #[tokio::test]
    async fn whoever_waits_comes_before_the_one_who_has_just_freed_a_slot() {
        let throttle = Throttle::new(1, 1..=1);
        let first = throttle.slot().await;
        let mut waiting = pin!(throttle.slot());
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(first);
        let mut again = pin!(throttle.slot());
        assert!(futures::poll!(&mut again).is_pending(), "another has waited longer");
        let Poll::Ready(second) = futures::poll!(&mut waiting) else { panic!("the slot is free") };
        assert!(futures::poll!(&mut again).is_pending());
        drop(second);
        again.await;
    }

    #[tokio::test]
    async fn whoever_waits_goes_on_when_the_limit_rises() {
        let throttle = Throttle::new(1, 1..=1);
        let _first = throttle.slot().await;
        let mut second = pin!(throttle.slot());
        assert!(futures::poll!(&mut second).is_pending());
        throttle.raise_max(2);
        let _second = second.await;
    }

    #[tokio::test(start_paused = true)]
    async fn steps_for_one_reason_are_one_change() {
        let throttle = Throttle::new(16, 1..=64);
        for _ in 0..2 {
            throttle.slow_down();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        (0..8).for_each(|_| throttle.failed());
        let change = |from, to, reason| Change { from, to, reason };
        let expected = [change(16, 4, LimitReason::SlowDown), change(4, 2, LimitReason::Errors)];
        assert_eq!(throttle.read().changes, expected);
        assert_eq!(throttle.read().changes, []);
    }
}
