//! The bound listeners of a proxy.

use crate::config::Config;
use crate::conn::set_options;
use crate::limits::BACKLOG;
use crate::refusal::SplitError;
use crate::token::Tokens;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;

/// One listener, as the connections see it.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    pub(crate) id: u64,
    /// The address of the configuration.
    requested: SocketAddr,
    /// The bound address, whose port the kernel may have chosen.
    pub(crate) address: SocketAddr,
    pub(crate) tokens: Option<Tokens>,
    /// Cancelled when the listener is to close.
    pub(crate) closed: CancellationToken,
}

/// The socket of an entrance.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) id: u64,
    pub(crate) listener: TcpListener,
    pub(crate) closed: CancellationToken,
}

/// The entrances of a configuration, and the sockets of the new ones. Those of `before` that have the same address in
/// their configuration are kept; the others are bound. `lent` is a listener that is bound already, and is used for its
/// address.
///
/// # Errors
/// Tokens cannot be read, or an address cannot be bound; nothing has changed.
pub(crate) fn entrances(
    config: &Config,
    before: &[Entrance],
    lent: Option<TcpListener>,
) -> Result<(Vec<Entrance>, Vec<Door>), SplitError> {
    let mut left = before.to_vec();
    let mut lent = lent.and_then(|listener| Some((listener.local_addr().ok()?, listener)));
    let (mut entrances, mut doors) = (Vec::new(), Vec::new());
    for listener in &config.listeners {
        let tokens = listener.read_tokens()?;
        let kept = left.iter().position(|entrance| entrance.requested == listener.listen);
        let entrance = match kept {
            Some(index) => Entrance { tokens, ..left.remove(index) },
            None => {
                let of_address = lent.take_if(|(address, _)| *address == listener.listen);
                let opened = match of_address {
                    Some((address, listener)) => set_options(&listener).map(|()| (Door::new(listener), address)),
                    None => open(listener.listen),
                };
                let (door, address) =
                    opened.map_err(|source| SplitError::Listen { address: listener.listen.to_string(), source })?;
                let (id, closed) = (door.id, door.closed.clone());
                doors.push(door);
                Entrance { id, requested: listener.listen, address, tokens, closed }
            }
        };
        entrances.push(entrance);
    }
    Ok((entrances, doors))
}

impl Door {
    fn new(listener: TcpListener) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        Self { id: IDS.fetch_add(1, Ordering::Relaxed), listener, closed: CancellationToken::new() }
    }
}

/// Binds a listener. Returns it with its address.
fn open(address: SocketAddr) -> io::Result<(Door, SocketAddr)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    set_options(&socket)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let bound = listener.local_addr()?;
    Ok((Door::new(listener), bound))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(listen: &[SocketAddr]) -> Config {
        let listeners: Vec<_> = listen.iter().map(|address| json!({"listen": address, "way": "hop"})).collect();
        serde_json::from_value(json!({"listeners": listeners, "allow": []})).unwrap()
    }

    #[tokio::test]
    async fn a_lent_listener_is_used_for_its_address_and_kept() {
        let lent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (at, any) = (lent.local_addr().unwrap(), "127.0.0.1:0".parse().unwrap());
        let (first, doors) = entrances(&config(&[any, at]), &[], Some(lent)).unwrap();
        assert_eq!((first[1].address, doors.len()), (at, 2));
        assert_eq!(doors[1].listener.local_addr().unwrap(), at);

        let (again, new) = entrances(&config(&[at]), &first, None).unwrap();
        assert_eq!((again[0].id, new.len()), (first[1].id, 0));
        assert!(entrances(&config(&[at]), &[], None).is_err(), "the port is in use");
    }

    #[tokio::test]
    async fn a_lent_listener_that_no_listener_wants_is_closed() {
        let lent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = lent.local_addr().unwrap();
        let (found, _doors) = entrances(&config(&["127.0.0.1:0".parse().unwrap()]), &[], Some(lent)).unwrap();
        assert_ne!(found[0].address, at);
        TcpListener::bind(at).await.unwrap();
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn accepted_connections_have_the_options_of_their_listener() {
        use crate::limits::{KEEPALIVE_TIME, NOTSENT_LOWAT_BYTES};
        let lent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (at, any) = (lent.local_addr().unwrap(), "127.0.0.1:0".parse().unwrap());
        let (found, doors) = entrances(&config(&[any, at]), &[], Some(lent)).unwrap();
        for (entrance, door) in found.iter().zip(&doors) {
            let _client = tokio::net::TcpStream::connect(entrance.address).await.unwrap();
            let (tcp, _) = door.listener.accept().await.unwrap();
            let socket = socket2::SockRef::from(&tcp);
            assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_TIME);
            assert_eq!(socket.tcp_notsent_lowat().unwrap(), NOTSENT_LOWAT_BYTES);
        }
    }
}
