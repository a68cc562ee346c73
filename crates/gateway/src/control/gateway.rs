//! One program's life in one gateway: none yet, running (its routes may change), drained. It never goes back.

use super::answer::Refused;
use super::events::{self, EventLog, EventSender};
use super::lease::Lease;
use super::load;
use super::metrics::{MetricsSnapshot, add_progress};
use super::runner::{Runner, Running};
use super::validate::{Setting, check_program};
use crate::enrol::NewKey;
use crate::net::DataPort;
use crate::stores::DelegatedStores;
use crate::tls::{Identity, Security};
use axum::http::StatusCode;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, PoisonError};
use tokio::sync::Mutex;
use tradewind_contract::{
    CONTRACT_VERSION, IdentityGrant, JobSpec, KeyRequest, Program, ReceiveReport, ReceiveRequest, Refusal, RouteSpec,
    Routes, StoreCredentials, Version,
};

/// What the gateway was started with.
#[derive(Default)]
pub struct Equipment {
    /// Who it is.
    pub identity: Option<Arc<Identity>>,
    /// Plain hops were allowed.
    pub plain: bool,
    /// Its data port, bound and listening, not blocking.
    pub data_listener: Option<TcpListener>,
    /// Its stores, if it has no credentials of its own.
    pub stores: Option<Arc<DelegatedStores>>,
    /// Until when it lives unless somebody renews it; for ever without one.
    pub lease: Option<Lease>,
}

impl Equipment {
    /// Address of the data port.
    ///
    /// # Errors
    /// The system does not say.
    pub fn data_address(&self) -> std::io::Result<Option<SocketAddr>> {
        self.data_listener.as_ref().map(TcpListener::local_addr).transpose()
    }
}

/// A gateway, from start to end.
pub struct Gateway {
    runner: Box<dyn Runner>,
    identity: Option<Arc<Identity>>,
    /// Made for a renewal of the identity, and not certified yet.
    new_key: std::sync::Mutex<Option<NewKey>>,
    plain: bool,
    data_address: Option<SocketAddr>,
    teller: EventSender,
    log: EventLog,
    lease: Option<Lease>,
    stores: Option<Arc<DelegatedStores>>,
    /// Held while the data port is used for a measurement, and while a program takes it.
    measuring: Mutex<()>,
    life: Mutex<Life>,
}

enum Life {
    /// No program yet. Holds the data port, so that peers that are earlier than the program wait in its backlog.
    Waiting(Option<TcpListener>),
    /// One program, perhaps at its end already.
    Running(Arc<Job>),
    /// Told to stop before it got a program.
    Stopped,
}

