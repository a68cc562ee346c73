//! `tradewind-gateway serve`: one gateway, from its sockets to its end.
//!
//! Sockets are bound before the first thread starts. So a wrong address is reported at once, and the socket file is
//! made under a file mode mask that no other thread can see.
//!
//! The gateway ends on a signal, at the end of standard input (`--exit-with-stdin`: its starter is gone), or when its
//! lease expires (`--lease-s`: nobody renewed it), or shortly before the cloud takes its machine back (`--notice-s`). The node is then drained, the last events are read, and the socket
//! file is removed. A second signal ends the process at once.

use crate::alive::SignsOfLife;
use crate::control::gateway::{Equipment, Gateway};
use crate::control::lease::{self, Lease};
use crate::control::notice::Notice;
use crate::control::runner::Runner;
use crate::control::server::{Listener, Server};
use crate::endings::Endings;
use crate::enrol::{Candidate, JoinError};
use crate::join::{self, NotJoined};
use crate::join_again;
use crate::limits::{DRAIN_AT_EXIT_TIMEOUT, LEASE_S_MAX, NOTICE_S_MAX};
use crate::net::never_pace_loopback;
use crate::stores::{DelegatedStores, RealStores, Stores};
use crate::tls::{Identity, TlsError, machine_clock};
use socket2::SockRef;
use std::fmt;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tradewind_contract::{CONTRACT_VERSION, Join, JoinControl, OWNER_NAME, Ready};

/// The options of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Join document with fleet, token and addresses; `-` reads it from the first line of standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["control", "data", "identity", "plain", "controllers"])]
    pub join: Option<PathBuf>,
    /// Address of the control API: `unix:PATH`, or `IP:PORT` (mutual TLS; port 0 for any free one)
    #[arg(long, value_name = "unix:PATH|IP:PORT", required_unless_present = "join")]
    pub control: Option<ControlAddress>,
    /// Address for other gateways (port 0 for any free one)
    #[arg(long, value_name = "IP:PORT")]
    pub data: Option<SocketAddr>,
    /// Folder with ca.pem, cert.pem and key.pem, as written by `identity`
    #[arg(long, value_name = "DIR", conflicts_with = "plain")]
    pub identity: Option<PathBuf>,
    /// Use no TLS; the control API then answers on the loopback interface only
    #[arg(long)]
    pub plain: bool,
    /// Identity that may control this gateway over TCP; can be given more than once
    #[arg(long = "controller", value_name = "NAME", default_value = "lead")]
    pub controllers: Vec<String>,
    /// End when standard input ends
    #[arg(long)]
    pub exit_with_stdin: bool,
    /// End after this time unless `POST /v1/lease` extends it [s]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=i64::from(LEASE_S_MAX)))]
    pub lease_s: Option<u32>,
    /// Write the uptime at which the lease expires to this file, for a timer that ends the machine
    #[arg(long, value_name = "FILE", requires = "lease_s")]
    pub lease_file: Option<PathBuf>,
    /// Give signs of life in this folder, which must be in memory, for `alive`
    #[arg(long, value_name = "DIR")]
    pub alive_dir: Option<PathBuf>,
    /// Let a split proxy raise the machine's maxima of TCP buffers, as root; they stay until the machine reboots
    #[arg(long)]
    pub raise_tcp_buffers: bool,
    /// Uptime at which the machine began to run its boot script, for the owner, who asks how machines start [s]
    #[arg(long, value_name = "SECONDS", value_parser = uptime_in_words)]
    pub booted_s: Option<Duration>,
    /// Time from the cloud's notice (SIGUSR1) until it takes the machine back: the gateway says so, works on, and
    /// drains shortly before [s]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=i64::from(NOTICE_S_MAX)))]
    pub notice_s: Option<u32>,
}

/// Address of the control API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlAddress {
    /// A socket file.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

impl FromStr for ControlAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("unix: needs a path".to_owned()),
            Some(path) => Ok(Self::Unix(PathBuf::from(path))),
            None => text.parse().map(Self::Tcp).map_err(|_| "neither unix:PATH nor IP:PORT".to_owned()),
        }
    }
}

