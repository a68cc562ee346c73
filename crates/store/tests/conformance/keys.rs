//! Keys are exact, or refused by name.

use crate::harness::{Ability, Subject, any, bytes, each, kind};
use tradewind_store::{Checksums, ErrorKind, Payload, PutOptions};

async fn round_trip(s: &Subject, names: &[&str]) {
    for (index, name) in names.iter().enumerate() {
        s.put(name, bytes(10 + index, index as u64)).await;
    }
    for (index, name) in names.iter().enumerate() {
        assert!(s.read(name, None).await.expect("read") == bytes(10 + index, index as u64), "{name:?}");
        assert_eq!(s.store.head(&s.key(name)).await.expect("head").size_bytes, 10 + index as u64, "{name:?}");
    }
    let mut sorted: Vec<&str> = names.to_vec();
    sorted.sort_unstable();
    if s.lacks(Ability::ByteOrder) {
        let mut listed = s.names("").await;
        listed.sort_unstable();
        assert_eq!(listed, sorted);
    } else {
        assert_eq!(s.names("").await, sorted);
    }
}

#[tokio::test]
async fn names_with_spaces_signs_and_unicode() {
    let names = [
        "with space",
        " leading",
        "trailing ",
        "trailing",
        "\u{a0}no-break\u{a0}",
        "a+b",
        "a%20b",
        "a&b=c",
        "q?x#y",
        "é",
        "日本語/ключ",
        "emoji-🚢",
        "quote\"'`",
        "{braces}[brackets]",
        "semi;colon:",
        "a,b",
        "@$!*()",
        "~tilde",
        "<tag>",
        "dot.",
    ];
    each(&[], async |s| round_trip(s, &names).await).await;
}

#[tokio::test]
async fn neighbours_in_byte_order() {
    // `-` and `.` sort before `/`, `0` after it: a walk that forgets the slash of directories gets this wrong.
    let names = ["a-b", "a.b", "a/b", "a/b-c", "a/c/d", "a0", "a1/x", "ab", "A/z", "Z"];
    each(&[], async |s| round_trip(s, &names).await).await;
}

#[tokio::test]
async fn backslashes() {
    each(&[Ability::Backslash], async |s| round_trip(s, &["a\\b", "c\\d/e\\f"]).await).await;
}

#[tokio::test]
async fn empty_segments() {
    let names = ["a//b", "/lead", "x///y", "a/b"];
    each(&[Ability::EmptySegments], async |s| round_trip(s, &names).await).await;
}

#[tokio::test]
async fn dot_segments() {
    let names = ["a/../b", "a/./c", "d/..", "./e"];
    each(&[Ability::DotSegments], async |s| round_trip(s, &names).await).await;
}

#[tokio::test]
async fn a_key_beside_keys_below_it() {
    each(&[Ability::FileBesideDirectory], async |s| round_trip(s, &["a", "a/b", "a/b/c"]).await).await;
}

#[tokio::test]
async fn the_longest_keys() {
    each(&[Ability::LongSegments], async |s| {
        let name = "k".repeat(1024 - s.prefix.len());
        round_trip(s, &[&name]).await;
    })
    .await;
}

#[tokio::test]
async fn long_keys_of_many_segments() {
    each(&[], async |s| {
        let mut name = "segment/".repeat(100);
        name.truncate(900);
        let name = format!("{}x", name.trim_end_matches('/'));
        round_trip(s, &[&name]).await;
    })
    .await;
}

#[tokio::test]
async fn directory_markers() {
    each(&[Ability::Markers], async |s| {
        s.put("dir/", bytes(0, 0)).await;
        s.put("full/x", bytes(1, 0)).await;
        assert_eq!(s.names("").await, ["dir/", "full/x"]);
        assert_eq!(s.store.head(&s.key("dir/")).await.unwrap().size_bytes, 0);
        assert_eq!(s.read("dir/", None).await.unwrap(), b"");
        assert_eq!(s.names("dir/").await, ["dir/"]);
        s.store.delete(&any(&[s.key("dir/")])).await.unwrap().remove(0).unwrap();
        assert_eq!(s.names("").await, ["full/x"]);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_held_is_refused_by_name() {
    each(&[], async |s| {
        let mut wrong = vec![String::new(), "x".repeat(s.store.limits().key_bytes_max + 1)];
        if s.name == "file" {
            wrong.extend(["a//b", "/a", "..", "a/../b", "a/.", "nul\0", &"x".repeat(256)].map(str::to_owned));
        }
        for key in wrong {
            let payload = Payload::from(bytes(1, 0));
            let result = s.store.put(&key, payload, &Checksums::default(), &PutOptions::default()).await;
            let error = result.unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidKey, "{key:?}");
            assert!(error.url.ends_with(&key));
            let opened = s.store.open_upload(&key, &PutOptions::default()).await;
            assert_eq!(kind(opened), Some(ErrorKind::InvalidKey), "{key:?}");
        }
    })
    .await;
}
