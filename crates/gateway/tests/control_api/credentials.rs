//! Delivery of store credentials from the owner's machine to a gateway that has none.

use crate::http::Client;
use crate::owner::{Owner, PATIENCE};
use crate::serve::silent_move;
use crate::serving::{Folder, Serving};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A server that gives each caller a new key that is about to expire, and is a store that is always too busy.
#[derive(Clone, Default)]
struct Cloud {
    given: Arc<Mutex<u32>>,
    used: Arc<Mutex<BTreeSet<String>>>,
    /// Bodies of requests for limited tokens of Google.
    exchanged: Arc<Mutex<Vec<String>>>,
}

impl Cloud {
    async fn start(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        origin
    }

    /// Ids of the keys that requests to the store were signed with.
    fn used(&self) -> BTreeSet<String> {
        self.used.lock().unwrap().clone()
    }
}

async fn answer(State(cloud): State<Cloud>, uri: Uri, headers: HeaderMap, body: String) -> Response {
    if uri.path() == "/google" {
        return axum::Json(json!({ "access_token": "whole-token", "expires_in": 3600 })).into_response();
    }
    if uri.path() == "/v1/token" {
        let mut exchanged = cloud.exchanged.lock().unwrap();
        exchanged.push(body);
        // The next one is due after half of the life.
        let token = format!("limited-{}", exchanged.len());
        return axum::Json(json!({ "access_token": token, "expires_in": 4 })).into_response();
    }
    if uri.path() == "/token" {
        let mut given = cloud.given.lock().unwrap();
        *given += 1;
        // Providers request a new key 300 s before the old one expires.
        let date = std::process::Command::new("date").args(["-u", "-d", "+301 seconds", "+%FT%TZ"]).output().unwrap();
        let key = json!({
            "AccessKeyId": format!("KEY{given}"), "SecretAccessKey": "the-secret", "Token": "the-token",
            "Expiration": String::from_utf8(date.stdout).unwrap().trim(),
        });
        return axum::Json(key).into_response();
    }
    let signed = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    let key = signed.split_once("Credential=").and_then(|(_, rest)| rest.split_once('/')).map(|(key, _)| key);
    let key = key.or_else(|| signed.strip_prefix("Bearer "));
    cloud.used.lock().unwrap().insert(key.unwrap_or("nobody").to_owned());
    StatusCode::SERVICE_UNAVAILABLE.into_response()
}

/// Lends the credentials of stores to a gateway on the owner's machine.
async fn delegate(owner: &Owner, name: &str, stores: &Value) -> (StatusCode, Value) {
    lend(owner, name, stores, true).await
}

pub(crate) async fn lend(owner: &Owner, name: &str, stores: &Value, on_this_host: bool) -> (StatusCode, Value) {
    let uses: Vec<Value> = stores.as_array().unwrap().iter().map(|store| json!({ "store": store })).collect();
    owner.put(&format!("{name}/stores"), &json!({ "stores": uses, "on_this_host": on_this_host })).await
}

#[tokio::test]
async fn a_running_job_signs_with_the_keys_that_were_renewed_on_the_owner_s_machine() {
    let (folder, cloud) = (Folder::new(), Cloud::default());
    let origin = cloud.start().await;
    let token_url = format!("{origin}/token");
    let variables = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", token_url.as_str()), ("AWS_REGION", "us-east-1")];
    let home = folder.path("home");
    let variables = [&variables[..], &[("HOME", home.to_str().unwrap())]].concat();
    let owner = Owner::start_with(&folder, &["--identity-s", "10"], &variables).await;
    for (name, calls_home) in [("dialled", false), ("calling", true)] {
        let gateway = owner.enrol(name, calls_home).await;
        let mut program = silent_move(&origin);
        program["node"] = name.into();
        program["routes"][0]["nodes"] = json!([name, name, name]);
        let stores = json!([program["source"], program["sinks"][0]]);
        let given = delegate(&owner, name, &stores).await;
        assert_eq!(given.0, StatusCode::NO_CONTENT, "{}", given.1);
        let mut client = Client::unix(&owner.socket(name)).await;
        assert_eq!(client.put_program(&program).await, (StatusCode::OK, json!({})));
        let before = cloud.used();
        let renewed = async {
            while cloud.used().difference(&before).count() < 2 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, renewed).await.expect("requests signed with a second key");
        assert!(!cloud.used().contains("nobody"));
        holds_no_secret(&gateway);
    }
    owner.end().await;
}

