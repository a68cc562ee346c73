//! Parses a server's address as the user wrote it.

use crate::error::WRONG_ENDPOINT;
use crate::{Error, ErrorKind, Result};

/// Returns scheme, authority (without a default port, like clients' `Host` header) and path without a final slash.
pub(crate) fn split_endpoint(endpoint: &str) -> Result<(String, String, String)> {
    let wrong = |why: &str| Error::new(ErrorKind::Configuration, "open", endpoint, format!("{WRONG_ENDPOINT} {why}"));
    let with_scheme = if endpoint.contains("://") { endpoint.to_owned() } else { format!("https://{endpoint}") };
    let uri: http::Uri = with_scheme.parse().map_err(|_| wrong("is not a URL"))?;
    let scheme = uri.scheme_str().unwrap_or_default().to_ascii_lowercase();
    let default_port = match scheme.as_str() {
        "http" => 80,
        "https" => 443,
        _ => return Err(wrong("must begin with http:// or https://")),
    };
    let authority = uri.authority().ok_or_else(|| wrong("has no host"))?;
    if authority.as_str().contains('@') {
        return Err(Error::new(ErrorKind::Configuration, "open", "endpoint", "must not hold credentials"));
    }
    let authority = match authority.port_u16() {
        Some(port) if port != default_port => authority.as_str().to_owned(),
        _ => authority.host().to_owned(),
    };
    Ok((scheme, authority, uri.path().trim_end_matches('/').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_endpoints_say_why_and_hide_credentials() {
        assert_eq!(split_endpoint("ftp://h").unwrap_err().kind, ErrorKind::Configuration);
        let error = split_endpoint("http://user:secret@h").unwrap_err();
        assert!(!error.to_string().contains("secret"));
    }
}
