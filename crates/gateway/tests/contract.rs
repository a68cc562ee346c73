//! The contract between Python and the gateways: the schema file matches the types, and the examples
//! that both suites parse have no field that a type lacks.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tradewind_contract::{
    Event, GatewayEntry, GatewayStates, GatewayStores, IdentityGrant, JobStatus, Join, JoinAgain, KeyRequest,
    LeaseRequest, OwnerReady, ProbeReport, ProbeRequest, Program, Ready, ReceiveReport, ReceiveRequest, Refusal,
    Routes, SendReport, SendRequest, SplitProgram, SplitStatus, StoreCredentials, Task, Version,
};
use tradewind_gateway::control::validate::{Setting, check_program};
use tradewind_gateway::schema;

fn contract(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contract").join(path)
}

fn examples() -> Vec<(String, String)> {
    let files = std::fs::read_dir(contract("examples")).unwrap().map(|entry| entry.unwrap().path());
    let named = files.map(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read_to_string(path).unwrap())
    });
    named.collect()
}

/// Parses an example as `T` and checks that each of its fields is still there when it is written again: a field that
/// `T` does not know would be lost on the way.
fn survives<T: DeserializeOwned + Serialize>(name: &str, text: &str) -> T {
    let parsed: T = serde_json::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let written = serde_json::to_value(&parsed).unwrap();
    assert_contains(&written, &serde_json::from_str(text).unwrap(), name);
    parsed
}

fn assert_contains(whole: &Value, part: &Value, place: &str) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (name, value) in part {
                let place = format!("{place}.{name}");
                assert_contains(whole.get(name).unwrap_or_else(|| panic!("{place} is lost")), value, &place);
            }
        }
        (Value::Array(whole), Value::Array(part)) => {
            assert_eq!(whole.len(), part.len(), "{place}");
            whole.iter().zip(part).for_each(|(whole, part)| assert_contains(whole, part, place));
        }
        _ => assert_eq!(whole, part, "{place}"),
    }
}

#[test]
fn the_schema_in_the_tree_is_that_of_the_types() {
    let file = std::fs::read_to_string(contract("gateway-v1.schema.json")).unwrap();
    assert!(file == schema::text(), "run: tradewind-gateway schema > contract/gateway-v1.schema.json");
}

#[test]
fn every_reference_in_the_schema_leads_somewhere() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let document = schema::document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.contains("#/$defs/Program"), "{found:?}");
    for reference in found {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
}

#[test]
fn examples_are_understood_whole() {
    for (name, text) in examples() {
        match name.as_str() {
            _ if name.starts_with("program-") => drop(survives::<Program>(&name, &text)),
            _ if name.starts_with("event-") => drop(survives::<Event>(&name, &text)),
            _ if name.starts_with("job-status-") => drop(survives::<JobStatus>(&name, &text)),
            _ if name.starts_with("task-") => drop(survives::<Task>(&name, &text)),
            _ if name.starts_with("ready-") => drop(survives::<Ready>(&name, &text)),
            _ if name.starts_with("join-") => drop(survives::<Join>(&name, &text)),
            "key-request" => drop(survives::<KeyRequest>(&name, &text)),
            "identity-grant" => drop(survives::<IdentityGrant>(&name, &text)),
            "owner-ready" => drop(survives::<OwnerReady>(&name, &text)),
            "gateway-entry" => drop(survives::<GatewayEntry>(&name, &text)),
            "gateway-states" => drop(survives::<GatewayStates>(&name, &text)),
            "gateway-stores" => drop(survives::<GatewayStores>(&name, &text)),
            "store-credentials" => drop(survives::<StoreCredentials>(&name, &text)),
            "routes" => drop(survives::<Routes>(&name, &text)),
            "split-program" => drop(survives::<SplitProgram>(&name, &text)),
            "split-status" => drop(survives::<SplitStatus>(&name, &text)),
            "version" => drop(survives::<Version>(&name, &text)),
            "receive-request" => drop(survives::<ReceiveRequest>(&name, &text)),
            "receive-report" => drop(survives::<ReceiveReport>(&name, &text)),
            "send-request" => drop(survives::<SendRequest>(&name, &text)),
            "send-report" => drop(survives::<SendReport>(&name, &text)),
            "refusal" => drop(survives::<Refusal>(&name, &text)),
            "again-request" => drop(survives::<JoinAgain>(&name, &text)),
            "lease-request" => drop(survives::<LeaseRequest>(&name, &text)),
            "probe-request" => drop(survives::<ProbeRequest>(&name, &text)),
            "probe-report" => drop(survives::<ProbeReport>(&name, &text)),
            _ => panic!("{name}: no document of that name"),
        }
    }
}

#[test]
fn example_programs_would_be_started() {
    let programs: Vec<_> = examples().into_iter().filter(|(name, _)| name.starts_with("program-")).collect();
    assert!(programs.len() >= 5);
    for (name, text) in programs {
        let program: Program = serde_json::from_str(&text).unwrap();
        let setting = Setting { identity: Some(&program.node), plain: false, data_port: program.node != "lead" };
        assert_eq!(check_program(&program, setting), Ok(()), "{name}");
    }
}

/// The value that `tag` has in each example whose name begins with `prefix`.
fn tags(prefix: &str, tag: &str) -> BTreeSet<String> {
    let matching = examples().into_iter().filter(|(name, _)| name.starts_with(prefix));
    matching.map(|(_, text)| serde_json::from_str::<Value>(&text).unwrap()[tag].as_str().unwrap().to_owned()).collect()
}

#[test]
fn there_is_an_example_of_each_event_and_each_task() {
    for (definition, prefix, tag) in [("Event", "event-", "event"), ("Task", "task-", "task")] {
        let document = schema::document();
        let kinds = document["$defs"][definition]["oneOf"].as_array().unwrap();
        let known: BTreeSet<_> =
            kinds.iter().map(|kind| kind["properties"][tag]["const"].as_str().unwrap().to_owned()).collect();
        assert!(known.len() >= 6, "{known:?}");
        assert_eq!(tags(prefix, tag), known);
    }
}

#[test]
fn unknown_fields_are_refused() {
    let (_, text) = examples().into_iter().find(|(name, _)| name == "program-local-cp").unwrap();
    let wrong = text.replacen("\"job_id\"", "\"jobid\": 1, \"job_id\"", 1);
    let error = serde_json::from_str::<Program>(&wrong).unwrap_err().to_string();
    assert!(error.contains("unknown field `jobid`"), "{error}");
}

#[test]
fn debug_output_never_shows_the_seal_key() {
    let (_, text) = examples().into_iter().find(|(name, _)| name == "program-source").unwrap();
    let program: Program = serde_json::from_str(&text).unwrap();
    let key = program.seal_key_hex.clone().unwrap();
    let shown = format!("{program:?} {program:#?}");
    assert!(!shown.contains(&key) && shown.contains("redacted"), "{shown}");
}
