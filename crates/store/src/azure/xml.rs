//! The XML of Azure Blob Storage. Pure: bytes in, values out.

use crate::ObjectInfo;
use crate::rest::parse_http_date;
use crate::xml::{XmlError, escape_into, walk};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::fmt::Write;

/// `EnumerationResults` of List Blobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) blobs: Vec<ObjectInfo>,
    pub(crate) prefixes: Vec<String>,
    /// Marker of the next page, empty at the end; `None` where the server does not say.
    pub(crate) next: Option<String>,
}

/// Reads a page of List Blobs.
pub(crate) fn parse_listing(xml: &[u8]) -> Result<Listing, XmlError> {
    let mut listing = Listing::default();
    let mut blob = ObjectInfo::default();
    let mut has_size = false;
    walk(xml, "EnumerationResults", |at| {
        match (at.parent, at.name) {
            ("Blob", "Name") => at.text.clone_into(&mut blob.key),
            ("Properties", "Content-Length") => (blob.size_bytes, has_size) = (at.number()?, true),
            ("Properties", "Last-Modified") => blob.modified_unix_ms = parse_http_date(at.text).unwrap_or(0),
            ("Properties", "Etag") => blob.etag = Some(at.text.trim_matches('"').to_owned()),
            ("Properties", "Content-MD5") => blob.checksums.md5 = decode_md5(at.text),
            ("Properties", "AccessTier") => blob.storage_class = Some(at.text.to_owned()),
            (_, "Blob") if blob.key.is_empty() || !std::mem::take(&mut has_size) => {
                return Err(XmlError("an entry has no name or no length".to_owned()));
            }
            (_, "Blob") => listing.blobs.push(std::mem::take(&mut blob)),
            ("BlobPrefix", "Name") => listing.prefixes.push(at.text.to_owned()),
            ("EnumerationResults", "NextMarker") => listing.next = Some(at.text.to_owned()),
            _ => {}
        }
        Ok(())
    })?;
    Ok(listing)
}

/// Names of the uncommitted blocks of Get Block List, decoded.
pub(crate) fn parse_uncommitted(xml: &[u8]) -> Result<Vec<String>, XmlError> {
    let mut names = Vec::new();
    walk(xml, "BlockList", |at| {
        if (at.parent, at.name) == ("Block", "Name")
            && let Some(name) = BASE64_STANDARD.decode(at.text).ok().and_then(|name| String::from_utf8(name).ok())
        {
            names.push(name);
        }
        Ok(())
    })?;
    Ok(names)
}

/// The body of Put Block List.
pub(crate) fn block_list<'a>(ids: impl Iterator<Item = &'a str>) -> String {
    let mut body = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
    for id in ids {
        let _ = write!(body, "<Latest>");
        escape_into(&mut body, id);
        let _ = write!(body, "</Latest>");
    }
    body.push_str("</BlockList>");
    body
}

pub(crate) fn decode_md5(text: &str) -> Option<[u8; 16]> {
    BASE64_STANDARD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_a_page() {
        let xml = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs><Blob><Name>a &amp; b</Name>\
            <Properties><Last-Modified>Mon, 06 May 2024 07:08:09 GMT</Last-Modified><Etag>0x8D</Etag>\
            <Content-Length>7</Content-Length><Content-MD5>1B2M2Y8AsgTpgAmY7PhCfg==</Content-MD5>\
            <AccessTier>Hot</AccessTier></Properties></Blob><BlobPrefix><Name>d/</Name></BlobPrefix></Blobs>\
            <NextMarker>m</NextMarker></EnumerationResults>";
        let page = parse_listing(xml.as_bytes()).unwrap();
        assert_eq!(page.next.as_deref(), Some("m"));
        assert_eq!(page.prefixes, ["d/"]);
        assert_eq!(page.blobs[0].key, "a & b");
        assert_eq!((page.blobs[0].size_bytes, page.blobs[0].modified_unix_ms), (7, 1_714_979_289_000));
        assert_eq!(page.blobs[0].checksums.md5.map(|md5| md5[0]), Some(0xd4));
    }

    #[test]
    fn a_page_without_what_matters_is_seen() {
        let parse = |inner: &str| parse_listing(format!("<EnumerationResults>{inner}</EnumerationResults>").as_bytes());
        assert_eq!(parse("<Blobs/><NextMarker/>").unwrap().next.as_deref(), Some(""));
        assert_eq!(parse("<Blobs/>").unwrap().next, None);
        assert!(parse("<Blobs><Blob><Name>a</Name></Blob></Blobs>").is_err());
        assert!(
            parse("<Blobs><Blob><Properties><Content-Length>1</Content-Length></Properties></Blob></Blobs>").is_err()
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = (parse_listing(&bytes), parse_uncommitted(&bytes));
        }
    }
}
