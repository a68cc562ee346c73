//! SOCKS5: RFC 1928 with the command CONNECT, and names and passwords as RFC 1929 has them.

use crate::destination::{Destination, Host};
use crate::refusal::{Cause, Refusal};
use crate::token::Tokens;
use std::net::{IpAddr, Ipv4Addr};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const VERSION: u8 = 5;
const LOGIN_VERSION: u8 = 1;
const NO_LOGIN: u8 = 0;
const LOGIN: u8 = 2;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const TO_IPV4: u8 = 1;
const TO_NAME: u8 = 3;
const TO_IPV6: u8 = 4;

/// The replies of RFC 1928, section 6, that are used.
const SUCCEEDED: u8 = 0;
const FAILURE: u8 = 1;
const NOT_ALLOWED: u8 = 2;
const HOST_UNREACHABLE: u8 = 4;
const REFUSED: u8 = 5;
const TTL_EXPIRED: u8 = 6;
const COMMAND_UNKNOWN: u8 = 7;
const ADDRESS_UNKNOWN: u8 = 8;

/// Agrees on a login with a client, checks it, and reads its request. It reads nothing after the request. With
/// `tokens`, the client must know one of them.
///
/// # Errors
/// The client broke the protocol or did not authenticate. It has got its answer.
pub async fn open<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    tokens: Option<&Tokens>,
) -> Result<Destination, Refusal> {
    let greeted = greet(stream, tokens).await;
    greeted.map_err(|error| Refusal::of_read(&error))??;
    let requested = read_request(stream).await;
    match requested.map_err(|error| Refusal::of_read(&error))? {
        Ok(destination) => Ok(destination),
        Err((code, text)) => {
            // The client may be gone already; there is nobody else to tell.
            let _ = write_reply(stream, code).await;
            Err(Refusal::new(Cause::Malformed, text))
        }
    }
}

async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    tokens: Option<&Tokens>,
) -> std::io::Result<Result<(), Refusal>> {
    let malformed = || Ok(Err(Refusal::new(Cause::Malformed, "no greeting of SOCKS5")));
    let [version, methods] = array(stream).await?;
    if version != VERSION {
        return malformed();
    }
    let methods = bytes(stream, methods).await?;
    let method = if tokens.is_some() { LOGIN } else { NO_LOGIN };
    if !methods.contains(&method) {
        stream.write_all(&[VERSION, NO_METHOD]).await?;
        return Ok(Err(Refusal::new(Cause::Unauthenticated, "the client does not offer the login that is needed")));
    }
    stream.write_all(&[VERSION, method]).await?;
    let Some(tokens) = tokens else { return Ok(Ok(())) };
    let [version, length] = array(stream).await?;
    if version != LOGIN_VERSION {
        return malformed();
    }
    let name = bytes(stream, length).await?;
    let [length] = array(stream).await?;
    let token = bytes(stream, length).await?;
    let accepted = str::from_utf8(&name).is_ok_and(|name| tokens.accept(name, &token));
    stream.write_all(&[LOGIN_VERSION, u8::from(!accepted)]).await?;
    let stranger = || Refusal::new(Cause::Unauthenticated, "a wrong name or token");
    Ok(if accepted { Ok(()) } else { Err(stranger()) })
}

type Requested = Result<Destination, (u8, &'static str)>;

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Requested> {
    let [version, command, _reserved, form] = array(stream).await?;
    if version != VERSION {
        return Ok(Err((FAILURE, "no request of SOCKS5")));
    }
    let host = match form {
        TO_IPV4 => Some(Host::Address(IpAddr::from(array::<4>(stream).await?))),
        TO_IPV6 => Some(Host::Address(IpAddr::from(array::<16>(stream).await?).to_canonical())),
        TO_NAME => {
            let [length] = array(stream).await?;
            let name = bytes(stream, length).await?;
            // Some clients send addresses as names.
            str::from_utf8(&name).ok().and_then(|name| name.parse().ok())
        }
        _ => return Ok(Err((ADDRESS_UNKNOWN, "an unknown form of address"))),
    };
    let port = u16::from_be_bytes(array(stream).await?);
    if command != CONNECT {
        return Ok(Err((COMMAND_UNKNOWN, "a command other than CONNECT")));
    }
    let destination = host.and_then(|host| Destination::new(host, port).ok());
    Ok(destination.ok_or((FAILURE, "no destination")))
}

async fn array<const BYTES: usize>(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<[u8; BYTES]> {
    let mut array = [0; BYTES];
    stream.read_exact(&mut array).await?;
    Ok(array)
}

async fn bytes(stream: &mut (impl AsyncRead + Unpin), count: u8) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; count.into()];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Sends the reply. The address in it is left unspecified: it would be one of the exit.
pub(crate) async fn answer(stream: &mut (impl AsyncWrite + Unpin), answer: Result<(), Cause>) -> std::io::Result<()> {
    write_reply(stream, answer.map_or_else(code, |()| SUCCEEDED)).await
}

async fn write_reply(stream: &mut (impl AsyncWrite + Unpin), code: u8) -> std::io::Result<()> {
    let address = Ipv4Addr::UNSPECIFIED.octets();
    let reply = [&[VERSION, code, 0, TO_IPV4], &address[..], &[0, 0]].concat();
    stream.write_all(&reply).await?;
    stream.flush().await
}

fn code(cause: Cause) -> u8 {
    match cause {
        Cause::NotAllowed | Cause::Unauthenticated => NOT_ALLOWED,
        Cause::Refused => REFUSED,
        Cause::Unreachable | Cause::NameNotFound => HOST_UNREACHABLE,
        Cause::TimedOut => TTL_EXPIRED,
        Cause::Malformed | Cause::Limit | Cause::Route | Cause::Hop | Cause::Broken => FAILURE,
    }
}
