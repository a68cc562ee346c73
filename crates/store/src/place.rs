//! Compares two places: two names may denote one bucket, and two paths one directory.
//!
//! A place is a store and a prefix in it. [`kinship`] compares two places by identity, not by their names. It makes no
//! request. Where the names cannot decide (another host name, another bucket of a private server, a file system behind
//! a server), [`Kinship::proven`] is false; then [`compare_objects`] compares single objects.

use crate::file::{self, FileStore};
use crate::identity::{Identity, Kinship, Likeness, Relation};
use crate::{ErrorKind, ListRequest, ObjectInfo, Result, Store};
use icu_normalizer::DecomposingNormalizerBorrowed;

/// Returns how the place `first` (store and prefix) relates to `second`. A prefix is empty or ends in `/`.
///
/// # Errors
/// The system does not report its mounts.
pub async fn kinship(first: (&dyn Store, &str), second: (&dyn Store, &str)) -> Result<Kinship> {
    match (first.0.identity(), second.0.identity()) {
        (Identity::Memory, _) | (_, Identity::Memory) => Ok(Kinship { relation: Relation::Apart, proven: true }),
        (Identity::Files(one), Identity::Files(other)) => {
            let (one, other) = (one.join(first.1), other.join(second.1));
            file::directory_kinship(one, other).await.map_err(|error| {
                crate::Error::new(
                    ErrorKind::Server,
                    "compare places",
                    second.0.url(),
                    format!("cannot read the list of mounts: {error}"),
                )
            })
        }
        (Identity::Bucket(one), Identity::Bucket(other)) => {
            let is_one = one.service == other.service && one.bucket == other.bucket;
            let relation = prefix_relation(first.1, second.1);
            let as_paths = prefix_relation(&as_path(first.1), &as_path(second.1));
            Ok(match is_one {
                // A server that keeps objects as files may treat `a//b`, `a/./b`, `a/x/../b` and `A/B` as `a/b`.
                true if relation == Relation::Apart && as_paths != relation && !one.decisive => {
                    Kinship { relation: as_paths, proven: false }
                }
                true => Kinship { relation, proven: true },
                false if one.decisive && other.decisive => Kinship { relation: Relation::Apart, proven: true },
                false => Kinship { relation, proven: false },
            })
        }
        // A server may serve this machine's files as a bucket.
        _ => Ok(Kinship { relation: Relation::Apart, proven: false }),
    }
}

/// Like [`kinship`], for two objects: [`Relation::Same`] or [`Relation::Apart`]. Two hard links of one file are the
/// same.
///
/// # Errors
/// As [`kinship`].
pub async fn object_kinship(first: (&dyn Store, &str), second: (&dyn Store, &str)) -> Result<Kinship> {
    if let (Identity::Files(one), Identity::Files(other)) = (first.0.identity(), second.0.identity()) {
        return Ok(file::file_kinship(one.join(first.1), other.join(second.1)).await);
    }
    let found = kinship((first.0, ""), (second.0, "")).await?;
    let same = found.relation == Relation::Same && first.1 == second.1;
    let may_be_same = !same && is_undecided(first.0) && as_path(first.1) == as_path(second.1);
    Ok(Kinship { relation: if same { Relation::Same } else { Relation::Apart }, proven: found.proven && !may_be_same })
}

/// Returns whether it is unknown how the server interprets keys.
fn is_undecided(store: &dyn Store) -> bool {
    matches!(store.identity(), Identity::Bucket(bucket) if !bucket.decisive)
}

