//! Named limits of a split proxy, each with its effect. [`crate::config::Limits`] has those that a user may change.

use crate::records::{DATA_BYTES_MAX, RECORD_BYTES};
use std::time::Duration;

/// Most bytes of one read from a plain connection: what three full TLS records carry. So few stay in the caches of a
/// processor between read and write; 256 KiB took about 35% more CPU time, and 64 KiB twice as much
/// (docs/decisions/0034-split-proxy.md).
pub const PLAIN_READ_BYTES: usize = 3 * DATA_BYTES_MAX;
/// Most bytes of one direction of a connection that the proxy itself holds, and of one read from another proxy: three full
/// TLS records. It reads no more until they are written, so that a slow reader slows its sender down. An idle connection
/// holds none.
pub const RELAY_BUFFER_BYTES: usize = 3 * RECORD_BYTES;
/// Most bytes that are sealed at once. They wait for the kernel before more are sealed, beside those of the relay. An idle
/// connection holds none.
pub const TLS_BUFFER_BYTES: usize = PLAIN_READ_BYTES;
/// Most bytes of a TLS handshake that wait until rustls can read them; then the handshake fails.
pub const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// Most TLS records in a row without data, such as empty ones and key updates; then the connection ends.
pub const RECORDS_WITHOUT_DATA_MAX: u32 = 32;
/// Bytes that the flows of a process may hold because their readers are slower than their senders. Beyond it, a direction
/// reads at most [`SCARCE_READ_BYTES`] at once, or one TLS record, and none while sealed bytes wait: else the memory that
/// 10,000 clients take that never read has no bound. Such reads cost all flows CPU time, but no flow waits for another.
pub const HELD_BYTES_MAX: usize = 32 << 20;
/// See [`HELD_BYTES_MAX`].
pub const SCARCE_READ_BYTES: usize = 8 << 10;
/// Free relay buffers of each size that a thread keeps for its next connection; further ones are freed.
pub const RELAY_BUFFERS_PER_THREAD_MAX: usize = 4;
/// Most buffers that one direction moves before the other direction and other connections get their turn.
pub const RELAY_ROUNDS_MAX: usize = 16;
/// Bytes in the send buffer that the kernel has not sent yet, above which a socket is not writable. Bytes in flight do
/// not count, so that the kernel still tunes its windows. Smaller values cost CPU time: the relay is woken more often
/// (docs/decisions/0034-split-proxy.md).
pub const NOTSENT_LOWAT_BYTES: u32 = 1 << 20;
/// Most bytes of a request or answer between proxies; longer ones are refused.
pub const HEADER_BYTES_MAX: usize = 4 << 10;
/// Most proxies that a flow passes; a longer route is refused.
pub const HOPS_MAX: usize = 8;
/// Share of the time to dial that a proxy gives to the next one, in percent. In the rest, the next one's answer arrives.
pub const DIAL_SHARE_PERCENT: u32 = 90;
/// Most bytes of a CONNECT request; a longer one is refused.
pub const CONNECT_BYTES_MAX: usize = 8 << 10;
/// Most header fields of a CONNECT request; a request with more is refused.
pub const CONNECT_FIELDS_MAX: usize = 64;
/// Most bytes read to find the server name of a TLS handshake; a longer start is refused.
pub const HELLO_BYTES_MAX: usize = 16 << 10;
/// Most bytes after the fixed part of a PROXY header; a longer one is refused.
pub const PROXY_HEADER_BYTES_MAX: usize = 4 << 10;
/// Most tokens in a file; a longer one is refused.
pub const TOKENS_MAX: usize = 4096;
/// Most name lookups under way at once; beyond it, connections to names are refused. A lookup takes a thread, and goes on
/// after the connection has given up. Tokio has 512 such threads, which must not all wait for a silent name server.
pub const LOOKUPS_MAX: usize = 256;
/// Most of them for one client address.
pub const LOOKUPS_PER_CLIENT_MAX: usize = LOOKUPS_MAX / 2;
/// Most of them for one caller proxy, whichever clients it names: more than for a client, because it has many.
pub const LOOKUPS_PER_PROXY_MAX: usize = LOOKUPS_MAX / 4 * 3;
/// Most bytes of a file of tokens; a larger one is refused.
pub const TOKENS_BYTES_MAX: u64 = 1 << 20;
/// Most addresses of a name that are dialed, in the resolver's order.
pub const ADDRESSES_MAX: usize = 8;
/// Most bytes of a host name (RFC 1035).
pub const NAME_BYTES_MAX: usize = 253;
/// Connections that the kernel queues for a listener before it ignores new ones.
pub const BACKLOG: u32 = 4096;
/// Keepalive: idle time before the first probe, and time between probes.
pub const KEEPALIVE_TIME: Duration = Duration::from_secs(60);
/// See [`KEEPALIVE_TIME`].
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Age from which a flow keeps its connection to the destination or next proxy alive.
pub const KEEPALIVE_FROM: Duration = Duration::from_secs(5);
/// Unanswered keepalive probes after which a connection is reset.
pub const KEEPALIVE_RETRIES: u32 = 6;
/// Interval at which the side of a flow that has closed its direction is checked for a reset: nothing more is read from it,
/// so nothing else tells.
pub const HALF_CLOSED_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Open files of a process that its connections leave to listeners, lookups, and connections that are kept ready. Beyond
/// the rest, at two files each, connections are refused as beyond `connections_max`.
pub const FILES_RESERVED: u64 = 64;
/// Time for which the memory of an ended flow, about 1 kB, may stay in use.
pub const ENDED_FLOWS_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after the kernel refuses to accept a connection (out of files or memory).
pub const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Most connections that are kept ready for each next proxy; a configuration with more is refused.
pub const POOL_MAX: usize = 64;
/// Interval at which connections that are ready are checked, and missing ones opened.
pub const POOL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Least `pool_age_ms`: each connection costs a handshake.
pub const POOL_AGE_MIN: Duration = Duration::from_secs(1);
/// Pause after a connection could not be opened before it was needed, or broke while it was ready.
pub const POOL_RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Time in which the kernel of a next proxy must acknowledge a request over a connection that was ready. Then the
/// connection is broken, and the flow opens another: the path may have lost it without a word.
pub const POOL_ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(2);
/// Longest time that another proxy may keep a connection ready. Then it is closed. `pool_age_ms` must be less.
pub const KEPT_READY_MAX: Duration = Duration::from_secs(600);
/// Times to the first byte that are remembered for each next proxy, for their median.
pub const FIRST_BYTES: usize = 64;
/// Most characters of the reason why a next proxy cannot be reached; the rest is cut off.
pub const FAILURE_CHARS_MAX: usize = 200;
/// Kinds of flows, by listener, route and destination, that are counted one by one; further ones are counted together.
pub const TRAFFIC_MAX: usize = 1024;
/// Time for which an address that has shown a token or a certificate is no stranger.
pub const KNOWN_FOR: Duration = Duration::from_secs(600);
/// Most such addresses; another one takes the place of the oldest, which is then a stranger again.
pub const KNOWN_MAX: usize = 4096;
/// Strangers may hold one in so many of `connections_max`; beyond it, they are refused.
pub const STRANGERS_PART: usize = 4;
/// Interval at which the rates of clients and destinations that have opened no connection in it are forgotten.
pub const RATES_SWEPT_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which the next proxies in `probes` are connected to, unless a connection has just been opened.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(3);
/// Longest time of such a connection, TLS included; then the next proxy has failed. A busy host answers late.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Most listeners of one proxy; a configuration with more is refused.
pub const LISTENERS_MAX: usize = 64;
/// Most bytes of a configuration; a larger one is refused.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Least limit of bytes per second of a client or destination; a smaller one is refused, because its flows would look idle.
pub const PACE_BYTES_PER_S_MIN: u64 = 1 << 10;
/// Time whose bytes a client or destination under a limit may use at once if it did not use them before.
pub const PACE_BURST: Duration = Duration::from_millis(250);
/// Under a limit, a read is at most so small a part of a second's bytes, so that the connections of a client take turns.
pub const PACE_PARTS_PER_SECOND: u64 = 16;
/// Least bytes of such a read: smaller ones would cost too much CPU time.
pub const PACE_READ_BYTES_MIN: usize = 4 << 10;
/// Interval at which clients without connections are forgotten if they owe no bytes.
pub const PACES_SWEPT_INTERVAL: Duration = Duration::from_secs(1);
