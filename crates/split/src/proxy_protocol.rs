//! The PROXY protocol, version 2 (HAProxy's `proxy-protocol.txt`): a header before the bytes of a connection that says
//! which client it is from. Version 1 and UDP are refused.

use crate::limits::PROXY_HEADER_BYTES_MAX;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::{AsyncRead, AsyncReadExt};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
const UNSPECIFIED: u8 = 0x00;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// The client of a connection, and the address that it connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The client.
    pub client: SocketAddr,
    /// The address that it connected to.
    pub entry: SocketAddr,
}

fn malformed(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Reads a header, and nothing after it. `None`: the connection is of the load balancer itself, or it does not name
/// the client. Extensions (TLVs) are skipped.
///
/// # Errors
/// The connection broke, or the header is malformed, too large or of another version.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Ends>> {
    let mut head = [0; 16];
    stream.read_exact(&mut head).await?;
    if head[..12] != SIGNATURE {
        return Err(malformed("no header of the PROXY protocol, version 2"));
    }
    let length = usize::from(u16::from_be_bytes([head[14], head[15]]));
    if length > PROXY_HEADER_BYTES_MAX {
        return Err(malformed("the PROXY header is too large"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    match (head[12], head[13]) {
        (LOCAL, _) | (PROXY, UNSPECIFIED) => Ok(None),
        (PROXY, TCP4) => ends::<4>(&body).map(Some),
        (PROXY, TCP6) => ends::<16>(&body).map(Some),
        _ => Err(malformed("a PROXY header that is not of TCP")),
    }
}

/// Both addresses, then both ports.
fn ends<const BYTES: usize>(body: &[u8]) -> io::Result<Ends>
where
    IpAddr: From<[u8; BYTES]>,
{
    let short = || malformed("the PROXY header is too short");
    let (client, rest) = body.split_first_chunk::<BYTES>().ok_or_else(short)?;
    let (entry, rest) = rest.split_first_chunk::<BYTES>().ok_or_else(short)?;
    let ([a, b, c, d], _) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let address = |bytes: &[u8; BYTES], port| SocketAddr::new(IpAddr::from(*bytes).to_canonical(), port);
    Ok(Ends {
        client: address(client, u16::from_be_bytes([*a, *b])),
        entry: address(entry, u16::from_be_bytes([*c, *d])),
    })
}

/// The header for a connection. If only one address is IPv4, both are written as IPv6.
pub fn encode(client: SocketAddr, entry: SocketAddr) -> Vec<u8> {
    let mut addresses = Vec::new();
    let family = match (client.ip().to_canonical(), entry.ip().to_canonical()) {
        (IpAddr::V4(client), IpAddr::V4(entry)) => {
            [client, entry].iter().for_each(|address: &Ipv4Addr| addresses.extend(address.octets()));
            TCP4
        }
        (client, entry) => {
            [client, entry].into_iter().for_each(|address| addresses.extend(as_v6(address).octets()));
            TCP6
        }
    };
    addresses.extend(client.port().to_be_bytes());
    addresses.extend(entry.port().to_be_bytes());
    let mut header = SIGNATURE.to_vec();
    header.extend([PROXY, family]);
    header.extend((addresses.len() as u16).to_be_bytes());
    header.extend(addresses);
    header
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}
