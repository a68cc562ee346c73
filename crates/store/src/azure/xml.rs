//! Parses the XML of Azure Blob Storage. Pure: bytes in, values out.

use super::headers::keeps_md5;
use crate::ObjectInfo;
use crate::rest::{parse_http_date, percent_decode};
use crate::xml::{Walk, XmlError, escape_into, walk};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::fmt::Write;

/// `EnumerationResults` of List Blobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) blobs: Vec<ObjectInfo>,
    pub(crate) prefixes: Vec<String>,
    /// Marker of the next page, empty at the end; `None` if the server does not say.
    pub(crate) next: Option<String>,
}

/// Reads a page of List Blobs.
pub(crate) fn parse_listing(xml: &[u8]) -> Result<Listing, XmlError> {
    let mut listing = Listing::default();
    let mut blob = ObjectInfo::default();
    let (mut has_size, mut is_directory, mut has_md5) = (false, false, true);
    walk(xml, "EnumerationResults", |at| {
        match (at.parent, at.name) {
            ("Blob", "Name") => blob.key = name_of(&at)?,
            ("Properties", "ResourceType") => is_directory |= at.text.eq_ignore_ascii_case("directory"),
            ("Metadata", "hdi_isfolder") => is_directory |= at.text.eq_ignore_ascii_case("true"),
            ("Properties", "Content-Length") => (blob.size_bytes, has_size) = (at.number()?, true),
            ("Properties", "Last-Modified") => blob.modified_unix_ms = parse_http_date(at.text).unwrap_or(0),
            ("Properties", "Etag") => blob.etag = Some(at.text.trim_matches('"').to_owned()),
            ("Properties", "Content-MD5") => blob.checksums.md5 = decode_md5(at.text),
            ("Properties", "BlobType") => has_md5 = keeps_md5(at.text),
            ("Properties", "AccessTier") => blob.storage_class = Some(at.text.to_owned()),
            (_, "Blob") if blob.key.is_empty() || !std::mem::take(&mut has_size) => {
                return Err(XmlError("an entry has no name or no length".to_owned()));
            }
            (_, "Blob") => {
                let mut entry = std::mem::take(&mut blob);
                if !std::mem::replace(&mut has_md5, true) {
                    entry.checksums.md5 = None;
                }
                // A directory of a hierarchical namespace, or the empty blob by which Hadoop marks one.
                if !(std::mem::take(&mut is_directory) && entry.size_bytes == 0) {
                    listing.blobs.push(entry);
                }
            }
            ("BlobPrefix", "Name") => listing.prefixes.push(name_of(&at)?),
            // A directory of a hierarchical namespace has its own properties, which belong to no blob.
            (_, "BlobPrefix") => (blob, has_size, is_directory, has_md5) = (ObjectInfo::default(), false, false, true),
            ("EnumerationResults", "NextMarker") => listing.next = Some(at.text.to_owned()),
            _ => {}
        }
        Ok(())
    })?;
    Ok(listing)
}

/// A name. One that XML cannot carry is percent-encoded and marked so.
fn name_of(at: &Walk<'_>) -> Result<String, XmlError> {
    if !at.is_encoded {
        return Ok(at.text.to_owned());
    }
    let undecodable = || XmlError("an encoded name cannot be decoded".to_owned());
    // Here a plus stands for itself.
    percent_decode(&at.text.replace('+', "%2B")).ok_or_else(undecodable)
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
    fn directories_are_no_blobs_and_encoded_names_are_decoded() {
        let entry = |name: &str, properties: &str, more: &str| {
            format!("<Blob>{name}<Properties><Content-Length>{properties}</Properties>{more}</Blob>")
        };
        let page = [
            entry("<Name>d</Name>", "0</Content-Length><ResourceType>directory</ResourceType>", ""),
            entry("<Name>m</Name>", "0</Content-Length>", "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>"),
            entry("<Name>n</Name>", "9</Content-Length>", "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>"),
            "<BlobPrefix><Name Encoded=\"true\">p%EF%BF%BE+/</Name><Properties><Etag>0xD</Etag>\
             <ResourceType>directory</ResourceType><Content-Length>0</Content-Length></Properties></BlobPrefix>"
                .to_owned(),
            entry("<Name Encoded=\"true\">a%20b+c%25</Name>", "1</Content-Length>", ""),
            entry("<Name>a%20b</Name>", "1</Content-Length>", ""),
        ];
        let page = format!("<EnumerationResults><Blobs>{}</Blobs><NextMarker/></EnumerationResults>", page.concat());
        let page = parse_listing(page.as_bytes()).unwrap();
        let keys: Vec<_> = page.blobs.iter().map(|blob| blob.key.as_str()).collect();
        assert_eq!(keys, ["n", "a b+c%", "a%20b"]);
        assert_eq!(page.blobs[1].etag, None, "the properties of a directory are of no blob");
        assert_eq!(page.prefixes, ["p\u{fffe}+/"]);
        let wrong =
            "<EnumerationResults><Blobs><Blob><Name Encoded=\"true\">%FF</Name></Blob></Blobs></EnumerationResults>";
        assert!(parse_listing(wrong.as_bytes()).is_err());
    }

    #[test]
    fn a_blob_that_changes_in_place_has_no_checksum() {
        let entry = |kind: &str| {
            format!(
                "<Blob><Name>x</Name><Properties><Content-MD5>1B2M2Y8AsgTpgAmY7PhCfg==</Content-MD5>\
                 <Content-Length>1</Content-Length>{kind}</Properties></Blob>"
            )
        };
        let typed = |kind: &str| entry(&format!("<BlobType>{kind}</BlobType>"));
        let blobs = [typed("PageBlob"), entry(""), typed("AppendBlob"), typed("BlockBlob")].concat();
        let xml = format!("<EnumerationResults><Blobs>{blobs}</Blobs></EnumerationResults>");
        let page = parse_listing(xml.as_bytes()).unwrap();
        let known: Vec<bool> = page.blobs.iter().map(|blob| blob.checksums.md5.is_some()).collect();
        assert_eq!(known, [false, true, false, true]);
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
