//! Connections that a gateway opens to its owner and keeps open until the owner needs one.
//!
//! The gateway connects, both sides prove their identities with mutual TLS, and the connection is idle. From then on
//! the owner sends one byte at a time, and the gateway repeats it: [`PING`] checks whether the gateway still runs,
//! [`TAKE`] takes the connection. After a repeated `TAKE` it carries HTTP with the owner as the client, as if the owner
//! had dialled.

use crate::dial::dial;
use crate::limits::{ENROL_PAUSE, ENROL_PAUSE_MAX, IDLE_CALL_INTERVAL, IDLE_CALL_TIMEOUT};
use crate::tls::{self, Identity, TlsError};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc, oneshot};
use tradewind_contract::OWNER_NAME;

const PING: u8 = 0;
const TAKE: u8 = 1;

/// The gateway's side: connects, and retries with pauses, until the owner has taken a connection; returns that
/// connection.
pub(crate) async fn call(owner: &str, identity: &Identity) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut pause = ENROL_PAUSE;
    let mut last = String::new();
    loop {
        match call_once(owner, identity, &mut pause).await {
            Ok(stream) => return stream,
            Err(error) => {
                let error = error.to_string();
                if error != last {
                    tracing::warn!(owner, error, "no connection to the owner");
                }
                last = error;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(ENROL_PAUSE_MAX);
    }
}

async fn call_once(
    owner: &str,
    identity: &Identity,
    pause: &mut std::time::Duration,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, TlsError> {
    let mut stream = tls::connect(identity, OWNER_NAME, dial(owner).await?).await?;
    wait_taken(&mut stream, pause).await.map_err(TlsError::explain)?;
    Ok(stream)
}

/// Repeats the owner's bytes until the owner takes the connection. The first ping shows that the owner accepted the
/// gateway.
async fn wait_taken<S>(stream: &mut S, pause: &mut std::time::Duration) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let silence = IDLE_CALL_INTERVAL + IDLE_CALL_TIMEOUT;
        let byte =
            tokio::time::timeout(silence, stream.read_u8()).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))?;
        if byte != PING && byte != TAKE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not an owner's byte"));
        }
        *pause = ENROL_PAUSE;
        stream.write_u8(byte).await?;
        stream.flush().await?;
        if byte == TAKE {
            return Ok(());
        }
    }
}

/// The owner's side: callers that wait for a connection to one gateway, and idle connections that wait to be taken.
#[derive(Debug)]
pub struct Calls<S> {
    wanted: mpsc::Sender<oneshot::Sender<S>>,
    waiting: Arc<Mutex<mpsc::Receiver<oneshot::Sender<S>>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Calls<S> {
    /// Creates the connections of one gateway; at most `waiting_max` callers may wait at once.
    pub fn new(waiting_max: usize) -> Self {
        let (wanted, waiting) = mpsc::channel(waiting_max);
        Self { wanted, waiting: Arc::new(Mutex::new(waiting)) }
    }

    /// Takes an idle connection, or waits for one. The caller must limit the time.
    pub async fn take(&self) -> Option<S> {
        let (give, given) = oneshot::channel();
        self.wanted.send(give).await.ok()?;
        given.await.ok()
    }

    /// Keeps a connection until it is taken.
    ///
    /// # Errors
    /// The connection ended before, or the gateway did not answer in time.
    pub async fn keep(&self, mut stream: S) -> io::Result<()> {
        // The ping tells the gateway that it was accepted.
        ask(&mut stream, PING).await?;
        loop {
            let mut byte = [0];
            tokio::select! {
                read = stream.read(&mut byte) => {
                    return match read? {
                        0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the gateway closed its connection")),
                        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the gateway sent unexpected data")),
                    };
                }
                give = async { self.waiting.lock().await.recv().await } => {
                    let Some(give) = give else { return Ok(()) };
                    if give.is_closed() {
                        continue;
                    }
                    if let Err(error) = ask(&mut stream, TAKE).await {
                        // Another connection may still work.
                        drop(self.wanted.try_send(give));
                        return Err(error);
                    }
                    // If nobody waits any more, the connection ends here and the gateway calls again.
                    drop(give.send(stream));
                    return Ok(());
                }
                () = tokio::time::sleep(IDLE_CALL_INTERVAL) => ask(&mut stream, PING).await?,
            }
        }
    }
}

async fn ask<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, byte: u8) -> io::Result<()> {
    let asking = async {
        stream.write_u8(byte).await?;
        stream.flush().await?;
        match stream.read_u8().await? {
            answer if answer == byte => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the gateway answered something else")),
        }
    };
    tokio::time::timeout(IDLE_CALL_TIMEOUT, asking).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::DuplexStream;

    fn pair() -> (DuplexStream, DuplexStream) {
        tokio::io::duplex(64)
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_kept_for_hours_and_then_taken() {
        let calls = Calls::new(4);
        let (ours, mut theirs) = pair();
        let gateway = async {
            wait_taken(&mut theirs, &mut ENROL_PAUSE.clone()).await.unwrap();
            theirs.write_all(b"hello").await.unwrap();
        };
        let taking = async {
            tokio::time::sleep(std::time::Duration::from_secs(7200)).await;
            let mut taken: DuplexStream = calls.take().await.unwrap();
            let mut read = [0; 5];
            taken.read_exact(&mut read).await.unwrap();
            read
        };
        let (kept, (), read) = tokio::join!(calls.keep(ours), gateway, taking);
        assert_eq!((kept.is_ok(), &read), (true, b"hello"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_connection_is_noticed_and_the_next_one_is_taken() {
        let calls = Calls::new(4);
        let (dead, mut silent) = pair();
        let (good, mut answers) = pair();
        let gateway = async {
            // It repeats the first ping and then stops answering.
            assert_eq!(silent.read_u8().await.unwrap(), PING);
            silent.write_u8(PING).await.unwrap();
        };
        let (taken, ended, _, ()) = tokio::join!(
            async {
                tokio::time::sleep(IDLE_CALL_INTERVAL / 2).await;
                calls.take().await.is_some()
            },
            calls.keep(dead),
            async {
                tokio::time::sleep(IDLE_CALL_INTERVAL).await;
                let mut pause = ENROL_PAUSE;
                tokio::join!(calls.keep(good), wait_taken(&mut answers, &mut pause))
            },
            gateway,
        );
        assert!(taken);
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_drops_an_owner_that_is_silent_or_sends_something_else() {
        let (mut ours, _theirs) = pair();
        let silent = wait_taken(&mut ours, &mut ENROL_PAUSE.clone()).await;
        assert_eq!(silent.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let (mut ours, mut theirs) = pair();
        theirs.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let garbage = wait_taken(&mut ours, &mut ENROL_PAUSE.clone()).await;
        assert_eq!(garbage.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_closes_while_idle_ends() {
        let calls = Calls::new(1);
        let (ours, mut theirs) = pair();
        let gateway = async move {
            let byte = theirs.read_u8().await.unwrap();
            theirs.write_u8(byte).await.unwrap();
        };
        let (kept, ()) = tokio::join!(calls.keep(ours), gateway);
        assert_eq!(kept.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
