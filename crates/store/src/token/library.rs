//! Lets `object_store` and `aws-config` use the stores' HTTP client when they request credentials. So proxies, system
//! certificates and TLS are the same for them, and no second HTTP client is compiled.
//!
//! Each request has its own connection: credentials are requested about once an hour.

use super::request::{TOKEN_ANSWER_BYTES_MAX, is_here, shown};
use crate::rest::{Call, Http, Secrets, TlsRoots, read_up_to, split_endpoint};
use crate::{Error, ErrorKind, Payload};
use async_trait::async_trait;
use aws_smithy_runtime_api::client::http::{HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpResponse};
use std::time::Duration;

/// Time limit for a connection to a token server.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Time limit for a connection to instance metadata, which uses plain HTTP and is one hop away or missing.
const METADATA_CONNECT_TIME_MAX: Duration = Duration::from_secs(1);
/// Time limit for a whole answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// The HTTP client of both libraries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LibraryClient;

/// Limits that the calling library sets.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    connect_time_max: Option<Duration>,
    answer_time_max: Duration,
    /// Plain HTTP is allowed to other hosts too.
    plain: bool,
}

impl object_store::client::HttpConnector for LibraryClient {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let plain = options.get_config_value(&object_store::ClientConfigKey::AllowHttp);
        let plain = plain.is_some_and(|word| word == "true");
        Ok(HttpClient::new(Bounds { connect_time_max: None, answer_time_max: ANSWER_TIME_MAX, plain }))
    }
}

#[async_trait]
impl object_store::client::HttpService for Bounds {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        match exchange(self, Request::from_parts(head, body)).await {
            Ok(answer) => Ok(answer.map(Into::into)),
            Err(error) => {
                let kind = match error.kind {
                    ErrorKind::Connection => HttpErrorKind::Connect,
                    ErrorKind::Timeout => HttpErrorKind::Timeout,
                    _ => HttpErrorKind::Unknown,
                };
                Err(HttpError::new(kind, Reason(error.message)))
            }
        }
    }
}

impl aws_smithy_runtime_api::client::http::HttpClient for LibraryClient {
    fn http_connector(&self, settings: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        let answer_time_max = settings.read_timeout().unwrap_or(ANSWER_TIME_MAX);
        let connect_time_max = settings.connect_timeout();
        SharedHttpConnector::new(Bounds { connect_time_max, answer_time_max, plain: true })
    }
}

impl aws_smithy_runtime_api::client::http::HttpConnector for Bounds {
    fn call(&self, request: orchestrator::HttpRequest) -> HttpConnectorFuture {
        let bounds = *self;
        HttpConnectorFuture::new(async move {
            let request = request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(ConnectorError::user)?.to_bytes();
            let answer = exchange(&bounds, Request::from_parts(head, body)).await.map_err(|error| {
                let reason = Reason(error.message).into();
                match error.kind {
                    ErrorKind::Connection => ConnectorError::io(reason),
                    ErrorKind::Timeout => ConnectorError::timeout(reason),
                    _ => ConnectorError::other(reason, None),
                }
            })?;
            let answer = orchestrator::HttpResponse::try_from(answer.map(SdkBody::from));
            answer.map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}

/// Why a request failed, in one line without the URL's query.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Reason(String);

/// Sends a request and returns the whole answer, whatever its status.
async fn exchange(bounds: &Bounds, request: Request<Bytes>) -> crate::Result<Response<Bytes>> {
    let (head, body) = request.into_parts();
    let call = call(bounds, head, body)?;
    let is_plain = call.origin.starts_with("http:");
    let usual = if is_plain { METADATA_CONNECT_TIME_MAX } else { CONNECT_TIME_MAX };
    let roots = TlsRoots { needed: !is_plain, plain_is_direct: true, ..TlsRoots::default() };
    let http = Http::with_connect_timeout(&roots, bounds.connect_time_max.unwrap_or(usual))?;
    let asked = Call { body: Payload::default(), headers: Default::default(), ..call.clone() };
    let answer = async {
        let (head, body) = http.send(call).await?.into_parts();
        let body = read_up_to(TOKEN_ANSWER_BYTES_MAX, &asked, body).await?;
        // The library repeats the text of a refusal.
        let body = if head.status.is_success() { body } else { Secrets::hide(&head, body) };
        Ok(Response::from_parts(head, body))
    };
    let seconds = bounds.answer_time_max.as_secs_f64();
    let late = |_| asked.error(ErrorKind::Timeout, format!("no answer within {seconds} s"));
    tokio::time::timeout(bounds.answer_time_max, answer).await.map_err(late)?
}

fn call(bounds: &Bounds, mut head: http::request::Parts, body: Bytes) -> crate::Result<Call> {
    let url = head.uri.to_string();
    let (scheme, authority, _) = split_endpoint(&url)?;
    let host = head.uri.host().map(str::to_owned).unwrap_or_default();
    if scheme == "http" && !bounds.plain && !is_here(&host) {
        let why = "the URL must begin with https://, because a secret is sent to it";
        return Err(Error::new(ErrorKind::Configuration, "get token", shown(&url), why));
    }
    if !body.is_empty() {
        head.headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    Ok(Call {
        operation: "get token",
        url: shown(&url).to_owned(),
        method: head.method,
        origin: format!("{scheme}://{authority}"),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        body: if body.is_empty() { Payload::default() } else { Payload::new(vec![body]) },
        patient: true,
    })
}
