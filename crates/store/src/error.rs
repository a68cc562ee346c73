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
}

/// S3's code for a request that was signed at a time too far from the store's.
pub(crate) const WRONG_CLOCK: &str = "RequestTimeTooSkewed";
/// Code of S3 for a new bucket that exists and belongs to the user.
const OWN_BUCKET: &str = "BucketAlreadyOwnedByYou";

/// The message if an address is to be signed although requests are sent unsigned.
pub(crate) const NO_CREDENTIALS: &str = "signing needs credentials";
/// A listing whose keys do not ascend in byte order, so that it cannot be compared with another one.
pub const UNORDERED: &str = "its keys are not listed in order";

/// Messages of mistakes about TLS, each with the advice that applies to it.
const TLS_REASONS: [(&str, &str); 5] = [
    (UNKNOWN_CA, "name the certificate of its CA with --ca-bundle FILE, --src-ca-bundle or --dst-ca-bundle"),
    (EXPIRED, "renew the server's certificate, or set this machine's clock"),
    (OTHER_NAME, "write the endpoint with a name that the certificate has"),
    (NO_TLS, "write the endpoint with http://"),
    (WANTS_TLS, "write the endpoint with https://"),
];
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
        Self { kind, operation, url: url.into(), message }
    }

    /// One line of advice, if there is any.
    pub fn hint(&self) -> Option<&'static str> {
        use ErrorKind::*;
        Some(match self.kind {
            NotFound if self.operation == "put" => "check the path of the destination",
            NotFound if self.url.starts_with("file://") => "check the path",
            NotFound => "check the names of bucket and key with `tradewind ls`",
            BucketNotFound if self.url.starts_with("file://") => "check the path of the directory",
            BucketNotFound if self.url.starts_with("az://") => {
                "check the names of account and container, and the endpoint"
            }
            BucketNotFound => "check the bucket's name, the region and the endpoint",
            Forbidden => "check the permissions: bucket policy and profile, or the owner and mode of the path",
            Expired => "resume the job: the credentials expired and were not renewed in time",
            Unauthenticated if self.message.contains(WRONG_CLOCK) => {
                "set the clock of the machine that sends the requests, e.g. by NTP"
            }
            Unauthenticated => "check the credentials and the region with `tradewind doctor URL`",
            InvalidKey if self.is_about_a_container() => {
                "the name of a container has 3 to 63 lowercase letters, digits and single hyphens"
            }
            InvalidKey if self.message == LEADS_BACK => "leave it out with --exclude",
            InvalidKey if self.operation == "list" => "rename it, or leave it out with --exclude",
            InvalidKey if matches!(self.operation, "head" | "get" | "presign") => {
                "correct the name, or leave the object out with --exclude"
            }
            InvalidKey if self.operation == "put" && self.is_about_a_device() => {
                "choose another destination name, or write to it through a pipe: tradewind cp SRC - > FILE"
            }
            InvalidKey => "choose another destination name, or leave the object out with --exclude",
            Overwritten => "run the transfer again: another writer or a late attempt wrote this key",
            Lost => "the store lost data that it had acknowledged: report this to its operator, or use another store",
            Occupied if self.message.contains(OWN_BUCKET) => "use it, or choose another name",
            Occupied if self.operation == "make" => "choose another name",
            Occupied if self.operation == "remove" => "--force deletes its objects first",
            Occupied => "delete it there, or choose another destination name",
            Unfinished => "resume the job when the store has finished, or allow more time with --store-work",
            Archived => "restore the archived objects first, or leave them out with --exclude",
            CustomerKey => {
                "Tradewind cannot send such keys: leave these objects out with --exclude, or copy them with a tool that has the key"
            }
            HasSnapshots => "delete its snapshots first if nobody needs them, or leave the object out with --exclude",
            Link => "--follow-symlinks copies what symbolic links point to",
            BrokenLink => "repair or remove the link, or leave it and everything below it out with --exclude",
            NoSpace => "free some space and run `tradewind jobs resume`",
            Connection => "check the endpoint and the network with `tradewind doctor URL`, then try again",
            SlowDown | Timeout | Server | Truncated => "the store may be busy: try again later",
            Protocol => {
                "the server, or a proxy in front of it, breaks the protocol: report this to its operator, or use another endpoint"
            }
            Unsupported if self.operation == "lock" => {
                "leave out --object-lock-mode and --legal-hold, or use a bucket of S3 that was made with Object Lock"
            }
            Unsupported if self.operation == "presign" && self.message.contains(NO_CREDENTIALS) => {
                "leave out --no-sign, and check with `tradewind doctor URL` which credentials are found"
            }
            Unsupported if self.operation == "presign" && self.url.starts_with("az://") => {
                "set AZURE_STORAGE_ACCOUNT_KEY, or sign in with `az login`"
            }
            Unsupported if self.message.contains(UNORDERED) => {
                "`cp -r` and `rm -r` work there; `sync` and `check` need a store that lists its keys in byte order"
            }
            Configuration if self.tls_advice().is_some() => self.tls_advice()?,
            Configuration if self.operation == PARSE => {
                "correct the URL: s3://bucket, gs://bucket or az://account/container"
            }
            Configuration if self.message.starts_with(WRONG_ENDPOINT) => "the form is https://HOST or http://HOST:PORT",
            Configuration if self.message.starts_with(CA_FILE) => "name a readable PEM file with certificates",
            Configuration => "see `tradewind config show`",
            Unsupported if self.message.starts_with(FIFO) && self.operation == "head" => {
                "to copy what a program writes to it: tradewind cp - DST < FIFO"
            }
            Unsupported if self.operation == "list" && self.url.starts_with("file://") => "leave it out with --exclude",
            _ if self.message.contains("InvalidBucketName") => {
                "the name of a bucket has 3 to 63 lowercase letters, digits, hyphens and dots"
            }
            _ if self.message.contains("InvalidStorageClass") => {
                "name a class that this store has, as it writes it: STANDARD_IA, not standard_ia"
            }
            _ => return None,
        })
    }

    /// Returns whether the URL is that of an Azure container.
    fn is_about_a_container(&self) -> bool {
        let path = self.url.strip_prefix("az://");
        path.is_some_and(|path| path.trim_end_matches('/').matches('/').count() == 1)
    }

    /// Returns whether a file that is a device or a FIFO is in the way.
    fn is_about_a_device(&self) -> bool {
        [DEVICE, FIFO].iter().any(|kind| self.message.starts_with(kind))
    }

    fn tls_advice(&self) -> Option<&'static str> {
        TLS_REASONS.iter().find(|(reason, _)| self.message.contains(reason)).map(|(_, advice)| *advice)
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
    fn a_refused_name_or_class_says_what_to_write() {
        let hint = |kind, operation, message: &str| Error::new(kind, operation, "s3://b", message).hint();
        let made = "the bucket exists, and it is yours (BucketAlreadyOwnedByYou), HTTP 409";
        assert_eq!(hint(ErrorKind::Occupied, "make", made), Some("use it, or choose another name"));
        assert_eq!(hint(ErrorKind::Occupied, "make", "(BucketAlreadyExists)"), Some("choose another name"));
        let refused = |code: &str| hint(ErrorKind::BadRequest, "put", &format!("no ({code}), HTTP 400"));
        assert!(refused("InvalidBucketName").unwrap().contains("lowercase letters"));
        assert!(refused("InvalidStorageClass").unwrap().contains("STANDARD_IA"));
        assert_eq!(refused("Other"), None);
    }

    #[test]
    fn advice_fits_the_kind_of_place() {
        let hint =
            |kind, operation, url: &str, message: &str| Error::new(kind, operation, url, message).hint().unwrap();
        let wrong = "no (InvalidResourceName), HTTP 400";
        assert!(hint(ErrorKind::InvalidKey, "list", "az://a/Bad_Name", wrong).contains("name of a container"));
        assert!(hint(ErrorKind::InvalidKey, "list", "az://a/c/Bad", wrong).contains("rename it"));
        assert!(hint(ErrorKind::BucketNotFound, "list", "az://a/c", "no").contains("container"));
        assert_eq!(hint(ErrorKind::InvalidKey, "list", "file:///d/l/", LEADS_BACK), "leave it out with --exclude");
        assert!(hint(ErrorKind::InvalidKey, "put", "file:///dev/null", "a device has this name").contains("SRC - >"));
        assert!(hint(ErrorKind::Unsupported, "head", "file:///f", "a FIFO: only files").contains("cp - DST < FIFO"));
        let hint_of_sas = hint(ErrorKind::Unsupported, "presign", "az://a/c/k", "a shared access signature cannot");
        assert!(hint_of_sas.contains("AZURE_STORAGE_ACCOUNT_KEY"));
        assert!(hint(ErrorKind::Unsupported, "presign", "az://a/c/k", NO_CREDENTIALS).contains("leave out --no-sign"));
        assert!(hint(ErrorKind::Configuration, "open", "http://", "endpoint is not a URL").contains("https://HOST"));
        assert!(hint(ErrorKind::Configuration, "open", "/f", "CA file: it is empty").contains("PEM"));
    }
}
