//! Named limits of the control side of a gateway, and what happens at each.
//! `docs/reference/limits.md` lists them for users; a test compares the two.

use std::time::Duration;

/// Threads of the async runtime at most: as many as there are processors, and no more than this. A gateway moves bytes;
/// beyond this the links are the limit, not the processors.
pub const WORKERS_MAX: usize = 16;
/// Threads of the async runtime at least, so that one long computation does not hold up the control API.
pub const WORKERS_MIN: usize = 2;
/// Threads that wait for files. Further file operations queue.
pub const BLOCKING_THREADS_MAX: usize = 64;

/// Connections of controllers to the control port at once. Further ones are answered 503 and closed.
pub const CONTROL_CONNECTIONS_MAX: usize = 64;
/// The same for all other gateways of the fleet together. They have no need of many, and take none of the controllers'.
pub const CONTROL_PEER_CONNECTIONS_MAX: usize = 16;
/// The same for each of them.
pub const CONTROL_CONNECTIONS_PER_PEER_MAX: usize = 4;
/// A connection of such a gateway takes no further request after this, and is closed when this has passed once more,
/// whether or not its answers were read.
pub const CONTROL_PEER_CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// TLS handshakes at once on the control port. For a further client the longest-waiting handshake of the address that
/// has most of them ends; addresses that are known give way last (see `net::gate`).
pub const CONTROL_HANDSHAKES_MAX: usize = 64;
/// Handshakes from one address; for a further one, the address's longest-waiting one ends.
pub const CONTROL_HANDSHAKES_PER_ADDRESS_MAX: usize = 16;
/// Connections of other gateways at once on the data port, after their handshake. Further ones are closed.
pub const DATA_CONNECTIONS_MAX: usize = 1024;
/// Connections of one gateway: twice those of its hop, because lost ones may not have been noticed yet.
pub const DATA_CONNECTIONS_PER_PEER_MAX: usize = 2 * HOP_CONNECTIONS_MAX as usize;
/// Handshakes at once on the data port; as on the control port.
pub const DATA_HANDSHAKES_MAX: usize = 512;
/// Handshakes from one address: several gateways of one machine may open all their connections at once.
pub const DATA_HANDSHAKES_PER_ADDRESS_MAX: usize = 256;
/// A TLS handshake that takes longer is given up and the connection closed.
pub const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// A request's head that takes longer to arrive, and a connection idle for so long, is closed.
pub const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A request's body that takes longer to arrive is answered 408.
pub const REQUEST_BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Headers of one request; more are answered 431.
pub const REQUEST_HEADERS_MAX: usize = 64;
/// Bytes of one request's head; more are answered 431.
pub const REQUEST_HEAD_BYTES_MAX: usize = 32 << 10;
/// Bytes of one request's body; more are answered 413.
pub const REQUEST_BODY_BYTES_MAX: usize = 4 << 20;
/// Bytes of a body that is too large which are read and forgotten, so that the client reads the 413; of an even larger
/// one the connection is closed under the client's hands.
pub const REQUEST_DISCARD_BYTES_MAX: usize = 32 << 20;
/// Pause after the kernel refuses to accept a connection (out of files or memory), so that waiting costs nothing.
pub const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Readers of `GET /v1/events` at once; further ones are answered 429.
pub const EVENT_READERS_MAX: usize = 16;
/// Event lines kept for late and slow readers; beyond it the oldest are dropped and counted (see `control::events`).
pub const EVENT_BACKLOG_BYTES_MAX: usize = 16 << 20;
/// Event lines handed to one connection at a time; a reader gets more when it has taken these.
pub const EVENT_BATCH_BYTES: usize = 64 << 10;
/// A reader of `GET /v1/events` gets an empty line after this time without an event.
pub const EVENT_KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Longest lease, in seconds, that `--lease-s` and `POST /v1/lease` take; longer ones are refused.
pub const LEASE_S_MAX: u32 = 86_400;

