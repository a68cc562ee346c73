//! A gateway whose machine serves another job: it becomes a new process and keeps nothing.

use crate::credentials::lend;
use crate::http::Client;
use crate::owner::{Owner, entry, soon, version};
use crate::serve::silent_move;
use crate::serving::{Folder, Serving};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use std::os::unix::fs::FileExt;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

const KEY: &str = "the-key-of-a-job-that-has-ended";
/// Memory that is read at a time.
const PAGE_BYTES: usize = 1 << 16;
const NEXT_TOKEN: &str = "0f0e0d0c0b0a09080706050403020100101112131415161718191a1b1c1d1e1f";

/// Returns whether a text is anywhere in the memory of a process that it may write.
fn holds(pid: u32, text: &str) -> bool {
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|rights| rights.starts_with("rw"))).any(|line| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|digits| u64::from_str_radix(digits, 16).unwrap());
        (start..end).step_by(PAGE_BYTES).any(|page| {
            // A text may lie across two pages.
            let mut bytes = vec![0; (2 * PAGE_BYTES).min(usize::try_from(end - page).unwrap())];
            // Most pages are empty. `contains` is quick, even in a build without optimisation.
            memory.read_at(&mut bytes, page).is_ok()
                && text.bytes().all(|byte| bytes.contains(&byte))
                && bytes.windows(text.len()).any(|window| window == text.as_bytes())
        })
    })
}

#[tokio::test]
async fn a_gateway_that_joins_again_keeps_its_process_id_and_address_and_nothing_of_its_job() {
    let folder = Folder::new();
    let variables = [("AWS_ACCESS_KEY_ID", "ID"), ("AWS_SECRET_ACCESS_KEY", KEY), ("AWS_REGION", "us-east-1")];
    let owner = Owner::start_with(&folder, &[], &variables).await;
    let joining = ["--join", "-", "--lease-s", "600"];
    let mut gateway = Serving::start_told(&joining, &format!("{}\n", owner.listen("sink")), &[]).await;
    let pid = gateway.child.id().unwrap();
    assert_eq!(owner.put("sink", &entry(gateway.control())).await.0, StatusCode::NO_CONTENT);
    owner.wait("sink", "its enrolment", |state| state["enrolled"] == true).await;
    let mut program = silent_move("http://127.0.0.1:1");
    program["node"] = "sink".into();
    program["routes"][0]["nodes"] = json!(["sink", "sink", "sink"]);
    let stores = json!([program["source"], program["sinks"][0]]);
    assert_eq!(lend(&owner, "sink", &stores, true).await.0, StatusCode::NO_CONTENT);
    let mut client = Client::unix(&owner.socket("sink")).await;
    assert_eq!(client.put_program(&program).await, (StatusCode::OK, json!({})));
    assert!(holds(pid, KEY));

    let wrong = json!({ "token_hex": "no token", "expires_unix_s": soon() }).to_string();
    let mut client = Client::unix(&owner.socket("sink")).await;
    assert_eq!(client.call(Method::POST, "/v1/join", wrong).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let again = json!({ "token_hex": NEXT_TOKEN, "expires_unix_s": soon() }).to_string();
    assert_eq!(client.call(Method::POST, "/v1/join", again).await.0, StatusCode::ACCEPTED);
    assert_eq!(owner.admin(Method::DELETE, "/v1/gateways/sink", &Value::Null).await.0, StatusCode::NO_CONTENT);
    let mut next = entry(gateway.control());
    next["token_hex"] = NEXT_TOKEN.into();
    assert_eq!(owner.put("sink", &next).await.0, StatusCode::NO_CONTENT);
    owner.wait("sink", "its second enrolment", |state| state["enrolled"] == true).await;
    let (status, told) = version(&owner.socket("sink")).await;
    assert_eq!((status, &told["data_address"]), (StatusCode::OK, &gateway.ready["data_address"]));
    assert!(gateway.child.try_wait().unwrap().is_none());
    assert!(!holds(pid, KEY));
    // It has neither credentials nor a program, so it accepts another job's; and it still has a lease.
    program["job_id"] = "another".into();
    let mut client = Client::unix(&owner.socket("sink")).await;
    let (status, refusal) = client.put_program(&program).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refusal["error"].as_str().unwrap().ends_with("no credentials were given"), "{refusal}");
    assert_eq!(lend(&owner, "sink", &stores, true).await.0, StatusCode::NO_CONTENT);
    let mut client = Client::unix(&owner.socket("sink")).await;
    assert_eq!(client.put_program(&program).await, (StatusCode::OK, json!({})));
    let lease = json!({ "lease_s": 60 }).to_string();
    assert_eq!(client.call(Method::POST, "/v1/lease", lease).await.0, StatusCode::NO_CONTENT);
    gateway.child.kill().await.unwrap();
    owner.end().await;
}

#[tokio::test]
async fn a_gateway_that_is_told_to_end_while_it_leaves_does_not_come_back() {
    let folder = Folder::new();
    let owner = Owner::start_with(&folder, &[], &[]).await;
    let joining = ["--join", "-", "--lease-s", "600", "--log-level", "info"];
    let mut gateway = Serving::start_told(&joining, &format!("{}\n", owner.listen("sink")), &[]).await;
    assert_eq!(owner.put("sink", &entry(gateway.control())).await.0, StatusCode::NO_CONTENT);
    owner.wait("sink", "its enrolment", |state| state["enrolled"] == true).await;
    // Half a request delays the exit.
    let mut holding = UnixStream::connect(owner.socket("sink")).await.unwrap();
    holding.write_all(b"GET /v1/ver").await.unwrap();
    assert_eq!(version(&owner.socket("sink")).await.0, StatusCode::OK);
    let mut client = Client::unix(&owner.socket("sink")).await;
    let again = json!({ "token_hex": NEXT_TOKEN, "expires_unix_s": soon() }).to_string();
    assert_eq!(client.call(Method::POST, "/v1/join", again).await.0, StatusCode::ACCEPTED);
    gateway.log_says("it joins its fleet again").await;
    gateway.signal(rustix::process::Signal::TERM);
    gateway.log_says("ending for good").await;
    assert_eq!(gateway.child.wait().await.unwrap().code(), Some(0));
    owner.end().await;
}
