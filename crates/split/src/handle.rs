//! Reads the state of a proxy, and changes it while it runs.

use crate::config::Config;
use crate::entrance::entrances;
use crate::files::within_files;
use crate::pool::Pools;
use crate::proxy::{Live, Shared};
use crate::refusal::SplitError;
use crate::status::{Status, Traffic};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

/// A handle of a proxy. It stays usable after the proxy has ended.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Live>);

/// The settings of the kernel that apply to the connections of a proxy. `None` where the system does not report them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effective {
    /// The congestion control of its connections.
    pub congestion_control: Option<String>,
    /// Largest receive buffer of a connection, in bytes: the kernel grows it up to this.
    pub receive_buffer_bytes_max: Option<u64>,
    /// Largest send buffer of a connection, in bytes.
    pub send_buffer_bytes_max: Option<u64>,
}

impl Handle {
    pub(crate) fn new(live: Arc<Live>) -> Self {
        Self(live)
    }

    /// The bound addresses, in the order of the configuration.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.current().addresses.clone()
    }

    /// The state now.
    pub fn status(&self) -> Status {
        let shared = self.0.current();
        let (open, traffic) = (shared.admission.open(), shared.tallies.traffic());
        let sum = |of: fn(&Traffic) -> u64| traffic.iter().map(of).sum();
        let (bytes_up, bytes_down) = (sum(|each| each.bytes_up), sum(|each| each.bytes_down));
        let ready: BTreeMap<_, _> = shared.pools.ready().collect();
        let counts = shared.counts();
        let hops = counts.hops.iter().map(|(name, hop)| {
            let ready = ready.get(name.as_str()).copied().unwrap_or_default();
            (name.clone(), hop.hop(ready))
        });
        Status {
            open: open.saturating_sub(counts.waiting),
            waiting: counts.waiting,
            accepted: counts.accepted,
            closed: counts.closed,
            reset: counts.reset,
            idle: counts.idle,
            unused: counts.unused,
            refused: counts.refused.clone(),
            bytes_up,
            bytes_down,
            traffic,
            hops: hops.collect(),
        }
    }

    /// Replaces the configuration. New connections use it; open ones keep theirs, but count for the new limits.
    /// Listeners with the address of an earlier one stay open; the others are opened. The flows of a listener that is
    /// gone drain. `lent` is as for [`crate::Proxy::bind`].
    ///
    /// # Errors
    /// As [`crate::Proxy::bind`]; nothing has changed.
    pub fn replace(&self, config: Config, lent: Option<TcpListener>) -> Result<(), SplitError> {
        let mut current = self.0.current.write().unwrap_or_else(PoisonError::into_inner);
        config.check(current.tls.is_some())?;
        let (entrances, doors) = entrances(&config, &current.entrances, lent)?;
        let places = self.0.added.try_reserve_many(doors.len());
        let places = places.map_err(|_| SplitError::Config("the proxy has ended, or changes already".to_owned()))?;
        places.zip(doors).for_each(|(place, door)| place.send(door));
        let gone = current.entrances.iter().filter(|old| entrances.iter().all(|each| each.id != old.id));
        gone.for_each(|old| old.closed.cancel());
        current.admission.set_limits(within_files(&config.limits));
        current.client_paces.set(config.limits.bytes_per_second_per_client_max);
        current.destination_paces.set(config.limits.bytes_per_second_per_destination_max);
        self.0.drain.send_replace(config.limits.drain_timeout());
        let addresses = entrances.iter().map(|entrance| entrance.address).collect();
        let pools = Arc::new(Pools::new(&config, &current.pools));
        current.pools.close_except(&pools);
        *current = Arc::new(Shared { config, entrances, addresses, pools, ..Shared::clone(&current) });
        Ok(())
    }

    /// Sets the time that flows have from the moment at which their listener closed or closes.
    pub fn set_drain_timeout(&self, timeout: Duration) {
        self.0.drain.send_replace(timeout);
    }

    /// The settings of the kernel that apply now, also if the proxy wanted others.
    pub fn effective(&self) -> Effective {
        effective(self.0.current().config.congestion_control.as_deref())
    }
}

#[cfg(target_os = "linux")]
fn effective(wanted: Option<&str>) -> Effective {
    Effective {
        congestion_control: congestion_control(wanted).ok(),
        receive_buffer_bytes_max: buffer_bytes_max("/proc/sys/net/ipv4/tcp_rmem"),
        send_buffer_bytes_max: buffer_bytes_max("/proc/sys/net/ipv4/tcp_wmem"),
    }
}

#[cfg(not(target_os = "linux"))]
fn effective(_wanted: Option<&str>) -> Effective {
    Effective::default()
}

/// The congestion control of a socket that is set up as those of the proxy are.
#[cfg(target_os = "linux")]
fn congestion_control(wanted: Option<&str>) -> std::io::Result<String> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    if let Some(name) = wanted {
        // If the machine does not permit it, the default stays, as for connections.
        let _ = socket.set_tcp_congestion(name.as_bytes());
    }
    let name = socket.tcp_congestion()?;
    Ok(String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned())
}

/// The last of the three numbers of such a file: smallest, initial and largest buffer.
#[cfg(target_os = "linux")]
fn buffer_bytes_max(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.split_whitespace().nth(2)?.parse().ok()
}
