use super::channel::{Exports, client_of_anybody, self_signed_server};
use super::messages::{Claim, Done, Grant, Opening, receive, send};
use super::token::{Statement, Step};
use super::*;
use crate::identity::FleetCa;
use crate::limits::{CERTIFICATES_PER_GATEWAY_MAX, ENROL_LINE_BYTES_MAX, FLEET_CA_LIFE, IDENTITY_LIFE, JOIN_TIMEOUT};
use crate::tls::{self, Clock, Identity, Strangers, machine_clock};
use rustls::time_provider::TimeProvider;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tradewind_contract::{CONTRACT_VERSION, Join, JoinControl, OWNER_NAME};

const HOUR_S: i64 = 3600;

/// The machine's clock, wrong by this many seconds.
#[derive(Debug)]
struct Shifted(i64);

impl TimeProvider for Shifted {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = UnixTime::now().as_secs().checked_add_signed(self.0)?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

fn shifted(seconds: i64) -> Clock {
    Arc::new(Shifted(seconds))
}

fn now_unix_s() -> u64 {
    UnixTime::now().as_secs()
}

/// An owner with its own identity, for gateways that call.
struct Owner {
    registrar: Registrar,
    identity: Identity,
    ca_pem: String,
}

impl Owner {
    fn new(fleet: &str) -> Self {
        let ca = FleetCa::new(SystemTime::now(), FLEET_CA_LIFE).unwrap();
        let ca_pem = ca.certificate().unwrap().pem();
        let registrar = Registrar::new(fleet.to_owned(), ca, machine_clock(), IDENTITY_LIFE).unwrap();
        let key = NewKey::generate(OWNER_NAME).unwrap();
        let granted = registrar.renew(OWNER_NAME, key.request()).unwrap();
        let identity = Identity::with(
            CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap(),
            CertificateDer::from_pem_slice(granted.certificate_pem.as_bytes()).unwrap(),
            key.key_der(),
            Strangers::Accepted,
            machine_clock(),
        );
        Self { registrar, identity: identity.unwrap(), ca_pem }
    }

    /// Adds a gateway whose token is `digit` 64 times, and returns its join document.
    fn add(&self, name: &str, digit: char) -> Join {
        let document = self.document(name, digit);
        let token = JoinToken::from_hex(&document.token_hex).unwrap();
        self.registrar.roll().add(name, token, document.expires_unix_s, now_unix_s());
        document
    }

    fn document(&self, name: &str, digit: char) -> Join {
        Join {
            contract: CONTRACT_VERSION,
            fleet: self.registrar.roll().fleet().to_owned(),
            name: name.to_owned(),
            token_hex: digit.to_string().repeat(64),
            expires_unix_s: now_unix_s() + 600,
            ca_pem: self.ca_pem.clone(),
            control: JoinControl::Listen { address: "127.0.0.1:0".to_owned() },
            data: None,
        }
    }

