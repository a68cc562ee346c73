//! The HTTP client that all network stores share: one connection pool per store, HTTP/1.1 keep-alive, exact paths.
//!
//! Built on hyper rather than reqwest because keys must reach the server byte for byte: reqwest (like everything else
//! based on `url::Url`) removes `.` and `..` segments. It retries nothing: that is the caller's decision, because the
//! caller knows the job.

mod availability;
mod body;
mod clock;
mod connector;
mod encode;
mod endpoint;
mod error_answer;
mod failed;
mod length;
mod progress;
mod secrets;
mod time;

pub use availability::Unreachable;
pub(crate) use body::{SendBody, read_all, read_up_to, stream_exactly};
pub(crate) use connector::TlsRoots;
pub(crate) use encode::{encode_path, encode_query, percent_decode, percent_encode};
pub(crate) use endpoint::split_endpoint;
pub(crate) use error_answer::{
    ErrorAnswer, code_and_status, describe, no_longer_gone, parse_error, parse_json_error, wants_tls,
};
pub(crate) use length::{content_length, expected_bytes};
pub use progress::{WORK_BYTES_PER_S_MIN, WorkLimits, with_progress};
pub(crate) use progress::{still_at_work, work_limits};
pub(crate) use secrets::Secrets;
pub(crate) use time::{amz_date, iso_date, parse_http_date, parse_rfc3339, unix_now_ms};

use crate::model::another_state;
use crate::{Error, ErrorKind, ObjectInfo, Payload, Precondition, Result};
pub(crate) use availability::Availability;
use clock::ServerClock;
use connector::{CONNECT_TIMEOUT, Connector, connector};
use failed::Failed;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::time::{Duration, Instant};

/// Time limit for the answer to a request that moves no object bytes; after it, [`ErrorKind::Timeout`].
const METADATA_TIMEOUT: Duration = Duration::from_secs(60);
/// Most idle connections kept per host; further ones are closed when they become idle.
const IDLE_CONNECTIONS_MAX: usize = 256;
/// Idle connections are closed after this. S3 closes its end after about 20 s, and a connection that closes during a
/// request costs a retry.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Largest read buffer of one connection. Body frames are at most this long.
const READ_BUFFER_BYTES_MAX: usize = 512 * 1024;

/// One request before it is signed. A clone is cheap, so it can be sent again in another form.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Name of the store operation, for errors.
    pub(crate) operation: &'static str,
    /// URL as the user writes it, for errors.
    pub(crate) url: String,
    pub(crate) method: Method,
    /// Scheme, host and port: `https://host:port`.
    pub(crate) origin: String,
    /// Encoded path, beginning with `/`.
    pub(crate) path: String,
    /// Encoded query in canonical order, without `?`.
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Payload,
    /// True if the answer has no time limit (object bytes move, or the server works).
    pub(crate) patient: bool,
}

impl Call {
    /// Sets a header whose value may come from a user. A value that HTTP cannot carry is a bad request.
    pub(crate) fn set(&mut self, name: &'static str, value: &str) -> Result<()> {
        let name = http::HeaderName::from_static(name);
        self.headers.insert(name, self.header_value(value)?);
        Ok(())
    }

    /// Like [`Call::set`], for names that are not known at compile time.
    pub(crate) fn set_named(&mut self, name: &str, value: &str) -> Result<()> {
        let header = http::HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| self.error(ErrorKind::BadRequest, format!("`{name}` cannot be a header name")))?;
        let value = self.header_value(value)?;
        self.headers.insert(header, value);
        Ok(())
    }

    fn header_value(&self, value: &str) -> Result<HeaderValue> {
        HeaderValue::from_str(value)
            .or_else(|_| HeaderValue::from_bytes(value.as_bytes()))
            .map_err(|_| self.error(ErrorKind::BadRequest, format!("`{}` cannot be a header", value.escape_debug())))
    }

    /// Refuses an answer that shows another state of the object, because servers may ignore conditions.
    pub(crate) fn require(&self, condition: &Precondition, now: &ObjectInfo) -> Result<()> {
        match condition.difference(now) {
            None => Ok(()),
            Some(difference) => Err(self.error(ErrorKind::PreconditionFailed, another_state(difference))),
        }
    }

    /// Returns an error of this call.
    pub(crate) fn error(&self, kind: ErrorKind, message: impl std::fmt::Display) -> Error {
        Error::new(kind, self.operation, self.url.clone(), message)
    }
}

