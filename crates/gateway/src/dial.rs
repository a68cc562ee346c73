//! Opens control connections: directly or, where that is not possible, through the HTTP proxy of the environment.
//!
//! The proxy is that of `https_proxy` or `HTTPS_PROXY`; `no_proxy` or `NO_PROXY` excludes hosts. It is asked by
//! `CONNECT` (RFC 9110, section 9.3.6), so it sees only TLS. Loopback addresses are never dialled through it.

use crate::limits::{DIRECT_TIMEOUT, PROXY_ANSWER_BYTES_MAX, REACH_TIMEOUT};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io;
use std::net::IpAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

static PROXY: LazyLock<Option<Proxy>> = LazyLock::new(|| Proxy::of(|name| std::env::var(name).ok()));

/// True while only the proxy leads to others: the direct way would first have to time out each time.
static PROXY_LEADS: AtomicBool = AtomicBool::new(false);

/// Opens a connection to `address` within [`REACH_TIMEOUT`].
///
/// # Errors
/// Neither the direct way nor the proxy, if there is one, leads there.
pub(crate) async fn dial(address: &str) -> io::Result<TcpStream> {
    let tcp = match PROXY.as_ref().filter(|proxy| proxy.serves(address)) {
        None => in_time(REACH_TIMEOUT, TcpStream::connect(address)).await?,
        Some(proxy) => in_time(REACH_TIMEOUT, by_either(proxy, address, &PROXY_LEADS)).await?,
    };
    drop(tcp.set_nodelay(true));
    Ok(tcp)
}

async fn by_either(proxy: &Proxy, address: &str, proxy_leads: &AtomicBool) -> io::Result<TcpStream> {
    if proxy_leads.load(Ordering::Relaxed) {
        match proxy.connect(address).await {
            Ok(tcp) => return Ok(tcp),
            Err(_) => proxy_leads.store(false, Ordering::Relaxed),
        }
    }
    let direct = match in_time(DIRECT_TIMEOUT, TcpStream::connect(address)).await {
        Ok(tcp) => return Ok(tcp),
        Err(error) => error,
    };
    match proxy.connect(address).await {
        Ok(tcp) => {
            proxy_leads.store(true, Ordering::Relaxed);
            Ok(tcp)
        }
        Err(error) => {
            Err(io::Error::new(direct.kind(), format!("{direct}; through the proxy {}: {error}", proxy.address)))
        }
    }
}

async fn in_time<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()))
}

/// An HTTP proxy, and the hosts that are not dialled through it.
#[derive(Debug)]
struct Proxy {
    /// `HOST:PORT`.
    address: String,
    /// The value of `Proxy-Authorization`.
    authorization: Option<String>,
    excluded: Vec<String>,
}

impl Proxy {
    /// Returns the proxy that environment variables name; none if they name none, or one that is not spoken to in plain
    /// HTTP.
    fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let first = |names: [&str; 2]| names.into_iter().filter_map(&variable).find(|value| !value.is_empty());
        let url = first(["https_proxy", "HTTPS_PROXY"])?;
        let rest = match url.split_once("://") {
            Some(("http", rest)) => rest,
            Some(_) => return None,
            None => url.as_str(),
        };
        let authority = rest.split(['/', '?']).next()?;
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { host.to_owned() } else { format!("{host}:80") };
        let authorization = user.map(|user| format!("Basic {}", STANDARD.encode(percent_decoded(user))));
        let excluded = first(["no_proxy", "NO_PROXY"]).unwrap_or_default();
        let excluded = excluded.split(',').map(|host| host.trim().to_lowercase()).filter(|host| !host.is_empty());
        Some(Self { address, authorization, excluded: excluded.collect() })
    }

    /// Returns whether `HOST:PORT` may be dialled through this proxy.
    fn serves(&self, address: &str) -> bool {
        let Some((host, _)) = address.rsplit_once(':') else { return false };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_lowercase();
        let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let is_excluded = self.excluded.iter().any(|excluded| {
            let name = excluded.trim_start_matches('.');
            excluded == "*" || host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
        });
        !is_here && !is_excluded
    }

    async fn connect(&self, address: &str) -> io::Result<TcpStream> {
        let mut tcp = TcpStream::connect(&self.address).await?;
        let mut request = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n");
        if let Some(authorization) = &self.authorization {
            request.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
        }
        request.push_str("\r\n");
        tcp.write_all(request.as_bytes()).await?;
        // Byte by byte: what follows the head belongs to the tunnel.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == PROXY_ANSWER_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is too long"));
            }
            head.push(tcp.read_u8().await?);
        }
        let text = String::from_utf8_lossy(&head);
        let line = text.lines().next().unwrap_or_default();
        match line.split(' ').nth(1) {
            Some(status) if line.starts_with("HTTP/1.") && status.len() == 3 && status.starts_with('2') => Ok(tcp),
            _ => Err(io::Error::other(format!("it answers {line:?}"))),
        }
    }
}