impl fmt::Display for ControlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A TCP port without certificates.
    #[error("{0} would answer every process")]
    Unprotected(SocketAddr),
    /// The control API in clear text, reachable from the network.
    #[error("the control API is never served in clear text beyond this machine, and {0} is not a loopback address")]
    PlainBeyondLoopback(SocketAddr),
    /// The identity cannot be used.
    #[error(transparent)]
    Identity(#[from] TlsError),
    /// A gateway already listens at that socket.
    #[error("another process already listens at {}", .0.display())]
    SocketTaken(PathBuf),
    /// Something else exists at that path.
    #[error("{} exists and is not a socket", .0.display())]
    NoSocket(PathBuf),
    /// A socket could not be made.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The join document cannot be used.
    #[error(transparent)]
    Document(#[from] JoinError),
    /// The gateway could not join its fleet.
    #[error(transparent)]
    Join(#[from] NotJoined),
    /// Another system call failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl ServeError {
    /// One line of advice.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unprotected(_) => "give --identity DIR, or --plain to do without TLS",
            Self::PlainBeyondLoopback(_) => "give --identity DIR, or listen at 127.0.0.1 or a unix: socket",
            Self::Identity(_) => "make identities with `tradewind-gateway identity`",
            Self::SocketTaken(_) | Self::NoSocket(_) => "choose another path",
            Self::Listen { .. } => {
                "check that the address belongs to this machine, the port is free, and the path is short and writable"
            }
            Self::Document(_) => "the fleet's owner makes the document; a token works for minutes",
            Self::Join(_) => "check that the owner runs and that the addresses in the join document are its own",
            Self::Io(_) => "check the machine's limits of files and memory",
        }
    }
}

/// A gateway whose sockets are bound.
pub struct Bound {
    control: BoundControl,
    equipment: Equipment,
    controllers: Arc<[String]>,
    exit_with_stdin: bool,
    lease: Option<LeaseArgs>,
    notice_s: Option<u32>,
    signs: Option<SignsOfLife>,
}

/// The lease of the command line. It starts when the gateway serves.
struct LeaseArgs {
    length: Duration,
    file: Option<PathBuf>,
}

impl LeaseArgs {
    fn of(args: &ServeArgs) -> Option<Self> {
        let length = Duration::from_secs(args.lease_s?.into());
        Some(Self { length, file: args.lease_file.clone() })
    }

    fn begin(self) -> io::Result<Lease> {
        match self.file {
            Some(file) => Lease::with_file(self.length, file),
            None => Ok(Lease::new(self.length)),
        }
    }
}

enum BoundControl {
    Unix(UnixListener, SocketFile),
    Plain(TcpListener),
    Tls(TcpListener, Arc<Identity>),
    /// The gateway has no identity yet, and gets one from an owner that dials.
    Joining(TcpListener, Candidate),
    /// The gateway has no identity yet, and gets one from the owner at this address.
    Calling(String, Candidate),
    /// Like `Calling`, with a socket on this machine for control.
    Beside(UnixListener, SocketFile, String, Candidate),
}

/// Removes the socket file when the gateway ends.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(%error, path = %self.0.display(), "the socket file stays behind");
        }
    }
}

impl Bound {
    /// Checks the arguments and binds the sockets. Call this while the process has one thread.
    ///
    /// # Errors
    /// See [`ServeError`]; nothing is left behind then.
    pub fn new(args: &ServeArgs) -> Result<Self, ServeError> {
        if let Some(path) = &args.join {
            return Self::joining(&join::read_document(path)?, args);
        }
        let control = args.control.as_ref().ok_or_else(|| io::Error::other("neither --control nor --join"))?;
        let identity = args.identity.as_deref().map(Identity::load).transpose()?.map(Arc::new);
        let tcp_control = match control {
            ControlAddress::Tcp(address) => Some(*address),
            ControlAddress::Unix(_) => None,
        };
        if identity.is_none() {
            if let Some(address) = tcp_control.into_iter().chain(args.data).find(|_| !args.plain) {
                return Err(ServeError::Unprotected(address));
            }
            if let Some(address) = tcp_control.filter(|address| !address.ip().is_loopback()) {
                return Err(ServeError::PlainBeyondLoopback(address));
            }
        }
        let data_listener = args.data.map(bind_data_port).transpose()?;
        let control = match (control, &identity) {
            (ControlAddress::Unix(path), _) => {
                let (listener, file) = listen_unix(path)?;
                BoundControl::Unix(listener, file)
            }
            (ControlAddress::Tcp(address), None) => BoundControl::Plain(bind_tcp(*address)?),
            (ControlAddress::Tcp(address), Some(identity)) => BoundControl::Tls(bind_tcp(*address)?, identity.clone()),
        };
        let equipment = Equipment {
            identity,
            plain: args.plain,
            data_listener,
            raise_tcp_buffers: args.raise_tcp_buffers,
            ..Equipment::default()
        };
        let controllers = args.controllers.clone().into();
        Self::with(args, control, equipment, controllers)
    }

