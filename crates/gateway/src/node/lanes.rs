//! Works on the items of a list, several at the same time, with one future for each lane instead of one for each item.
//!
//! A future of a store request is some kilobytes. Each item of a stream of futures moves one several times. A lane takes
//! one item after the other, so it is made once; and further lanes are made only when the first one has to wait.

use futures::stream::{FuturesUnordered, StreamExt};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};

/// Applies `work` to all `items`, to at most `at_once_max` (not 0) at the same time. Returns the results in the order of
/// the items.
pub(super) async fn each<T, R, F>(items: Vec<T>, at_once_max: usize, work: impl Fn(T) -> F) -> Vec<R>
where
    F: Future<Output = R>,
{
    let mut results = Vec::new();
    results.resize_with(items.len(), || None);
    let (results, waiting) = (Mutex::new(results), Mutex::new(items.into_iter().enumerate()));
    {
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
        let lane = || async {
            while let Some((index, item)) = next() {
                let result = work(item).await;
                results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
            }
        };
        let mut first = pin!(lane());
        if futures::poll!(&mut first).is_pending() {
            let left = waiting.lock().unwrap_or_else(PoisonError::into_inner).len();
            let others: FuturesUnordered<_> = (1..at_once_max.min(left + 1)).map(|_| lane()).collect();
            futures::join!(first, others.for_each(|()| std::future::ready(())));
        }
    }
    // Each lane ends only when no item is left, and each item has left a result.
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn results_are_in_order_and_no_more_items_than_allowed_are_worked_on() {
        for (items, at_once_max) in [(0, 4), (1, 4), (3, 4), (4, 4), (100, 4), (100, 1)] {
            let (active, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let began = tokio::time::Instant::now();
            let work = |item: u64| {
                let (active, most) = (&active, &most);
                async move {
                    most.fetch_max(active.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_secs(1 + item % 3)).await;
                    active.fetch_sub(1, Ordering::Relaxed);
                    2 * item
                }
            };
            let results = each((0..items).collect(), at_once_max, work).await;
            assert_eq!(results, (0..items).map(|item| 2 * item).collect::<Vec<_>>());
            assert_eq!(most.load(Ordering::Relaxed), at_once_max.min(items as usize));
            let seconds: u64 = (0..items).map(|item| 1 + item % 3).sum();
            let shared = seconds.div_ceil(at_once_max as u64)..=seconds.div_ceil(at_once_max as u64) + 3;
            assert!(shared.contains(&began.elapsed().as_secs()), "{items} items, {at_once_max} at once");
        }
    }

    #[tokio::test]
    async fn work_that_never_waits_needs_one_lane() {
        let active = AtomicUsize::new(0);
        let work = |item: u32| {
            let active = &active;
            async move { (item, active.fetch_add(1, Ordering::Relaxed)) }
        };
        let results = each(vec![7, 8, 9], 2, work).await;
        assert_eq!(results, [(7, 0), (8, 1), (9, 2)]);
    }
}
