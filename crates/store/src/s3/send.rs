//! Addresses, signs and sends one call, and sorts its answer into success or an error with a meaning.

use super::Bucket;
use super::address::BucketAddress;
use super::credentials::Authority;
use super::errors::{meaning, names_customer_key, says_gone};
use crate::error::WRONG_CLOCK;
use crate::rest::{
    Call, ErrorAnswer, Secrets, code_and_status, describe, encode_path, encode_query, header, is_web_page,
    no_longer_gone, parse_error, parse_json_error, read_all, unix_now_ms, wants_tls,
};
use crate::xml::is_document;
use crate::{Error, ErrorKind, Payload, Result};
use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;
use std::sync::{Arc, PoisonError};

/// A refusal: its error, and the details needed to work around it.
pub(super) struct Refusal {
    pub(super) error: Error,
    pub(super) status: StatusCode,
    pub(super) code: String,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { error, status: StatusCode::OK, code: String::new() }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        refusal.error
    }
}

impl Bucket {
    /// A call on `key`, or on the bucket if `key` is empty.
    pub(super) fn call(&self, operation: &'static str, method: Method, key: &str, query: &[(&str, &str)]) -> Call {
        let url = if key.is_empty() { self.url.clone() } else { format!("{}/{key}", self.url) };
        Call {
            operation,
            url,
            method,
            origin: String::new(),
            // The root is prefixed when the call is sent: a region hint may change it.
            path: encode_path("", key),
            query: if query.is_empty() { String::new() } else { encode_query(query) },
            headers: HeaderMap::with_capacity(16),
            body: Payload::default(),
            patient: false,
        }
    }

    /// Refuses keys that no store of this kind can hold.
    pub(super) fn check_key(&self, operation: &'static str, key: &str) -> Result<()> {
        let wrong = |why: String| Err(Error::new(ErrorKind::InvalidKey, operation, format!("{}/{key}", self.url), why));
        if key.is_empty() {
            return wrong("an object needs a key that is not empty".to_owned());
        }
        if key.len() > self.limits.key_bytes_max {
            return wrong(format!(
                "the key has {} bytes, but the store allows {}",
                key.len(),
                self.limits.key_bytes_max
            ));
        }
        Ok(())
    }

