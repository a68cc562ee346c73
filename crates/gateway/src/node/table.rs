//! What a station knows by route. Routes are added while it runs, never taken away: of one that is retired requests may
//! still be on their way.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use tradewind_wire::RouteId;

/// By route, for all tasks of a station.
#[derive(Debug)]
pub struct RouteTable<T>(RwLock<HashMap<RouteId, T>>);

impl<T: Clone> RouteTable<T> {
    /// With what is known at the start.
    pub fn new(entries: HashMap<RouteId, T>) -> Self {
        Self(RwLock::new(entries))
    }

    /// What is known of `route`.
    pub fn get(&self, route: RouteId) -> Option<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&route).cloned()
    }

    /// Adds routes; one that is known takes what is new.
    pub fn extend(&self, entries: HashMap<RouteId, T>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).extend(entries);
    }
}
