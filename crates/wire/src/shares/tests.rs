use super::*;
use proptest::prelude::*;

fn plan(id: u16, share: f64, usd_per_gb: f64) -> RoutePlan {
    RoutePlan {
        id: RouteId(id),
        share,
        usd_per_gb,
        window_bytes_min: 1 << 30,
        window_bytes_start: 1 << 30,
        window_bytes: 1 << 30,
        window_requests: 1_000,
    }
}

fn carry(shares: &mut Shares, bytes: u64, now_ms: u64) -> Result<RouteId, Blocked> {
    let route = shares.pick(bytes, &[], now_ms)?;
    shares.sent(route, bytes, now_ms);
    shares.done(route, bytes);
    Ok(route)
}

#[test]
fn a_route_back_from_a_long_outage_gets_its_share_and_no_more() {
    let mut shares = Shares::new(&[plan(0, 1.0, 0.0), plan(1, 3.0, 0.0)], None);
    shares.rest(RouteId(1), 0);
    // Until the failed route may be retried, all bytes take the other one.
    for _ in 0..1_000 {
        assert_eq!(carry(&mut shares, 100, 0), Ok(RouteId(0)));
    }
    assert_eq!(carry(&mut shares, 100, REST_MS_MIN), Ok(RouteId(1)), "furthest behind");
    let back = (0..400).filter(|_| carry(&mut shares, 100, REST_MS_MIN) == Ok(RouteId(1))).count();
    assert!((295..=305).contains(&back), "{back} of 400 over a route with a share of 3 in 4");
}

#[test]
fn rests_double_up_to_the_limit_and_one_failure_counts_once() {
    let mut shares = Shares::new(&[plan(0, 1.0, 0.0)], None);
    assert!(shares.rest(RouteId(0), 0));
    assert!(!shares.rest(RouteId(0), 1), "the same failure");
    let (mut now_ms, mut rests) = (0, Vec::new());
    for _ in 0..7 {
        let retry_ms = shares.next_retry_ms(&[], now_ms).unwrap();
        assert_eq!(shares.pick(1, &[], retry_ms - 1), Err(Blocked::Down));
        rests.push(retry_ms - now_ms);
        now_ms = retry_ms;
        assert!(!shares.rest(RouteId(0), now_ms));
    }
    assert_eq!(rests, [500, 1_000, 2_000, 4_000, 8_000, REST_MS_MAX, REST_MS_MAX]);
}

#[test]
fn a_resting_route_is_tried_with_one_request() {
    let mut shares = Shares::new(&[plan(0, 1.0, 0.0)], None);
    shares.rest(RouteId(0), 0);
    shares.sent(RouteId(0), 1, 0);
    assert_eq!(shares.pick(1, &[], REST_MS_MIN), Err(Blocked::Full));
    assert!(shares.done(RouteId(0), 1), "up again");
    assert_eq!(shares.pick(1, &[], REST_MS_MIN), Ok(RouteId(0)));
}

#[test]
fn lost_bytes_are_paid_from_the_rest_of_the_whole_jobs_ceiling() {
    let mut strict = Shares::new(&[plan(0, 1.0, 0.02)], Some(0.02));
    let mut roomy = Shares::new(&[plan(0, 1.0, 0.02)], Some(0.02)).within(Some(cost_usd(1_200, 0.02)));
    for shares in [&mut strict, &mut roomy] {
        shares.listed(1_000);
        shares.sent(RouteId(0), 200, 0);
        shares.undone(RouteId(0), 200);
    }
    assert_eq!(strict.pick(200, &[], 0), Err(Blocked::Ceiling), "the mean price of all that is sent");
    for _ in 0..5 {
        assert!(carry(&mut roomy, 200, 0).is_ok());
        roomy.settled(200);
    }
    roomy.listed(1);
    assert_eq!(roomy.pick(1, &[], 0), Err(Blocked::Ceiling), "all is spent");
}