    fn with(
        args: &ServeArgs,
        control: BoundControl,
        equipment: Equipment,
        controllers: Arc<[String]>,
    ) -> Result<Self, ServeError> {
        let booted =
            args.booted_s.map(|at| lease::uptime().map(|now| Instant::now().checked_sub(now.saturating_sub(at))));
        let equipment = Equipment { booted: booted.transpose()?.flatten(), ..equipment };
        let (exit_with_stdin, notice_s) = (args.exit_with_stdin, args.notice_s);
        let signs = args.alive_dir.as_deref().map(SignsOfLife::new).transpose()?;
        Ok(Self { control, equipment, controllers, exit_with_stdin, lease: LeaseArgs::of(args), notice_s, signs })
    }

    fn joining(document: &Join, args: &ServeArgs) -> Result<Self, ServeError> {
        let candidate = Candidate::new(document, machine_clock())?;
        let address = |text: &str| {
            text.parse().map_err(|_| JoinError::Document(format!("{text:?} is not an address of the form ip:port")))
        };
        let data_listener = document.data.as_deref().map(|text| bind_data_port(address(text)?)).transpose()?;
        let control = match &document.control {
            JoinControl::Listen { address: text } => BoundControl::Joining(bind_tcp(address(text)?)?, candidate),
            JoinControl::Call { owner } => BoundControl::Calling(owner.clone(), candidate),
            JoinControl::Beside { owner, socket } => {
                let (listener, file) = listen_unix(Path::new(socket))?;
                BoundControl::Beside(listener, file, owner.clone(), candidate)
            }
        };
        // A gateway beside the owner can use the credentials of the owner's machine.
        let stores = match control {
            BoundControl::Beside(..) => None,
            _ => Some(Arc::new(DelegatedStores::default())),
        };
        let equipment = Equipment { data_listener, stores, ..Equipment::default() };
        let controllers = [OWNER_NAME.to_owned()].into();
        let join = (!args.exit_with_stdin).then(|| join_again::template(document));
        let equipment = Equipment { join, raise_tcp_buffers: args.raise_tcp_buffers, ..equipment };
        Self::with(args, control, equipment, controllers)
    }

    /// The stores that the gateway's programs may open.
    pub fn stores(&self) -> Arc<dyn Stores> {
        match &self.equipment.stores {
            Some(stores) => stores.clone(),
            None => Arc::new(RealStores),
        }
    }

    /// Serves until the end, on the current runtime. Prints its addresses before it has joined its fleet, because the
    /// owner needs them.
    ///
    /// # Errors
    /// The system refused signal handlers or sockets, or the gateway could not join its fleet.
    pub async fn run(self, runner: impl Runner) -> Result<ExitCode, ServeError> {
        let Self { control, equipment, controllers, exit_with_stdin, lease, notice_s, signs } = self;
        // It ends with the runtime.
        let _giving = signs.map(|signs| tokio::spawn(signs.keep_giving()));
        let mut endings = Endings::new(exit_with_stdin)?;
        let lease = lease.map(LeaseArgs::begin).transpose()?;
        let notice = notice_s.map(|given_s| Notice::new(Duration::from_secs(given_s.into()))).transpose()?;
        say_ready(&Ready {
            control: control.address()?,
            data_address: equipment.data_address()?.map(|address| address.to_string()),
            gateway: env!("CARGO_PKG_VERSION").to_owned(),
            contract: CONTRACT_VERSION,
        });
        let addresses = (control.address()?, equipment.data_address()?);
        let joined = tokio::select! {
            joined = control.into_listener() => joined?,
            reason = endings.first() => {
                tracing::info!(reason, "ending before it joined its fleet");
                return Ok(ExitCode::SUCCESS);
            }
            () = lapsed(lease.as_ref()) => {
                tracing::info!("the lease lapsed before it joined its fleet");
                return Ok(ExitCode::SUCCESS);
            }
        };
        let (listener, identity, _socket_file) = joined;
        let identity = identity.or(equipment.identity);
        let gateway = Arc::new(Gateway::new(Box::new(runner), Equipment { identity, lease, notice, ..equipment })?);
        let server = Server::start(listener, gateway.clone(), controllers);
        let (reason, again) = tokio::select! {
            reason = endings.first() => (reason, None),
            () = lapsed(gateway.lease()) => ("the lease lapsed", None),
            () = gateway.is_taken_back() => ("the cloud takes the machine back", None),
            join = gateway.joins_again() => ("it joins its fleet again", Some(join)),
        };
        tracing::info!(reason, "ending");
        let mut leaving = std::pin::pin!(async {
            let drained = tokio::time::timeout(DRAIN_AT_EXIT_TIMEOUT, gateway.end()).await;
            server.stop().await;
            drained
        });
        if let Some(join) = again {
            tokio::select! {
                biased;
                reason = endings.first() => tracing::info!(reason, "ending for good"),
                _ = &mut leaving => {
                    let length = gateway.lease().map(Lease::left);
                    return Err(join_again::replace_process(&join_again::at(join, addresses), length).into());
                }
            }
        }
        tokio::select! {
            drained = leaving => Ok(match drained {
                Ok(()) => ExitCode::SUCCESS,
                Err(_elapsed) => {
                    tracing::warn!("the node was still draining after {DRAIN_AT_EXIT_TIMEOUT:?}");
                    ExitCode::FAILURE
                }
            }),
            code = endings.second() => Ok(code),
        }
    }
}

