//! The life of an object from its first request to its end.

use super::*;

#[test]
fn an_object_in_parts_is_opened_sent_closed_and_finished() {
    let mut scheduler = Scheduler::new(config(1));
    scheduler.add(ObjectId(7), in_parts(3, false, vec![]));
    let opens = sends(&mut scheduler, 0);
    assert!(matches!(opens[..], [(_, _, Work::Open(ObjectId(7)))]));
    all_done(&mut scheduler, opens[0].0, 1);
    let parts = sends(&mut scheduler, 1);
    assert_eq!(parts.len(), 3);
    for (request, ..) in &parts {
        all_done(&mut scheduler, *request, 2);
    }
    let closes = sends(&mut scheduler, 2);
    assert!(matches!(closes[..], [(_, _, Work::Close(ObjectId(7)))]));
    all_done(&mut scheduler, closes[0].0, 3);
    assert_eq!(scheduler.poll(3), Ok(Action::Finished(ObjectId(7))));
    assert_eq!(scheduler.poll(3), Err(Idle::Empty));
}

#[test]
fn a_zero_byte_object_is_sent_and_costs_nothing() {
    let mut config = config(1);
    config.ceiling_usd_per_gb = Some(0.0);
    config.rate_limit_bytes_per_s = Some(1);
    let mut scheduler = Scheduler::new(config);
    scheduler.add(ObjectId(1), whole(0));
    let sent = sends(&mut scheduler, 0);
    all_done(&mut scheduler, sent[0].0, 0);
    assert_eq!(scheduler.poll(0), Ok(Action::Finished(ObjectId(1))));
}

#[test]
fn a_resumed_object_with_all_parts_is_only_closed() {
    let mut scheduler = Scheduler::new(config(1));
    // Out of order, repeated, and parts that the object does not have: a journal may hold all of these.
    scheduler.add(ObjectId(1), in_parts(3, true, vec![3, 1, 2, 2, 0, 4, 99]));
    assert!(matches!(sends(&mut scheduler, 0)[..], [(_, _, Work::Close(_))]));
}

#[test]
fn a_resumed_object_sends_exactly_the_missing_parts() {
    let mut scheduler = Scheduler::new(config(1));
    scheduler.add(ObjectId(1), in_parts(5, true, vec![2, 4]));
    let parts: Vec<u32> = sends(&mut scheduler, 0).into_iter().map(|(_, _, work)| part_of(&work)).collect();
    assert_eq!(parts, [1, 3, 5]);
}

#[test]
fn a_part_that_never_gets_through_fails_its_object() {
    for (fault, tries) in [(Fault::Unavailable, TRIES_MAX), (Fault::Corrupt, TRIES_MAX), (Fault::Lost, LOSSES_MAX)] {
        let mut scheduler = Scheduler::new(config(1));
        scheduler.add(ObjectId(1), in_parts(1, true, vec![]));
        let mut now_ms = 0;
        for _ in 0..tries {
            now_ms += 10_000;
            let sent = sends(&mut scheduler, now_ms);
            assert_eq!(part_of(&sent[0].2), 1);
            scheduler.failed(sent[0].0, fault, now_ms);
        }
        now_ms += 10_000;
        let aborts = sends(&mut scheduler, now_ms);
        assert!(matches!(aborts[..], [(_, _, Work::Abort(_))]));
        all_done(&mut scheduler, aborts[0].0, now_ms);
        assert!(other_actions(&mut scheduler, now_ms).contains(&Action::Failed(ObjectId(1), fault)));
    }
}

#[test]
fn what_failed_once_is_no_first_attempt_any_more() {
    for new in [in_parts(1, true, vec![]), whole(100)] {
        let mut scheduler = Scheduler::new(config(1));
        scheduler.add(ObjectId(1), new);
        let (first, ..) = sends(&mut scheduler, 0)[0];
        assert!(scheduler.is_first_attempt(first));
        scheduler.failed(first, Fault::Unavailable, 0);
        assert!(!scheduler.is_first_attempt(first), "it is not in flight");
        let (second, ..) = sends(&mut scheduler, 10_000)[0];
        assert!(!scheduler.is_first_attempt(second));
    }
}

