//! The parsers of what servers send, for fuzzing (`fuzz/entries/answers.rs`). Not part of the interface.

use crate::rest::{parse_http_date, parse_rfc3339, percent_decode};
use crate::xml::{can_hold, escape_into};
use crate::{azure, s3};

/// Parses `data` as each answer that S3, GCS and Azure give. Nothing may panic, a listing holds no entry without a name,
/// and one that says it is truncated never ends there.
pub fn answers(data: &[u8]) {
    use s3::xml::{parse_deletions, parse_error, parse_listing, parse_location, parse_uploads, parse_write};
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
    let roots =
        ["InitiateMultipartUploadResult", "CompleteMultipartUploadResult", "CopyObjectResult", "CopyPartResult"];
    for root in roots {
        let _ = parse_write(data, root);
    }
    let _ = (parse_error(data), parse_deletions(data), parse_location(data), azure::xml::parse_uncommitted(data));
    if let Ok(listing) = azure::xml::parse_listing(data) {
        assert!(listing.blobs.iter().all(|blob| !blob.key.is_empty()));
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = (parse_rfc3339(text), parse_http_date(text), percent_decode(text));
    }
}

/// Keys that were read are written and read to the same again.
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
