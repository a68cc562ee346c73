//! The life of one program in one gateway: none yet, running (its routes may change), drained. It never goes back.

use super::answer::Refused;
use super::events::{self, EventLog, EventSender};
use super::lease::Lease;
use super::load;
use super::metrics::{MetricsSnapshot, add_progress, add_split_hops};
use super::notice::Notice;
use super::runner::{Runner, Running};
use super::split::SplitRole;
use super::split_program::takes_data_port;
use super::validate::{Setting, check_program};
use crate::enrol::{Candidate, NewKey};
use crate::net::DataPort;
use crate::stores::DelegatedStores;
use crate::tls::{Identity, Security, machine_clock};
use axum::http::StatusCode;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tokio::sync::{Mutex, MutexGuard, watch};
use tradewind_contract::{
    CONTRACT_VERSION, IdentityGrant, JobSpec, Join, JoinAgain, KeyRequest, Program, ReceiveReport, ReceiveRequest,
    Refusal, RouteSpec, Routes, SplitProgram, SplitStatus, StoreCredentials, Version,
};

/// Identity, data port, stores and lease that the gateway was started with.
#[derive(Default)]
pub struct Equipment {
    /// Its identity.
    pub identity: Option<Arc<Identity>>,
    /// True if plain hops are allowed.
    pub plain: bool,
    /// Its data port, bound, listening and non-blocking.
    pub data_listener: Option<TcpListener>,
    /// Its stores, if it has no credentials of its own.
    pub stores: Option<Arc<DelegatedStores>>,
    /// Its lease; without one it runs until it is stopped.
    pub lease: Option<Lease>,
    /// When its machine began to run its boot script.
    pub booted: Option<Instant>,
    /// The notice of a cloud that takes its machine back, if the cloud gives one.
    pub notice: Option<Notice>,
    /// How it joined its fleet, without the token, if it can do so again.
    pub join: Option<Join>,
    /// True if a split proxy may raise the machine's maxima of TCP buffers.
    pub raise_tcp_buffers: bool,
}

impl Equipment {
    /// The address of the data port.
    ///
    /// # Errors
    /// The system does not report the address.
    pub fn data_address(&self) -> std::io::Result<Option<SocketAddr>> {
        self.data_listener.as_ref().map(TcpListener::local_addr).transpose()
    }
}

/// A gateway, from start to end.
pub struct Gateway {
    runner: Box<dyn Runner>,
    identity: Option<Arc<Identity>>,
    /// A key made for a renewal of the identity and not yet certified.
    new_key: std::sync::Mutex<Option<NewKey>>,
    plain: bool,
    data_address: Option<SocketAddr>,
    teller: EventSender,
    log: EventLog,
    lease: Option<Lease>,
    booted: Option<Instant>,
    notice: Option<Notice>,
    stores: Option<Arc<DelegatedStores>>,
    join: Option<Join>,
    /// The document with which it is to join its fleet again.
    again: watch::Sender<Option<Join>>,
    /// Held while a measurement uses the data port, and while a program takes it over.
    measuring: Mutex<()>,
    life: Mutex<Life>,
    split: SplitRole,
}

enum Life {
    /// No program yet. Holds the data port, so that peers that connect before the program arrives wait in its backlog.
    Waiting(Option<TcpListener>),
    /// One program, perhaps already at its end.
    Running(Arc<Job>),
    /// Stopped before it got a program.
    Stopped,
}

struct Job {
    /// The program, with its present routes.
    program: Program,
    /// Stations of the routes that it no longer has.
    past: BTreeMap<u16, Vec<String>>,
    /// The program as `PUT /v1/program` delivered it.
    first: Program,
    node: Arc<dyn Running>,
}

impl Gateway {
    /// A gateway without a program.
    ///
    /// # Errors
    /// The data port's address cannot be read.
    pub fn new(runner: Box<dyn Runner>, equipment: Equipment) -> std::io::Result<Self> {
        let data_address = equipment.data_address()?;
        let Equipment { identity, plain, data_listener, stores, lease, booted, notice, join, raise_tcp_buffers } =
            equipment;
        let (teller, log) = events::channel();
        let life = Mutex::new(Life::Waiting(data_listener));
        let (new_key, measuring) = (std::sync::Mutex::new(None), Mutex::new(()));
        let again = watch::Sender::new(None);
        let split = SplitRole::new(identity.clone(), raise_tcp_buffers);
        Ok(Self {
            runner,
            identity,
            new_key,
            plain,
            data_address,
            teller,
            log,
            lease,
            booted,
            notice,
            stores,
            join,
            again,
            measuring,
            life,
            split,
        })
    }

