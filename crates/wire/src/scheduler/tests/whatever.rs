//! The scheduler's guarantees hold for any replies.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Fate {
    Done,
    Fault(Fault),
}

fn fate() -> impl Strategy<Value = Fate> {
    use Fault::*;
    prop_oneof![
        4 => Just(Fate::Done),
        6 => prop::sample::select(vec![Lost, RouteDown, Unavailable, Corrupt, Refused, Permanent, Changed, UploadGone])
            .prop_map(Fate::Fault),
    ]
}

fn object() -> impl Strategy<Value = NewObject> {
    let layout = prop_oneof![
        Just(Layout::Whole),
        (1u64..50, any::<bool>(), prop::collection::vec(1u32..20, 0..5), prop::collection::vec(1u32..20, 0..5),)
            .prop_map(|(part_bytes, opened, done, to_check)| Layout::Parts { part_bytes, opened, done, to_check }),
    ];
    (0u64..200, layout, any::<bool>(), prop::bool::weighted(0.8))
        .prop_map(|(bytes, layout, may_restart, travels)| NewObject { bytes, layout, may_restart, travels })
}

/// Ends a request as its fate says; `partly` answers only one of its objects first.
fn answer(scheduler: &mut Scheduler, request: RequestId, (fate, partly): (Fate, bool), now_ms: u64) {
    match fate {
        Fate::Done if partly => {
            scheduler.done(request, scheduler.work(request).unwrap().objects()[0]);
            scheduler.answered(request, None, now_ms);
        }
        Fate::Done => all_done(scheduler, request, now_ms),
        Fate::Fault(fault) => {
            if let (Some(Work::Part { object, part, .. }), true) = (scheduler.work(request).cloned(), partly)
                && scheduler.is_last(request, object)
            {
                scheduler.must_carry(object, part);
            }
            scheduler.failed(request, fault, now_ms);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// For any replies, every object ends exactly once, nothing spins, and the ceiling holds.
    #[test]
    fn every_object_ends_once_whatever_happens(
        objects in prop::collection::vec(object(), 1..30),
        fates in prop::collection::vec((fate(), 0usize..8, any::<bool>()), 1..80),
        prices in prop::collection::vec(0.0..0.2f64, 1..4),
        ceiling in prop::option::of(0.05..0.3f64),
        ceiling_bytes in prop::option::of(0u64..3_000),
        rate in prop::option::of(100u64..10_000),
        window_requests in 1usize..6,
        duplicate_fraction_max in prop::sample::select(vec![0.0, 0.02, 1.0]),
        answer_ms in prop::sample::select(vec![10u64, 2_500]),
    ) {
        let mut config = config(0);
        config.routes = prices.iter().enumerate().map(|(id, price)| RoutePlan {
            window_requests, window_bytes_min: 100, window_bytes_start: 100, window_bytes: 100, ..route(id as u16, *price)
        }).collect();
        config.ceiling_usd_per_gb = ceiling;
        config.ceiling_bytes = ceiling_bytes;
        config.rate_limit_bytes_per_s = rate;
        config.duplicate_fraction_max = duplicate_fraction_max;
        let mut scheduler = Scheduler::new(config);
        let mut held: HashMap<ObjectId, NewObject> = HashMap::new();
        for (id, object) in objects.into_iter().enumerate() {
            scheduler.add(ObjectId(id as u64), object.clone());
            held.insert(ObjectId(id as u64), object);
        }
        let mut flying: Vec<RequestId> = Vec::new();
        let mut fates = fates.into_iter().peekable();
        let mut now_ms = 0;
        let end = loop {
            prop_assert!(flying.len() == scheduler.flights());
            prop_assert!(ceiling_bytes.is_none_or(|most_bytes| scheduler.shares().sent_bytes() <= most_bytes));
            match scheduler.poll(now_ms) {
                Ok(Action::Send { request, work, .. }) => {
                    prop_assert!(work.objects().iter().all(|id| held.contains_key(id)));
                    flying.push(request);
                    continue;
                }
                Ok(Action::Finished(id) | Action::Failed(id, _)) => {
                    prop_assert!(held.remove(&id).is_some(), "{:?} ended twice", id);
                    continue;
                }
                Ok(Action::Restart(id)) => {
                    prop_assert!(held[&id].may_restart);
                    let again = NewObject { may_restart: false, ..held[&id].clone() };
                    scheduler.add(id, again.clone());
                    held.insert(id, again);
                    continue;
                }
                Ok(Action::RouteDown(_) | Action::RouteUp(_) | Action::RouteStalled(_)) => continue,
                Err(Idle::Until(later)) => {
                    prop_assert!(later > now_ms);
                    if flying.is_empty() {
                        now_ms = later;
                        continue;
                    }
                }
                Err(Idle::Waiting) => prop_assert!(!flying.is_empty(), "waits for nothing"),
                Err(end) => break end,
            }
            let (fate, which, partly) = fates.next().unwrap_or((Fate::Done, 0, false));
            let request = flying.swap_remove(which % flying.len());
            now_ms += if matches!(fate, Fate::Done) { answer_ms } else { 10 };
            answer(&mut scheduler, request, (fate, partly), now_ms);
        };
        prop_assert_eq!(end == Idle::Empty, held.is_empty(), "{:?} with {} left", end, held.len());
        prop_assert!(end == Idle::Empty || (end == Idle::Ceiling && (ceiling.is_some() || ceiling_bytes.is_some())), "{:?}", end);
        prop_assert!(scheduler.ready.lanes.iter().all(|lane| lane.whole.is_empty()) || end != Idle::Empty);
    }
}
