//! Changes the routes of a running node: first adds or widens hops, then changes the stations that use them, and the
//! lead last.
//!
//! No request in flight is cut off. A hop that no route uses any more is closed after its last request is answered.

use super::run::{Node, routes_held};
use crate::lead::run::{Rerouted, RouteSource};
use crate::net::Network;
use crate::node::dial::{Dial, DialledHop};
use crate::node::hop::{Hop, HopSetup};
use crate::node::hop_reports::HopReports;
use crate::node::inbound::{Inbound, Station};
use crate::node::sink::Sink;
use crate::node::source::{Downstream, Source};
use crate::tls::Security;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tradewind_contract::{DialSpec, HopSpec, Program, Refusal, RouteSpec};
use tradewind_wire::RouteId;
use tradewind_wire::frame::{Hello, HopEnd};

/// The hops of a node, by the gateway that they lead to.
pub(super) type Hops = HashMap<String, Arc<Hop>>;

/// The incoming hops that a node opens, by the gateway from which they come.
pub(super) type DialledHops = HashMap<String, Arc<DialledHop>>;

/// The settings for a node's hops.
pub(super) struct HopMaker {
    pub(super) security: Security,
    pub(super) hello: Hello,
    pub(super) silence_max: Duration,
    pub(super) request_max: Duration,
    pub(super) stop: CancellationToken,
    pub(super) network: Arc<dyn Network>,
    pub(super) reports: Arc<HopReports>,
}

impl HopMaker {
    /// Starts a hop, which ends with the node or before.
    pub(super) fn start(&self, spec: &HopSpec) -> Arc<Hop> {
        let setup = HopSetup {
            spec: spec.clone(),
            security: self.security.clone(),
            hello: self.hello.clone(),
            silence_max: self.silence_max,
            request_max: self.request_max,
            network: self.network.clone(),
            reports: self.reports.clone(),
        };
        Hop::start(setup, self.stop.child_token())
    }

    /// Starts an incoming hop whose connections this node opens.
    pub(super) fn start_dialled(&self, spec: &DialSpec, inbound: &Arc<Inbound>) -> Arc<DialledHop> {
        let dial = Dial {
            peer: spec.upstream.clone(),
            address: spec.address.clone(),
            security: self.security.clone(),
            hello: Hello { end: HopEnd::Downstream, ..self.hello.clone() },
            silence_max: self.silence_max,
            network: self.network.clone(),
        };
        DialledHop::start(dial, spec.connections, inbound.clone(), self.stop.child_token())
    }
}

/// Passes the reports of the program's relays on, and reports what this gateway relays.
pub(super) fn take_reported_routes(reports: &HopReports, program: &Program, hops: &Hops) {
    reports.take_routes(&program.node, &program.routes, |to| hops.get(to).map(|hop| hop.relay_meter().clone()));
}

/// The hops whose other ends open the connections.
pub(super) fn awaited(hops: &Hops) -> HashMap<String, Arc<Hop>> {
    let awaited = hops.iter().filter(|(_, hop)| hop.address().is_none());
    awaited.map(|(to, hop)| (to.clone(), hop.clone())).collect()
}

/// The next station of each route that begins at this source.
pub(super) fn downstream_by_route(
    program: &Program,
    hops: &Hops,
    sink: Option<&Arc<Sink>>,
) -> Result<HashMap<RouteId, Downstream>, Refusal> {
    let is_ours = |route: &&RouteSpec| route.nodes.get(1).is_some_and(|name| *name == program.node);
    let downstream = |route: &RouteSpec| {
        let next = &route.nodes[2];
        let downstream = if *next == program.node {
            sink.cloned().map(Downstream::Memory)
        } else {
            hops.get(next).cloned().map(Downstream::Hop)
        };
        downstream.map(|downstream| (RouteId(route.id), downstream)).ok_or_else(|| nowhere(route, "goes nowhere"))
    };
    program.routes.iter().filter(is_ours).map(downstream).collect()
}

/// The source of each route, which gets the lead's orders.
pub(super) fn sources_by_route(
    program: &Program,
    hops: &Hops,
    source: Option<&Arc<Source>>,
) -> Result<HashMap<RouteId, RouteSource>, Refusal> {
    let source = |route: &RouteSpec| {
        let first = &route.nodes[1];
        let source = if *first == program.node {
            source.cloned().map(RouteSource::Memory)
        } else {
            hops.get(first).cloned().map(RouteSource::Hop)
        };
        source.map(|source| (RouteId(route.id), source)).ok_or_else(|| nowhere(route, "has no source"))
    };
    program.routes.iter().map(source).collect()
}

/// How a gateway handles requests on its data port, and the peers that may send them.
pub(super) struct Stations {
    /// By route: the only gateway that may bring its requests, and how they are handled.
    pub(super) stations: HashMap<RouteId, (Arc<str>, Station)>,
    /// By route that begins here: the only gateway that may bring its orders.
    pub(super) leads: HashMap<RouteId, Arc<str>>,
    /// All gateways that may connect.
    pub(super) upstream: HashSet<String>,
}

