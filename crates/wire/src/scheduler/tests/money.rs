//! The rate limit and the cost ceiling.

use super::*;

#[test]
fn the_rate_limit_paces_and_always_names_a_later_time() {
    let mut config = config(1);
    config.rate_limit_bytes_per_s = Some(3 * MIB);
    let mut scheduler = Scheduler::new(config);
    for id in 0..15 {
        scheduler.add(ObjectId(id), whole(MIB));
    }
    let mut now_ms = 0;
    loop {
        for (request, ..) in sends(&mut scheduler, now_ms) {
            all_done(&mut scheduler, request, now_ms);
        }
        match idle(&mut scheduler, now_ms) {
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
    let mut scheduler = Scheduler::new(config);
    for id in 0..1000 {
        scheduler.add(ObjectId(id), whole(MIB / 10));
    }
    let (mut now_ms, mut sent_bytes) = (0, 0);
    while now_ms < 5_000 {
        for (request, _, work) in sends(&mut scheduler, now_ms) {
            sent_bytes += work.members().len() as u64 * (MIB / 10);
            all_done(&mut scheduler, request, now_ms);
        }
        let Idle::Until(later) = idle(&mut scheduler, now_ms) else { break };
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
    let mut scheduler = Scheduler::new(config);
    scheduler.add(ObjectId(1), whole(MIB));
    scheduler.add(ObjectId(2), NewObject { travels: false, ..whole(1 << 40) });
    let sent = sends(&mut scheduler, 0);
    assert!(matches!(&sent[..], [(_, _, Work::Bundle(members))] if members[..] == [ObjectId(2)]));
    assert_eq!(scheduler.shares().spent_usd(), 0.0);
}

#[test]
fn a_loss_does_not_use_up_a_ceiling_with_room() {
    let mut config = config(1);
    config.routes[0].usd_per_gb = 0.02;
    config.ceiling_usd_per_gb = Some(0.023);
    let mut scheduler = Scheduler::new(config);
    for id in 0..100 {
        scheduler.add(ObjectId(id), whole(MIB));
    }
    let sent = sends(&mut scheduler, 0);
    scheduler.failed(sent[0].0, Fault::Lost, 0);
    let mut now_ms = 0;
    for (request, ..) in &sent[1..] {
        all_done(&mut scheduler, *request, 0);
    }
    let actions = deliver_all(&mut scheduler, &mut now_ms);
    assert_eq!(actions.iter().filter(|action| matches!(action, Action::Finished(_))).count(), 100);
    assert!(scheduler.shares().spent_usd() <= 0.023 * (100 * MIB) as f64 / 1e9);
}

#[test]
fn a_dead_first_hop_costs_nothing_however_long_it_is_dead() {
    let mut config = config(1);
    config.routes[0].usd_per_gb = 0.02;
    config.ceiling_usd_per_gb = Some(0.02);
    let mut scheduler = Scheduler::new(config);
    scheduler.add(ObjectId(1), in_parts(3, true, vec![]));
    let mut now_ms = 0;
    for _ in 0..5 {
        let sent = sends(&mut scheduler, now_ms);
        assert!(!sent.is_empty());
        for (request, ..) in sent {
            scheduler.unsent(request);
            scheduler.unsent(request);
            scheduler.failed(request, Fault::RouteDown, now_ms);
            scheduler.unsent(request);
        }
        assert_eq!(scheduler.shares().spent_usd(), 0.0);
        now_ms += REST_MS_MAX;
    }
    assert!(deliver_all(&mut scheduler, &mut now_ms).contains(&Action::Finished(ObjectId(1))));
    assert!((scheduler.shares().spent_usd() - 0.02 * (3 * MIB) as f64 / 1e9).abs() < 1e-12);
}

#[test]
fn a_hop_that_dies_further_down_is_paid_for() {
    let mut config = config(1);
    config.ceiling_usd_per_gb = Some(0.01);
    let mut scheduler = Scheduler::new(config);
    scheduler.add(ObjectId(1), whole(MIB));
    let sent = sends(&mut scheduler, 0);
    scheduler.failed(sent[0].0, Fault::RouteDown, 0);
    assert!(scheduler.shares().spent_usd() > 0.0);
    assert_eq!(idle(&mut scheduler, REST_MS_MAX), Idle::Ceiling);
}

#[test]
fn earlier_runs_count_towards_the_ceiling() {
    let mut config = config(1);
    config.routes[0].usd_per_gb = 0.02;
    config.ceiling_usd_per_gb = Some(0.02);
    let mut scheduler = Scheduler::new(config);
    scheduler.carried_before(Before { carried_bytes: 1_000_000_000, sent_bytes: 1_500_000_000, spent_usd: 0.03 });
    scheduler.add(ObjectId(1), whole(MIB));
    assert_eq!(scheduler.poll(0), Err(Idle::Ceiling));
}

#[test]
fn no_byte_is_sent_beyond_the_ceiling_in_bytes_however_many_are_lost() {
    let mut config = config(1);
    config.ceiling_bytes = Some(5 * MIB);
    let mut scheduler = Scheduler::new(config);
    scheduler.add(ObjectId(1), in_parts(3, true, vec![]));
    let (mut now_ms, mut sent_parts) = (0, 0);
    for _ in 0..100 {
        for (request, ..) in sends(&mut scheduler, now_ms) {
            sent_parts += 1;
            scheduler.failed(request, Fault::Lost, now_ms);
        }
        now_ms += REST_MS_MAX;
    }
    assert_eq!(idle(&mut scheduler, now_ms), Idle::Ceiling);
    assert_eq!((sent_parts, scheduler.shares().sent_bytes()), (5, 5 * MIB));
    assert!(scheduler.shares().lacks_bytes());
}

#[test]
fn earlier_runs_count_towards_the_ceiling_in_bytes() {
    let mut config = config(1);
    config.ceiling_bytes = Some(10 * MIB);
    let mut scheduler = Scheduler::new(config);
    scheduler.carried_before(Before { carried_bytes: MIB, sent_bytes: 8 * MIB, spent_usd: 0.0 });
    scheduler.add(ObjectId(1), in_parts(4, true, vec![1]));
    assert_eq!(sends(&mut scheduler, 0).len(), 2, "8 were sent before, of them 7 for nothing");
}

#[test]
fn a_part_that_is_only_checked_carries_and_costs_nothing() {
    let mut config = config(1);
    config.ceiling_bytes = Some(2 * MIB);
    let mut scheduler = Scheduler::new(config);
    let layout = Layout::Parts { part_bytes: MIB, opened: true, done: vec![], to_check: vec![1, 2] };
    scheduler.add(ObjectId(1), NewObject { layout, ..in_parts(3, true, vec![]) });
    let sent = sends(&mut scheduler, 0);
    assert_eq!(sent.len(), 3);
    assert_eq!(scheduler.shares().sent_bytes(), MIB, "the third part");
    scheduler.must_carry(ObjectId(1), 1);
    scheduler.failed(sent[0].0, Fault::Unavailable, 0);
    all_done(&mut scheduler, sent[1].0, 0);
    all_done(&mut scheduler, sent[2].0, 0);
    let carried = |scheduler: &Scheduler| scheduler.shares().activity().map(|route| route.done_bytes).sum::<u64>();
    assert_eq!(carried(&scheduler), MIB);
    assert!(deliver_all(&mut scheduler, &mut 0).contains(&Action::Finished(ObjectId(1))));
    assert_eq!((carried(&scheduler), scheduler.shares().sent_bytes()), (2 * MIB, 2 * MIB));
}
