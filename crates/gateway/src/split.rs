//! Runs a split-TCP proxy (`tradewind_split`) as a process of its own, with the identity of this gateway.

use crate::endings::Endings;
use crate::limits::IDENTITY_RELOAD_INTERVAL;
use crate::tls::{self, Identity, TlsError};
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::CertificateDer;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
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

/// A fleet's identity, as the proxies use it. Each handshake uses the certificate of that moment, also after
/// [`Identity::renew`].
#[derive(Debug)]
pub(crate) struct Fleet(RwLock<Arc<Identity>>);

impl Fleet {
    /// The TLS of a gateway's identity.
    pub(crate) fn new(identity: Arc<Identity>) -> Self {
        Self(RwLock::new(identity))
    }

    fn identity(&self) -> Arc<Identity> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the identity again from its folder.
    ///
    /// # Errors
    /// The files cannot be used, or carry another name; the identity stays as it was.
    fn reload(&self, folder: &Path) -> Result<(), TlsError> {
        let (fresh, present) = (Identity::load(folder)?, self.identity());
        if fresh.name() != present.name() {
            return Err(TlsError::Identity(format!(
                "it belongs to {}, this proxy is {}",
                fresh.name(),
                present.name()
            )));
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
        Ok(())
    }

    /// Reads the identity again after its certificate changes, and reports one that cannot be used.
    async fn follow(&self, folder: &Path) {
        let file = folder.join("cert.pem");
        let changed = || std::fs::metadata(&file).and_then(|metadata| metadata.modified()).ok();
        let mut seen = changed();
        loop {
            tokio::time::sleep(IDENTITY_RELOAD_INTERVAL).await;
            let now = changed();
            if now == seen {
                continue;
            }
            match self.reload(folder) {
                Ok(()) => {
                    seen = now;
                    tracing::info!("the identity was renewed");
                }
                // Its files may be written one after the other, so it is read again.
                Err(error) => tracing::warn!(%error, "the renewed identity cannot be used"),
            }
        }
    }
}

impl HopTls for Fleet {
    fn client(&self) -> Arc<ClientConfig> {
        tls::client_config(&self.identity())
    }

    fn server(&self) -> Arc<ServerConfig> {
        tls::server_config(&self.identity())
    }

    fn peer_name(&self, certificates: &[CertificateDer<'_>]) -> Option<String> {
        tls::peer_name(Some(certificates)).ok()
    }
}

/// A proxy whose configuration and identity were read.
pub(crate) struct Prepared {
    config: Config,
    tls: Option<Arc<Fleet>>,
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
        let tls = identity.map(|identity| Arc::new(Fleet::new(Arc::new(identity))));
        Ok(Self { config, tls })
    }

    /// Prints the bound addresses as one line of JSON, and runs the proxy until a signal and
    /// the end of its flows, or a second signal. Then prints its state as a second line.
    ///
    /// # Errors
    /// A listener cannot be bound.
    pub(crate) async fn run(self) -> Result<(), StartError> {
        let Self { config, tls } = self;
        let folder = config.identity.clone();
        let proxy = Proxy::bind(config, tls.clone().map(|tls| tls as Arc<dyn HopTls>), None)?;
        let mut endings = Endings::new(false)?;
        let (stop, handle) = (CancellationToken::new(), proxy.handle());
        println!("{}", serde_json::json!({"listening": handle.addresses()}));
        let stopping = async {
            let reason = endings.first().await;
            tracing::info!(reason, "the proxy stops when its flows end");
            stop.cancel();
            endings.second().await
        };
        let renewing = async {
            match (&tls, &folder) {
                (Some(tls), Some(folder)) => tls.follow(folder).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = proxy.run(stop.clone()) => {}
            () = renewing => {}
            // Whoever asks twice does not want to wait for flows.
            _code = stopping => {}
        }
        println!("{}", serde_json::json!(handle.status()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Request, make};
    use std::time::SystemTime;

    fn identities(out: &Path, names: &[&str]) {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        make(&Request { out, names: &names, days: 1, keep_ca: true }, SystemTime::now()).unwrap();
    }

    #[test]
    fn a_renewed_identity_is_used_and_another_proxys_is_not() {
        let folder = tempfile::tempdir().unwrap();
        identities(folder.path(), &["entry", "exit"]);
        let entry = folder.path().join("entry");
        let fleet = Fleet::new(Arc::new(Identity::load(&entry).unwrap()));
        let before = fleet.client();
        std::fs::remove_dir_all(&entry).unwrap();
        identities(folder.path(), &["entry"]);
        fleet.reload(&entry).unwrap();
        let renewed = fleet.client();
        assert!(!Arc::ptr_eq(&before, &renewed));
        let error = fleet.reload(&folder.path().join("exit")).unwrap_err().to_string();
        assert!(error.contains("it belongs to exit, this proxy is entry"), "{error}");
        assert!(Arc::ptr_eq(&renewed, &fleet.client()));
    }
}
