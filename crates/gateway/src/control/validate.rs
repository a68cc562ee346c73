//! Checks a program before anything is started, and describes the first fault in one clear line with a hint.
//!
//! Facts that only the stores know (does the bucket exist, is writing allowed) are not checked here.

use crate::failure::counted;
use crate::limits::{
    CHUNK_BYTES, DEDUP_WINDOW_BYTES, HOP_CONNECTIONS_MAX, JOB_ID_CHARS_MAX, MEMBERS_MAX, MEMORY_BYTES,
    PROGRAM_TIMEOUT_S_MAX, ROUTES_MAX, STATIONS_MAX, STORE_REQUESTS_MAX, STORE_TRIES_MAX, TARGETS_MAX,
};
use crate::names::{check_node_name, is_label};
use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;
use tradewind_contract::{
    CONTRACT_VERSION, Comparison, DialSpec, JobSpec, Limits, Member, Program, Refusal, RouteSpec, Selection,
};

/// The gateway's own properties, which a program must fit.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Name in its certificate, if it has an identity.
    pub identity: Option<&'a str>,
    /// Plain hops are allowed by a flag.
    pub plain: bool,
    /// It has a data port.
    pub data_port: bool,
}

/// The roles of a gateway in a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// First station of some route.
    pub lead: bool,
    /// Second station of some route.
    pub source: bool,
    /// Between source and sink on some route.
    pub relay: bool,
    /// Last station of some route.
    pub sink: bool,
}

type Checked = Result<(), Refusal>;

fn refuse<T>(error: impl Into<String>, hint: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { error: error.into(), hint: Some(hint.into()) })
}

/// Returns the roles of `node` on `routes`.
pub fn roles(node: &str, routes: &[RouteSpec]) -> Roles {
    let mut roles = Roles::default();
    for route in routes {
        let last = route.nodes.len().saturating_sub(1);
        for (place, _) in route.nodes.iter().enumerate().filter(|(_, name)| *name == node) {
            match place {
                0 => roles.lead = true,
                1 => roles.source = true,
                _ if place == last => roles.sink = true,
                _ => roles.relay = true,
            }
        }
    }
    roles
}

/// Checks a whole program.
///
/// # Errors
/// The first fault, in the order contract version, names, routes, hops, roles, job, limits.
pub fn check_program(program: &Program, setting: Setting<'_>) -> Checked {
    if program.contract != CONTRACT_VERSION {
        return refuse(
            format!(
                "this gateway uses contract {CONTRACT_VERSION}, but the program uses contract {}",
                program.contract
            ),
            "use the same version of the client and the gateways",
        );
    }
    check_names(program, setting)?;
    check_routes(program)?;
    check_hops(program, setting)?;
    let roles = roles(&program.node, &program.routes);
    check_roles(program, roles)?;
    if let Some(job) = &program.lead {
        check_job(job, &program.limits)?;
        let (targets, sinks) = (job.targets.len(), program.sinks.len());
        if roles.sink && targets != sinks {
            return refuse(
                format!(
                    "the job has {}, the sink {}",
                    counted(targets as u64, "destination", "destinations"),
                    counted(sinks as u64, "store", "stores")
                ),
                "list the same stores in both",
            );
        }
    }
    check_limits(&program.limits)
}

fn check_names(program: &Program, setting: Setting<'_>) -> Checked {
    if !is_label(&program.job_id, JOB_ID_CHARS_MAX) {
        return refuse(
            format!("{:?} is not a job id", program.job_id),
            "a job id has 1 to 64 characters of a-z, 0-9 and -",
        );
    }
    let named = program.routes.iter().flat_map(|route| &route.nodes).chain(program.hops.iter().map(|hop| &hop.to));
    let named = named.chain(program.dials.iter().map(|dial| &dial.upstream));
    for name in named.chain([&program.node]) {
        if let Err(error) = check_node_name(name) {
            return refuse(error, "a gateway's name is also the name in its certificate");
        }
    }
    match setting.identity {
        Some(own) if own != program.node => refuse(
            format!("this program is for {}, this gateway is {own}", program.node),
            "send each gateway its own program",
        ),
        _ => Ok(()),
    }
}

