//! One test for each promise of the lead; the network as a whole is simulated in `tests/simulation.rs`.

use super::*;
use crate::shares::{REST_MS_MAX, REST_MS_MIN, RoutePlan};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const STALL_MS: u64 = 60_000;

fn route(id: u16, usd_per_gb: f64) -> RoutePlan {
    RoutePlan { id: RouteId(id), share: 1.0, usd_per_gb, window_bytes: 64 * MIB, window_requests: 8 }
}

fn config(routes: usize) -> Config {
    Config {
        routes: (0..routes as u16).map(|id| route(id, 0.01)).collect(),
        ceiling_usd_per_gb: None,
        bundle_bytes_max: 16 * MIB,
        bundle_objects_max: 100,
        rate_limit_bytes_per_s: None,
        stall_ms: STALL_MS,
        first_request: 1,
    }
}

fn whole(bytes: u64) -> NewObject {
    NewObject { bytes, layout: Layout::Whole, may_restart: true, travels: true }
}

fn in_parts(parts: u32, opened: bool, done: Vec<u32>) -> NewObject {
    let layout = Layout::Parts { part_bytes: MIB, opened, done };
    NewObject { bytes: u64::from(parts) * MIB, layout, may_restart: true, travels: true }
}

/// All requests that the lead sends now, until it idles.
fn sends(lead: &mut Lead, now_ms: u64) -> Vec<(RequestId, RouteId, Work)> {
    let mut sent = Vec::new();
    while let Ok(action) = lead.poll(now_ms) {
        if let Action::Send { request, route, work } = action {
            sent.push((request, route, work));
        }
    }
    sent
}

fn other_actions(lead: &mut Lead, now_ms: u64) -> Vec<Action> {
    std::iter::from_fn(|| lead.poll(now_ms).ok()).filter(|action| !matches!(action, Action::Send { .. })).collect()
}

fn all_done(lead: &mut Lead, request: RequestId, now_ms: u64) {
    for object in lead.work(request).unwrap().objects() {
        lead.done(request, object);
    }
    lead.answered(request, None, now_ms);
}

fn idle(lead: &mut Lead, now_ms: u64) -> Idle {
    loop {
        if let Err(idle) = lead.poll(now_ms) {
            return idle;
        }
    }
}

#[test]
fn an_object_in_parts_is_opened_sent_closed_and_finished() {
    let mut lead = Lead::new(config(1));
    lead.add(ObjectId(7), in_parts(3, false, vec![]));
    let opens = sends(&mut lead, 0);
    assert!(matches!(opens[..], [(_, _, Work::Open(ObjectId(7)))]));
    all_done(&mut lead, opens[0].0, 1);
    let parts = sends(&mut lead, 1);
    assert_eq!(parts.len(), 3);
    for (request, ..) in &parts {
        all_done(&mut lead, *request, 2);
    }
    let closes = sends(&mut lead, 2);
    assert!(matches!(closes[..], [(_, _, Work::Close(ObjectId(7)))]));
    all_done(&mut lead, closes[0].0, 3);
    assert_eq!(lead.poll(3), Ok(Action::Finished(ObjectId(7))));
    assert_eq!(lead.poll(3), Err(Idle::Empty));
}

#[test]
fn a_zero_byte_object_is_sent_and_costs_nothing() {
    let mut config = config(1);
    config.ceiling_usd_per_gb = Some(0.0);
    config.rate_limit_bytes_per_s = Some(1);
    let mut lead = Lead::new(config);
    lead.add(ObjectId(1), whole(0));
    let sent = sends(&mut lead, 0);
    all_done(&mut lead, sent[0].0, 0);
    assert_eq!(lead.poll(0), Ok(Action::Finished(ObjectId(1))));
}

#[test]
fn a_resumed_object_with_all_parts_is_only_closed() {
    let mut lead = Lead::new(config(1));
    // Out of order, twice, and parts that the object does not have: a journal may hold all that.
    lead.add(ObjectId(1), in_parts(3, true, vec![3, 1, 2, 2, 0, 4, 99]));
    assert!(matches!(sends(&mut lead, 0)[..], [(_, _, Work::Close(_))]));
}

#[test]
fn a_resumed_object_sends_exactly_what_is_missing() {
    let mut lead = Lead::new(config(1));
    lead.add(ObjectId(1), in_parts(5, true, vec![2, 4]));
    let parts: Vec<u32> = sends(&mut lead, 0).into_iter().map(|(_, _, work)| part_of(&work)).collect();
    assert_eq!(parts, [1, 3, 5]);
}

