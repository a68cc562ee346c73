//! The JSON that gateways receive and send: programs, requests to the control API, events, tasks, status files.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tradewind_contract::{
    Event, GatewayEntry, GatewayStates, IdentityGrant, JobStatus, Join, KeyRequest, LeaseRequest, OwnerReady,
    ProbeReport, ProbeRequest, Program, Ready, ReceiveReport, ReceiveRequest, Refusal, Routes, SendReport, SendRequest,
    Task, Version,
};
use tradewind_gateway::control::validate::{Setting, check_program};

/// Parses `data` as each document. A parsed document must survive writing and parsing unchanged, and a program must be
/// checked without a panic.
pub(crate) fn run(data: &[u8]) {
    if let Some(program) = survives::<Program>(data) {
        for (identity, plain) in [(None, true), (None, false), (Some(program.node.as_str()), false), (Some("x"), true)]
        {
            for data_port in [false, true] {
                check_program(&program, Setting { identity, plain, data_port }).ok();
            }
        }
    }
    survives::<Routes>(data);
    survives::<LeaseRequest>(data);
    survives::<ProbeRequest>(data);
    survives::<ProbeReport>(data);
    survives::<ReceiveRequest>(data);
    survives::<ReceiveReport>(data);
    survives::<SendRequest>(data);
    survives::<SendReport>(data);
    survives::<Event>(data);
    survives::<JobStatus>(data);
    survives::<Refusal>(data);
    survives::<Ready>(data);
    survives::<Version>(data);
    survives::<Join>(data);
    survives::<KeyRequest>(data);
    survives::<IdentityGrant>(data);
    survives::<OwnerReady>(data);
    survives::<GatewayEntry>(data);
    survives::<GatewayStates>(data);
    survives::<Task>(data);
    tradewind_gateway::task::parse_task(data).ok();
}

fn survives<T: DeserializeOwned + Serialize>(data: &[u8]) -> Option<T> {
    let parsed: T = serde_json::from_slice(data).ok()?;
    let written = serde_json::to_value(&parsed).expect("what was parsed can be written");
    let text = serde_json::to_vec(&parsed).expect("what was parsed can be written");
    let again: T = serde_json::from_slice(&text).expect("what was written parses");
    let again = serde_json::to_value(&again).expect("what was parsed can be written");
    assert!(alike(&written, &again), "{written} became {again}");
    Some(parsed)
}

/// Equal, but for the last digit of a number.
fn alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| alike(value, other)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
        }
        (Value::Number(one), Value::Number(other)) if one.is_f64() => {
            let (one, other) = (one.as_f64().unwrap_or_default(), other.as_f64().unwrap_or_default());
            (one - other).abs() <= one.abs() * 1e-12
        }
        _ => one == other,
    }
}
