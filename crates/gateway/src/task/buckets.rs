//! `ls` of an account, `mb` and `rb`: buckets and containers.

use super::list::{Form, utc};
use super::rm::Rm;
use super::text::escaped;
use super::{Streams, TaskError, TaskResult};
use crate::retry::RetryPolicy;
use serde::Serialize;
use std::io::{self, Write};
use std::sync::Arc;
use tradewind_contract::{ObjectFilter, Outcome};
use tradewind_store::{
    Account, BucketInfo, Error, ErrorKind, ListRequest, Store, StoreConfig, make_bucket, remove_bucket,
};

#[derive(Serialize)]
struct Line<'a> {
    bucket: &'a str,
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<&'a str>,
}

/// Lists the buckets of an account, in the server's order.
pub(super) async fn list(account: &Account, form: Form, policy: RetryPolicy, streams: &mut Streams) -> TaskResult {
    let (mut continuation, mut printed) = (None::<String>, 0_u64);
    loop {
        let page = policy.run("list", account.url(), || account.list(continuation.as_deref())).await?;
        for bucket in &page.buckets {
            print(bucket, account.url(), form, streams)?;
            printed += 1;
        }
        continuation = page.continuation;
        if continuation.is_none() {
            break;
        }
    }
    if printed == 0 {
        streams.say(&format!("note: {} has no buckets that these credentials may list", account.url()));
    }
    Ok(())
}

fn print(bucket: &BucketInfo, account: &str, form: Form, streams: &mut Streams) -> io::Result<()> {
    let created = bucket.created_unix_ms.map(utc);
    let name = bucket.name.as_str();
    match form {
        Form::Name => writeln!(streams.data, "{}", escaped(name)),
        Form::Long { .. } => {
            let (created, region) = (created.as_deref().unwrap_or("-"), bucket.region.as_deref().unwrap_or("-"));
            writeln!(streams.data, "{created:>20} {region:<16} {}", escaped(name))
        }
        Form::Json => {
            let root = if account.ends_with("//") {
                account.to_owned()
            } else {
                format!("{}/", account.trim_end_matches('/'))
            };
            let (url, region) = (format!("{root}{name}"), bucket.region.as_deref());
            streams.json_line(&Line { bucket: name, url, created, region })
        }
    }
}

/// Makes a bucket.
pub(super) async fn make(
    config: &StoreConfig,
    project: Option<&str>,
    policy: RetryPolicy,
    streams: &mut Streams,
) -> TaskResult {
    policy.run("make", &config.url, || make_bucket(config, project)).await?;
    Ok(writeln!(streams.data, "made {}", config.url)?)
}

/// Removes a bucket that is empty; with `force` deletes its objects first.
pub(super) async fn remove(
    config: &StoreConfig,
    store: Arc<dyn Store>,
    force: bool,
    json: bool,
    policy: RetryPolicy,
    streams: &mut Streams,
) -> TaskResult {
    if force {
        let rm = Rm { store, dry_run: false, json, allow_empty: true, policy };
        rm.run("", true, &ObjectFilter::default(), streams).await?;
    } else {
        require_empty(store.as_ref(), policy).await?;
    }
    policy.run("remove", &config.url, || remove_bucket(config)).await.map_err(|error| not_removed(error, force))?;
    if !json {
        writeln!(streams.data, "removed {}", config.url)?;
    }
    Ok(())
}

/// Fails if the bucket holds an object: Azure removes a container with all that is in it.
async fn require_empty(store: &dyn Store, policy: RetryPolicy) -> TaskResult {
    let mut request = ListRequest { max_keys: Some(1), ..ListRequest::default() };
    loop {
        let page = policy.run("list", store.url(), || store.list(&request)).await?;
        if !page.objects.is_empty() || !page.refused.is_empty() {
            let message = format!("{} is not empty", store.url());
            return Err(TaskError::ended(Outcome::Failed, message, Some("--force deletes its objects first")));
        }
        request.continuation = page.continuation;
        if request.continuation.is_none() {
            return Ok(());
        }
    }
}

fn not_removed(error: Error, force: bool) -> TaskError {
    if force && error.kind == ErrorKind::Occupied {
        let hint = "old versions, unfinished uploads or new objects remain in it";
        return TaskError::ended(Outcome::Failed, error.to_string(), Some(hint));
    }
    error.into()
}
