//! Named limits of a gateway's control side, each with its effect. `docs/reference/limits.md` lists them for users; a
//! test compares the two.

use std::time::Duration;

/// Most threads of the async runtime: one per processor, up to this number. A gateway moves bytes; beyond this the
/// links are the limit, not the processors.
pub const WORKERS_MAX: usize = 16;
/// Fewest threads of the async runtime, so that one long computation does not block the control API.
pub const WORKERS_MIN: usize = 2;
/// Most threads for file operations. Further operations queue.
pub const BLOCKING_THREADS_MAX: usize = 64;

/// Most concurrent connections of controllers to the control port. Further ones get 503 and are closed.
pub const CONTROL_CONNECTIONS_MAX: usize = 64;
/// The same for all other gateways of the fleet together. They need few, and never use the controllers' places.
pub const CONTROL_PEER_CONNECTIONS_MAX: usize = 16;
/// The same for each of these gateways.
pub const CONTROL_CONNECTIONS_PER_PEER_MAX: usize = 4;
/// After this time a connection of such a gateway takes no further request. After the same time again it is closed,
/// even if its answers were not read.
pub const CONTROL_PEER_CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Most concurrent TLS handshakes on the control port. A further client ends the oldest handshake of the address that
/// has most of them; known addresses are chosen last (see `net::gate`). Under a flood of connections from many
/// addresses, an enrolment may last until this many others have arrived.
pub const CONTROL_HANDSHAKES_MAX: usize = 512;
/// Most handshakes from one address; a further one ends that address's oldest handshake.
pub const CONTROL_HANDSHAKES_PER_ADDRESS_MAX: usize = 16;
/// Most concurrent connections of other gateways on the data port, after their handshake. Further ones are closed.
pub const DATA_CONNECTIONS_MAX: usize = 1024;
/// Most connections of one gateway: twice those of its hop, because lost connections may not have been noticed yet.
pub const DATA_CONNECTIONS_PER_PEER_MAX: usize = 2 * HOP_CONNECTIONS_MAX as usize;
/// Most concurrent handshakes on the data port; the effect is the same as on the control port.
pub const DATA_HANDSHAKES_MAX: usize = 512;
/// Most handshakes from one address: several gateways of one machine may open all their connections at once.
pub const DATA_HANDSHAKES_PER_ADDRESS_MAX: usize = 256;
/// Most refused connections of one port that each have a line in the log, per [`REFUSAL_LINES_PERIOD`]; one line gives
/// the number of all others.
pub const REFUSAL_LINES_MAX: usize = 20;
/// See [`REFUSAL_LINES_MAX`].
pub const REFUSAL_LINES_PERIOD: Duration = Duration::from_secs(60);
/// A TLS handshake that takes longer is aborted and its connection closed.
pub const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection is closed if the head of a request takes longer to arrive, or if it is idle for this long.
pub const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A request whose body takes longer to arrive gets 408.
pub const REQUEST_BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Most headers of one request; more get 431.
pub const REQUEST_HEADERS_MAX: usize = 64;
/// Most bytes of one request's head; more get 431.
pub const REQUEST_HEAD_BYTES_MAX: usize = 32 << 10;
/// Most bytes of one request's body; more get 413.
pub const REQUEST_BODY_BYTES_MAX: usize = 4 << 20;
/// Most bytes of an oversized body that are read and discarded, so that the client reads the 413. If the body is even
/// longer, the connection is closed while the client still sends.
pub const REQUEST_DISCARD_BYTES_MAX: usize = 32 << 20;
/// Pause after the kernel refuses to accept a connection (out of files or memory), so that waiting does not use the
/// CPU.
pub const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Most concurrent readers of `GET /v1/events`; further ones get 429.
pub const EVENT_READERS_MAX: usize = 16;
/// Most bytes of event lines kept for late and slow readers; beyond it the oldest are dropped and counted (see
/// `control::events`).
pub const EVENT_BACKLOG_BYTES_MAX: usize = 16 << 20;
/// Bytes of event lines passed to one connection at a time; a reader gets more after it has taken these.
pub const EVENT_BATCH_BYTES: usize = 64 << 10;
/// A reader of `GET /v1/events` gets an empty line after this time without an event.
pub const EVENT_KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Longest lease, in seconds, for `--lease-s` and `POST /v1/lease`; longer ones are refused.
pub const LEASE_S_MAX: u32 = 86_400;

