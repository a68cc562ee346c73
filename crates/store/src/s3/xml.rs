//! The XML answers of S3 and of GCS's XML API, pulled apart without building a tree. Pure: bytes in, values out.

use crate::Checksums;
use crate::rest::{parse_rfc3339, percent_decode};
use crate::xml::{Walk, XmlError, walk};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// One entry of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedKey {
    /// Key, decoded.
    pub(crate) key: String,
    /// Length in bytes.
    pub(crate) size_bytes: u64,
    /// ETag without quotes.
    pub(crate) etag: Option<String>,
    /// Milliseconds since the Unix epoch.
    pub(crate) modified_unix_ms: i64,
    /// Storage class.
    pub(crate) storage_class: Option<String>,
    /// Generation (GCS).
    pub(crate) generation: Option<String>,
}

/// `ListBucketResult`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// Entries in the server's order.
    pub(crate) keys: Vec<ListedKey>,
    /// Folded prefixes.
    pub(crate) prefixes: Vec<String>,
    /// Keys that are no text even after decoding, as the server wrote them.
    pub(crate) undecodable: Vec<String>,
    /// Token of the next page.
    pub(crate) continuation: Option<String>,
}

/// Reads a `ListBucketResult`, with or without `encoding-type=url`.
pub(crate) fn parse_listing(xml: &[u8]) -> Result<Listing, XmlError> {
    let mut listing = Listing::default();
    let mut entry = ListedKey::default();
    let (mut truncated, mut encoded) = (false, false);
    walk(xml, "ListBucketResult", |at: Walk<'_>| {
        match (at.parent, at.name) {
            ("Contents", "Key") => at.text.clone_into(&mut entry.key),
            ("Contents", "Size") => entry.size_bytes = at.number()?,
            ("Contents", "LastModified") => entry.modified_unix_ms = parse_rfc3339(at.text).unwrap_or(0),
            ("Contents", "ETag") => entry.etag = unquote(at.text),
            ("Contents", "StorageClass") => entry.storage_class = Some(at.text.to_owned()),
            ("Contents", "Generation") => entry.generation = Some(at.text.to_owned()),
            (_, "Contents") => listing.keys.push(std::mem::take(&mut entry)),
            ("CommonPrefixes", "Prefix") => listing.prefixes.push(at.text.to_owned()),
            ("ListBucketResult", "NextContinuationToken") => listing.continuation = Some(at.text.to_owned()),
            ("ListBucketResult", "IsTruncated") => truncated = at.text == "true",
            ("ListBucketResult", "EncodingType") => encoded = at.text == "url",
            _ => {}
        }
        Ok(())
    })?;
    if !truncated {
        listing.continuation = None;
    }
    if encoded {
        decode_listing(&mut listing);
    }
    Ok(listing)
}

fn decode_listing(listing: &mut Listing) {
    let mut undecodable = Vec::new();
    listing.keys.retain_mut(|entry| decode_in_place(&mut entry.key, &mut undecodable));
    listing.prefixes.retain_mut(|prefix| decode_in_place(prefix, &mut undecodable));
    listing.undecodable = undecodable;
}

fn decode_in_place(text: &mut String, undecodable: &mut Vec<String>) -> bool {
    match percent_decode(text) {
        Some(decoded) => *text = decoded,
        None => undecodable.push(std::mem::take(text)),
    }
    !text.is_empty()
}

fn unquote(etag: &str) -> Option<String> {
    let etag = etag.trim().trim_matches('"');
    (!etag.is_empty()).then(|| etag.to_owned())
}

/// `Error`, as a whole answer or within `DeleteResult`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ErrorAnswer {
    /// Machine-readable code, e.g. `NoSuchKey`.
    pub(crate) code: String,
    /// Text for people.
    pub(crate) message: String,
    /// The region the server says the bucket is in.
    pub(crate) region: Option<String>,
    /// Key, within `DeleteResult`.
    pub(crate) key: String,
}

/// Reads an `Error` answer; `None` when it is none (HTML of a proxy, an empty body).
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

/// Reads a `LocationConstraint`; empty for S3's first region.
pub(crate) fn parse_location(xml: &[u8]) -> Result<String, XmlError> {
    let mut location = String::new();
    walk(xml, "LocationConstraint", |at| {
        at.text.trim().clone_into(&mut location);
        Ok(())
    })?;
    Ok(location)
}

