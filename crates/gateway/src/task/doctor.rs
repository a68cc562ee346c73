//! `doctor`: checks this installation and explains how to fix problems.

use super::error::{TaskError, TaskResult};
use super::streams::Streams;
use super::text::one_line;
use crate::failure::outcome_of;
use crate::retry::RetryPolicy;
use serde::Serialize;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tradewind_contract::{Outcome, StoreSpec};
use tradewind_store::{CloudReport, CredentialState, Error, ErrorKind, ListRequest, Store, StoreDescription};

/// Larger clock differences cause a warning.
const CLOCK_DIFFERENCE_S_MAX: u64 = 60;
/// Stores refuse signatures if the clock differs by more than this.
const SIGNATURE_AGE_S_MAX: u64 = 15 * 60;

const CLOCK_HINT: &str = "set this machine's clock, e.g. by NTP: stores refuse requests that are 15 minutes off";
/// Longest wait for the credentials of a cloud, and again for its endpoint: a user waits for the answer.
const CLOUD_TIMEOUT: Duration = Duration::from_secs(4);

const REACH_HINT: &str = "check the endpoint, the network, and HTTPS_PROXY";
const CREDENTIALS_HINT: &str = "log in with the cloud's own tool, name a profile with --src-profile or --dst-profile, \
     or pass --src-no-sign for a public bucket";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    /// Nothing is configured, which is not a fault.
    Absent,
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

/// Checks clouds, then stores, and prints one line per fact. Ends with the outcome of the first store that fails.
pub(super) async fn doctor(
    clouds: &[StoreSpec],
    stores: &[StoreSpec],
    json: bool,
    policy: RetryPolicy,
    streams: &mut Streams,
) -> TaskResult {
    look_at_clouds(clouds, json, streams).await?;
    // A user waits for the answer: make one attempt, so that a wrong endpoint is reported at once.
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
            Err(TaskError::ended(outcome, "not all stores can be used", None))
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
    let url = store.url();
    for line in facts(url, store.describe().await, listed.as_ref().err()) {
        print(&line, json, streams)?;
    }
    match listed {
        Ok(_) => {
            let message = format!("can be listed; one request took {latency_ms} ms");
            print(&Line { level: Level::Ok, url, check: "list", message, hint: None }, json, streams)?;
            Ok(None)
        }
        // A user who may write but not list can still copy single objects.
        Err(error) if error.kind == ErrorKind::Forbidden => {
            let (message, hint) = (error.to_string(), Some("copying single objects may still work"));
            print(&Line { level: Level::Fail, url, check: "list", message, hint }, json, streams)?;
            Ok(Some(error))
        }
        // The line about credentials says how to fix it; the error's own hint would point here.
        Err(error) if error.kind == ErrorKind::Unauthenticated => {
            let line = Line { level: Level::Fail, url, check: "list", message: error.to_string(), hint: None };
            print(&line, json, streams)?;
            Ok(Some(error))
        }
        Err(error) => {
            print_failure(url, "list", &error, json, streams)?;
            Ok(Some(error))
        }
    }
}

/// The facts that the store reports about its access, judged by the result of trying it.
fn facts<'a>(url: &'a str, description: StoreDescription, failure: Option<&Error>) -> Vec<Line<'a>> {
    let line = |level, check, message, hint| Line { level, url, check, message, hint };
    let is_reached = failure.is_none_or(has_answered);
    let mut lines: Vec<Line<'a>> = Vec::new();
    // The line about the listing says why the endpoint does not answer.
    lines.extend(description.endpoint.map(|endpoint| match is_reached {
        true => line(Level::Ok, "endpoint", endpoint, None),
        false => line(Level::Fail, "endpoint", format!("{endpoint}: no valid answer"), None),
    }));
    lines.extend(description.region.map(|region| line(Level::Ok, "region", region, None)));
    let is_off = description.clock_ahead_s.is_some_and(|ahead_s| ahead_s.unsigned_abs() > SIGNATURE_AGE_S_MAX);
    if let Some(source) = description.credentials {
        let is_refused = failure.is_some_and(|error| error.kind == ErrorKind::Unauthenticated);
        lines.push(match is_refused {
            // The line about the clock says why.
            true if is_off => line(Level::Warn, "credentials", format!("{source}: cannot be checked"), None),
            true => {
                let message = format!("{source}: missing, or rejected by the store");
                line(Level::Fail, "credentials", message, Some(CREDENTIALS_HINT))
            }
            false if !is_reached => line(Level::Warn, "credentials", format!("{source}: cannot be checked"), None),
            false => line(Level::Ok, "credentials", source, None),
        });
    }
    if let Some(ahead_s) = description.clock_ahead_s {
        let difference_s = ahead_s.unsigned_abs();
        let message = clock_words(ahead_s);
        lines.push(match failure {
            Some(_) if is_off => line(Level::Fail, "clock", message, Some(CLOCK_HINT)),
            _ if difference_s > CLOCK_DIFFERENCE_S_MAX => line(Level::Warn, "clock", message, Some(CLOCK_HINT)),
            _ => line(Level::Ok, "clock", message, None),
        });
    }
    lines
}