/// Neither the arguments nor the environment of a gateway have a secret or the address of one.
fn holds_no_secret(gateway: &Serving) {
    let pid = gateway.child.id().unwrap();
    for file in ["cmdline", "environ"] {
        let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap();
        let text = String::from_utf8_lossy(&text);
        assert!(!text.contains("the-secret") && !text.contains("/token"), "{file}");
    }
}

#[tokio::test]
async fn a_machine_s_own_identity_is_used_only_if_the_owner_says_so() {
    let (folder, cloud) = (Folder::new(), Cloud::default());
    let origin = cloud.start().await;
    let owned = [("AWS_ACCESS_KEY_ID", "OWNERS"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_REGION", "us-east-1")];
    let owner = Owner::start_with(&folder, &[], &owned).await;
    let (token_url, home) = (format!("{origin}/token"), folder.path("home"));
    let machine = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", token_url.as_str()), ("HOME", home.to_str().unwrap())];
    for (lending, key) in [("whole", "OWNERS"), ("machine", "KEY1")] {
        let _gateway = owner.enrol_with(lending, true, &machine).await;
        let mut program = silent_move(&origin);
        program["node"] = lending.into();
        program["routes"][0]["nodes"] = json!([lending, lending, lending]);
        for store in ["/source", "/sinks/0", "/lead/source", "/lead/targets/0/store"] {
            program.pointer_mut(store).unwrap()["lending"] = lending.into();
        }
        let given = lend(&owner, lending, &json!([program["source"], program["sinks"][0]]), false).await;
        assert_eq!(given.0, StatusCode::NO_CONTENT, "{}", given.1);
        let mut client = Client::unix(&owner.socket(lending)).await;
        assert_eq!(client.put_program(&program).await, (StatusCode::OK, json!({})));
        let used = async {
            while !cloud.used().contains(key) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, used).await.unwrap_or_else(|_| panic!("{lending}: not used: {key}"));
        assert_eq!(cloud.used().contains("KEY1"), lending == "machine", "{:?}", cloud.used());
    }
    owner.end().await;
}

#[tokio::test]
async fn tokens_of_google_are_limited_to_the_keys_of_the_program_and_renewed() {
    let (folder, cloud) = (Folder::new(), Cloud::default());
    let origin = cloud.start().await;
    let file = folder.path("user.json");
    let user = json!({
        "type": "authorized_user", "client_id": "id", "client_secret": "the-secret", "refresh_token": "refresh",
        "token_uri": format!("{origin}/google"),
    });
    std::fs::write(&file, user.to_string()).unwrap();
    let variables = [
        ("GOOGLE_APPLICATION_CREDENTIALS", file.to_str().unwrap()),
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_STS", origin.as_str()),
    ];
    let owner = Owner::start_with(&folder, &[], &variables).await;
    let _gateway = owner.enrol("local", true).await;
    let mut program = silent_move(&origin);
    for (place, bucket) in
        [("/source", "from"), ("/sinks/0", "to"), ("/lead/source", "from"), ("/lead/targets/0/store", "to")]
    {
        program.pointer_mut(place).unwrap()["url"] = format!("gs://{bucket}").into();
    }
    let stores = json!({ "stores": [
        { "store": program["source"], "reads": [{ "kind": "prefix", "prefix": "data/" }] },
        { "store": program["sinks"][0], "writes": [{ "kind": "object", "key": "copy" }] },
    ]});
    assert_eq!(owner.put("local/stores", &stores).await.0, StatusCode::NO_CONTENT);
    let bodies = cloud.exchanged.lock().unwrap().join("\n");
    assert!(bodies.contains("subject_token=whole-token"), "{bodies}");
    assert!(bodies.contains("objectViewer") && bodies.contains("buckets%2Ffrom%2Fobjects%2Fdata%2F"), "{bodies}");
    assert!(bodies.contains("objectUser") && bodies.contains("buckets%2Fto%2Fobjects%2Fcopy"), "{bodies}");
    let mut client = Client::unix(&owner.socket("local")).await;
    assert_eq!(client.put_program(&program).await, (StatusCode::OK, json!({})));
    let renewed = async {
        while cloud.used().len() < 3 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, renewed).await.expect("requests with renewed tokens");
    assert!(cloud.used().iter().all(|token| token.starts_with("limited-")), "{:?}", cloud.used());
    owner.end().await;
}

#[tokio::test]
async fn credentials_that_cannot_be_limited_do_not_leave_the_machine() {
    let folder = Folder::new();
    let keys = [("AWS_ACCESS_KEY_ID", "KEY"), ("AWS_SECRET_ACCESS_KEY", "the-secret"), ("AWS_SESSION_TOKEN", "t")];
    let azure = [("AZURE_STORAGE_ACCOUNT_KEY", "dGhlLXNlY3JldA==")];
    let owner = Owner::start_with(&folder, &[], &[&keys[..], &azure].concat()).await;
    let _gateway = owner.enrol("local", true).await;
    let stores = [
        (json!({ "url": "s3://bucket" }), "by a role"),
        (json!({ "url": "s3://bucket", "endpoint": "https://minio.example" }), "no token service"),
        (json!({ "url": "r2://account/bucket" }), "no token service"),
    ];
    for (mut store, why) in stores {
        let refused = lend(&owner, "local", &json!([store]), false).await;
        assert_eq!(refused.0, StatusCode::FORBIDDEN, "{}", refused.1);
        let (error, hint) = (refused.1["error"].as_str().unwrap(), refused.1["hint"].as_str().unwrap());
        assert!(error.contains(why) && error.contains(store["url"].as_str().unwrap()), "{error}");
        assert!(hint.contains("--share-keys") && !refused.1.to_string().contains("the-secret"), "{hint}");
        assert_eq!(lend(&owner, "local", &json!([store]), true).await.0, StatusCode::NO_CONTENT);
        store["lending"] = "whole".into();
        assert_eq!(lend(&owner, "local", &json!([store]), false).await.0, StatusCode::NO_CONTENT);
    }
    // Azure's account key signs what is lent. Requests without credentials need no limit.
    for store in [json!({ "url": "az://account/container" }), json!({ "url": "s3://bucket", "anonymous": true })] {
        assert_eq!(lend(&owner, "local", &json!([store]), false).await.0, StatusCode::NO_CONTENT, "{store}");
    }
    owner.end().await;
}

/// A gateway that accepts the credentials of its stores slowly: it applies the second ones on request.
#[derive(Clone, Default)]
struct SlowGateway {
    /// URLs of the stores of each request that arrived.
    arrived: Arc<Mutex<Vec<String>>>,
    /// The same of those that were applied.
    applied: Arc<Mutex<Vec<String>>>,
    go: Arc<tokio::sync::Notify>,
}

impl SlowGateway {
    fn start(&self, socket: &std::path::Path) {
        let listener = tokio::net::UnixListener::bind(socket).unwrap();
        let router = Router::new().fallback(accept_stores).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
    }

    /// Waits until requests for this many sets of stores have arrived.
    async fn wait_arrived(&self, count: usize) {
        let arrived = async {
            while self.arrived.lock().unwrap().len() < count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, arrived).await.expect("credentials for the gateway");
    }
}

async fn accept_stores(State(gateway): State<SlowGateway>, uri: Uri, body: String) -> StatusCode {
    if uri.path() != "/v1/stores" {
        return StatusCode::NOT_FOUND;
    }
    let stores: Value = serde_json::from_str(&body).unwrap();
    let url = stores["stores"][0]["store"]["url"].as_str().unwrap().to_owned();
    let count = {
        let mut arrived = gateway.arrived.lock().unwrap();
        arrived.push(url.clone());
        arrived.len()
    };
    // A request that has arrived is applied, even if its sender no longer waits for the answer.
    let applying = tokio::spawn(async move {
        if count == 2 {
            gateway.go.notified().await;
        }
        gateway.applied.lock().unwrap().push(url);
    });
    applying.await.unwrap();
    StatusCode::NO_CONTENT
}

#[tokio::test]
async fn a_late_renewal_for_an_earlier_job_does_not_replace_the_stores_of_the_next() {
    let (folder, cloud, gateway) = (Folder::new(), Cloud::default(), SlowGateway::default());
    let origin = cloud.start().await;
    let (token_url, home) = (format!("{origin}/token"), folder.path("home"));
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", token_url.as_str()),
        ("AWS_REGION", "us-east-1"),
        ("HOME", home.to_str().unwrap()),
    ];
    let owner = Owner::start_with(&folder, &["--identity-s", "10"], &variables).await;
    let socket = folder.path("beside.sock");
    gateway.start(&socket);
    let entry = json!({ "dial": format!("unix:{}", socket.display()), "expires_unix_s": 0, "calls_home": true });
    assert_eq!(owner.put("beside", &entry).await.0, StatusCode::NO_CONTENT);
    let first = json!([{ "url": "s3://first" }]);
    assert_eq!(delegate(&owner, "beside", &first).await.0, StatusCode::NO_CONTENT);
    gateway.wait_arrived(2).await;
    let second = json!([{ "url": "s3://second" }]);
    let go = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        gateway.go.notify_one();
    };
    let (given, ()) = tokio::join!(delegate(&owner, "beside", &second), go);
    assert_eq!(given.0, StatusCode::NO_CONTENT, "{}", given.1);
    gateway.wait_arrived(4).await;
    let applied = gateway.applied.lock().unwrap().clone();
    assert_eq!(applied[..3], ["s3://first", "s3://first", "s3://second"]);
    owner.end().await;
}

