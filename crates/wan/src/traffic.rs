//! A traffic generator: as much TCP traffic as possible over any number of connections, measured at the receiver.
//!
//! The sender opens data connections and one control connection. For each byte on the latter, the sink answers how many
//! bytes it has received so far, and the time on its own clock. So bytes still in queues do not count, and round trips
//! do not matter.

use crate::fault::Fault;
use clap::Subcommand;
use nix::sys::socket::{setsockopt, sockopt};
use nix::{setsockopt_impl, sockopt_impl};
use serde_json::json;
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Most connections of one sender, and most concurrent connections of one sink.
pub const CONNECTIONS_MAX: usize = 1024;
/// Bytes per write or read.
const PIECE_BYTES: usize = 256 << 10;
/// Interval at which a blocked sender checks whether it must end.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Longest wait for a connection or an answer, on the worst networks.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval between attempts to connect to a sink that does not listen yet.
const DIAL_EVERY: Duration = Duration::from_millis(100);
/// Longest time for these attempts.
const DIAL_FOR: Duration = Duration::from_secs(5);
/// First byte of a data connection. Control connections begin with another one.
const DATA: u8 = b'd';
const QUESTION: u8 = b'q';
/// Length of an answer: bytes and nanoseconds, little-endian.
const ANSWER_BYTES: usize = 16;

// The macro refers to its helper macros by their plain names.
sockopt_impl!(
    /// Largest window that a connection advertises (`TCP_WINDOW_CLAMP` of tcp(7)).
    WindowClamp,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_WINDOW_CLAMP,
    u32
);

/// One end of the traffic.
#[derive(Debug, Subcommand)]
pub enum End {
    /// Receive until killed
    Sink {
        /// Address to listen on; port 0 for a free one, which is printed
        #[arg(long, value_name = "IP:PORT")]
        listen: SocketAddr,
        /// Maximum receive window of each connection [default: the kernel's autotuning]
        #[arg(long, value_name = "BYTES")]
        window: Option<u32>,
    },
    /// Send, and print how much arrived
    Send {
        /// Address of the sink
        #[arg(long, value_name = "IP:PORT")]
        to: SocketAddr,
        /// Parallel connections
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=CONNECTIONS_MAX as i64))]
        connections: u16,
        /// Duration of the measurement
        #[arg(long, value_name = "S", default_value_t = 10.0)]
        seconds: f64,
        /// Warm-up: time to send before the measurement
        #[arg(long, value_name = "S", default_value_t = 3.0)]
        warmup: f64,
        /// Congestion control [default: that of the machine]
        #[arg(long, value_name = "NAME")]
        congestion_control: Option<String>,
    },
    /// Send requests to a sink, and print their round-trip times
    Ping {
        /// Address of the sink
        #[arg(long, value_name = "IP:PORT")]
        to: SocketAddr,
        /// Number of requests
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        count: u32,
        /// Pause between an answer and the next request
        #[arg(long, value_name = "S", default_value_t = 0.1)]
        interval: f64,
    },
}

/// Runs one end.
pub fn run(end: &End) -> Result<(), Fault> {
    match end {
        End::Sink { listen, window } => sink(*listen, *window),
        End::Send { to, connections, seconds, warmup, congestion_control } => {
            let sender = SenderSettings {
                to: *to,
                connections: usize::from(*connections),
                measured: duration(*seconds)?,
                warmup: duration(*warmup)?,
                control: congestion_control.as_ref().map(OsString::from),
            };
            send(&sender)
        }
        End::Ping { to, count, interval } => ping(*to, *count, duration(*interval)?),
    }
}

fn duration(seconds: f64) -> Result<Duration, Fault> {
    Duration::try_from_secs_f64(seconds).map_err(|_| Fault::usage(format!("{seconds} is not a duration")))
}

