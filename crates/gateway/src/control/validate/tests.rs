use super::*;
use serde_json::{Value, json};

const LOCAL: Setting<'static> = Setting { identity: None, plain: false, data_port: false };

fn store(url: &str) -> Value {
    json!({ "url": url })
}

fn local_program() -> Value {
    json!({
        "contract": tradewind_contract::CONTRACT_VERSION, "job_id": "job-1", "node": "local",
        "routes": [{ "id": 0, "nodes": ["local", "local", "local"], "share": 1.0 }],
        "lead": {
            "source": store("file:///from"),
            "selection": { "kind": "prefix", "prefix": "" },
            "targets": [{ "store": store("s3://to"), "key": "backup/" }],
        },
        "source": store("file:///from"),
        "sinks": [store("s3://to")],
    })
}

/// A relay between `source` and `sink`, on two routes.
fn relay_program() -> Value {
    json!({
        "contract": tradewind_contract::CONTRACT_VERSION, "job_id": "job-1", "node": "relay",
        "routes": [
            { "id": 0, "nodes": ["lead", "source", "relay", "sink"], "share": 0.5 },
            { "id": 1, "nodes": ["lead", "source", "relay", "far", "sink"], "share": 0.5 },
        ],
        "hops": [
            { "to": "sink", "address": "127.0.0.1:7001", "connections": 8 },
            { "to": "far", "address": "[::1]:7002", "connections": 64 },
        ],
    })
}

const RELAY: Setting<'static> = Setting { identity: Some("relay"), plain: false, data_port: true };

fn check(program: Value, setting: Setting<'_>) -> Result<(), String> {
    let program: Program = serde_json::from_value(program).unwrap();
    check_program(&program, setting).map_err(|refusal| {
        assert!(refusal.hint.is_some_and(|hint| !hint.is_empty()), "no hint with {}", refusal.error);
        refusal.error
    })
}

/// `program` with the value at `pointer` set to `value`.
fn with(mut program: Value, pointer: &str, value: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match program.pointer_mut(parent).unwrap() {
        Value::Object(fields) => drop(fields.insert(name.to_owned(), value)),
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
        other => panic!("{other} has no {name}"),
    }
    program
}

#[test]
fn good_programs_pass() {
    assert_eq!(check(local_program(), LOCAL), Ok(()));
    assert_eq!(check(relay_program(), RELAY), Ok(()));
    assert_eq!(check(relay_program(), Setting { identity: None, plain: true, data_port: true }), Ok(()));
}

/// The relay opens the hop from `source`, and `far` opens the hop from the relay.
fn dialling_program() -> Value {
    let mut program = relay_program();
    program["dials"] = json!([{ "upstream": "source", "address": "127.0.0.1:7000", "connections": 8 }]);
    program["hops"][1] = json!({ "to": "far", "connections": 64 });
    program
}

#[test]
fn either_end_may_open_a_hop() {
    assert_eq!(check(dialling_program(), RELAY), Ok(()));
    let no_port = Setting { data_port: false, ..RELAY };
    let refused = check(dialling_program(), no_port).unwrap_err();
    assert_eq!(refused, "far opens the hop from relay, which has no data port");
    let only_dials =
        with(dialling_program(), "/hops/1", json!({ "to": "far", "address": "[::1]:1", "connections": 1 }));
    assert_eq!(check(only_dials, no_port), Ok(()));
    let refused = check(with(relay_program(), "/hops/1/connections", json!(1)), no_port).unwrap_err();
    assert_eq!(refused, "relay has no data port, but a route comes to it");
    let dial = |from: &str, address: &str, connections: u16| {
        let dial = json!({ "upstream": from, "address": address, "connections": connections });
        check(with(dialling_program(), "/dials/0", dial), RELAY).unwrap_err()
    };
    assert_eq!(dial("sink", "127.0.0.1:7000", 8), "no route goes from sink to relay");
    assert_eq!(dial("source", "nowhere", 8), "\"nowhere\" is not an address for the hop from source");
    assert_eq!(dial("source", "127.0.0.1:7000", 65), "the hop from source has 65 connections");
    let twice = json!([dialling_program()["dials"][0], dialling_program()["dials"][0]]);
    assert_eq!(
        check(with(dialling_program(), "/dials", twice), RELAY).unwrap_err(),
        "two dials open the hop from source"
    );
}

