//! Connections between gateways: from a TCP stream to whole frames.
//!
//! [`handshake`] makes a connection (TLS 1.3 and Hello, or plain by flag), [`record`] encrypts and decrypts on the hot
//! path, [`stream`] joins either with the socket, [`frames`] reads and writes frames on top.

pub mod frames;
pub mod handshake;
mod record;
mod stream;

pub use frames::{FrameReader, FrameWriter, Incoming};
pub use handshake::{Connection, ConnectionError, Security};
