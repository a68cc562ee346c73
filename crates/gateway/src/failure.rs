//! The meaning of an error for an object, for the job and for the exit code.

use std::fmt;
use tradewind_contract::{FailedObject, Outcome};
use tradewind_store::{Error, ErrorKind, Store};

/// Name of `kind` in [`FailedObject::kind`].
pub fn kind_name(kind: ErrorKind) -> &'static str {
    use ErrorKind::*;
    match kind {
        NotFound => "not_found",
        BucketNotFound => "bucket_not_found",
        Forbidden => "forbidden",
        Unauthenticated => "unauthenticated",
        Expired => "expired",
        PreconditionFailed => "changed",
        Overwritten => "overwritten",
        Occupied => "occupied",
        Archived => "archived",
        CustomerKey => "customer_key",
        HasSnapshots => "has_snapshots",
        ChecksumMismatch | Lost => "mismatch",
        InvalidKey | Link | BrokenLink => "invalid_key",
        NoSpace => "no_space",
        SlowDown | Timeout | Unfinished | Connection | Server | Truncated => "unavailable",
        Unsupported => "unsupported",
        Protocol => "protocol",
        UploadNotFound | BadRequest | Configuration => "refused",
    }
}

/// The outcome of a job or task that `error` stops as a whole.
pub fn outcome_of(error: &Error) -> Outcome {
    use ErrorKind::*;
    match error.kind {
        Forbidden | Unauthenticated => Outcome::Unauthorised,
        ChecksumMismatch | Lost => Outcome::Mismatch,
        Unfinished => Outcome::Unavailable,
        kind if kind.is_transient() => Outcome::Unavailable,
        _ => Outcome::Failed,
    }
}

/// The documented exit code.
pub fn exit_code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Done => 0,
        Outcome::Failed => 1,
        Outcome::Refused => 2,
        Outcome::SourceNotFound => 3,
        Outcome::SomeFailed => 4,
        Outcome::Unavailable => 5,
        Outcome::Mismatch => 6,
        Outcome::Unauthorised => 7,
        Outcome::Ceiling => 8,
        Outcome::Interrupted => 130,
    }
}

/// URL of `key` in `store`, for messages.
pub fn object_url(store: &dyn Store, key: &str) -> String {
    ObjectUrl::of(store, key).to_string()
}

/// URL of an object, without memory of its own.
#[derive(Clone, Copy, Debug)]
pub struct ObjectUrl<'a> {
    /// URL of the store.
    pub root: &'a str,
    /// Key of the object.
    pub key: &'a str,
}

impl<'a> ObjectUrl<'a> {
    /// The object with this key in a store.
    pub fn of(store: &'a dyn Store, key: &'a str) -> Self {
        Self { root: store.url(), key }
    }

    /// The parts of the URL, one after the other.
    pub fn parts(self) -> [&'a str; 3] {
        let separator = if self.root.ends_with('/') { "" } else { "/" };
        [self.root, separator, self.key]
    }
}

impl fmt::Display for ObjectUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().into_iter().try_for_each(|part| f.write_str(part))
    }
}

/// `1 object`, `2 objects`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Formats `1.25 GB`: decimal units and three digits, like `format_bytes` of the command line.
pub fn human_bytes(bytes: u64) -> String {
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    // Three digits are shown; a double has fifteen.
    let mut count = bytes as f64;
    let mut unit = "";
    for next in ["kB", "MB", "GB", "TB", "PB"] {
        (count, unit) = (count / 1000.0, next);
        if count < 999.5 {
            break;
        }
    }
    let digits = match count {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{count:.digits$} {unit}")
}

/// Formats two different sizes like `human_bytes`, and as numbers of bytes if they would look the same.
pub fn distinct_sizes(one: u64, other: u64) -> [String; 2] {
    let [short_one, short_other] = [one, other].map(human_bytes);
    match short_one == short_other {
        true => [one, other].map(|bytes| counted(bytes, "byte", "bytes")),
        false => [short_one, short_other],
    }
}

/// The advice for a read that failed with this kind, if only a store's answer has this kind: a source's verdict carries
/// no advice.
pub fn read_hint(kind: &str) -> Option<&'static str> {
    let only_of_stores = [ErrorKind::Archived, ErrorKind::CustomerKey];
    let meant = only_of_stores.into_iter().find(|one| kind_name(*one) == kind)?;
    Error::new(meant, "get", "", "").hint()
}

/// Adapts a hint to an object that the user named, to which no filter applies.
pub fn hint_for_named(hint: &str) -> &str {
    hint.split_once(", or leave ").map_or(hint, |(hint, _)| hint)
}

/// The record of an object that could not reach its destination because of `error`.
pub fn failed_object(source: String, destination: String, error: &Error) -> FailedObject {
    FailedObject {
        source,
        destination,
        kind: kind_name(error.kind).to_owned(),
        message: error.to_string(),
        hint: error.hint().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_a_store_refuses_has_the_stores_advice() {
        assert!(read_hint("archived").unwrap().starts_with("restore the archived objects first"));
        assert!(read_hint("customer_key").unwrap().contains("cannot send such keys"));
        assert_eq!(read_hint("forbidden"), None, "a node refuses orders with the same kind");
    }

    #[test]
    fn no_filter_is_recommended_for_a_named_object() {
        use ErrorKind::*;
        for kind in [InvalidKey, Archived, HasSnapshots, BrokenLink] {
            for operation in ["head", "list", "put"] {
                let hint = Error::new(kind, operation, "mem:", "no").hint().unwrap();
                assert!(hint.contains("--exclude") && !hint_for_named(hint).contains("exclude"), "{hint}");
            }
        }
        let hint = "check the path";
        assert_eq!(hint_for_named(hint), hint);
    }

    #[test]
    fn exit_codes_are_the_documented_ones() {
        let error = |kind| Error::new(kind, "list", "mem:", "no");
        let code = |kind| exit_code(outcome_of(&error(kind)));
        assert_eq!(code(ErrorKind::Forbidden), 7);
        assert_eq!(code(ErrorKind::Unauthenticated), 7);
        assert_eq!(code(ErrorKind::SlowDown), 5);
        assert_eq!(code(ErrorKind::ChecksumMismatch), 6);
        assert_eq!(code(ErrorKind::NoSpace), 1);
        assert_eq!(exit_code(Outcome::Interrupted), 130);
    }

    #[test]
    fn sizes_have_three_digits_and_a_unit() {
        let shown = [0, 999, 1000, 9_994, 9_996, 99_960, 999_600, 22_000_000, u64::MAX].map(human_bytes);
        let expected = ["0 B", "999 B", "1.00 kB", "9.99 kB", "10.0 kB", "100 kB", "1.00 MB", "22.0 MB", "18447 PB"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn two_sizes_never_look_the_same() {
        assert_eq!(distinct_sizes(18_000_000, 12_345_678), ["18.0 MB", "12.3 MB"]);
        assert_eq!(distinct_sizes(12_345_999, 12_345_678), ["12345999 bytes", "12345678 bytes"]);
        assert_eq!(distinct_sizes(1, 0), ["1 B", "0 B"]);
    }
}
