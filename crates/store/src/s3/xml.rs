//! Parses the XML answers of S3 and of GCS's XML API without building a tree. Pure: bytes in, values out.

use crate::Checksums;
use crate::rest::{ErrorAnswer, parse_rfc3339, percent_decode};
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
    /// Keys that are not text even after decoding, as the server wrote them.
    pub(crate) undecodable: Vec<String>,
    /// The fault of the whole answer.
    fault: Option<String>,
    /// True if there are more pages; `None` if the server does not say.
    pub(crate) truncated: Option<bool>,
    /// Token of the next page (version 2).
    pub(crate) token: Option<String>,
    /// Key after which the next page begins (version 1).
    pub(crate) next_marker: Option<String>,
    has_marker: bool,
    has_count: bool,
}

/// How a listing continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// With a token (version 2).
    Token(String),
    /// After a key (version 1).
    Marker(String),
}

impl Listing {
    /// Returns whether the answer is plainly of version 1: it repeats the marker and has no key count.
    pub(crate) fn is_v1(&self) -> bool {
        self.has_marker && !self.has_count
    }

    /// Returns whether it has an entry that does not come after `after`. A folded prefix that contains `after` may hold
    /// keys after it.
    pub(crate) fn begins_before(&self, after: &str) -> bool {
        let mut folded = self.prefixes.iter().filter(|prefix| !after.starts_with(prefix.as_str()));
        self.keys.iter().any(|entry| entry.key.as_str() <= after) || folded.any(|prefix| prefix.as_str() <= after)
    }

    /// Returns how the listing continues; `None` at its end. Version 1 names the next marker only with a delimiter;
    /// without one, it is the last key (S3's reference, `ListObjects`).
    ///
    /// # Errors
    /// The server's fault: the answer neither says how to continue nor that this is the end.
    pub(crate) fn next(&self) -> Result<Option<Next>, String> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        if let Some(token) = &self.token {
            return Ok(Some(Next::Token(token.clone())));
        }
        if let Some(marker) = &self.next_marker {
            return Ok(Some(Next::Marker(marker.clone())));
        }
        match self.truncated {
            Some(false) => Ok(None),
            None => Err("the server does not say whether more keys follow: its answer has no IsTruncated".to_owned()),
            Some(true) if self.is_v1() => self.last().map(|last| Some(Next::Marker(last))),
            Some(true) => Err("the server says that more keys follow, but gives no continuation token".to_owned()),
        }
    }

    /// The last entry of a page whose keys ascend.
    fn last(&self) -> Result<String, String> {
        if !self.undecodable.is_empty() || !self.keys.is_sorted_by(|one, next| one.key < next.key) {
            return Err("the server gives no next marker, and its keys are not in order".to_owned());
        }
        let last = self.keys.last().map(|entry| &entry.key).max(self.prefixes.iter().max());
        last.cloned().ok_or_else(|| "the server says that more keys follow, but gives no marker".to_owned())
    }
}

/// Reads a `ListBucketResult`, with or without `encoding-type=url`.
pub(crate) fn parse_listing(xml: &[u8]) -> Result<Listing, XmlError> {
    let mut listing = Listing::default();
    let mut entry = ListedKey::default();
    let (mut encoded, mut has_size) = (false, false);
    walk(xml, "ListBucketResult", |at: Walk<'_>| {
        match (at.parent, at.name) {
            ("Contents", "Key") => at.text.clone_into(&mut entry.key),
            ("Contents", "Size") => {
                has_size = true;
                match at.number() {
                    Ok(size_bytes) => entry.size_bytes = size_bytes,
                    Err(_) => listing.fault = Some(format!("the size of {:?} is {:?}", entry.key, at.text)),
                }
            }
            ("Contents", "LastModified") => entry.modified_unix_ms = parse_rfc3339(at.text).unwrap_or(0),
            ("Contents", "ETag") => entry.etag = unquote(at.text),
            ("Contents", "StorageClass") => entry.storage_class = Some(at.text.to_owned()),
            ("Contents", "Generation") => entry.generation = Some(at.text.to_owned()),
            (_, "Contents") if entry.key.is_empty() || !std::mem::take(&mut has_size) => {
                return Err(XmlError("an entry has no key or no size".to_owned()));
            }
            (_, "Contents") => listing.keys.push(std::mem::take(&mut entry)),
            ("CommonPrefixes", "Prefix") => listing.prefixes.push(at.text.to_owned()),
            ("ListBucketResult", "NextContinuationToken") => listing.token = filled(at.text),
            ("ListBucketResult", "NextMarker") => listing.next_marker = filled(at.text),
            ("ListBucketResult", "Marker") => listing.has_marker = true,
            ("ListBucketResult", "KeyCount" | "StartAfter" | "ContinuationToken") => listing.has_count = true,
            ("ListBucketResult", "IsTruncated") => listing.truncated = Some(truth(&at)?),
            ("ListBucketResult", "EncodingType") => encoded = at.text == "url",
            _ => {}
        }
        Ok(())
    })?;
    if encoded {
        decode_listing(&mut listing);
    }
    Ok(listing)
}

