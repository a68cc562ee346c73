//! Tells that a store cannot be reached while it is tried again, and when it is time to give up.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tradewind_store::{Store, Unreachable};

/// A store that was tried in vain for so long is told of.
pub const UNREACHABLE_TOLD_AFTER: Duration = Duration::from_secs(5);
/// What failed before, and has not been tried for so long since, is not known any more.
const KNOWN_FOR: Duration = Duration::from_secs(30);
/// How often the stores are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Some stores, and which of them were told to be out of reach.
pub struct Reach {
    stores: Vec<(Arc<dyn Store>, bool)>,
}

impl Reach {
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
                    news.push(format!("cannot reach {}: {}; {retrying}", failing.origin, failing.why));
                }
                None if *told => {
                    *told = false;
                    news.push(format!("{} can be reached again", store.url()));
                }
                _ => {}
            }
        }
        news
    }

    /// The stores' common trouble, if every one was tried in vain for `patience`.
    fn lost(&self, patience: Duration) -> Option<Unreachable> {
        let failing =
            |(store, _): &(Arc<dyn Store>, bool)| store.unreachable().filter(|failing| failing.lasted() >= patience);
        self.stores.iter().map(failing).collect::<Option<Vec<_>>>()?.pop()
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
) -> Unreachable {
    let mut sides = [Reach::of([source]), Reach::of(targets)];
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
    let mut reach = Reach::of([]);
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    loop {
        ticks.tick().await;
        let known = reach.stores.len();
        reach.stores.extend(opened().into_iter().skip(known).map(|store| (store, false)));
        reach.news("trying again").into_iter().for_each(&say);
    }
}