/// Probes at once; further ones are answered 429.
pub const PROBES_MAX: usize = 4;
/// Connections that one probe times; more are refused (422).
pub const PROBE_CONNECTS_MAX: u16 = 20;
/// A probe that takes longer is answered 504.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// `POST /v1/probe/receive` waits so long for all connections of the sender, then answers 504.
pub const LOAD_CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest warm-up, and longest time that is counted, of `POST /v1/probe/receive`; longer ones are refused (422).
pub const LOAD_MS_MAX: u32 = 60_000;
/// Longest time that `POST /v1/probe/send` sends; longer ones are refused (422).
pub const LOAD_SEND_MS_MAX: u32 = 180_000;
/// Connections to a measuring gateway whose handshake is not done. Further ones wait in the kernel's backlog, and a
/// probe that strangers hold up so ends with [`LOAD_CONNECT_TIMEOUT`].
pub const LOAD_HANDSHAKES_MAX: usize = 128;
/// Handshakes that `POST /v1/probe/send` times before it sends; the least is the round trip.
pub const LOAD_CONNECTS: usize = 10;
/// Bytes that one connection of such a probe writes or reads at a time.
pub const LOAD_BUFFER_BYTES: usize = 64 << 10;

/// `POST /v1/drain` is answered 202 when the node is not done after this; it goes on draining.
pub const DRAIN_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// A gateway told to end (signal, or end of stdin) leaves after this even if its node has not finished draining.
pub const DRAIN_AT_EXIT_TIMEOUT: Duration = Duration::from_secs(8);
/// After that, open answers (the last events) have so long to be read.
pub const CONNECTIONS_AT_EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Life of a fleet's certificates unless `--days` says otherwise; a gateway then refuses its peers and they it.
pub const IDENTITY_DAYS_DEFAULT: u32 = 7;
/// Longest life that `--days` takes.
pub const IDENTITY_DAYS_MAX: u32 = 365;
/// Certificates are valid from so long before they are made, because clocks differ.
pub const IDENTITY_CLOCK_SKEW: Duration = Duration::from_secs(3600);
/// Bytes of a certificate or key file; a larger one is refused.
pub const PEM_FILE_BYTES_MAX: u64 = 64 << 10;

/// Life of an identity that an owner signs. It is renewed when half of it has passed.
pub const IDENTITY_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Shortest life that `owner --identity-s` takes.
pub const IDENTITY_S_MIN: u32 = 10;
/// Life of the CA's certificate of a fleet with an owner. Gateways trust its key, so nothing ends with it.
pub const FLEET_CA_LIFE: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Longest time for which an owner accepts a join token. A gateway gives up enrolling so long after its start.
pub const JOIN_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes of a join document; a longer one is refused. User data has room for 16 KB on EC2.
pub const JOIN_BYTES_MAX: u64 = 16 << 10;
/// An enrolment that takes longer after its TLS handshake is given up and its connection closed.
pub const ENROL_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of one message of an enrolment; a longer one ends it.
pub const ENROL_LINE_BYTES_MAX: usize = 16 << 10;
/// Pause after an enrolment that failed; it doubles up to [`ENROL_PAUSE_MAX`].
pub const ENROL_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two attempts to enrol.
pub const ENROL_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Characters of a fleet's id.
pub const FLEET_ID_CHARS_MAX: usize = 64;

