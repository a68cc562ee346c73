//! Conditional writes: a write succeeds only if the object is in the expected state.

use crate::harness::{Ability, Subject, bytes, each, kind};
use bytes::Bytes;
use tradewind_store::{
    Checksums, ErrorKind, Expect, PartSource, Payload, Precondition, PutOptions, Result, UploadId, Written,
};

/// Ways to make an object visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Put,
    Upload,
    Copy,
}

fn options(expect: Expect) -> PutOptions {
    PutOptions { expect: Some(expect), ..PutOptions::default() }
}

async fn write(s: &Subject, how: Write, data: Bytes, expect: Expect) -> Result<Written> {
    let (key, options) = (s.key("k"), options(expect));
    let sums = Checksums::of_segments(std::slice::from_ref(&data));
    match how {
        Write::Put => s.store.put(&key, data.into(), &sums, &options).await,
        Write::Upload => {
            let upload = s.store.open_upload(&key, &options).await?;
            let written = complete(s, &upload, data, &options).await;
            if written.is_err() {
                s.store.abort_upload(&key, &upload).await?;
            }
            written
        }
        Write::Copy => {
            s.put("from", data).await;
            let bucket = s.config.url.rsplit('/').next().unwrap_or_default().to_owned();
            let (key_from, condition) = (s.key("from"), Precondition::default());
            let source = PartSource { bucket, key: key_from, condition, range: None };
            s.store.copy(&key, &source, &options).await
        }
    }
}

async fn complete(s: &Subject, upload: &UploadId, data: Bytes, options: &PutOptions) -> Result<Written> {
    let sums = Checksums::of_segments(std::slice::from_ref(&data));
    let tag = s.store.put_part(&s.key("k"), upload, 1, 0, Payload::from(data), &sums).await?;
    s.store.complete_upload(&s.key("k"), upload, &[tag], &sums, options).await
}

async fn seen(s: &Subject) -> Expect {
    Expect::seen(Some(&s.store.head(&s.key("k")).await.unwrap()))
}

async fn check(s: &Subject, how: Write) {
    let (one, two, three) = (bytes(100, 1), bytes(200, 2), bytes(300, 3));
    let refused = Some(ErrorKind::PreconditionFailed);
    write(s, how, one.clone(), Expect::Absent).await.unwrap();
    let first = seen(s).await;
    assert_eq!(kind(write(s, how, two.clone(), Expect::Absent).await), refused, "{how:?}: something is there");
    assert!(s.read("k", None).await.unwrap() == one);
    write(s, how, two.clone(), first.clone()).await.unwrap();
    assert!(s.read("k", None).await.unwrap() == two);
    assert_eq!(kind(write(s, how, three, first.clone()).await), refused, "{how:?}: something else is there");
    assert!(s.read("k", None).await.unwrap() == two);
    s.store.delete(&crate::harness::any(&[s.key("k")])).await.unwrap();
    let missing = kind(write(s, how, one, first).await);
    // A copy cannot report which of the two objects is missing.
    let expected = missing == refused || how == Write::Copy && missing == Some(ErrorKind::NotFound);
    assert!(expected, "{how:?}: nothing is there: {missing:?}");
    assert_eq!(kind(s.store.head(&s.key("k")).await), Some(ErrorKind::NotFound));
}

#[tokio::test]
async fn an_object_replaces_what_was_expected_and_nothing_else() {
    each(&[Ability::PutConditions], async |s| check(s, Write::Put).await).await;
}

#[tokio::test]
async fn an_upload_replaces_what_was_expected_and_nothing_else() {
    each(&[Ability::UploadConditions], async |s| check(s, Write::Upload).await).await;
}

#[tokio::test]
async fn a_copy_replaces_what_was_expected_and_nothing_else() {
    each(&[Ability::Copy, Ability::ReplacingCopyConditions], async |s| check(s, Write::Copy).await).await;
}

#[tokio::test]
async fn a_refused_upload_can_be_completed_on_another_condition() {
    each(&[Ability::UploadConditions], async |s| {
        s.put("k", bytes(10, 1)).await;
        let (key, data) = (s.key("k"), bytes(100, 2));
        let sums = Checksums::of_segments(std::slice::from_ref(&data));
        let upload = s.store.open_upload(&key, &PutOptions::default()).await.unwrap();
        let tag = s.store.put_part(&key, &upload, 1, 0, Payload::from(data.clone()), &sums).await.unwrap();
        let refused =
            s.store.complete_upload(&key, &upload, std::slice::from_ref(&tag), &sums, &options(Expect::Absent)).await;
        assert_eq!(kind(refused), Some(ErrorKind::PreconditionFailed));
        let now = seen(s).await;
        s.store.complete_upload(&key, &upload, &[tag], &sums, &options(now)).await.unwrap();
        assert!(s.read("k", None).await.unwrap() == data);
    })
    .await;
}
