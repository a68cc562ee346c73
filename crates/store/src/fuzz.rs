//! The parsers of servers' answers, for fuzzing (`fuzz/entries`). Not part of the public interface.

use crate::rest::{Call, expected_bytes, parse_error, parse_http_date, parse_rfc3339, percent_decode};
use crate::s3::dialect::{GCS, S3};
use crate::xml::{can_hold, escape_into};
use crate::{Payload, azure, s3};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use std::ops::Range;

/// Parses `data` as each kind of answer of S3, GCS and Azure. Nothing may panic, a listing holds no entry without a
/// name, and a truncated listing says how it continues.
pub fn answers(data: &[u8]) {
    use s3::xml::{parse_deletions, parse_listing, parse_location, parse_opened, parse_uploads, parse_write};
    if let Ok(listing) = parse_listing(data) {
        assert!(listing.keys.iter().all(|entry| !entry.key.is_empty()));
        assert!(listing.keys.len() + listing.prefixes.len() + listing.undecodable.len() <= data.len());
        let next = listing.next();
        assert!(!matches!(next, Ok(None)) || listing.truncated == Some(false), "a truncated listing ends");
        keys_survive(listing.keys.iter().map(|entry| entry.key.as_str()));
    }
    if let Ok(listing) = parse_uploads(data) {
        assert!(!matches!(listing.next(), Ok(Some((key_marker, _))) if key_marker.is_empty()));
    }
    for root in ["CompleteMultipartUploadResult", "CopyObjectResult", "CopyPartResult"] {
        let _ = parse_write(data, root);
    }
    for root in ["Tagging", "Tags"] {
        let tags = crate::xml::parse_tags(data, root).unwrap_or_default();
        assert!(tags.keys().all(|name| !name.is_empty()));
    }
    let _ = (parse_opened(data), crate::xml::is_document(data));
    let _ = (parse_error(data), parse_deletions(data), parse_location(data), azure::xml::parse_uncommitted(data));
    if let Ok(listing) = azure::xml::parse_listing(data) {
        assert!(listing.blobs.iter().all(|blob| !blob.key.is_empty()));
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = (parse_rfc3339(text), parse_http_date(text), percent_decode(text));
    }
}

/// Parsed keys are written and parsed back unchanged.
fn keys_survive<'a>(keys: impl Iterator<Item = &'a str>) {
    let keys: Vec<&str> = keys.filter(|key| can_hold(key)).collect();
    let mut xml = String::from("<ListBucketResult>");
    for key in &keys {
        xml.push_str("<Contents><Size>1</Size><Key>");
        escape_into(&mut xml, key);
        xml.push_str("</Key></Contents>");
    }
    xml.push_str("</ListBucketResult>");
    let again = s3::xml::parse_listing(xml.as_bytes()).expect("what was written parses");
    assert!(again.keys.iter().map(|entry| entry.key.as_str()).eq(keys));
}

/// Most header lines of one answer that are read.
const HEADERS_MAX: usize = 100;
/// The range that the fuzzed answer is for.
const ASKED: Range<u64> = 5..9;

/// Reads `data` as the head of an answer: a status on the first line, then one header per line. Nothing may panic. An
/// answer to a range is accepted only if it has all bytes of the range and the object is long enough.
pub fn headers(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let status = lines.next().and_then(|status| StatusCode::from_bytes(status).ok()).unwrap_or(StatusCode::OK);
    let mut headers = HeaderMap::new();
    for line in lines.take(HEADERS_MAX) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    for dialect in [&S3, &GCS] {
        let info = s3::headers::object_info(dialect, "key", 7, &headers);
        let written = s3::headers::written(dialect, &headers);
        assert_eq!((info.etag, info.checksums), (written.etag, written.checksums));
    }
    for flag in [false, true] {
        azure::headers::object_info("key", 7, flag, &headers);
        azure::headers::written(&headers, flag);
    }
    let call = Call {
        operation: "get",
        url: "s3://bucket/key".to_owned(),
        method: Method::GET,
        origin: String::new(),
        path: String::new(),
        query: String::new(),
        headers: HeaderMap::new(),
        body: Payload::default(),
        patient: false,
    };
    if let Ok((body_bytes, object_bytes)) = expected_bytes(&call, status, &headers, None) {
        assert_eq!(body_bytes, object_bytes);
    }
    if let Ok((body_bytes, object_bytes)) = expected_bytes(&call, status, &headers, Some(&ASKED)) {
        assert_eq!(body_bytes, ASKED.end - ASKED.start);
        assert!(object_bytes >= ASKED.end, "a range of an object that ends before it");
    }
}