#[tokio::test]
async fn a_chain_without_credentials_is_reported_by_the_job() {
    let folder = Folder::new();
    let variables = [("AWS_EC2_METADATA_DISABLED", "true"), ("HOME", "/nowhere"), ("AWS_REGION", "us-east-1")];
    let owner = Owner::start_with(&folder, &[], &variables).await;
    let _gateway = owner.enrol("local", false).await;
    let program = silent_move("http://127.0.0.1:9");
    assert_eq!(delegate(&owner, "local", &json!([program["source"], program["sinks"][0]])).await.0, 204);
    let mut client = Client::unix(&owner.socket("local")).await;
    assert_eq!(client.put_program(&program).await, (StatusCode::OK, json!({})));
    let mut events = Client::unix(&owner.socket("local")).await.events().await;
    let done = loop {
        match events.next().await.expect("the job says how it ended") {
            event if event["event"] == "done" => break event,
            _ => {}
        }
    };
    assert_eq!(done["outcome"], "unauthorised", "{done}");
    assert!(done.to_string().contains("AWS_EC2_METADATA_DISABLED"), "{done}");
    owner.end().await;
}

#[tokio::test]
async fn credentials_are_refused_where_they_do_not_belong_and_never_repeated() {
    let folder = Folder::new();
    let owner = Owner::start_with(&folder, &[], &[]).await;
    assert_eq!(delegate(&owner, "nobody", &json!([])).await.0, StatusCode::NOT_FOUND);
    let _gateway = owner.enrol("local", false).await;
    let wrong = delegate(&owner, "local", &json!([{ "url": "ftp://x" }])).await;
    assert_eq!(wrong.0, StatusCode::UNPROCESSABLE_ENTITY, "{}", wrong.1);
    let mut client = Client::unix(&owner.socket("local")).await;
    let unreadable = json!({ "stores": "the-secret" }).to_string();
    let (status, answer) = client.call(Method::PUT, "/v1/stores", unreadable).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(!answer.to_string().contains("the-secret"), "{answer}");
    // A program whose store has no credentials cannot start.
    let (status, answer) = client.put_program(&silent_move("http://127.0.0.1:9")).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("no credentials were given"), "{answer}");
    // A gateway on the user's own machine has the user's credentials.
    let socket = folder.path("own");
    let own = Serving::start_at(&socket).await;
    let (status, _) =
        Client::unix(&socket).await.call(Method::PUT, "/v1/stores", json!({"stores": []}).to_string()).await;
    assert_eq!(status, StatusCode::CONFLICT);
    drop(own);
    owner.end().await;
}
