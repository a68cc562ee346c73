//! What is believed of a reply, and how tries again are counted.

use super::*;

#[test]
fn a_reply_that_names_an_object_twice_or_wrongly_changes_nothing() {
    let mut lead = Lead::new(config(1));
    for id in 1..=40 {
        lead.add(ObjectId(id), whole(10));
    }
    let sent = sends(&mut lead, 0);
    let (first, second) = (&sent[0], &sent[1]);
    let (mine, foreign) = (first.2.objects()[0], second.2.objects()[0]);
    lead.done(first.0, mine);
    lead.done(first.0, mine);
    lead.fault(first.0, mine, Fault::Permanent);
    lead.done(first.0, foreign);
    lead.done(first.0, ObjectId(999));
    let finished = other_actions(&mut lead, 0);
    assert_eq!(finished, [Action::Finished(mine)]);
    all_done(&mut lead, second.0, 0);
    assert!(other_actions(&mut lead, 0).contains(&Action::Finished(foreign)));
}

#[test]
fn a_part_reported_twice_counts_once() {
    let mut lead = Lead::new(config(1));
    lead.add(ObjectId(1), in_parts(2, true, vec![]));
    let parts = sends(&mut lead, 0);
    lead.done(parts[0].0, ObjectId(1));
    lead.done(parts[0].0, ObjectId(1));
    lead.answered(parts[0].0, None, 0);
    assert!(sends(&mut lead, 0).is_empty(), "closed with a part missing");
    all_done(&mut lead, parts[1].0, 0);
    assert!(matches!(sends(&mut lead, 0)[..], [(_, _, Work::Close(_))]));
}

#[test]
fn an_object_that_the_reply_left_out_is_sent_again() {
    let mut config = config(1);
    config.routes[0].window_requests = 1;
    let mut lead = Lead::new(config);
    for id in 0..32 {
        lead.add(ObjectId(id), whole(1));
    }
    let sent = sends(&mut lead, 0);
    let members = sent[0].2.objects();
    assert_eq!(members.len(), 2);
    lead.done(sent[0].0, members[0]);
    lead.answered(sent[0].0, None, 0);
    let mut finished = 0;
    while let Ok(action) = lead.poll(0) {
        match action {
            Action::Send { request, .. } => all_done(&mut lead, request, 0),
            Action::Finished(_) => finished += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((finished, lead.poll(0)), (32, Err(Idle::Empty)));
}

#[test]
fn a_bundle_with_mixed_results_ends_each_object_by_its_own() {
    let mut lead = Lead::new(config(2));
    for id in 0..64 {
        lead.add(ObjectId(id), whole(1));
    }
    let (request, _, work) = sends(&mut lead, 0).swap_remove(0);
    let members = work.objects();
    lead.done(request, members[0]);
    lead.fault(request, members[1], Fault::Permanent);
    lead.fault(request, members[2], Fault::Changed);
    lead.fault(request, members[3], Fault::Unavailable);
    lead.answered(request, None, 0);
    let ended = other_actions(&mut lead, 0);
    assert_eq!(
        ended,
        [Action::Finished(members[0]), Action::Failed(members[1], Fault::Permanent), Action::Restart(members[2])]
    );
    assert_eq!(lead.retries(), 1);
}

#[test]
fn a_bundle_given_again_is_one_retry_and_so_is_all_that_a_route_loses() {
    let mut lead = Lead::new(config(1));
    for id in 0..64 {
        lead.add(ObjectId(id), whole(1));
    }
    let sent = sends(&mut lead, 0);
    assert!(sent.len() > 2 && sent.iter().any(|(_, _, work)| work.objects().len() > 1), "{sent:?}");
    lead.failed(sent[0].0, Fault::Unavailable, 0);
    assert_eq!(lead.retries(), 1, "one request, whatever it holds");
    for (request, _, _) in &sent[1..] {
        lead.failed(*request, Fault::Lost, 0);
    }
    assert_eq!(lead.retries(), 2, "one connection");
    let again = sends(&mut lead, REST_MS_MIN).swap_remove(0);
    for object in again.2.objects() {
        lead.done(again.0, object);
    }
    lead.answered(again.0, None, REST_MS_MIN);
    let (request, _, _) = sends(&mut lead, REST_MS_MIN).swap_remove(0);
    lead.failed(request, Fault::Lost, REST_MS_MIN);
    assert_eq!(lead.retries(), 3, "the route had answered meanwhile");
}

#[test]
fn a_request_that_nobody_answers_is_given_up_after_its_time_and_its_object_fails_in_the_end() {
    const LIMIT_MS: u64 = 10_000;
    let mut lead = Lead::new(config(1));
    lead.add(ObjectId(1), whole(SLOWEST_BYTES_PER_S));
    let (mut now_ms, mut tries) = (0, 0);
    let failed = loop {
        match lead.poll(now_ms) {
            Ok(Action::Send { request, .. }) => {
                tries += 1;
                // Its own second of bytes at the slowest rate comes on top.
                assert_eq!(lead.overdue(now_ms + LIMIT_MS + 1000, LIMIT_MS), []);
                now_ms += LIMIT_MS + 1001;
                assert_eq!(lead.overdue(now_ms, LIMIT_MS), [request]);
                lead.give_up(request, now_ms);
                lead.give_up(request, now_ms);
                assert_eq!(lead.flights(), 0);
            }
            Ok(Action::Failed(object, fault)) => break (object, fault),
            Ok(_) => {}
            Err(Idle::Until(later)) => now_ms = later,
            Err(other) => panic!("{other:?}"),
        }
    };
    assert_eq!((failed, tries), ((ObjectId(1), Fault::Unavailable), TRIES_MAX));
}
