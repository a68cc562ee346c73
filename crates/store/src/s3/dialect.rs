//! Differences between the XML APIs of S3 and Google Cloud Storage.

/// Header names and behaviour of one XML API.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// URL scheme that users write.
    pub(crate) scheme: &'static str,
    pub(crate) metadata_prefix: &'static str,
    pub(crate) storage_class: &'static str,
    pub(crate) copy_source: &'static str,
    pub(crate) copy_source_if_match: &'static str,
    /// Header with the condition on the version of the copied object; `None` if the version is part of the source's
    /// name.
    pub(crate) copy_source_if_version: Option<&'static str>,
    pub(crate) metadata_directive: &'static str,
    pub(crate) version: &'static str,
    /// Header that names the version to read; `None` if it is the query parameter `versionId`.
    pub(crate) if_version: Option<&'static str>,
    /// Whether completing an upload supports a condition on what it replaces.
    pub(crate) conditional_completion: bool,
    pub(crate) request_id: &'static str,
    /// Whether checksums use `x-amz-checksum-*`; otherwise `x-goog-hash`.
    pub(crate) amz_checksums: bool,
    /// Whether `DeleteObjects` exists.
    pub(crate) batch_delete: bool,
    /// Whether `UploadPartCopy` exists.
    pub(crate) part_copy: bool,
    /// True if `rewriteTo` can make a copy that the store refuses as too long (413).
    pub(crate) rewrites: bool,
    pub(crate) tagging: Option<&'static str>,
    /// Header that says whether a copy keeps the tags of its source (the default) or gets those of the request.
    pub(crate) tagging_directive: Option<&'static str>,
}

/// Amazon S3 and compatible servers.
pub(crate) static S3: Dialect = Dialect {
    scheme: "s3",
    metadata_prefix: "x-amz-meta-",
    storage_class: "x-amz-storage-class",
    copy_source: "x-amz-copy-source",
    copy_source_if_match: "x-amz-copy-source-if-match",
    copy_source_if_version: None,
    metadata_directive: "x-amz-metadata-directive",
    version: "x-amz-version-id",
    if_version: None,
    conditional_completion: true,
    request_id: "x-amz-request-id",
    amz_checksums: true,
    batch_delete: true,
    part_copy: true,
    rewrites: false,
    tagging: Some("x-amz-tagging"),
    tagging_directive: Some("x-amz-tagging-directive"),
};

/// Google Cloud Storage's XML API.
pub(crate) static GCS: Dialect = Dialect {
    scheme: "gs",
    metadata_prefix: "x-goog-meta-",
    storage_class: "x-goog-storage-class",
    copy_source: "x-goog-copy-source",
    copy_source_if_match: "x-goog-copy-source-if-match",
    copy_source_if_version: Some("x-goog-copy-source-if-generation-match"),
    metadata_directive: "x-goog-metadata-directive",
    version: "x-goog-generation",
    if_version: Some("x-goog-if-generation-match"),
    // Google documents no such condition.
    conditional_completion: false,
    request_id: "x-guploader-uploadid",
    amz_checksums: false,
    batch_delete: false,
    part_copy: false,
    rewrites: true,
    tagging: None,
    tagging_directive: None,
};