/// Reads an uptime as /proc/uptime has it.
fn uptime_in_words(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "not a number of seconds".to_owned())
}

async fn lapsed(lease: Option<&Lease>) {
    match lease {
        Some(lease) => lease.lapsed().await,
        None => std::future::pending().await,
    }
}

/// The control listener, the identity if it was just obtained, and the file to remove at the end.
type Listening = (Listener, Option<Arc<Identity>>, Option<SocketFile>);

impl BoundControl {
    /// The address for the readiness line; `None` for a gateway that calls home.
    fn address(&self) -> io::Result<Option<String>> {
        match self {
            Self::Unix(_, file) | Self::Beside(_, file, ..) => {
                Ok(Some(ControlAddress::Unix(file.0.clone()).to_string()))
            }
            Self::Plain(listener) | Self::Tls(listener, _) | Self::Joining(listener, _) => {
                Ok(Some(ControlAddress::Tcp(listener.local_addr()?).to_string()))
            }
            Self::Calling(..) => Ok(None),
        }
    }

    /// Returns the listener of the control API, once the gateway has an identity.
    async fn into_listener(self) -> Result<Listening, ServeError> {
        let tcp = tokio::net::TcpListener::from_std;
        match self {
            Self::Unix(listener, file) => {
                Ok((Listener::Unix(tokio::net::UnixListener::from_std(listener)?), None, Some(file)))
            }
            Self::Plain(listener) => Ok((Listener::Plain(tcp(listener)?), None, None)),
            Self::Tls(listener, identity) => Ok((Listener::Tls(tcp(listener)?, identity), None, None)),
            Self::Joining(listener, candidate) => {
                let listener = tcp(listener)?;
                let identity = Arc::new(join::by_owner(candidate, &listener).await?);
                Ok((Listener::Tls(listener, identity.clone()), Some(identity), None))
            }
            Self::Calling(owner, candidate) => {
                let identity = Arc::new(join::by_call(&candidate, &owner).await?);
                Ok((Listener::Home(owner, identity.clone()), Some(identity), None))
            }
            Self::Beside(listener, file, owner, candidate) => {
                let identity = Arc::new(join::by_call(&candidate, &owner).await?);
                Ok((Listener::Unix(tokio::net::UnixListener::from_std(listener)?), Some(identity), Some(file)))
            }
        }
    }
}

fn bind_data_port(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let listener = bind_tcp(address)?;
    never_pace_loopback(SockRef::from(&listener), address.ip());
    Ok(listener)
}

fn bind_tcp(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let bound = TcpListener::bind(address).and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    bound.map_err(|source| ServeError::Listen { address: address.to_string(), source })
}

/// Listens on a socket file that only this user may open. Replaces a stale one on which nobody listens.
fn listen_unix(path: &Path) -> Result<(UnixListener, SocketFile), ServeError> {
    remove_stale_socket(path)?;
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = bound.map_err(|source| ServeError::Listen { address: path.display().to_string(), source })?;
    let file = SocketFile(path.to_owned());
    listener.set_nonblocking(true)?;
    Ok((listener, file))
}

fn remove_stale_socket(path: &Path) -> Result<(), ServeError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(ServeError::Listen { address: path.display().to_string(), source }),
        Ok(found) if !found.file_type().is_socket() => Err(ServeError::NoSocket(path.to_owned())),
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(std::fs::remove_file(path)?),
            _ => Err(ServeError::SocketTaken(path.to_owned())),
        },
    }
}

/// Prints the one line on stdout. If its reader has closed the pipe, nobody waits for the line.
fn say_ready(ready: &Ready) {
    let mut stdout = io::stdout().lock();
    let said = serde_json::to_writer(&mut stdout, ready)
        .map_err(io::Error::from)
        .and_then(|()| stdout.write_all(b"\n"))
        .and_then(|()| stdout.flush());
    if let Err(error) = said {
        tracing::warn!(%error, "nobody reads the readiness line");
    }
}
