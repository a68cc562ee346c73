//! Whole objects: written, read, replaced, deleted.

use crate::harness::{Ability, any, bytes, each, kind, state_of};
use bytes::Bytes;
use tradewind_store::{Checksums, ErrorKind, ObjectDeletion, Payload, Precondition, PutOptions};

#[tokio::test]
async fn what_is_put_is_read_back() {
    each(&[], async |s| {
        let data = bytes(3_000_017, 1);
        s.put("a", data.clone()).await;
        let info = s.store.head(&s.key("a")).await.unwrap();
        assert_eq!(info.size_bytes, 3_000_017);
        assert_eq!(info.key, s.key("a"));
        assert!(info.modified_unix_ms > 1_600_000_000_000, "{info:?}");
        assert!(s.read("a", None).await.unwrap() == data);
    })
    .await;
}

#[tokio::test]
async fn payloads_of_many_segments_arrive_in_order() {
    each(&[], async |s| {
        let whole = bytes(1_000_003, 2);
        let segments: Vec<Bytes> =
            (0..whole.len()).step_by(9973).map(|at| whole.slice(at..whole.len().min(at + 9973))).collect();
        let sums = Checksums::of_segments(&segments);
        s.store.put(&s.key("a"), Payload::new(segments), &sums, &PutOptions::default()).await.unwrap();
        assert!(s.read("a", None).await.unwrap() == whole);
    })
    .await;
}

#[tokio::test]
async fn empty_objects_are_objects() {
    each(&[], async |s| {
        s.put("empty", Bytes::new()).await;
        assert_eq!(s.store.head(&s.key("empty")).await.unwrap().size_bytes, 0);
        assert_eq!(s.read("empty", None).await.unwrap(), b"");
        assert_eq!(s.names("").await, ["empty"]);
    })
    .await;
}

#[tokio::test]
async fn ranges_are_exact() {
    each(&[], async |s| {
        let data = bytes(2_500_000, 3);
        s.put("a", data.clone()).await;
        let mut ranges = vec![0..2_500_000, 7..1_048_600, 2_499_999..2_500_000, 1_000_000..2_500_000, 5..5];
        if !s.lacks(Ability::FirstByte) {
            ranges.push(0..1);
        }
        for range in ranges {
            let read = s.read("a", Some(range.clone())).await.unwrap();
            assert!(read == data[range.start as usize..range.end as usize], "{range:?}");
        }
        let download = s.store.get(&s.key("a"), Some(1..2), &Precondition::default()).await.unwrap();
        assert_eq!(download.info.size_bytes, 2_500_000, "size is that of the whole object");
    })
    .await;
}

#[tokio::test]
async fn a_range_beyond_the_end_is_an_error_and_no_short_success() {
    each(&[], async |s| {
        s.put("a", bytes(100, 4)).await;
        for range in [50..200, 200..300] {
            assert_eq!(kind(s.read("a", Some(range)).await), Some(ErrorKind::Truncated));
        }
    })
    .await;
}

#[tokio::test]
async fn a_read_of_another_state_is_refused() {
    each(&[Ability::Preconditions], async |s| {
        s.put("a", bytes(1000, 5)).await;
        let before = s.store.head(&s.key("a")).await.unwrap();
        assert_eq!(s.read_if("a", None, &state_of(&before)).await.unwrap().len(), 1000);
        s.put("a", bytes(1001, 6)).await;
        assert_eq!(kind(s.read_if("a", None, &state_of(&before)).await), Some(ErrorKind::PreconditionFailed));
        let ranged = s.read_if("a", Some(0..10), &state_of(&before)).await;
        assert_eq!(kind(ranged), Some(ErrorKind::PreconditionFailed));
    })
    .await;
}

#[tokio::test]
async fn a_put_replaces() {
    each(&[], async |s| {
        s.put("a", bytes(10, 7)).await;
        s.put("a", bytes(20, 8)).await;
        assert!(s.read("a", None).await.unwrap() == bytes(20, 8));
        assert_eq!(s.names("").await, ["a"]);
    })
    .await;
}

