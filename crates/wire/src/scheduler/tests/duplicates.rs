//! Routes that stand still or are slow, and the duplicates that others carry for them.

use super::*;
use crate::pace::PATIENCE_MS_MIN;

/// Two routes with room for four requests each.
fn with_duplicates(fraction_max: f64) -> Scheduler {
    let mut config = config(2);
    config.duplicate_fraction_max = fraction_max;
    for route in &mut config.routes {
        route.window_requests = 4;
        route.window_bytes_min = 4 * MIB;
        route.window_bytes_start = 4 * MIB;
        route.window_bytes = 4 * MIB;
    }
    Scheduler::new(config)
}

/// Answers the requests of route 0, one each ms, until only those of route 1 are left. Returns these, and the time.
fn let_route_1_stand_still(scheduler: &mut Scheduler) -> (Vec<(RequestId, RouteId, Work)>, u64) {
    let (mut stalled, mut waiting, mut now_ms) = (Vec::new(), VecDeque::new(), 0);
    loop {
        for sent in sends(scheduler, now_ms) {
            if sent.1 == RouteId(1) { stalled.push(sent) } else { waiting.push_back(sent) }
        }
        let Some((request, ..)) = waiting.pop_front() else { return (stalled, now_ms) };
        now_ms += 1;
        all_done(scheduler, request, now_ms);
    }
}

fn stalled_parts(scheduler: &mut Scheduler, count: u32) -> (Vec<(RequestId, RouteId, Work)>, u64) {
    scheduler.add(ObjectId(1), in_parts(count, true, vec![]));
    let (stalled, now_ms) = let_route_1_stand_still(scheduler);
    assert_eq!(stalled.len(), 4, "a silent route gets no more");
    (stalled, now_ms)
}

#[test]
fn what_a_silent_route_holds_goes_over_the_other_one_and_the_first_answer_counts() {
    let mut scheduler = with_duplicates(1.0);
    let (stalled, now_ms) = stalled_parts(&mut scheduler, 20);
    assert!(now_ms < PATIENCE_MS_MIN, "the test is still patient");
    let Idle::Until(silent_ms) = idle(&mut scheduler, now_ms) else { panic!("nothing wakes it") };
    assert_eq!(silent_ms, PATIENCE_MS_MIN);
    let again = sends(&mut scheduler, silent_ms);
    let parts = |sent: &[(RequestId, RouteId, Work)]| sent.iter().map(|(.., work)| part_of(work)).collect::<Vec<_>>();
    assert_eq!(parts(&again), parts(&stalled), "each once, oldest first");
    assert!(again.iter().all(|(_, route, _)| *route == RouteId(0)));
    assert_eq!(scheduler.shares().duplicate_bytes(), 4 * MIB);
    for (request, ..) in &again {
        all_done(&mut scheduler, *request, silent_ms + 100);
    }
    let (close, ..) = sends(&mut scheduler, silent_ms + 100)[0];
    all_done(&mut scheduler, close, silent_ms + 200);
    assert_eq!(scheduler.poll(silent_ms + 200), Ok(Action::Finished(ObjectId(1))));
    assert_eq!((scheduler.awaited_flights(), scheduler.flights()), (0, 4));
    assert_eq!(scheduler.poll(silent_ms + 200), Err(Idle::Empty), "nobody waits for the silent route");
    for (request, ..) in &stalled {
        assert!(!scheduler.awaits(*request, ObjectId(1)));
        all_done(&mut scheduler, *request, silent_ms + 9_000);
    }
    assert_eq!((scheduler.flights(), scheduler.retries()), (0, 0));
    assert_eq!(scheduler.poll(silent_ms + 9_000), Err(Idle::Empty), "late answers change nothing");
}

