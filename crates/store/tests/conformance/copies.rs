//! Copies that the server makes.

use crate::harness::{Ability, Subject, bytes, each, kind};
use tradewind_store::{Attributes, Checksums, ErrorKind, PartSource, Precondition, PutOptions, open};

fn source(s: &Subject, name: &str) -> PartSource {
    let bucket = s.config.url.rsplit('/').next().unwrap_or_default().to_owned();
    PartSource { bucket, key: s.key(name), condition: Precondition::default(), range: None }
}

#[tokio::test]
async fn a_copy_carries_bytes_and_attributes() {
    each(&[Ability::Copy, Ability::Attributes], async |s| {
        assert!(s.store.can_copy_from(open(&s.config).unwrap().as_ref()));
        let attributes = Attributes { content_type: Some("text/x-test".to_owned()), ..Attributes::default() };
        let options = PutOptions { attributes: attributes.into(), ..PutOptions::default() };
        s.put_with("a b/é", bytes(1000, 1), &options).await;
        s.store.copy(&s.key("copy"), &source(s, "a b/é"), &PutOptions::default()).await.unwrap();
        assert!(s.read("copy", None).await.unwrap() == bytes(1000, 1));
        let copied = s.store.head(&s.key("copy")).await.unwrap();
        assert_eq!(copied.attributes.content_type.as_deref(), Some("text/x-test"));
        let attributes = Attributes { content_type: Some("text/other".to_owned()), ..Attributes::default() };
        let options = PutOptions { attributes: attributes.into(), ..PutOptions::default() };
        s.store.copy(&s.key("copy2"), &source(s, "a b/é"), &options).await.unwrap();
        let copied = s.store.head(&s.key("copy2")).await.unwrap();
        assert_eq!(copied.attributes.content_type.as_deref(), Some("text/other"));
    })
    .await;
}

#[tokio::test]
async fn a_copy_of_another_state_is_refused() {
    each(&[Ability::Copy, Ability::CopyPreconditions], async |s| {
        s.put("a", bytes(10, 1)).await;
        let etag = s.store.head(&s.key("a")).await.unwrap().etag;
        let mut from = source(s, "a");
        from.condition.etag = etag;
        s.store.copy(&s.key("b"), &from, &PutOptions::default()).await.unwrap();
        s.put("a", bytes(11, 2)).await;
        let result = s.store.copy(&s.key("b"), &from, &PutOptions::default()).await;
        assert_eq!(kind(result), Some(ErrorKind::PreconditionFailed));
    })
    .await;
}

#[tokio::test]
async fn parts_can_be_copied() {
    each(&[Ability::CopyPart], async |s| {
        let data = bytes(6 * 1024 * 1024, 3);
        s.put("a", data.clone()).await;
        let upload = s.store.open_upload(&s.key("b"), &PutOptions::default()).await.unwrap();
        let cut = 5 * 1024 * 1024;
        let mut tags = Vec::new();
        for (part, range) in [(1, 0..cut), (2, cut..data.len() as u64)] {
            let from = PartSource { range: Some(range), ..source(s, "a") };
            tags.push(s.store.copy_part(&s.key("b"), &upload, part, &from).await.unwrap());
        }
        let sums = Checksums::of_segments(std::slice::from_ref(&data));
        s.store.complete_upload(&s.key("b"), &upload, &tags, &sums, &PutOptions::default()).await.unwrap();
        assert!(s.read("b", None).await.unwrap() == data);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_copied_says_so() {
    each(&[], async |s| {
        if s.lacks(Ability::Copy) {
            let result = s.store.copy(&s.key("b"), &source(s, "a"), &PutOptions::default()).await;
            assert_eq!(kind(result), Some(ErrorKind::Unsupported));
            assert!(!s.store.can_copy_from(s.store.as_ref()));
        }
    })
    .await;
}
