//! Reports of relays about their outgoing hops, on their way to the lead.
//!
//! Answers are sealed, so a relay cannot add anything to them. It sends its reports upstream in frames of their own, and
//! each gateway passes on those that it receives, until they reach the lead. A relay is not trusted: its report is shown
//! as its own statement and decides nothing. It counts only if it comes from the right side ([`HopReports::heard`]).
//! A report that is lost is replaced by the next one, because all times are sums since the start.

use super::reply::Peers;
use super::throttle::Throttle;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tradewind_contract::{LimitReason, RouteSpec};
use tradewind_wire::frame::{Frame, NAME_BYTES_MAX};

/// Pause between two batches of reports.
const REPORT_EVERY: Duration = Duration::from_millis(500);
/// Maximum number of reports in one frame. With the longest names they fill three quarters of it.
pub const HOP_REPORTS_MAX: usize = 64;
/// Maximum number of changes in one report; the older ones are joined.
const CHANGES_MAX: usize = 4;

/// A relay's report about one outgoing hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopReport {
    /// Name of the relay, which sends over the hop.
    pub relay: String,
    /// Name of the gateway to which it sends.
    pub to: String,
    /// Connections that may send at the same time.
    pub limit: u32,
    /// The highest limit that is allowed.
    pub limit_max: u32,
    /// Time since the hop's start.
    pub elapsed_ms: u64,
    /// Times that requests waited for bytes from upstream, summed over the requests.
    pub receiving_ms: u64,
    /// Times that requests waited until the next gateway accepted their bytes, summed over the requests.
    pub sending_ms: u64,
    /// Changes of the limit since the last report, oldest first: from, to, reason.
    pub changes: Vec<(u32, u32, LimitReason)>,
}

/// Parses a batch of reports, without side effects; also used by the fuzzer.
pub fn parse_hop_reports(payload: &[u8]) -> Option<Vec<HopReport>> {
    let (count, _) = postcard::take_from_bytes::<u64>(payload).ok()?;
    if count > HOP_REPORTS_MAX as u64 {
        return None;
    }
    let reports: Vec<HopReport> = super::work::parse_exactly(payload)?;
    let is_short = |report: &HopReport| {
        report.relay.len() <= NAME_BYTES_MAX && report.to.len() <= NAME_BYTES_MAX && report.changes.len() <= CHANGES_MAX
    };
    reports.iter().all(is_short).then_some(reports)
}

/// Measures for what the requests of one outgoing hop of a relay wait.
#[derive(Debug)]
pub struct RelayMeter {
    relay: String,
    to: String,
    throttle: Arc<Throttle>,
    started: Instant,
    times: Mutex<Times>,
}

/// The side for which a request at a relay waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Upstream,
    Downstream,
}

/// A request that waits, until it is dropped.
pub(super) struct Waiting<'a> {
    meter: &'a RelayMeter,
    side: Awaited,
}

#[derive(Debug)]
struct Times {
    /// Until when the times are counted.
    counted: Instant,
    receiving: u32,
    sending: u32,
    receiving_time: Duration,
    sending_time: Duration,
    /// The time of both at the last report.
    reported: Duration,
}

impl RelayMeter {
    /// Measures the hop from `relay` to `to` that `throttle` limits.
    pub(super) fn new(relay: &str, to: &str, throttle: Arc<Throttle>) -> Arc<Self> {
        let started = Instant::now();
        let times = Times {
            counted: started,
            receiving: 0,
            sending: 0,
            receiving_time: Duration::ZERO,
            sending_time: Duration::ZERO,
            reported: Duration::ZERO,
        };
        let (relay, to, times) = (relay.to_owned(), to.to_owned(), Mutex::new(times));
        Arc::new(Self { relay, to, throttle, started, times })
    }

