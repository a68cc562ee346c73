//! Translates headers of answers into object states, and options of writes into headers.

use super::Bucket;
use super::dialect::Dialect;
use super::xml::{decode_crc32, decode_crc64};
use crate::rest::{Call, encode_query, header, iso_date, parse_http_date};
use crate::{Attributes, Checksums, ObjectInfo, PutOptions, Result, Written};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;

/// Mode of the retention of a new object.
pub(super) const LOCK_MODE: &str = "x-amz-object-lock-mode";
/// Legal hold of a new object.
pub(super) const LEGAL_HOLD: &str = "x-amz-object-lock-legal-hold";

/// Parses the headers of HEAD or GET. `size_bytes` is the length of the whole object.
pub(crate) fn object_info(dialect: &Dialect, key: &str, size_bytes: u64, headers: &HeaderMap) -> ObjectInfo {
    let text = |name: &str| header(headers, name).map(str::to_owned);
    ObjectInfo {
        key: key.to_owned(),
        size_bytes,
        etag: etag(headers),
        version: version(dialect, headers),
        modified_unix_ms: header(headers, "last-modified").and_then(parse_http_date).unwrap_or(0),
        checksums: checksums(dialect, headers),
        attributes: attributes(dialect, headers).into(),
        tag_count: header(headers, "x-amz-tagging-count").and_then(|count| count.parse().ok()),
        storage_class: text(dialect.storage_class),
        file: None,
        permissions: None,
    }
}

/// Parses the headers of a write.
pub(crate) fn written(dialect: &Dialect, headers: &HeaderMap) -> Written {
    Written {
        etag: etag(headers),
        version: version(dialect, headers),
        checksums: checksums(dialect, headers),
        ..Written::default()
    }
}

fn etag(headers: &HeaderMap) -> Option<String> {
    header(headers, "etag").map(|etag| etag.trim().trim_matches('"').to_owned()).filter(|etag| !etag.is_empty())
}

pub(super) fn version(dialect: &Dialect, headers: &HeaderMap) -> Option<String> {
    header(headers, dialect.version).filter(|version| *version != "null").map(str::to_owned)
}

/// Checksums of the whole object that the store vouches for. Composite ones do not cover its bytes.
pub(super) fn checksums(dialect: &Dialect, headers: &HeaderMap) -> Checksums {
    let mut sums = if dialect.amz_checksums {
        let composite = header(headers, "x-amz-checksum-type") == Some("COMPOSITE");
        let whole = |name: &str| header(headers, name).filter(|_| !composite);
        Checksums {
            crc64nvme: whole("x-amz-checksum-crc64nvme").and_then(decode_crc64),
            crc32c: whole("x-amz-checksum-crc32c").and_then(decode_crc32),
            md5: None,
        }
    } else {
        google_hashes(headers)
    };
    if sums.md5.is_none() && etag_may_be_md5(headers) {
        sums.md5 = etag(headers).as_deref().and_then(md5_of_etag);
    }
    sums
}

/// Parses `x-goog-hash: crc32c=…,md5=…`, in one header or several.
fn google_hashes(headers: &HeaderMap) -> Checksums {
    let mut sums = Checksums::default();
    let values = headers.get_all("x-goog-hash").iter().filter_map(|value| value.to_str().ok());
    for (name, value) in values.flat_map(|value| value.split(',')).filter_map(|pair| pair.trim().split_once('=')) {
        match name {
            "crc32c" => sums.crc32c = decode_crc32(value),
            "md5" => sums.md5 = BASE64_STANDARD.decode(value).ok().and_then(|bytes| bytes.try_into().ok()),
            _ => {}
        }
    }
    sums
}

/// Returns whether the ETag can be the MD5 of the bytes. With KMS or customer keys it is not, though it may look like
/// one.
fn etag_may_be_md5(headers: &HeaderMap) -> bool {
    let encryption = header(headers, "x-amz-server-side-encryption").unwrap_or_default();
    !encryption.starts_with("aws:kms")
        && !headers.contains_key("x-amz-server-side-encryption-customer-algorithm")
        && !headers.contains_key("x-goog-encryption-kms-key-name")
        && !headers.contains_key("x-goog-encryption-algorithm")
}

/// Parses an ETag of 32 hex digits as an MD5; the ETag of a multipart object (`…-3`) is none.
pub(super) fn md5_of_etag(etag: &str) -> Option<[u8; 16]> {
    // `from_str_radix` would also accept a sign.
    if etag.len() != 32 || !etag.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut md5 = [0; 16];
    for (index, byte) in md5.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&etag[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(md5)
}

fn attributes(dialect: &Dialect, headers: &HeaderMap) -> Attributes {
    let text = |name: &str| header(headers, name).filter(|value| !value.is_empty()).map(str::to_owned);
    let metadata = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix(dialect.metadata_prefix)?;
        Some((name.to_owned(), std::str::from_utf8(value.as_bytes()).ok()?.to_owned()))
    });
    Attributes {
        content_type: text("content-type"),
        // `aws-chunked` describes how the upload was sent; some servers store it by mistake.
        content_encoding: text("content-encoding").and_then(without_aws_chunked),
        content_language: text("content-language"),
        content_disposition: text("content-disposition"),
        cache_control: text("cache-control"),
        metadata: metadata.collect(),
    }
}

