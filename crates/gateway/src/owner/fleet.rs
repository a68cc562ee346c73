//! The gateways of a fleet, as the owner knows them.

use super::{enrolling, notices, renewal, tunnel};
use crate::control::answer::Refused;
use crate::enrol::{JoinToken, Registrar};
use crate::home::Calls;
use crate::limits::{IDLE_CALLS_MAX, OWNED_GATEWAYS_MAX, TUNNELS_PER_GATEWAY_MAX};
use crate::names::check_node_name;
use crate::tls::{Identity, TlsError};
use axum::http::StatusCode;
use rustls::CommonState;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tradewind_contract::{GatewayEntry, GatewayState, GatewayStates, OWNER_NAME};

/// Prefix of the address of a gateway beside the owner.
pub(super) const UNIX: &str = "unix:";

/// A fleet and its owner.
pub(super) struct Fleet {
    pub(super) registrar: Registrar,
    /// The owner's identity.
    pub(super) identity: Arc<Identity>,
    /// Validity of the identities that it signs.
    pub(super) life: Duration,
    /// Folder with a socket per gateway.
    pub(super) sockets: PathBuf,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    gateways: Mutex<BTreeMap<String, Arc<Member>>>,
}

/// One gateway.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) calls_home: bool,
    /// Address to dial, once it is known.
    pub(super) dial: watch::Sender<Option<String>>,
    /// When its identity expires, in seconds since the Unix epoch; `None` before it has enrolled.
    pub(super) expires_unix_s: watch::Sender<Option<u64>>,
    /// Its idle connections, if it calls home.
    pub(super) calls: Calls<TlsStream<TcpStream>>,
    pub(super) idle: Arc<Semaphore>,
    /// Ends all tasks for this gateway.
    pub(super) stop: CancellationToken,
    /// Ends the renewal of its stores' credentials. Locked while credentials are sent, so that they arrive in order.
    pub(super) delegating: tokio::sync::Mutex<CancellationToken>,
    news: Mutex<News>,
}

/// The latest known state of a gateway.
#[derive(Debug, Default)]
struct News {
    reachable: bool,
    seen_unix_ms: Option<u64>,
    failure: Option<String>,
    leaves_unix_s: Option<u64>,
}