#[test]
fn roles_follow_the_stations() {
    let program: Program = serde_json::from_value(relay_program()).unwrap();
    let of = |node: &str| roles(node, &program.routes);
    assert_eq!(of("lead"), Roles { lead: true, ..Roles::default() });
    assert_eq!(of("source"), Roles { source: true, ..Roles::default() });
    assert_eq!(of("far"), Roles { relay: true, ..Roles::default() });
    assert_eq!(of("sink"), Roles { sink: true, ..Roles::default() });
    assert_eq!(of("nobody"), Roles::default());
    let local: Program = serde_json::from_value(local_program()).unwrap();
    assert_eq!(roles("local", &local.routes), Roles { lead: true, source: true, relay: false, sink: true });
}

#[test]
fn faults_of_a_local_program_are_named() {
    let stations = |names: &[&str]| json!([{ "id": 0, "nodes": names, "share": 1.0 }]);
    let many = vec!["local"; STATIONS_MAX + 1];
    let cases = [
        ("/contract", json!(1), "this gateway uses contract 2, but the program uses contract 1"),
        ("/job_id", json!("Job 1"), "\"Job 1\" is not a job id"),
        ("/job_id", json!(""), "\"\" is not a job id"),
        (
            "/node",
            json!("-a"),
            "\"-a\" is not a gateway name: 1 to 63 characters of a-z, 0-9 and -, with no - at either end",
        ),
        ("/node", json!("other"), "route 0 does not pass other"),
        ("/routes", json!([]), "0 routes"),
        ("/routes", stations(&["local", "local"]), "route 0 has 2 stations"),
        ("/routes", stations(&many), "route 0 has 17 stations"),
        ("/routes/0/share", json!(0.0), "route 0 has the share 0"),
        ("/routes/0/share", json!(1.5), "route 0 has the share 1.5"),
        ("/routes/0/usd_per_gb", json!(-0.1), "route 0 has the price -0.1"),
        ("/lead", Value::Null, "local is a lead but the program does not say lead (the job)"),
        ("/source", Value::Null, "local is a source but the program does not say source (the store to read)"),
        ("/sinks", json!([]), "local is a sink but the program does not say sinks (the stores to write)"),
        ("/sinks", json!([store("s3://to"), store("s3://too")]), "the job has 1 destination, the sink 2 stores"),
        ("/seal_key_hex", json!("abc"), "seal_key_hex is not a key"),
        ("/lead/targets", json!([]), "0 destinations"),
        ("/lead/delete", json!({}), "delete without compare"),
        ("/lead/resume", json!(true), "resume without state_dir"),
        ("/lead/selection/prefix", json!("te"), "\"te\" is not a prefix"),
        ("/lead/chunk_bytes", json!(1), "chunk_bytes 1 with memory_bytes 268435456"),
        ("/lead/chunk_bytes", json!(256 << 20), "chunk_bytes 268435456 with memory_bytes 268435456"),
        ("/lead/ceiling_usd_per_gb", json!(-1.0), "ceiling_usd_per_gb is not a price"),
        ("/lead/ceiling_usd", json!(-1.0), "ceiling_usd is not a price"),
        ("/lead/rate_limit_bytes_per_s", json!(0), "rate_limit_bytes_per_s and stall_s must not be 0"),
        ("/lead/duplicate_fraction_max", json!(1.5), "duplicate_fraction_max is not a fraction"),
        ("/lead/stall_s", json!(0), "rate_limit_bytes_per_s and stall_s must not be 0"),
        ("/limits", json!({ "store_tries_max": 0 }), "limits.store_tries_max is 0"),
        ("/limits", json!({ "store_requests_max": 2000 }), "limits.store_requests_max is 2000"),
        ("/limits", json!({ "peer_silence_s": 0 }), "limits.peer_silence_s is 0"),
        ("/limits", json!({ "memory_bytes": 1u64 << 50 }), "limits.memory_bytes is 1125899906842624"),
    ];
    for (pointer, value, error) in cases {
        assert_eq!(check(with(local_program(), pointer, value), LOCAL), Err(error.to_owned()), "{pointer}");
    }
}

