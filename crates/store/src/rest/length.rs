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
    if status != StatusCode::PARTIAL_CONTENT {
        if range.start == 0 && range.end == length {
            return Ok((length, length));
        }
        return Err(call.error(ErrorKind::Server, "the server ignored the requested range"));
    }
    let (start, end, size) = header(headers, "content-range")
        .and_then(parse_content_range)
        .ok_or_else(|| call.error(ErrorKind::Server, "the answer has no readable Content-Range"))?;
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

    #[test]
    fn content_ranges() {
        assert_eq!(parse_content_range("bytes 0-9/100"), Some((0, 9, 100)));
        for wrong in ["bytes */100", "bytes 9-0/100", "bytes 0-9/9", "0-9/100", "bytes 0-9/*", ""] {
            assert_eq!(parse_content_range(wrong), None, "{wrong}");
        }
    }
}
