//! Passes a flow to a proxy that is not of the fleet: the client's side of SOCKS5 and of the HTTP method CONNECT.

use crate::destination::{Destination, Host};
use crate::limits::{CONNECT_BYTES_MAX, CONNECT_FIELDS_MAX};
use crate::refusal::{Cause, Refusal};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::fmt;
use std::io;
use std::net::IpAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A proxy outside the fleet. A route may name it as its only proxy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Its address.
    pub address: Destination,
    /// The protocol that it speaks.
    pub way: Protocol,
    /// The client's name and token, if it asks for them.
    #[serde(default)]
    pub login: Option<Login>,
}

/// The protocol of an upstream proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// SOCKS5 (RFC 1928), the command CONNECT.
    Socks5,
    /// The HTTP method CONNECT.
    Connect,
}

/// A name and a token, each at most 255 bytes long, which SOCKS5 can carry.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    name: String,
    token: String,
}

impl Login {
    /// Checks the lengths.
    ///
    /// # Errors
    /// One of them is empty or too long.
    pub(crate) fn check(&self) -> Result<(), String> {
        let fits = |text: &str| (1..=usize::from(u8::MAX)).contains(&text.len());
        if !fits(&self.name) || !fits(&self.token) || self.name.contains(':') {
            return Err("a login has a name without `:` and a token, each of 1 to 255 bytes".to_owned());
        }
        Ok(())
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.name)
    }
}

/// Asks a connected proxy for a connection to `destination`. Reads nothing after its answer.
///
/// # Errors
/// The proxy refused, or broke the protocol.
pub async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    upstream: &Upstream,
    destination: &Destination,
) -> Result<(), Refusal> {
    let answered = match upstream.way {
        Protocol::Socks5 => socks5(stream, upstream.login.as_ref(), destination).await,
        Protocol::Connect => connect(stream, upstream.login.as_ref(), destination).await,
    };
    let cause = answered.map_err(|error| Refusal::new(Cause::Hop, error.to_string()))?;
    cause.map_err(|cause| Refusal::new(cause, "the upstream proxy refused"))
}

const VERSION: u8 = 5;
const LOGIN_VERSION: u8 = 1;
const NO_LOGIN: u8 = 0;
const LOGIN: u8 = 2;
const CONNECT: u8 = 1;

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// A text of at most 255 bytes, after its length. Names of hosts and logins were checked before.
fn counted(text: &[u8]) -> io::Result<Vec<u8>> {
    let length = u8::try_from(text.len()).map_err(|_| invalid("a text of more than 255 bytes"))?;
    Ok([&[length], text].concat())
}

async fn socks5<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    login: Option<&Login>,
    destination: &Destination,
) -> io::Result<Result<(), Cause>> {
    let method = if login.is_some() { LOGIN } else { NO_LOGIN };
    stream.write_all(&[VERSION, 1, method]).await?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await?;
    if chosen[0] != VERSION {
        return Err(invalid("no answer of SOCKS5"));
    }
    if chosen[1] != method {
        return Ok(Err(Cause::Unauthenticated));
    }
    if let Some(login) = login {
        let (name, token) = (counted(login.name.as_bytes())?, counted(login.token.as_bytes())?);
        stream.write_all(&[&[LOGIN_VERSION], &name[..], &token[..]].concat()).await?;
        let mut status = [0; 2];
        stream.read_exact(&mut status).await?;
        if status[1] != 0 {
            return Ok(Err(Cause::Unauthenticated));
        }
    }
    let host = match &destination.host {
        Host::Address(IpAddr::V4(address)) => [&[1], &address.octets()[..]].concat(),
        Host::Address(IpAddr::V6(address)) => [&[4], &address.octets()[..]].concat(),
        Host::Name(name) => [vec![3], counted(name.as_bytes())?].concat(),
    };
    let request = [&[VERSION, CONNECT, 0], &host[..], &destination.port.to_be_bytes()].concat();
    stream.write_all(&request).await?;
    read_reply(stream).await
}

