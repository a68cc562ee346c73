//! Trust in replies, and the count of retries.

use super::*;

#[test]
fn a_reply_that_names_an_object_twice_or_wrongly_changes_nothing() {
    let mut scheduler = Scheduler::new(config(1));
    for id in 1..=40 {
        scheduler.add(ObjectId(id), whole(10));
    }
    let sent = sends(&mut scheduler, 0);
    let (first, second) = (&sent[0], &sent[1]);
    let (mine, foreign) = (first.2.objects()[0], second.2.objects()[0]);
    scheduler.done(first.0, mine);
    scheduler.done(first.0, mine);
    scheduler.fault(first.0, mine, Fault::Permanent);
    scheduler.done(first.0, foreign);
    scheduler.done(first.0, ObjectId(999));
    let finished = other_actions(&mut scheduler, 0);
    assert_eq!(finished, [Action::Finished(mine)]);
    all_done(&mut scheduler, second.0, 0);
    assert!(other_actions(&mut scheduler, 0).contains(&Action::Finished(foreign)));
}

#[test]
fn a_part_reported_twice_counts_once() {
    let mut scheduler = Scheduler::new(config(1));
    scheduler.add(ObjectId(1), in_parts(2, true, vec![]));
    let parts = sends(&mut scheduler, 0);
    scheduler.done(parts[0].0, ObjectId(1));
    scheduler.done(parts[0].0, ObjectId(1));
    scheduler.answered(parts[0].0, None, 0);
    assert!(sends(&mut scheduler, 0).is_empty(), "closed with a part missing");
    all_done(&mut scheduler, parts[1].0, 0);
    assert!(matches!(sends(&mut scheduler, 0)[..], [(_, _, Work::Close(_))]));
}

#[test]
fn an_object_that_the_reply_left_out_is_sent_again() {
    let mut config = config(1);
    config.routes[0].window_requests = 1;
    let mut scheduler = Scheduler::new(config);
    for id in 0..32 {
        scheduler.add(ObjectId(id), whole(1));
    }
    let sent = sends(&mut scheduler, 0);
    let members = sent[0].2.objects();
    assert_eq!(members.len(), 2);
    scheduler.done(sent[0].0, members[0]);
    scheduler.answered(sent[0].0, None, 0);
    let mut finished = 0;
    while let Ok(action) = scheduler.poll(0) {
        match action {
            Action::Send { request, .. } => all_done(&mut scheduler, request, 0),
            Action::Finished(_) => finished += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((finished, scheduler.poll(0)), (32, Err(Idle::Empty)));
}

#[test]
fn a_bundle_with_mixed_results_ends_each_object_by_its_own() {
    let mut scheduler = Scheduler::new(config(2));
    for id in 0..64 {
        scheduler.add(ObjectId(id), whole(1));
    }
    let (request, _, work) = sends(&mut scheduler, 0).swap_remove(0);
    let members = work.objects();
    scheduler.done(request, members[0]);
    scheduler.fault(request, members[1], Fault::Permanent);
    scheduler.fault(request, members[2], Fault::Changed);
    scheduler.fault(request, members[3], Fault::Unavailable);
    scheduler.answered(request, None, 0);
    let ended = other_actions(&mut scheduler, 0);
    assert_eq!(
        ended,
        [Action::Finished(members[0]), Action::Failed(members[1], Fault::Permanent), Action::Restart(members[2])]
    );
    assert_eq!(scheduler.retries(), 1);
}

#[test]
fn a_bundle_given_again_is_one_retry_and_so_is_all_that_a_route_loses() {
    let mut scheduler = Scheduler::new(config(1));
    for id in 0..64 {
        scheduler.add(ObjectId(id), whole(1));
    }
    let sent = sends(&mut scheduler, 0);
    assert!(sent.len() > 2 && sent.iter().any(|(_, _, work)| work.objects().len() > 1), "{sent:?}");
    scheduler.failed(sent[0].0, Fault::Unavailable, 0);
    assert_eq!(scheduler.retries(), 1, "one request, whatever it holds");
    for (request, _, _) in &sent[1..] {
        scheduler.failed(*request, Fault::Lost, 0);
    }
    assert_eq!(scheduler.retries(), 2, "one connection");
    let again = sends(&mut scheduler, REST_MS_MIN).swap_remove(0);
    for object in again.2.objects() {
        scheduler.done(again.0, object);
    }
    scheduler.answered(again.0, None, REST_MS_MIN);
    let (request, _, _) = sends(&mut scheduler, REST_MS_MIN).swap_remove(0);
    scheduler.failed(request, Fault::Lost, REST_MS_MIN);
    assert_eq!(scheduler.retries(), 3, "the route had answered meanwhile");
}

#[test]
fn an_unanswered_request_times_out_and_its_object_finally_fails() {
    const LIMIT_MS: u64 = 10_000;
    let mut scheduler = Scheduler::new(config(1));
    scheduler.add(ObjectId(1), whole(SLOWEST_BYTES_PER_S));
    let (mut now_ms, mut tries) = (0, 0);
    let failed = loop {
        match scheduler.poll(now_ms) {
            Ok(Action::Send { request, .. }) => {
                tries += 1;
                // The request's own second of bytes at the slowest rate is added.
                assert_eq!(scheduler.overdue(now_ms + LIMIT_MS + 1000, LIMIT_MS), []);
                now_ms += LIMIT_MS + 1001;
                assert_eq!(scheduler.overdue(now_ms, LIMIT_MS), [request]);
                scheduler.give_up(request, now_ms);
                scheduler.give_up(request, now_ms);
                assert_eq!(scheduler.flights(), 0);
            }
            Ok(Action::Failed(object, fault)) => break (object, fault),
            Ok(_) => {}
            Err(Idle::Until(later)) => now_ms = later,
            Err(other) => panic!("{other:?}"),
        }
    };
    assert_eq!((failed, tries), ((ObjectId(1), Fault::Unavailable), TRIES_MAX));
}