fn without_aws_chunked(encoding: String) -> Option<String> {
    let kept: Vec<&str> = encoding.split(',').map(str::trim).filter(|coding| *coding != "aws-chunked").collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

impl Bucket {
    /// Sets the headers of a write that makes a new object.
    pub(super) fn set_options(&self, call: &mut Call, options: &PutOptions) -> Result<()> {
        self.set_attributes(call, &options.attributes)?;
        if let Some(class) = &options.storage_class {
            call.set(self.dialect.storage_class, class)?;
        }
        if let Some(retention) = options.lock.retention {
            let mode = if retention.is_compliance { "COMPLIANCE" } else { "GOVERNANCE" };
            call.set(LOCK_MODE, mode)?;
            call.set("x-amz-object-lock-retain-until-date", &iso_date(retention.until_unix_s))?;
        }
        if options.lock.legal_hold {
            call.set(LEGAL_HOLD, "ON")?;
        }
        if let Some(name) = self.dialect.tagging.filter(|_| !options.tags.is_empty()) {
            let tags: Vec<(&str, &str)> = options.tags.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            call.set(name, &encode_query(&tags))?;
        }
        Ok(())
    }

    /// Sets headers that a reader of the object will see.
    pub(super) fn set_attributes(&self, call: &mut Call, attributes: &Attributes) -> Result<()> {
        let plain = [
            ("content-type", &attributes.content_type),
            ("content-encoding", &attributes.content_encoding),
            ("content-language", &attributes.content_language),
            ("content-disposition", &attributes.content_disposition),
            ("cache-control", &attributes.cache_control),
        ];
        for (name, value) in plain {
            if let Some(value) = value {
                call.set(name, value)?;
            }
        }
        for (name, value) in &attributes.metadata {
            call.set_named(&format!("{}{name}", self.dialect.metadata_prefix), value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::dialect::{GCS, S3};
    use super::*;
    use http::HeaderValue;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    const MD5: (&str, &str) = ("etag", "\"d41d8cd98f00b204e9800998ecf8427e\"");

    #[test]
    fn an_etag_is_an_md5_only_when_it_can_be_one() {
        assert!(checksums(&S3, &headers(&[MD5])).md5.is_some());
        assert!(checksums(&S3, &headers(&[MD5, ("x-amz-server-side-encryption", "AES256")])).md5.is_some());
        assert!(checksums(&S3, &headers(&[MD5, ("x-amz-server-side-encryption", "aws:kms")])).md5.is_none());
        let customer_key = ("x-amz-server-side-encryption-customer-algorithm", "AES256");
        assert!(checksums(&S3, &headers(&[MD5, customer_key])).md5.is_none());
        assert!(checksums(&S3, &headers(&[("etag", "\"d41d8cd98f00b204e9800998ecf8427e-2\"")])).md5.is_none());
        assert!(checksums(&S3, &headers(&[("etag", "\"z41d8cd98f00b204e9800998ecf8427e\"")])).md5.is_none());
        assert!(checksums(&S3, &headers(&[("etag", "\"+41d8cd98f00b204e9800998ecf8427e\"")])).md5.is_none());
    }

    #[test]
    fn composite_checksums_do_not_count() {
        let sums = [("x-amz-checksum-crc32c", "4waSgw=="), ("x-amz-checksum-type", "FULL_OBJECT")];
        assert_eq!(checksums(&S3, &headers(&sums)).crc32c, Some(0xe306_9283));
        let sums = [("x-amz-checksum-crc32c", "4waSgw=="), ("x-amz-checksum-type", "COMPOSITE")];
        assert_eq!(checksums(&S3, &headers(&sums)).crc32c, None);
    }

    #[test]
    fn google_hashes_come_in_one_header_or_two() {
        let one = headers(&[("x-goog-hash", "crc32c=4waSgw==,md5=1B2M2Y8AsgTpgAmY7PhCfg==")]);
        let two = headers(&[("x-goog-hash", "crc32c=4waSgw=="), ("x-goog-hash", "md5=1B2M2Y8AsgTpgAmY7PhCfg==")]);
        for headers in [one, two] {
            let sums = checksums(&GCS, &headers);
            assert_eq!(sums.crc32c, Some(0xe306_9283));
            assert_eq!(sums.md5.map(|md5| md5[0]), Some(0xd4));
        }
    }

    #[test]
    fn aws_chunked_is_not_an_encoding() {
        let read = |value| attributes(&S3, &headers(&[("content-encoding", value)])).content_encoding;
        assert_eq!(read("aws-chunked"), None);
        assert_eq!(read("gzip,aws-chunked").as_deref(), Some("gzip"));
    }
}
