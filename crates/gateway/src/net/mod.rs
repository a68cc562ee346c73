//! Connections between gateways: from a byte stream to whole frames.
//!
//! [`link`] is the byte stream (TCP, or the simulator's), and [`handshake`] makes a connection of it (TLS 1.3 and
//! Hello, or plain by a flag). [`record`] encrypts and decrypts on the hot path, [`stream`] connects it or plain data
//! to the socket, and [`frames`] reads and writes frames on top. A relay passes bodies on inside the kernel
//! ([`splice`]).

pub mod frames;
pub mod fuzz;
pub mod gate;
pub mod handshake;
pub mod link;
mod record;
pub mod refusals;
mod splice;
mod stream;

pub use frames::{FrameReader, FrameWriter, Incoming};
pub use handshake::{Connection, ConnectionError, Security};
pub(crate) use link::never_pace_loopback;
pub use link::{DataPort, Link, Network, Tcp};
pub use splice::Pipe;

#[cfg(test)]
pub(crate) mod tests;
