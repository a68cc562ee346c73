//! Tells that a store cannot be reached, or answers nothing but errors, while it is tried again, and when it is time to
//! give up.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tradewind_store::{Store, Unreachable};

/// A store that was tried in vain for so long is told of.
pub const UNREACHABLE_TOLD_AFTER: Duration = Duration::from_secs(5);
/// What failed before, and has not been tried for so long since, is not known any more.
const KNOWN_FOR: Duration = Duration::from_secs(30);
/// How often the stores are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A store that was tried in vain for as long as a job may stall.
#[derive(Debug)]
pub struct Lost {
    /// The store's URL.
    pub url: String,
    /// How long a job may stall.
    pub patience: Duration,
    /// What the tries came to.
    pub how: Unreachable,
}

/// What `store` has come to, if it was tried in vain for `patience`.
pub fn lost(store: &dyn Store, patience: Duration) -> Option<Lost> {
    let how = store.unreachable().filter(|failing| failing.lasted() >= patience)?;
    Some(Lost { url: store.url().to_owned(), patience, how })
}

/// Some stores, and which of them were told to be out of reach.
pub struct Availability {
    stores: Vec<(Arc<dyn Store>, bool)>,
}

impl Availability {
    /// Nothing told yet.
    pub fn of(stores: impl IntoIterator<Item = Arc<dyn Store>>) -> Self {
        Self { stores: stores.into_iter().map(|store| (store, false)).collect() }
    }

    /// What there is to say now: of stores that are out of reach since a while, and of those that are back.
    /// `retrying`: what is done about it, and how long.
    pub fn news(&mut self, retrying: &str) -> Vec<String> {
        let mut news = Vec::new();
        for (store, told) in &mut self.stores {
            let failing = store.unreachable();
            match &failing {
                Some(failing) if !*told && is_worth_telling(failing) => {
                    *told = true;
                    news.push(format!("{}; {retrying}", trouble(store.as_ref(), failing)));
                }
                None if *told => {
                    *told = false;
                    news.push(format!("{} answers again", store.url()));
                }
                _ => {}
            }
        }
        news
    }

    /// The stores' common trouble, if every one was tried in vain for `patience`.
    fn lost(&self, patience: Duration) -> Option<Lost> {
        let lost = |(store, _): &(Arc<dyn Store>, bool)| lost(store.as_ref(), patience);
        self.stores.iter().map(lost).collect::<Option<Vec<_>>>()?.pop()
    }
}

/// What is wrong with a store that cannot be reached, or answers nothing but errors.
fn trouble(store: &dyn Store, failing: &Unreachable) -> String {
    match failing.is_connected {
        true => format!("{} answers nothing but errors: {}", store.url(), failing.why),
        false => format!("cannot reach {}: {}", failing.origin, failing.why),
    }
}

fn is_worth_telling(failing: &Unreachable) -> bool {
    let now = Instant::now();
    now.duration_since(failing.since) >= UNREACHABLE_TOLD_AFTER && now.duration_since(failing.latest) < KNOWN_FOR
}

/// Says what there is to say until the source, or every destination, was tried in vain for `patience`.
pub async fn until_lost(
    source: Arc<dyn Store>,
    targets: Vec<Arc<dyn Store>>,
    patience: Duration,
    say: impl Fn(String),
) -> Lost {
    let mut sides = [Availability::of([source]), Availability::of(targets)];
    let retrying = format!("retrying for {} s at most (--stall)", patience.as_secs());
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

/// Says what there is to say, for ever.
pub async fn tell(opened: impl Fn() -> Vec<Arc<dyn Store>>, say: impl Fn(String)) {
    let mut availability = Availability::of([]);
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    loop {
        ticks.tick().await;
        let known = availability.stores.len();
        availability.stores.extend(opened().into_iter().skip(known).map(|store| (store, false)));
        availability.news("trying again").into_iter().for_each(&say);
    }
}
