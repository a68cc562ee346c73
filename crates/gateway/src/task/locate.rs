//! `locate`: finds the region in which a store keeps its objects.

use super::error::TaskResult;
use super::streams::Streams;
use crate::retry::RetryPolicy;
use serde::Serialize;
use tradewind_contract::StoreSpec;
use tradewind_store::{Error, StoreLocation};

#[derive(Serialize)]
struct Line<'a> {
    url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Asks each store in turn and prints one line each. A store that does not answer is not a failure: the caller can do
/// without the answer, and the line says why.
pub(super) async fn locate(stores: &[StoreSpec], policy: RetryPolicy, streams: &mut Streams) -> TaskResult {
    // A user waits for the answer and can do without it, so make one attempt.
    let policy = RetryPolicy { tries_max: 1, ..policy };
    for spec in stores {
        let asked = ask(spec, policy).await;
        let mut line = Line { url: &spec.url, provider: None, name: None, error: None };
        match asked {
            Ok(Some(location)) => (line.provider, line.name) = (location.provider, Some(location.name)),
            Ok(None) => {}
            Err(error) => line.error = Some(error.to_string()),
        }
        streams.json_line(&line)?;
    }
    Ok(())
}

async fn ask(spec: &StoreSpec, policy: RetryPolicy) -> Result<Option<StoreLocation>, Error> {
    let store = crate::stores::open(spec)?;
    policy.run("location", store.url(), || store.location()).await
}