impl Fleet {
    /// Creates a fleet without gateways.
    pub(super) fn new(registrar: Registrar, identity: Arc<Identity>, life: Duration, sockets: PathBuf) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        Self { registrar, identity, life, sockets, tasks, stop, gateways: Mutex::default() }
    }

    /// Returns the gateway with this name.
    pub(super) fn member(&self, name: &str) -> Option<Arc<Member>> {
        self.gateways().get(name).cloned()
    }

    /// Refuses a peer with the certificate of a removed gateway whose name now belongs to another one.
    pub(super) fn check_current(&self, name: &str, connection: &CommonState) -> Result<(), TlsError> {
        let shown = connection.peer_certificates().and_then(<[_]>::first);
        if shown.is_some_and(|certificate| self.registrar.roll().is_current(name, certificate)) {
            return Ok(());
        }
        Err(TlsError::Outdated(name.to_owned()))
    }

    /// Adds a gateway, or updates the address of a known one.
    ///
    /// # Errors
    /// The entry contradicts itself or the known gateway, or its socket cannot be made.
    pub(super) fn put(self: &Arc<Self>, name: &str, entry: GatewayEntry) -> Result<(), Refused> {
        let token = self.check(name, &entry)?;
        let mut gateways = self.gateways();
        if let Some(member) = gateways.get(name) {
            let known = self.registrar.roll().token(name).cloned();
            let is_same = match (&known, &token) {
                (Some(known), Some(token)) => known.is_same(token),
                (known, token) => known.is_none() && token.is_none(),
            };
            if !is_same || member.calls_home != entry.calls_home {
                let error = format!("{name} was added with another token or direction");
                return Err(Refused::new(StatusCode::CONFLICT, error, "remove it first"));
            }
        } else if gateways.len() >= OWNED_GATEWAYS_MAX {
            let error = format!("this fleet has {OWNED_GATEWAYS_MAX} gateways");
            return Err(Refused::new(StatusCode::CONFLICT, error, "remove some first"));
        }
        if let Some(token) = token {
            let now_unix_s = self.registrar.now_unix_s();
            self.registrar.roll().add(name, token.clone(), entry.expires_unix_s, now_unix_s);
        }
        if let Some(member) = gateways.get(name) {
            member.dial.send_if_modified(|dial| std::mem::replace(dial, entry.dial.clone()) != entry.dial);
            return Ok(());
        }
        let member = Arc::new(Member::new(name, &entry, self.stop.child_token()));
        if !member.is_beside() {
            let listener = tunnel::bind(&self.sockets.join(name)).map_err(|error| {
                let error = format!("no socket for {name}: {error}");
                Refused::new(StatusCode::INTERNAL_SERVER_ERROR, error, "check that the fleet's folder exists")
            })?;
            self.start(&member, tunnel::accept_all(self.clone(), member.clone(), listener));
        }
        if entry.token_hex.is_none() {
            // It enrolled with an earlier owner, so its certificate and expiry time are unknown. Renewing at once makes
            // them known.
            self.registrar.roll().add_enrolled(name);
            member.expires_unix_s.send_replace(Some(self.registrar.now_unix_s()));
        }
        self.start(&member, renewal::keep_fresh(self.clone(), member.clone()));
        self.start(&member, notices::watch(self.clone(), member.clone()));
        if entry.token_hex.is_some() && !entry.calls_home {
            self.start(&member, enrolling::by_dialling(self.clone(), member.clone()));
        }
        gateways.insert(name.to_owned(), member);
        Ok(())
    }

    fn check(&self, name: &str, entry: &GatewayEntry) -> Result<Option<JoinToken>, Refused> {
        let wrong = |error: String, hint: &str| Err(Refused::new(StatusCode::UNPROCESSABLE_ENTITY, error, hint));
        if let Err(error) = check_node_name(name) {
            return wrong(error, "name the gateway as its join document does");
        }
        if name == OWNER_NAME {
            return wrong(format!("a gateway cannot be called {name}"), "this name belongs to the owner");
        }
        let is_beside = entry.dial.as_deref().is_some_and(|dial| dial.starts_with(UNIX));
        if entry.dial.is_some() && entry.calls_home != is_beside {
            let error = format!("{name} has a direction and an address that do not fit");
            return wrong(error, "the owner dials host:port; a gateway that calls home may have unix:PATH");
        }
        let Some(token_hex) = &entry.token_hex else { return Ok(None) };
        match JoinToken::from_hex(token_hex) {
            Some(token) => Ok(Some(token)),
            None => wrong(format!("the token of {name} is invalid"), "a token is 64 hexadecimal digits"),
        }
    }

    /// Runs `work` until it is done or the gateway is removed.
    fn start(&self, member: &Member, work: impl Future<Output = ()> + Send + 'static) {
        let stop = member.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(work).await.unwrap_or_default() });
    }

    /// Removes a gateway: it can neither enrol nor be reached. An unknown name is not an error.
    pub(super) fn remove(&self, name: &str) {
        if let Some(member) = self.gateways().remove(name) {
            self.registrar.roll().remove(name);
            member.stop.cancel();
            if !member.is_beside() {
                tunnel::remove(&self.sockets.join(name));
            }
        }
    }

    /// Removes all gateways and waits for their connections to end.
    pub(super) async fn end(&self) {
        let names: Vec<String> = self.gateways().keys().cloned().collect();
        names.iter().for_each(|name| self.remove(name));
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// The present states of all gateways.
    pub(super) fn states(&self) -> GatewayStates {
        GatewayStates { gateways: self.gateways().values().map(|member| member.state()).collect() }
    }

    fn gateways(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Member>>> {
        self.gateways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    pub(super) fn new(name: &str, entry: &GatewayEntry, stop: CancellationToken) -> Self {
        Self {
            name: name.to_owned(),
            calls_home: entry.calls_home,
            dial: watch::Sender::new(entry.dial.clone()),
            expires_unix_s: watch::Sender::new(None),
            calls: Calls::new(TUNNELS_PER_GATEWAY_MAX),
            idle: Arc::new(Semaphore::new(IDLE_CALLS_MAX)),
            delegating: tokio::sync::Mutex::new(stop.child_token()),
            stop,
            news: Mutex::default(),
        }
    }

    /// Returns whether the gateway runs beside the owner, with a control socket of its own.
    fn is_beside(&self) -> bool {
        self.calls_home && self.dial.borrow().is_some()
    }

    /// Notes that the gateway has a new identity and when it expires.
    pub(super) fn granted(&self, expires_unix_s: u64) {
        self.expires_unix_s.send_replace(Some(expires_unix_s));
        self.heard();
    }

    /// Notes that the gateway answered.
    pub(super) fn heard(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seen_unix_ms = u64::try_from(now.as_millis()).ok();
        let mut news = self.news();
        *news = News { reachable: true, seen_unix_ms, failure: None, ..*news };
    }

    /// Notes that a connection ended; without another one, it is unknown whether the gateway still runs.
    pub(super) fn lost(&self) {
        self.news().reachable = false;
    }

    /// Notes a failure, and logs it if it differs from the last one.
    pub(super) fn failed(&self, what: &str, error: &dyn std::fmt::Display) {
        let failure = format!("{what}: {error}");
        let mut news = self.news();
        if news.failure.as_ref() != Some(&failure) {
            tracing::warn!(gateway = self.name, "{failure}");
        }
        news.reachable = false;
        news.failure = Some(failure);
    }

    /// Notes whether the gateway says that the cloud takes its machine back, and when it drains.
    pub(super) fn leaves(&self, at_unix_s: Option<u64>) {
        self.news().leaves_unix_s = at_unix_s;
    }

    fn state(&self) -> GatewayState {
        let News { reachable, seen_unix_ms, ref failure, leaves_unix_s } = *self.news();
        let has_calls = self.idle.available_permits() < IDLE_CALLS_MAX;
        GatewayState {
            name: self.name.clone(),
            enrolled: self.expires_unix_s.borrow().is_some(),
            reachable: reachable || has_calls,
            seen_unix_ms,
            expires_unix_s: *self.expires_unix_s.borrow(),
            failure: failure.clone(),
            leaves_unix_s,
        }
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