fn filled(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn truth(at: &Walk<'_>) -> Result<bool, XmlError> {
    match at.text.trim() {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(XmlError(format!("<{}> is `{}`", at.name, other.escape_debug()))),
    }
}

fn decode_listing(listing: &mut Listing) {
    listing.next_marker = listing.next_marker.take().and_then(|marker| percent_decode(&marker));
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

pub(super) fn unquote(etag: &str) -> Option<String> {
    let etag = etag.trim().trim_matches('"');
    (!etag.is_empty()).then(|| etag.to_owned())
}

/// Reads a `LocationConstraint`, which SeaweedFS puts into a `CreateBucketConfiguration`; empty for S3's first region.
pub(crate) fn parse_location(xml: &[u8]) -> Result<String, XmlError> {
    location_in(xml, "LocationConstraint")
        .or_else(|error| location_in(xml, "CreateBucketConfiguration").map_err(|_| error))
}

fn location_in(xml: &[u8], root: &str) -> Result<String, XmlError> {
    let mut location = String::new();
    walk(xml, root, |at| {
        if at.name == "LocationConstraint" {
            at.text.trim().clone_into(&mut location);
        }
        Ok(())
    })?;
    Ok(location)
}

/// `DeleteResult`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deletions {
    /// Keys that the server reports as deleted. Servers that honour `Quiet` name none.
    pub(crate) deleted: Vec<String>,
    /// Keys that were not deleted, and why.
    pub(crate) failures: Vec<ErrorAnswer>,
}

/// Reads a `DeleteResult`.
pub(crate) fn parse_deletions(xml: &[u8]) -> Result<Deletions, XmlError> {
    let mut answer = Deletions::default();
    let mut failure = ErrorAnswer::default();
    walk(xml, "DeleteResult", |at| {
        match (at.parent, at.name) {
            ("Error", "Key") => at.text.clone_into(&mut failure.key),
            ("Error", "Code") => at.text.clone_into(&mut failure.code),
            ("Error", "Message") => at.text.clone_into(&mut failure.message),
            (_, "Error") => answer.failures.push(std::mem::take(&mut failure)),
            ("Deleted", "Key") => answer.deleted.push(at.text.to_owned()),
            _ => {}
        }
        Ok(())
    })?;
    Ok(answer)
}

/// The answer to a multipart call or a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteAnswer {
    /// Upload id, of `InitiateMultipartUploadResult`.
    pub(crate) upload: Option<String>,
    /// ETag without quotes.
    pub(crate) etag: Option<String>,
    /// Checksums of the whole object (those of type COMPOSITE are left out).
    pub(crate) checksums: Checksums,
}

/// Reads `InitiateMultipartUploadResult`, which `rclone serve s3` calls `InitiateMultipartUpload`.
pub(crate) fn parse_opened(xml: &[u8]) -> Result<WriteAnswer, XmlError> {
    parse_write(xml, "InitiateMultipartUploadResult")
        .or_else(|error| parse_write(xml, "InitiateMultipartUpload").map_err(|_| error))
}

/// Reads `CompleteMultipartUploadResult`, `CopyObjectResult` or `CopyPartResult`.
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
    truncated: bool,
    /// Key marker and upload-id marker of the next page.
    markers: (String, String),
}

impl UploadListing {
    /// Returns the markers of the next page; `None` at the end.
    ///
    /// # Errors
    /// The server's fault: there are more uploads, but the answer does not say how to continue.
    pub(crate) fn next(&self) -> Result<Option<(String, String)>, String> {
        match (self.truncated, self.markers.0.is_empty()) {
            (false, _) => Ok(None),
            (true, false) => Ok(Some(self.markers.clone())),
            (true, true) => Err("the server says that more uploads follow, but sent no key marker".to_owned()),
        }
    }
}

