//! The owner's process, from start to end.

use super::fleet::Fleet;
use super::{admin, home, renewal, tunnel};
use crate::endings::Endings;
use crate::enrol::Registrar;
use crate::identity::{self, FleetCa, IdentityError};
use crate::limits::{CONNECTIONS_AT_EXIT_TIMEOUT, FLEET_CA_LIFE, FLEET_ID_CHARS_MAX, IDENTITY_LIFE, IDENTITY_S_MIN};
use crate::names::is_label;
use crate::tls::{Identity, Strangers, TlsError, machine_clock};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tradewind_contract::{CONTRACT_VERSION, OwnerReady};

/// Folder of the gateways' sockets, within the fleet's folder.
const SOCKETS: &str = "control";
/// The admin socket, within the fleet's folder.
const ADMIN_SOCKET: &str = "owner.sock";
/// Folder of the CA's key, within the fleet's folder, if the key is kept.
const KEPT_CA: &str = "ca";

/// The options of `owner`.
#[derive(Clone, Debug, clap::Args)]
pub struct OwnerArgs {
    /// Id of the fleet: 1 to 64 of a-z, 0-9 and -
    #[arg(long, value_name = "ID")]
    pub fleet: String,
    /// The fleet's private folder, for owner.sock and for control/NAME of each gateway
    #[arg(long, value_name = "DIR")]
    pub folder: PathBuf,
    /// Address for gateways that call home (port 0 for any free one); without it, none can
    #[arg(long, value_name = "IP:PORT")]
    pub home: Option<SocketAddr>,
    /// Validity of identities; they are renewed after half of that time [s]
    #[arg(long, value_name = "SECONDS", default_value_t = IDENTITY_LIFE.as_secs() as u32,
        value_parser = clap::value_parser!(u32).range(i64::from(IDENTITY_S_MIN)..=IDENTITY_LIFE.as_secs() as i64))]
    pub identity_s: u32,
    /// Keep the CA's key in the folder, so that another owner can take over the fleet
    #[arg(long)]
    pub keep_ca: bool,
    /// End when standard input ends
    #[arg(long)]
    pub exit_with_stdin: bool,
}

/// Why an owner did not start.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// The fleet's id is invalid.
    #[error("{0:?} is not the id of a fleet")]
    Fleet(String),
    /// A socket could not be made, or the folder could not be entered.
    #[error("cannot listen at {place}: {source}")]
    Listen {
        /// The socket or folder.
        place: String,
        /// The system's error.
        source: io::Error,
    },
    /// The CA could not be made or read.
    #[error(transparent)]
    Ca(#[from] IdentityError),
    /// The owner's identity could not be made.
    #[error(transparent)]
    Identity(#[from] TlsError),
    /// Another system call failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl OwnerError {
    /// One line of advice.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Fleet(_) => "an id has 1 to 64 characters of a-z, 0-9 and -",
            Self::Listen { .. } => {
                "check that the folder exists and is yours, and that the address belongs to this machine"
            }
            Self::Ca(_) | Self::Identity(_) => "check that the fleet's folder is yours, and that the disk is not full",
            Self::Io(_) => "check the machine's limits of files and memory",
        }
    }
}

/// An owner whose port is bound.
pub struct BoundOwner {
    args: OwnerArgs,
    home: Option<TcpListener>,
}

impl BoundOwner {
    /// Enters the fleet's folder and binds the port. From then on the paths of sockets are short, whatever the folder's
    /// path. Call this while the process has one thread.
    ///
    /// # Errors
    /// See [`OwnerError`].
    pub fn new(args: &OwnerArgs) -> Result<Self, OwnerError> {
        if !is_label(&args.fleet, FLEET_ID_CHARS_MAX) {
            return Err(OwnerError::Fleet(args.fleet.clone()));
        }
        let no_folder = |source| OwnerError::Listen { place: args.folder.display().to_string(), source };
        std::env::set_current_dir(&args.folder).map_err(no_folder)?;
        make_private(Path::new(SOCKETS)).map_err(no_folder)?;
        let bind = |address: SocketAddr| {
            let bound =
                TcpListener::bind(address).and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
            bound.map_err(|source| OwnerError::Listen { place: address.to_string(), source })
        };
        Ok(Self { args: args.clone(), home: args.home.map(bind).transpose()? })
    }