/// Most concurrent probes; further ones get 429.
pub const PROBES_MAX: usize = 4;
/// Most connections that one probe times; more are refused (422).
pub const PROBE_CONNECTS_MAX: u16 = 20;
/// A probe that takes longer gets 504.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// `POST /v1/probe/receive` waits this long for all connections of the sender, then answers 504.
pub const LOAD_CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest warm-up and longest count of `POST /v1/probe/receive`, in milliseconds; longer ones are refused (422).
pub const LOAD_MS_MAX: u32 = 60_000;
/// Longest time that `POST /v1/probe/send` sends, in milliseconds; longer ones are refused (422).
pub const LOAD_SEND_MS_MAX: u32 = 180_000;
/// Most connections to a measuring gateway with an unfinished handshake. Further ones wait in the kernel's backlog; if
/// strangers block a probe this way, it ends with [`LOAD_CONNECT_TIMEOUT`].
pub const LOAD_HANDSHAKES_MAX: usize = 128;
/// Handshakes that `POST /v1/probe/send` times before it sends; the shortest is the round trip.
pub const LOAD_CONNECTS: usize = 10;
/// Bytes that one connection of such a probe writes or reads at a time.
pub const LOAD_BUFFER_BYTES: usize = 64 << 10;

/// `POST /v1/drain` gets 202 if the node is not done after this; the node continues to drain.
pub const DRAIN_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// A gateway whose machine the cloud takes back drains this long before: enough for [`DRAIN_AT_EXIT_TIMEOUT`] and
/// [`CONNECTIONS_AT_EXIT_TIMEOUT`], and for a notice that was read late.
pub const DRAIN_BEFORE_TAKEN_BACK: Duration = Duration::from_secs(12);
/// Longest notice of a cloud that `--notice-s` accepts.
pub const NOTICE_S_MAX: u32 = 3_600;
/// A gateway that must end (signal, or end of stdin) exits after this even if its node has not finished draining.
pub const DRAIN_AT_EXIT_TIMEOUT: Duration = Duration::from_secs(8);
/// After that, open answers (the last events) have this long to be read.
pub const CONNECTIONS_AT_EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// With `--alive-dir`, a gateway gives a sign of life this often.
pub const ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// A gateway that has given no sign for longer does not count as alive.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The owner asks a gateway this often whether the cloud takes its machine back.
pub const NOTICE_PAUSE: Duration = Duration::from_secs(2);

/// Validity of a fleet's certificates unless `--days` says otherwise; after it, gateways refuse one another.
pub const IDENTITY_DAYS_DEFAULT: u32 = 7;
/// Longest validity that `--days` accepts.
pub const IDENTITY_DAYS_MAX: u32 = 365;
/// Certificates are valid from this long before they are made, because clocks differ.
pub const IDENTITY_CLOCK_SKEW: Duration = Duration::from_secs(3600);
/// Interval at which `tradewind-gateway split` checks whether the files of its identity have changed.
pub const IDENTITY_RELOAD_INTERVAL: Duration = Duration::from_secs(10);
/// Most bytes of a certificate or key file; a larger one is refused.
pub const PEM_FILE_BYTES_MAX: u64 = 64 << 10;

/// Validity of an identity that an owner signs. It is renewed after half of that time.
pub const IDENTITY_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Shortest validity that `owner --identity-s` accepts, in seconds.
pub const IDENTITY_S_MIN: u32 = 10;
/// Validity of the CA's certificate of a fleet with an owner. Gateways trust its key, so nothing ends when it expires.
pub const FLEET_CA_LIFE: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Longest validity of a join token at its owner; a later expiry is brought forward, because the clock of the token's
/// maker may be ahead. A gateway stops trying to enrol this long after its start.
pub const JOIN_TIMEOUT: Duration = Duration::from_secs(600);
/// Most bytes of a join document; a longer one is refused. User data is limited to 16 KB on EC2.
pub const JOIN_BYTES_MAX: u64 = 16 << 10;
/// An enrolment that takes longer after its TLS handshake is aborted and its connection closed.
pub const ENROL_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of one enrolment message; a longer one ends the enrolment.
pub const ENROL_LINE_BYTES_MAX: usize = 16 << 10;
/// Pause after a failed enrolment; it doubles up to [`ENROL_PAUSE_MAX`].
pub const ENROL_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two attempts to enrol.
pub const ENROL_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Most characters of a fleet's id.
pub const FLEET_ID_CHARS_MAX: usize = 64;