    /// The answer of `GET /v1/version`.
    pub fn version(&self) -> Version {
        Version {
            gateway: env!("CARGO_PKG_VERSION").to_owned(),
            contract: CONTRACT_VERSION,
            data_address: self.data_address.map(|address| address.to_string()),
            booted_ms_ago: self.booted.and_then(|booted| booted.elapsed().as_millis().try_into().ok()),
            notice: self.notice.as_ref().map(Notice::document),
        }
    }

    /// The job's events.
    pub fn events(&self) -> &EventLog {
        &self.log
    }

    /// The lease that the gateway was started with.
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Waits until the gateway must drain because the cloud takes its machine back.
    pub async fn is_taken_back(&self) {
        match &self.notice {
            Some(notice) => notice.is_due().await,
            None => std::future::pending().await,
        }
    }

    /// The split proxy that the gateway may run.
    pub(super) fn split(&self) -> &SplitRole {
        &self.split
    }

    /// Starts the split proxy, or gives the running one another program. A listener may take over the data port, if no
    /// program and no measurement uses it.
    pub(super) async fn put_split(&self, program: &SplitProgram) -> Result<SplitStatus, Refused> {
        if !takes_data_port(program) {
            return self.split.put(program, None).await;
        }
        let _alone = self.alone()?;
        // Held until the proxy runs: no program may take the port meanwhile.
        let life = self.life.lock().await;
        let lent = match &*life {
            Life::Waiting(listener) => {
                listener.as_ref().map(lend).transpose().map_err(|error| unusable_port(&error))?
            }
            Life::Running(job) => {
                let error = format!("the data port is used by the program of job {}", job.program.job_id);
                return Err(Refused::new(StatusCode::CONFLICT, error, "use a gateway without a program"));
            }
            Life::Stopped => {
                return Err(Refused::new(StatusCode::CONFLICT, "this gateway was drained", "start another gateway"));
            }
        };
        self.split.put(program, lent).await
    }

