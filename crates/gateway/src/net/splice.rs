//! Passes bytes from one socket to another inside the kernel, as a relay does with sealed bodies: no byte is copied.
//!
//! The kernel moves them through a pipe. A pipe belongs to one incoming connection, and is empty between two pieces.

use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::unistd::pipe2;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tradewind_wire::frame::DATA_BYTES_MAX;

/// Length of a pipe: the longest `Data` frame, if the kernel allows it. Otherwise it keeps its length, usually 64 KiB.
const PIPE_BYTES: usize = DATA_BYTES_MAX;
/// Shorter pipes are not used. A user who has many pipes (`pipe-user-pages-soft` of pipe(7)) gets new ones of two pages:
/// they move a body a packet or two at a time, which costs more than to copy it.
const PIPE_BYTES_MIN: usize = 64 << 10;

/// See the module's documentation.
pub struct Pipe {
    into: OwnedFd,
    out: OwnedFd,
    held: usize,
}

impl Pipe {
    /// Makes an empty pipe.
    ///
    /// # Errors
    /// The system has no file descriptors left, or gives this user short pipes only.
    pub(super) fn new() -> io::Result<Self> {
        let (out, into) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        // A user who has many pipes may not make them longer.
        let _ = fcntl(&into, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES as i32));
        let length = fcntl(&into, FcntlArg::F_GETPIPE_SZ)? as usize;
        if length < PIPE_BYTES_MIN {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(Self { into, out, held: 0 })
    }

    /// Returns the number of bytes in the pipe.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Moves at least one byte and at most `bytes_max` from the socket into the empty pipe. Returns how many; 0 at the
    /// end of the stream. Cancel-safe.
    pub(super) async fn fill(&mut self, from: &TcpStream, bytes_max: usize) -> io::Result<usize> {
        let into = self.into.as_fd();
        let moved = from
            .async_io(Interest::READABLE, || {
                let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
                Ok(splice(from.as_fd(), None, into, None, bytes_max, flags)?)
            })
            .await?;
        self.held += moved;
        Ok(moved)
    }

    /// Moves all bytes of the pipe to the socket. With `more`, the kernel may wait for further bytes before it sends
    /// the last packet.
    pub(super) async fn drain(&mut self, to: &TcpStream, more: bool) -> io::Result<()> {
        let mut flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
        flags.set(SpliceFFlags::SPLICE_F_MORE, more);
        while self.held > 0 {
            let (out, held) = (self.out.as_fd(), self.held);
            let moved =
                to.async_io(Interest::WRITABLE, || Ok(splice(out, None, to.as_fd(), None, held, flags)?)).await?;
            if moved == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.held -= moved;
        }
        Ok(())
    }
}
