//! Runs a split-TCP proxy (`tradewind_split`) as a process of its own, with the identity of this gateway.

use crate::endings::Endings;
use crate::tls::{self, Identity, TlsError};
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::CertificateDer;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tradewind_split::limits::CONFIG_BYTES_MAX;
use tradewind_split::tls::HopTls;
use tradewind_split::{Config, Proxy, SplitError};

/// Why a split proxy did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The configuration cannot be read.
    #[error("configuration {path}: {reason}")]
    Config {
        /// The file.
        path: String,
        /// The fault.
        reason: String,
    },
    /// The proxy refuses it.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// The identity cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The operating system refused something.
    #[error("the proxy cannot start: {0}")]
    Io(#[from] io::Error),
}

impl StartError {
    /// The remedy, for the user.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Config { .. } => "correct the configuration",
            Self::Split(error) => error.hint(),
            Self::Tls(_) => "make identities with `tradewind-gateway identity`",
            Self::Io(_) => "check the limits of processes, files and memory",
        }
    }
}

/// A fleet's identity, as the proxies use it.
#[derive(Debug)]
struct Fleet(Identity);

impl HopTls for Fleet {
    fn client(&self) -> Arc<ClientConfig> {
        tls::client_config(&self.0)
    }

    fn server(&self) -> Arc<ServerConfig> {
        tls::server_config(&self.0)
    }

    fn peer_name(&self, certificates: &[CertificateDer<'_>]) -> Option<String> {
        tls::peer_name(Some(certificates)).ok()
    }
}

/// A proxy whose configuration and identity were read.
pub(crate) struct Prepared {
    config: Config,
    tls: Option<Arc<dyn HopTls>>,
}

impl Prepared {
    /// Reads the configuration from a file, or from standard input for `-`.
    ///
    /// # Errors
    /// The configuration or the identity cannot be read.
    pub(crate) fn new(path: &Path) -> Result<Self, StartError> {
        let fault = |reason: String| StartError::Config { path: path.display().to_string(), reason };
        let text = read(path).map_err(|error| fault(error.to_string()))?;
        let config: Config = serde_json::from_str(&text).map_err(|error| fault(error.to_string()))?;
        let identity = config.identity.as_deref().map(Identity::load).transpose()?;
        let tls = identity.map(|identity| Arc::new(Fleet(identity)) as Arc<dyn HopTls>);
        Ok(Self { config, tls })
    }

    /// Prints the bound addresses as one line of JSON, and runs the proxy until a signal and
    /// the end of its flows, or a second signal. Then prints its state as a second line.
    ///
    /// # Errors
    /// A listener cannot be bound.
    pub(crate) async fn run(self) -> Result<(), StartError> {
        let proxy = Proxy::bind(self.config, self.tls)?;
        let mut endings = Endings::new(false)?;
        let (stop, monitor) = (CancellationToken::new(), proxy.monitor());
        println!("{}", serde_json::json!({"listening": proxy.addresses()?}));
        let stopping = async {
            let reason = endings.first().await;
            tracing::info!(reason, "the proxy stops when its flows end");
            stop.cancel();
            endings.second().await
        };
        tokio::select! {
            () = proxy.run(stop.clone()) => {}
            // Whoever asks twice does not want to wait for flows.
            _code = stopping => {}
        }
        println!("{}", serde_json::json!(monitor.status()));
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<String> {
    let source: Box<dyn Read> =
        if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(std::fs::File::open(path)?) };
    let mut text = String::new();
    source.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > CONFIG_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("larger than {CONFIG_BYTES_MAX} bytes")));
    }
    Ok(text)
}
