//! Checks an object right after the store acknowledged its write.

use crate::{Checksums, Error, ErrorKind, ObjectInfo, Precondition, Result, Store, Written};

/// Asks `store` with one `HEAD` for the object that it acknowledged as `written`. Returns what is then known about it:
/// its length, and its version and checksums if the answer to the write lacked them. If the identity may only write
/// (403), `written` is returned unchanged, without a length.
///
/// Some gateways state a different ETag for an object than they did when they wrote it. An object with the checksums in
/// `sent` counts as the one that was written, whatever its ETag; then the store's present answer is returned.
///
/// # Errors
/// [`ErrorKind::Lost`]: the object does not exist. [`ErrorKind::Overwritten`]: it is another object. Otherwise the
/// store's error for the `HEAD`.
pub async fn look_at_written(store: &dyn Store, key: &str, written: &Written, sent: &Checksums) -> Result<Written> {
    let fail = |kind, why: &str| {
        let root = store.url();
        let separator = if root.ends_with('/') { "" } else { "/" };
        Error::new(kind, "check the written object", format!("{root}{separator}{key}"), why)
    };
    match store.head(key).await {
        Ok(now) => match Precondition::written(written).difference(&now) {
            None => Ok(completed(written, now)),
            Some(_) if sent.agrees_with(&now.checksums) == Some(true) => Ok(completed(&Written::default(), now)),
            Some(difference) => {
                let why = format!("another writer has replaced it, so it is not proven: {difference}");
                Err(fail(ErrorKind::Overwritten, &why))
            }
        },
        Err(error) if error.kind == ErrorKind::Forbidden => Ok(written.clone()),
        Err(error) if error.kind == ErrorKind::NotFound => {
            Err(fail(ErrorKind::Lost, "the store acknowledged the write, but does not have the object"))
        }
        Err(error) => Err(error),
    }
}

fn completed(written: &Written, now: ObjectInfo) -> Written {
    let states_none = written.checksums == Checksums::default();
    Written {
        etag: written.etag.clone().or(now.etag),
        version: written.version.clone().or(now.version),
        checksums: if states_none { now.checksums } else { written.checksums },
        file: written.file.or(now.file),
        size_bytes: Some(now.size_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_completed_but_never_overwritten() {
        let sums = Checksums { crc32c: Some(1), ..Checksums::default() };
        let written = Written { etag: Some("a".into()), checksums: sums, ..Written::default() };
        let other = Checksums { md5: Some([0; 16]), ..Checksums::default() };
        let now = ObjectInfo { size_bytes: 7, version: Some("1".into()), checksums: other, ..ObjectInfo::default() };
        let known = completed(&written, now.clone());
        let expected = Written { version: Some("1".into()), size_bytes: Some(7), ..written };
        assert_eq!(known, expected);
        assert_eq!(completed(&Written::default(), now).checksums, other);
    }
}