/// A connection pool.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    client: Client<Connector, SendBody>,
    /// Names the proxy of a request that failed.
    connector: Connector,
    clock: ServerClock,
    availability: Availability,
}

impl Http {
    /// A pool that trusts `roots`. Opens no connection and reads no certificates for plain HTTP.
    pub(crate) fn new(roots: &TlsRoots) -> Result<Self> {
        Self::with_connect_timeout(roots, CONNECT_TIMEOUT)
    }

    /// Like [`Http::new`], with another time limit for TCP, proxy and TLS together.
    pub(crate) fn with_connect_timeout(roots: &TlsRoots, connect_timeout: Duration) -> Result<Self> {
        let connector = connector(roots, connect_timeout)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .http1_max_buf_size(READ_BUFFER_BYTES_MAX)
            .build(connector.clone());
        Ok(Self { client, connector, clock: ServerClock::default(), availability: Availability::default() })
    }

    /// The `Date` of the server's latest answer, in whole seconds.
    pub(crate) fn date_unix_ms(&self) -> Option<i64> {
        self.clock.date_unix_ms()
    }

    /// This machine's clock minus the server's in seconds, once an answer had a date.
    pub(crate) fn clock_ahead_s(&self) -> Option<i64> {
        self.clock.ahead_s()
    }

    /// Returns the tracker that requests and bodies report to.
    pub(crate) fn availability(&self) -> Availability {
        self.availability.clone()
    }

    /// Set while no connection can be made, or while all answers are errors.
    pub(crate) fn unreachable(&self) -> Option<Unreachable> {
        self.availability.failing()
    }

    /// Returns whether there was ever a connection, so that a request may have reached the server.
    pub(crate) fn was_reached(&self) -> bool {
        self.availability.was_connected()
    }

    /// Sends a signed call and waits for the head of the answer, whatever its status.
    pub(crate) async fn send(&self, call: Call) -> Result<Response<Incoming>> {
        let Call { operation, url, method, origin, path, query, mut headers, body, patient } = call;
        let fail = |kind, message: String| Error::new(kind, operation, url.clone(), message);
        let target = if query.is_empty() { format!("{origin}{path}") } else { format!("{origin}{path}?{query}") };
        let uri = Uri::try_from(target).map_err(|error| fail(ErrorKind::InvalidKey, error.to_string()))?;
        let body_expected = method == Method::PUT || method == Method::POST;
        if body_expected && body.is_empty() {
            headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        headers.entry(http::header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
        let secrets = Secrets::of(&headers, &query, body.segments());
        let body_bytes = body.len();
        let life = (body_bytes > SHORT_BODY_BYTES_MAX).then(|| self.availability.clone());
        let mut request = Request::new(SendBody::new(body, life));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        let (began, sent_unix_ms) = (Instant::now(), unix_now_ms());
        let is_short = body_bytes <= SHORT_BODY_BYTES_MAX;
        let mut unanswered = Unanswered { availability: &self.availability, origin: &origin, began, waits: is_short };
        let answer = self.client.request(request);
        let answer = if patient {
            answer.await
        } else {
            tokio::time::timeout(METADATA_TIMEOUT, answer).await.map_err(|_| {
                self.availability.connected();
                fail(ErrorKind::Timeout, format!("no answer within {} s", METADATA_TIMEOUT.as_secs()))
            })?
        };
        unanswered.waits = false;
        let mut answer = answer.map_err(|error| {
            let was_answered = self.availability.was_answered();
            let proxy = origin.parse().ok().and_then(|target| self.connector.proxy_of(&target));
            let failed = Failed::of(&error, &origin, proxy.as_deref(), was_answered);
            let (kind, cause) = (failed.kind, failed.cause_and_proxy());
            match kind {
                ErrorKind::Connection | ErrorKind::Timeout if error.is_connect() || is_short => {
                    self.availability.failed(&origin, began, !error.is_connect(), &cause);
                }
                _ if error.is_connect() => {}
                _ => self.availability.connected(),
            }
            fail(kind, failed.to_string())
        })?;
        match answer.status() {
            status if is_passing(status) => self.availability.failed(&origin, began, true, &format!("HTTP {status}")),
            _ => self.availability.answered(),
        }
        self.clock.observe(sent_unix_ms, unix_now_ms(), answer.headers());
        answer.extensions_mut().insert(secrets);
        Ok(answer)
    }
}

/// A request that waits for the head of its answer. If it is dropped before that, because the caller no longer waits,
/// it counts as unanswered.
struct Unanswered<'a> {
    availability: &'a Availability,
    origin: &'a str,
    began: Instant,
    waits: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if self.waits {
            let why = format!("no answer for {} s", self.began.elapsed().as_secs());
            // It is unknown whether the request had a connection.
            self.availability.failed(self.origin, self.began, self.availability.was_connected(), &why);
        }
    }
}

