//! Bytes that clients, load balancers and upstream proxies send to a split proxy before those of a flow.

use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::pin::pin;
use std::sync::Arc;
use tradewind_split::proxy_protocol;
use tradewind_split::token::Tokens;
use tradewind_split::upstream::{self, Protocol, Upstream};
use tradewind_split::ways::{connect, sni, socks5};

/// The hash of `secret`.
const TOKENS: &str = "ann:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// The start of a TLS connection to a server.
#[allow(dead_code, reason = "the tests make seeds with it")]
pub(crate) fn hello(name: &'static str) -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = name.try_into().expect("the name is valid");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("the configuration is valid");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("a vector takes all bytes");
    hello
}

/// Parses the rest of `data` in the way that its first byte chooses. Pieces of a start must never be refused before
/// the whole is, and a PROXY header must survive encoding and parsing unchanged.
pub(crate) fn run(data: &[u8]) {
    let Some((way, data)) = data.split_first() else { return };
    let half = &data[..data.len() / 2];
    match way % 7 {
        0 => socks(data, None),
        1 => socks(data, Some(&TOKENS.parse().expect("the tokens are well-formed"))),
        2 => {
            if connect::Request::parse(data).is_ok() {
                assert!(connect::Request::parse(half).is_ok(), "a half is refused");
            }
        }
        3 => {
            if sni::server_name(data).is_ok() {
                assert!(sni::server_name(half).is_ok(), "a half is refused");
            }
        }
        5 => answer(data, Protocol::Socks5),
        6 => answer(data, Protocol::Connect),
        _ => {
            let Some(Ok(Some(ends))) = ready(proxy_protocol::read(&mut &*data)) else { return };
            let header = proxy_protocol::encode(ends.client, ends.entry);
            let again = ready(proxy_protocol::read(&mut &*header)).expect("a slice never waits");
            assert_eq!(again.expect("what was encoded parses"), Some(ends));
        }
    }
}

fn socks(data: &[u8], tokens: Option<&Tokens>) {
    let mut stream = tokio::io::join(data, tokio::io::sink());
    let opened = ready(socks5::open(&mut stream, tokens)).expect("neither a slice nor a sink waits");
    if let Ok(destination) = opened {
        assert_eq!(Ok(&destination), destination.to_string().parse().as_ref());
    }
}

fn answer(data: &[u8], way: Protocol) {
    let at = "192.0.2.1:1080".parse().expect("the address is well-formed");
    let to = "a.example:443".parse().expect("the destination is well-formed");
    let mut stream = tokio::io::join(data, tokio::io::sink());
    let upstream = Upstream { address: at, way, login: None };
    let _ = ready(upstream::ask(&mut stream, &upstream, &to)).expect("neither a slice nor a sink waits");
}

/// The result of work that never waits for anything.
fn ready<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match pin!(work).poll(&mut context) {
        std::task::Poll::Ready(result) => Some(result),
        std::task::Poll::Pending => None,
    }
}
