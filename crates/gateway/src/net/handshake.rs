//! Turns a byte stream into a connection: TLS, Hello both ways, then the record layer takes over.
//!
//! The connecting side sends its Hello first, waits for the other Hello, and then sends a ping at once. The accepting
//! side sends nothing between its Hello and that first ping. So neither side's TLS library has read a byte too many
//! when its keys pass to our record layer.
//!
//! Either end of a hop may connect; the Hello says which end its sender is.

use super::frames::{FrameReader, FrameWriter, Incoming};
use super::link::Link;
use super::record::{Opener, Sealer};
use super::stream::{ReadSide, WriteSide};
use crate::tls::{self, TlsError};
use std::io;
use std::time::Duration;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tradewind_wire::WIRE_VERSION_MAJOR;
use tradewind_wire::frame::{Frame, FrameError, HEADER_BYTES, Header, Hello, HopEnd, Kind};
use tradewind_wire::intake::Intake;

pub use crate::tls::Security;

/// Time limit for TLS and Hello; then the peer is dropped.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a connection ended or could not be made.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// End of the stream.
    #[error("closed by the peer")]
    Closed,
    /// No data for too long.
    #[error("silent for {0} s")]
    Silent(u64),
    /// The peer broke the protocol.
    #[error(transparent)]
    Protocol(#[from] FrameError),
    /// The other side is not the expected peer.
    #[error("{0}")]
    Peer(String),
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// TLS failed.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl ConnectionError {
    /// Returns the error without the operating system's number for it.
    pub fn reason(&self) -> String {
        match self {
            Self::Io(error) => error.to_string().split(" (os error ").next().unwrap_or_default().to_lowercase(),
            other => other.to_string(),
        }
    }
}

/// A connection after both Hellos.
pub struct Connection {
    /// The other gateway's name; with TLS the one in its certificate.
    pub peer: String,
    /// The end of the hop that the peer is.
    pub peer_end: HopEnd,
    /// Reads frames.
    pub reader: FrameReader,
    /// Writes frames.
    pub writer: FrameWriter,
}

impl Connection {
    /// Sends a Hello to the gateway `peer` on a stream that this gateway opened.
    pub async fn open(
        link: Link,
        security: &Security,
        hello: Hello,
        peer: &str,
    ) -> Result<Connection, ConnectionError> {
        in_time(async {
            let mut connection = match security {
                Security::Plain => {
                    let mut link = link;
                    let theirs = exchange(&mut link, &hello, Turn::First).await?;
                    check(&theirs, &hello, peer)?;
                    plain(theirs, link)
                }
                Security::Tls(identity) => {
                    let mut stream = tls::connect(identity, peer, link).await?;
                    let theirs = exchange(&mut stream, &hello, Turn::First).await?;
                    check(&theirs, &hello, peer)?;
                    let (link, session) = stream.into_inner();
                    sealed(theirs, link, rustls::Connection::Client(session))?
                }
            };
            connection.writer.frame(&Frame::Ping(0)).await?;
            Ok(connection)
        })
        .await
    }

    /// Waits for the Hello of a gateway that connected. If the Hello belongs to this job, answers as the opposite end.
    pub async fn accept(link: Link, security: &Security, hello: Hello) -> Result<Connection, ConnectionError> {
        in_time(async {
            let mut connection = match security {
                Security::Plain => {
                    let mut link = link;
                    let theirs = exchange(&mut link, &hello, Turn::Second).await?;
                    plain(theirs, link)
                }
                Security::Tls(identity) => {
                    let (mut stream, name) = tls::accept(identity, link).await?;
                    let theirs = exchange(&mut stream, &hello, Turn::Second).await?;
                    check(&theirs, &hello, &name)?;
                    let (link, session) = stream.into_inner();
                    sealed(theirs, link, rustls::Connection::Server(session))?
                }
            };
            if connection.peer_end == HopEnd::Downstream {
                // This side sends next, but must not do so before the peer's first ping.
                connection.wait_for_ping().await?;
            }
            Ok(connection)
        })
        .await
    }