    pub(super) fn address(&self) -> Arc<BucketAddress> {
        Arc::clone(&self.address.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends a call and returns a successful answer, its body unread.
    pub(super) async fn send(&self, call: Call) -> Result<Response<Incoming>, Refusal> {
        self.region_known.get_or_init(|| self.follow_bucket()).await;
        let address = self.address();
        let refusal = match self.send_to(&address, call.clone()).await? {
            Ok(response) => return Ok(response),
            Err(refusal) => refusal,
        };
        let moved = refusal.1.filter(|region| self.at_aws && *region != address.region);
        let Some(region) = moved else { return Err(refusal.0) };
        let address = Arc::new(BucketAddress::aws(&self.bucket, &region, self.path_style));
        *self.address.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&address);
        tracing::debug!(bucket = %self.bucket, %region, "following the bucket to its region");
        self.send_to(&address, call).await?.map_err(|(refusal, _)| refusal)
    }

    /// Sends a call and reads a small answer in full.
    pub(super) async fn send_small(&self, call: Call) -> Result<(HeaderMap, Bytes), Refusal> {
        let response = self.send(call.clone()).await?;
        let (head, body) = response.into_parts();
        let mut body = read_all(&call, body).await?;
        if call.operation == "delete" {
            body = Secrets::hide(&head, body);
        }
        self.refuse_late(&call, &head, &body)?;
        Ok((head.headers, body))
    }

    /// Sends a call once. The inner error holds the refusal and the region hint of the server.
    pub(super) async fn send_to(
        &self,
        address: &BucketAddress,
        mut call: Call,
    ) -> Result<Result<Response<Incoming>, (Refusal, Option<String>)>> {
        call.origin.clone_from(&address.origin);
        call.path.insert_str(0, &address.root);
        if self.requester_pays && self.dialect.amz_checksums {
            call.headers.insert("x-amz-request-payer", HeaderValue::from_static("requester"));
        }
        self.authorise(&mut call, address).await?;
        let asked = Call { body: Payload::default(), headers: HeaderMap::new(), ..call.clone() };
        let response = self.http.send(call).await?;
        if response.status().is_success() {
            return Ok(Ok(response));
        }
        let (head, body) = response.into_parts();
        let body = if asked.method == Method::HEAD { Bytes::new() } else { read_all(&asked, body).await? };
        let body = Secrets::hide(&head, body);
        let answer = parse_error(&body).or_else(|| parse_json_error(&body));
        let region = header(&head.headers, "x-amz-bucket-region").map(str::to_owned);
        let region = region.or_else(|| answer.as_ref().and_then(|answer| answer.region.clone()));
        let mut refusal = self.refusal(&asked, head.status, &head.headers, answer);
        refusal.error.message = Secrets::hide_in(&head, &refusal.error.message);
        if let Some(message) = wants_tls(&asked.origin, head.status, &body) {
            refusal.error = asked.error(ErrorKind::Configuration, message);
        }
        if matches!(refusal.error.kind, ErrorKind::Unauthenticated | ErrorKind::Forbidden) {
            refusal.error.message += &format!("; credentials: {}", self.credentials.source().await);
        }
        let ahead_s = self.http.clock_ahead_s().unwrap_or_default();
        if refusal.code == WRONG_CLOCK && ahead_s != 0 {
            let side = if ahead_s > 0 { "ahead of" } else { "behind" };
            let seconds = ahead_s.unsigned_abs();
            refusal.error.message += &format!("; this machine's clock is {seconds} s {side} the store's");
        }
        let now_unix_s = unix_now_ms() / 1000 - ahead_s;
        // The answer to HEAD has no body, so nothing in it says that its 400 or 403 is about expired credentials.
        let unexplained =
            asked.method == Method::HEAD && matches!(refusal.error.kind, ErrorKind::BadRequest | ErrorKind::Forbidden);
        if (refusal.error.kind == ErrorKind::Unauthenticated || unexplained)
            && self.credentials.may_be_renewed(&refusal.code, now_unix_s)
        {
            refusal.error.kind = ErrorKind::Expired;
        }
        if asked.method == Method::DELETE && !says_gone(&refusal.code, &body) {
            refusal.error.kind = no_longer_gone(refusal.error.kind);
        }
        Ok(Err((refusal, region)))
    }

    fn refusal(&self, call: &Call, status: StatusCode, headers: &HeaderMap, answer: Option<ErrorAnswer>) -> Refusal {
        let code = answer.as_ref().map(|answer| answer.code.clone()).unwrap_or_default();
        let mut kind = meaning(status, &code);
        if kind == ErrorKind::NotFound && call.url == self.url {
            kind = ErrorKind::BucketNotFound;
        }
        if answer.as_ref().is_some_and(|answer| names_customer_key(&code, &answer.message)) {
            kind = ErrorKind::CustomerKey;
        }
        let message = describe(status, answer.as_ref(), header(headers, self.dialect.request_id));
        let error = call.error(kind, message).answered(code_and_status(status, &code));
        Refusal { error, status, code }
    }

    /// Fails if the answer's status says success but its body holds an error.
    pub(super) fn refuse_late(&self, call: &Call, answer: &Parts, body: &Bytes) -> Result<()> {
        match parse_error(body) {
            Some(_) => {
                let error = self.late_refusal(call, &Secrets::hide(answer, body.clone()), "refused");
                let message = Secrets::hide_in(answer, &error.message);
                Err(Error { message, ..error })
            }
            None => Ok(()),
        }
    }

    /// The error for an answer whose status says success but whose body holds an error, or cannot be read because of
    /// `otherwise`. A server that sends a whole document of another kind will do so again; an answer that was cut, or a
    /// proxy's page, may be followed by a better one.
    pub(super) fn late_refusal(&self, call: &Call, body: &[u8], otherwise: impl std::fmt::Display) -> Error {
        match parse_error(body) {
            Some(answer) => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                self.refusal(call, status, &HeaderMap::new(), Some(answer)).error
            }
            None if is_document(body) && !is_web_page(body) => call.error(ErrorKind::Protocol, otherwise),
            None => call.error(ErrorKind::Server, otherwise),
        }
    }

