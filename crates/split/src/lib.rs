//! Split-TCP proxies.
//!
//! A split proxy accepts a TCP connection near its client, and carries the bytes to the destination over one
//! connection per hop. Each hop has its own congestion control and retransmits over a shorter round trip, so a flow
//! reaches its rate sooner and keeps it under loss.
//!
//! - A *client* connects to a listener, which learns the destination in one of several [`config::Way`]s.
//! - The first proxy (*entry*) picks the route. Each proxy passes the rest of it on in a [`header::Request`], after
//!   mutual TLS, and waits for a [`header::Answer`].
//! - The last proxy (*exit*) resolves and dials the destination. Its answer travels back, so that a refused connection
//!   is refused at the client.
//!
//! One flow has one connection per hop: flows are never multiplexed. Connections to the next proxy may be opened before
//! a flow needs them.
//!
//! **Never an open relay**: every proxy checks the destination against its own [`allow::AllowList`], the exit once more
//! after resolving the name. A proxy dials only the proxies of its own configuration; a request names them, and never
//! their addresses.
//!
//! Not guaranteed: a proxy acknowledges bytes before the destination has them. If a proxy dies, such bytes are lost,
//! and both ends see a reset.

mod admission;
pub mod allow;
mod buffers;
pub mod config;
mod conn;
pub mod destination;
mod dial;
mod entrance;
mod files;
pub mod fuzz;
mod handle;
mod handshake;
pub mod header;
mod hops;
pub mod limits;
mod lookup;
mod own;
mod pace;
mod pending;
mod pool;
mod probe;
pub mod proxy;
pub mod proxy_protocol;
mod rates;
mod records;
pub mod refusal;
mod relay;
mod sealed;
pub mod status;
pub mod tls;
pub mod token;
mod traffic;
pub mod upstream;
pub mod ways;

pub use buffers::held_bytes;
pub use config::Config;
pub use handle::{Effective, Handle};
pub use proxy::Proxy;
pub use refusal::{Cause, Refusal, SplitError};