#[test]
fn a_silence_of_all_routes_is_known_until_one_answers() {
    let mut scheduler = with_duplicates(0.0);
    let (stalled, now_ms) = stalled_parts(&mut scheduler, 20);
    assert_eq!(scheduler.shares().silence_ms(now_ms), None, "it is patient");
    assert_eq!(scheduler.shares().silence_ms(60_000), Some(60_000));
    all_done(&mut scheduler, stalled[0].0, 60_000);
    assert_eq!(scheduler.shares().silence_ms(60_001), None);
    assert_eq!(Scheduler::new(config(2)).shares().silence_ms(60_000), None, "nothing is awaited");
}

#[test]
fn a_failure_counts_only_if_no_other_request_may_still_do_the_work() {
    let mut scheduler = with_duplicates(1.0);
    let (stalled, _) = stalled_parts(&mut scheduler, 20);
    let again = sends(&mut scheduler, PATIENCE_MS_MIN);
    // The duplicate of the first part fails for good, the original of the second is lost.
    scheduler.failed(again[0].0, Fault::Permanent, 2_100);
    scheduler.failed(stalled[1].0, Fault::Lost, 2_100);
    assert!(scheduler.awaits(stalled[0].0, ObjectId(1)) && scheduler.awaits(again[1].0, ObjectId(1)));
    for request in [stalled[0].0, again[1].0, again[2].0, again[3].0] {
        all_done(&mut scheduler, request, 2_200);
    }
    let (close, _, work) = sends(&mut scheduler, 2_200).remove(0);
    assert_eq!((work, scheduler.retries()), (Work::Close(ObjectId(1)), 0));
    all_done(&mut scheduler, close, 2_300);
    assert_eq!(scheduler.poll(2_300), Ok(Action::Finished(ObjectId(1))));
}

#[test]
fn a_duplicate_that_fails_is_sent_again_but_not_for_ever() {
    let mut scheduler = with_duplicates(1.0);
    stalled_parts(&mut scheduler, 20);
    let mut now_ms = 2_000;
    let mut sent = Vec::new();
    for _ in 0..5 {
        let again = sends(&mut scheduler, now_ms);
        again.iter().for_each(|(request, ..)| scheduler.failed(*request, Fault::Unavailable, now_ms + 10));
        sent.push(again.len());
        now_ms += 1_000;
    }
    assert_eq!(sent, [4, 4, 4, 0, 0]);
    assert_eq!(scheduler.shares().duplicate_bytes(), 12 * MIB);
}

#[test]
fn an_object_that_fails_waits_for_both_requests_before_its_upload_is_aborted() {
    let mut scheduler = with_duplicates(1.0);
    let (stalled, _) = stalled_parts(&mut scheduler, 20);
    let again = sends(&mut scheduler, PATIENCE_MS_MIN);
    all_done(&mut scheduler, again[0].0, 2_100);
    for request in [again[1].0, stalled[1].0, again[2].0, stalled[2].0, again[3].0, stalled[3].0] {
        scheduler.failed(request, Fault::Permanent, 2_100);
    }
    assert!(sends(&mut scheduler, 2_200).is_empty(), "the first part may still be on its way to the upload");
    scheduler.failed(stalled[0].0, Fault::Lost, 15_000);
    let sent = sends(&mut scheduler, 15_000);
    assert!(matches!(&sent[..], [(_, _, Work::Abort(ObjectId(1)))]));
    all_done(&mut scheduler, sent[0].0, 15_100);
    assert_eq!(other_actions(&mut scheduler, 15_100), [Action::Failed(ObjectId(1), Fault::Permanent)]);
}