#[test]
fn losses_of_earlier_runs_do_not_end_a_job_that_can_pay_for_them() {
    let mut shares = Shares::new(&[plan(0, 1.0, 0.02)], Some(0.02)).within(Some(1e-3));
    shares.carried_before(Before { carried_bytes: 1_000, sent_bytes: 1_100, spent_usd: cost_usd(1_100, 0.02) });
    shares.listed(1_000);
    assert!(carry(&mut shares, 1_000, 0).is_ok());
}

#[test]
fn a_body_longer_than_the_window_goes_alone_and_control_passes_beside_it() {
    let mut shares = Shares::new(&[RoutePlan { window_bytes: 10, ..plan(0, 1.0, 0.0) }], None);
    shares.sent(RouteId(0), 100, 0);
    assert_eq!(shares.pick(1, &[], 0), Err(Blocked::Full));
    assert_eq!(shares.pick(0, &[], 0), Ok(RouteId(0)));
}

#[test]
fn a_route_without_a_share_is_the_last_resort() {
    let mut shares = Shares::new(&[plan(0, 0.0, 0.0), plan(1, 1.0, 0.0)], None);
    assert!((0..10).all(|_| carry(&mut shares, 5, 0) == Ok(RouteId(1))));
    assert_eq!(shares.pick(5, &[RouteId(1)], 0), Ok(RouteId(0)));
}

/// A job whose requests end in all ways, with its own account of what may have been sent.
struct PricedJob {
    shares: Shares,
    prices: Vec<f64>,
    flying: Vec<(RouteId, u64)>,
    /// Listed bytes that are not in flight and not done.
    owed: Vec<u64>,
    listed: u64,
    now_ms: u64,
    /// Cost and bytes of the requests that have left and are no longer in flight.
    left_usd: f64,
    left_bytes: u64,
}

impl PricedJob {
    fn new(shares: Shares, prices: Vec<f64>) -> Self {
        let (flying, owed) = (Vec::new(), Vec::new());
        Self { shares, prices, flying, owed, listed: 0, now_ms: 0, left_usd: 0.0, left_bytes: 0 }
    }

    fn cost_usd(&self, route: RouteId, bytes: u64) -> f64 {
        cost_usd(bytes, self.prices[usize::from(route.0)])
    }

    fn charged_usd(&self) -> f64 {
        self.left_usd + self.flying.iter().map(|(route, bytes)| self.cost_usd(*route, *bytes)).sum::<f64>()
    }

