//! A small HTTP client for the tests: one connection to a control API, over any stream.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::path::Path;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

/// One connection.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
}

/// The body of `GET /v1/events`, line by line.
pub(crate) struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Client {
    pub(crate) async fn unix(path: &Path) -> Self {
        Self::over(UnixStream::connect(path).await.unwrap()).await
    }

    pub(crate) async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        // The server may close at any time; the test that waits for an answer decides whether that is an error.
        tokio::spawn(async { drop(connection.await) });
        Self { sender }
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        self.sender.ready().await.unwrap();
        self.sender.send_request(request).await.unwrap()
    }

    /// Status and body; the body as JSON if it is, else as a string.
    pub(crate) async fn call(&mut self, method: Method, path: &str, body: impl Into<Bytes>) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path).header("host", "gateway");
        let response = self.send(request.body(Full::new(body.into())).unwrap()).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = || Value::from(String::from_utf8_lossy(&bytes));
        (status, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
    }

    /// The same with a JSON body and its content type.
    pub(crate) async fn call_json(&mut self, method: Method, path: &str, body: String) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path).header("host", "gateway");
        let request = request.header("content-type", "application/json").body(Full::new(body.into())).unwrap();
        let response = self.send(request).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    pub(crate) async fn get(&mut self, path: &str) -> (StatusCode, Value) {
        self.call(Method::GET, path, "").await
    }

    pub(crate) async fn put_program(&mut self, program: &Value) -> (StatusCode, Value) {
        self.call(Method::PUT, "/v1/program", program.to_string()).await
    }

    pub(crate) async fn events(&mut self) -> Lines {
        let response = self.send(Request::get("/v1/events").body(Full::default()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        Lines { body: response.into_body(), rest: Vec::new() }
    }
}

impl Lines {
    /// The next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            let line = self.next_line().await?;
            if line != b"\n" {
                return Some(serde_json::from_slice(&line).unwrap());
            }
        }
    }

    /// The next line; an empty one is a keep-alive.
    pub(crate) async fn next_line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                return Some(self.rest.drain(..=end).collect());
            }
            let frame = self.body.frame().await?.unwrap();
            self.rest.extend_from_slice(frame.data_ref().unwrap());
        }
    }
}