/// Reads a `ListMultipartUploadsResult`.
pub(crate) fn parse_uploads(xml: &[u8]) -> Result<UploadListing, XmlError> {
    let mut listing = UploadListing::default();
    let mut entry = ListedUpload::default();
    let mut encoded = false;
    walk(xml, "ListMultipartUploadsResult", |at| {
        match (at.parent, at.name) {
            ("Upload", "Key") => at.text.clone_into(&mut entry.key),
            ("Upload", "UploadId") => at.text.clone_into(&mut entry.upload),
            ("Upload", "Initiated") => entry.opened_unix_ms = parse_rfc3339(at.text).unwrap_or(0),
            (_, "Upload") => listing.uploads.push(std::mem::take(&mut entry)),
            ("ListMultipartUploadsResult", "IsTruncated") => listing.truncated = truth(&at)?,
            ("ListMultipartUploadsResult", "EncodingType") => encoded = at.text == "url",
            ("ListMultipartUploadsResult", "NextKeyMarker") => at.text.clone_into(&mut listing.markers.0),
            ("ListMultipartUploadsResult", "NextUploadIdMarker") => at.text.clone_into(&mut listing.markers.1),
            _ => {}
        }
        Ok(())
    })?;
    if encoded {
        for entry in &mut listing.uploads {
            entry.key = percent_decode(&entry.key).unwrap_or_default();
        }
        listing.markers.0 = percent_decode(&listing.markers.0).unwrap_or_default();
    }
    Ok(listing)
}

/// Encodes as big-endian base64, the form in checksum headers.
pub(crate) fn encode_crc64(crc: u64) -> String {
    BASE64_STANDARD.encode(crc.to_be_bytes())
}

/// Encodes as big-endian base64, the form in checksum headers.
pub(crate) fn encode_crc32(crc: u32) -> String {
    BASE64_STANDARD.encode(crc.to_be_bytes())
}

/// Decodes a CRC-64 header value; `None` for anything else (a composite `…-3`).
pub(crate) fn decode_crc64(text: &str) -> Option<u64> {
    Some(u64::from_be_bytes(BASE64_STANDARD.decode(text).ok()?.try_into().ok()?))
}

/// Decodes a CRC-32 header value; `None` for anything else (a composite `…-3`).
pub(crate) fn decode_crc32(text: &str) -> Option<u32> {
    Some(u32::from_be_bytes(BASE64_STANDARD.decode(text).ok()?.try_into().ok()?))
}