fn part_of(work: &Work) -> u32 {
    match work {
        Work::Part { part, .. } => *part,
        other => panic!("{other:?} is not a part"),
    }
}

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
fn one_refused_object_does_not_hold_up_the_others() {
    let mut config = config(2);
    config.routes[0].window_requests = 1;
    config.routes[1].window_requests = 1;
    let mut lead = Lead::new(config);
    for id in 0..3 {
        lead.add(ObjectId(id), whole(10));
    }
    // Route 0 refuses one object while route 1 goes down.
    let sent = sends(&mut lead, 0);
    let on = |wanted: u16| sent.iter().find(|(_, route, _)| *route == RouteId(wanted)).unwrap();
    let refused = on(0).2.objects()[0];
    lead.failed(on(1).0, Fault::RouteDown, 0);
    lead.failed(on(0).0, Fault::Refused, 0);
    // The others go on over route 0; the refused one waits for route 1.
    let mut now_ms = 0;
    for _ in 0..2 {
        let sent = sends(&mut lead, now_ms);
        assert_eq!(sent.len(), 1, "the queue's head blocks the rest");
        assert_eq!(sent[0].1, RouteId(0));
        assert_ne!(sent[0].2.objects()[0], refused);
        all_done(&mut lead, sent[0].0, now_ms);
    }
    assert_eq!(idle(&mut lead, now_ms), Idle::Until(REST_MS_MIN));
    now_ms = REST_MS_MIN;
    let sent = sends(&mut lead, now_ms);
    assert!(matches!(&sent[..], [(_, RouteId(1), Work::Bundle(members))] if members[..] == [refused]));
}

