//! Determines the address of requests from URL, endpoint and region.

use crate::Result;
use crate::rest::split_endpoint;

/// Returns whether an endpoint is one of AWS's own: a region, a VPC or dual-stack.
pub(super) fn is_of_aws(endpoint: &str) -> bool {
    split_endpoint(endpoint).is_ok_and(|(_, authority, _)| {
        let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
        [".amazonaws.com", ".amazonaws.com.cn"].iter().any(|suffix| host.ends_with(suffix))
    })
}

/// The address of one bucket's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketAddress {
    /// Region to sign for.
    pub(crate) region: String,
    /// `https://host[:port]`.
    pub(crate) origin: String,
    /// The path before `/key`: empty for virtual-hosted buckets, `/bucket` otherwise.
    pub(crate) root: String,
}

impl BucketAddress {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aws_buckets() {
        let address = BucketAddress::aws("b", "eu-west-1", None);
        assert_eq!((address.origin.as_str(), address.root.as_str()), ("https://b.s3.eu-west-1.amazonaws.com", ""));
        let address = BucketAddress::aws("a.b", "cn-north-1", None);
        assert_eq!(
            (address.origin.as_str(), address.root.as_str()),
            ("https://s3.cn-north-1.amazonaws.com.cn", "/a.b")
        );
    }

    #[test]
    fn custom_endpoints() {
        let address = BucketAddress::custom("http://127.0.0.1:7070/", "b", "us-east-1", None).unwrap();
        assert_eq!((address.origin.as_str(), address.root.as_str()), ("http://127.0.0.1:7070", "/b"));
        let address = BucketAddress::custom("https://h:443/x/", "b", "auto", None).unwrap();
        assert_eq!((address.origin.as_str(), address.root.as_str()), ("https://h", "/x/b"));
        let address = BucketAddress::custom("http://h:1", "b", "auto", Some(false)).unwrap();
        assert_eq!((address.origin.as_str(), address.root.as_str()), ("http://b.h:1", ""));
    }
}