/// Returns whether the store itself has sent an answer that can be understood.
fn has_answered(error: &Error) -> bool {
    use ErrorKind::{Configuration, Connection, Protocol, Timeout};
    !matches!(error.kind, Configuration | Connection | Protocol | Timeout)
}

fn clock_words(ahead_s: i64) -> String {
    let difference_s = ahead_s.unsigned_abs();
    match ahead_s {
        0 => "this machine's clock agrees with the store's to the second".to_owned(),
        1.. => format!("this machine's clock is {difference_s} s ahead of the store's"),
        _ => format!("this machine's clock is {difference_s} s behind the store's"),
    }
}

/// Prints what this machine has for each cloud: credentials, and the clock difference if the cloud is used.
async fn look_at_clouds(clouds: &[StoreSpec], json: bool, streams: &mut Streams) -> TaskResult {
    let looking = clouds.iter().map(|spec| async move {
        let config = crate::stores::config_of(spec);
        (spec, tradewind_store::look_at_cloud(&config, CLOUD_TIMEOUT).await)
    });
    for (spec, report) in futures::future::join_all(looking).await {
        match report {
            Ok(report) => {
                for line in cloud_lines(&spec.url, report) {
                    print(&line, json, streams)?;
                }
            }
            Err(error) => print_failure(&spec.url, "credentials", &error, json, streams)?,
        }
    }
    Ok(())
}

fn cloud_lines(url: &str, report: CloudReport) -> Vec<Line<'_>> {
    let line = |level, check, message, hint| Line { level, url, check, message, hint };
    let source = &report.source;
    let mut lines = vec![match report.credentials {
        CredentialState::Found => line(Level::Ok, "credentials", source.clone(), None),
        CredentialState::Absent(_) => line(Level::Absent, "credentials", "none found".to_owned(), login_hint(url)),
        CredentialState::Broken(why) => {
            line(Level::Fail, "credentials", format!("{source}: no credentials: {why}"), login_hint(url))
        }
    }];
    if report.endpoint_given {
        lines.push(line(Level::Ok, "endpoint", report.endpoint.clone(), None));
    }
    lines.extend(report.clock_ahead_s.map(|clock| match clock {
        Ok(ahead_s) if ahead_s.unsigned_abs() > SIGNATURE_AGE_S_MAX => {
            line(Level::Fail, "clock", clock_words(ahead_s), Some(CLOCK_HINT))
        }
        Ok(ahead_s) if ahead_s.unsigned_abs() > CLOCK_DIFFERENCE_S_MAX => {
            line(Level::Warn, "clock", clock_words(ahead_s), Some(CLOCK_HINT))
        }
        Ok(ahead_s) => line(Level::Ok, "clock", clock_words(ahead_s), None),
        Err(error) => {
            let level = if report.endpoint_given { Level::Fail } else { Level::Warn };
            line(level, "clock", format!("not compared: {error}"), Some(REACH_HINT))
        }
    }));
    lines
}

/// How to get credentials for a cloud.
fn login_hint(url: &str) -> Option<&'static str> {
    match url {
        "s3://" => Some("aws configure, aws sso login, or AWS_PROFILE; --no-sign for a public bucket"),
        "gs://" => Some("gcloud auth application-default login, or GOOGLE_APPLICATION_CREDENTIALS=FILE"),
        "az://" => Some("az login, or AZURE_STORAGE_ACCOUNT_NAME with a key or SAS in AZURE_*"),
        _ => None,
    }
}

fn print_failure(url: &str, check: &'static str, error: &Error, json: bool, streams: &mut Streams) -> io::Result<()> {
    // The hint of a failed connection would recommend this very command.
    let hint = if error.kind == ErrorKind::Connection { Some(REACH_HINT) } else { error.hint() };
    let line = Line { level: Level::Fail, url, check, message: error.to_string(), hint };
    print(&line, json, streams)
}

