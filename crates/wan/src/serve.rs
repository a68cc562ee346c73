//! One emulator from start to end: namespaces, guard, carrier and control socket, and the order in which they end.

use crate::control::{Request, World, refusal};
use crate::fault::Fault;
use crate::guard::Guard;
use crate::namespace;
use crate::network::Network;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit for a client to send its request, because others wait.
const REQUEST_WITHIN: Duration = Duration::from_secs(2);
/// Longest request, in bytes.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Longest network document, in bytes: 200 machines with a path between any two take 4 MB.
const NETWORK_BYTES_MAX: u64 = 64 << 20;

/// The options of an emulator.
pub struct Settings {
    /// The network document.
    pub network: PathBuf,
    /// Path of the control socket to make.
    pub control: PathBuf,
    /// End at the end of standard input.
    pub exit_with_stdin: bool,
}

/// Runs an emulator until it is stopped: by a request, by SIGTERM or SIGINT, or by the end of standard input.
///
/// Prints one line of JSON when the machines are ready.
pub fn run(settings: &Settings) -> Result<(), Fault> {
    let network = Network::from_json(&read_document(&settings.network)?)?;
    let listener = listen(&settings.control)?;
    let served = serve(network, &listener, settings.exit_with_stdin);
    // A missing socket means that no emulator runs.
    let _ = std::fs::remove_file(&settings.control);
    // The connection that requested the stop must close last, when this process ends.
    served.map(std::mem::forget)
}

fn serve(network: Network, listener: &UnixListener, exit_with_stdin: bool) -> Result<Option<UnixStream>, Fault> {
    // Before any thread starts, because threads inherit both the mask and the namespace.
    let signals = stop_signals()?;
    let namespaces = namespace::make_all(&network)?;
    let guard = Guard::start(&namespaces)?;
    let mut world = World::start(network, namespaces)?;
    let ready = world.describe()?;
    println!("{}", json!(ready));
    let asked = attend(&mut world, listener, &signals, exit_with_stdin);
    // Release the namespaces first: a process that enters one from now on notices it, and the guard sees those that
    // entered before.
    world.stop();
    guard.finish();
    asked
}

/// Answers requests until the emulator must end; returns the connection that requested the stop, if one did.
fn attend(
    world: &mut World,
    listener: &UnixListener,
    signals: &SignalFd,
    exit_with_stdin: bool,
) -> Result<Option<UnixStream>, Fault> {
    let stdin = std::io::stdin();
    loop {
        let mut watched =
            vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        if exit_with_stdin {
            watched.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut watched, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(Fault::failed(format!("poll: {}", error.desc()))),
        }
        let ready: Vec<bool> = watched.iter().map(|entry| entry.any().unwrap_or(true)).collect();
        if ready[1] || (ready.get(2) == Some(&true) && stdin.lock().read(&mut [0; 64]).unwrap_or(0) == 0) {
            return Ok(None);
        }
        if ready[0]
            && let Ok((connection, _)) = listener.accept()
            && let Some(connection) = converse(world, connection)
        {
            return Ok(Some(connection));
        }
    }
}

/// Handles one request. Returns the connection if the request is to stop.
///
/// A client that disconnects or sends nothing is dropped without an answer.
fn converse(world: &mut World, mut connection: UnixStream) -> Option<UnixStream> {
    connection.set_read_timeout(Some(REQUEST_WITHIN)).ok()?;
    connection.set_write_timeout(Some(REQUEST_WITHIN)).ok()?;
    let mut line = Vec::new();
    BufReader::new((&connection).take(REQUEST_BYTES_MAX)).read_until(b'\n', &mut line).ok()?;
    let answer = match serde_json::from_slice(&line) {
        Ok(Request::Stop {}) => return Some(connection),
        Ok(request) => world.answer(request),
        Err(error) => refusal(&Fault::usage(format!("the request: {error}"))),
    };
    let _ = connection.write_all(format!("{answer}\n").as_bytes());
    None
}

fn stop_signals() -> Result<SignalFd, Fault> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGTERM);
    mask.add(Signal::SIGINT);
    mask.add(Signal::SIGHUP);
    mask.thread_block()
        .and_then(|()| SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC))
        .map_err(|error| Fault::failed(format!("signals: {}", error.desc())))
}

fn listen(path: &Path) -> Result<UnixListener, Fault> {
    let failed = |error: std::io::Error| Fault::failed(format!("{}: {error}", path.display()));
    // The kernel accepts socket paths of up to 107 bytes, but the folder may be deeper.
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let folder = File::open(folder).map_err(failed)?;
    let name = path.file_name().ok_or_else(|| Fault::usage(format!("{}: not the path of a socket", path.display())))?;
    let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    if UnixStream::connect(&short).is_ok() {
        return Err(Fault::failed(format!("{}: another emulator already listens there", path.display())));
    }
    // A stale socket of an emulator that was killed.
    let _ = std::fs::remove_file(path);
    UnixListener::bind(short).map_err(failed)
}

fn read_document(path: &Path) -> Result<String, Fault> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| Fault::usage(format!("{}: {error}", path.display())))?;
    file.take(NETWORK_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| Fault::usage(format!("{}: {error}", path.display())))?;
    Ok(text)
}