#[test]
fn a_refused_part_takes_its_object_to_the_other_routes() {
    let mut config = config(2);
    config.routes.iter_mut().for_each(|route| route.window_requests = 1);
    let mut lead = Lead::new(config);
    lead.add(ObjectId(1), in_parts(6, true, vec![]));
    let sent = sends(&mut lead, 0);
    let refused = sent.iter().find(|(_, route, _)| *route == RouteId(0)).unwrap();
    lead.failed(refused.0, Fault::Refused, 0);
    let other = sent.iter().find(|(_, route, _)| *route == RouteId(1)).unwrap();
    all_done(&mut lead, other.0, 0);
    let mut parts = vec![part_of(&other.2)];
    for _ in 0..5 {
        let sent = sends(&mut lead, 0);
        assert!(matches!(sent[..], [(_, RouteId(1), _)]));
        parts.push(part_of(&sent[0].2));
        all_done(&mut lead, sent[0].0, 0);
    }
    parts.sort_unstable();
    assert_eq!(parts, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn an_upload_that_all_routes_refuse_is_aborted_all_the_same() {
    let mut lead = Lead::new(config(2));
    lead.add(ObjectId(1), in_parts(1, true, vec![]));
    for _ in 0..2 {
        let sent = sends(&mut lead, 0);
        lead.failed(sent[0].0, Fault::Refused, 0);
    }
    let aborts = sends(&mut lead, 0);
    assert!(matches!(aborts[..], [(_, _, Work::Abort(_))]));
    all_done(&mut lead, aborts[0].0, 0);
    assert_eq!(lead.poll(0), Ok(Action::Failed(ObjectId(1), Fault::Refused)));
}

#[test]
fn a_gateway_that_dies_with_many_parts_of_one_object_does_not_fail_it() {
    let mut config = config(1);
    config.routes[0].window_requests = 2 * LOSSES_MAX as usize;
    config.routes[0].window_bytes = u64::MAX;
    let mut lead = Lead::new(config);
    lead.add(ObjectId(1), in_parts(2 * LOSSES_MAX, true, vec![]));
    let lost = sends(&mut lead, 0);
    assert_eq!(lost.len(), 2 * LOSSES_MAX as usize);
    for (request, ..) in lost {
        lead.failed(request, Fault::Lost, 0);
    }
    assert_eq!(other_actions(&mut lead, 0), [Action::RouteDown(RouteId(0))]);
    let mut now_ms = 0;
    assert!(deliver_all(&mut lead, &mut now_ms).contains(&Action::Finished(ObjectId(1))));
}

#[test]
fn a_store_that_pauses_does_not_fail_an_object_with_many_parts_in_flight() {
    let mut config = config(1);
    config.routes[0].window_requests = 32;
    let mut lead = Lead::new(config);
    lead.add(ObjectId(1), in_parts(32, true, vec![]));
    for _ in 1..TRIES_MAX {
        for (request, ..) in sends(&mut lead, 0) {
            lead.failed(request, Fault::Unavailable, 0);
        }
    }
    assert!(deliver_all(&mut lead, &mut 0).contains(&Action::Finished(ObjectId(1))));
}

#[test]
fn a_part_that_never_gets_through_fails_its_object() {
    for (fault, tries) in [(Fault::Unavailable, TRIES_MAX), (Fault::Corrupt, TRIES_MAX), (Fault::Lost, LOSSES_MAX)] {
        let mut lead = Lead::new(config(1));
        lead.add(ObjectId(1), in_parts(1, true, vec![]));
        let mut now_ms = 0;
        for _ in 0..tries {
            now_ms += 10_000;
            let sent = sends(&mut lead, now_ms);
            assert_eq!(part_of(&sent[0].2), 1);
            lead.failed(sent[0].0, fault, now_ms);
        }
        now_ms += 10_000;
        let aborts = sends(&mut lead, now_ms);
        assert!(matches!(aborts[..], [(_, _, Work::Abort(_))]));
        all_done(&mut lead, aborts[0].0, now_ms);
        assert!(other_actions(&mut lead, now_ms).contains(&Action::Failed(ObjectId(1), fault)));
    }
}

#[test]
fn an_object_added_again_under_its_id_starts_clean() {
    let mut config = config(1);
    config.routes[0].window_requests = 3;
    let mut lead = Lead::new(config);
    lead.add(ObjectId(1), in_parts(6, true, vec![]));
    let sent = sends(&mut lead, 0);
    // One part waits to be sent again when another says that the object changed.
    lead.failed(sent[0].0, Fault::Unavailable, 0);
    lead.failed(sent[1].0, Fault::Changed, 0);
    lead.failed(sent[2].0, Fault::Changed, 0);
    let aborts = sends(&mut lead, 0);
    assert!(matches!(aborts[..], [(_, _, Work::Abort(_))]));
    all_done(&mut lead, aborts[0].0, 0);
    assert_eq!(lead.poll(0), Ok(Action::Restart(ObjectId(1))));
    lead.add(ObjectId(1), in_parts(2, false, vec![]));
    let sent = sends(&mut lead, 0);
    assert!(matches!(sent[..], [(_, _, Work::Open(_))]), "{sent:?}");
    all_done(&mut lead, sent[0].0, 0);
    let parts: Vec<u32> = sends(&mut lead, 0).iter().map(|(_, _, work)| part_of(work)).collect();
    assert_eq!(parts, [1, 2]);
}

#[test]
fn an_abort_outlives_an_outage_and_gives_up_on_answers_only() {
    let mut lead = Lead::new(config(1));
    lead.add(ObjectId(1), in_parts(1, true, vec![]));
    let sent = sends(&mut lead, 0);
    lead.failed(sent[0].0, Fault::Permanent, 0);
    let mut now_ms = 0;
    for _ in 0..2 * ABORT_TRIES_MAX {
        let aborts = sends(&mut lead, now_ms);
        assert!(matches!(aborts[..], [(_, _, Work::Abort(_))]));
        lead.failed(aborts[0].0, Fault::RouteDown, now_ms);
        now_ms += 8_000;
    }
    for _ in 0..ABORT_TRIES_MAX {
        let aborts = sends(&mut lead, now_ms);
        lead.failed(aborts[0].0, Fault::Refused, now_ms);
    }
    assert!(other_actions(&mut lead, now_ms).contains(&Action::Failed(ObjectId(1), Fault::Permanent)));
    assert_eq!(lead.poll(now_ms), Err(Idle::Empty));
}

#[test]
fn one_route_that_stays_down_stalls_the_job() {
    let mut lead = Lead::new(config(1));
    lead.add(ObjectId(1), whole(1));
    let mut now_ms = 0;
    loop {
        for (request, ..) in sends(&mut lead, now_ms) {
            lead.failed(request, Fault::RouteDown, now_ms);
        }
        match idle(&mut lead, now_ms) {
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

#[test]
fn a_job_stalls_too_when_the_only_route_up_is_of_no_use() {
    let mut config = config(2);
    config.routes[1].usd_per_gb = 1.0;
    config.ceiling_usd_per_gb = Some(0.5);
    let mut lead = Lead::new(config);
    lead.add(ObjectId(1), whole(MIB));
    let mut now_ms = 0;
    for _ in 0..1_000 {
        for (request, route, _) in sends(&mut lead, now_ms) {
            assert_eq!(route, RouteId(0), "over the ceiling");
            lead.failed(request, Fault::RouteDown, now_ms);
        }
        match idle(&mut lead, now_ms) {
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
    let mut lead = Lead::new(config(1));
    lead.add(ObjectId(1), in_parts(2, true, vec![]));
    let sent = sends(&mut lead, 0);
    lead.failed(sent[0].0, Fault::Permanent, 0);
    lead.failed(sent[1].0, Fault::Lost, 0);
    let aborts = sends(&mut lead, REST_MS_MIN);
    for _ in 0..ABORT_TRIES_MAX {
        let aborts = if aborts.is_empty() { sends(&mut lead, REST_MS_MIN) } else { aborts.clone() };
        lead.failed(aborts[0].0, Fault::Lost, REST_MS_MIN);
    }
    // An hour passes in which the list yields nothing.
    let late_ms = 3_600_000;
    lead.add(ObjectId(2), whole(1));
    assert!(!sends(&mut lead, late_ms).is_empty(), "{:?}", idle(&mut lead, late_ms));
}

#[test]
fn a_route_whose_store_refuses_is_up() {
    let mut lead = Lead::new(config(1));
    lead.add(ObjectId(1), whole(1));
    lead.add(ObjectId(2), whole(1));
    for (request, ..) in sends(&mut lead, 0) {
        lead.failed(request, Fault::Lost, 0);
    }
    let sent = sends(&mut lead, REST_MS_MIN);
    lead.failed(sent[0].0, Fault::Unavailable, REST_MS_MIN);
    assert_eq!(sends(&mut lead, REST_MS_MIN).len(), 2, "still one at a time");
}

#[test]
fn the_rate_limit_paces_and_always_names_a_later_time() {
    let mut config = config(1);
    config.rate_limit_bytes_per_s = Some(3 * MIB);
    let mut lead = Lead::new(config);
    for id in 0..15 {
        lead.add(ObjectId(id), whole(MIB));
    }
    let mut now_ms = 0;
    loop {
        for (request, ..) in sends(&mut lead, now_ms) {
            all_done(&mut lead, request, now_ms);
        }
        match idle(&mut lead, now_ms) {
            Idle::Until(later) if later > now_ms => now_ms = later,
            other => {
                assert_eq!(other, Idle::Empty);
                break;
            }
        }
    }
    assert!((4_600..=4_700).contains(&now_ms), "14 MiB more at 3 MiB/s took {now_ms} ms");
}

#[test]
fn the_rate_limit_is_kept_by_one_who_always_wakes_late() {
    let mut config = config(1);
    config.rate_limit_bytes_per_s = Some(10 * MIB);
    let mut lead = Lead::new(config);
    for id in 0..1000 {
        lead.add(ObjectId(id), whole(MIB / 10));
    }
    let (mut now_ms, mut sent_bytes) = (0, 0);
    while now_ms < 5_000 {
        for (request, _, work) in sends(&mut lead, now_ms) {
            sent_bytes += work.members().len() as u64 * (MIB / 10);
            all_done(&mut lead, request, now_ms);
        }
        let Idle::Until(later) = idle(&mut lead, now_ms) else { break };
        now_ms = later + 7;
    }
    let kept = sent_bytes as f64 / (10 * MIB) as f64 / (now_ms as f64 / 1000.0);
    assert!((0.95..=1.02).contains(&kept), "{kept:.3} of the rate limit");
}

#[test]
fn server_side_copies_pass_the_rate_limit_and_the_ceiling() {
    let mut config = config(1);
    config.rate_limit_bytes_per_s = Some(1);
    config.ceiling_usd_per_gb = Some(0.0);
    let mut lead = Lead::new(config);
    lead.add(ObjectId(1), whole(MIB));
    lead.add(ObjectId(2), NewObject { travels: false, ..whole(1 << 40) });
    let sent = sends(&mut lead, 0);
    assert!(matches!(&sent[..], [(_, _, Work::Bundle(members))] if members[..] == [ObjectId(2)]));
    assert_eq!(lead.shares().spent_usd(), 0.0);
}

#[test]
fn a_loss_does_not_use_up_a_ceiling_with_room() {
    let mut config = config(1);
    config.routes[0].usd_per_gb = 0.02;
    config.ceiling_usd_per_gb = Some(0.023);
    let mut lead = Lead::new(config);
    for id in 0..100 {
        lead.add(ObjectId(id), whole(MIB));
    }
    let sent = sends(&mut lead, 0);
    lead.failed(sent[0].0, Fault::Lost, 0);
    let mut now_ms = 0;
    for (request, ..) in &sent[1..] {
        all_done(&mut lead, *request, 0);
    }
    let actions = deliver_all(&mut lead, &mut now_ms);
    assert_eq!(actions.iter().filter(|action| matches!(action, Action::Finished(_))).count(), 100);
    assert!(lead.shares().spent_usd() <= 0.023 * (100 * MIB) as f64 / 1e9);
}

#[test]
fn a_dead_first_hop_costs_nothing_however_long_it_is_dead() {
    let mut config = config(1);
    config.routes[0].usd_per_gb = 0.02;
    config.ceiling_usd_per_gb = Some(0.02);
    let mut lead = Lead::new(config);
    lead.add(ObjectId(1), in_parts(3, true, vec![]));
    let mut now_ms = 0;
    for _ in 0..5 {
        let sent = sends(&mut lead, now_ms);
        assert!(!sent.is_empty());
        for (request, ..) in sent {
            lead.unsent(request);
            lead.unsent(request);
            lead.failed(request, Fault::RouteDown, now_ms);
            lead.unsent(request);
        }
        assert_eq!(lead.shares().spent_usd(), 0.0);
        now_ms += REST_MS_MAX;
    }
    assert!(deliver_all(&mut lead, &mut now_ms).contains(&Action::Finished(ObjectId(1))));
    assert!((lead.shares().spent_usd() - 0.02 * (3 * MIB) as f64 / 1e9).abs() < 1e-12);
}

#[test]
fn a_hop_that_dies_further_down_is_paid_for() {
    let mut config = config(1);
    config.ceiling_usd_per_gb = Some(0.01);
    let mut lead = Lead::new(config);
    lead.add(ObjectId(1), whole(MIB));
    let sent = sends(&mut lead, 0);
    lead.failed(sent[0].0, Fault::RouteDown, 0);
    assert!(lead.shares().spent_usd() > 0.0);
    assert_eq!(idle(&mut lead, REST_MS_MAX), Idle::Ceiling);
}

#[test]
fn earlier_runs_count_towards_the_ceiling() {
    let mut config = config(1);
    config.routes[0].usd_per_gb = 0.02;
    config.ceiling_usd_per_gb = Some(0.02);
    let mut lead = Lead::new(config);
    lead.carried_before(1_000_000_000, 0.03);
    lead.add(ObjectId(1), whole(MIB));
    assert_eq!(lead.poll(0), Err(Idle::Ceiling));
}

#[test]
fn draining_finishes_what_is_in_flight_and_begins_nothing() {
    let mut config = config(1);
    config.routes[0].window_requests = 3;
    let mut lead = Lead::new(config);
    lead.add(ObjectId(1), in_parts(1, true, vec![]));
    lead.add(ObjectId(2), in_parts(4, false, vec![]));
    lead.add(ObjectId(3), whole(1));
    let sent = sends(&mut lead, 0);
    assert_eq!(sent.len(), 3);
    lead.drain();
    assert!(!lead.wants_more());
    assert_eq!(idle(&mut lead, 0), Idle::Waiting);
    for (request, ..) in &sent {
        all_done(&mut lead, *request, 0);
    }
    let closes = sends(&mut lead, 0);
    assert!(matches!(closes[..], [(_, _, Work::Close(ObjectId(1)))]), "{closes:?}");
    all_done(&mut lead, closes[0].0, 0);
    assert_eq!(idle(&mut lead, 0), Idle::Empty);
}

#[test]
fn draining_does_not_wait_for_a_route_to_come_back() {
    let mut lead = Lead::new(config(1));
    lead.add(ObjectId(1), in_parts(1, true, vec![]));
    let sent = sends(&mut lead, 0);
    lead.failed(sent[0].0, Fault::Permanent, 0);
    let aborts = sends(&mut lead, 0);
    lead.drain();
    lead.failed(aborts[0].0, Fault::RouteDown, 0);
    assert_eq!(idle(&mut lead, 0), Idle::Empty);
}

#[test]
fn no_more_uploads_are_open_than_the_limit() {
    let mut config = config(1);
    config.routes[0].window_requests = 1_000;
    let mut lead = Lead::new(config);
    for id in 0..500 {
        lead.add(ObjectId(id), in_parts(1, false, vec![]));
    }
    let mut open = 0_usize;
    let mut finished = 0;
    let mut in_flight = VecDeque::new();
    while finished < 500 {
        match lead.poll(0) {
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
                all_done(&mut lead, in_flight.pop_front().unwrap(), 0);
            }
        }
    }
}

#[test]
fn a_poll_of_a_full_lead_does_not_look_at_every_object() {
    let mut config = config(2);
    config.bundle_objects_max = OBJECTS_MAX;
    config.bundle_bytes_max = u64::MAX;
    let mut lead = Lead::new(config);
    let mut id = 0;
    while lead.wants_more() {
        lead.add(ObjectId(id), whole(1));
        id += 1;
    }
    assert_eq!(id as usize, OBJECTS_MAX);
    sends(&mut lead, 0);
    // 100,000 polls over 20,000 objects: seconds if each looked at a bundle, none if it looks at the windows only.
    for _ in 0..100_000 {
        assert_eq!(lead.poll(0), Err(Idle::Waiting));
    }
}

/// Answers every request with done until the lead idles for good; returns what else it did.
fn deliver_all(lead: &mut Lead, now_ms: &mut u64) -> Vec<Action> {
    let mut others = Vec::new();
    for _ in 0..1_000_000 {
        match lead.poll(*now_ms) {
            Ok(Action::Send { request, .. }) => all_done(lead, request, *now_ms),
            Ok(other) => others.push(other),
            Err(Idle::Until(later)) => {
                assert!(later > *now_ms, "a busy loop");
                *now_ms = later;
            }
            Err(Idle::Empty) => return others,
            Err(other) => panic!("{other:?} although all is answered"),
        }
    }
    panic!("no end");
}

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
        (1u64..50, any::<bool>(), prop::collection::vec(1u32..20, 0..5))
            .prop_map(|(part_bytes, opened, done)| Layout::Parts { part_bytes, opened, done }),
    ];
    (0u64..200, layout, any::<bool>(), prop::bool::weighted(0.8))
        .prop_map(|(bytes, layout, may_restart, travels)| NewObject { bytes, layout, may_restart, travels })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever the replies, every object ends exactly once, nothing spins, and the ceiling holds.
    #[test]
    fn every_object_ends_once_whatever_happens(
        objects in prop::collection::vec(object(), 1..30),
        fates in prop::collection::vec((fate(), 0usize..8, any::<bool>()), 1..80),
        prices in prop::collection::vec(0.0..0.2f64, 1..4),
        ceiling in prop::option::of(0.05..0.3f64),
        rate in prop::option::of(100u64..10_000),
        window_requests in 1usize..6,
    ) {
        let mut config = config(0);
        config.routes = prices.iter().enumerate().map(|(id, price)| RoutePlan {
            window_requests, window_bytes: 100, ..route(id as u16, *price)
        }).collect();
        config.ceiling_usd_per_gb = ceiling;
        config.rate_limit_bytes_per_s = rate;
        let mut lead = Lead::new(config);
        let mut held: HashMap<ObjectId, NewObject> = HashMap::new();
        for (id, object) in objects.into_iter().enumerate() {
            lead.add(ObjectId(id as u64), object.clone());
            held.insert(ObjectId(id as u64), object);
        }
        let mut flying: Vec<RequestId> = Vec::new();
        let mut fates = fates.into_iter().peekable();
        let mut now_ms = 0;
        let end = loop {
            prop_assert!(flying.len() == lead.flights());
            match lead.poll(now_ms) {
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
                    lead.add(id, again.clone());
                    held.insert(id, again);
                    continue;
                }
                Ok(Action::RouteDown(_) | Action::RouteUp(_)) => continue,
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
            now_ms += 10;
            match fate {
                Fate::Done if partly => {
                    lead.done(request, lead.work(request).unwrap().objects()[0]);
                    lead.answered(request, None, now_ms);
                }
                Fate::Done => all_done(&mut lead, request, now_ms),
                Fate::Fault(fault) => lead.failed(request, fault, now_ms),
            }
        };
        prop_assert_eq!(end == Idle::Empty, held.is_empty(), "{:?} with {} left", end, held.len());
        prop_assert!(end == Idle::Empty || (end == Idle::Ceiling && ceiling.is_some()), "{:?}", end);
        prop_assert!(lead.ready.lanes.iter().all(|lane| lane.whole.is_empty()) || end != Idle::Empty);
    }
}
