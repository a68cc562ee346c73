//! Symbolic links in file trees: they are reported or followed, and never lead out of the store unasked.

use crate::files::{following, root};
use crate::harness::{bytes, kind, on_files};
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use tradewind_store::{
    Checksums, ErrorKind, ListRequest, ObjectDeletion, Payload, Precondition, PutOptions, StoreConfig, keep_out_of,
    open,
};

#[tokio::test]
async fn links_are_reported_and_lead_nowhere() {
    on_files(async |s| {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), b"secret").unwrap();
        s.put("real", bytes(3, 0)).await;
        let base = root(s).join(&s.prefix);
        symlink(outside.path(), base.join("dir-link")).unwrap();
        symlink("real", base.join("file-link")).unwrap();
        symlink("nothing", base.join("broken")).unwrap();
        let page = s.store.list(&ListRequest { prefix: s.prefix.clone(), ..ListRequest::default() }).await.unwrap();
        assert_eq!(page.objects.len(), 1);
        assert_eq!(page.refused.len(), 3, "{:?}", page.refused);
        assert!(page.refused.iter().all(|error| error.kind == ErrorKind::Link), "{:?}", page.refused);
        for name in ["dir-link/secret", "file-link"] {
            assert_eq!(kind(s.read(name, None).await), Some(ErrorKind::Link), "{name}");
            assert_eq!(kind(s.store.head(&s.key(name)).await), Some(ErrorKind::Link), "{name}");
        }
        let payload = Payload::from(bytes(1, 0));
        let written = s.store.put(&s.key("dir-link/new"), payload, &Checksums::default(), &PutOptions::default()).await;
        assert_eq!(kind(written), Some(ErrorKind::InvalidKey));
        let upload = s.store.open_upload(&s.key("dir-link/new"), &PutOptions::default()).await;
        assert_eq!(kind(upload), Some(ErrorKind::InvalidKey));
        s.store.delete(&[ObjectDeletion::any(s.key("dir-link/secret"))]).await.unwrap().remove(0).unwrap_err();
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_resolved_root_that_becomes_a_link_is_not_followed() {
    on_files(async |s| {
        let outside = tempfile::tempdir().unwrap();
        let outside = outside.path().canonicalize().unwrap();
        std::fs::create_dir(outside.join("in")).unwrap();
        std::fs::write(outside.join("in/secret"), b"secret").unwrap();
        let base = root(s).canonicalize().unwrap().join(&s.prefix);
        let (top, url) = (base.join("top"), format!("file://{}", base.join("top/in").display()));
        let store = open(&StoreConfig { url, resolved_root: true, ..s.config.clone() }).unwrap();
        let put = async |key: &str| {
            store.put(key, Payload::from(bytes(3, 0)), &Checksums::default(), &PutOptions::default()).await
        };
        put("real").await.expect("the root is made");
        assert_eq!(store.list(&ListRequest::default()).await.unwrap().objects.len(), 1);
        // A directory of the root's path, and then the root itself.
        for (link, target) in [(&top, outside.clone()), (&top.join("in"), outside.join("in"))] {
            let moved = link.with_extension("moved");
            std::fs::rename(link, &moved).unwrap();
            symlink(&target, link).unwrap();
            let errors = [
                store.list(&ListRequest::default()).await.unwrap_err(),
                store.head("secret").await.unwrap_err(),
                store.get("secret", None, &Precondition::default()).await.map(drop).unwrap_err(),
                put("new").await.map(drop).unwrap_err(),
                put("deep/new").await.map(drop).unwrap_err(),
                store.open_upload("new", &PutOptions::default()).await.map(drop).unwrap_err(),
                store.delete(&[ObjectDeletion::any("secret".to_owned())]).await.unwrap().remove(0).unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.kind, ErrorKind::Forbidden, "{error}");
                assert!(error.message.contains("has become a symbolic link"), "{error}");
            }
            assert_eq!(std::fs::read_dir(outside.join("in")).unwrap().count(), 1);
            assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1, "no directory was made there");
            std::fs::remove_file(link).unwrap();
            std::fs::rename(&moved, link).unwrap();
        }
        assert_eq!(store.head("real").await.unwrap().size_bytes, 3);
    })
    .await;
}

