//! Moves the bytes of one flow in both directions, until both are closed or one side breaks.
//!
//! Both directions run in one task. A direction reads only after everything read before is written, so that it holds
//! at most one buffer. Buffers belong to the thread and not to the connection: an idle connection holds none. While blocked
//! flows hold many bytes, each direction reads little, and TLS seals no more before its sealed bytes are with the kernel.

use crate::buffers::{Held, is_scarce};
use crate::conn::Conn;
use crate::limits::{
    HALF_CLOSED_CHECK_INTERVAL, KEEPALIVE_FROM, RELAY_ROUNDS_MAX, SCARCE_READ_BYTES, TLS_BUFFER_BYTES,
};
use crate::pace::{DirectionPace, FlowPace};
use crate::pending::{Filled, Pending};
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// The end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides closed.
    Closed,
    /// One side was reset or broke; the other side was reset.
    Reset,
    /// No byte for the idle timeout; both sides were reset.
    Idle,
    /// Another proxy kept the connection ready, and no flow came.
    Unused,
}

/// Bytes moved by flows, from clients and to clients.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    pub(crate) up: AtomicU64,
    pub(crate) down: AtomicU64,
}

#[derive(Default)]
struct Direction {
    pending: Option<Pending>,
    unflushed: bool,
    /// At least the bytes that TLS has sealed and that wait for the kernel, if some do.
    sealed: usize,
    held: Held,
    source_closed: bool,
    /// Why the source broke, after the bytes that it still gave.
    broke: Option<io::Error>,
    closed: bool,
    moved: bool,
    began: bool,
    /// Runs until more may be read, if a limit of the client or of the destination is used up.
    paced: Option<Pin<Box<Sleep>>>,
}

impl Direction {
    /// A direction that first writes `bytes`.
    fn starting_with(bytes: Vec<u8>) -> Self {
        Self { pending: Pending::all(bytes), ..Self::default() }
    }

