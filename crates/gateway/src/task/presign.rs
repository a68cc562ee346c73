//! `presign`: an address that reads an object without credentials.

use super::error::TaskResult;
use super::list::utc;
use super::streams::Streams;
use serde::Serialize;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};
use tradewind_store::StoreConfig;

#[derive(Serialize)]
struct Line<'a> {
    url: &'a str,
    expires: String,
}

/// Prints the address. A bearer of it needs no credentials, so it is printed to stdout only.
pub(super) async fn presign(
    config: &StoreConfig,
    key: &str,
    expires_s: u32,
    json: bool,
    streams: &mut Streams,
) -> TaskResult {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    let url = tradewind_store::presign(config, key, expires_s).await?;
    match json {
        true => streams.json_line(&Line { url: &url, expires: utc(now_ms + i64::from(expires_s) * 1000) })?,
        false => writeln!(streams.data, "{url}")?,
    }
    Ok(())
}