    /// Serves until the end, on the current runtime.
    ///
    /// # Errors
    /// See [`OwnerError`].
    pub async fn run(self) -> Result<ExitCode, OwnerError> {
        let Self { args, home } = self;
        let mut endings = Endings::new(args.exit_with_stdin)?;
        let (fleet, ca_pem) = own(&args)?;
        let admin_socket = tunnel::bind(Path::new(ADMIN_SOCKET))
            .map_err(|source| OwnerError::Listen { place: ADMIN_SOCKET.to_owned(), source })?;
        let home_address = home.as_ref().map(TcpListener::local_addr).transpose()?;
        let mut serving = tokio::task::JoinSet::new();
        serving.spawn(admin::accept_all(fleet.clone(), admin_socket));
        serving.spawn(renewal::keep_own_fresh(fleet.clone()));
        if let Some(listener) = home {
            serving.spawn(home::accept_all(fleet.clone(), tokio::net::TcpListener::from_std(listener)?));
        }
        say_ready(&OwnerReady {
            gateway: env!("CARGO_PKG_VERSION").to_owned(),
            contract: CONTRACT_VERSION,
            ca_pem,
            home: home_address.map(|address| address.to_string()),
        });
        let reason = endings.first().await;
        tracing::info!(reason, "ending");
        serving.abort_all();
        tokio::select! {
            ended = tokio::time::timeout(CONNECTIONS_AT_EXIT_TIMEOUT, fleet.end()) => {
                if ended.is_err() {
                    tracing::warn!("control connections still open at exit");
                }
                tunnel::remove(Path::new(ADMIN_SOCKET));
                Ok(ExitCode::SUCCESS)
            }
            code = endings.second() => Ok(code),
        }
    }
}

/// The fleet with its CA, new or kept, and the CA's certificate.
fn own(args: &OwnerArgs) -> Result<(Arc<Fleet>, String), OwnerError> {
    let (ca, ca_pem) = if args.keep_ca {
        identity::kept_or_new(Path::new(KEPT_CA), SystemTime::now(), FLEET_CA_LIFE)?
    } else {
        let ca = FleetCa::new(SystemTime::now(), FLEET_CA_LIFE)?;
        let pem = ca.certificate()?.pem();
        (ca, pem)
    };
    let ca_der = CertificateDer::from_pem_slice(ca_pem.as_bytes())
        .map_err(|error| TlsError::Identity(format!("the CA's certificate is invalid: {error}")))?;
    let (clock, life) = (machine_clock(), Duration::from_secs(args.identity_s.into()));
    let registrar = Registrar::new(args.fleet.clone(), ca, clock.clone(), life)?;
    let (certificate, key) = renewal::new_own(&registrar)?;
    let identity = Identity::with(ca_der, certificate, key.key_der(), Strangers::Accepted, clock)?;
    Ok((Arc::new(Fleet::new(registrar, Arc::new(identity), life, PathBuf::from(SOCKETS))), ca_pem))
}

fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Prints the one line on stdout. If its reader has closed the pipe, nobody waits for the line.
fn say_ready(ready: &OwnerReady) {
    let mut stdout = io::stdout().lock();
    let said = serde_json::to_writer(&mut stdout, ready)
        .map_err(io::Error::from)
        .and_then(|()| stdout.write_all(b"\n"))
        .and_then(|()| stdout.flush());
    if let Err(error) = said {
        tracing::warn!(%error, "nobody reads the readiness line");
    }
}