    /// Moves bytes until the direction is closed, and counts those that it holds. `last`: the other direction is closed.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Conn,
        to: &mut Conn,
        count: &AtomicU64,
        pace: &DirectionPace,
        last: bool,
    ) -> Poll<io::Result<()>> {
        let polled = self.poll_move(cx, from, to, count, pace, last);
        if !to.has_sealed() {
            self.sealed = 0;
        }
        let buffer = self.pending.as_ref().map_or(0, Pending::held);
        self.held.set(from.partial_bytes() + buffer + self.sealed.min(TLS_BUFFER_BYTES));
        polled
    }

    fn poll_move(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Conn,
        to: &mut Conn,
        count: &AtomicU64,
        pace: &DirectionPace,
        last: bool,
    ) -> Poll<io::Result<()>> {
        for _ in 0..RELAY_ROUNDS_MAX {
            if self.closed {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_write(cx, to, count))?;
            if let Some(error) = self.broke.take() {
                return Poll::Ready(Err(error));
            }
            if self.source_closed {
                if !(last && to.ends_when_dropped()) {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                }
                self.closed = true;
                self.moved = true;
                return Poll::Ready(Ok(()));
            }
            let mut most = pace.read_bytes_max().min(from.read_bytes_max());
            if is_scarce() {
                ready!(self.poll_flush(cx, to))?;
                most = most.min(SCARCE_READ_BYTES);
            }
            if self.is_paced(cx) || self.poll_read(cx, from, pace, most).is_pending() {
                ready!(self.poll_flush(cx, to))?;
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>, to: &mut Conn) -> Poll<io::Result<()>> {
        if self.unflushed {
            ready!(Pin::new(to).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, to: &mut Conn, count: &AtomicU64) -> Poll<io::Result<()>> {
        while let Some(pending) = &mut self.pending {
            let written = ready!(to.poll_write_pending(cx, pending, self.source_closed))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            count.fetch_add(written as u64, Ordering::Relaxed);
            pending.advance(written);
            self.sealed = self.sealed.saturating_add(written);
            (self.moved, self.unflushed, self.began) = (true, true, true);
            if pending.is_empty() {
                self.pending = None;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Waits while a limit of the client or of the destination is used up. Such a wait is not idle.
    fn is_paced(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(paced) = &mut self.paced else { return false };
        if paced.as_mut().poll(cx).is_pending() {
            self.moved = true;
            return true;
        }
        self.paced = None;
        false
    }

    /// Reads what is there, up to `most` bytes, and the end if it is there, too: then both can be passed on in one packet.
    fn poll_read(&mut self, cx: &mut Context<'_>, from: &mut Conn, pace: &DirectionPace, most: usize) -> Poll<()> {
        let Filled { data, end } = ready!(from.poll_fill(cx, most));
        self.pending = data;
        if let Some(pending) = &self.pending {
            self.paced = pace.book(pending.len()).map(|until| Box::pin(sleep_until(until.into())));
        }
        match end {
            None => {}
            Some(Ok(())) => self.source_closed = true,
            Some(Err(error)) => self.broke = Some(error),
        }
        Poll::Ready(())
    }
}

/// Runs a flow to its end. `prefix` has the bytes that the client sent before its request was answered. `began` is called
/// when the client gets its first byte. `pace` has the limits of its client and its destination.
pub(crate) async fn relay(
    mut client: Conn,
    mut far: Conn,
    prefix: Vec<u8>,
    bytes: &Bytes,
    pace: &FlowPace,
    idle: Duration,
    began: impl FnOnce(),
) -> End {
    // Until both directions are closed, the end of this task or process may lose bytes, so it must not look orderly.
    client.reset_when_dropped(true);
    far.reset_when_dropped(true);
    let (mut up, mut down) = (Direction::starting_with(prefix), Direction::default());
    let mut timer = pin!(sleep(idle.min(KEEPALIVE_FROM)));
    let (begun, mut kept_alive) = (Instant::now(), false);
    let (mut up_first, mut began, mut checking) = (true, Some(began), None);
    let end = poll_fn(|cx| {
        // Both take turns at being first: together they may use up the task's budget.
        up_first = !up_first;
        let mut closed = true;
        for turn in [up_first, !up_first] {
            let polled = match turn {
                true => up.poll(cx, &mut client, &mut far, &bytes.up, &pace.up, down.closed),
                false => down.poll(cx, &mut far, &mut client, &bytes.down, &pace.down, up.closed),
            };
            match polled {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(End::Reset),
                Poll::Pending => closed = false,
            }
        }
        if let Some(began) = began.take_if(|_| down.began) {
            began();
        }
        if closed {
            return Poll::Ready(End::Closed);
        }
        let half_closed = [(up.closed, &client, &far), (down.closed, &far, &client)].into_iter().find(|side| side.0);
        if let Some((_, side, other)) = half_closed
            && checking.get_or_insert_with(HalfClosed::new).poll_reset(cx, side, other).is_ready()
        {
            return Poll::Ready(End::Reset);
        }
        if !kept_alive && timer.as_mut().poll(cx).is_ready() {
            kept_alive = true;
            far.keep_alive();
            timer.as_mut().reset(begun + idle);
        }
        poll_idle(cx, timer.as_mut(), &mut [&mut up.moved, &mut down.moved], idle)
    })
    .await;
    if end == End::Closed {
        client.reset_when_dropped(false);
        far.reset_when_dropped(false);
    }
    end
}

/// A flow of which one side has closed its direction.
struct HalfClosed {
    checking: Pin<Box<Sleep>>,
    /// The side that has closed is broken since.
    is_broken: bool,
}

impl HalfClosed {
    fn new() -> Self {
        Self { checking: Box::pin(sleep(HALF_CLOSED_CHECK_INTERVAL)), is_broken: false }
    }

    /// Returns when `side`, which has closed its direction, is found broken, and `other` has got all its bytes and their
    /// end: a reset would take them away from it.
    fn poll_reset(&mut self, cx: &mut Context<'_>, side: &Conn, other: &Conn) -> Poll<()> {
        while self.checking.as_mut().poll(cx).is_ready() {
            self.is_broken = self.is_broken || side.is_broken();
            if self.is_broken && !other.has_unacknowledged() {
                return Poll::Ready(());
            }
            self.checking.as_mut().reset(Instant::now() + HALF_CLOSED_CHECK_INTERVAL);
        }
        Poll::Pending
    }
}

/// Ends a flow in which nothing moved for a whole period. The timer runs on while bytes move, and is not set for each
/// of them: so a flow ends after one to two periods.
fn poll_idle(
    cx: &mut Context<'_>,
    mut timer: Pin<&mut Sleep>,
    moved: &mut [&mut bool; 2],
    idle: Duration,
) -> Poll<End> {
    while timer.as_mut().poll(cx).is_ready() {
        if !moved.iter().any(|moved| **moved) {
            return Poll::Ready(End::Idle);
        }
        moved.iter_mut().for_each(|moved| **moved = false);
        timer.as_mut().reset(Instant::now() + idle);
    }
    Poll::Pending
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use crate::limits::KEEPALIVE_TIME;
    use crate::pace::Paces;
    use socket2::SockRef;
    use std::os::fd::{AsFd, OwnedFd};
    use tokio::net::{TcpListener, TcpStream};

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (one, other) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (one.unwrap(), other.unwrap().0)
    }

    /// Relays between two pairs whose outer ends `are_open`; returns the end, and the socket to the destination.
    async fn relayed(are_open: bool) -> (End, OwnedFd) {
        let ((outer_client, client), (far, outer_far)) = (pair().await, pair().await);
        let socket = far.as_fd().try_clone_to_owned().unwrap();
        let outer = are_open.then_some((outer_client, outer_far));
        let (bytes, idle) = (Bytes::default(), 2 * KEEPALIVE_FROM);
        let unlimited = || Paces::new(None).of((), std::time::Instant::now());
        let pace = FlowPace::new(unlimited(), unlimited());
        let end = relay(Conn::Plain(client), Conn::Plain(far), Vec::new(), &bytes, &pace, idle, || {}).await;
        drop(outer);
        (end, socket)
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_of_a_flow_that_is_not_short_is_kept_alive() {
        let (end, socket) = relayed(true).await;
        let socket = SockRef::from(&socket);
        assert_eq!(end, End::Idle);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_TIME);
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_flow_is_spared_the_system_calls_of_keepalive() {
        let (end, socket) = relayed(false).await;
        assert_eq!((end, SockRef::from(&socket).keepalive().unwrap()), (End::Closed, false));
    }
}
