//! `stat`: what a store states about one object.

use super::error::{TaskError, TaskResult};
use super::folders::is_folder;
use super::list::utc;
use super::streams::Streams;
use super::text::{escaped, shown_place};
use crate::failure::{human_bytes, object_url};
use crate::retry::RetryPolicy;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use tradewind_contract::Outcome;
use tradewind_store::{Checksums, ErrorKind, ObjectInfo, Store};

#[derive(Serialize)]
struct Facts<'a> {
    url: &'a str,
    size_bytes: u64,
    modified: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_class: Option<&'a str>,
    /// In Base64, as in the headers of the clouds.
    checksums: BTreeMap<&'static str, String>,
    #[serde(flatten)]
    headers: BTreeMap<&'static str, &'a str>,
    metadata: &'a BTreeMap<String, String>,
}

impl<'a> Facts<'a> {
    fn new(url: &'a str, info: &'a ObjectInfo) -> Self {
        let attributes = &info.attributes;
        let headers = [
            ("content_type", &attributes.content_type),
            ("content_encoding", &attributes.content_encoding),
            ("content_language", &attributes.content_language),
            ("content_disposition", &attributes.content_disposition),
            ("cache_control", &attributes.cache_control),
        ];
        Self {
            url,
            size_bytes: info.size_bytes,
            modified: utc(info.modified_unix_ms),
            etag: info.etag.as_deref(),
            version: info.version.as_deref(),
            storage_class: info.storage_class.as_deref(),
            checksums: checksums(&info.checksums),
            headers: headers.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))).collect(),
            metadata: &attributes.metadata,
        }
    }

    fn print(&self, streams: &mut Streams) -> io::Result<()> {
        let size = match self.size_bytes {
            bytes @ ..1000 => format!("{bytes} B"),
            bytes => format!("{bytes} B ({})", human_bytes(bytes)),
        };
        writeln!(streams.data, "{:<20} {}", "url", shown_place(self.url))?;
        let mut line =
            |name: &str, value: &str| writeln!(streams.data, "{:<20} {}", name.replace('_', " "), escaped(value));
        line("size", &size)?;
        line("modified", &self.modified)?;
        let named = [("etag", self.etag), ("version", self.version), ("storage_class", self.storage_class)];
        for (name, value) in named.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            line(name, value)?;
        }
        for (name, value) in &self.checksums {
            line(name, value)?;
        }
        for (name, value) in &self.headers {
            line(name, value)?;
        }
        for (name, value) in self.metadata {
            line("metadata", &format!("{name}={value}"))?;
        }
        Ok(())
    }
}

/// The checksums of the whole object that the store vouches for.
fn checksums(stated: &Checksums) -> BTreeMap<&'static str, String> {
    let encode = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
    [
        ("crc64nvme", stated.crc64nvme.map(|sum| encode(&sum.to_be_bytes()))),
        ("crc32c", stated.crc32c.map(|sum| encode(&sum.to_be_bytes()))),
        ("md5", stated.md5.map(|sum| encode(&sum))),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

/// Prints the facts about one object.
pub(super) async fn stat(
    store: Arc<dyn Store>,
    key: &str,
    json: bool,
    policy: RetryPolicy,
    streams: &mut Streams,
) -> TaskResult {
    let url = object_url(store.as_ref(), key);
    let info = match policy.run("head", store.url(), || store.head(key)).await {
        Err(error) if error.kind == ErrorKind::NotFound && is_folder(&store, key, policy).await => {
            let hint = "it is a directory: see `tradewind ls` and `tradewind du`";
            return Err(TaskError::ended(
                Outcome::SourceNotFound,
                format!("no object has this name: {url}"),
                Some(hint),
            ));
        }
        answer => answer?,
    };
    let facts = Facts::new(&url, &info);
    match json {
        true => streams.json_line(&facts)?,
        false => facts.print(streams)?,
    }
    Ok(())
}
