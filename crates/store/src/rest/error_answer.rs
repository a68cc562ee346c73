//! The error format that S3, compatible servers and Azure share: an XML document with a code and a message. Google's
//! JSON API has its own.

use crate::ErrorKind;
use crate::error::WANTS_TLS;
use crate::xml::walk;
use http::StatusCode;

/// Longest request id that an error repeats.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// An `Error` element, as a whole answer or within `DeleteResult`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ErrorAnswer {
    /// Machine-readable code, e.g. `NoSuchKey`.
    pub(crate) code: String,
    /// Human-readable text.
    pub(crate) message: String,
    /// The region that the server reports for the bucket.
    pub(crate) region: Option<String>,
    /// Key, within `DeleteResult`.
    pub(crate) key: String,
}

/// Parses an `Error` answer; `None` for anything else (a proxy's HTML, an empty body).
pub(crate) fn parse_error(xml: &[u8]) -> Option<ErrorAnswer> {
    let mut answer = ErrorAnswer::default();
    let walked = walk(xml, "Error", |at| {
        match (at.parent, at.name) {
            ("Error", "Code") => at.text.clone_into(&mut answer.code),
            ("Error", "Message") => at.text.clone_into(&mut answer.message),
            ("Error", "Region") => answer.region = Some(at.text.to_owned()),
            _ => {}
        }
        Ok(())
    });
    (walked.is_ok() && !answer.code.is_empty()).then_some(answer)
}

/// Parses an error answer of Google's JSON API; `None` for anything else. The code is the reason of the first error.
pub(crate) fn parse_json_error(json: &[u8]) -> Option<ErrorAnswer> {
    let answer: serde_json::Value = serde_json::from_slice(json).ok()?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let code = text(&answer["error"]["errors"][0]["reason"])?;
    Some(ErrorAnswer { code, message: text(&answer["error"]["message"]).unwrap_or_default(), ..ErrorAnswer::default() })
}

/// Returns the message for an answer that says that `origin` needs TLS: servers in Go and nginx send one to plain HTTP.
pub(crate) fn wants_tls(origin: &str, status: StatusCode, body: &[u8]) -> Option<String> {
    const SENTENCES: [&[u8]; 2] = [b"HTTP request to an HTTPS server", b"plain HTTP request was sent to HTTPS port"];
    let says_so = |sentence: &[u8]| body.windows(sentence.len()).any(|part| part == sentence);
    let address = origin.strip_prefix("http://").filter(|_| status == StatusCode::BAD_REQUEST)?;
    SENTENCES.into_iter().any(says_so).then(|| format!("{WANTS_TLS}: try https://{address}"))
}

/// The meaning of a refused delete that does not say that the object is gone.
pub(crate) fn no_longer_gone(kind: ErrorKind) -> ErrorKind {
    if kind == ErrorKind::NotFound { ErrorKind::Protocol } else { kind }
}

/// Longest code of a store that is repeated without its words.
const CODE_BYTES_MAX: usize = 100;

/// Code and status of the server, without its words. A code that is not one short word is left out.
pub(crate) fn code_and_status(status: StatusCode, code: &str) -> String {
    let is_word = code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    let is_code = is_word && (1..=CODE_BYTES_MAX).contains(&code.len());
    let named = if is_code { code } else { status.canonical_reason().unwrap_or("error") };
    format!("{named}, HTTP {}", status.as_u16())
}

/// Message of the server, in one line.
pub(crate) fn describe(status: StatusCode, answer: Option<&ErrorAnswer>, request_id: Option<&str>) -> String {
    let mut text = match answer {
        Some(answer) if answer.message.is_empty() => answer.code.clone(),
        Some(answer) => {
            // Azure repeats the request's id and the time on lines of their own.
            let message = answer.message.split("\nRequestId:").next().unwrap_or_default();
            format!("{} ({})", message.replace(['\n', '\r'], " ").trim_end_matches('.'), answer.code)
        }
        None => status.canonical_reason().unwrap_or("error").to_owned(),
    };
    text.push_str(&format!(", HTTP {}", status.as_u16()));
    if let Some(id) = request_id.filter(|id| (1..=REQUEST_ID_BYTES_MAX).contains(&id.len())) {
        text.push_str(&format!(", request {id}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_plain_http_names_tls() {
        let body = b"Client sent an HTTP request to an HTTPS server.\n";
        let told = wants_tls("http://h:1", StatusCode::BAD_REQUEST, body);
        assert_eq!(told.as_deref(), Some("the server uses TLS: try https://h:1"));
        assert_eq!(wants_tls("http://h:1", StatusCode::BAD_REQUEST, b"<Error/>"), None);
        assert_eq!(wants_tls("https://h:1", StatusCode::BAD_REQUEST, body), None);
    }

    #[test]
    fn a_request_id_is_named_once() {
        let message = "The specified container does not exist.\nRequestId:1-2\nTime:2026-01-01T00:00:00Z".to_owned();
        let answer = ErrorAnswer { code: "ContainerNotFound".to_owned(), message, ..ErrorAnswer::default() };
        let text = describe(StatusCode::NOT_FOUND, Some(&answer), Some("1-2"));
        assert_eq!(text, "The specified container does not exist (ContainerNotFound), HTTP 404, request 1-2");
    }

    #[test]
    fn a_code_that_is_not_a_word_is_left_out() {
        let forbidden = StatusCode::FORBIDDEN;
        assert_eq!(code_and_status(forbidden, "AccessDenied"), "AccessDenied, HTTP 403");
        assert_eq!(code_and_status(forbidden, "KMS.Disabled_1-2"), "KMS.Disabled_1-2, HTTP 403");
        for code in ["", "arn:aws:iam::1:user/me", "User me", &"x".repeat(101)] {
            assert_eq!(code_and_status(forbidden, code), "Forbidden, HTTP 403");
        }
    }

    #[test]
    fn a_404_to_a_delete_is_no_proof_that_the_object_is_gone() {
        assert_eq!(no_longer_gone(ErrorKind::NotFound), ErrorKind::Protocol);
        assert_eq!(no_longer_gone(ErrorKind::Forbidden), ErrorKind::Forbidden);
    }
}