/// Most gateways of one owner; a further one is refused (409).
pub const OWNED_GATEWAYS_MAX: usize = 1024;
/// Most concurrent connections to an owner's admin socket; further ones wait.
pub const ADMIN_CONNECTIONS_MAX: usize = 16;
/// Most bytes of a request's body on the admin socket; a longer one gets 413.
pub const ADMIN_BODY_BYTES_MAX: usize = 64 << 10;
/// Most concurrent connections that an owner forwards to one gateway; further ones wait in the backlog of its socket.
pub const TUNNELS_PER_GATEWAY_MAX: usize = 32;
/// A connection to a gateway that cannot be reached, or has not enrolled, is closed after this.
pub const REACH_TIMEOUT: Duration = Duration::from_secs(10);
/// With a proxy in the environment, a direct control connection has this long before the proxy is tried.
pub const DIRECT_TIMEOUT: Duration = Duration::from_secs(4);
/// Most bytes of the head of a proxy's answer; a longer one is a failure.
pub const PROXY_ANSWER_BYTES_MAX: usize = 8 << 10;
/// After the client has closed its side, the gateway has this long to close its own.
pub const TUNNEL_LINGER: Duration = Duration::from_secs(10);
/// Bytes that a tunnel reads at a time, in each direction.
pub const TUNNEL_BUFFER_BYTES: usize = 16 << 10;
/// Most certificates of one gateway that its owner accepts; beyond it the oldest is refused. Two are usual during a
/// renewal.
pub const CERTIFICATES_PER_GATEWAY_MAX: usize = 8;
/// Idle connections that a gateway which calls home keeps open to its owner.
pub const IDLE_CALLS: usize = 3;
/// Most idle connections of one gateway that the owner holds; a further one is closed.
pub const IDLE_CALLS_MAX: usize = 8;
/// Interval at which an owner pings an idle connection, so that firewalls keep it open.
pub const IDLE_CALL_INTERVAL: Duration = Duration::from_secs(15);
/// A gateway that does not answer such a ping within this time is gone; the connection is closed.
pub const IDLE_CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed renewal of an identity; a short-lived one is retried sooner.
pub const RENEWAL_PAUSE: Duration = Duration::from_secs(60);
/// A renewal that takes longer has failed.
pub const RENEWAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Most stores whose credentials a gateway accepts; more are refused (422).
pub const DELEGATED_STORES_MAX: usize = 64;
/// Longest wait of the owner for the credentials of a gateway's stores; an assumed role may need several requests.
pub const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which the owner checks for renewed credentials. Providers renew five minutes before expiry, so a gateway
/// gets them in time.
pub const CREDENTIALS_INTERVAL: Duration = Duration::from_secs(60);
/// Shortest such interval, for sessions that live for seconds or cannot be renewed.
pub const CREDENTIALS_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Most bytes of a gateway's answer to a renewal; a longer one is a failure.
pub const RENEWAL_ANSWER_BYTES_MAX: usize = 64 << 10;

/// Most routes of one program.
pub const ROUTES_MAX: usize = 256;
/// Most stations of one route, including the lead.
pub const STATIONS_MAX: usize = 16;
/// Most connections of one hop.
pub const HOP_CONNECTIONS_MAX: u16 = 64;
/// Most sources of one job that are named individually.
pub const MEMBERS_MAX: usize = 10_000;
/// Most destinations of one job.
pub const TARGETS_MAX: usize = 16;
/// Most characters of a gateway's name: one DNS label, because its certificate carries it.
pub const NODE_NAME_CHARS_MAX: usize = 63;
/// Most characters of a job id.
pub const JOB_ID_CHARS_MAX: usize = 64;
/// Smallest and largest chunk, in bytes (5 TiB, the largest object, in 10,000 parts makes 525 MiB).
pub const CHUNK_BYTES: std::ops::RangeInclusive<u64> = (64 << 10)..=(1 << 30);
/// Fewest and most object bytes that a program may let a gateway hold.
pub const MEMORY_BYTES: std::ops::RangeInclusive<u64> = (8 << 20)..=(1 << 40);
/// Fewest and most bytes that a program may let a sink keep for deduplication.
pub const DEDUP_WINDOW_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(64 << 30);
/// Most requests in flight to a store that a program may set.
pub const STORE_REQUESTS_MAX: u32 = 1024;
/// Most attempts of one store request that a program may set.
pub const STORE_TRIES_MAX: u32 = 100;
/// Longest time limit that a program may set, in seconds.
pub const PROGRAM_TIMEOUT_S_MAX: u32 = 86_400;

/// Most proxies that a split program may name.
pub const SPLIT_PROXIES_MAX: usize = 256;
/// Most routes of a split program.
pub const SPLIT_ROUTES_MAX: usize = 4096;
/// Most patterns in each list of a split program, and most networks of clients of one listener.
pub const SPLIT_PATTERNS_MAX: usize = 4096;
/// Most connections, of each kind, and accepts per second that a split program may allow.
pub const SPLIT_CONNECTIONS_MAX: u32 = 1_000_000;
/// Longest time that a split program, or `drain_s` of `DELETE /v1/split`, may set, in milliseconds.
pub const SPLIT_TIMEOUT_MS_MAX: u32 = 86_400_000;
/// Most characters of a congestion control's name (`TCP_CA_NAME_MAX` of Linux, without the final zero).
pub const CONGESTION_CONTROL_CHARS_MAX: usize = 15;
/// When a gateway ends, the flows of its split proxy have this long; the others are reset.
pub const SPLIT_DRAIN_AT_EXIT: Duration = Duration::from_secs(5);
/// With `serve --raise-tcp-buffers`, a split proxy raises the machine's maxima of TCP buffers to this many bytes. About 46%
/// becomes the window: 500 MB, as between the proxies of CloudPilot.
pub const TCP_BUFFER_BYTES: u64 = 1_100_000_000;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The text between `before` and the next character that cannot be in a constant's name, for each line.
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
