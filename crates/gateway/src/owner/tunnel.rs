//! One Unix socket per gateway: each connection to it is forwarded to the gateway, byte for byte.

use super::fleet::{Fleet, Member};
use super::reach::{Stream, reach};
use crate::limits::{ACCEPT_RETRY_PAUSE, TUNNEL_BUFFER_BYTES, TUNNEL_LINGER, TUNNELS_PER_GATEWAY_MAX};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// Makes a socket file that only its owner may open, replacing a stale one. The folder is private, so nobody else
/// reaches the file before its mode is set.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    remove(path);
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Removes a socket file. A missing one is not an error.
pub(super) fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, path = %path.display(), "the socket file stays behind");
    }
}

/// Accepts until the gateway is removed. Connections beyond [`TUNNELS_PER_GATEWAY_MAX`] wait in the backlog.
pub(super) async fn accept_all(fleet: Arc<Fleet>, member: Arc<Member>, listener: UnixListener) {
    let places = Arc::new(Semaphore::new(TUNNELS_PER_GATEWAY_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, _)) => {
                let (fleet, member) = (fleet.clone(), member.clone());
                fleet.tasks.clone().spawn(async move {
                    let _place = place;
                    member.stop.run_until_cancelled(carry(&fleet, &member, client)).await
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a control connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
            }
        }
    }
}

async fn carry(fleet: &Fleet, member: &Member, client: UnixStream) {
    // If the gateway cannot be reached, the connection is closed; the gateway's state has the reason.
    let Ok(gateway) = reach(fleet, member).await else { return };
    if let Err(error) = join(client, gateway).await {
        tracing::debug!(gateway = member.name, %error, "control connection ended");
    }
}

/// Copies both ways until both ends have closed. After the client has closed, the gateway has [`TUNNEL_LINGER`] to do
/// so.
async fn join(client: UnixStream, gateway: Box<dyn Stream>) -> io::Result<()> {
    let (mut client_reads, mut client_writes) = client.into_split();
    let (mut gateway_reads, mut gateway_writes) = tokio::io::split(gateway);
    let mut answers = std::pin::pin!(copy(&mut gateway_reads, &mut client_writes));
    tokio::select! {
        answered = &mut answers => return answered,
        asked = copy(&mut client_reads, &mut gateway_writes) => asked?,
    }
    tokio::time::timeout(TUNNEL_LINGER, answers).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
}

async fn copy(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let mut buffer = vec![0; TUNNEL_BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
        to.flush().await?;
    }
}
