//! Data of a station by route. Routes are added while it runs, but never removed: a retired route may still have
//! requests in flight.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use tradewind_wire::RouteId;

/// Data by route, shared by all tasks of a station.
#[derive(Debug)]
pub struct RouteTable<T>(RwLock<HashMap<RouteId, T>>);

impl<T: Clone> RouteTable<T> {
    /// A table with initial entries.
    pub fn new(entries: HashMap<RouteId, T>) -> Self {
        Self(RwLock::new(entries))
    }

    /// Returns the entry of `route`.
    pub fn get(&self, route: RouteId) -> Option<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&route).cloned()
    }

    /// Adds routes; a known route gets the new entry.
    pub fn extend(&self, entries: HashMap<RouteId, T>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).extend(entries);
    }
}
