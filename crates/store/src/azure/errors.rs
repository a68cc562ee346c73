//! Classifies Azure's error codes by meaning.

use crate::ErrorKind;
use crate::rest::status_meaning;
use http::StatusCode;

/// The meaning of an error answer; if the code is unknown, that of its status.
pub(super) fn meaning(status: StatusCode, code: &str) -> ErrorKind {
    match code {
        "BlobNotFound" => ErrorKind::NotFound,
        "SnapshotsPresent" => ErrorKind::HasSnapshots,
        _ if in_the_way(code).is_some() => ErrorKind::Occupied,
        "ContainerNotFound" | "ContainerBeingDeleted" => ErrorKind::BucketNotFound,
        // `BlobAlreadyExists` is the answer to `If-None-Match: *`.
        "ConditionNotMet"
        | "SourceConditionNotMet"
        | "TargetConditionNotMet"
        | "BlobAlreadyExists"
        | "InvalidRange" => ErrorKind::PreconditionFailed,
        "AuthenticationFailed" | "NoAuthenticationInformation" | "InvalidAuthenticationInfo" => {
            ErrorKind::Unauthenticated
        }
        "AuthorizationFailure"
        | "AuthorizationPermissionMismatch"
        | "AuthorizationServiceMismatch"
        | "InsufficientAccountPermissions"
        | "PublicAccessNotPermitted"
        | "BlobImmutableDueToPolicy"
        | "LeaseIdMissing" => ErrorKind::Forbidden,
        "BlobUsesCustomerSpecifiedEncryption" => ErrorKind::CustomerKey,
        "BlobArchived" | "BlobBeingRehydrated" => ErrorKind::Archived,
        "ServerBusy" => ErrorKind::SlowDown,
        "OperationTimedOut" => ErrorKind::Timeout,
        // Azure may not read the source of a copy. This process may be able to. Any other status says that the source was
        // too slow, or busy: Azure tries again, because bytes that pass through this process cost egress.
        "CannotVerifyCopySource" if is_refused(status) => ErrorKind::Unsupported,
        "InternalError" => ErrorKind::Server,
        "Md5Mismatch" | "Crc64Mismatch" | "InvalidMd5" => ErrorKind::ChecksumMismatch,
        // Blocks that expired, were discarded by another write of the key, or never arrived.
        "InvalidBlockList" => ErrorKind::UploadNotFound,
        "InvalidResourceName" | "InvalidUri" | "OutOfRangeInput" => ErrorKind::InvalidKey,
        _ => status_meaning(status),
    }
}

fn is_refused(status: StatusCode) -> bool {
    status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS && status != StatusCode::REQUEST_TIMEOUT
}

/// The reason why a write is refused with this code.
pub(super) fn in_the_way(code: &str) -> Option<&'static str> {
    match code {
        "InvalidBlobType" => Some("a blob of another type has this name"),
        // All block ids of a blob must have the same length.
        "InvalidBlobOrBlock" => {
            Some("another client's unfinished upload has blocks under this name, which Azure keeps for a week")
        }
        "ResourceTypeMismatch" | "PathConflict" | "DirectoryIsNotEmpty" => Some("a directory has this name"),
        _ => None,
    }
}

/// Returns whether a 404 to a delete says that the blob is gone, rather than being a proxy's page for an unknown path.
pub(super) fn says_gone(code: &str, body: &[u8]) -> bool {
    matches!(code, "BlobNotFound" | "ResourceNotFound" | "PathNotFound")
        || (code.is_empty() && body.trim_ascii().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_says_more_than_the_status() {
        assert_eq!(meaning(StatusCode::NOT_FOUND, "ContainerNotFound"), ErrorKind::BucketNotFound);
        assert_eq!(meaning(StatusCode::CONFLICT, "BlobArchived"), ErrorKind::Archived);
        assert_eq!(meaning(StatusCode::CONFLICT, "SnapshotsPresent"), ErrorKind::HasSnapshots);
        assert!(says_gone("BlobNotFound", b"") && !says_gone("", b"<html>"));
        assert_eq!(meaning(StatusCode::PRECONDITION_FAILED, "LeaseIdMissing"), ErrorKind::Forbidden);
        assert_eq!(meaning(StatusCode::SERVICE_UNAVAILABLE, ""), ErrorKind::SlowDown);
    }

    #[test]
    fn a_source_of_a_copy_that_is_only_late_is_read_by_the_store_again() {
        let meaning = |status| meaning(status, "CannotVerifyCopySource");
        assert_eq!(meaning(StatusCode::FORBIDDEN), ErrorKind::Unsupported);
        assert_eq!(meaning(StatusCode::NOT_FOUND), ErrorKind::Unsupported);
        // "Could not verify the copy source within the specified time."
        assert_eq!(meaning(StatusCode::INTERNAL_SERVER_ERROR), ErrorKind::Server);
        assert_eq!(meaning(StatusCode::SERVICE_UNAVAILABLE), ErrorKind::SlowDown);
        assert_eq!(meaning(StatusCode::TOO_MANY_REQUESTS), ErrorKind::SlowDown);
    }
}
