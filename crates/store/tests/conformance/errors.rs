//! Errors have the right kind and contain no secret.

use crate::harness::{Ability, bytes, each, kind};
use tradewind_store::{
    Checksums, Error, ErrorKind, ListRequest, Payload, Precondition, PutOptions, Result, StoreConfig, UploadId, open,
};

fn elsewhere(config: &StoreConfig, name: &str) -> StoreConfig {
    let (root, _) = config.url.rsplit_once('/').expect("a URL has a slash");
    StoreConfig { url: format!("{root}/{name}"), ..config.clone() }
}

#[tokio::test]
async fn a_missing_object() {
    each(&[], async |s| {
        // The bucket must exist, which for files means that something was written.
        s.put("there", bytes(1, 0)).await;
        assert_eq!(kind(s.store.head(&s.key("none")).await), Some(ErrorKind::NotFound));
        let error = s.read("none", None).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
        assert!(error.url.ends_with(&s.key("none")), "{}", error.url);
        assert_eq!(kind(s.read("there/below", None).await), Some(ErrorKind::NotFound));
    })
    .await;
}

#[tokio::test]
async fn a_missing_bucket() {
    each(&[Ability::MissingBucket], async |s| {
        let store = open(&elsewhere(&s.config, "no-such-bucket-of-tradewind")).unwrap();
        let error = store.list(&ListRequest::default()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::BucketNotFound, "{error}");
        assert_eq!(error.hint() == Some("check the path of the directory"), s.name == "file", "{:?}", error.hint());
        assert_eq!(
            kind(store.get("k", None, &Precondition::default()).await.map(|_| ())),
            Some(ErrorKind::BucketNotFound)
        );
        if s.name != "file" {
            let written =
                store.put("k", Payload::from(bytes(1, 0)), &Checksums::default(), &PutOptions::default()).await;
            assert_eq!(kind(written), Some(ErrorKind::BucketNotFound));
        }
    })
    .await;
}

#[tokio::test]
async fn a_missing_upload() {
    each(&[Ability::AbortIsFinal], async |s| {
        s.put("k", bytes(1, 0)).await;
        let payload = Payload::from(bytes(1, 0));
        for id in ["no-such-upload", "../../etc/passwd", "00000000-0000-0000-0000-000000000000"] {
            let upload = UploadId(id.to_owned());
            let result: Result<_, Error> =
                s.store.put_part(&s.key("k"), &upload, 1, 0, payload.clone(), &Checksums::default()).await;
            let refused = kind(result).expect(id);
            // A server may say that such an id cannot exist.
            let is_impossible = id.contains('/') && matches!(refused, ErrorKind::BadRequest | ErrorKind::InvalidKey);
            assert!(is_impossible || refused == ErrorKind::UploadNotFound, "{id}: {refused:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn nobody_is_not_let_in() {
    each(&[Ability::Authentication], async |s| {
        let store = open(&StoreConfig { anonymous: true, profile: None, ..s.config.clone() }).unwrap();
        let error = store.list(&ListRequest::default()).await.unwrap_err();
        let refused = [ErrorKind::Forbidden, ErrorKind::Unauthenticated];
        assert!(refused.contains(&error.kind), "{error}");
        assert_eq!(error.to_string().lines().count(), 1);
    })
    .await;
}

/// Maximum clock difference of a server on this machine, or of a cloud.
const CLOCK_AHEAD_S_MAX: i64 = 900;

#[tokio::test]
async fn a_store_tells_how_it_is_reached_and_no_secret() {
    each(&[], async |s| {
        s.store.list(&ListRequest::default()).await.unwrap();
        let told = s.store.describe().await;
        assert!(told.endpoint.is_some_and(|endpoint| !endpoint.is_empty()));
        let credentials = told.credentials.unwrap();
        for (name, secret) in std::env::vars() {
            if ["SECRET", "KEY", "SAS", "TOKEN"].iter().any(|word| name.contains(word)) && secret.len() >= 4 {
                assert!(!credentials.contains(&secret), "the value of {name} is shown");
            }
        }
        // Only servers have their own clock.
        assert_eq!(told.clock_ahead_s.is_some(), !["file", "mem"].contains(&s.name.as_str()));
        assert!(told.clock_ahead_s.unwrap_or(0).abs() < CLOCK_AHEAD_S_MAX);
    })
    .await;
}

#[tokio::test]
async fn a_store_says_where_it_is_if_it_can() {
    each(&[], async |s| {
        let told = s.store.location().await.unwrap();
        match s.store.url().split(':').next() {
            // Compatible servers name a region; that it is also one of a cloud's means nothing.
            Some("s3") => {
                let told = told.unwrap();
                assert_eq!(told.provider, None);
                assert_eq!(told.name, s.config.region.clone().unwrap());
            }
            Some("gs") => assert!(told.is_none_or(|told| told.provider == Some("gcp") && !told.name.is_empty())),
            _ => assert_eq!(told, None),
        }
    })
    .await;
}

#[tokio::test]
async fn no_server_listens() {
    each(&[], async |s| {
        if s.name == "file" {
            return;
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut endpoint = format!("http://127.0.0.1:{port}");
        if let Some((_, path)) = s.config.endpoint.as_deref().and_then(|e| e.split_once("://")?.1.split_once('/')) {
            endpoint = format!("{endpoint}/{path}");
        }
        let store = open(&StoreConfig { endpoint: Some(endpoint), ..s.config.clone() }).unwrap();
        let error = store.list(&ListRequest::default()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Connection, "{error}");
        assert!(error.kind.is_transient());
    })
    .await;
}