/// A key as a file system may interpret it: without empty segments and `.`, with `..` resolved, a backslash as a slash,
/// and ignoring case and Unicode normalization. A `/` at the end stays.
pub(crate) fn as_path(key: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in key.split(['/', '\\']) {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let slash = if key.ends_with('/') && !segments.is_empty() { "/" } else { "" };
    folded(&format!("{}{slash}", segments.join("/")))
}

/// Returns `key`, which lies below `prefix`, with the part that `prefix` and `other` share spelled as in `other`. The
/// result is a different key, but the same object on a server that treats both spellings as one.
pub fn respelled(key: &str, prefix: &str, other: &str) -> String {
    let shared = depth(prefix).min(depth(other));
    format!("{}{}", &other[..end_at_depth(other, shared)], &key[end_at_depth(prefix, shared)..])
}

fn depth(prefix: &str) -> usize {
    ends(prefix).last().map_or(0, |(_, depth)| depth)
}

/// The end of the last segment of `prefix` that leads to a directory at the depth `wanted`.
fn end_at_depth(prefix: &str, wanted: usize) -> usize {
    ends(prefix).filter(|(_, depth)| *depth == wanted).last().map_or(0, |(end, _)| end)
}

/// The end of each segment of a prefix, with the depth of the directory that it leads to.
fn ends(prefix: &str) -> impl Iterator<Item = (usize, usize)> {
    prefix.split_inclusive('/').scan((0, 0_usize), |(end, depth), segment| {
        *end += segment.len();
        *depth = match segment.trim_end_matches('/') {
            "" | "." => *depth,
            ".." => depth.saturating_sub(1),
            _ => *depth + 1,
        };
        Some((*end, *depth))
    })
}

/// One folded form for all names that differ only in case or in Unicode normalization.
fn folded(name: &str) -> String {
    let normalizer = DecomposingNormalizerBorrowed::new_nfkd();
    // Upper case first: `ß` and `SS` are one name where case does not matter.
    let lower = normalizer.normalize(name).to_uppercase().to_lowercase();
    normalizer.normalize(&lower).into_owned()
}

/// One form for all keys that the server of `store` may treat as `key`. A server that keeps objects as files may treat
/// `a//b`, `a/./b`, `a/x/../b`, `a\b` and `A/B` as `a/b`. `None` where each key is a distinct name: at the clouds, in
/// memory and in files.
pub fn name_form(store: &dyn Store, key: &str) -> Option<String> {
    is_undecided(store).then(|| as_path(key))
}

/// One form for all names that a server or a file system may treat as `name`, also one that leaves out dots and spaces at
/// the end.
pub fn loose_form(name: &str) -> String {
    as_path(name).trim_end_matches(['.', ' ']).to_owned()
}

/// The entry of exactly this key in a listing; `None` if listing is forbidden.
///
/// # Errors
/// The store's error for a listing.
pub async fn entry_of(store: &dyn Store, key: &str) -> Result<Option<Option<ObjectInfo>>> {
    let request = ListRequest { prefix: key.to_owned(), max_keys: Some(1), ..ListRequest::default() };
    match store.list(&request).await {
        Ok(page) => Ok(Some(page.objects.into_iter().find(|object| object.key == key))),
        Err(error) if error.kind == ErrorKind::Forbidden => Ok(None),
        Err(error) => Err(error),
    }
}

/// Compares an object with its counterpart in another place. Costs a `HEAD` each, another one of the first object
/// if they differ, and a listing of one key each if only their times differ and a server may be a compatible one.
///
/// # Errors
/// The store's error for a `head`.
pub async fn compare_objects(first: (&dyn Store, &str), second: (&dyn Store, &str)) -> Result<Likeness> {
    if let (Some(one), Some(other)) = (as_files(first.0), as_files(second.0)) {
        return Ok(file::compare_states(one.path_of(first.1), other.path_of(second.1)).await);
    }
    let Some(ours) = if_there(first).await? else { return Ok(Likeness::Absent) };
    let theirs = if_there(second).await?;
    let is_one_kind = std::mem::discriminant(&first.0.identity()) == std::mem::discriminant(&second.0.identity());
    if let Some(theirs) = theirs
        && has_one_content(&ours, &theirs, is_one_kind)
        && (has_one_time(&ours, &theirs) || is_listed_with_one_time((first, &ours), (second, &theirs)).await?)
    {
        return Ok(Likeness::Alike);
    }
    let again = if_there(first).await?;
    let is_stable = again.is_some_and(|again| {
        has_one_content(&ours, &again, true) && has_one_time(&ours, &again) && ours.etag == again.etag
    });
    Ok(if is_stable { Likeness::Different } else { Likeness::Unstable })
}

async fn if_there(object: (&dyn Store, &str)) -> Result<Option<ObjectInfo>> {
    match object.0.head(object.1).await {
        Ok(info) => Ok(Some(info)),
        // Some servers answer 400 to a name that they do not allow.
        Err(error) if is_absent(error.kind) || error.kind == ErrorKind::BadRequest => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether listings state the same time for both objects. `rclone serve s3` answers a `HEAD` with the time at
/// which it received the object, and lists the time of the file.
async fn is_listed_with_one_time(
    one: ((&dyn Store, &str), &ObjectInfo),
    other: ((&dyn Store, &str), &ObjectInfo),
) -> Result<bool> {
    if !is_undecided(one.0.0) && !is_undecided(other.0.0) {
        return Ok(false);
    }
    Ok(has_one_time(&as_listed(one.0, one.1).await?, &as_listed(other.0, other.1).await?))
}

/// The object as a compatible server lists it; `seen` if it lists none, and in other stores.
async fn as_listed(object: (&dyn Store, &str), seen: &ObjectInfo) -> Result<ObjectInfo> {
    let (store, key) = object;
    let listed = if is_undecided(store) { entry_of(store, key).await?.flatten() } else { None };
    Ok(listed.unwrap_or_else(|| seen.clone()))
}

fn has_one_time(one: &ObjectInfo, other: &ObjectInfo) -> bool {
    one.modified_unix_ms.div_euclid(1000) == other.modified_unix_ms.div_euclid(1000)
}

/// Returns whether both may describe one object, but for its time. ETags and versions are compared only between stores
/// of one kind, and ETags only if both are MD5s: two servers of one folder may have their own for objects of parts.
fn has_one_content(one: &ObjectInfo, other: &ObjectInfo, is_one_kind: bool) -> bool {
    let may_be_equal = |one: Option<&String>, other: Option<&String>| match (one, other) {
        (Some(one), Some(other)) if is_one_kind => one == other,
        _ => true,
    };
    let md5 = |tag: &'_ &String| tag.len() == 32 && tag.bytes().all(|byte| byte.is_ascii_hexdigit());
    one.size_bytes == other.size_bytes
        && may_be_equal(one.etag.as_ref().filter(md5), other.etag.as_ref().filter(md5))
        && may_be_equal(one.version.as_ref(), other.version.as_ref())
}

/// Makes `store` refuse symbolic links that lead to the place `other` (store and prefix or key), or to a directory
/// above it. Has an effect only if both stores are files and links are followed. Makes no request.
pub fn keep_out_of(store: &dyn Store, other: (&dyn Store, &str)) {
    if let (Some(files), Some(others)) = (as_files(store), as_files(other.0)) {
        files.keep_out_of(others.path_of(other.1));
    }
}

/// Makes `store` refuse symbolic links to directories: their contents belong to another place and must not be deleted.
/// Links to files are still followed. Has an effect only for files. Makes no request.
pub fn follow_no_directories(store: &dyn Store) {
    if let Some(files) = as_files(store) {
        files.follow_no_directories();
    }
}

pub(crate) fn is_absent(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::BucketNotFound | ErrorKind::InvalidKey)
}

fn as_files(store: &dyn Store) -> Option<&FileStore> {
    store.as_any().downcast_ref()
}

fn prefix_relation(first: &str, second: &str) -> Relation {
    match (first.starts_with(second), second.starts_with(first)) {
        (true, true) => Relation::Same,
        (true, false) => Relation::FirstWithin,
        (false, true) => Relation::SecondWithin,
        (false, false) => Relation::Apart,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StoreConfig, open};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn store(url: &str, endpoint: Option<&str>, path_style: Option<bool>) -> Arc<dyn Store> {
        let region = Some("eu-west-1".to_owned());
        let endpoint = endpoint.map(str::to_owned);
        let (url, anonymous, extra) = (url.to_owned(), true, BTreeMap::new());
        open(&StoreConfig { url, endpoint, region, path_style, anonymous, extra, ..StoreConfig::default() }).unwrap()
    }

    async fn of(one: &Arc<dyn Store>, other: &Arc<dyn Store>) -> Kinship {
        kinship((one.as_ref(), "p/"), (other.as_ref(), "p/")).await.unwrap()
    }

    #[tokio::test]
    async fn keys_that_a_file_system_may_treat_as_one_are_undecided() {
        let private = store("s3://b", Some("http://127.0.0.1:9"), None);
        let cloud = store("s3://b", None, None);
        for (one, other, relation) in [
            ("par/tt/", "par//tt/", Relation::Same),
            ("par/./tt/", "par/tt/", Relation::Same),
            ("par/", "par/x/../ss/", Relation::SecondWithin),
            ("par//ss/", "par/", Relation::FirstWithin),
            ("par/tt/", "PAR/tt/", Relation::Same),
            ("straße/", "STRASSE/", Relation::Same),
            ("caf\u{e9}/", "cafe\u{301}/x/", Relation::SecondWithin),
        ] {
            let found = kinship((private.as_ref(), one), (private.as_ref(), other)).await.unwrap();
            let literal = prefix_relation(one, other);
            let proven = literal != Relation::Apart;
            assert_eq!(found, Kinship { relation: if proven { literal } else { relation }, proven }, "{one} {other}");
            let found = kinship((cloud.as_ref(), one), (cloud.as_ref(), other)).await.unwrap();
            assert_eq!(found, Kinship { relation: literal, proven: true }, "{one} {other}");
        }
        let found = object_kinship((private.as_ref(), "a//k"), (private.as_ref(), "a/k")).await.unwrap();
        assert_eq!(found, Kinship { relation: Relation::Apart, proven: false });
        let found = object_kinship((private.as_ref(), "a/k"), (private.as_ref(), "a/l")).await.unwrap();
        assert_eq!(found, Kinship { relation: Relation::Apart, proven: true });
    }

    #[test]
    fn only_private_servers_may_treat_two_keys_as_one() {
        let private = store("s3://b", Some("http://127.0.0.1:9"), None);
        let form = |key| name_form(private.as_ref(), key).unwrap();
        assert_eq!(form("/Y//./z"), form("y/Z"));
        assert_eq!(form("y\\z"), form("y/z"));
        assert_ne!(form("y/z"), form("y/z/"));
        assert_eq!(name_form(store("s3://b", None, None).as_ref(), "y//z"), None);
    }

    #[test]
    fn a_key_is_respelled_like_the_other_prefix() {
        for (key, prefix, other, expected) in [
            ("x/a/b", "x/", "X/", "X/a/b"),
            ("x/a", "x/", "X/sub/", "X/a"),
            ("X/sub/a", "X/sub/", "x/", "x/sub/a"),
            ("par//ss/a", "par//ss/", "par/", "par/ss/a"),
            ("par/ss/a", "par/ss/", "par//", "par//ss/a"),
            ("par/a", "par/", "par/x/../ss/", "par/x/../a"),
        ] {
            assert_eq!(respelled(key, prefix, other), expected);
            assert_eq!(as_path(expected), as_path(key), "one name");
        }
    }

    const SAME: Kinship = Kinship { relation: Relation::Same, proven: true };
    const APART: Kinship = Kinship { relation: Relation::Apart, proven: true };
    const UNKNOWN: Kinship = Kinship { relation: Relation::Same, proven: false };

    #[tokio::test]
    async fn spellings_of_one_endpoint_are_one_place() {
        let first = store("s3://bbb", Some("http://127.0.0.1:9000"), None);
        for endpoint in
            ["http://localhost:9000/", "http://LOCALHOST:9000", "http://[::1]:9000", "http://127.0.0.1.:9000"]
        {
            assert_eq!(of(&first, &store("s3://bbb", Some(endpoint), None)).await, SAME, "{endpoint}");
        }
        let named = store("s3://bbb", Some("http://Store.example:80"), Some(true));
        assert_eq!(of(&named, &store("s3://bbb", Some("HTTP://store.example/"), Some(false))).await, SAME);
        assert_eq!(of(&named, &store("gs://bbb", Some("http://store.example"), None)).await, SAME);
    }

    #[tokio::test]
    async fn names_decide_at_the_clouds_but_not_elsewhere() {
        let aws = store("s3://bbb", None, None);
        for (endpoint, path_style) in [
            ("https://s3.eu-west-1.amazonaws.com", None),
            ("https://s3.dualstack.eu-west-1.amazonaws.com", Some(false)),
            ("https://S3.amazonaws.com:443", Some(true)),
        ] {
            assert_eq!(of(&aws, &store("s3://bbb", Some(endpoint), path_style)).await, SAME, "{endpoint}");
        }
        assert_eq!(of(&aws, &store("s3://ccc", None, None)).await, APART);
        assert_eq!(of(&aws, &store("gs://bbb", None, None)).await, APART);
        assert_eq!(of(&aws, &store("r2://acc/bbb", None, None)).await, APART);
        assert_eq!(of(&aws, &store("s3://point-abc-s3alias", None, None)).await, UNKNOWN);
        assert_eq!(of(&aws, &store("s3://bbb", Some("https://proxy.example"), None)).await, UNKNOWN);
        let endpoint = Some("https://bbb.vpce-1.s3.eu-west-1.vpce.amazonaws.com");
        assert_eq!(of(&aws, &store("s3://bbb", endpoint, None)).await, UNKNOWN);
        let private = store("s3://bbb", Some("http://a.example"), None);
        assert_eq!(of(&private, &store("s3://ccc", Some("http://a.example"), None)).await, UNKNOWN);
        assert_eq!(of(&private, &store("s3://bbb", Some("http://b.example"), None)).await, UNKNOWN);
    }

    #[tokio::test]
    async fn azure_accounts_and_containers_decide() {
        let first = store("az://acc/one", None, None);
        assert_eq!(of(&first, &store("az://acc/one", Some("https://ACC.blob.core.windows.net/"), None)).await, SAME);
        assert_eq!(of(&first, &store("az://acc/one", Some("https://acc.dfs.core.windows.net"), None)).await, SAME);
        assert_eq!(of(&first, &store("az://acc/two", None, None)).await, APART);
        assert_eq!(of(&first, &store("az://other/one", None, None)).await, APART);
        let emulated = store("az://acc/one", Some("http://127.0.0.1:10000/acc"), None);
        assert_eq!(of(&emulated, &store("az://acc/one", Some("http://localhost:10000/acc/"), None)).await, SAME);
        assert_eq!(of(&first, &emulated).await, UNKNOWN);
    }

    #[tokio::test]
    async fn prefixes_lie_within_each_other_by_whole_names() {
        let store = store("s3://bbb", None, None);
        for (one, other, relation) in [
            ("a/", "a/", Relation::Same),
            ("a/b/", "a/", Relation::FirstWithin),
            ("", "a/", Relation::SecondWithin),
            ("a/", "ab/", Relation::Apart),
        ] {
            let found = kinship((store.as_ref(), one), (store.as_ref(), other)).await.unwrap();
            assert_eq!(found, Kinship { relation, proven: true }, "{one} {other}");
        }
        let found = object_kinship((store.as_ref(), "a/b"), (store.as_ref(), "a/b")).await.unwrap();
        assert_eq!(found, SAME);
        assert_eq!(object_kinship((store.as_ref(), "a/b"), (store.as_ref(), "a/bc")).await.unwrap(), APART);
    }
}