#[test]
fn a_store_that_pauses_does_not_fail_an_object_with_many_parts_in_flight() {
    let mut config = config(1);
    config.routes[0].window_requests = 32;
    let mut scheduler = Scheduler::new(config);
    scheduler.add(ObjectId(1), in_parts(32, true, vec![]));
    for _ in 1..TRIES_MAX {
        for (request, ..) in sends(&mut scheduler, 0) {
            scheduler.failed(request, Fault::Unavailable, 0);
        }
    }
    assert!(deliver_all(&mut scheduler, &mut 0).contains(&Action::Finished(ObjectId(1))));
}

#[test]
fn an_object_added_again_under_its_id_starts_clean() {
    let mut config = config(1);
    config.routes[0].window_requests = 3;
    let mut scheduler = Scheduler::new(config);
    scheduler.add(ObjectId(1), in_parts(6, true, vec![]));
    let sent = sends(&mut scheduler, 0);
    // One part waits to be sent again when another reports that the object changed.
    scheduler.failed(sent[0].0, Fault::Unavailable, 0);
    scheduler.failed(sent[1].0, Fault::Changed, 0);
    scheduler.failed(sent[2].0, Fault::Changed, 0);
    let aborts = sends(&mut scheduler, 0);
    assert!(matches!(aborts[..], [(_, _, Work::Abort(_))]));
    all_done(&mut scheduler, aborts[0].0, 0);
    assert_eq!(scheduler.poll(0), Ok(Action::Restart(ObjectId(1))));
    scheduler.add(ObjectId(1), in_parts(2, false, vec![]));
    let sent = sends(&mut scheduler, 0);
    assert!(matches!(sent[..], [(_, _, Work::Open(_))]), "{sent:?}");
    all_done(&mut scheduler, sent[0].0, 0);
    let parts: Vec<u32> = sends(&mut scheduler, 0).iter().map(|(_, _, work)| part_of(work)).collect();
    assert_eq!(parts, [1, 2]);
}

#[test]
fn an_abort_outlives_an_outage_and_gives_up_on_answers_only() {
    let mut scheduler = Scheduler::new(config(1));
    scheduler.add(ObjectId(1), in_parts(1, true, vec![]));
    let sent = sends(&mut scheduler, 0);
    scheduler.failed(sent[0].0, Fault::Permanent, 0);
    let mut now_ms = 0;
    for _ in 0..2 * ABORT_TRIES_MAX {
        let aborts = sends(&mut scheduler, now_ms);
        assert!(matches!(aborts[..], [(_, _, Work::Abort(_))]));
        scheduler.failed(aborts[0].0, Fault::RouteDown, now_ms);
        now_ms += 8_000;
    }
    for _ in 0..ABORT_TRIES_MAX {
        let aborts = sends(&mut scheduler, now_ms);
        scheduler.failed(aborts[0].0, Fault::Refused, now_ms);
    }
    assert!(other_actions(&mut scheduler, now_ms).contains(&Action::Failed(ObjectId(1), Fault::Permanent)));
    assert_eq!(scheduler.poll(now_ms), Err(Idle::Empty));
}

#[test]
fn an_upload_that_all_routes_refuse_is_aborted_all_the_same() {
    let mut scheduler = Scheduler::new(config(2));
    scheduler.add(ObjectId(1), in_parts(1, true, vec![]));
    for _ in 0..2 {
        let sent = sends(&mut scheduler, 0);
        scheduler.failed(sent[0].0, Fault::Refused, 0);
    }
    let aborts = sends(&mut scheduler, 0);
    assert!(matches!(aborts[..], [(_, _, Work::Abort(_))]));
    all_done(&mut scheduler, aborts[0].0, 0);
    assert_eq!(scheduler.poll(0), Ok(Action::Failed(ObjectId(1), Fault::Refused)));
}

#[test]
fn draining_finishes_what_is_in_flight_and_begins_nothing() {
    let mut config = config(1);
    config.routes[0].window_requests = 3;
    let mut scheduler = Scheduler::new(config);
    scheduler.add(ObjectId(1), in_parts(1, true, vec![]));
    scheduler.add(ObjectId(2), in_parts(4, false, vec![]));
    scheduler.add(ObjectId(3), whole(1));
    let sent = sends(&mut scheduler, 0);
    assert_eq!(sent.len(), 3);
    scheduler.drain();
    assert!(!scheduler.wants_more());
    assert_eq!(idle(&mut scheduler, 0), Idle::Waiting);
    for (request, ..) in &sent {
        all_done(&mut scheduler, *request, 0);
    }
    let closes = sends(&mut scheduler, 0);
    assert!(matches!(closes[..], [(_, _, Work::Close(ObjectId(1)))]), "{closes:?}");
    all_done(&mut scheduler, closes[0].0, 0);
    assert_eq!(idle(&mut scheduler, 0), Idle::Empty);
}

