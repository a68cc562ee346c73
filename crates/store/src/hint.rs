//! Advice for the user after an error: that of the case, or else that of the kind of error.

use crate::ErrorKind::{self, *};
use crate::error::{
    CA_FILE, DEVICE, EXPIRED, Error, FIFO, LEADS_BACK, NO_CREDENTIALS, NO_TLS, OTHER_NAME, PARSE, UNKNOWN_CA,
    UNORDERED, WANTS_TLS, WRONG_CLOCK, WRONG_ENDPOINT,
};

/// Code of S3 for a new bucket that exists and belongs to the user.
const OWN_BUCKET: &str = "BucketAlreadyOwnedByYou";

/// Messages of mistakes about TLS, each with the advice that applies to it.
const TLS_REASONS: [(&str, &str); 5] = [
    (UNKNOWN_CA, "name the certificate of its CA with --ca-bundle FILE, --src-ca-bundle or --dst-ca-bundle"),
    (EXPIRED, "renew the server's certificate, or set this machine's clock"),
    (OTHER_NAME, "write the endpoint with a name that the certificate has"),
    (NO_TLS, "write the endpoint with http://"),
    (WANTS_TLS, "write the endpoint with https://"),
];

/// Beginning of the message if no credentials were found.
const NONE_FOUND: &str = "no credentials: ";

impl Error {
    /// One line of advice, if there is any.
    pub fn hint(&self) -> Option<&'static str> {
        self.hint_of_case().or_else(|| hint_of_kind(self.kind)).or_else(|| self.hint_of_code())
    }

    fn hint_of_case(&self) -> Option<&'static str> {
        Some(match self.kind {
            NotFound if self.operation == "put" => "check the path of the destination",
            NotFound if self.is_about_a_file() => "check the path",
            BucketNotFound if self.is_about_a_file() => "check the path of the directory",
            BucketNotFound if self.url.starts_with("az://") => {
                "check the names of account and container, and the endpoint"
            }
            Unauthenticated if self.message.contains(WRONG_CLOCK) => {
                "set the clock of the machine that sends the requests, e.g. by NTP"
            }
            Unauthenticated if self.message.starts_with(NONE_FOUND) => {
                "log in with the cloud's own tool; to read a public bucket, add --src-no-sign"
            }
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
            Occupied if self.message.contains(OWN_BUCKET) => "use it, or choose another name",
            Occupied if self.operation == "make" => "choose another name",
            Occupied if self.operation == "remove" => "--force deletes its objects first",
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
            Unsupported if self.message.starts_with(FIFO) && self.operation == "head" => {
                "to copy what a program writes to it: tradewind cp - DST < FIFO"
            }
            Unsupported if self.operation == "list" && self.is_about_a_file() => "leave it out with --exclude",
            Configuration => return self.hint_of_configuration(),
            _ => return None,
        })
    }

    fn hint_of_configuration(&self) -> Option<&'static str> {
        let tls = TLS_REASONS.iter().find(|(reason, _)| self.message.contains(reason));
        Some(match tls {
            Some((_, advice)) => advice,
            None if self.operation == PARSE => "correct the URL: s3://bucket, gs://bucket or az://account/container",
            None if self.message.starts_with(WRONG_ENDPOINT) => "the form is https://HOST or http://HOST:PORT",
            None if self.message.starts_with(CA_FILE) => "name a readable PEM file with certificates",
            None => return None,
        })
    }

    /// Advice for an error that only the store's own code explains.
    fn hint_of_code(&self) -> Option<&'static str> {
        if self.message.contains("InvalidBucketName") {
            Some("the name of a bucket has 3 to 63 lowercase letters, digits, hyphens and dots")
        } else if self.message.contains("InvalidStorageClass") {
            Some("name a class that this store has, as it writes it: STANDARD_IA, not standard_ia")
        } else {
            None
        }
    }

    fn is_about_a_file(&self) -> bool {
        self.url.starts_with("file://")
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
}

fn hint_of_kind(kind: ErrorKind) -> Option<&'static str> {
    Some(match kind {
        NotFound => "check the names of bucket and key with `tradewind ls`",
        BucketNotFound => "check the bucket's name, the region and the endpoint",
        Forbidden => "check the permissions: bucket policy and profile, or the owner and mode of the path",
        Expired => "resume the job: the credentials expired and were not renewed in time",
        Unauthenticated => "check the credentials and the region with `tradewind doctor URL`",
        InvalidKey => "choose another destination name, or leave the object out with --exclude",
        Overwritten => "run the transfer again: another writer or a late attempt wrote this key",
        Lost => "the store lost data that it had acknowledged: report this to its operator, or use another store",
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
        Configuration => "see `tradewind config show`",
        PreconditionFailed | UploadNotFound | ChecksumMismatch | BadRequest | Unsupported => return None,
    })
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
        let missing = "no credentials: no keys, profile or container is set up";
        assert!(hint(ErrorKind::Unauthenticated, "list", "s3://b", missing).contains("--src-no-sign"));
        assert!(hint(ErrorKind::Unauthenticated, "list", "s3://b", "Access Denied").contains("doctor"));
        assert!(hint(ErrorKind::InvalidKey, "put", "file:///dev/null", "a device has this name").contains("SRC - >"));
        assert!(hint(ErrorKind::Unsupported, "head", "file:///f", "a FIFO: only files").contains("cp - DST < FIFO"));
        let hint_of_sas = hint(ErrorKind::Unsupported, "presign", "az://a/c/k", "a shared access signature cannot");
        assert!(hint_of_sas.contains("AZURE_STORAGE_ACCOUNT_KEY"));
        assert!(hint(ErrorKind::Unsupported, "presign", "az://a/c/k", NO_CREDENTIALS).contains("leave out --no-sign"));
        assert!(hint(ErrorKind::Configuration, "open", "http://", "endpoint is not a URL").contains("https://HOST"));
        assert!(hint(ErrorKind::Configuration, "open", "/f", "CA file: it is empty").contains("PEM"));
    }
}
