//! Identity of stores, and the relation of two places.

use std::net::IpAddr;
use std::path::PathBuf;

/// How two places relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// They have no object in common.
    Apart,
    /// They are one place.
    Same,
    /// The first lies within the second.
    FirstWithin,
    /// The second lies within the first.
    SecondWithin,
    /// They overlap: a directory below one is mounted below the other.
    Crossed,
}

/// The result of comparing two places by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinship {
    /// The relation. If it is not proven, it holds only if both stores interpret keys alike.
    pub relation: Relation,
    /// True if the names alone decide it.
    pub proven: bool,
}

/// The identity of a store, independent of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Generates its objects and discards what it is given: never the same place as another.
    Memory,
    /// A directory tree of this machine.
    Files(PathBuf),
    /// A bucket or container.
    Bucket(BucketIdentity),
}

/// Identity of a bucket or container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketIdentity {
    /// The name of a cloud's service, or `host:port/path` for any other service.
    pub service: String,
    /// Name of the bucket.
    pub bucket: String,
    /// True if names decide: two such buckets that differ in service or name are different buckets.
    pub decisive: bool,
}

/// Result of comparing an object with its counterpart in another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// Nothing distinguishes them: length, ETag, version and time (files: inode times) are equal.
    Alike,
    /// They are two objects, or the second does not exist. The first did not change during the comparison.
    Different,
    /// The first does not exist, which says nothing about the second.
    Absent,
    /// The first changed or vanished during the comparison, so nothing is known.
    Unstable,
}

impl BucketIdentity {
    /// Identifies a bucket by its address: `origin` (`https://host[:port]`) and `root`, the path before `/key`. The
    /// bucket's name is in the host or at the end of the path. `scheme` is that of the store's URL.
    pub(crate) fn of_address(scheme: &str, origin: &str, root: &str, bucket: &str) -> Self {
        let (protocol, authority) = origin.split_once("://").unwrap_or(("https", origin));
        let (host, port) = split_authority(authority, protocol);
        let (host, path) = match (root.strip_suffix(bucket), host.strip_prefix(&format!("{bucket}."))) {
            (Some(path), _) if path.ends_with('/') => (canonical_host(host), path.trim_end_matches('/')),
            (_, Some(host)) => (canonical_host(host), root),
            _ => (canonical_host(host), root),
        };
        let bucket = bucket.to_owned();
        match cloud_service(&host) {
            Some(service) => Self { decisive: !(service.starts_with("aws") && is_aws_alias(&bucket)), service, bucket },
            None if scheme == "az" && host.ends_with(".core.windows.net") => {
                let account = host.split('.').next().unwrap_or_default();
                Self { service: format!("azure {account}"), bucket, decisive: true }
            }
            None => Self { service: format!("{host}:{port}{path}"), bucket, decisive: false },
        }
    }

    /// A bucket at AWS.
    pub(crate) fn of_aws(region: &str, bucket: &str) -> Self {
        let service = if region.starts_with("cn-") { "aws-cn" } else { "aws" };
        Self { service: service.to_owned(), bucket: bucket.to_owned(), decisive: !is_aws_alias(bucket) }
    }
}

/// The cloud service behind a host, if its bucket names are unique; `None` for any other host.
fn cloud_service(host: &str) -> Option<String> {
    let is_s3 = host.starts_with("s3.") || host.starts_with("s3-");
    match host {
        "storage.googleapis.com" => Some("gcs".to_owned()),
        _ if is_s3 && host.ends_with(".amazonaws.com") && !host.contains(".vpce.") => Some("aws".to_owned()),
        _ if is_s3 && host.ends_with(".amazonaws.com.cn") => Some("aws-cn".to_owned()),
        _ if host.ends_with(".r2.cloudflarestorage.com") => Some(host.to_owned()),
        _ => None,
    }
}

/// Returns whether a bucket's name is an alias of an access point; the bucket behind it has another name.
fn is_aws_alias(bucket: &str) -> bool {
    ["-s3alias", "--ol-s3", ".mrap"].iter().any(|suffix| bucket.ends_with(suffix)) || bucket.starts_with("arn:")
}

fn split_authority<'a>(authority: &'a str, protocol: &str) -> (&'a str, u16) {
    let default_port = if protocol.eq_ignore_ascii_case("http") { 80 } else { 443 };
    match authority.rsplit_once(':') {
        // The colons of an IPv6 address lie within brackets.
        Some((host, port)) if !port.contains(']') => (host, port.parse().unwrap_or(default_port)),
        _ => (authority, default_port),
    }
}

/// Normalizes a host name: lower case, no final dot, and one name for this machine.
fn canonical_host(host: &str) -> String {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(address)) if address.is_unspecified() || address.octets() == [127, 0, 0, 1] => {
            "localhost".to_owned()
        }
        Ok(IpAddr::V6(address)) if address.is_unspecified() || address.is_loopback() => "localhost".to_owned(),
        Ok(address) => address.to_string(),
        Err(_) => host,
    }
}