    fn charged_bytes(&self) -> u64 {
        self.left_bytes + self.flying.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    fn step(&mut self, step: u8, bytes: u64, which: prop::sample::Index, losses: bool) {
        self.now_ms += 100;
        match step {
            0 => {
                self.shares.listed(bytes);
                self.listed += bytes;
                self.owed.push(bytes);
            }
            1 if losses && !self.flying.is_empty() => self.lose(which),
            2 if !self.flying.is_empty() => self.finish(which, 0),
            5 if !self.flying.is_empty() => self.finish(which, bytes),
            3 if !self.flying.is_empty() => {
                let (route, bytes) = self.flying.swap_remove(which.index(self.flying.len()));
                self.shares.unsent(route, bytes);
                self.undo(route, bytes);
            }
            _ if !self.owed.is_empty() => self.send(which),
            _ => {}
        }
    }

    fn lose(&mut self, which: prop::sample::Index) {
        let (route, bytes) = self.flying.swap_remove(which.index(self.flying.len()));
        self.left_usd += self.cost_usd(route, bytes);
        self.left_bytes += bytes;
        self.undo(route, bytes);
    }

    fn undo(&mut self, route: RouteId, bytes: u64) {
        self.shares.undone(route, bytes);
        self.shares.rest(route, self.now_ms);
        self.owed.push(bytes);
    }

    /// Ends a request of which compression saved up to `most_saved_bytes`.
    fn finish(&mut self, which: prop::sample::Index, most_saved_bytes: u64) {
        let (route, bytes) = self.flying.swap_remove(which.index(self.flying.len()));
        let saved_bytes = most_saved_bytes.min(bytes);
        self.left_usd += self.cost_usd(route, bytes - saved_bytes);
        self.left_bytes += bytes;
        if most_saved_bytes > 0 {
            self.shares.saved(route, saved_bytes, saved_bytes / 2);
        }
        self.shares.done(route, bytes);
        self.shares.settled(bytes);
    }

    fn send(&mut self, which: prop::sample::Index) {
        let bytes = self.owed[which.index(self.owed.len())];
        if let Ok(route) = self.shares.pick(bytes, &[], self.now_ms) {
            self.owed.swap_remove(which.index(self.owed.len()));
            self.shares.sent(route, bytes, self.now_ms);
            self.flying.push((route, bytes));
        }
    }

    /// Ends all requests, and returns whether all bytes that are still owed could be carried.
    fn can_finish(&mut self) -> bool {
        for (route, bytes) in std::mem::take(&mut self.flying) {
            self.shares.done(route, bytes);
            self.shares.settled(bytes);
        }
        let rested_ms = self.now_ms + 2 * REST_MS_MAX;
        std::mem::take(&mut self.owed).into_iter().all(|bytes| {
            let carried = carry(&mut self.shares, bytes, rested_ms).is_ok();
            self.shares.settled(bytes);
            carried
        })
    }
}

proptest! {
    /// While all routes have room, no route is ever more than about one chunk away from its share.
    #[test]
    fn shares_hold_within_a_chunk(
        wanted in prop::collection::vec(0.05..1.0f64, 1..6),
        chunks in prop::collection::vec(1u64..1_000, 1..300),
    ) {
        let plans: Vec<RoutePlan> = wanted.iter().enumerate().map(|(id, share)| plan(id as u16, *share, 0.0)).collect();
        let mut shares = Shares::new(&plans, None);
        for bytes in &chunks {
            prop_assert!(carry(&mut shares, *bytes, 0).is_ok());
        }
        let (total, wanted_total): (u64, f64) = (chunks.iter().sum(), wanted.iter().sum());
        let slack = 1_000.0 * wanted.len() as f64;
        for carried in shares.activity() {
            let ideal = total as f64 * wanted[usize::from(carried.route.0)] / wanted_total;
            prop_assert!((carried.done_bytes as f64 - ideal).abs() <= slack, "{:?}, not {}", carried, ideal);
        }
    }

    /// Whatever is lost, and however routes come and go, the job never costs more than ceiling × listed bytes, and
    /// bytes that were certainly not sent, or that compression saved, cost nothing. Without losses, a ceiling that
    /// the cheapest route respects never ends the job, however often bytes turn out not to have been sent.
    #[test]
    fn the_job_never_costs_more_than_its_ceiling(
        prices in prop::collection::vec(0.0..0.2f64, 1..5),
        ceiling in 0.0..0.2f64,
        total_usd in prop::option::of(0.0..2e-6f64),
        most_bytes in prop::option::of(0u64..30_000),
        steps in prop::collection::vec((0u8..6, 1u64..1_000, any::<prop::sample::Index>()), 1..300),
        losses in any::<bool>(),
    ) {
        let plans: Vec<RoutePlan> = prices.iter().enumerate().map(|(id, price)| plan(id as u16, 1.0, *price)).collect();
        let mut job = PricedJob::new(Shares::new(&plans, Some(ceiling)).within(total_usd).within_bytes(most_bytes), prices);
        let most_usd = |listed| total_usd.unwrap_or_else(|| cost_usd(listed, ceiling)) * (1.0 + 1e-6) + 1e-15;
        for (step, bytes, which) in steps {
            job.step(step, bytes, which, losses);
            prop_assert!((job.shares.spent_usd() - job.charged_usd()).abs() < 1e-12, "booked is what may have been sent");
            prop_assert!(job.shares.spent_usd() <= most_usd(job.listed));
            prop_assert_eq!(job.shares.sent_bytes(), job.charged_bytes());
            prop_assert!(most_bytes.is_none_or(|most_bytes| job.shares.sent_bytes() <= most_bytes));
        }
        let cheapest = job.prices.iter().copied().fold(f64::INFINITY, f64::min);
        if !losses && cheapest <= ceiling && total_usd.is_none() && most_bytes.is_none() {
            prop_assert!(job.can_finish());
            prop_assert!(job.shares.spent_usd() <= most_usd(job.listed));
        }
    }
}
