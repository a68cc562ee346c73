//! Error codes of Azure by meaning.

use crate::ErrorKind;
use crate::rest::status_meaning;
use http::StatusCode;

/// The meaning of an error answer; of its status alone when the code is not known.
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
        "BlobArchived" | "BlobBeingRehydrated" => ErrorKind::Archived,
        "ServerBusy" => ErrorKind::SlowDown,
        "OperationTimedOut" => ErrorKind::Timeout,
        "InternalError" => ErrorKind::Server,
        "Md5Mismatch" | "Crc64Mismatch" | "InvalidMd5" => ErrorKind::ChecksumMismatch,
        // Blocks that expired, were discarded by another write of the key, or never came.
        "InvalidBlockList" => ErrorKind::UploadNotFound,
        "InvalidResourceName" | "InvalidUri" | "OutOfRangeInput" => ErrorKind::InvalidKey,
        _ => status_meaning(status),
    }
}

/// What stands in the way of a write that is refused with this code.
pub(super) fn in_the_way(code: &str) -> Option<&'static str> {
    match code {
        "InvalidBlobType" => Some("a blob of another type has this name"),
        // All blocks of a blob have ids of one length.
        "InvalidBlobOrBlock" => {
            Some("another client's unfinished upload has blocks under this name, which Azure keeps for a week")
        }
        "ResourceTypeMismatch" | "PathConflict" | "DirectoryIsNotEmpty" => Some("a directory has this name"),
        _ => None,
    }
}

/// Whether a 404 to a delete says that the blob is gone, and is not the page of a proxy that knows no such path.
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
}
