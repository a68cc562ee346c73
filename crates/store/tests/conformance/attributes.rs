//! Attributes of an object: everything that readers see beside its bytes.

use crate::harness::{Ability, bytes, each};
use std::collections::BTreeMap;
use tradewind_store::{Attributes, Checksums, Payload, PutOptions};

fn attributes() -> Attributes {
    Attributes {
        content_type: Some("text/x-test; charset=utf-8".to_owned()),
        content_encoding: Some("br".to_owned()),
        content_language: Some("de-DE".to_owned()),
        content_disposition: Some("attachment; filename=\"a b.txt\"".to_owned()),
        cache_control: Some("max-age=60, private".to_owned()),
        metadata: BTreeMap::new(),
    }
}

fn metadata() -> BTreeMap<String, String> {
    [("owner", "trade wind"), ("n1", "1")].into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[tokio::test]
async fn headers_survive_a_put_and_an_upload() {
    each(&[Ability::Attributes], async |s| {
        let options = PutOptions { attributes: attributes().into(), ..PutOptions::default() };
        s.put_with("put", bytes(10, 1), &options).await;
        assert_eq!(s.store.head(&s.key("put")).await.unwrap().attributes, attributes());
        let upload = s.store.open_upload(&s.key("up"), &options).await.unwrap();
        let payload = Payload::from(bytes(10, 1));
        let sums = Checksums::of_segments(payload.segments());
        let tag = s.store.put_part(&s.key("up"), &upload, 1, 0, payload, &sums).await.unwrap();
        s.store.complete_upload(&s.key("up"), &upload, &[tag], &sums, &options).await.unwrap();
        assert_eq!(s.store.head(&s.key("up")).await.unwrap().attributes, attributes());
    })
    .await;
}

#[tokio::test]
async fn user_metadata_survives() {
    each(&[Ability::Metadata], async |s| {
        let attributes = Attributes { metadata: metadata(), ..Attributes::default() };
        let options = PutOptions { attributes: attributes.into(), ..PutOptions::default() };
        s.put_with("a", bytes(10, 1), &options).await;
        assert_eq!(s.store.head(&s.key("a")).await.unwrap().attributes.metadata, metadata());
    })
    .await;
}

#[tokio::test]
async fn files_take_the_given_time() {
    each(&[], async |s| {
        let options = PutOptions { modified_unix_ms: Some(1_500_000_000_123), ..PutOptions::default() };
        s.put_with("a", bytes(10, 1), &options).await;
        let upload = s.store.open_upload(&s.key("b"), &options).await.unwrap();
        let sums = Checksums::of_segments(&[bytes(10, 1)]);
        let tag = s.store.put_part(&s.key("b"), &upload, 1, 0, Payload::from(bytes(10, 1)), &sums).await.unwrap();
        s.store.complete_upload(&s.key("b"), &upload, &[tag], &sums, &options).await.unwrap();
        for name in ["a", "b"] {
            let modified = s.store.head(&s.key(name)).await.unwrap().modified_unix_ms;
            assert_eq!(modified == 1_500_000_000_123, s.name == "file", "{modified}");
        }
    })
    .await;
}
