//! Translates headers of answers into object states, and options of writes into headers.

use super::xml::decode_md5;
use crate::rest::{Call, encode_query, header, parse_http_date};
use crate::{Attributes, Checksums, ObjectInfo, PutOptions, Rare, Result, Tags, Written};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;

const METADATA_PREFIX: &str = "x-ms-meta-";

/// Azure encodes CRC-64/NVME with the least significant byte first.
pub(super) fn encode_crc64(crc: u64) -> String {
    BASE64_STANDARD.encode(crc.to_le_bytes())
}

fn decode_crc64(text: &str) -> Option<u64> {
    Some(u64::from_le_bytes(BASE64_STANDARD.decode(text).ok()?.try_into().ok()?))
}

/// Returns whether the `Content-MD5` of a blob of this type can be that of its bytes. Writes of pages and appended blocks
/// leave it as it was.
pub(super) fn keeps_md5(blob_type: &str) -> bool {
    blob_type == "BlockBlob"
}

/// Parses the headers of HEAD or GET. For a range, `Content-MD5` is that of the range; the blob's is in another
/// header.
pub(crate) fn object_info(key: &str, size_bytes: u64, is_range: bool, headers: &HeaderMap) -> ObjectInfo {
    let md5_header = if is_range { "x-ms-blob-content-md5" } else { "content-md5" };
    let has_md5 = header(headers, "x-ms-blob-type").is_none_or(keeps_md5);
    let md5 = header(headers, md5_header).filter(|_| has_md5).and_then(decode_md5);
    let text = |name: &str| header(headers, name).filter(|value| !value.is_empty()).map(str::to_owned);
    let metadata = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix(METADATA_PREFIX)?;
        Some((name.to_owned(), std::str::from_utf8(value.as_bytes()).ok()?.to_owned()))
    });
    ObjectInfo {
        key: key.to_owned(),
        size_bytes,
        etag: etag(headers),
        version: text("x-ms-version-id"),
        modified_unix_ms: header(headers, "last-modified").and_then(parse_http_date).unwrap_or(0),
        checksums: Checksums { md5, ..Checksums::default() },
        attributes: Rare::from(Attributes {
            content_type: text("content-type"),
            content_encoding: text("content-encoding"),
            content_language: text("content-language"),
            content_disposition: text("content-disposition"),
            cache_control: text("cache-control"),
            metadata: metadata.collect(),
        }),
        tag_count: header(headers, "x-ms-tag-count").and_then(|count| count.parse().ok()),
        storage_class: text("x-ms-access-tier"),
        file: None,
        permissions: None,
    }
}

pub(super) fn etag(headers: &HeaderMap) -> Option<String> {
    header(headers, "etag").map(|etag| etag.trim_matches('"').to_owned()).filter(|etag| !etag.is_empty())
}

/// Parses the headers of a write. Checksums are those of the request's body, so only for Put Blob are they the
/// object's.
pub(crate) fn written(headers: &HeaderMap, body_is_object: bool) -> Written {
    let of_body = |name: &str| header(headers, name).filter(|_| body_is_object);
    Written {
        etag: etag(headers),
        version: header(headers, "x-ms-version-id").map(str::to_owned),
        checksums: Checksums {
            crc64nvme: of_body("x-ms-content-crc64").and_then(decode_crc64),
            crc32c: None,
            md5: of_body("content-md5").and_then(decode_md5),
        },
        file: None,
        size_bytes: None,
    }
}

/// Sets the headers of a write that makes a new object.
pub(super) fn set_options(call: &mut Call, options: &PutOptions) -> Result<()> {
    set_attributes(call, &options.attributes)?;
    set_metadata(call, &options.attributes)?;
    if let Some(tier) = &options.storage_class {
        call.set("x-ms-access-tier", tier)?;
    }
    set_tags(call, &options.tags)
}

/// Sets the tags of a write or a copy.
pub(super) fn set_tags(call: &mut Call, tags: &Tags) -> Result<()> {
    if tags.is_empty() {
        return Ok(());
    }
    let tags: Vec<(&str, &str)> = tags.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    call.set("x-ms-tags", &encode_query(&tags))
}

/// Sets the properties that a reader sees as headers.
pub(super) fn set_attributes(call: &mut Call, attributes: &Attributes) -> Result<()> {
    let plain = [
        ("x-ms-blob-content-type", &attributes.content_type),
        ("x-ms-blob-content-encoding", &attributes.content_encoding),
        ("x-ms-blob-content-language", &attributes.content_language),
        ("x-ms-blob-content-disposition", &attributes.content_disposition),
        ("x-ms-blob-cache-control", &attributes.cache_control),
    ];
    for (name, value) in plain {
        if let Some(value) = value {
            call.set(name, value)?;
        }
    }
    Ok(())
}

/// Sets the metadata. Azure accepts only names that are C# identifiers.
pub(super) fn set_metadata(call: &mut Call, attributes: &Attributes) -> Result<()> {
    for (name, value) in &attributes.metadata {
        call.set_named(&format!("{METADATA_PREFIX}{name}"), value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc64_is_little_endian() {
        // The CRC of "123456789", as Azurite computes it.
        assert_eq!(encode_crc64(0xae8b_1486_0a79_9888), "iJh5CoYUi64=");
        assert_eq!(decode_crc64("iJh5CoYUi64="), Some(0xae8b_1486_0a79_9888));
    }
}