fn print(line: &Line<'_>, json: bool, streams: &mut Streams) -> io::Result<()> {
    if json {
        return streams.json_line(line);
    }
    let word = match line.level {
        Level::Ok => "ok",
        Level::Absent => "none",
        Level::Warn => "warn",
        Level::Fail => "fail",
    };
    writeln!(streams.data, "{word:<5} {} {}: {}", one_line(line.url), line.check, one_line(&line.message))?;
    match line.hint {
        Some(hint) => writeln!(streams.data, "      hint: {hint}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(description: StoreDescription, kind: Option<ErrorKind>) -> Vec<(&'static str, Level, bool)> {
        let failure = kind.map(|kind| Error::new(kind, "list", "s3://b", "refused"));
        let lines = facts("s3://b", description, failure.as_ref());
        lines.iter().map(|line| (line.check, line.level, line.hint.is_some())).collect()
    }

    fn described(clock_ahead_s: i64) -> StoreDescription {
        StoreDescription {
            endpoint: Some("http://h/b".to_owned()),
            region: None,
            credentials: Some("environment".to_owned()),
            clock_ahead_s: Some(clock_ahead_s),
        }
    }

    #[test]
    fn unknown_facts_have_no_line() {
        assert!(facts("s3://b", StoreDescription::default(), None).is_empty());
        let told = levels(described(0), None);
        assert_eq!(
            told,
            [("endpoint", Level::Ok, false), ("credentials", Level::Ok, false), ("clock", Level::Ok, false)]
        );
    }

    #[test]
    fn refused_credentials_fail_with_a_hint() {
        let told = levels(described(0), Some(ErrorKind::Unauthenticated));
        assert_eq!(told[1..], [("credentials", Level::Fail, true), ("clock", Level::Ok, false)]);
    }

    #[test]
    fn nothing_is_called_right_that_an_unreachable_store_has_not_confirmed() {
        for kind in [ErrorKind::Connection, ErrorKind::Timeout, ErrorKind::Configuration, ErrorKind::Protocol] {
            let told = levels(StoreDescription { clock_ahead_s: None, ..described(0) }, Some(kind));
            assert_eq!(told, [("endpoint", Level::Fail, false), ("credentials", Level::Warn, false)], "{kind:?}");
        }
        for kind in [ErrorKind::Forbidden, ErrorKind::BucketNotFound, ErrorKind::Server] {
            let told = levels(described(0), Some(kind));
            assert_eq!(told[..2], [("endpoint", Level::Ok, false), ("credentials", Level::Ok, false)], "{kind:?}");
        }
    }

    #[test]
    fn missing_credentials_are_no_fault_but_broken_ones_are() {
        let told = |credentials, clock_ahead_s| {
            let endpoint = "https://h".to_owned();
            let source = "profile work".to_owned();
            let report = CloudReport { endpoint, endpoint_given: true, source, credentials, clock_ahead_s };
            let lines = cloud_lines("s3://", report);
            lines.iter().map(|line| (line.check, line.level, line.hint.is_some())).collect::<Vec<_>>()
        };
        let absent = CredentialState::Absent("no metadata".to_owned());
        let endpoint = ("endpoint", Level::Ok, false);
        assert_eq!(told(absent, None), [("credentials", Level::Absent, true), endpoint]);
        let broken = CredentialState::Broken("no such profile".to_owned());
        assert_eq!(told(broken, None)[0], ("credentials", Level::Fail, true));
        let refused = Error::new(ErrorKind::Connection, "ask", "http://h", "refused");
        let found = told(CredentialState::Found, Some(Err(refused)));
        assert_eq!(found, [("credentials", Level::Ok, false), endpoint, ("clock", Level::Fail, true)]);
        let clock = |ahead_s| told(CredentialState::Found, Some(Ok(ahead_s)))[2].1;
        assert_eq!([clock(3), clock(-90), clock(-1000)], [Level::Ok, Level::Warn, Level::Fail]);
    }

    #[test]
    fn a_wrong_clock_warns_and_fails_when_it_explains_the_failure() {
        assert_eq!(levels(described(60), None)[2], ("clock", Level::Ok, false));
        assert_eq!(levels(described(-61), None)[2], ("clock", Level::Warn, true));
        assert_eq!(levels(described(901), None)[2], ("clock", Level::Warn, true));
        let told = levels(described(-901), Some(ErrorKind::Unauthenticated));
        assert_eq!(told[1..], [("credentials", Level::Warn, false), ("clock", Level::Fail, true)]);
    }

    #[test]
    fn a_clock_difference_is_reported_with_its_direction() {
        let message = |ahead_s| facts("s3://b", described(ahead_s), None).pop().map(|line| line.message);
        assert_eq!(message(0).as_deref(), Some("this machine's clock agrees with the store's to the second"));
        assert_eq!(message(3).as_deref(), Some("this machine's clock is 3 s ahead of the store's"));
        assert_eq!(message(-7).as_deref(), Some("this machine's clock is 7 s behind the store's"));
    }
}
