//! Reports stores that cannot be reached, or that answer with nothing but errors, while they are retried, and decides
//! when to give up.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tradewind_store::{Store, Unreachable};

/// A store that has failed for this long is reported.
pub const UNREACHABLE_REPORTED_AFTER: Duration = Duration::from_secs(5);
/// A failure no longer counts if the store has not been tried for this long.
const KNOWN_FOR: Duration = Duration::from_secs(30);
/// Interval of the checks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A store that has failed for as long as a job may stall.
#[derive(Debug)]
pub struct Lost {
    /// The store's URL.
    pub url: String,
    /// Maximum time that a job may stall.
    pub patience: Duration,
    /// The failed attempts.
    pub how: Unreachable,
}

/// Returns the failure of `store` if it has lasted for `patience`.
pub fn lost(store: &dyn Store, patience: Duration) -> Option<Lost> {
    let how = store.unreachable().filter(|failing| failing.lasted() >= patience)?;
    Some(Lost { url: store.url().to_owned(), patience, how })
}

/// Some stores, each with whether it has been reported as unreachable.
pub struct Availability {
    stores: Vec<(Arc<dyn Store>, bool)>,
}

impl Availability {
    /// Watches `stores`, none of them reported yet.
    pub fn of(stores: impl IntoIterator<Item = Arc<dyn Store>>) -> Self {
        Self { stores: stores.into_iter().map(|store| (store, false)).collect() }
    }

    /// Returns what to report now: stores that have been unreachable for a while, and stores that answer again.
    /// `retrying` says how they are retried, and for how long.
    pub fn news(&mut self, retrying: &str) -> Vec<String> {
        let mut news = Vec::new();
        for (store, is_reported) in &mut self.stores {
            let failing = store.unreachable();
            match &failing {
                Some(failing) if !*is_reported && is_due(failing) => {
                    *is_reported = true;
                    news.push(format!("{}; {retrying}", trouble(store.as_ref(), failing)));
                }
                None if *is_reported => {
                    *is_reported = false;
                    news.push(format!("{} is answering again", store.url()));
                }
                _ => {}
            }
        }
        news
    }

    /// Returns the failure of one store if every store has failed for `patience`.
    fn lost(&self, patience: Duration) -> Option<Lost> {
        let lost = |(store, _): &(Arc<dyn Store>, bool)| lost(store.as_ref(), patience);
        self.stores.iter().map(lost).collect::<Option<Vec<_>>>()?.pop()
    }
}

/// Describes a store that cannot be reached, or that answers with nothing but errors.
fn trouble(store: &dyn Store, failing: &Unreachable) -> String {
    match failing.is_connected {
        true => format!("{} returns only errors: {}", store.url(), failing.why),
        false => format!("cannot reach {}: {}", failing.origin, failing.why),
    }
}

fn is_due(failing: &Unreachable) -> bool {
    let now = Instant::now();
    now.duration_since(failing.since) >= UNREACHABLE_REPORTED_AFTER && now.duration_since(failing.latest) < KNOWN_FOR
}

/// Reports news of the stores until the source, or every destination, has failed for `patience`.
pub async fn until_lost(
    source: Arc<dyn Store>,
    targets: Vec<Arc<dyn Store>>,
    patience: Duration,
    say: impl Fn(String),
) -> Lost {
    let mut sides = [Availability::of([source]), Availability::of(targets)];
    let retrying = format!("retrying for up to {} s (--stall)", patience.as_secs());
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    loop {
        ticks.tick().await;
        for side in &mut sides {
            side.news(&retrying).into_iter().for_each(&say);
            if let Some(lost) = side.lost(patience) {
                return lost;
            }
        }
    }
}

/// Reports news of the stores and never returns.
pub async fn tell(opened: impl Fn() -> Vec<Arc<dyn Store>>, say: impl Fn(String)) {
    let mut availability = Availability::of([]);
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    loop {
        ticks.tick().await;
        let known = availability.stores.len();
        availability.stores.extend(opened().into_iter().skip(known).map(|store| (store, false)));
        availability.news("retrying").into_iter().for_each(&say);
    }
}
