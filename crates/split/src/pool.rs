//! Connections to the next proxies that are opened, TLS included, before a flow needs them.
//!
//! A flow takes one and keeps it to its end, so a flow still has one connection per hop. It saves the round trips of
//! the handshakes, and no more: a connection that carried nothing has the window of a new one.
//!
//! - The first flow to a proxy opens its connection itself, and starts a *keeper*. The keeper opens others up to
//!   [`Limits::pool`](crate::config::Limits::pool), and replaces those that are taken, broken, too old, or opened with
//!   a former certificate.
//! - Without a flow for [`Limits::pool_idle_ms`](crate::config::Limits::pool_idle_ms) the keeper closes all and ends.
//! - A connection that breaks before its request is answered has carried no byte of a flow, so the flow opens another.

use crate::config::Config;
use crate::destination::Destination;
use crate::dial;
use crate::limits::{POOL_CHECK_INTERVAL, POOL_RETRY_PAUSE};
use crate::proxy::Shared;
use crate::sealed::Sealed;
use rustls::ClientConfig;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// An opened connection to a proxy.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) stream: Box<Sealed>,
    /// The identity that it was opened with.
    pub(crate) identity: Arc<ClientConfig>,
    pub(crate) at: Instant,
}

/// The choice that a pool was made for. A new configuration with the same choice keeps the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    address: Destination,
    congestion_control: Option<String>,
    size: usize,
    age_max: Duration,
    idle_max: Duration,
}

#[derive(Debug)]
struct State {
    ready: VecDeque<Opened>,
    /// True while a keeper runs.
    kept: bool,
    closed: bool,
    last_flow: Instant,
    /// The keeper opens no connection before this.
    paused_until: Instant,
}

/// The connections that are ready for flows to one proxy.
#[derive(Debug)]
pub(crate) struct Pool {
    name: String,
    choice: Choice,
    state: Mutex<State>,
    /// Wakes the keeper.
    changed: Notify,
    closed: CancellationToken,
}

impl Pool {
    fn new(name: &str, choice: Choice) -> Self {
        let now = Instant::now();
        let state = State { ready: VecDeque::new(), kept: false, closed: false, last_flow: now, paused_until: now };
        let (state, changed, closed) = (Mutex::new(state), Notify::new(), CancellationToken::new());
        Self { name: name.to_owned(), choice, state, changed, closed }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection that works as far as this machine knows, the oldest first. `None`: the flow opens one itself.
    pub(crate) fn take(self: &Arc<Self>, shared: &Arc<Shared>) -> Option<Opened> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.last_flow = Instant::now();
        if !state.kept {
            state.kept = true;
            tokio::spawn(keep(self.clone(), shared.clone()));
        }
        self.discard(&mut state, shared);
        let taken = state.ready.pop_front();
        drop(state);
        self.changed.notify_one();
        taken
    }

    /// Closes the connections that no flow should get.
    fn discard(&self, state: &mut State, shared: &Shared) {
        let identity = shared.tls.as_ref().map(|tls| tls.client());
        let is_current = |opened: &Opened| {
            let is_of_identity = identity.as_ref().is_some_and(|now| Arc::ptr_eq(now, &opened.identity));
            is_of_identity && opened.at.elapsed() < self.choice.age_max
        };
        state.ready.retain(is_current);
        let before = state.ready.len();
        state.ready.retain_mut(|opened| opened.stream.is_alive());
        let died = before - state.ready.len();
        if died > 0 {
            // A proxy that refuses this one closes a connection only after its handshake.
            state.paused_until = Instant::now() + POOL_RETRY_PAUSE;
            shared.hop(&self.name, |hop| hop.died(died));
        }
    }

    fn pause(&self) {
        self.state().paused_until = Instant::now() + POOL_RETRY_PAUSE;
    }

    /// Closes the connections that are ready. Flows open their own from now on.
    fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.ready.clear();
        self.closed.cancel();
    }

    /// Connections to open now, with `opening` under way. `None` if the keeper must end.
    fn missing(&self, shared: &Shared, opening: usize) -> Option<usize> {
        let mut state = self.state();
        self.discard(&mut state, shared);
        if state.closed || state.last_flow.elapsed() >= self.choice.idle_max {
            state.ready.clear();
            state.kept = false;
            return None;
        }
        if Instant::now() < state.paused_until {
            return Some(0);
        }
        Some(self.choice.size.saturating_sub(state.ready.len() + opening))
    }

    /// Keeps an opened connection, unless the pool was closed meanwhile.
    fn put(&self, opened: Opened) {
        let mut state = self.state();
        if !state.closed {
            state.ready.push_back(opened);
        }
    }
}

/// Keeps the connections of a pool ready until it is closed, or no flow has come for long.
async fn keep(pool: Arc<Pool>, shared: Arc<Shared>) {
    let timeout = shared.config.limits.dial_timeout();
    let mut opening = JoinSet::new();
    while let Some(missing) = pool.missing(&shared, opening.len()) {
        for _ in 0..missing {
            let (pool, shared) = (pool.clone(), shared.clone());
            let opened = async move { dial::open_hop(&shared, &pool.name, &pool.choice.address).await };
            opening.spawn(tokio::time::timeout(timeout, opened));
        }
        tokio::select! {
            () = pool.closed.cancelled() => {}
            () = pool.changed.notified() => {}
            () = tokio::time::sleep(POOL_CHECK_INTERVAL) => {}
            Some(ended) = opening.join_next() => match ended {
                Ok(Ok(Ok(opened))) => pool.put(opened),
                // Flows say why the proxy cannot be reached, if they cannot reach it either.
                _failed => pool.pause(),
            },
        }
    }
}

/// The pools of one configuration, by the name of the next proxy.
#[derive(Debug, Default)]
pub(crate) struct Pools(BTreeMap<String, Arc<Pool>>);

impl Pools {
    /// The pools for a configuration: those of `before` that it does not change, and new ones.
    pub(crate) fn new(config: &Config, before: &Self) -> Self {
        if config.limits.pool == 0 {
            return Self::default();
        }
        let pools = config.proxies.iter().map(|(name, address)| {
            let choice = Choice {
                address: address.clone(),
                congestion_control: config.congestion_control.clone(),
                size: config.limits.pool,
                age_max: config.limits.pool_age(),
                idle_max: config.limits.pool_idle(),
            };
            let kept = before.0.get(name).filter(|pool| pool.choice == choice && !pool.state().closed);
            (name.clone(), kept.cloned().unwrap_or_else(|| Arc::new(Pool::new(name, choice))))
        });
        Self(pools.collect())
    }

    /// The pool of a next proxy, if it has one.
    pub(crate) fn of(&self, name: &str) -> Option<&Arc<Pool>> {
        self.0.get(name)
    }

    /// Connections that are ready, by the name of the proxy.
    pub(crate) fn ready(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|(name, pool)| (name.as_str(), pool.state().ready.len()))
    }

    /// Closes the pools that `after` does not have.
    pub(crate) fn close_except(&self, after: &Self) {
        let has = |pool: &Arc<Pool>| after.0.get(&pool.name).is_some_and(|other| Arc::ptr_eq(other, pool));
        self.0.values().filter(|pool| !has(pool)).for_each(|pool| pool.close());
    }

    /// Closes all pools.
    pub(crate) fn close(&self) {
        self.close_except(&Self::default());
    }
}