/// Reads a `DeleteResult` and returns only the failures.
pub(crate) fn parse_deletions(xml: &[u8]) -> Result<Vec<ErrorAnswer>, XmlError> {
    let mut failures = Vec::new();
    let mut failure = ErrorAnswer::default();
    walk(xml, "DeleteResult", |at| {
        match (at.parent, at.name) {
            ("Error", "Key") => at.text.clone_into(&mut failure.key),
            ("Error", "Code") => at.text.clone_into(&mut failure.code),
            ("Error", "Message") => at.text.clone_into(&mut failure.message),
            (_, "Error") => failures.push(std::mem::take(&mut failure)),
            _ => {}
        }
        Ok(())
    })?;
    Ok(failures)
}

/// What the answer to a multipart call or a copy says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteAnswer {
    /// Upload id, of `InitiateMultipartUploadResult`.
    pub(crate) upload: Option<String>,
    /// ETag without quotes.
    pub(crate) etag: Option<String>,
    /// Checksums of the whole object (those of type COMPOSITE are left out).
    pub(crate) checksums: Checksums,
}

/// Reads `InitiateMultipartUploadResult`, `CompleteMultipartUploadResult`, `CopyObjectResult` or `CopyPartResult`.
pub(crate) fn parse_write(xml: &[u8], root: &str) -> Result<WriteAnswer, XmlError> {
    let mut answer = WriteAnswer::default();
    let mut composite = false;
    walk(xml, root, |at| {
        match at.name {
            "UploadId" => answer.upload = Some(at.text.to_owned()),
            "ETag" => answer.etag = unquote(at.text),
            "ChecksumType" => composite = at.text == "COMPOSITE",
            "ChecksumCRC64NVME" => answer.checksums.crc64nvme = decode_crc64(at.text),
            "ChecksumCRC32C" => answer.checksums.crc32c = decode_crc32(at.text),
            _ => {}
        }
        Ok(())
    })?;
    if composite {
        answer.checksums = Checksums::default();
    }
    Ok(answer)
}

/// One unfinished upload of `ListMultipartUploadsResult`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedUpload {
    /// Key, decoded.
    pub(crate) key: String,
    /// Upload id.
    pub(crate) upload: String,
    /// Milliseconds since the Unix epoch.
    pub(crate) opened_unix_ms: i64,
}

/// `ListMultipartUploadsResult`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UploadListing {
    /// Entries in the server's order.
    pub(crate) uploads: Vec<ListedUpload>,
    /// Key marker and upload-id marker of the next page.
    pub(crate) next: Option<(String, String)>,
}

/// Reads a `ListMultipartUploadsResult`.
pub(crate) fn parse_uploads(xml: &[u8]) -> Result<UploadListing, XmlError> {
    let mut listing = UploadListing::default();
    let mut entry = ListedUpload::default();
    let (mut truncated, mut encoded, mut next) = (false, false, (String::new(), String::new()));
    walk(xml, "ListMultipartUploadsResult", |at| {
        match (at.parent, at.name) {
            ("Upload", "Key") => at.text.clone_into(&mut entry.key),
            ("Upload", "UploadId") => at.text.clone_into(&mut entry.upload),
            ("Upload", "Initiated") => entry.opened_unix_ms = parse_rfc3339(at.text).unwrap_or(0),
            (_, "Upload") => listing.uploads.push(std::mem::take(&mut entry)),
            ("ListMultipartUploadsResult", "IsTruncated") => truncated = at.text == "true",
            ("ListMultipartUploadsResult", "EncodingType") => encoded = at.text == "url",
            ("ListMultipartUploadsResult", "NextKeyMarker") => at.text.clone_into(&mut next.0),
            ("ListMultipartUploadsResult", "NextUploadIdMarker") => at.text.clone_into(&mut next.1),
            _ => {}
        }
        Ok(())
    })?;
    if encoded {
        for entry in &mut listing.uploads {
            entry.key = percent_decode(&entry.key).unwrap_or_default();
        }
        next.0 = percent_decode(&next.0).unwrap_or_default();
    }
    listing.next = (truncated && !next.0.is_empty()).then_some(next);
    Ok(listing)
}

/// Big-endian base64, as checksum headers carry it.
pub(crate) fn encode_crc64(crc: u64) -> String {
    BASE64_STANDARD.encode(crc.to_be_bytes())
}

/// Big-endian base64, as checksum headers carry it.
pub(crate) fn encode_crc32(crc: u32) -> String {
    BASE64_STANDARD.encode(crc.to_be_bytes())
}

/// A CRC-64 header value; `None` when it is something else (a composite `…-3`).
pub(crate) fn decode_crc64(text: &str) -> Option<u64> {
    Some(u64::from_be_bytes(BASE64_STANDARD.decode(text).ok()?.try_into().ok()?))
}

