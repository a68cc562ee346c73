//! Multipart uploads: parts in any order, from anywhere, once or twice.

use crate::harness::{Ability, Subject, bytes, each, kind};
use bytes::Bytes;
use tradewind_store::{Checksums, ErrorKind, PartTag, Payload, PutOptions, UploadId, open};

const MIB: usize = 1024 * 1024;

async fn put_part(s: &Subject, upload: &UploadId, part: u32, offset: usize, data: Bytes) -> PartTag {
    let payload = Payload::from(data);
    let sums = Checksums::of_segments(payload.segments());
    s.store.put_part(&s.key("big"), upload, part, offset as u64, payload, &sums).await.expect("put part")
}

#[tokio::test]
async fn parts_in_any_order_by_any_process_make_the_object() {
    each(&[], async |s| {
        let data = bytes(12 * MIB + 17, 1);
        let cut = [0..5 * MIB, 5 * MIB..10 * MIB, 10 * MIB..data.len()];
        let upload = s.store.open_upload(&s.key("big"), &PutOptions::default()).await.unwrap();
        assert_eq!(kind(s.store.head(&s.key("big")).await), Some(ErrorKind::NotFound));
        let mut tags = Vec::new();
        for part in [3, 1] {
            let range = cut[part - 1].clone();
            tags.push(put_part(s, &upload, part as u32, range.start, data.slice(range)).await);
        }
        // Another client writes the second part, where possible after other bytes under its number.
        if !s.lacks(Ability::ReplacedParts) {
            put_part(s, &upload, 2, 5 * MIB, bytes(5 * MIB, 99)).await;
        }
        let other = open(&s.config).unwrap();
        let payload = Payload::from(data.slice(cut[1].clone()));
        let sums = Checksums::of_segments(payload.segments());
        let upload = UploadId(upload.0.clone());
        tags.push(other.put_part(&s.key("big"), &upload, 2, 5 * MIB as u64, payload, &sums).await.unwrap());
        tags.sort_by_key(|tag| tag.part);
        let whole = Checksums::of_segments(std::slice::from_ref(&data));
        let options = PutOptions::default();
        let written = s.store.complete_upload(&s.key("big"), &upload, &tags, &whole, &options).await.unwrap();
        assert_ne!(whole.agrees_with(&written.checksums), Some(false), "{written:?}");
        if !s.lacks(Ability::UploadChecksums) {
            assert_eq!(whole.agrees_with(&written.checksums), Some(true), "{written:?}");
        }
        assert!(s.read("big", None).await.unwrap() == data);
        assert_eq!(s.names("").await, ["big"]);
        let late = s.store.complete_upload(&s.key("big"), &upload, &tags, &whole, &options).await;
        if s.name == "file" {
            assert_eq!(kind(late), Some(ErrorKind::UploadNotFound));
        }
    })
    .await;
}

#[tokio::test]
async fn one_part_is_enough() {
    each(&[], async |s| {
        let upload = s.store.open_upload(&s.key("big"), &PutOptions::default()).await.unwrap();
        let tag = put_part(s, &upload, 1, 0, bytes(1000, 2)).await;
        assert_eq!((tag.part, tag.size_bytes), (1, 1000));
        let sums = Checksums::of_segments(&[bytes(1000, 2)]);
        s.store.complete_upload(&s.key("big"), &upload, &[tag], &sums, &PutOptions::default()).await.unwrap();
        assert!(s.read("big", None).await.unwrap() == bytes(1000, 2));
    })
    .await;
}

#[tokio::test]
async fn an_aborted_upload_leaves_nothing() {
    each(&[Ability::Abort], async |s| {
        let upload = s.store.open_upload(&s.key("big"), &PutOptions::default()).await.unwrap();
        put_part(s, &upload, 1, 0, bytes(1000, 3)).await;
        s.store.abort_upload(&s.key("big"), &upload).await.unwrap();
        s.store.abort_upload(&s.key("big"), &upload).await.expect("a second abort is not an error");
        // On disk the directory that was made for it stays.
        assert!(s.names("").await.iter().all(String::is_empty));
        assert_eq!(kind(s.store.head(&s.key("big")).await), Some(ErrorKind::NotFound));
    })
    .await;
}

#[tokio::test]
async fn a_late_part_does_not_bring_an_upload_back() {
    each(&[Ability::AbortIsFinal], async |s| {
        let upload = s.store.open_upload(&s.key("big"), &PutOptions::default()).await.unwrap();
        s.store.abort_upload(&s.key("big"), &upload).await.unwrap();
        let payload = Payload::from(bytes(1000, 4));
        let late = s.store.put_part(&s.key("big"), &upload, 1, 0, payload, &Checksums::default()).await;
        assert_eq!(kind(late), Some(ErrorKind::UploadNotFound));
        let pending = s.store.pending_uploads(&s.key("big")).await.unwrap();
        assert!(pending.is_empty(), "{pending:?}");
    })
    .await;
}

#[tokio::test]
async fn unfinished_uploads_of_exactly_the_key_are_found() {
    each(&[Ability::PendingUploads], async |s| {
        let options = PutOptions::default();
        let mine = s.store.open_upload(&s.key("big"), &options).await.unwrap();
        put_part(s, &mine, 1, 0, bytes(10, 5)).await;
        let longer = s.store.open_upload(&s.key("big-brother"), &options).await.unwrap();
        let other = open(&s.config).unwrap();
        let pending = other.pending_uploads(&s.key("big")).await.unwrap();
        assert_eq!(pending.iter().map(|p| &p.upload).collect::<Vec<_>>(), [&mine]);
        // Azure does not report when an upload was opened.
        assert!(pending[0].opened_unix_ms > 1_000_000_000_000 || s.name == "azurite");
        s.store.abort_upload(&s.key("big"), &mine).await.unwrap();
        s.store.abort_upload(&s.key("big-brother"), &longer).await.unwrap();
        let left = s.store.pending_uploads(&s.key("big")).await.unwrap();
        assert!(left.is_empty() || s.lacks(Ability::AbortIsFinal), "{left:?}");
    })
    .await;
}

#[tokio::test]
async fn a_damaged_part_is_refused() {
    each(&[Ability::RefusesDamage], async |s| {
        let upload = s.store.open_upload(&s.key("big"), &PutOptions::default()).await.unwrap();
        let sums = Checksums::of_segments(&[bytes(100, 6)]);
        let payload = Payload::from(bytes(100, 7));
        let result = s.store.put_part(&s.key("big"), &upload, 1, 0, payload, &sums).await;
        assert_eq!(kind(result), Some(ErrorKind::ChecksumMismatch));
        s.store.abort_upload(&s.key("big"), &upload).await.unwrap();
    })
    .await;
}
