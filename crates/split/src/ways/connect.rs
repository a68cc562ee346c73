//! The HTTP method CONNECT (RFC 9110, section 9.3.6) over HTTP/1.

use crate::destination::Destination;
use crate::limits::{CONNECT_BYTES_MAX, CONNECT_FIELDS_MAX};
use crate::refusal::{Cause, Refusal};
use crate::token::Tokens;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A parsed request.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the flow goes.
    pub destination: Destination,
    /// Name and token, if the client sent them.
    pub login: Option<(String, Vec<u8>)>,
    /// Bytes of the request, with the empty line at its end.
    pub length: usize,
}

impl Request {
    /// Parses the start of a connection. `None`: the request is not complete.
    ///
    /// # Errors
    /// It is another method or malformed, or has too many fields.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, String> {
        let mut fields = [httparse::EMPTY_HEADER; CONNECT_FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        let httparse::Status::Complete(length) = request.parse(bytes).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        if request.method != Some("CONNECT") {
            return Err("a method other than CONNECT".to_owned());
        }
        let mut logins = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("proxy-authorization"));
        let login = logins.next().and_then(|field| login(field.value));
        if logins.next().is_some() {
            return Err("two logins".to_owned());
        }
        Ok(Some(Self { destination: request.path.unwrap_or_default().parse()?, login, length }))
    }
}

fn login(value: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = str::from_utf8(value).ok()?.split_once(' ')?;
    let decoded = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(encoded.trim()).ok())??;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let name = str::from_utf8(&decoded[..colon]).ok()?;
    Some((name.to_owned(), decoded[colon + 1..].to_vec()))
}

/// Reads a request and checks its login. Returns the destination, and the bytes that came after the request. With
/// `tokens`, the client must know one of them.
///
/// # Errors
/// The client broke the protocol or did not authenticate. It has got its answer.
pub(crate) async fn open<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    tokens: Option<&Tokens>,
) -> Result<(Destination, Vec<u8>), Refusal> {
    let opened = read(stream).await.and_then(|(request, rest)| {
        let known = |tokens: &Tokens| request.login.is_some_and(|(name, token)| tokens.accept(&name, &token));
        if tokens.is_none_or(known) {
            Ok((request.destination, rest))
        } else {
            Err(Refusal::new(Cause::Unauthenticated, "a wrong name or token, or none"))
        }
    });
    if let Err(refusal) = &opened {
        // The client may be gone already; there is nobody else to tell.
        let _ = answer(stream, Err(refusal.cause)).await;
    }
    opened
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<(Request, Vec<u8>), Refusal> {
    let mut bytes = Vec::with_capacity(CONNECT_BYTES_MAX);
    loop {
        let malformed = |text| Refusal::new(Cause::Malformed, text);
        // The capacity may be larger than what was asked for.
        let room = CONNECT_BYTES_MAX.saturating_sub(bytes.len()) as u64;
        let count = stream.take(room).read_buf(&mut bytes).await.map_err(|error| Refusal::of_read(&error))?;
        if let Some(request) = Request::parse(&bytes).map_err(malformed)? {
            let rest = bytes.split_off(request.length);
            return Ok((request, rest));
        }
        if count == 0 {
            return Err(malformed("the request ends early or is too large".to_owned()));
        }
    }
}

/// Sends the status.
pub(crate) async fn answer(stream: &mut (impl AsyncWrite + Unpin), answer: Result<(), Cause>) -> std::io::Result<()> {
    let head = match answer.map_err(status) {
        Ok(()) => "HTTP/1.1 200 Connection established\r\n\r\n".to_owned(),
        Err((code, reason)) => {
            let ask = if code == 407 { "Proxy-Authenticate: Basic realm=\"proxy\"\r\n" } else { "" };
            format!("HTTP/1.1 {code} {reason}\r\n{ask}Connection: close\r\nContent-Length: 0\r\n\r\n")
        }
    };
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await
}

fn status(cause: Cause) -> (u16, &'static str) {
    match cause {
        Cause::Malformed => (400, "Bad Request"),
        Cause::NotAllowed => (403, "Forbidden"),
        Cause::Unauthenticated => (407, "Proxy Authentication Required"),
        Cause::Limit => (503, "Service Unavailable"),
        Cause::TimedOut => (504, "Gateway Timeout"),
        Cause::Refused | Cause::Unreachable | Cause::NameNotFound | Cause::Route | Cause::Hop | Cause::Broken => {
            (502, "Bad Gateway")
        }
    }
}