fn check_routes(program: &Program) -> Checked {
    let routes = &program.routes;
    if routes.is_empty() || routes.len() > ROUTES_MAX {
        return refuse(format!("{} routes", routes.len()), format!("a program has 1 to {ROUTES_MAX} routes"));
    }
    let mut ids = BTreeSet::new();
    for route in routes {
        if !ids.insert(route.id) {
            return refuse(format!("two routes have the id {}", route.id), "give each route an id of its own");
        }
        check_route(route, &program.node)?;
    }
    let leads: BTreeSet<_> = routes.iter().filter_map(|route| route.nodes.first()).collect();
    if leads.len() > 1 {
        return refuse(format!("routes begin at {} different leads", leads.len()), "a job has one lead");
    }
    Ok(())
}

fn check_route(route: &RouteSpec, node: &str) -> Checked {
    let (id, nodes) = (route.id, &route.nodes);
    if !(3..=STATIONS_MAX).contains(&nodes.len()) {
        return refuse(
            format!("route {id} has {} stations", nodes.len()),
            format!("a route names lead, source, relays and sink: 3 to {STATIONS_MAX} stations"),
        );
    }
    let mut visited = BTreeSet::new();
    for (place, name) in nodes.iter().enumerate() {
        let stays = place > 0 && nodes[place - 1] == *name;
        if !stays && !visited.insert(name) {
            return refuse(format!("route {id} comes back to {name}"), "only neighbouring stations may be one gateway");
        }
    }
    if !nodes.iter().any(|name| name == node) {
        return refuse(format!("route {id} does not pass {node}"), "give a gateway only the routes that pass it");
    }
    if !(route.share > 0.0 && route.share <= 1.0) {
        return refuse(format!("route {id} has the share {}", route.share), "a share is more than 0 and at most 1");
    }
    if !(route.usd_per_gb.is_finite() && route.usd_per_gb >= 0.0) {
        return refuse(format!("route {id} has the price {}", route.usd_per_gb), "a price is 0 or more");
    }
    Ok(())
}

fn check_hops(program: &Program, setting: Setting<'_>) -> Checked {
    let node = &program.node;
    let joints = || program.routes.iter().flat_map(|route| route.nodes.windows(2)).filter(|pair| pair[0] != pair[1]);
    let needed: BTreeSet<&String> = joints().filter(|pair| pair[0] == *node).map(|pair| &pair[1]).collect();
    let mut given = BTreeSet::new();
    for hop in &program.hops {
        let to = &hop.to;
        if !given.insert(to) {
            return refuse(format!("two hops lead to {to}"), "one hop carries all routes to the same gateway");
        }
        if !needed.contains(to) {
            return refuse(format!("no route goes from {node} to {to}"), "leave out the hop, or add the route");
        }
        check_connections(&format!("to {to}"), hop.connections)?;
        match &hop.address {
            Some(address) => check_address(&format!("to {to}"), address)?,
            None if !setting.data_port => {
                return refuse(
                    format!("{to} opens the hop from {node}, which has no data port"),
                    "start it with --data IP:PORT, or give the hop an address",
                );
            }
            None => {}
        }
    }
    if let Some(missing) = needed.difference(&given).next() {
        return refuse(format!("there is no hop from {node} to {missing}"), "a route needs a hop to each next station");
    }
    if !(given.is_empty() && program.dials.is_empty()) && setting.identity.is_none() && !setting.plain {
        return refuse(
            "this gateway has no identity for its hops",
            "start it with --identity, or --plain to do without TLS",
        );
    }
    let above: BTreeSet<&String> = joints().filter(|pair| pair[1] == *node).map(|pair| &pair[0]).collect();
    let dialled = check_dials(program, &above)?;
    if above.iter().any(|from| !dialled.contains(*from)) && !setting.data_port {
        return refuse(
            format!("{node} has no data port, but a route comes to it"),
            "start it with --data IP:PORT, or have it open the hop (dials)",
        );
    }
    Ok(())
}

/// Returns the upstream gateways whose hops this one opens.
fn check_dials<'a>(program: &'a Program, above: &BTreeSet<&String>) -> Result<BTreeSet<&'a String>, Refusal> {
    let node = &program.node;
    let mut dialled = BTreeSet::new();
    for DialSpec { upstream: from, address, connections } in &program.dials {
        if !dialled.insert(from) {
            return refuse(format!("two dials open the hop from {from}"), "one hop carries all routes of two gateways");
        }
        if !above.contains(from) {
            return refuse(format!("no route goes from {from} to {node}"), "leave out the dial, or add the route");
        }
        check_connections(&format!("from {from}"), *connections)?;
        check_address(&format!("from {from}"), address)?;
    }
    Ok(dialled)
}

