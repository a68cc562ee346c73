//! Addresses, authorises and sends one call, and sorts its answer into success or an error with a meaning.

use super::errors::{in_the_way, meaning, says_gone};
use super::source::describe_missing;
use super::{AzureStore, LIMITS};
use crate::error::innermost;
use crate::rest::{
    Call, Secrets, code_and_status, describe, encode_path, encode_query, header, no_longer_gone, parse_error, read_all,
    unix_now_ms, wants_tls,
};
use crate::{Error, ErrorKind, Payload, Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;
use object_store::azure::AzureAuthorizer;
use object_store::client::{HttpRequest, HttpRequestBody};

/// Service version. It has CRC-64 on all writes, blobs of 190 TiB, and `startFrom` in listings.
const SERVICE_VERSION: &str = "2023-11-03";

impl AzureStore {
    /// A call on `key`, or on the container if `key` is empty.
    pub(super) fn call(&self, operation: &'static str, method: Method, key: &str, query: &[(&str, &str)]) -> Call {
        // An account has no container, and the path `/account/`.
        let root = format!("{}/{}", self.account_root, self.container);
        let mut headers = HeaderMap::with_capacity(16);
        headers.insert("x-ms-version", HeaderValue::from_static(SERVICE_VERSION));
        Call {
            operation,
            url: if key.is_empty() { self.url.clone() } else { format!("{}/{key}", self.url) },
            method,
            origin: self.origin.clone(),
            path: if key.is_empty() { root } else { encode_path(&root, key) },
            query: encode_query(query),
            headers,
            body: Payload::default(),
            patient: false,
        }
    }

    /// Refuses keys that Azure would alter.
    pub(super) fn check_key(&self, operation: &'static str, key: &str) -> Result<()> {
        let wrong = |why: String| Err(Error::new(ErrorKind::InvalidKey, operation, format!("{}/{key}", self.url), why));
        if key.is_empty() {
            return wrong("an object needs a key that is not empty".to_owned());
        }
        if key.len() > LIMITS.key_bytes_max {
            return wrong(format!("the key has {} bytes, but the store allows {}", key.len(), LIMITS.key_bytes_max));
        }
        if key.split('/').any(|segment| segment == "." || segment == "..") {
            return wrong("Azure resolves `.` and `..` segments, so this key would name another object".to_owned());
        }
        if key.contains('\\') {
            return wrong("Azure treats a backslash as a slash".to_owned());
        }
        Ok(())
    }

    /// Sends a call and returns a successful answer, its body unread.
    pub(super) async fn send(&self, mut call: Call) -> Result<Response<Incoming>> {
        if !call.body.is_empty() {
            // The signature covers the length.
            call.headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(call.body.len()));
        }
        self.authorise(&mut call).await?;
        let asked = Call { body: Payload::default(), headers: HeaderMap::new(), ..call.clone() };
        let response = self.http.send(call).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let body = if asked.method == Method::HEAD { Bytes::new() } else { read_all(&asked, body).await? };
        let body = Secrets::hide(&head, body);
        let answer = parse_error(&body);
        let code = header(&head.headers, "x-ms-error-code").map(str::to_owned);
        let code = code.or_else(|| answer.as_ref().map(|answer| answer.code.clone())).unwrap_or_default();
        let message = describe(head.status, answer.as_ref(), header(&head.headers, "x-ms-request-id"));
        let message = Secrets::hide_in(&head, &message);
        let message = in_the_way(&code).map_or(message.clone(), |what| format!("{what}: {message}"));
        let mut kind = meaning(head.status, &code);
        if asked.method == Method::DELETE && !says_gone(&code, &body) {
            kind = no_longer_gone(kind);
        }
        if let Some(message) = wants_tls(&asked.origin, head.status, &body) {
            return Err(asked.error(ErrorKind::Configuration, message));
        }
        // Azure calls a signature that has expired unauthenticated, and an emulator calls it unauthorised.
        if (kind == ErrorKind::Unauthenticated || code == "AuthorizationFailure") && self.may_have_expired() {
            kind = ErrorKind::Expired;
        }
        let answer = code_and_status(head.status, &code);
        if matches!(kind, ErrorKind::Unauthenticated | ErrorKind::Forbidden | ErrorKind::Expired) {
            let message = format!("{message}; credentials: {}", self.credential_source);
            return Err(asked.error(kind, message).answered(answer));
        }
        Err(asked.error(kind, message).answered(answer))
    }

    /// Returns whether a request may have been refused because another process has not renewed its credentials.
    fn may_have_expired(&self) -> bool {
        let now_unix_s = unix_now_ms() / 1000 - self.http.clock_ahead_s().unwrap_or_default();
        self.delegated.as_ref().is_some_and(|delegated| delegated.may_have_expired(now_unix_s))
    }

    /// Sends a call and reads a small answer in full.
    pub(super) async fn send_small(&self, call: Call) -> Result<(HeaderMap, Bytes)> {
        let asked = Call { body: Payload::default(), ..call.clone() };
        let (head, body) = self.send(call).await?.into_parts();
        let body = read_all(&asked, body).await?;
        // The status says success, but the body holds an error.
        if parse_error(&body).is_some()
            && let Some(answer) = parse_error(&Secrets::hide(&head, body.clone()))
        {
            let message = describe(head.status, Some(&answer), header(&head.headers, "x-ms-request-id"));
            let message = Secrets::hide_in(&head, &message);
            let kind = meaning(StatusCode::INTERNAL_SERVER_ERROR, &answer.code);
            return Err(asked.error(kind, message).answered(code_and_status(head.status, &answer.code)));
        }
        Ok((head.headers, body))
    }

    /// Signs with the account's key, or adds the SAS or the token.
    async fn authorise(&self, call: &mut Call) -> Result<()> {
        let Some(provider) = &self.credentials else { return Ok(()) };
        let (operation, url) = (call.operation, call.url.clone());
        let fail = |why: String| {
            let why = format!("no credentials: {}", describe_missing(self.credential_source, &why));
            Error::new(ErrorKind::Unauthenticated, operation, url.clone(), why)
        };
        let credential = provider.get_credential().await.map_err(|error| fail(innermost(&error)))?;
        let target = if call.query.is_empty() {
            format!("{}{}", call.origin, call.path)
        } else {
            format!("{}{}?{}", call.origin, call.path, call.query)
        };
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = target.parse().map_err(|error| call.error(ErrorKind::InvalidKey, error))?;
        *request.headers_mut() = std::mem::take(&mut call.headers);
        AzureAuthorizer::new(&credential, &self.account)
            .try_authorize(&mut request)
            .map_err(|error| fail(innermost(&error)))?;
        call.query = request.uri().query().unwrap_or_default().to_owned();
        call.headers = std::mem::take(request.headers_mut());
        Ok(())
    }
}
