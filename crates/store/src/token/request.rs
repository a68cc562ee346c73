//! Requests to token servers, through the stores' HTTP client.

use crate::rest::{Call, Http, Secrets, TlsRoots, encode_query, read_up_to, split_endpoint};
use crate::xml::walk;
use crate::{Error, ErrorKind, Payload};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde::de::DeserializeOwned;
use std::sync::OnceLock;
use std::time::Duration;

/// Time limit for the answer of a token server, per attempt.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);
/// Longest answer of a token server that is read; real ones have a few KiB.
pub(super) const TOKEN_ANSWER_BYTES_MAX: usize = 256 << 10;
/// Most attempts to get one token; only connection errors, 429 and 5xx are retried.
const ATTEMPTS_MAX: u32 = 3;
/// Pause before the second attempt; doubled before the third.
const PAUSE: Duration = Duration::from_millis(250);
/// Most characters of a server's own message that an error repeats.
const MESSAGE_CHARS_MAX: usize = 200;

/// A client of token servers. Opened at the first request, so that a process without tokens reads no certificates.
pub(crate) struct TokenClient {
    roots: TlsRoots,
    http: OnceLock<Http>,
}

/// A request for a token, or for something needed to get one.
pub(crate) struct Ask<'a> {
    /// Where the URL was found, for errors: a file or variable and the name of its field.
    pub(crate) place: &'a str,
    pub(crate) url: &'a str,
    pub(crate) headers: Vec<(String, String)>,
    /// Media type and text; `None` sends a GET.
    pub(crate) body: Option<(&'static str, String)>,
    /// Values that the server may repeat but errors must not.
    pub(crate) secrets: Vec<&'a str>,
    /// True if plain HTTP is allowed only to this host.
    pub(crate) needs_tls: bool,
}

/// Encodes form fields as the body of a request.
pub(crate) fn form(fields: &[(&str, &str)]) -> Option<(&'static str, String)> {
    Some(("application/x-www-form-urlencoded", encode_query(fields)))
}

impl TokenClient {
    pub(crate) fn new(roots: TlsRoots) -> Self {
        Self { roots: TlsRoots { needed: true, plain_is_direct: true, ..roots }, http: OnceLock::new() }
    }

    /// Returns the answer as JSON.
    pub(crate) async fn json<T: DeserializeOwned>(&self, ask: &Ask<'_>) -> Result<T, String> {
        let text = self.text(ask).await?;
        // The parser's own error could repeat a token.
        serde_json::from_str(&text)
            .map_err(|_| format!("{}: {} answers with unexpected JSON", ask.place, shown(ask.url)))
    }

    /// Returns the text of a successful answer.
    pub(crate) async fn text(&self, ask: &Ask<'_>) -> Result<String, String> {
        let call = self.call(ask)?;
        let http = match self.http.get() {
            Some(http) => http,
            None => {
                let http = Http::new(&self.roots).map_err(|error| error.message)?;
                self.http.get_or_init(|| http)
            }
        };
        let mut attempt = 1;
        loop {
            let (error, is_final) = match tokio::time::timeout(ANSWER_TIME_MAX, once(http, call.clone())).await {
                Ok(Ok((status, text))) if status.is_success() => return Ok(text),
                Ok(Ok((status, text))) => (refusal(status, &text, &ask.secrets), !may_pass(status)),
                Ok(Err(error)) => (error.message, !error.kind.is_transient()),
                Err(_) => (format!("no answer within {} s", ANSWER_TIME_MAX.as_secs()), false),
            };
            if is_final || attempt == ATTEMPTS_MAX {
                return Err(format!("{}: {}: {error}", ask.place, shown(ask.url)));
            }
            tokio::time::sleep(PAUSE * 2_u32.pow(attempt - 1)).await;
            attempt += 1;
        }
    }

    fn call(&self, ask: &Ask<'_>) -> Result<Call, String> {
        let wrong = |why: &str| format!("{}: {why}", ask.place);
        let uri = ask.url.parse::<Uri>().ok().filter(|uri| uri.scheme().is_some()).ok_or_else(|| wrong("not a URL"))?;
        let (scheme, authority, _) = split_endpoint(ask.url).map_err(|error| wrong(&error.message))?;
        if ask.needs_tls && scheme != "https" && !is_here(uri.host().unwrap_or_default()) {
            return Err(wrong("the URL must begin with https://, because a secret is sent to it"));
        }
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT, HeaderValue::from_static("application/json"));
        for (name, value) in &ask.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("a header has an invalid name"))?;
            let mut value = HeaderValue::from_str(value).map_err(|_| wrong("a header has an invalid value"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let (method, body) = match &ask.body {
            None => (Method::GET, Payload::default()),
            Some((media_type, text)) => {
                headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(media_type));
                headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(text.len()));
                (Method::POST, Payload::new(vec![text.clone().into()]))
            }
        };
        Ok(Call {
            operation: "get token",
            url: shown(ask.url).to_owned(),
            method,
            origin: format!("{scheme}://{authority}"),
            path: uri.path().to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
            headers,
            body,
            patient: false,
        })
    }
}