/// A CRC-32 header value; `None` when it is something else (a composite `…-3`).
pub(crate) fn decode_crc32(text: &str) -> Option<u32> {
    Some(u32::from_be_bytes(BASE64_STANDARD.decode(text).ok()?.try_into().ok()?))
}

/// The body of `DeleteObjects`.
pub(crate) fn delete_body<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    let mut body = String::from("<Delete><Quiet>true</Quiet>");
    for key in keys {
        body.push_str("<Object><Key>");
        crate::xml::escape_into(&mut body, key);
        body.push_str("</Key></Object>");
    }
    body.push_str("</Delete>");
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_a_page() {
        let xml = br#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix></Prefix>
<NextContinuationToken>t&amp;k</NextContinuationToken><IsTruncated>true</IsTruncated><EncodingType>url</EncodingType>
<Contents><Key>a%2F%2Fb+c%2B</Key><LastModified>2024-05-06T07:08:09.000Z</LastModified>
<ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag><Size>12</Size><Owner><ID>x</ID></Owner><StorageClass>STANDARD</StorageClass></Contents>
<CommonPrefixes><Prefix>d%2F</Prefix></CommonPrefixes></ListBucketResult>"#;
        let page = parse_listing(xml).unwrap();
        assert_eq!(page.continuation.as_deref(), Some("t&k"));
        assert_eq!(page.prefixes, ["d/"]);
        assert_eq!(page.keys[0].key, "a//b c+");
        assert_eq!(page.keys[0].size_bytes, 12);
        assert_eq!(page.keys[0].etag.as_deref(), Some("d41d8cd98f00b204e9800998ecf8427e"));
        assert_eq!(page.keys[0].modified_unix_ms, 1_714_979_289_000);
    }

    #[test]
    fn a_cut_answer_is_an_error() {
        let whole = b"<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>";
        assert_eq!(parse_listing(whole).unwrap().keys.len(), 1);
        for length in 0..whole.len() {
            assert!(parse_listing(&whole[..length]).is_err(), "cut at {length}");
        }
    }

    #[test]
    fn an_error_where_a_result_was_due_is_seen() {
        let xml = b"\n\n<Error><Code>InternalError</Code><Message>We encountered\nan error</Message></Error>";
        assert!(parse_write(xml, "CompleteMultipartUploadResult").is_err());
        assert_eq!(parse_error(xml).unwrap().code, "InternalError");
    }

    #[test]
    fn locations_are_read_with_and_without_a_name() {
        let said = |xml: &str| parse_location(xml.as_bytes());
        let named = r#"<?xml version="1.0"?>
            <LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/">eu-west-3</LocationConstraint>"#;
        assert_eq!(said(named).unwrap(), "eu-west-3");
        assert_eq!(said("<LocationConstraint/>").unwrap(), "");
        assert_eq!(said("<LocationConstraint></LocationConstraint>").unwrap(), "");
        assert!(said("<ListBucketResult/>").is_err());
    }

    #[test]
    fn composite_checksums_are_left_out() {
        let xml = b"<CompleteMultipartUploadResult><ETag>\"x-2\"</ETag><ChecksumCRC32C>AAAAAA==</ChecksumCRC32C>\
            <ChecksumType>COMPOSITE</ChecksumType></CompleteMultipartUploadResult>";
        assert_eq!(parse_write(xml, "CompleteMultipartUploadResult").unwrap().checksums, Checksums::default());
        assert_eq!(decode_crc32("AAAAAA==-2"), None);
        assert_eq!(decode_crc64(&encode_crc64(0xae8b_1486_0a79_9888)), Some(0xae8b_1486_0a79_9888));
    }

    proptest! {
        #[test]
        fn keys_survive_escaping(keys in proptest::collection::vec("[^\u{0}-\u{8}\u{b}\u{c}\u{e}-\u{1f}\u{fffe}\u{ffff}]{1,40}", 0..5)) {
            let mut xml = String::from("<ListBucketResult>");
            for key in &keys {
                xml.push_str("<Contents><Key>");
                crate::xml::escape_into(&mut xml, key);
                xml.push_str("</Key></Contents>");
            }
            xml.push_str("</ListBucketResult>");
            let read: Vec<String> = parse_listing(xml.as_bytes()).unwrap().keys.into_iter().map(|k| k.key).collect();
            prop_assert_eq!(read, keys);
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = (parse_listing(&bytes), parse_error(&bytes), parse_deletions(&bytes), parse_uploads(&bytes), parse_location(&bytes));
        }
    }
}
