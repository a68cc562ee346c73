//! The expected length of a body, and the size of the whole object.

use super::{Call, header};
use crate::{ErrorKind, Result};
use http::{HeaderMap, StatusCode};
use std::ops::Range;

pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    header(headers, "content-length").and_then(|length| length.parse().ok())
}

/// Returns how many bytes the body must have, and the size of the whole object.
pub(crate) fn expected_bytes(
    call: &Call,
    status: StatusCode,
    headers: &HeaderMap,
    range: Option<&Range<u64>>,
) -> Result<(u64, u64)> {
    let length =
        content_length(headers).ok_or_else(|| call.error(ErrorKind::Server, "the answer has no Content-Length"))?;
    let Some(range) = range else { return Ok((length, length)) };
    let stated = header(headers, "content-range").and_then(parse_content_range);
    // `rclone serve s3` answers a range with 200. Its `Content-Range` counts if it describes the whole body.
    let is_part = stated.is_some_and(|(start, end, _)| end - start + 1 == length);
    if status != StatusCode::PARTIAL_CONTENT && !is_part {
        if range.start == 0 && range.end == length {
            return Ok((length, length));
        }
        // A server without ranges sends the whole object each time. Another length is no object: perhaps the page of a proxy.
        let (kind, advice) = match stated.is_none() && length >= range.end {
            true => (ErrorKind::Protocol, "; objects that are not larger than --chunk-size are read without a range"),
            false => (ErrorKind::Server, ""),
        };
        return Err(call.error(kind, format!("the server ignored the requested range{advice}")));
    }
    let (start, end, size) =
        stated.ok_or_else(|| call.error(ErrorKind::Server, "the answer has no readable Content-Range"))?;
    if start != range.start || end >= range.end {
        return Err(call.error(ErrorKind::Server, "the server sent another range than requested"));
    }
    if size < range.end {
        let message = format!("the object has {size} bytes, but {} were requested", range.end);
        return Err(call.error(ErrorKind::PreconditionFailed, message));
    }
    if end < range.end - 1 {
        let message = format!("the object has {size} bytes, but the range ends at {}", range.end);
        return Err(call.error(ErrorKind::Truncated, message));
    }
    Ok((range.end - range.start, size))
}

/// Parses `bytes 0-9/100` into first, last and size.
fn parse_content_range(text: &str) -> Option<(u64, u64, u64)> {
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let size = size.parse().ok()?;
    (first <= last && last < size).then_some((first, last, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(status: StatusCode, length: u64, stated: Option<&str>) -> Result<(u64, u64)> {
        let call = Call {
            operation: "get",
            url: "s3://bucket/key".to_owned(),
            method: http::Method::GET,
            origin: String::new(),
            path: String::new(),
            query: String::new(),
            headers: HeaderMap::new(),
            body: crate::Payload::default(),
            patient: true,
        };
        let mut headers = HeaderMap::new();
        headers.insert("content-length", length.into());
        if let Some(stated) = stated {
            headers.insert("content-range", stated.parse().unwrap());
        }
        expected_bytes(&call, status, &headers, Some(&(5..10)))
    }

    #[test]
    fn a_range_with_the_status_of_a_whole_object_needs_a_content_range_of_the_whole_body() {
        let kind = |length, stated| expected(StatusCode::OK, length, stated).map_err(|error| error.kind);
        assert_eq!(kind(5, Some("bytes 5-9/100")), Ok((5, 100)));
        assert_eq!(kind(100, Some("bytes 5-9/100")), Err(ErrorKind::Server));
        assert_eq!(kind(5, Some("bytes 0-4/100")), Err(ErrorKind::Server));
        assert_eq!(kind(3, Some("bytes 5-7/8")), Err(ErrorKind::PreconditionFailed));
        assert_eq!(kind(5, None), Err(ErrorKind::Server));
        assert_eq!(kind(100, None), Err(ErrorKind::Protocol), "repeating the request cannot help");
        assert_eq!(expected(StatusCode::PARTIAL_CONTENT, 5, Some("bytes 5-9/100")).unwrap(), (5, 100));
    }

    #[test]
    fn content_ranges() {
        assert_eq!(parse_content_range("bytes 0-9/100"), Some((0, 9, 100)));
        for wrong in ["bytes */100", "bytes 9-0/100", "bytes 0-9/9", "0-9/100", "bytes 0-9/*", ""] {
            assert_eq!(parse_content_range(wrong), None, "{wrong}");
        }
    }
}