    /// Answers one call of a gateway.
    async fn take_call(&self, stream: DuplexStream) -> Result<(), EnrolError> {
        let (mut stream, name) = tls::accept_any(&self.identity, stream).await?;
        assert_eq!(name, None);
        self.registrar.enrol_caller(&mut stream, |_| {}).await
    }
}

fn candidate(join: &Join) -> Candidate {
    Candidate::new(join, machine_clock()).unwrap()
}

fn pipe() -> (DuplexStream, DuplexStream) {
    tokio::io::duplex(64 << 10)
}

/// The results of both sides: the gateway's identity, and the owner's grant.
type Met = (Result<Identity, EnrolError>, Result<(), EnrolError>);

/// The owner dials the gateway, wanting `name`.
async fn dialled(owner: &Owner, name: &str, candidate: &Candidate) -> Met {
    let (ours, theirs) = pipe();
    let gateway = async {
        let (identity, stream) = candidate.answer(theirs).await?;
        confirm(stream).await?;
        Ok(identity)
    };
    let (identity, granted) = tokio::join!(gateway, owner.registrar.enrol_dialled(name, ours));
    (identity, granted.map(drop))
}

/// The gateway calls home.
async fn called(owner: &Owner, candidate: &Candidate) -> Met {
    let (ours, theirs) = pipe();
    let gateway = async {
        let (identity, stream) = candidate.call(theirs).await?;
        confirm(stream).await?;
        Ok(identity)
    };
    tokio::join!(gateway, owner.take_call(ours))
}

async fn in_direction(calls: bool, owner: &Owner, name: &str, candidate: &Candidate) -> Met {
    if calls { called(owner, candidate).await } else { dialled(owner, name, candidate).await }
}

fn reason(met: Result<(), EnrolError>) -> Option<Refused> {
    match met {
        Err(EnrolError::Refused(refused)) => Some(refused),
        _ => None,
    }
}

async fn meet(client: &Identity, server: &Identity) -> Result<String, String> {
    let (one, other) = pipe();
    let (connected, accepted) =
        tokio::join!(tls::connect(client, server.name(), one), async { tls::accept(server, other).await });
    connected.map_err(|error| error.to_string())?;
    accepted.map(|(_, name)| name).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_gateway_gets_an_identity_of_the_fleet_in_either_direction() {
    let owner = Owner::new("fleet-1");
    let mut identities = Vec::new();
    for (calls, name) in [(false, "dialled"), (true, "calling")] {
        let (identity, granted) = in_direction(calls, &owner, name, &candidate(&owner.add(name, 'a'))).await;
        granted.unwrap();
        identities.push(identity.unwrap());
        assert_eq!(identities.last().unwrap().name(), name);
    }
    assert_eq!(meet(&identities[0], &identities[1]).await.as_deref(), Ok("dialled"));
    assert_eq!(meet(&owner.identity, &identities[0]).await.as_deref(), Ok(OWNER_NAME));
}

#[tokio::test]
async fn a_token_works_for_one_key_only() {
    for calls in [false, true] {
        let owner = Owner::new("fleet-1");
        let document = owner.add("relay", 'a');
        let first = candidate(&document);
        in_direction(calls, &owner, "relay", &first).await.1.unwrap();
        // A machine that boots again, or a thief with the token.
        let (identity, granted) = in_direction(calls, &owner, "relay", &candidate(&document)).await;
        assert_eq!(reason(granted), Some(Refused::Used), "calls: {calls}");
        assert!(matches!(identity.unwrap_err(), EnrolError::Closed), "it got an answer");
        // The same process, whose answer was lost.
        in_direction(calls, &owner, "relay", &first).await.1.unwrap();
        // A new token for the name lets another machine in.
        in_direction(calls, &owner, "relay", &candidate(&owner.add("relay", 'b'))).await.1.unwrap();
    }
}

#[tokio::test]
async fn expired_tokens_unknown_and_removed_gateways_and_wrong_fleets_are_refused() {
    for calls in [false, true] {
        let owner = Owner::new("fleet-1");
        let document = owner.add("relay", 'a');
        let token = JoinToken::from_hex(&document.token_hex).unwrap();
        owner.registrar.roll().add("relay", token.clone(), now_unix_s(), now_unix_s());
        let (identity, granted) = in_direction(calls, &owner, "relay", &candidate(&document)).await;
        assert!(identity.is_err());
        assert_eq!(reason(granted), Some(Refused::Expired));

        owner.registrar.roll().remove("relay");
        let (identity, granted) = in_direction(calls, &owner, "relay", &candidate(&document)).await;
        assert!(identity.is_err());
        assert_eq!(reason(granted), Some(Refused::Unknown));

        owner.registrar.roll().add("relay", token, document.expires_unix_s, now_unix_s());
        let elsewhere = Join { fleet: "fleet-2".to_owned(), ..document };
        let (identity, granted) = in_direction(calls, &owner, "relay", &candidate(&elsewhere)).await;
        // The side that is called sees the other's fleet first.
        if calls {
            assert_eq!(reason(granted), Some(Refused::Fleet));
        } else {
            assert_eq!(reason(identity.map(drop)), Some(Refused::Fleet));
            assert!(matches!(granted.unwrap_err(), EnrolError::Closed), "it got an answer");
        }
    }
}

#[test]
fn certificates_are_current_from_their_signature_to_the_removal_of_their_gateway() {
    let owner = Owner::new("fleet");
    let certificate = || {
        let granted = owner.registrar.renew("relay", NewKey::generate("relay").unwrap().request()).unwrap();
        CertificateDer::from_pem_slice(granted.certificate_pem.as_bytes()).unwrap()
    };
    let is_current = |certificate: &_| owner.registrar.roll().is_current("relay", certificate);
    let stranger = certificate();
    owner.add("relay", '1');
    let (first, second) = (certificate(), certificate());
    // During a renewal both are in use.
    assert!(is_current(&first) && is_current(&second) && !is_current(&stranger));
    owner.add("relay", '1');
    assert!(is_current(&first));
    owner.registrar.roll().remove("relay");
    owner.add("relay", '2');
    assert!(!is_current(&first) && !is_current(&second));
    // A certificate signed by an earlier owner is unknown until its gateway has another one.
    owner.registrar.roll().remove("relay");
    owner.registrar.roll().add_enrolled("relay");
    let third = certificate();
    assert!(is_current(&stranger) && is_current(&third));
    owner.registrar.roll().was_renewed("relay");
    assert!(!is_current(&stranger) && is_current(&third));
    let later: Vec<_> = (0..CERTIFICATES_PER_GATEWAY_MAX).map(|_| certificate()).collect();
    assert!(!is_current(&third) && later.iter().all(is_current));
}

#[test]
fn a_token_of_a_clock_that_is_ahead_lives_as_long_as_any_other() {
    let (mut roll, token) = (Roll::new("fleet-1".to_owned()), JoinToken::from_hex(&"1".repeat(64)).unwrap());
    let (now, allowed) = (1_000, JOIN_TIMEOUT.as_secs());
    roll.add("relay", token.clone(), now + 86_400, now);
    assert!(!roll.has_expired("relay", now + allowed - 1));
    assert!(roll.has_expired("relay", now + allowed));
    roll.add("relay", token.clone(), now + 86_400, now + 500);
    assert!(roll.has_expired("relay", now + allowed), "adding it again does not extend it");
    roll.add("relay", token.clone(), now + 10, now + 5);
    assert!(roll.has_expired("relay", now + 10), "its maker may shorten it");
    roll.add("relay", token, u64::MAX, u64::MAX);
    assert!(roll.has_expired("relay", now + 10));
    let other = JoinToken::from_hex(&"2".repeat(64)).unwrap();
    roll.add("relay", other, now + 86_400, now + 500);
    assert!(!roll.has_expired("relay", now + 500 + allowed - 1), "a new token has a time of its own");
}

#[tokio::test]
async fn a_gateway_with_another_name_or_token_is_refused() {
    let owner = Owner::new("fleet-1");
    let source = candidate(&owner.add("source", 'a'));
    owner.add("sink", 'b');
    // The owner dials one and reaches the other, which refuses the wrong name.
    let (identity, granted) = dialled(&owner, "sink", &source).await;
    assert_eq!(reason(identity.map(drop)), Some(Refused::Name { wanted: "source".to_owned() }));
    assert!(matches!(granted.unwrap_err(), EnrolError::Closed));
    // The token of one gateway with the name of the other.
    let liar = candidate(&owner.document("sink", 'a'));
    assert_eq!(reason(called(&owner, &liar).await.1), Some(Refused::Proof));
    let (identity, granted) = dialled(&owner, "sink", &liar).await;
    assert_eq!(reason(identity.map(drop)), Some(Refused::Proof), "an owner without our token");
    assert!(matches!(granted.unwrap_err(), EnrolError::Closed), "it got an answer");
}

/// A gateway proves its token but claims a different name from the one that the owner dialled.
#[tokio::test]
async fn the_owner_compares_the_name_in_the_request_with_the_one_that_it_dialled() {
    let owner = Owner::new("fleet-1");
    let document = owner.add("source", 'a');
    owner.add("sink", 'b');
    let (ours, theirs) = pipe();
    let key = rcgen::KeyPair::generate().unwrap();
    let gateway = async {
        let acceptor = TlsAcceptor::from(Arc::new(self_signed_server(&key, "sink", &machine_clock()).unwrap()));
        let mut stream = acceptor.accept(theirs).await.unwrap();
        let exporter = stream.exporter().unwrap();
        let _: Opening = receive(&mut stream).await.unwrap();
        let new = NewKey::generate("source").unwrap();
        let payload = new.request().public_key_hex.as_bytes();
        let statement =
            Statement { step: Step::DialledClaim, fleet: "fleet-1", name: "source", exporter: &exporter, payload };
        let proof_hex = statement.prove(&JoinToken::from_hex(&document.token_hex).unwrap());
        let claim = Claim { fleet: "fleet-1".to_owned(), proof_hex, key: new.request().clone() };
        send(&mut stream, &claim).await.unwrap();
        receive::<_, Grant>(&mut stream).await
    };
    let (granted, answer) = tokio::join!(owner.registrar.enrol_dialled("sink", ours), gateway);
    assert_eq!(reason(granted.map(drop)), Some(Refused::Name { wanted: "sink".to_owned() }));
    assert!(matches!(answer.unwrap_err(), EnrolError::Closed));
    assert!(!owner.registrar.roll().is_used("source"));
}

/// A man in the middle, with his own certificate, passes every message on.
#[tokio::test]
async fn a_man_in_the_middle_gets_nothing_in_either_direction() {
    let owner = Owner::new("fleet-1");
    let gateway = candidate(&owner.add("relay", 'a'));
    let (of_owner, to_owner) = pipe();
    let (to_gateway, of_gateway) = pipe();
    let key = rcgen::KeyPair::generate().unwrap();
    let middle = async {
        let acceptor = TlsAcceptor::from(Arc::new(self_signed_server(&key, "relay", &machine_clock()).unwrap()));
        let connector = TlsConnector::from(Arc::new(client_of_anybody(&machine_clock()).unwrap()));
        let mut towards_owner = acceptor.accept(to_owner).await.unwrap();
        let name = tls::server_name("relay").unwrap();
        let mut towards_gateway = connector.connect(name, to_gateway).await.unwrap();
        let opening: Opening = receive(&mut towards_owner).await.unwrap();
        send(&mut towards_gateway, &opening).await.unwrap();
        receive::<_, Claim>(&mut towards_gateway).await.map(drop)
    };
    let (granted, answered, passed) =
        tokio::join!(owner.registrar.enrol_dialled("relay", of_owner), gateway.answer(of_gateway), middle);
    assert_eq!(reason(answered.map(drop)), Some(Refused::Proof));
    assert!(matches!(passed.unwrap_err(), EnrolError::Closed), "the gateway told him something");
    assert!(granted.is_err());
    assert!(!owner.registrar.roll().is_used("relay"));

    // A gateway that calls home does not even begin: the man in the middle has no certificate of the fleet.
    let (to_middle, of_middle) = pipe();
    let acceptor = TlsAcceptor::from(Arc::new(self_signed_server(&key, OWNER_NAME, &machine_clock()).unwrap()));
    let (called, _) = tokio::join!(gateway.call(to_middle), acceptor.accept(of_middle));
    assert_eq!(called.map(drop).unwrap_err().to_string(), "the peer's certificate is not of this fleet");
}

/// A thief has recorded a whole enrolment in clear text, including its proofs.
#[tokio::test]
async fn messages_of_another_connection_prove_nothing() {
    let owner = Owner::new("fleet-1");
    let document = owner.add("relay", 'a');
    let token = JoinToken::from_hex(&document.token_hex).unwrap();
    let key = NewKey::generate("relay").unwrap();
    let recorded = |step, payload: &[u8]| {
        let exporter = [7; 32];
        Statement { step, fleet: "fleet-1", name: "relay", exporter: &exporter, payload }.prove(&token)
    };
    // Towards the owner.
    let (ours, theirs) = pipe();
    let thief = async {
        let connector = TlsConnector::from(Arc::new(client_of_anybody(&machine_clock()).unwrap()));
        let mut stream = connector.connect(tls::server_name(OWNER_NAME).unwrap(), theirs).await.unwrap();
        let proof_hex = recorded(Step::CallingClaim, key.request().public_key_hex.as_bytes());
        let claim = Claim { fleet: "fleet-1".to_owned(), proof_hex, key: key.request().clone() };
        send(&mut stream, &claim).await.unwrap();
        receive::<_, Grant>(&mut stream).await
    };
    let (taken, answer) = tokio::join!(owner.take_call(ours), thief);
    assert_eq!(reason(taken), Some(Refused::Proof));
    assert!(matches!(answer.unwrap_err(), EnrolError::Closed));
    // Towards the gateway.
    let gateway = candidate(&document);
    let (ours, theirs) = pipe();
    let thief = async {
        let connector = TlsConnector::from(Arc::new(client_of_anybody(&machine_clock()).unwrap()));
        let mut stream = connector.connect(tls::server_name("relay").unwrap(), theirs).await.unwrap();
        let proof_hex = recorded(Step::DialledOpening, &[]);
        let opening = Opening { fleet: "fleet-1".to_owned(), name: "relay".to_owned(), proof_hex };
        send(&mut stream, &opening).await.unwrap();
        receive::<_, Claim>(&mut stream).await
    };
    let (answered, answer) = tokio::join!(gateway.answer(ours), thief);
    assert_eq!(reason(answered.map(drop)), Some(Refused::Proof));
    assert!(matches!(answer.unwrap_err(), EnrolError::Closed));
}

#[test]
fn a_proof_holds_for_its_step_fleet_name_connection_and_payload_alone() {
    let token = JoinToken::from_hex(&"a".repeat(64)).unwrap();
    let (here, there) = ([1; 32], [2; 32]);
    let said = Statement { step: Step::DialledClaim, fleet: "f", name: "n", exporter: &here, payload: b"p" };
    let proof = said.prove(&token);
    assert!(said.is_proved_by(&proof, &token));
    let others = [
        Statement { step: Step::CallingClaim, ..said },
        Statement { step: Step::DialledOpening, ..said },
        Statement { step: Step::DialledGrant, ..said },
        Statement { step: Step::CallingGrant, ..said },
        Statement { fleet: "fn", name: "", ..said },
        Statement { fleet: "g", ..said },
        Statement { name: "m", ..said },
        Statement { exporter: &there, ..said },
        Statement { payload: b"q", ..said },
    ];
    assert!(others.iter().all(|other| !other.is_proved_by(&proof, &token)));
    assert!(!said.is_proved_by(&proof, &JoinToken::from_hex(&"b".repeat(64)).unwrap()));
    assert!(["", "zz", &proof[2..]].iter().all(|wrong| !said.is_proved_by(wrong, &token)));
    assert_eq!(format!("{token:?}"), "JoinToken(…)");
}

#[tokio::test]
async fn clocks_may_differ_by_an_hour() {
    for (shift_s, calls) in [(-HOUR_S, false), (-HOUR_S, true), (HOUR_S, false), (HOUR_S, true)] {
        let owner = Owner::new("fleet-1");
        let there = Candidate::new(&owner.add("there", 'a'), shifted(shift_s)).unwrap();
        let (there, granted) = in_direction(calls, &owner, "there", &there).await;
        granted.unwrap_or_else(|error| panic!("{shift_s} s, calls: {calls}: {error}"));
        let there = there.unwrap_or_else(|error| panic!("{shift_s} s, calls: {calls}: {error}"));
        let (here, _) = dialled(&owner, "here", &candidate(&owner.add("here", 'b'))).await;
        let here = here.unwrap();
        assert_eq!(meet(&here, &there).await.as_deref(), Ok("here"));
        assert_eq!(meet(&there, &here).await.as_deref(), Ok("there"));
        assert_eq!(meet(&owner.identity, &there).await.as_deref(), Ok(OWNER_NAME));
    }
    // Beyond that the identity is not valid yet, or the document has expired.
    let owner = Owner::new("fleet-1");
    let document = owner.add("there", 'a');
    let behind = Candidate::new(&document, shifted(-HOUR_S - 60)).unwrap();
    let late = dialled(&owner, "there", &behind).await.0.unwrap_err().to_string();
    assert!(late.contains("not valid yet; check the clock"), "{late}");
    let ahead = Candidate::new(&document, shifted(HOUR_S + 700)).err().unwrap();
    assert!(matches!(ahead, JoinError::Expired));
}

#[tokio::test(start_paused = true)]
async fn silent_and_talkative_peers_are_cut_off() {
    let owner = Owner::new("fleet-1");
    let gateway = candidate(&owner.add("relay", 'a'));
    let connector = || TlsConnector::from(Arc::new(client_of_anybody(&machine_clock()).unwrap()));
    // No handshake.
    let (_silent, theirs) = pipe();
    assert!(matches!(gateway.answer(theirs).await.err().unwrap(), EnrolError::Tls(_)));
    // A handshake, and then nothing.
    let (ours, theirs) = pipe();
    let connecting = async { connector().connect(tls::server_name("relay").unwrap(), ours).await.unwrap() };
    let waiting = async {
        let (_open, answered) = tokio::join!(connecting, gateway.answer(theirs));
        answered.err().unwrap()
    };
    assert!(matches!(waiting.await, EnrolError::TooSlow));
    // Much more than one message; and two messages at once.
    let many = vec![b'x'; 2 * ENROL_LINE_BYTES_MAX];
    let opening = Opening { fleet: "fleet-1".to_owned(), name: "relay".to_owned(), proof_hex: String::new() };
    let two = [serde_json::to_vec(&opening).unwrap(), serde_json::to_vec(&opening).unwrap(), Vec::new()].join(&b'\n');
    for (bytes, error) in
        [(many, "longer than 16384 bytes"), (two, "more than one line"), (b"{}\n".to_vec(), "Data error")]
    {
        let (ours, theirs) = pipe();
        let talking = async {
            let mut stream = connector().connect(tls::server_name("relay").unwrap(), ours).await.unwrap();
            // The connection may be closed while it writes.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.flush().await;
            stream
        };
        let (_open, answered) = tokio::join!(talking, gateway.answer(theirs));
        let told = answered.err().unwrap().to_string();
        assert!(told.contains(error), "{told}");
    }
}

#[tokio::test]
async fn a_key_request_for_another_name_or_key_is_refused() {
    let owner = Owner::new("fleet-1");
    let (one, other) = (NewKey::generate("one").unwrap(), NewKey::generate("other").unwrap());
    assert!(owner.registrar.renew("one", one.request()).is_ok());
    let refused = |name: &str, request: &tradewind_contract::KeyRequest| {
        reason(owner.registrar.renew(name, request).map(drop)).unwrap()
    };
    assert_eq!(refused("other", one.request()), Refused::Name { wanted: "other".to_owned() });
    let mut stolen = one.request().clone();
    stolen.public_key_hex.clone_from(&other.request().public_key_hex);
    assert_eq!(refused("one", &stolen), Refused::Key);
    let mut renamed = other.request().clone();
    renamed.name = "one".to_owned();
    assert_eq!(refused("one", &renamed), Refused::Key);
    for bad in ["", "zz", "04", &"ff".repeat(65)] {
        let mut bad_key = one.request().clone();
        bad_key.public_key_hex = bad.to_owned();
        assert_eq!(refused("one", &bad_key), Refused::Key);
    }
}

/// A hop that is open while both ends get new identities stays open; new connections use the new identities.
#[tokio::test]
async fn a_renewal_leaves_open_connections_alone() {
    use tokio::io::AsyncReadExt;
    let owner = Owner::new("fleet-1");
    let mut identities = Vec::new();
    for name in ["one", "other"] {
        identities.push(dialled(&owner, name, &candidate(&owner.add(name, 'a'))).await.0.unwrap());
    }
    let (ours, theirs) = pipe();
    let (client, server) =
        tokio::join!(tls::connect(&identities[0], "other", ours), tls::accept(&identities[1], theirs));
    let (mut client, mut server) = (client.unwrap(), server.unwrap().0);
    for identity in &identities {
        let key = NewKey::generate(identity.name()).unwrap();
        let granted = owner.registrar.renew(identity.name(), key.request()).unwrap();
        let certificate = CertificateDer::from_pem_slice(granted.certificate_pem.as_bytes()).unwrap();
        let wrong = NewKey::generate(identity.name()).unwrap();
        identity.renew(certificate.clone(), wrong.key_der()).unwrap_err();
        identity.renew(certificate, key.key_der()).unwrap();
    }
    client.write_all(b"still").await.unwrap();
    client.flush().await.unwrap();
    let mut read = [0; 5];
    server.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"still");
    let shown = |stream: &tokio_rustls::client::TlsStream<DuplexStream>| {
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    let before = shown(&client).into_owned();
    let (ours, theirs) = pipe();
    let (fresh, accepted) =
        tokio::join!(tls::connect(&identities[0], "other", ours), tls::accept(&identities[1], theirs));
    accepted.unwrap();
    assert_ne!(shown(&fresh.unwrap()).into_owned(), before);
}

#[test]
fn documents_that_cannot_be_used_say_why() {
    let owner = Owner::new("fleet-1");
    let good = owner.document("relay", 'a');
    let wrong: [(Join, &str); 6] = [
        (Join { contract: 9, ..good.clone() }, "contract 9"),
        (Join { fleet: "Fleet".to_owned(), ..good.clone() }, "a fleet's id has 1 to 64"),
        (Join { name: "a.b".to_owned(), ..good.clone() }, "not a gateway name"),
        (Join { name: OWNER_NAME.to_owned(), ..good.clone() }, "belongs to the owner"),
        (Join { token_hex: "aa".to_owned(), ..good.clone() }, "64 hexadecimal digits"),
        (Join { ca_pem: "none".to_owned(), ..good.clone() }, "not a certificate"),
    ];
    for (document, error) in wrong {
        let said = Candidate::new(&document, machine_clock()).err().unwrap().to_string();
        assert!(said.contains(error) && !said.contains(&good.token_hex), "{said}");
    }
    assert!(!format!("{good:?}").contains(&good.token_hex));
    let _: Done = messages::parse(b"{}\n").unwrap();
}