#[tokio::test]
async fn links_are_followed_on_request_but_not_in_circles() {
    on_files(async |s| {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("x"), b"12345").unwrap();
        s.put("real", bytes(3, 0)).await;
        let base = root(s).join(&s.prefix);
        symlink(outside.path(), base.join("dir")).unwrap();
        symlink(".", base.join("circle")).unwrap();
        symlink("nothing", base.join("broken")).unwrap();
        symlink("pong", base.join("ping")).unwrap();
        symlink("ping", base.join("pong")).unwrap();
        let store = following(s);
        let page = store.list(&ListRequest { prefix: s.prefix.clone(), ..ListRequest::default() }).await.unwrap();
        let names: Vec<&str> = page.objects.iter().map(|object| &object.key[s.prefix.len()..]).collect();
        assert_eq!(names, ["dir/x", "real"]);
        assert_eq!(page.refused.len(), 4, "{:?}", page.refused);
        let broken = page.refused.iter().filter(|error| error.kind == ErrorKind::BrokenLink).count();
        assert_eq!(broken, 3, "all but the one that leads to a directory: {:?}", page.refused);
        let circle = page.refused.iter().find(|error| error.url.ends_with("/ping")).unwrap();
        assert!(circle.message.contains("loop"), "{circle}");
        assert_eq!(store.head(&s.key("dir/x")).await.unwrap().size_bytes, 5);
    })
    .await;
}

#[tokio::test]
async fn links_never_lead_to_the_place_that_the_store_keeps_out_of() {
    on_files(async |s| {
        let (outside, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let other = outside.path().join("other");
        std::fs::create_dir_all(other.join("folder")).unwrap();
        for name in ["file", "folder/x"] {
            std::fs::write(other.join(name), b"12345").unwrap();
        }
        std::fs::write(elsewhere.path().join("x"), b"12345").unwrap();
        s.put("real", bytes(3, 0)).await;
        let base = root(s).join(&s.prefix);
        let store = following(s);
        let config = StoreConfig { url: format!("file://{}", other.display()), ..StoreConfig::default() };
        keep_out_of(store.as_ref(), (open(&config).unwrap().as_ref(), ""));
        symlink(elsewhere.path(), base.join("fine")).unwrap();
        let names = async || -> BTreeSet<String> {
            let page = store.list(&ListRequest { prefix: s.prefix.clone(), ..ListRequest::default() }).await.unwrap();
            page.objects.iter().map(|object| object.key[s.prefix.len()..].to_owned()).collect()
        };
        let expected = ["fine/x".to_owned(), "real".to_owned()].into();
        assert_eq!(names().await, expected);
        // Links that appear after the first listing.
        for (name, end) in [
            ("into", other.join("folder")),
            ("whole", other.clone()),
            ("above", outside.path().to_owned()),
            ("file", other.join("file")),
            ("missing", other.join("new")),
        ] {
            symlink(end, base.join(name)).unwrap();
        }
        assert_eq!(names().await, expected);
        for name in ["into/x", "whole/file", "above/other/file", "file"] {
            assert_eq!(kind(store.head(&s.key(name)).await), Some(ErrorKind::InvalidKey), "{name}");
        }
        let deletion = ObjectDeletion::any(s.key("into/x"));
        assert_eq!(kind(store.delete(&[deletion]).await.unwrap().remove(0)), Some(ErrorKind::InvalidKey));
        assert!(other.join("folder/x").exists());
        // A directory that was checked can be replaced by a link.
        std::fs::remove_file(base.join("fine")).unwrap();
        symlink(&other, base.join("fine")).unwrap();
        assert_eq!(names().await, ["real".to_owned()].into());
    })
    .await;
}

#[tokio::test]
async fn a_link_to_a_directory_above_the_listed_one_is_refused_before_it_is_entered() {
    on_files(async |s| {
        s.put("deep/listed/x", bytes(3, 0)).await;
        s.put("deep/beside", bytes(3, 0)).await;
        let base = root(s).join(&s.prefix);
        symlink("../..", base.join("deep/listed/up")).unwrap();
        let prefix = s.key("deep/listed/");
        let page = following(s).list(&ListRequest { prefix, ..ListRequest::default() }).await.unwrap();
        let keys: Vec<&str> = page.objects.iter().map(|object| object.key.as_str()).collect();
        assert_eq!(keys, [s.key("deep/listed/x")]);
        assert_eq!(page.refused.len(), 1, "{:?}", page.refused);
        assert!(page.refused[0].message.contains("above"), "{:?}", page.refused);
    })
    .await;
}