#[test]
fn each_object_of_a_bundle_takes_the_first_answer() {
    let mut scheduler = with_duplicates(1.0);
    (0..200).for_each(|id| scheduler.add(ObjectId(id), whole(1_000)));
    let (stalled, now_ms) = let_route_1_stand_still(&mut scheduler);
    other_actions(&mut scheduler, now_ms);
    let silent_ms = PATIENCE_MS_MIN.max(now_ms + 1);
    let again = sends(&mut scheduler, silent_ms);
    assert_eq!(again.len(), stalled.len());
    let (first, members) = (again[0].0, again[0].2.objects());
    assert_eq!(members, stalled[0].2.objects());
    let (lucky, unlucky) = members.split_at(members.len() / 2);
    lucky.iter().for_each(|object| scheduler.done(first, *object));
    unlucky.iter().for_each(|object| scheduler.fault(first, *object, Fault::Corrupt));
    scheduler.answered(first, None, silent_ms);
    let finished: Vec<Action> = lucky.iter().map(|object| Action::Finished(*object)).collect();
    assert_eq!(other_actions(&mut scheduler, silent_ms), finished);
    all_done(&mut scheduler, stalled[0].0, silent_ms + 1);
    let finished: Vec<Action> = unlucky.iter().map(|object| Action::Finished(*object)).collect();
    assert_eq!(other_actions(&mut scheduler, silent_ms + 1), finished, "each object once");
}

#[test]
fn duplicates_keep_within_their_limit_and_the_ceiling() {
    for (fraction_max, parts, expected) in [(0.0, 20, 0), (0.01, 20, 4), (0.01, 600, 6), (1.0, 20, 4)] {
        let mut scheduler = with_duplicates(fraction_max);
        scheduler.add(ObjectId(1), in_parts(parts, true, vec![]));
        let (mut now_ms, mut sent) = (0, 0);
        // Route 1 answers nothing, and has a larger window each time it is up again.
        for _ in 0..3 {
            let (stalled, then_ms) = let_route_1_stand_still(&mut scheduler);
            now_ms = now_ms.max(then_ms) + 2 * PATIENCE_MS_MIN;
            let again = sends(&mut scheduler, now_ms);
            sent += again.len();
            again.iter().for_each(|(request, ..)| all_done(&mut scheduler, *request, now_ms));
            stalled.iter().for_each(|(request, ..)| scheduler.failed(*request, Fault::Lost, now_ms));
            now_ms += 10_000;
        }
        assert!(sent <= expected, "{sent} duplicates of {parts} parts at {fraction_max}");
        assert_eq!(sent == 0, expected == 0, "{sent} duplicates of {parts} parts at {fraction_max}");
    }
}

#[test]
fn no_duplicate_breaks_a_ceiling() {
    let mut config = config(2);
    config.duplicate_fraction_max = 1.0;
    config.routes.iter_mut().for_each(|route| route.usd_per_gb = 0.1);
    config.ceiling_usd_per_gb = Some(0.1);
    let mut scheduler = Scheduler::new(config);
    scheduler.add(ObjectId(1), in_parts(20, true, vec![]));
    let_route_1_stand_still(&mut scheduler);
    assert!(sends(&mut scheduler, 60_000).is_empty(), "every byte sent twice would cost more than the ceiling");
}

#[test]
fn the_last_requests_do_not_wait_for_the_slowest_route() {
    let mut scheduler = with_duplicates(1.0);
    scheduler.add(ObjectId(1), in_parts(40, true, vec![]));
    // Route 0 takes 50 ms for a part, route 1 takes 1,500 ms.
    let (mut now_ms, mut busy) = (0, [VecDeque::new(), VecDeque::new()]);
    loop {
        for (request, route, _) in sends(&mut scheduler, now_ms) {
            busy[usize::from(route.0)].push_back(request);
        }
        if scheduler.awaited_flights() == 0 {
            break;
        }
        now_ms += 50;
        if let Some(request) = busy[0].pop_front() {
            all_done(&mut scheduler, request, now_ms);
        }
        if now_ms % 1_500 == 0
            && let Some(request) = busy[1].pop_front()
        {
            all_done(&mut scheduler, request, now_ms);
        }
    }
    assert!(now_ms < 40 * 50 + 1_000, "the job took {now_ms} ms");
    let duplicates = scheduler.shares().duplicate_bytes() / MIB;
    assert!((1..=4).contains(&duplicates), "{duplicates}");
}
