//! From a URL, an endpoint and a region to where requests go.

use crate::{Error, ErrorKind, Result};

/// Where the requests of one bucket go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Region to sign for.
    pub(crate) region: String,
    /// `https://host[:port]`.
    pub(crate) origin: String,
    /// What stands before `/key`: empty for virtual-hosted buckets, `/bucket` otherwise.
    pub(crate) root: String,
}

impl Place {
    /// A bucket at AWS.
    pub(crate) fn aws(bucket: &str, region: &str, path_style: Option<bool>) -> Self {
        let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let host = format!("s3.{region}.{suffix}");
        // A wildcard certificate covers one label, so names with dots cannot be host names.
        let path_style = path_style.unwrap_or_else(|| bucket.contains('.'));
        let (origin, root) = if path_style {
            (format!("https://{host}"), format!("/{bucket}"))
        } else {
            (format!("https://{bucket}.{host}"), String::new())
        };
        Self { region: region.to_owned(), origin, root }
    }

    /// A bucket of a server with its own endpoint, in the path unless the user says otherwise.
    pub(crate) fn custom(endpoint: &str, bucket: &str, region: &str, path_style: Option<bool>) -> Result<Self> {
        let (scheme, authority, path) = split_endpoint(endpoint)?;
        let (origin, root) = if path_style.unwrap_or(true) {
            (format!("{scheme}://{authority}"), format!("{path}/{bucket}"))
        } else {
            (format!("{scheme}://{bucket}.{authority}"), path)
        };
        Ok(Self { region: region.to_owned(), origin, root })
    }
}

/// Scheme, authority (without a default port, as clients send it in `Host`) and path without a final slash.
pub(crate) fn split_endpoint(endpoint: &str) -> Result<(String, String, String)> {
    let wrong = |why: &str| Error::new(ErrorKind::Configuration, "open", endpoint, format!("endpoint {why}"));
    let with_scheme = if endpoint.contains("://") { endpoint.to_owned() } else { format!("https://{endpoint}") };
    let uri: http::Uri = with_scheme.parse().map_err(|_| wrong("is no URL"))?;
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
    fn aws_buckets() {
        let place = Place::aws("b", "eu-west-1", None);
        assert_eq!((place.origin.as_str(), place.root.as_str()), ("https://b.s3.eu-west-1.amazonaws.com", ""));
        let place = Place::aws("a.b", "cn-north-1", None);
        assert_eq!((place.origin.as_str(), place.root.as_str()), ("https://s3.cn-north-1.amazonaws.com.cn", "/a.b"));
    }

    #[test]
    fn custom_endpoints() {
        let place = Place::custom("http://127.0.0.1:7070/", "b", "us-east-1", None).unwrap();
        assert_eq!((place.origin.as_str(), place.root.as_str()), ("http://127.0.0.1:7070", "/b"));
        let place = Place::custom("https://h:443/x/", "b", "auto", None).unwrap();
        assert_eq!((place.origin.as_str(), place.root.as_str()), ("https://h", "/x/b"));
        let place = Place::custom("http://h:1", "b", "auto", Some(false)).unwrap();
        assert_eq!((place.origin.as_str(), place.root.as_str()), ("http://b.h:1", ""));
    }

    #[test]
    fn wrong_endpoints_say_why_and_hide_credentials() {
        assert_eq!(split_endpoint("ftp://h").unwrap_err().kind, ErrorKind::Configuration);
        let error = split_endpoint("http://user:secret@h").unwrap_err();
        assert!(!error.to_string().contains("secret"));
    }
}