/// The body of `DeleteObjects`: keys, each with the ETag that the object must have.
pub(crate) fn delete_body<'a>(objects: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let mut body = String::from("<Delete><Quiet>true</Quiet>");
    for (key, etag) in objects {
        body.push_str("<Object><Key>");
        crate::xml::escape_into(&mut body, key);
        body.push_str("</Key>");
        if let Some(etag) = etag {
            body.push_str("<ETag>&quot;");
            crate::xml::escape_into(&mut body, etag);
            body.push_str("&quot;</ETag>");
        }
        body.push_str("</Object>");
    }
    body.push_str("</Delete>");
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::parse_error;
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
        assert_eq!(page.next(), Ok(Some(Next::Token("t&k".to_owned()))));
        assert_eq!(page.prefixes, ["d/"]);
        assert_eq!(page.keys[0].key, "a//b c+");
        assert_eq!(page.keys[0].size_bytes, 12);
        assert_eq!(page.keys[0].etag.as_deref(), Some("d41d8cd98f00b204e9800998ecf8427e"));
        assert_eq!(page.keys[0].modified_unix_ms, 1_714_979_289_000);
    }

    #[test]
    fn a_cut_answer_is_an_error() {
        let whole = b"<ListBucketResult><Contents><Key>a</Key><Size>1</Size></Contents></ListBucketResult>";
        assert_eq!(parse_listing(whole).unwrap().keys.len(), 1);
        for length in 0..whole.len() {
            assert!(parse_listing(&whole[..length]).is_err(), "cut at {length}");
        }
    }

    fn next_of(inner: &str) -> Result<Option<Next>, String> {
        parse_listing(format!("<ListBucketResult>{inner}</ListBucketResult>").as_bytes()).unwrap().next()
    }

    #[test]
    fn a_truncated_listing_says_how_it_continues_or_is_refused() {
        let keys = "<Contents><Key>a</Key><Size>1</Size></Contents><Contents><Key>b</Key><Size>1</Size></Contents>";
        let token = |token: &str| Ok(Some(Next::Token(token.to_owned())));
        let marker = |marker: &str| Ok(Some(Next::Marker(marker.to_owned())));
        let (more, end) = ("<IsTruncated>true</IsTruncated>", "<IsTruncated>false</IsTruncated>");
        let next_token = "<NextContinuationToken>t</NextContinuationToken>";
        assert_eq!(next_of(&format!("{end}{keys}")), Ok(None));
        assert_eq!(next_of(&format!("{more}{next_token}{keys}")), token("t"));
        // A token at the claimed end costs one more request, to be sure.
        assert_eq!(next_of(&format!("{end}{next_token}{keys}")), token("t"));
        assert!(next_of(&format!("{more}<KeyCount>2</KeyCount>{keys}")).is_err());
        assert!(next_of(&format!("{more}{keys}")).is_err(), "not plainly version 1");
        assert!(next_of(&format!("{more}<NextContinuationToken/>{keys}")).is_err());
        assert!(next_of(keys).is_err(), "no IsTruncated");
        assert_eq!(next_of(&format!("{more}<Marker/><NextMarker>a/</NextMarker>{keys}")), marker("a/"));
        assert_eq!(next_of(&format!("{more}<Marker></Marker>{keys}")), marker("b"));
        let prefix = "<CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes>";
        assert_eq!(next_of(&format!("{more}<Marker/>{prefix}{keys}")), marker("c/"));
        assert!(next_of(&format!("{more}<Marker/>")).is_err(), "nothing to continue behind");
        assert!(next_of(&format!("{more}<Marker/>{keys}{keys}")).is_err(), "no order");
    }

    #[test]
    fn answers_that_lack_what_matters_are_errors() {
        let parse = |inner: &str| parse_listing(format!("<ListBucketResult>{inner}</ListBucketResult>").as_bytes());
        assert!(parse("<IsTruncated>maybe</IsTruncated>").is_err());
        assert!(parse("<Contents><Size>1</Size></Contents>").is_err());
        assert!(parse("<Contents><Key>a</Key><Size>1</Size></Contents><Contents><Key>b</Key></Contents>").is_err());
        for size in ["-1", "1e3", "", "18446744073709551616"] {
            let listing = parse(&format!("<Contents><Key>a</Key><Size>{size}</Size></Contents>")).unwrap();
            assert!(listing.next().unwrap_err().contains("size"), "{size}");
        }
    }

    #[test]
    fn truncated_uploads_without_a_marker_are_refused() {
        let next = |inner: &str| {
            let xml = format!("<ListMultipartUploadsResult>{inner}</ListMultipartUploadsResult>");
            parse_uploads(xml.as_bytes()).unwrap().next()
        };
        assert_eq!(next("<NextKeyMarker>k</NextKeyMarker>"), Ok(None));
        let markers = "<NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>u</NextUploadIdMarker>";
        let named = next(&format!("<IsTruncated>true</IsTruncated>{markers}"));
        assert_eq!(named, Ok(Some(("k".to_owned(), "u".to_owned()))));
        assert!(next("<IsTruncated>true</IsTruncated>").is_err());
    }

    #[test]
    fn an_error_where_a_result_was_due_is_seen() {
        let xml = b"\n\n<Error><Code>InternalError</Code><Message>We encountered\nan error</Message></Error>";
        assert!(parse_write(xml, "CompleteMultipartUploadResult").is_err());
        assert_eq!(parse_error(xml).unwrap().code, "InternalError");
    }

    #[test]
    fn an_opened_upload_is_read_under_both_names() {
        let of = |root: &str| parse_opened(format!("<{root}><UploadId>7</UploadId></{root}>").as_bytes());
        assert_eq!(of("InitiateMultipartUploadResult").unwrap().upload.as_deref(), Some("7"));
        assert_eq!(of("InitiateMultipartUpload").unwrap().upload.as_deref(), Some("7"));
        let error = of("Other").unwrap_err().to_string();
        assert_eq!(error, "unreadable answer: <Other> where <InitiateMultipartUploadResult> was expected");
    }

    #[test]
    fn locations_are_read_with_and_without_a_name() {
        let said = |xml: &str| parse_location(xml.as_bytes());
        let named = r#"<?xml version="1.0"?>
            <LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/">eu-west-3</LocationConstraint>"#;
        assert_eq!(said(named).unwrap(), "eu-west-3");
        assert_eq!(said("<LocationConstraint/>").unwrap(), "");
        assert_eq!(said("<LocationConstraint></LocationConstraint>").unwrap(), "");
        let wrapped = |inner: &str| said(&format!("<CreateBucketConfiguration>{inner}</CreateBucketConfiguration>"));
        assert_eq!(wrapped("<LocationConstraint>eu-west-3</LocationConstraint>").unwrap(), "eu-west-3");
        assert_eq!(wrapped("<LocationConstraint></LocationConstraint>").unwrap(), "");
        let error = said("<ListBucketResult/>").unwrap_err().to_string();
        assert_eq!(error, "unreadable answer: <ListBucketResult> where <LocationConstraint> was expected");
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
                xml.push_str("</Key><Size>1</Size></Contents>");
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
