//! Each form of credentials against a token server on this host.
//!
//! A test starts a server that hands out tokens and is the store too, then runs [`one_process`] in its own process,
//! because credentials come from the environment. The store's requests must carry the credential, and nothing that
//! the process prints may hold a secret.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "credentials/aws.rs"]
mod aws;
#[path = "credentials/azure.rs"]
mod azure;
#[path = "credentials/google.rs"]
mod google;
#[path = "credentials/harness.rs"]
mod harness;
#[path = "credentials/proxy.rs"]
mod proxy;

use tradewind_store::{StoreConfig, open};

/// Opens a store, requests an object several times, as the environment configures, and prints the results.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the other tests run it, each with its own environment"]
async fn one_process() {
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    let Ok(url) = std::env::var("TEST_URL") else { return };
    let targets = tracing_subscriber::filter::Targets::new()
        .with_default(tracing::Level::INFO)
        .with_target("tradewind", tracing::Level::TRACE);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(lines).with(targets).init();
    let config = StoreConfig { url, endpoint: std::env::var("TEST_ENDPOINT").ok(), ..StoreConfig::default() };
    let store = match open(&config) {
        Ok(store) => store,
        Err(error) => return println!("error: {error}"),
    };
    let times: u32 = std::env::var("TEST_TIMES").unwrap().parse().unwrap();
    for _ in 0..times {
        match store.head("key").await {
            Ok(_) => println!("answered"),
            Err(error) => println!("error: {error}"),
        }
    }
    println!("source: {}", store.describe().await.credentials.unwrap_or_default());
    println!("debug: {store:?}");
}
