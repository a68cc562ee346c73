//! Classifies the XML APIs' error codes by meaning.

use crate::ErrorKind;
use crate::error::WRONG_CLOCK;
use crate::rest::status_meaning;
use http::StatusCode;

/// The meaning of an error answer; if the code is unknown, that of its status.
pub(super) fn meaning(status: StatusCode, code: &str) -> ErrorKind {
    match code {
        "NoSuchKey" | "NoSuchVersion" => ErrorKind::NotFound,
        "NoSuchBucket" => ErrorKind::BucketNotFound,
        // The store no longer has the parts, or has different ones than it acknowledged.
        "NoSuchUpload" | "InvalidPart" | "InvalidPartOrder" => ErrorKind::UploadNotFound,
        "AccessDenied" | "AllAccessDisabled" | "AccountProblem" | "UserProjectMissing" => ErrorKind::Forbidden,
        "InvalidObjectState" => ErrorKind::Archived,
        // Google's code. Amazon's is one for many refusals: see `names_customer_key`.
        "ResourceIsEncryptedWithCustomerEncryptionKey" => ErrorKind::CustomerKey,
        "InvalidAccessKeyId"
        // Sent by versitygw, with status 404.
        | "XAdminUserNotFound"
        | "SignatureDoesNotMatch"
        | "ExpiredToken"
        | "InvalidToken"
        | "TokenRefreshRequired"
        | WRONG_CLOCK
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
        // A conflict means that another request was at work on the key. It does not say how that request ended.
        "InternalError" | "OperationAborted" | "ConditionalRequestConflict" => ErrorKind::Server,
        "BadDigest" | "InvalidDigest" | "XAmzContentChecksumMismatch" | "XAmzContentSHA256Mismatch" => {
            ErrorKind::ChecksumMismatch
        }
        "IncompleteBody" => ErrorKind::Truncated,
        "KeyTooLongError"
        | "InvalidURI"
        | "InvalidObjectName"
        | "XMinioInvalidObjectName"
        | "XMinioInvalidResourceName"
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

/// Returns whether Amazon's refusal, or that of a compatible server, says that the object is encrypted with a customer's
/// key (SSE-C). The code stands for many mistakes, so only the message tells.
pub(super) fn names_customer_key(code: &str, message: &str) -> bool {
    code == "InvalidRequest" && message.contains("stored using a form of Server Side Encryption")
}

/// Returns whether a server with this answer may accept the request with no checksum, or another kind.
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

/// Returns whether a server with this answer may accept a delete without a condition.
pub(super) fn may_refuse_condition(status: StatusCode, code: &str) -> bool {
    const CODES: [&str; 4] = ["InvalidRequest", "InvalidArgument", "NotImplemented", "MalformedXML"];
    CODES.contains(&code) || (code.is_empty() && matches!(status.as_u16(), 400 | 501))
}

/// Returns whether a 404 to a delete says that the object is gone, rather than being a proxy's page for an unknown
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
    fn only_the_message_tells_of_a_customers_key() {
        let why =
            "The object was stored using a form of Server Side Encryption. The correct parameters must be provided";
        assert!(names_customer_key("InvalidRequest", why));
        assert!(!names_customer_key("InvalidRequest", "Missing required header") && !names_customer_key("Other", why));
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