#[test]
fn draining_does_not_wait_for_a_route_to_come_back() {
    let mut scheduler = Scheduler::new(config(1));
    scheduler.add(ObjectId(1), in_parts(1, true, vec![]));
    let sent = sends(&mut scheduler, 0);
    scheduler.failed(sent[0].0, Fault::Permanent, 0);
    let aborts = sends(&mut scheduler, 0);
    scheduler.drain();
    scheduler.failed(aborts[0].0, Fault::RouteDown, 0);
    assert_eq!(idle(&mut scheduler, 0), Idle::Empty);
}

#[test]
fn no_more_uploads_are_open_than_the_limit() {
    let mut config = config(1);
    config.routes[0].window_requests = 1_000;
    let mut scheduler = Scheduler::new(config);
    for id in 0..500 {
        scheduler.add(ObjectId(id), in_parts(1, false, vec![]));
    }
    let mut open = 0_usize;
    let mut finished = 0;
    let mut in_flight = VecDeque::new();
    while finished < 500 {
        match scheduler.poll(0) {
            Ok(Action::Send { request, work, .. }) => {
                open += usize::from(matches!(work, Work::Open(_)));
                assert!(open <= OPEN_OBJECTS_MAX);
                in_flight.push_back(request);
            }
            Ok(Action::Finished(_)) => {
                finished += 1;
                open -= 1;
            }
            Ok(other) => panic!("{other:?}"),
            Err(idle) => {
                assert_eq!(idle, Idle::Waiting);
                all_done(&mut scheduler, in_flight.pop_front().unwrap(), 0);
            }
        }
    }
}

#[test]
fn objects_wait_in_some_bundles_and_all_of_them_under_a_ceiling() {
    let filled = |mut scheduler: Scheduler, ceiling: Option<f64>| {
        let routes = config(1).routes;
        scheduler.change_routes(&routes, ceiling, None);
        let added = (0..).take_while(|id| {
            let wants_more = scheduler.wants_more();
            if wants_more {
                scheduler.add(ObjectId(*id), whole(1));
            }
            wants_more
        });
        added.count()
    };
    let scheduler = |bundle_objects_max| Scheduler::new(Config { bundle_objects_max, ..config(1) });
    assert_eq!(filled(scheduler(10), None), 10 * BUNDLES_WAITING_MAX);
    assert_eq!(filled(scheduler(10), Some(0.1)), OBJECTS_MAX, "a ceiling that comes with other routes counts too");
    assert_eq!(filled(scheduler(usize::MAX), None), OBJECTS_MAX);
}

#[test]
fn a_poll_of_a_full_lead_does_not_scan_every_object() {
    let mut config = config(2);
    config.bundle_objects_max = OBJECTS_MAX;
    config.bundle_bytes_max = u64::MAX;
    let mut scheduler = Scheduler::new(config);
    let mut id = 0;
    while scheduler.wants_more() {
        scheduler.add(ObjectId(id), whole(1));
        id += 1;
    }
    assert_eq!(id as usize, OBJECTS_MAX);
    sends(&mut scheduler, 0);
    // 100,000 polls over 20,000 objects: seconds if each scanned a bundle, no time if each checks only the windows.
    for _ in 0..100_000 {
        assert_eq!(scheduler.poll(0), Err(Idle::Waiting));
    }
}

#[test]
fn small_objects_share_requests_the_more_are_in_flight() {
    let bundles = |objects: u64, object_bytes: u64| {
        let mut scheduler = Scheduler::new(Config { grain_objects_max: 32, ..config(1) });
        (0..objects).for_each(|id| scheduler.add(ObjectId(id), whole(object_bytes)));
        let sent = sends(&mut scheduler, 0).into_iter().map(|(_, _, work)| work.objects().len());
        sent.collect::<Vec<usize>>()
    };
    assert_eq!(bundles(10, 1 << 10), [1, 1, 2, 3, 3]);
    assert_eq!(bundles(8, 40 << 10), [1; 8], "two of them are too long");
    assert!(bundles(256, 1 << 10).len() < 24);
}