/// Replaces `%XX` by its byte.
fn percent_decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = (*first == b'%').then(|| tail.get(..2)).flatten().and_then(|two| std::str::from_utf8(two).ok());
        if let Some(byte) = digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            decoded.push(byte);
            rest = &tail[2..];
        } else {
            decoded.push(*first);
            rest = tail;
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    fn proxy(pairs: &[(&str, &str)]) -> Option<Proxy> {
        Proxy::of(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned()))
    }

    #[test]
    fn the_environment_names_the_proxy_and_whom_it_does_not_serve() {
        assert!(proxy(&[]).is_none());
        assert!(proxy(&[("https_proxy", ""), ("HTTPS_PROXY", "https://proxy.example")]).is_none());
        let found = proxy(&[
            ("HTTPS_PROXY", "http://me:p%40ss@proxy.example/"),
            ("no_proxy", "169.254.169.254, .lab.example,10.0.0.1"),
        ])
        .unwrap();
        assert_eq!(found.address, "proxy.example:80");
        assert_eq!(found.authorization.as_deref(), Some("Basic bWU6cEBzcw=="));
        for excluded in ["10.0.0.1:7442", "a.LAB.example:1", "lab.example:1", "127.0.0.1:1", "[::1]:1", "localhost:1"] {
            assert!(!found.serves(excluded), "{excluded}");
        }
        for served in ["10.0.0.10:7442", "collab.example:1", "[2001:db8::1]:7442"] {
            assert!(found.serves(served), "{served}");
        }
        assert!(!proxy(&[("https_proxy", "proxy:3128"), ("no_proxy", "*")]).unwrap().serves("192.0.2.1:1"));
        assert_eq!(proxy(&[("https_proxy", "proxy:3128")]).unwrap().address, "proxy:3128");
    }

    /// A proxy that opens no connection, but repeats what comes after its answer. Returns it, and its requests.
    async fn answering(answer: &'static str) -> (Proxy, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(tcp.read_u8().await.unwrap());
            }
            tcp.write_all(answer.as_bytes()).await.unwrap();
            if let Ok(byte) = tcp.read_u8().await {
                tcp.write_u8(byte).await.unwrap();
            }
            String::from_utf8(head).unwrap()
        });
        (Proxy { address, authorization: Some("Basic x".to_owned()), excluded: Vec::new() }, served)
    }

    /// Nothing listens there.
    async fn unreachable() -> String {
        TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
    }

    #[tokio::test]
    async fn the_proxy_leads_where_the_direct_way_does_not() {
        let (proxy, served) = answering("HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n").await;
        let (leads, there) = (AtomicBool::new(false), unreachable().await);
        let mut tcp = by_either(&proxy, &there, &leads).await.unwrap();
        tcp.write_u8(7).await.unwrap();
        assert_eq!(tcp.read_u8().await.unwrap(), 7);
        let asked = served.await.unwrap();
        assert_eq!(asked, format!("CONNECT {there} HTTP/1.1\r\nHost: {there}\r\nProxy-Authorization: Basic x\r\n\r\n"));
        assert!(leads.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn the_direct_way_is_taken_where_it_leads_there_also_after_the_proxy_has_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap().to_string();
        let gone = Proxy { address: unreachable().await, authorization: None, excluded: Vec::new() };
        let leads = AtomicBool::new(true);
        by_either(&gone, &there, &leads).await.unwrap();
        assert!(!leads.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn a_proxy_that_refuses_is_named_beside_the_direct_failure() {
        for (answer, words) in [
            ("HTTP/1.1 403 Forbidden\r\n\r\n", "it answers \"HTTP/1.1 403 Forbidden\""),
            ("nonsense\r\n\r\n", "it answers \"nonsense\""),
            ("", "early eof"),
        ] {
            let (proxy, served) = answering(answer).await;
            if answer.is_empty() {
                served.abort();
            }
            let error = by_either(&proxy, &unreachable().await, &AtomicBool::new(false)).await.unwrap_err();
            let said = error.to_string();
            assert!(
                said.contains("efused") && said.contains(&format!("through the proxy {}", proxy.address)),
                "{said}"
            );
            assert!(answer.is_empty() || said.contains(words), "{said}");
        }
    }
}
