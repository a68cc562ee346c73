//! Routes that refuse, fail and come back.

use super::*;

#[test]
fn one_refused_object_does_not_hold_up_the_others() {
    let mut config = config(2);
    config.routes[0].window_requests = 1;
    config.routes[1].window_requests = 1;
    let mut scheduler = Scheduler::new(config);
    for id in 0..3 {
        scheduler.add(ObjectId(id), whole(10));
    }
    // Route 0 refuses one object while route 1 goes down.
    let sent = sends(&mut scheduler, 0);
    let on = |wanted: u16| sent.iter().find(|(_, route, _)| *route == RouteId(wanted)).unwrap();
    let refused = on(0).2.objects()[0];
    scheduler.failed(on(1).0, Fault::RouteDown, 0);
    scheduler.failed(on(0).0, Fault::Refused, 0);
    // The others continue over route 0; the refused one waits for route 1.
    let mut now_ms = 0;
    for _ in 0..2 {
        let sent = sends(&mut scheduler, now_ms);
        assert_eq!(sent.len(), 1, "the queue's head blocks the rest");
        assert_eq!(sent[0].1, RouteId(0));
        assert_ne!(sent[0].2.objects()[0], refused);
        all_done(&mut scheduler, sent[0].0, now_ms);
    }
    assert_eq!(idle(&mut scheduler, now_ms), Idle::Until(REST_MS_MIN));
    now_ms = REST_MS_MIN;
    let sent = sends(&mut scheduler, now_ms);
    assert!(matches!(&sent[..], [(_, RouteId(1), Work::Bundle(members))] if members[..] == [refused]));
}