/// Derives the stations of the gateway's data port from the routes of `program`.
pub(super) fn stations(program: &Program, hops: &Hops, sink: Option<&Arc<Sink>>) -> Stations {
    let (mut stations, mut leads, mut upstream) = (HashMap::new(), HashMap::new(), HashSet::new());
    for route in &program.routes {
        let id = RouteId(route.id);
        for (place, pair) in route.nodes.windows(2).enumerate() {
            if pair[1] != program.node || pair[0] == pair[1] {
                continue;
            }
            let from: Arc<str> = pair[0].as_str().into();
            upstream.insert(pair[0].clone());
            let is_last = place + 2 == route.nodes.len();
            let next = route.nodes.get(place + 2).and_then(|next| hops.get(next));
            match (is_last, sink, next) {
                // The second gateway of a route gets orders, not requests.
                _ if place == 0 => drop(leads.insert(id, from)),
                (true, Some(sink), _) => drop(stations.insert(id, (from, Station::Sink(sink.clone())))),
                (false, _, Some(hop)) => drop(stations.insert(id, (from, Station::Relay(hop.clone())))),
                _ => {}
            }
        }
    }
    Stations { stations, leads, upstream }
}

fn nowhere(route: &RouteSpec, what: &str) -> Refusal {
    Refusal { error: format!("route {} {what}", route.id), hint: None }
}

impl Node {
    pub(super) fn take_routes(&self, program: &Program) -> Result<(), Refusal> {
        let hops = self.change_hops(program)?;
        self.budget.divide_among(routes_held(program));
        take_reported_routes(&self.hop_maker.reports, program, &hops);
        let Stations { stations, leads, upstream } = stations(program, &hops, self.sink.as_ref());
        if let Some(inbound) = &self.inbound {
            inbound.upstream.write().unwrap_or_else(PoisonError::into_inner).extend(upstream);
            inbound.stations.extend(stations);
            inbound.leads.extend(leads);
            *inbound.awaited.write().unwrap_or_else(PoisonError::into_inner) = awaited(&hops);
            self.change_dialled(program, inbound)?;
        }
        if let Some(source) = &self.source {
            source.downstream.extend(downstream_by_route(program, &hops, self.sink.as_ref())?);
            source.known.retain_routes(|route| program.routes.iter().any(|spec| spec.id == route.0));
        }
        let (Some(lead), Some(job)) = (&self.lead, &program.lead) else { return Ok(()) };
        let change = Rerouted {
            routes: program.routes.clone(),
            sources: sources_by_route(program, &hops, self.source.as_ref())?,
            ceiling_usd_per_gb: job.ceiling_usd_per_gb,
            rate_limit_bytes_per_s: job.rate_limit_bytes_per_s,
        };
        let over = |_| Refusal { error: "the job is over".to_owned(), hint: None };
        lead.rerouted.send(Some(change)).map_err(over)
    }

    /// The hops that the program names. Existing ones are widened where the program says so.
    fn change_hops(&self, program: &Program) -> Result<Hops, Refusal> {
        let mut hops = self.hops();
        let wanted: HashSet<&String> = program.hops.iter().map(|spec| &spec.to).collect();
        for spec in &program.hops {
            match hops.get(&spec.to) {
                Some(hop) if hop.address() != spec.address.as_deref() => return Err(other_address("to", &spec.to)),
                Some(hop) => hop.widen(spec.connections),
                None => drop(hops.insert(spec.to.clone(), self.hop_maker.start(spec))),
            }
        }
        hops.retain(|to, hop| {
            let stays = wanted.contains(to);
            if !stays {
                tokio::spawn(hop.clone().end_when_idle());
            }
            stays
        });
        Ok(hops.clone())
    }

    /// The same for the incoming hops whose connections this gateway opens.
    fn change_dialled(&self, program: &Program, inbound: &Arc<Inbound>) -> Result<(), Refusal> {
        let mut dialled = self.dialled.lock().unwrap_or_else(PoisonError::into_inner);
        for spec in &program.dials {
            match dialled.get(&spec.upstream) {
                Some(hop) if hop.address() != spec.address => return Err(other_address("from", &spec.upstream)),
                Some(hop) => hop.widen(spec.connections),
                None => drop(dialled.insert(spec.upstream.clone(), self.hop_maker.start_dialled(spec, inbound))),
            }
        }
        dialled.retain(|upstream, hop| {
            let stays = program.dials.iter().any(|spec| spec.upstream == *upstream);
            if !stays {
                hop.retire();
            }
            stays
        });
        Ok(())
    }
}

fn other_address(direction: &str, peer: &str) -> Refusal {
    let error = format!("the hop {direction} {peer} has another address");
    Refusal { error, hint: Some("give a new gateway a new name".to_owned()) }
}