fn sink(listen: SocketAddr, window: Option<u32>) -> Result<(), Fault> {
    let failed = |error: std::io::Error| Fault::failed(format!("{listen}: {error}"));
    let listener = TcpListener::bind(listen).map_err(failed)?;
    // Connections inherit the limit, so it applies from their first packet.
    clamp(&listener, window).map_err(failed)?;
    println!("{}", json!({"listening": listener.local_addr().map_err(failed)?}));
    let (received, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let open = Arc::new(AtomicUsize::new(0));
    for connection in listener.incoming() {
        let connection = connection.map_err(failed)?;
        if open.load(Ordering::Relaxed) > CONNECTIONS_MAX {
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (received, open) = (Arc::clone(&received), Arc::clone(&open));
        thread::spawn(move || {
            // The other end is gone, which is a normal end.
            let _ = receive(connection, window, &received, began);
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
    Ok(())
}

fn receive(
    mut connection: TcpStream,
    window: Option<u32>,
    received: &AtomicU64,
    began: Instant,
) -> std::io::Result<()> {
    let mut kind = [0];
    connection.read_exact(&mut kind)?;
    if kind[0] == QUESTION {
        connection.set_nodelay(true)?;
        while connection.read(&mut kind)? > 0 {
            let mut answer = [0; ANSWER_BYTES];
            answer[..8].copy_from_slice(&received.load(Ordering::Relaxed).to_le_bytes());
            answer[8..].copy_from_slice(&(began.elapsed().as_nanos() as u64).to_le_bytes());
            connection.write_all(&answer)?;
        }
        return Ok(());
    }
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        match connection.read(&mut buffer)? {
            0 => return Ok(()),
            bytes => received.fetch_add(bytes as u64, Ordering::Relaxed),
        };
        // The kernel resets the limit when it recalculates the size of a buffer.
        clamp(&connection, window)?;
    }
}

/// Limits the receive window of a connection, or of all connections that a listener will accept.
fn clamp(socket: &impl AsFd, window: Option<u32>) -> std::io::Result<()> {
    window.map_or(Ok(()), |bytes| Ok(setsockopt(socket, WindowClamp, &bytes)?))
}

struct SenderSettings {
    to: SocketAddr,
    connections: usize,
    measured: Duration,
    warmup: Duration,
    control: Option<OsString>,
}

fn send(settings: &SenderSettings) -> Result<(), Fault> {
    let failed = |error: std::io::Error| Fault::failed(format!("{}: {error}", settings.to));
    let mut question = connect(settings, QUESTION).map_err(failed)?;
    question.set_nodelay(true).map_err(failed)?;
    question.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    // Senders end when the last strong reference to `stop` is dropped, or at once when one of them fails.
    let (failure, failures) = channel();
    let stop = Arc::new(());
    for _ in 0..settings.connections {
        let connection = connect(settings, DATA).map_err(failed)?;
        let (failure, stop) = (failure.clone(), Arc::downgrade(&stop));
        thread::spawn(move || pump(connection, &stop, &failure));
    }
    wait(&failures, settings.warmup).map_err(failed)?;
    let (bytes_before, ns_before) = ask(&mut question).map_err(failed)?;
    wait(&failures, settings.measured).map_err(failed)?;
    let (bytes_after, ns_after) = ask(&mut question).map_err(failed)?;
    drop(stop);
    let (bytes, seconds) = (bytes_after - bytes_before, (ns_after - ns_before) as f64 / 1e9);
    let mbps = bytes as f64 * 8e-6 / seconds;
    println!(
        "{}",
        json!({"connections": settings.connections, "seconds": shown(seconds), "bytes": bytes, "mbps": shown(mbps)})
    );
    Ok(())
}

fn ping(to: SocketAddr, count: u32, interval: Duration) -> Result<(), Fault> {
    let failed = |error: std::io::Error| Fault::failed(format!("{to}: {error}"));
    let mut question = dial(to).map_err(failed)?;
    question.set_nodelay(true).map_err(failed)?;
    question.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    question.write_all(&[QUESTION]).map_err(failed)?;
    let mut rtts_ms = Vec::new();
    for _ in 0..count {
        let asked = Instant::now();
        ask(&mut question).map_err(failed)?;
        rtts_ms.push(asked.elapsed().as_secs_f64() * 1e3);
        thread::park_timeout(interval);
    }
    rtts_ms.sort_by(f64::total_cmp);
    println!(
        "{}",
        json!({
            "count": count,
            "min_ms": shown(rtts_ms[0]),
            "median_ms": shown(rtts_ms[rtts_ms.len() / 2]),
            "max_ms": shown(rtts_ms[rtts_ms.len() - 1]),
        })
    );
    Ok(())
}

/// Rounds to thousandths: a microsecond of a round trip, a kilobit per second of a rate.
fn shown(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn connect(settings: &SenderSettings, kind: u8) -> std::io::Result<TcpStream> {
    let mut connection = dial(settings.to)?;
    if let Some(control) = &settings.control {
        setsockopt(&connection, sockopt::TcpCongestion, control)?;
    }
    // Discard unsent bytes at the end: they would disturb the next measurement.
    setsockopt(&connection, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
    connection.write_all(&[kind])?;
    Ok(connection)
}

/// Connects. Retries while the connection is refused, because a sink that has just started may not listen yet.
fn dial(to: SocketAddr) -> std::io::Result<TcpStream> {
    let began = Instant::now();
    loop {
        match TcpStream::connect_timeout(&to, PATIENCE) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && began.elapsed() < DIAL_FOR => {
                thread::park_timeout(DIAL_EVERY);
            }
            done => return done,
        }
    }
}

fn pump(mut connection: TcpStream, stop: &std::sync::Weak<()>, failure: &Sender<std::io::Error>) {
    let piece = vec![0x5a; PIECE_BYTES];
    let mut sent = connection.set_write_timeout(Some(LOOK_EVERY)).map(|()| 0);
    while stop.strong_count() > 0 {
        if let Err(error) = sent
            && !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
        {
            // Nobody listens once the measurement is over.
            let _ = failure.send(error);
            return;
        }
        sent = connection.write(&piece);
    }
}

/// Waits for `time`; fails early if a connection fails.
fn wait(failures: &std::sync::mpsc::Receiver<std::io::Error>, time: Duration) -> std::io::Result<()> {
    match failures.recv_timeout(time) {
        Ok(error) => Err(error),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(()),
    }
}

/// Returns how many bytes the sink has received, and when, by its clock.
fn ask(question: &mut TcpStream) -> std::io::Result<(u64, u64)> {
    question.write_all(&[0])?;
    let mut answer = [0; ANSWER_BYTES];
    question.read_exact(&mut answer)?;
    let (bytes, ns) = answer.split_at(8);
    let number = |half: &[u8]| u64::from_le_bytes(half.try_into().unwrap_or_default());
    Ok((number(bytes), number(ns)))
}