#[test]
fn a_refused_part_takes_its_object_to_the_other_routes() {
    let mut config = config(2);
    config.routes.iter_mut().for_each(|route| route.window_requests = 1);
    let mut scheduler = Scheduler::new(config);
    scheduler.add(ObjectId(1), in_parts(6, true, vec![]));
    let sent = sends(&mut scheduler, 0);
    let refused = sent.iter().find(|(_, route, _)| *route == RouteId(0)).unwrap();
    scheduler.failed(refused.0, Fault::Refused, 0);
    let other = sent.iter().find(|(_, route, _)| *route == RouteId(1)).unwrap();
    all_done(&mut scheduler, other.0, 0);
    let mut parts = vec![part_of(&other.2)];
    for _ in 0..5 {
        let sent = sends(&mut scheduler, 0);
        assert!(matches!(sent[..], [(_, RouteId(1), _)]));
        parts.push(part_of(&sent[0].2));
        all_done(&mut scheduler, sent[0].0, 0);
    }
    parts.sort_unstable();
    assert_eq!(parts, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_gateway_that_dies_with_many_parts_of_one_object_does_not_fail_it() {
    let mut config = config(1);
    config.routes[0].window_requests = 2 * LOSSES_MAX as usize;
    config.routes[0].window_bytes_min = u64::MAX;
    config.routes[0].window_bytes = u64::MAX;
    let mut scheduler = Scheduler::new(config);
    scheduler.add(ObjectId(1), in_parts(2 * LOSSES_MAX, true, vec![]));
    let lost = sends(&mut scheduler, 0);
    assert_eq!(lost.len(), 2 * LOSSES_MAX as usize);
    for (request, ..) in lost {
        scheduler.failed(request, Fault::Lost, 0);
    }
    assert_eq!(other_actions(&mut scheduler, 0), [Action::RouteDown(RouteId(0))]);
    let mut now_ms = 0;
    assert!(deliver_all(&mut scheduler, &mut now_ms).contains(&Action::Finished(ObjectId(1))));
}

#[test]
fn one_route_that_stays_down_stalls_the_job() {
    let mut scheduler = Scheduler::new(config(1));
    scheduler.add(ObjectId(1), whole(1));
    let mut now_ms = 0;
    loop {
        for (request, ..) in sends(&mut scheduler, now_ms) {
            scheduler.failed(request, Fault::RouteDown, now_ms);
        }
        match idle(&mut scheduler, now_ms) {
            Idle::Until(later) => {
                assert!(later > now_ms);
                now_ms = later;
            }
            other => {
                assert_eq!(other, Idle::Stalled);
                break;
            }
        }
    }
    assert!((STALL_MS..2 * STALL_MS).contains(&now_ms));
}

/// Returns when a job stalls whose last answer comes at 1 s and whose route is found dead at `noticed_ms` and stays
/// dead.
fn stalls_at_ms(stall_ms: u64, noticed_ms: u64) -> u64 {
    let mut scheduler = Scheduler::new(Config { stall_ms, ..config(1) });
    scheduler.add(ObjectId(1), in_parts(2, true, vec![]));
    let sent = sends(&mut scheduler, 0);
    all_done(&mut scheduler, sent[0].0, 1_000);
    assert!(matches!(idle(&mut scheduler, 1_000), Idle::Waiting));
    scheduler.failed(sent[1].0, Fault::Lost, noticed_ms);
    let mut now_ms = noticed_ms;
    loop {
        for (request, ..) in sends(&mut scheduler, now_ms) {
            scheduler.failed(request, Fault::RouteDown, now_ms);
        }
        match idle(&mut scheduler, now_ms) {
            Idle::Until(later) => now_ms = later,
            other => {
                assert_eq!(other, Idle::Stalled);
                return now_ms;
            }
        }
    }
}

#[test]
fn a_stall_counts_from_the_last_answer_and_not_from_when_the_death_was_noticed() {
    assert_eq!(stalls_at_ms(STALL_MS, 16_000), 1_000 + STALL_MS);
    assert_eq!(stalls_at_ms(STALL_MS, 1_000), 1_000 + STALL_MS);
    assert_eq!(stalls_at_ms(10_000, 16_000), 16_000 + REPAIR_MS, "it has a moment to come back");
    assert_eq!(stalls_at_ms(1_000, 16_000), 17_000);
    let worked_ms = 10 * DEATH_NOTICED_MS;
    assert_eq!(stalls_at_ms(STALL_MS, worked_ms), worked_ms + STALL_MS, "a store that worked so long is no stall");
}

/// Returns the end of a job of one part whose route answers each attempt, after `answer_ms`, with `answer`.
fn ends_with(stall_ms: u64, answer_ms: u64, mut answer: impl FnMut(&mut Scheduler, RequestId, u64)) -> (Idle, u64) {
    let mut scheduler = Scheduler::new(Config { stall_ms, ..config(1) });
    scheduler.add(ObjectId(1), whole(1));
    let mut now_ms = 0;
    let mut due: Option<(u64, RequestId)> = None;
    loop {
        if let Some((_, request)) = due.take_if(|(at_ms, _)| *at_ms <= now_ms) {
            answer(&mut scheduler, request, now_ms);
        }
        for (request, ..) in sends(&mut scheduler, now_ms) {
            due = Some((now_ms + answer_ms, request));
        }
        match idle(&mut scheduler, now_ms) {
            ended @ (Idle::Stalled | Idle::Empty) => return (ended, now_ms),
            _ => now_ms += 100,
        }
    }
}

#[test]
fn a_store_that_only_a_sink_cannot_reach_stalls_the_job() {
    for (stall_ms, tries_ms) in [(60_000, 21_000), (60_000, 60_500), (20_000, 20_500), (600_000, 60_500)] {
        let (ended, now_ms) =
            ends_with(stall_ms, tries_ms, |scheduler, request, now_ms| scheduler.out_of_reach(request, now_ms));
        assert_eq!(ended, Idle::Stalled);
        assert!((stall_ms..=stall_ms + 500 + REPAIR_MS).contains(&now_ms), "{stall_ms} ms, ended after {now_ms}");
    }
}

#[test]
fn a_probe_that_waits_for_a_frozen_gateway_does_not_put_off_the_stall() {
    let fault = |scheduler: &mut Scheduler, request, now_ms| scheduler.failed(request, Fault::Lost, now_ms);
    for (stall_ms, noticed_ms) in [(60_000, 15_000), (20_000, 5_000), (60_000, 25_000)] {
        let (ended, now_ms) = ends_with(stall_ms, noticed_ms, fault);
        assert_eq!(ended, Idle::Stalled);
        assert!((stall_ms..stall_ms + 1_000).contains(&now_ms), "{stall_ms} ms, noticed after {now_ms}");
    }
}

#[test]
fn a_probe_that_is_at_work_is_waited_for() {
    let mut tries = 0;
    let (ended, _) = ends_with(60_000, 500_000, |scheduler, request, now_ms| {
        tries += 1;
        match tries {
            1 => scheduler.failed(request, Fault::Lost, now_ms),
            _ => all_done(scheduler, request, now_ms),
        }
    });
    assert_eq!((ended, tries), (Idle::Empty, 2));
}

#[test]
fn a_store_that_accepts_other_objects_is_reachable_so_the_object_is_at_fault() {
    let mut scheduler = Scheduler::new(config(1));
    scheduler.add(ObjectId(1), whole(1));
    let (mut asked, mut ended) = (None, Vec::new());
    for round in 0..u64::from(TRIES_MAX) {
        let now_ms = 1_000 * round;
        scheduler.add(ObjectId(100 + round), whole(1));
        for at_ms in [now_ms, now_ms + 900] {
            if at_ms > now_ms {
                scheduler.out_of_reach(asked.take().unwrap(), at_ms);
            }
            while let Ok(action) = scheduler.poll(at_ms) {
                match action {
                    Action::Send { request, work, .. } if work.objects() == [ObjectId(1)] => asked = Some(request),
                    Action::Send { request, .. } => all_done(&mut scheduler, request, at_ms + 500),
                    other => ended.push(other),
                }
            }
        }
        let failed = ended.contains(&Action::Failed(ObjectId(1), Fault::Unavailable));
        assert_eq!(failed, round + 1 == u64::from(TRIES_MAX), "{ended:?}");
    }
    assert!(!ended.contains(&Action::RouteDown(RouteId(0))), "{ended:?}");
}

#[test]
fn a_job_stalls_when_the_only_working_route_is_over_the_ceiling() {
    let mut config = config(2);
    config.routes[1].usd_per_gb = 1.0;
    config.ceiling_usd_per_gb = Some(0.5);
    let mut scheduler = Scheduler::new(config);
    scheduler.add(ObjectId(1), whole(MIB));
    let mut now_ms = 0;
    for _ in 0..1_000 {
        for (request, route, _) in sends(&mut scheduler, now_ms) {
            assert_eq!(route, RouteId(0), "over the ceiling");
            scheduler.failed(request, Fault::RouteDown, now_ms);
        }
        match idle(&mut scheduler, now_ms) {
            Idle::Until(later) if later > now_ms => now_ms = later,
            other => {
                assert_eq!(other, Idle::Stalled);
                return;
            }
        }
    }
    panic!("neither done nor stalled after {now_ms} ms");
}

#[test]
fn a_route_that_went_down_long_ago_is_tried_before_the_job_stalls() {
    let mut scheduler = Scheduler::new(config(1));
    scheduler.add(ObjectId(1), in_parts(2, true, vec![]));
    let sent = sends(&mut scheduler, 0);
    scheduler.failed(sent[0].0, Fault::Permanent, 0);
    scheduler.failed(sent[1].0, Fault::Lost, 0);
    let aborts = sends(&mut scheduler, REST_MS_MIN);
    for _ in 0..ABORT_TRIES_MAX {
        let aborts = if aborts.is_empty() { sends(&mut scheduler, REST_MS_MIN) } else { aborts.clone() };
        scheduler.failed(aborts[0].0, Fault::Lost, REST_MS_MIN);
    }
    // An hour passes in which the list yields nothing.
    let late_ms = 3_600_000;
    scheduler.add(ObjectId(2), whole(1));
    assert!(!sends(&mut scheduler, late_ms).is_empty(), "{:?}", idle(&mut scheduler, late_ms));
}

#[test]
fn a_route_whose_store_refuses_is_up() {
    let mut scheduler = Scheduler::new(config(1));
    scheduler.add(ObjectId(1), whole(1));
    scheduler.add(ObjectId(2), whole(1));
    for (request, ..) in sends(&mut scheduler, 0) {
        scheduler.failed(request, Fault::Lost, 0);
    }
    let sent = sends(&mut scheduler, REST_MS_MIN);
    scheduler.failed(sent[0].0, Fault::Unavailable, REST_MS_MIN);
    assert_eq!(sends(&mut scheduler, REST_MS_MIN).len(), 2, "still one at a time");
}