/// Gateways of one owner; a further one is refused (409).
pub const OWNED_GATEWAYS_MAX: usize = 1024;
/// Connections to an owner's admin socket at once; further ones wait.
pub const ADMIN_CONNECTIONS_MAX: usize = 16;
/// Bytes of a request's body on the admin socket; a longer one is answered 413.
pub const ADMIN_BODY_BYTES_MAX: usize = 64 << 10;
/// Connections that an owner carries to one gateway at once; further ones wait in the backlog of its socket.
pub const TUNNELS_PER_GATEWAY_MAX: usize = 32;
/// A connection to a gateway that cannot be reached is closed after this; also one to a gateway that has not enrolled.
pub const REACH_TIMEOUT: Duration = Duration::from_secs(10);
/// When the client has closed its side, the gateway has so long to close its own.
pub const TUNNEL_LINGER: Duration = Duration::from_secs(10);
/// Bytes that a tunnel reads at a time, in each direction.
pub const TUNNEL_BUFFER_BYTES: usize = 16 << 10;
/// Idle connections that a gateway which calls home keeps open to its owner.
pub const IDLE_CALLS: usize = 3;
/// Idle connections of one gateway that the owner holds; a further one is closed.
pub const IDLE_CALLS_MAX: usize = 8;
/// An owner asks after an idle connection so often, so that firewalls keep it open.
pub const IDLE_CALL_INTERVAL: Duration = Duration::from_secs(15);
/// Whoever answers no such question by then is gone; the connection is closed.
pub const IDLE_CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a renewal of an identity that failed; a short-lived one is retried sooner.
pub const RENEWAL_PAUSE: Duration = Duration::from_secs(60);
/// A renewal that takes longer has failed.
pub const RENEWAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Stores whose credentials a gateway takes; more are refused (422).
pub const DELEGATED_STORES_MAX: usize = 64;
/// The owner waits so long for the credentials of a gateway's stores; an assumed role may need several requests.
pub const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(60);
/// The owner looks so often for renewed credentials. Providers renew five minutes before the end, so a gateway has them
/// in time.
pub const CREDENTIALS_INTERVAL: Duration = Duration::from_secs(60);
/// Bytes of a gateway's answer to a renewal; a longer one is a failure.
pub const RENEWAL_ANSWER_BYTES_MAX: usize = 64 << 10;

/// Routes of one program.
pub const ROUTES_MAX: usize = 256;
/// Stations of one route, the lead included.
pub const STATIONS_MAX: usize = 16;
/// Connections of one hop.
pub const HOP_CONNECTIONS_MAX: u16 = 64;
/// Sources of one job that are named one by one.
pub const MEMBERS_MAX: usize = 10_000;
/// Destinations of one job.
pub const TARGETS_MAX: usize = 16;
/// Characters of a gateway's name: one DNS label, because its certificate carries it.
pub const NODE_NAME_CHARS_MAX: usize = 63;
/// Characters of a job id.
pub const JOB_ID_CHARS_MAX: usize = 64;
/// Least and most bytes of a chunk (5 TiB, the largest object, in 10,000 parts makes 525 MiB).
pub const CHUNK_BYTES: std::ops::RangeInclusive<u64> = (64 << 10)..=(1 << 30);
/// Least and most object bytes that a program may let a gateway hold.
pub const MEMORY_BYTES: std::ops::RangeInclusive<u64> = (8 << 20)..=(1 << 40);
/// Most requests in flight to a store that a program may ask for.
pub const STORE_REQUESTS_MAX: u32 = 1024;
/// Most tries of one store request that a program may ask for.
pub const STORE_TRIES_MAX: u32 = 100;
/// Longest of the time limits that a program may set.
pub const PROGRAM_TIMEOUT_S_MAX: u32 = 86_400;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// What stands between `before` and the next character that no constant's name has, for each line.
    fn names(text: &'static str, before: &str) -> BTreeSet<&'static str> {
        let after = text.lines().filter_map(|line| line.strip_prefix(before));
        after.filter_map(|rest| rest.split(|c: char| !(c.is_ascii_uppercase() || c == '_')).next()).collect()
    }

    #[test]
    fn the_reference_lists_every_limit_and_no_other() {
        let named = names(include_str!("limits.rs"), "pub const ");
        let page = include_str!("../../../docs/reference/limits.md");
        let of_control = page.split("\n## ").filter(|section| section.contains("crates/gateway/src/limits.rs"));
        let listed = of_control.flat_map(|section| names(section, "| `")).collect();
        assert!(named.len() > 30);
        assert_eq!(named, listed);
    }
}
