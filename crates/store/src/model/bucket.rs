//! Buckets and containers as their account lists them.

/// A bucket or container, as its account lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketInfo {
    /// Its name.
    pub name: String,
    /// When it was made (Azure: last changed), in milliseconds since the Unix epoch; `None` where it is not stated.
    pub created_unix_ms: Option<i64>,
    /// Its region, where the listing states it.
    pub region: Option<String>,
}

/// One page of buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketPage {
    /// The buckets, in the server's order.
    pub buckets: Vec<BucketInfo>,
    /// Where the next page begins; `None` at the end.
    pub continuation: Option<String>,
}