    /// Counts a request as waiting for one side.
    pub(super) fn waiting(&self, side: Awaited) -> Waiting<'_> {
        *self.times().count(side) += 1;
        Waiting { meter: self, side }
    }

    /// Returns the report of now; `None` if nothing has waited or changed since the last one.
    fn report(&self) -> Option<HopReport> {
        let reading = self.throttle.read();
        let mut times = self.times();
        let total = times.receiving_time + times.sending_time;
        if total == times.reported && reading.changes.is_empty() {
            return None;
        }
        times.reported = total;
        Some(HopReport {
            relay: self.relay.clone(),
            to: self.to.clone(),
            limit: reading.limit,
            limit_max: reading.limit_max,
            elapsed_ms: self.started.elapsed().as_millis() as u64,
            receiving_ms: times.receiving_time.as_millis() as u64,
            sending_ms: times.sending_time.as_millis() as u64,
            changes: reading.changes.iter().map(|change| (change.from, change.to, change.reason)).collect(),
        })
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.advance(Instant::now());
        times
    }
}

impl Times {
    fn advance(&mut self, now: Instant) {
        let span = now.saturating_duration_since(self.counted);
        self.receiving_time += span * self.receiving;
        self.sending_time += span * self.sending;
        self.counted = self.counted.max(now);
    }

    fn count(&mut self, side: Awaited) -> &mut u32 {
        match side {
            Awaited::Upstream => &mut self.receiving,
            Awaited::Downstream => &mut self.sending,
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        *self.meter.times().count(self.side) -= 1;
    }
}

/// The reports at one gateway: those about its own hops, and those that it received and has not passed on.
#[derive(Debug, Default)]
pub struct HopReports {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Relay, hop and neighbour downstream for which a report is accepted: the neighbour, the relay, its next gateway.
    accepted: HashSet<(String, String, String)>,
    own: Vec<Arc<RelayMeter>>,
    received: BTreeMap<(String, String), HopReport>,
}

impl HopReports {
    /// Accepts from now on the reports about the relays of these routes downstream of `node`. `meters` returns the meter
    /// of the hop of this gateway to another one.
    pub fn take_routes(&self, node: &str, routes: &[RouteSpec], meters: impl Fn(&str) -> Option<Arc<RelayMeter>>) {
        let mut state = self.lock();
        state.accepted = routes.iter().flat_map(|route| accepted(node, route)).collect();
        let own: HashSet<&str> = routes.iter().filter_map(|route| relayed_to(node, route)).collect();
        // These are reported with the answers, which nobody can change.
        let as_source: HashSet<&str> = routes.iter().filter_map(|route| sent_to(node, route)).collect();
        state.own = own.difference(&as_source).filter_map(|to| meters(to)).collect();
    }

    /// Keeps the reports that the neighbour `from` has sent, if they are about relays that a route reaches through it.
    /// Returns false if they break a rule.
    #[must_use]
    pub fn heard(&self, from: &str, payload: &[u8]) -> bool {
        let Some(reports) = parse_hop_reports(payload) else { return false };
        let mut state = self.lock();
        for mut report in reports {
            let hop = (report.relay.clone(), report.to.clone());
            if !state.accepted.contains(&(from.to_owned(), hop.0.clone(), hop.1.clone())) {
                continue;
            }
            if let Some(before) = state.received.remove(&hop) {
                report.changes.splice(..0, before.changes);
                let over = report.changes.len().saturating_sub(CHANGES_MAX);
                report.changes.drain(..over);
            }
            state.received.insert(hop, report);
        }
        true
    }

    /// Returns the reports that have not been passed on.
    pub fn take(&self) -> Vec<HopReport> {
        let mut state = self.lock();
        let received = std::mem::take(&mut state.received).into_values();
        state.own.iter().filter_map(|meter| meter.report()).chain(received).collect()
    }