fn check_connections(hop: &str, connections: u16) -> Checked {
    if !(1..=HOP_CONNECTIONS_MAX).contains(&connections) {
        return refuse(
            format!("the hop {hop} has {}", counted(connections.into(), "connection", "connections")),
            format!("a hop has 1 to {HOP_CONNECTIONS_MAX} connections"),
        );
    }
    Ok(())
}

fn check_address(hop: &str, address: &str) -> Checked {
    if !address.parse::<SocketAddr>().is_ok_and(|address| address.port() != 0) {
        return refuse(
            format!("{address:?} is not an address for the hop {hop}"),
            "an address is ip:port, the data_address of the other gateway",
        );
    }
    Ok(())
}

fn check_roles(program: &Program, roles: Roles) -> Checked {
    let node = &program.node;
    let parts = [
        ("lead", roles.lead, program.lead.is_some(), "lead (the job)"),
        ("source", roles.source, program.source.is_some(), "source (the store to read)"),
        ("sink", roles.sink, !program.sinks.is_empty(), "sinks (the stores to write)"),
    ];
    for (role, has_role, has_part, part) in parts {
        if has_role && !has_part {
            return refuse(format!("{node} is a {role} but the program does not say {part}"), "complete the program");
        }
        if has_part && !has_role {
            return refuse(
                format!("the program says {part} but {node} is not a {role} on any route"),
                "a gateway gets only what its role needs",
            );
        }
    }
    check_scopes(program, roles)?;
    if program.sinks.len() > TARGETS_MAX {
        return refuse(
            format!("{} sinks", program.sinks.len()),
            format!("a job has at most {TARGETS_MAX} destinations"),
        );
    }
    let Some(key) = &program.seal_key_hex else {
        return if crosses_hops(program) {
            refuse(
                format!("{node} has no key to seal and open bodies"),
                "give source and sinks the same seal_key_hex: 64 random hexadecimal digits",
            )
        } else {
            Ok(())
        };
    };
    if !(roles.source || roles.sink) {
        return refuse(format!("{node} is neither source nor sink and must not have the seal key"), "leave it out");
    }
    if key.len() != 64 || !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return refuse("seal_key_hex is not a key", "a seal key is 64 hexadecimal digits");
    }
    Ok(())
}

/// Returns whether this gateway is source or sink of a route whose bodies leave it or come to it over hops.
fn crosses_hops(program: &Program) -> bool {
    let is_here = |name: &String| *name == program.node;
    program.routes.iter().any(|route| match route.nodes.get(1..) {
        Some(stations @ [source, .., sink]) => (is_here(source) || is_here(sink)) && !stations.iter().all(is_here),
        _ => false,
    })
}

/// Checks the keys that a program allows. Only the lead knows the job, so the other programs must state its keys.
fn check_scopes(program: &Program, roles: Roles) -> Checked {
    let (node, is_lead) = (&program.node, program.lead.is_some());
    if program.reads.is_some() && (is_lead || !roles.source) {
        return refuse(format!("the program says reads but {node} is the lead or not a source"), "leave it out");
    }
    if (!program.writes.is_empty() || program.copies.is_some()) && (is_lead || !roles.sink) {
        return refuse(
            format!("the program says writes or copies but {node} is the lead or not a sink"),
            "leave it out",
        );
    }
    if roles.source && !is_lead && program.reads.is_none() {
        return refuse(format!("{node} is a source and the program does not say reads"), "say which keys it may read");
    }
    let (scopes, sinks) = (program.writes.len(), program.sinks.len());
    if roles.sink && !is_lead && scopes != sinks {
        return refuse(
            format!("the program says writes for {scopes} of {sinks} destinations of {node}"),
            "say for each destination which keys may be written",
        );
    }
    Ok(())
}

