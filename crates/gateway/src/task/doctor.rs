//! `doctor`: what works here, and how to mend what does not.

use super::{Streams, TaskError, TaskResult};
use crate::lead::failure::outcome_of;
use crate::retry::RetryPolicy;
use serde::Serialize;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;
use tradewind_contract::{Outcome, StoreSpec};
use tradewind_store::{Error, ErrorKind, ListRequest, Store};

/// A clock that is further off than this is warned of; at 15 minutes stores refuse requests.
const CLOCK_DIFFERENCE_MS_MAX: i64 = 60_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    Warn,
    Fail,
}

#[derive(Serialize)]
struct Line<'a> {
    level: Level,
    url: &'a str,
    check: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

/// Tries each store and prints a line for each thing looked at. Ends with the outcome of the first store that fails.
pub(super) async fn doctor(stores: &[StoreSpec], json: bool, policy: RetryPolicy, streams: &mut Streams) -> TaskResult {
    // Someone waits for the answer: one try, so that a wrong endpoint does not take minutes to be told.
    let policy = RetryPolicy { tries_max: 1, ..policy };
    let mut first_failure = None;
    for spec in stores {
        let examined = match crate::stores::open(spec) {
            Ok(store) => examine(store, json, policy, streams).await?,
            Err(error) => {
                print_failure(&spec.url, "configuration", &error, json, streams)?;
                Some(error)
            }
        };
        first_failure = first_failure.or(examined);
    }
    match first_failure {
        None => Ok(()),
        Some(error) => {
            let outcome = outcome_of(&error);
            let outcome = if outcome == Outcome::Mismatch { Outcome::Failed } else { outcome };
            Err(TaskError::ended(outcome, "not every store can be used", None))
        }
    }
}

async fn examine(
    store: Arc<dyn Store>,
    json: bool,
    policy: RetryPolicy,
    streams: &mut Streams,
) -> Result<Option<Error>, TaskError> {
    let request = ListRequest { max_keys: Some(1), ..ListRequest::default() };
    let begun = Instant::now();
    let listed = policy.run("list", store.url(), || store.list(&request)).await;
    let latency_ms = begun.elapsed().as_millis();
    let description = store.describe().await;
    let url = store.url();
    let facts =
        [("endpoint", description.endpoint), ("region", description.region), ("credentials", description.credentials)];
    for (check, fact) in facts {
        if let Some(message) = fact {
            print(&Line { level: Level::Ok, url, check, message, hint: None }, json, streams)?;
        }
    }
    if let Some(ahead_ms) = description.clock_ahead_ms {
        let is_off = ahead_ms.abs() > CLOCK_DIFFERENCE_MS_MAX;
        let direction = if ahead_ms >= 0 { "ahead of" } else { "behind" };
        let message = format!("this machine's clock is {} ms {direction} the store's", ahead_ms.abs());
        let (level, hint) = if is_off { (Level::Warn, Some("set the clock, e.g. by NTP")) } else { (Level::Ok, None) };
        print(&Line { level, url, check: "clock", message, hint }, json, streams)?;
    }
    match listed {
        Ok(_) => {
            let message = format!("can be listed; one request took {latency_ms} ms");
            print(&Line { level: Level::Ok, url, check: "list", message, hint: None }, json, streams)?;
            Ok(None)
        }
        // Who may write and not list can still copy single objects.
        Err(error) if error.kind == ErrorKind::Forbidden => {
            let (message, hint) = (error.to_string(), Some("copying single objects may still work"));
            print(&Line { level: Level::Warn, url, check: "list", message, hint }, json, streams)?;
            Ok(Some(error))
        }
        Err(error) => {
            print_failure(url, "list", &error, json, streams)?;
            Ok(Some(error))
        }
    }
}

fn print_failure(url: &str, check: &'static str, error: &Error, json: bool, streams: &mut Streams) -> io::Result<()> {
    let line = Line { level: Level::Fail, url, check, message: error.to_string(), hint: error.hint() };
    print(&line, json, streams)
}

fn print(line: &Line<'_>, json: bool, streams: &mut Streams) -> io::Result<()> {
    if json {
        return streams.json_line(line);
    }
    let word = match line.level {
        Level::Ok => "ok",
        Level::Warn => "warn",
        Level::Fail => "fail",
    };
    writeln!(streams.data, "{word:<5} {} {}: {}", line.url, line.check, line.message)?;
    match line.hint {
        Some(hint) => writeln!(streams.data, "      hint: {hint}"),
        None => Ok(()),
    }
}
