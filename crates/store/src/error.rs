//! The error type of all stores, classified by meaning.

use std::fmt;

/// Result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of the error, as far as it matters to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No such object.
    NotFound,
    /// No such bucket, container or root directory.
    BucketNotFound,
    /// The identity is known but not allowed to do this.
    Forbidden,
    /// No credentials, or ones the store does not accept.
    Unauthenticated,
    /// Credentials that have expired and that another process renews.
    Expired,
    /// The object is not the one named by the precondition.
    PreconditionFailed,
    /// The object that a write made has been replaced by another writer.
    Overwritten,
    /// The store acknowledged a write but does not have the object.
    Lost,
    /// Something blocks the write: a blob of another type, or blocks of another client's upload (Azure).
    Occupied,
    /// The object has snapshots, which a delete would remove too (Azure).
    HasSnapshots,
    /// The object is archived: it must be restored before it can be read.
    Archived,
    /// The object is encrypted with a key that its owner keeps and must send with each request.
    CustomerKey,
    /// The upload is unknown (aborted, completed or expired).
    UploadNotFound,
    /// The store asks for fewer requests (429, 503 SlowDown).
    SlowDown,
    /// No answer within the time limit.
    Timeout,
    /// The store worked on the request for longer than its time limit, showing signs of life throughout.
    Unfinished,
    /// The connection failed or was lost.
    Connection,
    /// The store failed (5xx other than SlowDown).
    Server,
    /// A body ended before its announced length.
    Truncated,
    /// The store refused the bytes because their checksum did not match.
    ChecksumMismatch,
    /// This store cannot hold the key.
    InvalidKey,
    /// A symbolic link, while links are not followed.
    Link,
    /// A symbolic link that cannot be resolved: it is unknown whether it leads to a file or a directory.
    BrokenLink,
    /// Disk full or quota exhausted.
    NoSpace,
    /// The request itself is wrong (4xx not listed above).
    BadRequest,
    /// This store does not support the operation.
    Unsupported,
    /// The server, or a proxy in front of it, breaks its protocol: the answer does not fit the request.
    Protocol,
    /// The configuration of this store cannot work (bad endpoint, bad CA file, missing account).
    Configuration,
}

impl ErrorKind {
    /// Returns whether the same request may succeed later.
    pub fn is_transient(self) -> bool {
        use ErrorKind::*;
        matches!(self, Expired | SlowDown | Timeout | Connection | Server | Truncated | ChecksumMismatch)
    }

    /// The meaning in words that are the same for every store.
    fn meaning(self) -> &'static str {
        use ErrorKind::*;
        match self {
            NotFound => "there is no such object",
            BucketNotFound => "there is no such bucket",
            Forbidden => "this is not allowed",
            Unauthenticated | Expired => "the credentials are missing, refused or expired",
            PreconditionFailed => "the object has changed",
            Overwritten => "the object was replaced",
            Lost => "the store has lost the object",
            Occupied => "something else is in the way",
            HasSnapshots => "the object has snapshots",
            Archived => "the object is archived",
            CustomerKey => "the object is encrypted with a key of its owner",
            UploadNotFound => "the upload is gone",
            SlowDown => "the store asks for fewer requests",
            Timeout | Unfinished => "the store did not answer in time",
            Connection => "the connection to the store failed",
            Server => "the store failed",
            Truncated => "the answer ended early",
            ChecksumMismatch => "the checksum does not match",
            InvalidKey | Link | BrokenLink => "the store cannot hold this name",
            NoSpace => "the store is full",
            BadRequest => "the store refused the request",
            Unsupported => "the store cannot do this",
            Protocol => "the answer does not fit the request",
            Configuration => "the settings for this store are wrong",
        }
    }
}

/// An error of one operation on one key of one store.
#[derive(Clone, Debug)]
pub struct Error {
    /// The meaning of the error.
    pub kind: ErrorKind,
    /// Operation that failed: `get`, `put`, `list`, ….
    pub operation: &'static str,
    /// URL of the object or of the store. Never holds a secret.
    pub url: String,
    /// Report of the store or the system, in one line, with its code and request id if it gave one.
    pub message: String,
    /// The store's code and the status of its answer, such as `AccessDenied, HTTP 403`; `None` without an answer.
    pub answer: Option<String>,
}

/// S3's code for a request that was signed at a time too far from the store's.
pub(crate) const WRONG_CLOCK: &str = "RequestTimeTooSkewed";

/// The message if an address is to be signed although requests are sent unsigned.
pub(crate) const NO_CREDENTIALS: &str = "signing needs credentials";
/// A listing whose keys do not ascend in byte order, so that it cannot be compared with another one.
pub const UNORDERED: &str = "its keys are not listed in order";

pub(crate) const UNKNOWN_CA: &str =
    "the server's certificate is signed by a CA that is not trusted here (UnknownIssuer)";
pub(crate) const EXPIRED: &str = "the server's certificate has expired";
pub(crate) const OTHER_NAME: &str = "the server's certificate is for another name";
/// The server's first bytes are not TLS.
pub(crate) const NO_TLS: &str = "the server does not use TLS";
/// The server expects TLS and got plain HTTP.
pub(crate) const WANTS_TLS: &str = "the server uses TLS";

/// The beginnings of messages that have advice of their own.
pub(crate) const WRONG_ENDPOINT: &str = "endpoint";
pub(crate) const CA_FILE: &str = "CA file";
pub(crate) const FIFO: &str = "a FIFO";
pub(crate) const DEVICE: &str = "a device";
/// A directory that would be listed without end.
pub(crate) const LEADS_BACK: &str = "a symbolic link that leads back to a directory above it";

/// The operation of errors in the URL of a store.
pub(crate) const PARSE: &str = "parse";

impl Error {
    /// An error of `operation` on `url`; `message` is cut to its first line.
    pub fn new(kind: ErrorKind, operation: &'static str, url: impl Into<String>, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        let message = message.lines().next().unwrap_or_default().to_owned();
        Self { kind, operation, url: url.into(), message, answer: None }
    }

    /// The same error, with the store's code and status.
    pub(crate) fn answered(self, answer: String) -> Self {
        Self { answer: Some(answer), ..self }
    }

    /// The same error for somebody who may not know the account of the credentials, the address of the store or where
    /// both were found: with code and status, or else the meaning, in place of all words.
    pub fn without_words(&self) -> Self {
        let message = self.answer.clone().unwrap_or_else(|| self.kind.meaning().to_owned());
        Self { message, ..self.clone() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.operation, self.url, self.message)
    }
}

impl std::error::Error for Error {}

/// The root cause of an error, in one line.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_words_has_code_and_status_or_its_meaning() {
        let words = "User: arn:aws:iam::123456789012:user/operator is not authorized (AccessDenied), HTTP 403";
        let refused = Error::new(ErrorKind::Forbidden, "put", "s3://b/k", words);
        assert_eq!(refused.without_words().to_string(), "put s3://b/k: this is not allowed");
        let answered = refused.answered("AccessDenied, HTTP 403".to_owned());
        assert_eq!(answered.without_words().to_string(), "put s3://b/k: AccessDenied, HTTP 403");
        assert!(answered.to_string().contains("operator"));
    }
}