    /// The data port for one measurement or split proxy at a time, without waiting.
    fn alone(&self) -> Result<MutexGuard<'_, ()>, Refused> {
        self.measuring.try_lock().map_err(|_| {
            let error = "this gateway is measuring, or is receiving a program";
            Refused::new(StatusCode::TOO_MANY_REQUESTS, error, "try again when that is done")
        })
    }

    /// Ends the program and the split proxy. From then on neither is accepted.
    pub async fn end(&self) {
        tokio::join!(self.drain(), self.split.close());
    }

    /// Accepts a token with which a new process of this gateway is to join the fleet.
    pub(super) fn join_again(&self, again: JoinAgain) -> Result<(), Refused> {
        let join = self.join.clone().ok_or_else(|| {
            let error = "this gateway cannot join a fleet again";
            Refused::new(
                StatusCode::CONFLICT,
                error,
                "only gateways started with --join, without --exit-with-stdin, can",
            )
        })?;
        let JoinAgain { token_hex, expires_unix_s } = again;
        let join = Join { token_hex, expires_unix_s, ..join };
        if let Err(error) = Candidate::new(&join, machine_clock()) {
            return Err(Refused::unprocessable(Refusal { error: error.to_string(), hint: None }));
        }
        self.again.send_replace(Some(join));
        Ok(())
    }

    /// Waits until the gateway is to join its fleet again, and returns the document for it.
    pub async fn joins_again(&self) -> Join {
        let mut again = self.again.subscribe();
        loop {
            if let Some(join) = again.borrow_and_update().clone() {
                return join;
            }
            // The sender lives as long as `self`.
            let _ = again.changed().await;
        }
    }

    /// The identity that the gateway shows its peers.
    pub(super) fn identity(&self) -> Option<&Arc<Identity>> {
        self.identity.as_ref()
    }

    /// Makes a new key to be certified; the key of an earlier request is discarded.
    pub(super) fn request_identity(&self) -> Result<KeyRequest, Refused> {
        let identity = self.identity.as_deref().ok_or_else(without_identity)?;
        let key = NewKey::generate(identity.name()).map_err(|error| {
            Refused::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("no key: {error}"),
                "check that the machine has random numbers",
            )
        })?;
        let request = key.request().clone();
        *self.new_key.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
        Ok(request)
    }

    /// Uses the certificate for the last requested key in all new connections. Open connections continue unchanged.
    pub(super) fn renew_identity(&self, grant: &IdentityGrant) -> Result<(), Refused> {
        let identity = self.identity.as_deref().ok_or_else(without_identity)?;
        let unusable = |error: String| Refused::unprocessable(Refusal { error, hint: Some(RENEWAL_HINT.to_owned()) });
        let mut new_key = self.new_key.lock().unwrap_or_else(PoisonError::into_inner);
        let key = new_key.as_ref().map(NewKey::key_der);
        let key = key.ok_or_else(|| Refused::new(StatusCode::CONFLICT, "no key was requested", RENEWAL_HINT))?;
        let certificate = CertificateDer::from_pem_slice(grant.certificate_pem.as_bytes());
        let certificate =
            certificate.map_err(|error| unusable(format!("certificate_pem is not a certificate: {error}")))?;
        identity.renew(certificate, key).map_err(|error| unusable(error.to_string()))?;
        *new_key = None;
        Ok(())
    }

    /// Accepts the credentials of its stores from the fleet's owner.
    pub(super) fn take_credentials(&self, credentials: StoreCredentials) -> Result<(), Refused> {
        let stores = self.stores.as_ref().ok_or_else(|| {
            let error = "this gateway has the credentials of its own machine";
            Refused::new(StatusCode::CONFLICT, error, "only gateways of a fleet accept other credentials")
        })?;
        stores.replace(credentials).map_err(Refused::unprocessable)
    }

    /// Checks and starts a program. Repeating the same program succeeds and changes nothing, so that a client that
    /// missed the answer may retry.
    pub(super) async fn start(&self, program: Program) -> Result<(), Refused> {
        let _alone = self.measuring.lock().await;
        let mut life = self.life.lock().await;
        let listener = match &*life {
            Life::Waiting(listener) => listener,
            Life::Running(job) if job.first == program => return Ok(()),
            Life::Running(job) => {
                let error = format!("this gateway already has a program, for job {}", job.program.job_id);
                return Err(Refused::new(StatusCode::CONFLICT, error, "start another gateway for another job"));
            }
            Life::Stopped => {
                return Err(Refused::new(StatusCode::CONFLICT, "this gateway was drained", "start another gateway"));
            }
        };
        if listener.is_some() && self.split.holds_data_port().await {
            return Err(port_of_split_proxy());
        }
        check_program(&program, self.setting()).map_err(Refused::unprocessable)?;
        // A second handle on the data port: if the node does not start, the port stays available for the next program.
        let lent = listener.as_ref().map(lend).transpose().map_err(|error| unusable_port(&error))?;
        let lent = lent.map(|listener| Box::new(listener) as Box<dyn DataPort>);
        let started = self.runner.start(program.clone(), self.security(), lent, self.teller.clone()).await;
        let node = started.map_err(Refused::unprocessable)?;
        tracing::info!(job = program.job_id, node = program.node, "program started");
        let first = program.clone();
        *life = Life::Running(Arc::new(Job { program, past: BTreeMap::new(), first, node: node.into() }));
        Ok(())
    }

    /// Gives the running program new routes. Repeating the same routes changes nothing.
    pub(super) async fn reroute(&self, routes: Routes) -> Result<(), Refused> {
        let mut life = self.life.lock().await;
        let Life::Running(job) = &*life else {
            let error = "this gateway has no program, or was drained";
            return Err(Refused::new(StatusCode::CONFLICT, error, "give it a program first"));
        };
        let (program, past) = job.with(routes).map_err(Refused::unprocessable)?;
        check_program(&program, self.setting()).map_err(Refused::unprocessable)?;
        job.node.reroute(&program).map_err(Refused::unprocessable)?;
        tracing::info!(job = program.job_id, node = program.node, routes = program.routes.len(), "routes changed");
        *life = Life::Running(Arc::new(Job { program, past, first: job.first.clone(), node: job.node.clone() }));
        Ok(())
    }

    fn setting(&self) -> Setting<'_> {
        Setting {
            identity: self.identity.as_deref().map(Identity::name),
            plain: self.plain,
            data_port: self.data_address.is_some(),
        }
    }

    /// Measures what another gateway sends to the data port. Only a gateway without a program can do this, and it
    /// accepts none until the measurement ends.
    pub(super) async fn receive_load(&self, request: ReceiveRequest) -> Result<ReceiveReport, Refused> {
        let _alone = self.alone()?;
        if self.split.holds_data_port().await {
            return Err(port_of_split_proxy());
        }
        let lent = match &*self.life.lock().await {
            Life::Waiting(Some(listener)) => lend(listener).map_err(|error| unusable_port(&error))?,
            _ => {
                let error = "this gateway has a program, was drained, or has no data port";
                return Err(Refused::new(StatusCode::CONFLICT, error, "measure with gateways that get no program"));
            }
        };
        load::receive(request, lent, self.identity.as_ref()).await
    }

    fn security(&self) -> Security {
        match &self.identity {
            Some(identity) => Security::Tls(identity.clone()),
            None => Security::Plain,
        }
    }

    /// Checkpoints and stops the node, waits until that is done, and ends the events. From then on no program is
    /// accepted.
    pub async fn drain(&self) {
        let running = {
            let mut life = self.life.lock().await;
            match &*life {
                Life::Running(job) => Some(job.clone()),
                Life::Waiting(_) | Life::Stopped => {
                    *life = Life::Stopped;
                    None
                }
            }
        };
        if let Some(job) = running {
            job.node.drain().await;
        }
        self.log.close();
    }

    /// The metrics of the node and its job, and of the split proxy; empty without these.
    pub(super) async fn node_metrics(&self) -> MetricsSnapshot {
        let mut snapshot = match &*self.life.lock().await {
            Life::Running(job) => job.node.metrics(),
            Life::Waiting(_) | Life::Stopped => MetricsSnapshot::default(),
        };
        if let Some(progress) = self.log.progress() {
            add_progress(&mut snapshot, &progress);
        }
        if let Ok(split) = self.split.status().await {
            add_split_hops(&mut snapshot, &split.hops);
        }
        snapshot
    }
}