fn check_job(job: &JobSpec, limits: &Limits) -> Checked {
    if job.targets.is_empty() || job.targets.len() > TARGETS_MAX {
        return refuse(
            format!("{} destinations", job.targets.len()),
            format!("a job has 1 to {TARGETS_MAX} destinations"),
        );
    }
    if job.delete.is_some() && job.compare.is_none() {
        return refuse("delete without compare", "only a sync deletes");
    }
    if job.flatten && (job.delete.is_some() || job.compare.is_some_and(|rule| rule != Comparison::Existing)) {
        return refuse("flatten with a sync", "a sync keeps the names");
    }
    if job.resume && job.state_dir.is_none() {
        return refuse("resume without state_dir", "a job is resumed from the folder that it keeps its state in");
    }
    if let Selection::Prefix { prefix, .. } | Selection::List { prefix, .. } = &job.selection
        && !(prefix.is_empty() || prefix.ends_with('/'))
    {
        return refuse(format!("{prefix:?} is not a prefix"), "a prefix is empty or ends in /");
    }
    if let Selection::Several { members, .. } = &job.selection {
        check_members(job, members)?;
    }
    if !CHUNK_BYTES.contains(&job.chunk_bytes) || job.chunk_bytes > limits.memory_bytes / 2 {
        return refuse(
            format!("chunk_bytes {} with memory_bytes {}", job.chunk_bytes, limits.memory_bytes),
            format!("a chunk is {} to {} bytes and at most half of the memory", CHUNK_BYTES.start(), CHUNK_BYTES.end()),
        );
    }
    for (name, ceiling) in [("ceiling_usd_per_gb", job.ceiling_usd_per_gb), ("ceiling_usd", job.ceiling_usd)] {
        if ceiling.is_some_and(|usd| !(usd.is_finite() && usd >= 0.0)) {
            return refuse(format!("{name} is not a price"), "a price is 0 or more");
        }
    }
    if !(0.0..=1.0).contains(&job.duplicate_fraction_max) {
        return refuse("duplicate_fraction_max is not a fraction", "it is 0 (no duplicates) to 1 (all bytes)");
    }
    if job.rate_limit_bytes_per_s == Some(0) || !(1..=PROGRAM_TIMEOUT_S_MAX).contains(&job.stall_s) {
        return refuse(
            "rate_limit_bytes_per_s and stall_s must not be 0",
            format!("leave the rate out for no limit; stall_s is 1 to {PROGRAM_TIMEOUT_S_MAX}"),
        );
    }
    Ok(())
}

fn check_members(job: &JobSpec, members: &[Member]) -> Checked {
    if members.is_empty() || members.len() > MEMBERS_MAX {
        return refuse(format!("{} sources", members.len()), format!("a job has 1 to {MEMBERS_MAX} sources"));
    }
    if job.compare.is_some_and(|rule| rule != Comparison::Existing) {
        return refuse("compare with several sources", "a sync has one source");
    }
    let mut names = HashSet::with_capacity(members.len());
    for Member { name, .. } in members {
        if name.is_empty() || name.ends_with('/') || !names.insert(name) {
            return refuse(format!("{name:?} is not a unique name"), "each source needs another name");
        }
    }
    Ok(())
}

fn check_limits(limits: &Limits) -> Checked {
    let ranges = [
        ("memory_bytes", limits.memory_bytes, MEMORY_BYTES),
        ("dedup_window_bytes", limits.dedup_window_bytes, DEDUP_WINDOW_BYTES),
    ];
    for (name, value, range) in ranges {
        if !range.contains(&value) {
            return refuse(format!("limits.{name} is {value}"), format!("it is {} to {}", range.start(), range.end()));
        }
    }
    let bounded = [
        ("store_requests_max", limits.store_requests_max, STORE_REQUESTS_MAX),
        ("read_requests_start", limits.read_requests_start, STORE_REQUESTS_MAX),
        ("write_requests_start", limits.write_requests_start, STORE_REQUESTS_MAX),
        ("store_tries_max", limits.store_tries_max, STORE_TRIES_MAX),
        ("store_retry_s", limits.store_retry_s, PROGRAM_TIMEOUT_S_MAX),
        ("store_reach_s", limits.store_reach_s, PROGRAM_TIMEOUT_S_MAX),
        ("store_idle_s", limits.store_idle_s, PROGRAM_TIMEOUT_S_MAX),
        ("store_work_s", limits.store_work_s, PROGRAM_TIMEOUT_S_MAX),
        ("peer_silence_s", limits.peer_silence_s, PROGRAM_TIMEOUT_S_MAX),
        ("request_s", limits.request_s, PROGRAM_TIMEOUT_S_MAX),
    ];
    for (name, value, most) in bounded {
        if !(1..=most).contains(&value) {
            return refuse(format!("limits.{name} is {value}"), format!("it is 1 to {most}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