/// Returns whether a later request may succeed despite this status.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502..=504)
}

/// A request with a longer body that ends without an answer does not count against the server: its bytes may still have
/// been on their way.
const SHORT_BODY_BYTES_MAX: u64 = 64 << 10;

const USER_AGENT: &str = concat!("tradewind/", env!("CARGO_PKG_VERSION"));

/// The meaning of a status alone, for answers with an uninformative body.
pub(crate) fn status_meaning(status: StatusCode) -> ErrorKind {
    match status.as_u16() {
        // Ranges are always requested within the known length, so 416 means that the object is now another one.
        304 | 412 | 416 => ErrorKind::PreconditionFailed,
        401 => ErrorKind::Unauthenticated,
        403 => ErrorKind::Forbidden,
        404 | 410 => ErrorKind::NotFound,
        408 | 504 => ErrorKind::Timeout,
        429 | 503 => ErrorKind::SlowDown,
        501 => ErrorKind::Unsupported,
        507 => ErrorKind::NoSpace,
        500..=599 => ErrorKind::Server,
        _ => ErrorKind::BadRequest,
    }
}

/// Returns whether a body is a web page, which a proxy or a captive portal may send instead of the store's answer.
pub(crate) fn is_web_page(body: &[u8]) -> bool {
    let start = body.trim_ascii_start();
    ["<!doctype html", "<html"]
        .iter()
        .any(|tag| start.get(..tag.len()).is_some_and(|head| head.eq_ignore_ascii_case(tag.as_bytes())))
}

/// Refuses a successful answer to a write that has a body but no ETag: no store sends such an answer.
pub(crate) fn refuse_foreign_answer(call: &Call, etag: Option<&str>, body: &[u8]) -> Result<()> {
    if etag.is_some() || body.trim_ascii().is_empty() {
        return Ok(());
    }
    Err(call.error(ErrorKind::Protocol, "the answer does not come from the store: it has a body and no ETag"))
}

/// The error of a read. Without a condition, a failed precondition can only mean that the object is too short.
pub(crate) fn read_error(error: Error, condition: &Precondition) -> Error {
    match error.kind {
        ErrorKind::PreconditionFailed if condition.is_any() => Error { kind: ErrorKind::Truncated, ..error },
        _ => error,
    }
}

/// A header as text; `None` if it is missing or not UTF-8.
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_pages_are_recognised_by_their_first_tag() {
        assert!(is_web_page(b"\n<!DOCTYPE html><title>Sign in</title>"));
        assert!(is_web_page(b"<HTML lang=en>"));
        assert!(!is_web_page(b""));
        assert!(!is_web_page(b"<?xml version=\"1.0\"?><Error/>"));
    }
}
