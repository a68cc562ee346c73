//! Explains a request that failed below HTTP: the address, the proxy, and mistakes about TLS.

use crate::ErrorKind;
use crate::error::{EXPIRED, NO_TLS, OTHER_NAME, UNKNOWN_CA};
use rustls::{CertificateError, InvalidMessage};
use std::error::Error as StdError;
use std::fmt;
use std::io;

/// A request without an answer.
#[derive(Debug)]
pub(super) struct Failed<'a> {
    pub(super) kind: ErrorKind,
    is_connected: bool,
    origin: &'a str,
    proxy: Option<&'a str>,
    cause: String,
}

impl<'a> Failed<'a> {
    /// Classifies a failure. The root cause is the most specific ("Connection refused"). `was_answered`: the server has
    /// answered before, so it speaks the protocol of `origin`.
    pub(super) fn of(
        error: &hyper_util::client::legacy::Error,
        origin: &'a str,
        proxy: Option<&'a str>,
        was_answered: bool,
    ) -> Self {
        let mut innermost: &(dyn StdError + 'static) = error;
        let (mut kind, mut tls, mut hung_up) = (ErrorKind::Connection, None, false);
        while let Some(cause) = innermost.source() {
            innermost = cause;
            if let Some(io) = cause.downcast_ref::<io::Error>() {
                if io.kind() == io::ErrorKind::TimedOut {
                    kind = ErrorKind::Timeout;
                } else if let Some(reason) = io.get_ref().and_then(|inner| tls_error(inner)).and_then(tls_mistake) {
                    // A retry does not help: the CA is missing, or the name is wrong.
                    (kind, tls) = (ErrorKind::Configuration, Some(reason));
                }
            } else if let Some(http) = cause.downcast_ref::<hyper::Error>() {
                hung_up |= http.is_incomplete_message() || http.is_parse();
            }
        }
        let mut cause = tls.unwrap_or_else(|| innermost.to_string());
        if cause == NO_TLS {
            cause += &format!(": try {}", origin.replacen("https", "http", 1));
        } else if hung_up && !was_answered && origin.starts_with("http:") {
            cause += &format!("; if the server uses TLS, try {}", origin.replacen("http", "https", 1));
        }
        Self { kind, is_connected: !error.is_connect(), origin, proxy, cause }
    }

    /// The cause, and the proxy if there is one: for messages that name the address themselves.
    pub(super) fn cause_and_proxy(&self) -> String {
        let through = self.proxy.map(|proxy| format!(" (through the proxy {proxy})")).unwrap_or_default();
        format!("{}{through}", self.cause)
    }
}

impl fmt::Display for Failed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_connected, origin, proxy, cause, .. } = self;
        let through = proxy.map(|proxy| format!(" through the proxy {proxy}")).unwrap_or_default();
        match is_connected {
            false => write!(f, "cannot connect to {origin}{through}: {cause}"),
            true => write!(f, "connection to {origin}{through} lost: {cause}"),
        }
    }
}

/// Finds the TLS error in nested I/O errors, which `source` does not show.
fn tls_error<'a>(error: &'a (dyn StdError + Send + Sync + 'static)) -> Option<&'a rustls::Error> {
    match error.downcast_ref::<io::Error>() {
        Some(io) => io.get_ref().and_then(|inner| tls_error(inner)),
        None => error.downcast_ref(),
    }
}

/// Words for a TLS error that a retry does not mend; `None` for others.
fn tls_mistake(error: &rustls::Error) -> Option<String> {
    use CertificateError::*;
    match error {
        rustls::Error::InvalidCertificate(why) => Some(match why {
            UnknownIssuer => UNKNOWN_CA.to_owned(),
            Expired | ExpiredContext { .. } => EXPIRED.to_owned(),
            NotValidForName | NotValidForNameContext { .. } => OTHER_NAME.to_owned(),
            _ => error.to_string(),
        }),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Some(NO_TLS.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_errors_are_found_however_deep() {
        let rustls = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, rustls));
        assert_eq!(tls_error(&wrapped).and_then(tls_mistake).as_deref(), Some(UNKNOWN_CA));
        assert!(tls_error(&io::Error::other("refused")).is_none());
    }

    #[test]
    fn a_server_without_tls_is_recognised_by_its_first_bytes() {
        let rustls = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        let wrapped = io::Error::new(io::ErrorKind::InvalidData, rustls);
        assert_eq!(tls_error(&wrapped).and_then(tls_mistake).as_deref(), Some(NO_TLS));
    }

    #[test]
    fn address_and_proxy_are_named() {
        let mut failed = Failed {
            kind: ErrorKind::Connection,
            is_connected: false,
            origin: "http://h:1",
            proxy: None,
            cause: "refused".to_owned(),
        };
        assert_eq!(failed.to_string(), "cannot connect to http://h:1: refused");
        assert_eq!(failed.cause_and_proxy(), "refused");
        failed.proxy = Some("http://p:2");
        assert_eq!(failed.to_string(), "cannot connect to http://h:1 through the proxy http://p:2: refused");
        assert_eq!(failed.cause_and_proxy(), "refused (through the proxy http://p:2)");
    }
}
