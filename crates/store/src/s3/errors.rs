//! Error codes of the XML APIs by meaning.

use crate::ErrorKind;
use crate::rest::status_meaning;
use http::StatusCode;

/// The meaning of an error answer; of its status alone when the code is not known.
pub(super) fn meaning(status: StatusCode, code: &str) -> ErrorKind {
    match code {
        "NoSuchKey" | "NoSuchVersion" => ErrorKind::NotFound,
        "NoSuchBucket" => ErrorKind::BucketNotFound,
        // Parts that the store no longer has, or has otherwise than it said.
        "NoSuchUpload" | "InvalidPart" | "InvalidPartOrder" => ErrorKind::UploadNotFound,
        "AccessDenied" | "AllAccessDisabled" | "AccountProblem" | "UserProjectMissing" => ErrorKind::Forbidden,
        "InvalidObjectState" => ErrorKind::Archived,
        "InvalidAccessKeyId"
        // versitygw, with status 404.
        | "XAdminUserNotFound"
        | "SignatureDoesNotMatch"
        | "ExpiredToken"
        | "InvalidToken"
        | "TokenRefreshRequired"
        | "RequestTimeTooSkewed"
        | "AuthorizationHeaderMalformed"
        | "AuthenticationRequired"
        | "NotSignedUp" => ErrorKind::Unauthenticated,
        "PreconditionFailed" => ErrorKind::PreconditionFailed,
        "SlowDown"
        | "SlowDownRead"
        | "SlowDownWrite"
        | "ServiceUnavailable"
        | "TooManyRequests"
        | "Throttling"
        | "ThrottlingException"
        | "RequestLimitExceeded"
        | "BandwidthLimitExceeded" => ErrorKind::SlowDown,
        "RequestTimeout" | "RequestTimedOut" => ErrorKind::Timeout,
        // A conflict says that another request was at work on the key, not how it ended.
        "InternalError" | "OperationAborted" | "ConditionalRequestConflict" => ErrorKind::Server,
        "BadDigest" | "InvalidDigest" | "XAmzContentChecksumMismatch" | "XAmzContentSHA256Mismatch" => {
            ErrorKind::ChecksumMismatch
        }
        "IncompleteBody" => ErrorKind::Truncated,
        "KeyTooLongError"
        | "InvalidURI"
        | "InvalidObjectName"
        | "XMinioInvalidObjectName"
        | "ObjectParentIsFile"
        | "ExistingObjectIsDirectory"
        | "DirectoryObjectContainsData"
        | "XMinioObjectExistsAsDirectory"
        | "XMinioParentIsObject" => ErrorKind::InvalidKey,
        "QuotaExceeded" | "XMinioStorageFull" | "InsufficientCapacity" | "XMinioAdminBucketQuotaExceeded" => {
            ErrorKind::NoSpace
        }
        "NotImplemented" | "MethodNotAllowed" => ErrorKind::Unsupported,
        _ => status_meaning(status),
    }
}

/// Returns whether a server that answers so may take the request once it carries no (or another) checksum.
pub(super) fn may_refuse_checksum(status: StatusCode, code: &str) -> bool {
    const CODES: [&str; 6] = [
        "InvalidRequest",
        "InvalidArgument",
        "NotImplemented",
        "MalformedXML",
        "InvalidDigest",
        "UnknownChecksumAlgorithm",
    ];
    CODES.contains(&code) || (code.is_empty() && matches!(status.as_u16(), 400 | 501))
}

/// Returns whether a server that answers so may take a delete once it carries no condition.
pub(super) fn may_refuse_condition(status: StatusCode, code: &str) -> bool {
    const CODES: [&str; 4] = ["InvalidRequest", "InvalidArgument", "NotImplemented", "MalformedXML"];
    CODES.contains(&code) || (code.is_empty() && matches!(status.as_u16(), 400 | 501))
}

/// Returns whether a 404 to a delete says that the object is gone, and is not the page of a proxy that knows no such
/// path.
pub(super) fn says_gone(code: &str, body: &[u8]) -> bool {
    matches!(code, "NoSuchKey" | "NoSuchVersion" | "NotFound") || (code.is_empty() && body.trim_ascii().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_store_says_that_an_object_is_gone() {
        assert!(says_gone("NoSuchKey", b"<Error/>") && says_gone("", b""));
        assert!(!says_gone("", b"<html>no such route</html>") && !says_gone("NoSuchRoute", b"<Error/>"));
    }

    #[test]
    fn the_code_says_more_than_the_status() {
        assert_eq!(meaning(StatusCode::NOT_FOUND, "NoSuchBucket"), ErrorKind::BucketNotFound);
        assert_eq!(meaning(StatusCode::FORBIDDEN, "SignatureDoesNotMatch"), ErrorKind::Unauthenticated);
        assert_eq!(meaning(StatusCode::NOT_FOUND, "XAdminUserNotFound"), ErrorKind::Unauthenticated);
        assert_eq!(meaning(StatusCode::FORBIDDEN, ""), ErrorKind::Forbidden);
        assert_eq!(meaning(StatusCode::FORBIDDEN, "InvalidObjectState"), ErrorKind::Archived);
        assert_eq!(meaning(StatusCode::BAD_REQUEST, "InvalidPart"), ErrorKind::UploadNotFound);
        assert_eq!(meaning(StatusCode::SERVICE_UNAVAILABLE, ""), ErrorKind::SlowDown);
        assert_eq!(meaning(StatusCode::INTERNAL_SERVER_ERROR, "Unheard"), ErrorKind::Server);
    }
}