/// Reads the reply of RFC 1928, section 6, with the address in it, which is of no use here.
async fn read_reply<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Result<(), Cause>> {
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).await?;
    let address_bytes = match reply {
        [VERSION, _, _, 1] => 4,
        [VERSION, _, _, 4] => 16,
        [VERSION, _, _, 3] => stream.read_u8().await?.into(),
        _ => return Err(invalid("no reply of SOCKS5")),
    };
    // An address and a port.
    stream.read_exact(&mut vec![0; address_bytes + 2]).await?;
    Ok(match reply[1] {
        0 => Ok(()),
        2 => Err(Cause::NotAllowed),
        3 | 4 => Err(Cause::Unreachable),
        5 => Err(Cause::Refused),
        6 => Err(Cause::TimedOut),
        _ => Err(Cause::Hop),
    })
}

async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    login: Option<&Login>,
    destination: &Destination,
) -> io::Result<Result<(), Cause>> {
    let login = login.map_or_else(String::new, |login| {
        format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(format!("{}:{}", login.name, login.token)))
    });
    let request = format!("CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n{login}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    // One byte at a time, because the bytes after the answer belong to the flow.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == CONNECT_BYTES_MAX {
            return Err(invalid("an answer that is too long"));
        }
        head.push(stream.read_u8().await?);
    }
    status(&head)
}

fn status(head: &[u8]) -> io::Result<Result<(), Cause>> {
    let mut fields = [httparse::EMPTY_HEADER; CONNECT_FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    response.parse(head).map_err(|_| invalid("no answer of HTTP"))?;
    Ok(match response.code {
        Some(200..=299) => Ok(()),
        Some(407) => Err(Cause::Unauthenticated),
        Some(403) => Err(Cause::NotAllowed),
        Some(502) => Err(Cause::Refused),
        Some(504) => Err(Cause::TimedOut),
        _ => Err(Cause::Hop),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Tokens;
    use crate::ways::{connect as http, socks5};
    use tokio::io::duplex;

    const ROOM_BYTES: usize = 4096;

    fn upstream(way: Protocol, token: &str) -> Upstream {
        let login = Some(Login { name: "ann".to_owned(), token: token.to_owned() });
        Upstream { address: "192.0.2.1:1080".parse().unwrap(), way, login }
    }

    /// The answer, and the destination that the proxy understood.
    async fn asked(
        way: Protocol,
        token: &str,
        to: &str,
        answer: Result<(), Cause>,
    ) -> (Result<(), Cause>, Option<String>) {
        let (mut client, mut server) = duplex(ROOM_BYTES);
        // The SHA-256 of "secret".
        let tokens: Tokens = "ann:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b".parse().unwrap();
        let proxy = async move {
            let opened = match way {
                Protocol::Socks5 => socks5::open(&mut server, Some(&tokens)).await.ok()?,
                Protocol::Connect => http::open(&mut server, Some(&tokens)).await.ok()?.0,
            };
            match way {
                Protocol::Socks5 => socks5::answer(&mut server, answer).await.ok()?,
                Protocol::Connect => http::answer(&mut server, answer).await.ok()?,
            }
            Some(opened.to_string())
        };
        let (upstream, to) = (upstream(way, token), to.parse().unwrap());
        let (asked, understood) = tokio::join!(ask(&mut client, &upstream, &to), proxy);
        (asked.map_err(|refusal| refusal.cause), understood)
    }

    #[tokio::test]
    async fn the_own_proxy_understands_the_requests() {
        for way in [Protocol::Socks5, Protocol::Connect] {
            for to in ["192.0.2.7:443", "[2001:db8::7]:8443", "data.example:80"] {
                assert_eq!(asked(way, "secret", to, Ok(())).await, (Ok(()), Some(to.to_owned())));
            }
        }
    }

    #[tokio::test]
    async fn a_refusal_keeps_its_cause() {
        for way in [Protocol::Socks5, Protocol::Connect] {
            for cause in [Cause::Refused, Cause::NotAllowed, Cause::TimedOut] {
                assert_eq!(asked(way, "secret", "192.0.2.7:443", Err(cause)).await.0, Err(cause));
            }
            assert_eq!(asked(way, "wrong", "192.0.2.7:443", Ok(())).await, (Err(Cause::Unauthenticated), None));
        }
    }

    #[test]
    fn a_token_is_not_in_debug_output() {
        assert!(!format!("{:?}", upstream(Protocol::Socks5, "hush")).contains("hush"));
    }
}
