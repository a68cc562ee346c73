//! Recognises the proxy itself among destinations: a flow to it would come back as the next client's, without end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// True if one of the bound `listeners` would accept a connection from this machine to `destination`. Addresses that a
/// network translates to this machine, such as the public one of a rented machine, are not recognised.
pub(crate) fn leads_here(listeners: &[SocketAddr], destination: SocketAddr) -> bool {
    let address = destination.ip().to_canonical();
    listeners.iter().filter(|listener| listener.port() == destination.port()).any(|listener| {
        match listener.ip().to_canonical() {
            // A socket of `::` accepts IPv4, too.
            IpAddr::V6(any) if any.is_unspecified() => is_of_this_machine(address),
            IpAddr::V4(any) if any.is_unspecified() => address.is_ipv4() && is_of_this_machine(address),
            one => one == address,
        }
    })
}

/// True if the kernel would send to `address` from that very address, as it does only to itself. Sends nothing.
fn is_of_this_machine(address: IpAddr) -> bool {
    if address.is_loopback() || address.is_unspecified() {
        return true;
    }
    let any = if address.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        // The port is of no consequence, but must not be 0.
        socket.connect((address, 1))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(listener: &str, destination: &str) -> bool {
        leads_here(&[listener.parse().unwrap()], destination.parse().unwrap())
    }

    #[test]
    fn only_what_a_listener_would_accept_leads_here() {
        for listener in ["0.0.0.0:1080", "[::]:1080", "127.0.0.1:1080", "[::ffff:127.0.0.1]:1080"] {
            assert!(leads(listener, "127.0.0.1:1080"), "{listener}");
            assert!(leads(listener, "[::ffff:127.0.0.1]:1080"), "{listener}");
            assert!(!leads(listener, "127.0.0.1:1081"), "{listener}");
            assert!(!leads(listener, "192.0.2.1:1080"), "{listener}");
        }
        assert!(leads("0.0.0.0:1080", "127.0.0.2:1080"));
        assert!(!leads("127.0.0.1:1080", "127.0.0.2:1080"));
        assert!(!leads("0.0.0.0:1080", "[::1]:1080"));
        assert!(leads("10.1.2.3:1080", "10.1.2.3:1080"));
    }

    #[test]
    fn an_address_of_another_interface_is_of_this_machine() {
        // The address from which this machine would send to the world, if it is connected to it.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let is_connected = socket.connect("192.0.2.1:1").is_ok();
        let own = if is_connected { socket.local_addr().unwrap().ip() } else { Ipv4Addr::LOCALHOST.into() };
        assert!(is_of_this_machine(own));
        assert!(!is_of_this_machine("192.0.2.1".parse().unwrap()));
    }
}