struct Job {
    /// With the routes that it has now.
    program: Program,
    /// Stations of the routes that it no longer has.
    past: BTreeMap<u16, Vec<String>>,
    /// What `PUT /v1/program` brought.
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
        let Equipment { identity, plain, data_listener, stores, lease } = equipment;
        let (teller, log) = events::channel();
        let life = Mutex::new(Life::Waiting(data_listener));
        let (new_key, measuring) = (std::sync::Mutex::new(None), Mutex::new(()));
        Ok(Self { runner, identity, new_key, plain, data_address, teller, log, lease, stores, measuring, life })
    }

    /// Answer of `GET /v1/version`.
    pub fn version(&self) -> Version {
        Version {
            gateway: env!("CARGO_PKG_VERSION").to_owned(),
            contract: CONTRACT_VERSION,
            data_address: self.data_address.map(|address| address.to_string()),
        }
    }

    /// The job's story.
    pub fn events(&self) -> &EventLog {
        &self.log
    }

    /// The lease that it was started with.
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Who the gateway is to its peers.
    pub(super) fn identity(&self) -> Option<&Arc<Identity>> {
        self.identity.as_ref()
    }

    /// A new key, to be certified; the one of an earlier request is forgotten.
    pub(super) fn request_identity(&self) -> Result<KeyRequest, Refused> {
        let identity = self.identity.as_deref().ok_or_else(without_identity)?;
        let key = NewKey::generate(identity.name()).map_err(|error| {
            Refused::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("no key: {error}"),
                "has the machine random numbers?",
            )
        })?;
        let request = key.request().clone();
        *self.new_key.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
        Ok(request)
    }

    /// Uses the certificate of the key that was last requested, for all connections from now on. Open ones go on.
    pub(super) fn renew_identity(&self, grant: &IdentityGrant) -> Result<(), Refused> {
        let identity = self.identity.as_deref().ok_or_else(without_identity)?;
        let unusable = |error: String| Refused::unprocessable(Refusal { error, hint: Some(RENEWAL_HINT.to_owned()) });
        let mut new_key = self.new_key.lock().unwrap_or_else(PoisonError::into_inner);
        let key = new_key.as_ref().map(NewKey::key_der);
        let key = key.ok_or_else(|| Refused::new(StatusCode::CONFLICT, "no key was requested", RENEWAL_HINT))?;
        let certificate = CertificateDer::from_pem_slice(grant.certificate_pem.as_bytes());
        let certificate =
            certificate.map_err(|error| unusable(format!("certificate_pem is no certificate: {error}")))?;
        identity.renew(certificate, key).map_err(|error| unusable(error.to_string()))?;
        *new_key = None;
        Ok(())
    }

    /// Takes the credentials of its stores from the fleet's owner.
    pub(super) fn take_credentials(&self, credentials: StoreCredentials) -> Result<(), Refused> {
        let stores = self.stores.as_ref().ok_or_else(|| {
            let error = "this gateway has the credentials of its own machine";
            Refused::new(StatusCode::CONFLICT, error, "only gateways that joined a fleet take others")
        })?;
        stores.replace(credentials).map_err(Refused::unprocessable)
    }

    /// Checks and starts a program. The same program again is a success that changes nothing, so that a client that
    /// missed the answer may ask again.
    pub(super) async fn start(&self, program: Program) -> Result<(), Refused> {
        let _alone = self.measuring.lock().await;
        let mut life = self.life.lock().await;
        let listener = match &*life {
            Life::Waiting(listener) => listener,
            Life::Running(job) if job.first == program => return Ok(()),
            Life::Running(job) => {
                let error = format!("this gateway has a program already, of job {}", job.program.job_id);
                return Err(Refused::new(StatusCode::CONFLICT, error, "start another gateway for another job"));
            }
            Life::Stopped => {
                return Err(Refused::new(StatusCode::CONFLICT, "this gateway was drained", "start another gateway"));
            }
        };
        check_program(&program, self.setting()).map_err(Refused::unprocessable)?;
        // A second handle on the data port: if the node does not start, the port stays ours for the next program.
        let lent = listener.as_ref().map(lend).transpose().map_err(|error| unusable_port(&error))?;
        let lent = lent.map(|listener| Box::new(listener) as Box<dyn DataPort>);
        let started = self.runner.start(program.clone(), self.security(), lent, self.teller.clone()).await;
        let node = started.map_err(Refused::unprocessable)?;
        tracing::info!(job = program.job_id, node = program.node, "program started");
        let first = program.clone();
        *life = Life::Running(Arc::new(Job { program, past: BTreeMap::new(), first, node: node.into() }));
        Ok(())
    }

    /// Gives the running program other routes. The same routes again change nothing.
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

    /// Measures what another gateway sends to the data port. Needs a gateway without a program, and keeps it so.
    pub(super) async fn receive_load(&self, request: ReceiveRequest) -> Result<ReceiveReport, Refused> {
        let Ok(_alone) = self.measuring.try_lock() else {
            let error = "this gateway measures, or is being given a program";
            return Err(Refused::new(StatusCode::TOO_MANY_REQUESTS, error, "one after the other"));
        };
        let lent = match &*self.life.lock().await {
            Life::Waiting(Some(listener)) => lend(listener).map_err(|error| unusable_port(&error))?,
            _ => {
                let error = "this gateway has a program, was drained, or has no data port";
                return Err(Refused::new(StatusCode::CONFLICT, error, "measure with gateways of its own"));
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

    /// Checkpoints and stops the node, waits for that, and ends the story. From then on no program is taken.
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

    /// The node's figures and its job's; none without a node.
    pub(super) async fn node_metrics(&self) -> MetricsSnapshot {
        let mut snapshot = match &*self.life.lock().await {
            Life::Running(job) => job.node.metrics(),
            Life::Waiting(_) | Life::Stopped => MetricsSnapshot::default(),
        };
        if let Some(progress) = self.log.progress() {
            add_progress(&mut snapshot, &progress);
        }
        snapshot
    }
}

impl Job {
    /// Its program with other routes, and the stations of all that it had before.
    fn with(&self, routes: Routes) -> Result<(Program, BTreeMap<u16, Vec<String>>), Refusal> {
        let mut past = self.past.clone();
        past.extend(self.program.routes.iter().map(|route| (route.id, route.nodes.clone())));
        let is_other = |route: &&RouteSpec| past.get(&route.id).is_some_and(|nodes| *nodes != route.nodes);
        if let Some(route) = routes.routes.iter().find(is_other) {
            let error = format!("route {} has other stations than before", route.id);
            return Err(Refusal { error, hint: Some("a new way needs a new id".to_owned()) });
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

fn lend(listener: &TcpListener) -> std::io::Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::from_std(listener.try_clone()?)
}
