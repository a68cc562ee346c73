use super::*;
use crate::identity::FleetCa;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const DAY: Duration = Duration::from_secs(86_400);

fn fleet() -> FleetCa {
    FleetCa::new(SystemTime::now(), DAY).unwrap()
}

fn identity(ca: &FleetCa, name: &str) -> Identity {
    let node = ca.sign(name).unwrap();
    Identity::new(ca.certificate().unwrap().der().clone(), node.certificate.der().clone(), node.key_der()).unwrap()
}

/// The results of a handshake, and of one byte each way, on both sides.
struct Meeting {
    client: Result<(), String>,
    server: Result<String, String>,
}

/// Connects `client` (with its own configuration), which wants `wanted`, to `server`.
async fn meet(client: Arc<ClientConfig>, server: &Identity, wanted: &str) -> Meeting {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let caller = async {
        let mut stream = TlsConnector::from(client).connect(server_name(wanted).unwrap(), tcp).await?;
        stream.write_all(b"?").await?;
        stream.read_u8().await
    };
    let answerer = async {
        let (mut stream, name) = accept(server, accepted).await?;
        stream.read_u8().await?;
        stream.write_all(b"!").await?;
        stream.shutdown().await?;
        Ok::<_, TlsError>(name)
    };
    let (client, server) = tokio::join!(caller, answerer);
    Meeting {
        client: client.map(|_| ()).map_err(|error| TlsError::explain(error).to_string()),
        server: server.map_err(|error| error.to_string()),
    }
}

/// A client configuration that `Identity` would refuse to make: it shows any certificate, and trusts `trusted`.
fn odd_client(trusted: &FleetCa, shown: Option<(&FleetCa, &str)>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.certificate().unwrap().der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match shown {
        Some((ca, name)) => {
            let node = ca.sign(name).unwrap();
            builder.with_client_auth_cert(vec![node.certificate.der().clone()], node.key_der()).unwrap()
        }
        None => builder.with_no_client_auth(),
    })
}

#[tokio::test]
async fn the_right_peer_is_accepted_and_its_name_known() {
    let ca = fleet();
    let met = meet(client_config(&identity(&ca, "source")), &identity(&ca, "relay-1"), "relay-1").await;
    assert_eq!(met.client, Ok(()));
    assert_eq!(met.server.as_deref(), Ok("source"));
}

#[tokio::test]
async fn connect_and_accept_agree() {
    let ca = fleet();
    let (source, sink) = (identity(&ca, "source"), identity(&ca, "sink"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let (client, server) = tokio::join!(connect(&source, "sink", tcp), accept(&sink, accepted));
    let client = client.unwrap();
    assert_eq!(peer_name(client.get_ref().1.peer_certificates()).unwrap(), "sink");
    assert_eq!(server.unwrap().1, "source");
    assert_eq!(client.get_ref().1.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
}

#[tokio::test]
async fn another_name_than_the_wanted_one_is_refused() {
    let ca = fleet();
    let met = meet(client_config(&identity(&ca, "source")), &identity(&ca, "relay-1"), "relay-2").await;
    assert_eq!(met.client, Err("the peer's certificate carries another name".to_owned()));
    assert!(met.server.is_err());
}

#[tokio::test]
async fn a_server_of_another_fleet_is_refused() {
    let met = meet(client_config(&identity(&fleet(), "source")), &identity(&fleet(), "sink"), "sink").await;
    assert_eq!(met.client, Err("the peer's certificate is not of this fleet".to_owned()));
    assert_eq!(met.server, Err("the peer says that our certificate is not of its fleet".to_owned()));
}

#[tokio::test]
async fn a_client_of_another_fleet_is_refused() {
    let (ours, other) = (fleet(), fleet());
    let met = meet(odd_client(&ours, Some((&other, "source"))), &identity(&ours, "sink"), "sink").await;
    assert_eq!(met.server, Err("the peer's certificate is not of this fleet".to_owned()));
    assert_eq!(met.client, Err("the peer says that our certificate is not of its fleet".to_owned()));
}

#[tokio::test]
async fn a_client_without_certificate_is_refused() {
    let ca = fleet();
    let met = meet(odd_client(&ca, None), &identity(&ca, "sink"), "sink").await;
    assert_eq!(met.server, Err("the peer showed no certificate".to_owned()));
    assert_eq!(met.client, Err("the peer wants a certificate and got none".to_owned()));
}

#[tokio::test]
async fn an_expired_client_is_refused() {
    let key = rcgen::KeyPair::generate().unwrap();
    let now_key = rcgen::KeyPair::from_pem(&key.serialize_pem()).unwrap();
    let past = FleetCa::with_key(key, SystemTime::now() - 3 * DAY, DAY);
    let now = FleetCa::with_key(now_key, SystemTime::now(), DAY);
    let met = meet(odd_client(&now, Some((&past, "source"))), &identity(&now, "sink"), "sink").await;
    assert_eq!(met.server, Err("the peer's certificate has expired".to_owned()));
    assert_eq!(met.client, Err("the peer says that our certificate has expired".to_owned()));
}

#[tokio::test]
async fn garbage_instead_of_a_handshake_is_refused() {
    let ca = fleet();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    tcp.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let error = accept(&identity(&ca, "sink"), accepted).await.err().unwrap();
    assert_eq!(error.to_string(), "the peer does not speak TLS");
}

#[test]
fn identities_that_do_not_fit_together_are_refused_with_the_reason() {
    let (ca, other) = (fleet(), fleet());
    let (node, twin) = (ca.sign("a").unwrap(), ca.sign("a").unwrap());
    let root = |ca: &FleetCa| ca.certificate().unwrap().der().clone();
    let wrong_ca = Identity::new(root(&other), node.certificate.der().clone(), node.key_der()).unwrap_err();
    assert_eq!(wrong_ca.to_string(), "the identity is not usable: cert.pem is not signed by ca.pem");
    let wrong_key = Identity::new(root(&ca), node.certificate.der().clone(), twin.key_der()).unwrap_err();
    assert_eq!(wrong_key.to_string(), "the identity is not usable: key.pem is not the key of cert.pem");
    let past = FleetCa::new(SystemTime::now() - 3 * DAY, DAY).unwrap();
    let old = past.sign("a").unwrap();
    let expired = Identity::new(root(&past), old.certificate.der().clone(), old.key_der()).unwrap_err();
    assert_eq!(expired.to_string(), "the identity is not usable: its certificate has expired");
}

#[test]
fn missing_oversized_and_wrong_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = Identity::load(folder.path()).unwrap_err().to_string();
    assert!(error.contains("ca.pem"), "{error}");
    std::fs::write(folder.path().join("ca.pem"), "no PEM").unwrap();
    assert!(Identity::load(folder.path()).unwrap_err().to_string().contains("ca.pem"));
    std::fs::write(folder.path().join("ca.pem"), vec![b'x'; PEM_FILE_BYTES_MAX as usize + 1]).unwrap();
    assert!(Identity::load(folder.path()).unwrap_err().to_string().contains("larger than"));
}

#[test]
fn addresses_and_odd_strings_are_no_gateway_names() {
    for bad in ["127.0.0.1", "::1", "", "a b", "a/b"] {
        assert!(matches!(server_name(bad), Err(TlsError::Name(_))), "{bad:?}");
    }
}

#[test]
fn debug_shows_no_key() {
    let ca = fleet();
    assert_eq!(format!("{:?}", identity(&ca, "a")), "Identity { name: \"a\", .. }");
}