    async fn wait_for_ping(&mut self) -> Result<(), ConnectionError> {
        match self.reader.next().await? {
            Incoming::Frame(Frame::Ping(_)) => Ok(()),
            _ => Err(ConnectionError::Peer("the peer did not begin with a ping".to_owned())),
        }
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, ConnectionError>>) -> Result<T, ConnectionError> {
    tokio::time::timeout(HELLO_TIMEOUT, work).await.unwrap_or(Err(ConnectionError::Silent(HELLO_TIMEOUT.as_secs())))
}

#[derive(PartialEq)]
enum Turn {
    First,
    Second,
}

async fn exchange<S>(stream: &mut S, ours: &Hello, turn: Turn) -> Result<Hello, ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if turn == Turn::First {
        send_hello(stream, ours).await?;
    }
    let theirs = read_hello(stream).await?;
    if theirs.job != ours.job {
        return Err(ConnectionError::Peer(format!(
            "the peer serves job {:?}, this gateway serves {:?}",
            theirs.job, ours.job
        )));
    }
    match turn {
        Turn::First if theirs.end == ours.end => {
            return Err(ConnectionError::Peer("the peer claims our end of the hop".to_owned()));
        }
        Turn::First => {}
        Turn::Second => send_hello(stream, &Hello { end: theirs.end.opposite(), ..ours.clone() }).await?,
    }
    Ok(theirs)
}

async fn send_hello<S: AsyncWrite + Unpin>(stream: &mut S, hello: &Hello) -> Result<(), ConnectionError> {
    let mut bytes = Vec::new();
    Frame::Hello(hello.clone()).encode(&mut bytes);
    stream.write_all(&bytes).await?;
    Ok(stream.flush().await?)
}

async fn read_hello<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Hello, ConnectionError> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await.map_err(refused)?;
    let header = Header::parse(&header)?;
    if header.kind != Kind::Hello {
        return Err(FrameError::Unexpected(header.kind, "before the hello").into());
    }
    let mut payload = vec![0; header.length];
    stream.read_exact(&mut payload).await.map_err(refused)?;
    match Frame::parse(&header, payload.into())? {
        Frame::Hello(hello) => Ok(hello),
        _ => Err(FrameError::Unexpected(header.kind, "before the hello").into()),
    }
}

/// In TLS 1.3 a client that is refused finds out at its first read.
fn refused(error: io::Error) -> ConnectionError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ConnectionError::Closed,
        _ => TlsError::explain(error).into(),
    }
}

fn check(theirs: &Hello, ours: &Hello, peer: &str) -> Result<(), ConnectionError> {
    debug_assert_eq!(ours.version, WIRE_VERSION_MAJOR);
    if theirs.node != peer {
        return Err(ConnectionError::Peer(format!("the peer calls itself {:?}, it should be {peer:?}", theirs.node)));
    }
    Ok(())
}

fn plain(theirs: Hello, link: Link) -> Connection {
    let (read, write) = link.into_halves();
    Connection {
        peer: theirs.node,
        peer_end: theirs.end,
        reader: FrameReader::new(ReadSide::new(read, None), Intake::greeted()),
        writer: FrameWriter::new(WriteSide::new(write, None)),
    }
}

fn sealed(theirs: Hello, link: Link, session: rustls::Connection) -> Result<Connection, ConnectionError> {
    let secrets = session.dangerous_extract_secrets().map_err(|error| ConnectionError::Io(io::Error::other(error)))?;
    let opener = Opener::new(secrets.rx.0, &secrets.rx.1)?;
    let sealer = Sealer::new(secrets.tx.0, &secrets.tx.1)?;
    let (read, write) = link.into_halves();
    Ok(Connection {
        peer: theirs.node,
        peer_end: theirs.end,
        reader: FrameReader::new(ReadSide::new(read, Some(opener)), Intake::greeted()),
        writer: FrameWriter::new(WriteSide::new(write, Some(sealer))),
    })
}
