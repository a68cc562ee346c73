//! Hides the credentials of a request in the error answers of its server.
//!
//! A debugging proxy, or a server that repeats the headers of a request in its error message, would otherwise put them
//! into our messages, reports and records.

use super::encode::encode_query;
use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderValue};

/// Headers whose values authorise a request.
const SECRET_HEADERS: [&str; 10] = [
    "authorization",
    "proxy-authorization",
    "x-amz-security-token",
    "x-amz-server-side-encryption-customer-key",
    "x-amz-copy-source-server-side-encryption-customer-key",
    "x-ms-encryption-key",
    "x-ms-copy-source-authorization",
    "x-identity-header",
    "x-aws-ec2-metadata-token",
    "secret",
];
/// Parameters of a query or form whose values authorise a request.
const SECRET_PARAMETERS: [&str; 13] = [
    "sig",
    "X-Amz-Signature",
    "X-Amz-Security-Token",
    "X-Goog-Signature",
    "WebIdentityToken",
    "assertion",
    "client_assertion",
    "client_secret",
    "code",
    "password",
    "refresh_token",
    "subject_token",
    "token",
];
/// Shorter values are not hidden: they could be any word of a message.
const SECRET_CHARS_MIN: usize = 6;
/// Printed instead of a secret.
const HIDDEN: &str = "[redacted]";

/// The secrets of one request, which its answer carries as an extension.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    headers: Vec<HeaderValue>,
    query: String,
    form: Vec<Bytes>,
}

/// The query of the address that Azure reads for a copy. It may be signed.
fn query_of_copy_source(headers: &HeaderMap) -> &str {
    let address = headers.get("x-ms-copy-source").and_then(|value| value.to_str().ok()).unwrap_or_default();
    address.split_once('?').map_or("", |(_, query)| query)
}

impl Secrets {
    /// Collects the secrets of a request: those in its headers, its query, and a body that is a form.
    pub(crate) fn of(headers: &HeaderMap, query: &str, body: &[Bytes]) -> Self {
        let is_form = headers
            .get(http::header::CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"application/x-www-form-urlencoded"));
        Self {
            headers: SECRET_HEADERS.iter().filter_map(|name| headers.get(*name).cloned()).collect(),
            query: format!("{query}&{}", query_of_copy_source(headers)),
            form: if is_form { body.to_vec() } else { Vec::new() },
        }
    }

    /// Returns an error answer without the secrets of the request that it answers.
    pub(crate) fn hide(answer: &Parts, body: Bytes) -> Bytes {
        let text = String::from_utf8_lossy(&body);
        let hidden = Self::hide_in(answer, &text);
        if hidden == *text { body } else { hidden.into() }
    }

    /// Returns a message about an answer without the secrets of the request. This finds those that [`Secrets::hide`]
    /// cannot see: in a header, or in a spelling that the parser of the answer has decoded.
    pub(crate) fn hide_in(answer: &Parts, text: &str) -> String {
        let mut hidden = text.to_owned();
        for secret in answer.extensions.get::<Self>().map(Self::values).unwrap_or_default() {
            let escaped = secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let quoted = escaped.replace('"', "&quot;").replace('\'', "&apos;");
            let encoded = encode_query(&[("", &secret)]);
            let encoded = encoded.trim_start_matches('=');
            for form in [&*secret, &escaped, &quoted, encoded, &lower_escapes(encoded), &secret.replace('"', "\\\"")] {
                hidden = hidden.replace(form, HIDDEN);
            }
        }
        hidden
    }

    /// Returns the secret values, the longest first, so that no part of one is replaced before the whole.
    fn values(&self) -> Vec<String> {
        let mut values = Vec::new();
        for value in &self.headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            // `Bearer TOKEN`, `SharedKey ACCOUNT:SIGNATURE`, `AWS4-HMAC-SHA256 …, Signature=SIGNATURE`.
            values.extend(value.split_once(' ').map(|(_, rest)| rest.to_owned()));
            values.extend(value.rsplit_once([':', '=']).map(|(_, rest)| rest.to_owned()));
            values.push(value.into_owned());
        }
        let form = self.form.concat();
        let form = String::from_utf8_lossy(&form);
        for parameter in self.query.split('&').chain(form.split('&')) {
            let Some((name, value)) = parameter.split_once('=') else { continue };
            if SECRET_PARAMETERS.iter().any(|secret| secret.eq_ignore_ascii_case(name)) {
                values.extend(super::percent_decode(value));
                values.push(value.to_owned());
            }
        }
        values.retain(|value| value.len() >= SECRET_CHARS_MIN);
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values
    }
}

/// Writes the escapes of percent-encoded text in lower case: `%2B` as `%2b`.
fn lower_escapes(encoded: &str) -> String {
    let mut parts = encoded.split('%');
    let mut lower = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        lower.push('%');
        lower.push_str(&digits.to_ascii_lowercase());
        lower.push_str(rest);
    }
    lower
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(headers: &[(&'static str, &str)], query: &str, form: &str, answer: &str) -> String {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        let mut response = http::Response::new(());
        response.extensions_mut().insert(Secrets::of(&map, query, &[Bytes::copy_from_slice(form.as_bytes())]));
        let body = Secrets::hide(&response.into_parts().0, Bytes::copy_from_slice(answer.as_bytes()));
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[test]
    fn a_server_that_repeats_the_request_repeats_no_secret() {
        let aws = "AWS4-HMAC-SHA256 Credential=AKID/20261123/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0123456789abcdef";
        let said = hidden(
            &[("authorization", aws), ("x-amz-security-token", "TOKEN/with+signs==")],
            "",
            "",
            &format!(
                "headers: {aws} TOKEN/with+signs== TOKEN%2Fwith%2Bsigns%3D%3D TOKEN%2fwith%2bsigns%3d%3d 0123456789abcdef"
            ),
        );
        assert!(
            !said.contains("TOKEN") && !said.contains("0123456789abcdef") && said.starts_with("headers: "),
            "{said}"
        );
        let said = hidden(&[("authorization", "Bearer ya29.secret")], "", "", "you sent ya29.secret");
        assert_eq!(said, "you sent [redacted]");
        let said = hidden(&[], "comp=list&sig=abc%2Bdefg%3D", "", "sig abc+defg= or abc%2Bdefg%3D in <a>");
        assert_eq!(said, "sig [redacted] or [redacted] in <a>");
        let form = [("content-type", "application/x-www-form-urlencoded")];
        assert_eq!(hidden(&form, "", "grant_type=x&client_secret=hunter2000", "hunter2000?"), "[redacted]?");
        assert_eq!(hidden(&[("x-identity-header", "a&b<c>dd")], "", "", "a&amp;b&lt;c&gt;dd"), "[redacted]");
    }

    #[test]
    fn an_answer_without_secrets_stays_as_it_is() {
        let answer = "<Error><Code>AccessDenied</Code></Error>";
        assert_eq!(hidden(&[("authorization", "Bearer secret-token")], "prefix=a", "", answer), answer);
        assert_eq!(
            hidden(&[("secret", "abc")], "", "", "abc is too short to be a secret"),
            "abc is too short to be a secret"
        );
    }
}
