//! Connections between gateways: from a byte stream to whole frames.
//!
//! [`link`] is the byte stream (TCP, or the simulator's), and [`handshake`] makes a connection of it (TLS 1.3 and
//! Hello, or plain by a flag). [`record`] encrypts and decrypts on the hot path, [`stream`] connects it or plain data
//! to the socket, and [`frames`] reads and writes frames on top.

pub mod frames;
pub mod fuzz;
pub mod gate;
pub mod handshake;
pub mod link;
mod record;
pub mod refusals;
mod stream;

pub use frames::{FrameReader, FrameWriter, Incoming};
pub use handshake::{Connection, ConnectionError, Security};
pub use link::{DataPort, Link, Network, Tcp};

#[cfg(test)]
mod tests;
