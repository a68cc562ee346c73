//! The TLS handshake between two proxies. rustls does it; this module carries its bytes.
//!
//! rustls gets one record at a time, and so none that follows the handshake: it would keep its answer to a key update, and
//! nobody would send that.

use crate::limits::HANDSHAKE_BYTES_MAX;
use crate::records::{HEADER_BYTES, Records};
use crate::sealed::Sealed;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, InsufficientSizeError, UnbufferedConnectionCommon, UnbufferedStatus,
};
use rustls::{ClientConfig, CommonState, Error, ExtractedSecrets, ServerConfig, SupportedCipherSuite};
use rustls_pki_types::{CertificateDer, ServerName};
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Most bytes of one read.
const READ_BYTES: usize = 4 << 10;

/// Dials: verifies the other side, and shows it the certificate of this one. The configuration must be for TLS 1.3 only, and
/// let secrets be extracted.
pub(crate) async fn connect(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    mut tcp: TcpStream,
) -> io::Result<Sealed> {
    let mut client = UnbufferedClientConnection::new(config, name).map_err(invalid)?;
    let rest = shake_hands(&mut *client, &mut tcp).await?;
    let (keys, secrets) = client.dangerous_into_kernel_connection().map_err(invalid)?;
    sealed(tcp, hand_over(rustls::Side::Client, keys, secrets), rest)
}

/// Accepts, and returns the certificates that the other side showed. The configuration is as for [`connect`].
pub(crate) async fn accept(
    config: Arc<ServerConfig>,
    mut tcp: TcpStream,
) -> io::Result<(Sealed, Vec<CertificateDer<'static>>)> {
    let mut server = UnbufferedServerConnection::new(config).map_err(invalid)?;
    let rest = shake_hands(&mut *server, &mut tcp).await?;
    let certificates = server.peer_certificates().unwrap_or_default().to_vec();
    let (keys, secrets) = server.dangerous_into_kernel_connection().map_err(invalid)?;
    Ok((sealed(tcp, hand_over(rustls::Side::Server, keys, secrets), rest)?, certificates))
}

fn hand_over<Data: Send + Sync + 'static>(
    side: rustls::Side,
    keys: ExtractedSecrets,
    secrets: KernelConnection<Data>,
) -> Result<Records, Error> {
    let SupportedCipherSuite::Tls13(suite) = secrets.negotiated_cipher_suite() else {
        return Err(Error::General("proxies need TLS 1.3".to_owned()));
    };
    Records::new(side, suite, keys, Box::new(secrets))
}

fn invalid(error: Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

/// The connection after its handshake. `rest` are the bytes that arrived with its end.
fn sealed(tcp: TcpStream, records: Result<Records, Error>, rest: Vec<u8>) -> io::Result<Sealed> {
    Sealed::new(tcp, records.map_err(invalid)?, rest).map_err(|fault| io::Error::new(ErrorKind::InvalidData, fault))
}

/// One side of a handshake.
trait Side: Deref<Target = CommonState> {
    type Data;
    fn process<'c, 'i>(&'c mut self, received: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Side for UnbufferedConnectionCommon<ClientConnectionData> {
    type Data = ClientConnectionData;
    fn process<'c, 'i>(&'c mut self, received: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(received)
    }
}

impl Side for UnbufferedConnectionCommon<ServerConnectionData> {
    type Data = ServerConnectionData;
    fn process<'c, 'i>(&'c mut self, received: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(received)
    }
}

enum Step {
    Again,
    Send,
    Receive,
    Traffic,
}

/// Bytes from the other side.
#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    /// The complete records at their start that rustls may read.
    given: usize,
}

impl Received {
    /// The bytes for rustls. It finds faults also in the start of a record whose end has not arrived.
    fn readable(&mut self) -> &mut [u8] {
        let end = if self.next_record().is_some() { self.given } else { self.bytes.len() };
        &mut self.bytes[..end]
    }

    /// The length of the next record, if it is complete.
    fn next_record(&self) -> Option<usize> {
        let rest = &self.bytes[self.given..];
        let length = HEADER_BYTES + usize::from(u16::from_be_bytes([*rest.get(3)?, *rest.get(4)?]));
        (length <= rest.len()).then_some(length)
    }

    fn discard(&mut self, bytes: usize) {
        self.bytes.drain(..bytes);
        self.given = self.given.saturating_sub(bytes);
    }
}

/// Returns the bytes that arrived after the handshake.
async fn shake_hands<S: Side>(side: &mut S, tcp: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut received, mut to_send) = (Received::default(), Vec::new());
    loop {
        match step(side, &mut received, &mut to_send) {
            Ok(Step::Again) => {}
            Ok(Step::Send) => {
                tcp.write_all(&to_send).await?;
                to_send.clear();
            }
            Ok(Step::Traffic) if !side.is_handshaking() => return Ok(received.bytes),
            Ok(Step::Receive | Step::Traffic) => match received.next_record() {
                Some(length) => received.given += length,
                None => receive(tcp, &mut received.bytes).await?,
            },
            Err(error) => {
                // rustls may have an alert that tells the peer the reason.
                if let Ok(ConnectionState::EncodeTlsData(mut alert)) = side.process(received.readable()).state {
                    encode(&mut alert, &mut to_send)?;
                }
                // The error matters, and not whether the peer learns it.
                let _ = tcp.write_all(&to_send).await;
                return Err(invalid(error));
            }
        }
    }
}

/// Lets rustls take the next step.
fn step<S: Side>(side: &mut S, received: &mut Received, to_send: &mut Vec<u8>) -> Result<Step, Error> {
    let UnbufferedStatus { discard, state } = side.process(received.readable());
    let step = match state? {
        ConnectionState::EncodeTlsData(mut data) => {
            encode(&mut data, to_send).map_err(|error| Error::General(error.to_string()))?;
            Step::Again
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Step::Send
        }
        ConnectionState::BlockedHandshake => Step::Receive,
        ConnectionState::WriteTraffic(_) => Step::Traffic,
        other => return Err(Error::General(format!("unexpected state of a handshake: {other:?}"))),
    };
    received.discard(discard);
    Ok(step)
}

fn encode<Data>(data: &mut EncodeTlsData<'_, Data>, to_send: &mut Vec<u8>) -> io::Result<()> {
    let start = to_send.len();
    if let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) = data.encode(&mut []) {
        to_send.resize(start + required_size, 0);
        data.encode(&mut to_send[start..]).map_err(io::Error::other)?;
    }
    Ok(())
}

async fn receive(tcp: &mut TcpStream, received: &mut Vec<u8>) -> io::Result<()> {
    if received.len() >= HANDSHAKE_BYTES_MAX {
        return Err(io::Error::new(ErrorKind::InvalidData, "the TLS handshake is too long"));
    }
    received.reserve(READ_BYTES);
    match tcp.read_buf(received).await? {
        0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "the other side closed within the TLS handshake")),
        _ => Ok(()),
    }
}