    /// Passes reports on to the gateways upstream, until stopped.
    pub async fn pass_on(self: Arc<Self>, peers: Peers, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(REPORT_EVERY)).await.is_some() {
            for batch in self.take().chunks(HOP_REPORTS_MAX) {
                if let Ok(payload) = postcard::to_stdvec(batch) {
                    peers.tell_each(&Frame::HopReports(Bytes::from(payload)));
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The gateway to which `node` sends the requests of a route as a relay. The first two stations are lead and source.
fn relayed_to<'a>(node: &str, route: &'a RouteSpec) -> Option<&'a str> {
    relay_hops(route).find(|(_, relay, _)| *relay == node).map(|(_, _, to)| to)
}

/// The gateway to which `node` sends the requests of a route as their source.
fn sent_to<'a>(node: &str, route: &'a RouteSpec) -> Option<&'a str> {
    (route.nodes.get(1)? == node).then(|| route.nodes.get(2)).flatten().map(String::as_str)
}

/// Place, name and next gateway of each relay of a route.
fn relay_hops(route: &RouteSpec) -> impl Iterator<Item = (usize, &str, &str)> {
    let pairs = route.nodes.windows(2).enumerate().skip(2);
    pairs.map(|(place, pair)| (place, pair[0].as_str(), pair[1].as_str())).filter(|(_, relay, to)| relay != to)
}

fn accepted(node: &str, route: &RouteSpec) -> Vec<(String, String, String)> {
    let neighbours = route.nodes.windows(2).enumerate().filter(|(_, pair)| pair[0] == *node && pair[1] != *node);
    let below = neighbours.flat_map(|(place, pair)| {
        let beyond = relay_hops(route).filter(move |(relay_place, ..)| *relay_place > place);
        beyond.map(|(_, relay, to)| (pair[1].clone(), relay.to_owned(), to.to_owned()))
    });
    below.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn route(nodes: &[&str]) -> RouteSpec {
        RouteSpec { id: 0, nodes: nodes.iter().map(|name| (*name).to_owned()).collect(), share: 1.0, usd_per_gb: 0.0 }
    }

    fn report(relay: &str, to: &str) -> HopReport {
        HopReport {
            relay: relay.to_owned(),
            to: to.to_owned(),
            limit: 8,
            limit_max: 16,
            elapsed_ms: 1_000,
            receiving_ms: 10,
            sending_ms: 700,
            changes: Vec::new(),
        }
    }

    fn sent(reports: &[HopReport]) -> Vec<u8> {
        postcard::to_stdvec(reports).unwrap()
    }

    fn at(node: &str, routes: &[RouteSpec]) -> HopReports {
        let reports = HopReports::default();
        reports.take_routes(node, routes, |_| None);
        reports
    }

    #[test]
    fn a_report_counts_only_if_a_route_reaches_its_relay_through_the_sender() {
        let routes = [route(&["home", "source", "r1", "r2", "sink"]), route(&["home", "source", "r3", "sink"])];
        let all = [report("r1", "r2"), report("r2", "sink"), report("r3", "sink"), report("source", "r1")];
        for (node, from, kept) in [
            ("home", "source", &all[..3]),
            ("source", "r1", &all[..2]),
            ("source", "r3", &all[2..3]),
            ("source", "sink", &[]),
            ("r1", "r2", &all[1..2]),
            ("r2", "sink", &[]),
            ("sink", "r2", &[]),
        ] {
            let reports = at(node, &routes);
            assert!(reports.heard(from, &sent(&all)));
            assert_eq!(reports.take(), kept, "{node} hears of {from}");
            assert_eq!(reports.take(), [], "each report is passed on once");
        }
    }

    #[test]
    fn where_lead_and_source_are_one_the_relays_are_heard_as_well() {
        let reports = at("home", &[route(&["home", "home", "r1", "sink"])]);
        assert!(reports.heard("r1", &sent(&[report("r1", "sink"), report("home", "r1")])));
        assert_eq!(reports.take(), [report("r1", "sink")]);
    }

    #[test]
    fn the_latest_report_of_a_hop_stays_with_the_changes_of_those_before() {
        let reports = at("source", &[route(&["home", "source", "r1", "sink"])]);
        for number in 0..9 {
            let changes = vec![(number, number + 1, LimitReason::Waiting)];
            let later = HopReport { elapsed_ms: u64::from(number), changes, ..report("r1", "sink") };
            assert!(reports.heard("r1", &sent(&[later])));
        }
        let taken = reports.take();
        assert_eq!((taken.len(), taken[0].elapsed_ms, taken[0].changes.len()), (1, 8, CHANGES_MAX));
        assert_eq!(taken[0].changes[CHANGES_MAX - 1], (8, 9, LimitReason::Waiting));
    }

    #[test]
    fn batches_that_break_a_limit_are_refused() {
        let reports = HopReports::default();
        let long = HopReport { relay: "r".repeat(NAME_BYTES_MAX + 1), ..report("r", "s") };
        let changes = vec![(1, 2, LimitReason::Errors); CHANGES_MAX + 1];
        for bad in [
            sent(&[long]),
            sent(&[HopReport { changes, ..report("r", "s") }]),
            sent(&vec![report("r", "s"); HOP_REPORTS_MAX + 1]),
            [sent(&[report("r", "s")]), vec![0]].concat(),
            vec![0xff; 20],
        ] {
            assert!(!reports.heard("r", &bad), "{bad:?}");
        }
        let name = "r".repeat(NAME_BYTES_MAX);
        let changes = vec![(u32::MAX, u32::MAX, LimitReason::Errors); CHANGES_MAX];
        let longest = HopReport { changes, ..report(&name, &name) };
        Frame::HopReports(sent(&vec![longest; HOP_REPORTS_MAX]).into()).encode(&mut Vec::new());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_is_counted_while_it_lasts_and_an_idle_hop_reports_nothing() {
        let throttle = Throttle::new(4, 1..=4);
        let meter = RelayMeter::new("r1", "sink", throttle.clone());
        assert_eq!(meter.report(), None);
        let (up, down) = (meter.waiting(Awaited::Upstream), [(); 2].map(|()| meter.waiting(Awaited::Downstream)));
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(up);
        let first = meter.report().expect("two requests wait");
        assert_eq!((first.receiving_ms, first.sending_ms, first.elapsed_ms), (1_000, 2_000, 1_000));
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(down);
        assert_eq!(meter.report().map(|report| report.sending_ms), Some(4_000));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(meter.report(), None);
        throttle.slow_down();
        let changed = meter.report().expect("the limit has changed");
        assert_eq!(changed.changes, [(4, 2, LimitReason::SlowDown)]);
    }

    proptest! {
        #[test]
        fn batches_round_trip(reports in prop::collection::vec(any_report(), 0..HOP_REPORTS_MAX)) {
            prop_assert_eq!(parse_hop_reports(&sent(&reports)), Some(reports));
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(reports) = parse_hop_reports(&bytes) {
                prop_assert_eq!(parse_hop_reports(&sent(&reports)), Some(reports));
            }
        }
    }

    fn any_report() -> impl Strategy<Value = HopReport> {
        use LimitReason::*;
        let reason = prop::sample::select(vec![Waiting, NoGain, SlowDown, Errors]);
        let changes = prop::collection::vec((any::<u32>(), any::<u32>(), reason), 0..=CHANGES_MAX);
        ("[a-z0-9-]{0,64}", "[a-z0-9-]{0,64}", any::<(u32, u32)>(), any::<(u64, u64, u64)>(), changes).prop_map(
            |(relay, to, (limit, limit_max), (elapsed_ms, receiving_ms, sending_ms), changes)| HopReport {
                relay,
                to,
                limit,
                limit_max,
                elapsed_ms,
                receiving_ms,
                sending_ms,
                changes,
            },
        )
    }
}