#[tokio::test]
async fn deleting_gives_a_verdict_per_key_and_forgives_absence() {
    each(&[], async |s| {
        for name in ["a", "b c", "d/é&<>\"'"] {
            s.put(name, bytes(5, 9)).await;
        }
        let keys: Vec<String> = ["a", "absent", "b c", "d/é&<>\"'"].iter().map(|name| s.key(name)).collect();
        let verdicts = s.delete(&keys).await;
        assert_eq!(verdicts.len(), 4);
        assert!(verdicts.iter().all(Result::is_ok), "{verdicts:?}");
        assert_eq!(kind(s.store.head(&keys[0]).await), Some(ErrorKind::NotFound));
        assert_eq!(kind(s.store.head(&keys[3]).await), Some(ErrorKind::NotFound));
        assert!(s.store.delete(&any(&keys[..1])).await.unwrap()[0].is_ok());
    })
    .await;
}

#[tokio::test]
async fn only_an_object_in_the_state_that_was_seen_is_deleted() {
    each(&[], async |s| {
        for name in ["same", "rewritten", "gone"] {
            s.put(name, bytes(5, 20)).await;
        }
        let mut deletion = Vec::new();
        for name in ["same", "rewritten", "gone"] {
            let info = s.store.head(&s.key(name)).await.unwrap();
            deletion.push(ObjectDeletion { key: s.key(name), condition: Precondition::exact(&info) });
        }
        s.put("rewritten", bytes(5, 21)).await;
        s.store.delete(&any(&[s.key("gone")])).await.unwrap().remove(0).unwrap();
        for several in [&deletion[1..2], &deletion[..]] {
            let verdicts = s.store.delete(several).await.unwrap();
            let kinds: Vec<Option<ErrorKind>> = verdicts.into_iter().map(kind).collect();
            let expected: Vec<Option<ErrorKind>> = several
                .iter()
                .map(|one| one.key.ends_with("rewritten").then_some(ErrorKind::PreconditionFailed))
                .collect();
            assert_eq!(kinds, expected);
        }
        assert_eq!(s.names("").await, ["rewritten"]);
        assert!(s.read("rewritten", None).await.unwrap() == bytes(5, 21));
    })
    .await;
}

#[tokio::test]
async fn a_write_says_which_object_it_made() {
    each(&[], async |s| {
        let written = s.put("a", bytes(5, 22)).await;
        let made = Precondition::written(&written);
        assert!(!made.is_any());
        assert_eq!(made.difference(&s.store.head(&s.key("a")).await.unwrap()), None);
        assert_eq!(s.read_if("a", None, &made).await.unwrap().len(), 5);
        s.put("a", bytes(5, 23)).await;
        assert_eq!(kind(s.read_if("a", None, &made).await), Some(ErrorKind::PreconditionFailed));
    })
    .await;
}

#[tokio::test]
async fn the_store_states_a_checksum_that_agrees() {
    each(&[Ability::Checksums], async |s| {
        let data = bytes(70_000, 10);
        let written = s.put("a", data.clone()).await;
        let sums = Checksums { md5: Some(md5_of(&data)), ..Checksums::of_segments(&[data]) };
        let head = s.store.head(&s.key("a")).await.unwrap();
        assert_eq!(sums.agrees_with(&head.checksums), Some(true), "{:?}", head.checksums);
        assert_ne!(sums.agrees_with(&written.checksums), Some(false), "{:?}", written.checksums);
    })
    .await;
}

fn md5_of(data: &[u8]) -> [u8; 16] {
    use md5::Digest;
    md5::Md5::digest(data).into()
}

#[tokio::test]
async fn damaged_bytes_are_refused() {
    each(&[Ability::RefusesDamage], async |s| {
        let sums = Checksums::of_segments(&[bytes(100, 11)]);
        let payload = Payload::from(bytes(100, 12));
        let result = s.store.put(&s.key("a"), payload, &sums, &PutOptions::default()).await;
        assert_eq!(kind(result), Some(ErrorKind::ChecksumMismatch));
        assert_eq!(kind(s.store.head(&s.key("a")).await), Some(ErrorKind::NotFound));
    })
    .await;
}

#[tokio::test]
async fn many_writes_at_once() {
    each(&[], async |s| {
        let names: Vec<String> = (0..64).map(|index| format!("k{index:03}")).collect();
        let puts = names.iter().map(|name| s.put(name, bytes(1000, name.len() as u64)));
        futures::future::join_all(puts).await;
        assert_eq!(s.names("").await, names);
        let reads = names.iter().map(|name| s.read(name, None));
        assert!(futures::future::join_all(reads).await.into_iter().all(|read| read.unwrap().len() == 1000));
    })
    .await;
}
