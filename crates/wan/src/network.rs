//! The document that describes a network: machines, pipes and the paths through them. All numbers are resolved; the
//! Python side makes it from a sky file.

use crate::fault::Fault;
use crate::pipe::PipeSpec;
use serde::Deserialize;
use std::collections::HashSet;
use std::net::Ipv4Addr;

/// Most machines of one network.
pub const MACHINES_MAX: usize = 200;
/// Longest one-way delay of a path, in microseconds.
pub const DELAY_US_MAX: u64 = 60_000_000;
/// Smallest MTU, in bytes.
pub const MTU_BYTES_MIN: u16 = 576;
/// Largest MTU, in bytes.
pub const MTU_BYTES_MAX: u16 = 9000;

/// A whole network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Largest IP packet on every path, bytes.
    pub mtu_bytes: u16,
    /// Seed of the random loss, which makes it reproducible.
    pub seed: u64,
    /// The machines; each has one namespace.
    pub machines: Vec<Machine>,
    /// The pipes that paths use.
    pub pipes: Vec<PipeSpec>,
    /// The paths. Pairs of machines without a path cannot reach each other.
    pub paths: Vec<Path>,
}

/// One machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Unique name.
    pub name: String,
    /// Its region; changes can name all machines of a region.
    pub region: String,
    /// Unique address; all machines share one /16.
    pub address: Ipv4Addr,
    /// Congestion control of its TCP connections.
    pub congestion_control: String,
    /// Cap on traffic to all other machines together.
    pub egress: Option<PipeSpec>,
    /// Cap on traffic from all other machines together.
    pub ingress: Option<PipeSpec>,
    /// False if machines of other regions cannot open TCP connections to it, as behind NAT or a firewall.
    #[serde(default = "reachable")]
    pub inbound: bool,
}

fn reachable() -> bool {
    true
}

/// The path of one ordered pair of machines.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Path {
    /// Index of the machine that sends.
    pub src: usize,
    /// Index of the machine that receives.
    pub dst: usize,
    /// Index of the pipe.
    pub pipe: usize,
    /// One-way delay, microseconds.
    pub delay_us: u64,
    /// Share of packets lost at random.
    pub loss: f64,
}

impl Network {
    /// Parses and checks a document.
    pub fn from_json(text: &str) -> Result<Self, Fault> {
        let network: Self =
            serde_json::from_str(text).map_err(|error| Fault::usage(format!("the network: {error}")))?;
        match network.wrong() {
            Some(what) => Err(Fault::usage(format!("the network: {what}"))),
            None => Ok(network),
        }
    }

    /// The ordered pairs of machines whose first cannot open TCP connections to the second.
    pub fn closed_pairs(&self) -> HashSet<(usize, usize)> {
        let pairs = self.paths.iter().map(|path| (path.src, path.dst));
        let is_closed = |&(src, dst): &(usize, usize)| {
            !self.machines[dst].inbound && self.machines[src].region != self.machines[dst].region
        };
        pairs.filter(is_closed).collect()
    }

    fn wrong(&self) -> Option<String> {
        if !(MTU_BYTES_MIN..=MTU_BYTES_MAX).contains(&self.mtu_bytes) {
            return Some(format!("mtu_bytes {} is not between {MTU_BYTES_MIN} and {MTU_BYTES_MAX}", self.mtu_bytes));
        }
        if self.machines.is_empty() || self.machines.len() > MACHINES_MAX {
            return Some(format!("{} machines are not between 1 and {MACHINES_MAX}", self.machines.len()));
        }
        self.machines_wrong().or_else(|| self.paths_wrong())
    }

    fn machines_wrong(&self) -> Option<String> {
        let (mut names, mut addresses) = (HashSet::new(), HashSet::new());
        for machine in &self.machines {
            if !names.insert(&machine.name) || !addresses.insert(machine.address) {
                return Some(format!("machine {} or its address is given twice", machine.name));
            }
            if machine.address.octets()[..2] != self.machines[0].address.octets()[..2] {
                return Some(format!("{} is not in the /16 of the others", machine.address));
            }
            for cap in [machine.egress, machine.ingress].into_iter().flatten() {
                if let Some(wrong) = cap.wrong() {
                    return Some(format!("machine {}: {wrong}", machine.name));
                }
            }
        }
        None
    }

    fn paths_wrong(&self) -> Option<String> {
        if let Some(wrong) = self.pipes.iter().find_map(PipeSpec::wrong) {
            return Some(wrong);
        }
        let mut pairs = HashSet::new();
        for path in &self.paths {
            let (src, dst) = (path.src, path.dst);
            if src >= self.machines.len() || dst >= self.machines.len() || path.pipe >= self.pipes.len() || src == dst {
                return Some(format!("path {src} to {dst} through {} leads nowhere", path.pipe));
            }
            if path.delay_us > DELAY_US_MAX || !(0.0..=1.0).contains(&path.loss) {
                return Some(format!("path {src} to {dst}: delay or loss is out of range"));
            }
            if !pairs.insert((src, dst)) {
                return Some(format!("path {src} to {dst} is given twice"));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"mtu_bytes": 1500, "seed": 1, "machines": [
        {"name": "a", "region": "site:a", "address": "10.77.1.1", "congestion_control": "cubic", "egress": null, "ingress": null},
        {"name": "b", "region": "site:b", "address": "10.77.2.1", "congestion_control": "cubic",
         "egress": {"rate_bps": 8000000, "queue_bytes": 96000}, "ingress": null}],
        "pipes": [{"rate_bps": 8000000, "queue_bytes": 96000}],
        "paths": [{"src": 0, "dst": 1, "pipe": 0, "delay_us": 1000, "loss": 0.5}]}"#;

    fn refusal(text: &str) -> String {
        let fault = Network::from_json(text).expect_err("should be refused");
        assert_eq!(fault.exit_code(), 2);
        fault.to_string()
    }

    #[test]
    fn a_good_document_is_read() {
        let network = Network::from_json(GOOD).unwrap();
        assert_eq!(network.machines[1].egress.unwrap().rate_bps, 8_000_000);
    }

    #[test]
    fn a_machine_without_inbound_is_closed_to_other_regions_alone() {
        let inbound = |text: &str| GOOD.replacen(r#""ingress": null}],"#, text, 1);
        assert!(Network::from_json(GOOD).unwrap().closed_pairs().is_empty());
        let closed = Network::from_json(&inbound(r#""ingress": null, "inbound": false}],"#)).unwrap();
        assert_eq!(closed.closed_pairs(), HashSet::from([(0, 1)]));
        let text = inbound(r#""ingress": null, "inbound": false}],"#).replacen("site:b", "site:a", 1);
        assert!(Network::from_json(&text).unwrap().closed_pairs().is_empty());
    }

    #[test]
    fn invalid_networks_are_refused_with_a_reason() {
        for (from, to, why) in [
            ("\"seed\": 1", "\"seed\": 1, \"sed\": 2", "unknown field"),
            ("10.77.2.1", "10.77.1.1", "twice"),
            ("10.77.2.1", "10.78.2.1", "/16"),
            ("\"dst\": 1", "\"dst\": 0", "leads nowhere"),
            ("\"pipe\": 0", "\"pipe\": 1", "leads nowhere"),
            ("0.5", "1.5", "out of range"),
            ("\"rate_bps\": 8000000", "\"rate_bps\": 0", "rate_bps"),
            ("1500", "100", "mtu_bytes"),
        ] {
            assert!(refusal(&GOOD.replacen(from, to, 1)).contains(why), "{from} → {to}");
        }
    }
}