    async fn authorise(&self, call: &mut Call, address: &BucketAddress) -> Result<()> {
        let authority = self.credentials.authority().await;
        match authority.map_err(|why| call.error(ErrorKind::Unauthenticated, format!("no credentials: {why}")))? {
            Authority::Nobody => {}
            Authority::Aws(credential) => {
                self.signer.sign(call, &credential, &address.region, unix_now_ms() / 1000);
            }
            Authority::Bearer(token) => {
                let value = HeaderValue::from_str(&format!("Bearer {token}"));
                let mut value = value.map_err(|_| call.error(ErrorKind::Unauthenticated, "malformed token"))?;
                value.set_sensitive(true);
                call.headers.insert(http::header::AUTHORIZATION, value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Delegated, ErrorKind, Precondition, PutOptions, StoreAuthority, StoreConfig};
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::Arc;

    /// Starts a server that refuses every request with this status and without a body, as for `HEAD`.
    fn refusing(status: u16) -> String {
        answering(format!("HTTP/1.1 {status} Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
    }

    /// Starts a server with the same answer to every request.
    fn answering(answer: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        origin
    }

    #[tokio::test]
    async fn a_document_of_another_kind_is_not_requested_again() {
        for (body, expected) in [
            ("<Other><UploadId>7</UploadId></Other>", ErrorKind::Protocol),
            ("<InitiateMultipartUploadResult><UploadId>7</Uplo", ErrorKind::Server),
            ("<html><body>one moment</body></html>", ErrorKind::Server),
            ("", ErrorKind::Server),
        ] {
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close");
            let endpoint = Some(answering(format!("{head}\r\n\r\n{body}")));
            let config = StoreConfig { url: "s3://bucket".into(), endpoint, anonymous: true, ..StoreConfig::default() };
            let error = crate::open(&config).unwrap().open_upload("key", &PutOptions::default()).await.unwrap_err();
            assert_eq!(error.kind, expected, "{body}: {error}");
        }
    }

    #[tokio::test]
    async fn a_refused_head_with_expired_credentials_is_expiry_though_its_answer_has_no_code() {
        let session = |name: &str| {
            let token = Some("t".to_owned());
            Ok(StoreAuthority::Aws { key_id: name.to_owned(), secret_key: "s".to_owned(), token })
        };
        for (status, otherwise) in [(400, ErrorKind::BadRequest), (403, ErrorKind::Forbidden)] {
            let delegated = Arc::new(Delegated::new(session("first"), Some(1000)));
            let config = StoreConfig {
                url: "s3://bucket".to_owned(),
                endpoint: Some(refusing(status)),
                delegated: Some(Arc::clone(&delegated)),
                ..StoreConfig::default()
            };
            let store = crate::open(&config).unwrap();
            assert_eq!(store.head("key").await.unwrap_err().kind, ErrorKind::Expired, "{status}");
            delegated.replace(session("first"), None);
            assert_eq!(store.head("key").await.unwrap_err().kind, otherwise, "these last");
        }
    }

    #[tokio::test]
    async fn a_refused_time_names_the_clock_that_is_wrong() {
        let body = "<Error><Code>RequestTimeTooSkewed</Code><Message>too large</Message></Error>";
        let length = body.len();
        let date = "Date: Sat, 01 Jan 2000 00:00:00 GMT";
        let head = format!("HTTP/1.1 403 Forbidden\r\n{date}\r\nContent-Length: {length}\r\nConnection: close");
        let config = StoreConfig {
            url: "s3://bucket".to_owned(),
            endpoint: Some(answering(format!("{head}\r\n\r\n{body}"))),
            anonymous: true,
            ..StoreConfig::default()
        };
        let error =
            crate::open(&config).unwrap().get("key", None, &Precondition::default()).await.map(drop).unwrap_err();
        assert!(error.message.contains("; this machine's clock is "), "{error}");
        assert!(error.message.ends_with(" s ahead of the store's"), "{error}");
        assert_eq!(error.hint(), Some("set the clock of the machine that sends the requests, e.g. by NTP"));
    }
}
