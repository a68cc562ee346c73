//! What tells two stores apart, and how two places relate.

use std::net::IpAddr;
use std::path::PathBuf;

/// How two places relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// They share no object.
    Apart,
    /// They are one place.
    Same,
    /// The first lies within the second.
    FirstWithin,
    /// The second lies within the first.
    SecondWithin,
    /// They share a part: a directory below one is mounted below the other.
    Crossed,
}

/// The result of comparing two places by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinship {
    /// The relation. Where it is not proven: the relation if both stores have the same keys.
    pub relation: Relation,
    /// True if the names decide it.
    pub proven: bool,
}

/// The identity of a store, independent of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Makes its objects up and forgets what it is given: never one place with another.
    Memory,
    /// A directory tree of this machine.
    Files(PathBuf),
    /// A bucket or container.
    Bucket(BucketIdentity),
}

/// Names a bucket or container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketIdentity {
    /// A service of one of the clouds by its name, any other by `host:port/path`.
    pub service: String,
    /// Name of the bucket.
    pub bucket: String,
    /// Two buckets with different names are different buckets, also if one of them is at another such service.
    pub decisive: bool,
}

/// What a look at an object and at its counterpart in another place shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// Nothing tells them apart: length, ETag, version and time (files: inode times) are equal.
    Alike,
    /// They are two objects, or the second is not there. The first was in one state before and after the look.
    Different,
    /// The first is not there, which says nothing of the second.
    Absent,
    /// The first changed or vanished meanwhile, which says nothing either.
    Unstable,
}

impl BucketIdentity {
    /// A bucket by where its requests go: `origin` (`https://host[:port]`) and `root`, the path before `/key`. The bucket
    /// stands in the host or at the end of the path. `scheme` is that of the store's URL.
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

/// Clouds whose bucket names are unique.
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

/// Aliases of access points, which name a bucket that has another name.
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

/// Lower case, no final dot, and one name for this machine.
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
