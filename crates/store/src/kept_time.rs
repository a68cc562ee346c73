//! The modification time of a file in the metadata of its object, in the form of rclone (`backend/s3/s3.go`,
//! `backend/googlecloudstorage`, `backend/azureblob`): the name `mtime`; in S3 decimal seconds since the Unix epoch, in
//! Google Cloud Storage and Azure a time of RFC 3339.

use crate::Attributes;
use crate::rest::{iso_date, parse_rfc3339};

/// Name of the metadata.
pub const KEPT_TIME: &str = "mtime";

const SECOND_NS: i64 = 1_000_000_000;

/// Returns the time that the metadata states, in nanoseconds since the Unix epoch. Reads both forms, whatever the store;
/// `None` if there is none, or if it cannot be read.
pub fn kept_time_ns(attributes: &Attributes) -> Option<i64> {
    let text = attributes.metadata.get(KEPT_TIME)?.trim();
    if text.contains('T') {
        let seconds = parse_rfc3339(text).filter(|_| text.ends_with('Z'))?.div_euclid(1000);
        let fraction = text.get(19..)?.trim_end_matches('Z').trim_start_matches('.');
        return seconds.checked_mul(SECOND_NS)?.checked_add(nanoseconds(fraction)?);
    }
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (seconds, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if seconds.is_empty() || !seconds.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let seconds: i64 = seconds.parse().ok()?;
    seconds.checked_mul(SECOND_NS)?.checked_add(nanoseconds(fraction)?)?.checked_mul(sign)
}

/// Returns the metadata that keeps a time, in the form for the store with this URL.
pub fn kept_time_text(store_url: &str, unix_ns: i64) -> String {
    let fraction_ns = unix_ns.rem_euclid(SECOND_NS);
    if store_url.starts_with("gs:") || store_url.starts_with("az:") {
        let date = iso_date(unix_ns.div_euclid(SECOND_NS));
        return format!("{}.{fraction_ns:09}Z", date.trim_end_matches('Z'));
    }
    let sign = if unix_ns < 0 { "-" } else { "" };
    let distance = unix_ns.unsigned_abs();
    let (seconds, fraction) = (distance / SECOND_NS.unsigned_abs(), distance % SECOND_NS.unsigned_abs());
    let text = format!("{sign}{seconds}.{fraction:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Reads the digits after a point; digits beyond nanoseconds are dropped.
fn nanoseconds(fraction: &str) -> Option<i64> {
    let are_digits = fraction.bytes().all(|digit| digit.is_ascii_digit());
    are_digits.then(|| fraction.chars().chain("000000000".chars()).take(9).collect::<String>())?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<i64> {
        let metadata = [(KEPT_TIME.to_owned(), text.to_owned())].into();
        kept_time_ns(&Attributes { metadata, ..Attributes::default() })
    }

    #[test]
    fn reads_both_forms() {
        assert_eq!(read("1700000000.123456789"), Some(1_700_000_000_123_456_789));
        assert_eq!(read("1700000000"), Some(1_700_000_000_000_000_000));
        assert_eq!(read("-1.5"), Some(-1_500_000_000));
        assert_eq!(read("2023-11-14T22:13:20.123456789Z"), Some(1_700_000_000_123_456_789));
        for wrong in ["", ".5", "x", "1.x", "1e9", "99999999999999", "2023-11-14T22:13:20+01:00", "2023-11-14T"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for time_ns in [0, 1, -1, -1_500_000_000, 1_700_000_000_000_000_000, 1_700_000_000_120_000_000] {
            for url in ["s3://b", "gs://b", "az://a/c"] {
                assert_eq!(read(&kept_time_text(url, time_ns)), Some(time_ns), "{url}");
            }
        }
        assert_eq!(kept_time_text("s3://b", 1_700_000_000_120_000_000), "1700000000.12");
    }
}
