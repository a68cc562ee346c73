//! An in-memory network for tests: its pipes accept few bytes until the other side reads.

use crate::net::{DataPort, Link, Network};
use async_trait::async_trait;
use std::io;
use std::sync::Arc;
use tokio::io::DuplexStream;
use tokio::sync::{Mutex, mpsc};

/// Capacity of a pipe in bytes.
const PIPE_BYTES: usize = 16 << 10;

#[derive(Debug)]
struct Pipes(mpsc::UnboundedSender<Link>);

struct Port(Mutex<mpsc::UnboundedReceiver<Link>>);

/// A network on which every address leads to the returned port.
pub(crate) fn network() -> (Arc<dyn Network>, Box<dyn DataPort>) {
    let (out, incoming) = mpsc::unbounded_channel();
    (Arc::new(Pipes(out)), Box::new(Port(Mutex::new(incoming))))
}

/// Both ends of a pipe.
pub(crate) fn pipe() -> (Link, Link) {
    let (here, there) = tokio::io::duplex(PIPE_BYTES);
    (link(here), link(there))
}

fn link(end: DuplexStream) -> Link {
    let (reader, writer) = tokio::io::split(end);
    Link::new(Box::new(reader), Box::new(writer), "127.0.0.1:1".to_owned())
}

#[async_trait]
impl Network for Pipes {
    async fn connect(&self, _address: &str) -> io::Result<Link> {
        let (here, there) = pipe();
        let gone = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
        self.0.send(there).map_err(gone).map(|()| here)
    }
}

#[async_trait]
impl DataPort for Port {
    async fn accept(&self) -> io::Result<Link> {
        self.0.lock().await.recv().await.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}
