//! A look at an object right after the store acknowledged its write.

use crate::{Checksums, Error, ErrorKind, ObjectInfo, Precondition, Result, Store, Written};

/// Asks `store` for the object that it acknowledged as `written`, with one `HEAD`, and returns what is known of it then:
/// its length, and its version and checksums where the answer to the write named none. An identity that may write only
/// is not told (403): then `written` is returned as it is, without a length.
///
/// Some gateways state another ETag for an object than they did when they wrote it. An object with the checksums that were
/// `sent` is the one that was written, or as good, whatever its ETag; what is said of it now is returned.
///
/// # Errors
/// [`ErrorKind::Lost`]: the object is not there. [`ErrorKind::Overwritten`]: another one is. Otherwise what the store
/// says when it is asked.
pub async fn look_at_written(store: &dyn Store, key: &str, written: &Written, sent: &Checksums) -> Result<Written> {
    let fail = |kind, why: &str| {
        let root = store.url();
        let separator = if root.ends_with('/') { "" } else { "/" };
        Error::new(kind, "look at the written object", format!("{root}{separator}{key}"), why)
    };
    match store.head(key).await {
        Ok(now) => match Precondition::written(written).difference(&now) {
            None => Ok(completed(written, now)),
            Some(_) if sent.agrees_with(&now.checksums) == Some(true) => Ok(completed(&Written::default(), now)),
            Some(difference) => {
                let why = format!("it has been replaced by another writer, so it is not proven: {difference}");
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
    fn an_answer_is_completed_and_never_replaced() {
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