async fn once(http: &Http, call: Call) -> Result<(StatusCode, String), Error> {
    let asked = Call { body: Payload::default(), headers: HeaderMap::new(), ..call.clone() };
    let (head, body) = http.send(call).await?.into_parts();
    let body = read_up_to(TOKEN_ANSWER_BYTES_MAX, &asked, body).await?;
    let body = if head.status.is_success() { body } else { Secrets::hide(&head, body) };
    let text =
        String::from_utf8(body.to_vec()).map_err(|_| asked.error(ErrorKind::Protocol, "the answer is not text"))?;
    Ok((head.status, text))
}

/// A URL without its query, which may hold a secret.
pub(super) fn shown(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

/// Returns whether a host name or address is this machine.
pub(super) fn is_here(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn may_pass(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

/// Status and reason of a refusal, in one line, without `secrets`. Reasons follow OAuth (RFC 6749 §5.2) or Google.
fn refusal(status: StatusCode, text: &str, secrets: &[&str]) -> String {
    let answer: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let reasons = [&answer["error"], &answer["error_description"], &answer["error"]["message"]];
    let mut reason = reasons.iter().filter_map(|reason| reason.as_str()).collect::<Vec<_>>().join(": ");
    if reason.is_empty() {
        reason = reason_in_xml(text);
    }
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        reason = reason.replace(secret.trim(), "…");
    }
    let reason: String =
        reason.chars().map(|char| if char.is_control() { ' ' } else { char }).take(MESSAGE_CHARS_MAX).collect();
    if reason.is_empty() { format!("HTTP {status}") } else { format!("HTTP {status}: {reason}") }
}

/// The message and code of an error of AWS's token service; empty for any other text.
fn reason_in_xml(text: &str) -> String {
    let (mut code, mut message) = (String::new(), String::new());
    let walked = walk(text.as_bytes(), "ErrorResponse", |at| {
        match (at.parent, at.name) {
            ("Error", "Code") => at.text.clone_into(&mut code),
            ("Error", "Message") => at.text.clone_into(&mut message),
            _ => {}
        }
        Ok(())
    });
    if walked.is_err() || code.is_empty() { String::new() } else { format!("{message} ({code})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(url: &str) -> Ask<'_> {
        Ask { place: "f.json: token_url", url, headers: vec![], body: None, secrets: vec![], needs_tls: true }
    }

    #[test]
    fn secrets_leave_this_host_over_tls_only() {
        let client = TokenClient::new(TlsRoots::default());
        for url in ["http://sts.example.com/x", "http://127.0.0.1.example.com/", "nonsense", "https://user:word@h/"] {
            assert!(client.call(&ask(url)).is_err(), "{url}");
        }
        for url in ["https://h/x?y", "http://127.0.0.1:1/x", "http://localhost/x", "http://[::1]:1/x"] {
            client.call(&ask(url)).unwrap();
        }
        let call = client.call(&ask("https://h/x/?y=%20z")).unwrap();
        assert_eq!((call.path.as_str(), call.query.as_str()), ("/x/", "y=%20z"));
        assert_eq!(call.url, "https://h/x/");
    }

    #[test]
    fn a_refusal_is_one_line_without_secrets() {
        let text = r#"{"error":"invalid_grant","error_description":"token abc\nis bad"}"#;
        assert_eq!(
            refusal(StatusCode::BAD_REQUEST, text, &["abc"]),
            "HTTP 400 Bad Request: invalid_grant: token … is bad"
        );
        let text = r#"{"error":{"code":403,"message":"not allowed"}}"#;
        assert_eq!(refusal(StatusCode::FORBIDDEN, text, &[""]), "HTTP 403 Forbidden: not allowed");
        assert_eq!(refusal(StatusCode::FORBIDDEN, "<html>", &[]), "HTTP 403 Forbidden");
        let text = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no abc</Message></Error></ErrorResponse>";
        assert_eq!(refusal(StatusCode::FORBIDDEN, text, &["abc"]), "HTTP 403 Forbidden: no … (AccessDenied)");
    }
}