#[test]
fn faults_of_a_relay_program_are_named() {
    let cases = [
        ("/routes/1/id", json!(0), "two routes have the id 0"),
        ("/routes/1/nodes/0", json!("lead-2"), "routes begin at 2 different leads"),
        ("/routes/1/nodes/3", json!("source"), "route 1 comes back to source"),
        ("/hops/0/connections", json!(0), "the hop to sink has 0 connections"),
        ("/hops/0/connections", json!(65), "the hop to sink has 65 connections"),
        ("/hops/0/address", json!("sink:7001"), "\"sink:7001\" is not an address for the hop to sink"),
        ("/hops/0/address", json!("127.0.0.1:0"), "\"127.0.0.1:0\" is not an address for the hop to sink"),
        ("/hops/1/to", json!("sink"), "two hops lead to sink"),
        ("/hops/1/to", json!("lead"), "no route goes from relay to lead"),
        (
            "/hops",
            json!([{ "to": "far", "address": "[::1]:7002", "connections": 1 }]),
            "there is no hop from relay to sink",
        ),
        (
            "/source",
            store("s3://x"),
            "the program says source (the store to read) but relay is not a source on any route",
        ),
        (
            "/sinks",
            json!([store("s3://x")]),
            "the program says sinks (the stores to write) but relay is not a sink on any route",
        ),
        ("/seal_key_hex", json!("0".repeat(64)), "relay is neither source nor sink and must not have the seal key"),
    ];
    for (pointer, value, error) in cases {
        assert_eq!(check(with(relay_program(), pointer, value), RELAY), Err(error.to_owned()), "{pointer}");
    }
}

#[test]
fn a_program_must_fit_the_gateway() {
    let faults = [
        (Setting { identity: Some("sink"), ..RELAY }, "this program is for relay, this gateway is sink"),
        (Setting { identity: None, ..RELAY }, "this gateway has no identity for its hops"),
        (Setting { data_port: false, ..RELAY }, "relay has no data port, but a route comes to it"),
    ];
    for (setting, error) in faults {
        assert_eq!(check(relay_program(), setting), Err(error.to_owned()));
    }
}

#[test]
fn a_route_may_not_have_a_share_that_is_no_number() {
    let mut program: Program = serde_json::from_value(local_program()).unwrap();
    program.routes[0].share = f64::NAN;
    assert!(check_program(&program, LOCAL).is_err());
}

#[test]
fn a_source_and_a_sink_without_the_job_need_the_keys_that_they_may_access() {
    let setting = Setting { identity: None, plain: true, data_port: true };
    let routes = json!([{ "id": 0, "nodes": ["lead", "source", "sink"], "share": 1.0 }]);
    let below = json!({ "kind": "prefix", "prefix": "a/" });
    let sink = json!({
        "contract": tradewind_contract::CONTRACT_VERSION, "job_id": "job-1", "node": "sink", "routes": routes,
        "sinks": [store("s3://to"), store("s3://too")], "writes": [below, below], "seal_key_hex": "0".repeat(64),
    });
    assert_eq!(check(sink.clone(), setting), Ok(()));
    let error = check(with(sink.clone(), "/seal_key_hex", Value::Null), setting).unwrap_err();
    assert_eq!(error, "sink has no key to seal and open bodies");
    let error = check(with(sink.clone(), "/writes", json!([below])), setting).unwrap_err();
    assert_eq!(error, "the program says writes for 1 of 2 destinations of sink");
    let error = check(with(sink, "/reads", below.clone()), setting).unwrap_err();
    assert!(error.contains("not a source"), "{error}");
    let source = json!({
        "contract": tradewind_contract::CONTRACT_VERSION, "job_id": "job-1", "node": "source", "routes": routes, "source": store("s3://from"),
        "hops": [{ "to": "sink", "address": "127.0.0.1:7001", "connections": 8 }], "seal_key_hex": "0".repeat(64),
    });
    assert_eq!(check(with(source.clone(), "/reads", below.clone()), setting), Ok(()));
    assert!(check(source, setting).unwrap_err().contains("does not say reads"));
    assert!(check(with(local_program(), "/writes", json!([below])), LOCAL).unwrap_err().contains("is the lead"));
}