impl Job {
    /// Returns the program with new routes, and the stations of all earlier routes.
    fn with(&self, routes: Routes) -> Result<(Program, BTreeMap<u16, Vec<String>>), Refusal> {
        let mut past = self.past.clone();
        past.extend(self.program.routes.iter().map(|route| (route.id, route.nodes.clone())));
        let is_other = |route: &&RouteSpec| past.get(&route.id).is_some_and(|nodes| *nodes != route.nodes);
        if let Some(route) = routes.routes.iter().find(is_other) {
            let error = format!("route {} has other stations than before", route.id);
            return Err(Refusal { error, hint: Some("a changed route needs a new id".to_owned()) });
        }
        let lead = self.program.lead.clone().map(|job| JobSpec {
            ceiling_usd_per_gb: routes.ceiling_usd_per_gb,
            rate_limit_bytes_per_s: routes.rate_limit_bytes_per_s,
            ..job
        });
        let Routes { routes, hops, dials, .. } = routes;
        Ok((Program { routes, hops, dials, lead, ..self.program.clone() }, past))
    }
}

const RENEWAL_HINT: &str = "the fleet's owner signs the key of POST /v1/identity";

fn without_identity() -> Refused {
    Refused::new(StatusCode::CONFLICT, "this gateway has no identity", "only gateways with hops have one")
}

fn unusable_port(error: &std::io::Error) -> Refused {
    let refusal = Refusal { error: format!("the data port cannot be used: {error}"), hint: None };
    Refused { status: StatusCode::INTERNAL_SERVER_ERROR, refusal }
}

fn port_of_split_proxy() -> Refused {
    let error = "the split proxy of this gateway uses its data port";
    Refused::new(StatusCode::CONFLICT, error, "end it with DELETE /v1/split, or use another gateway")
}

fn lend(listener: &TcpListener) -> std::io::Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::from_std(listener.try_clone()?)
}
