//! Work that needs no gateways and no journal: standard input of `tradewind-gateway task`.

use crate::{AttributeRules, Comparison, JobSpec, ObjectFilter, ObjectLock, StoreSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One task. Data goes to stdout, messages to stderr; the exit code is that of the command line.
///
/// Beside its own fields it may have `contract` ([`crate::CONTRACT_VERSION`]) and `client` (the client's version), so that
/// a gateway binary of another contract can report the difference and not an unknown field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "task", rename_all = "snake_case", deny_unknown_fields)]
pub enum Task {
    /// Lists keys.
    Ls {
        /// Store.
        store: StoreSpec,
        /// Prefix.
        prefix: String,
        /// List everything below the prefix, not one level.
        recursive: bool,
        /// Rules that choose among the objects.
        #[serde(default)]
        filter: ObjectFilter,
        /// Print size, time and storage class too.
        long: bool,
        /// Print sizes in `kB`, `MB`, … instead of bytes.
        #[serde(default)]
        human: bool,
        /// Print NDJSON.
        json: bool,
    },
    /// Prints one JSON object: whether there is an object of exactly this name, and whether there are any below it.
    Exists {
        /// Store.
        store: StoreSpec,
        /// Key.
        key: String,
    },
    /// Sums sizes.
    Du {
        /// Store.
        store: StoreSpec,
        /// Prefix.
        prefix: String,
        /// Rules that choose among the objects.
        #[serde(default)]
        filter: ObjectFilter,
        /// Print the size in `kB`, `MB`, … instead of bytes.
        #[serde(default)]
        human: bool,
        /// Also print the sum of each folder that has at most this many levels below the prefix.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        depth: Option<u32>,
        /// Print JSON objects, one per line.
        json: bool,
    },
    /// Lists the buckets or containers of an account.
    Buckets {
        /// Account: `s3://`, `gs://`, `az://ACCOUNT` or `r2://ACCOUNT`.
        store: StoreSpec,
        /// Google Cloud project whose buckets are listed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        project: Option<String>,
        /// Print times and regions too.
        long: bool,
        /// Print NDJSON.
        json: bool,
    },
    /// Makes a bucket or container.
    MakeBucket {
        /// The bucket, and the region that it gets.
        store: StoreSpec,
        /// Google Cloud project that it gets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        project: Option<String>,
        /// Print one JSON object.
        json: bool,
    },
    /// Removes a bucket or container that is empty.
    RemoveBucket {
        /// The bucket.
        store: StoreSpec,
        /// Delete its objects first.
        force: bool,
        /// Print NDJSON.
        json: bool,
    },
    /// Prints what the store states about one object.
    Stat {
        /// Store.
        store: StoreSpec,
        /// Key.
        key: String,
        /// Print one JSON object.
        json: bool,
    },
    /// Prints an address that reads an object without credentials.
    Presign {
        /// Store.
        store: StoreSpec,
        /// Key.
        key: String,
        /// Validity of the address from now.
        expires_s: u32,
        /// Print one JSON object.
        json: bool,
    },
    /// Deletes objects.
    Rm {
        /// Store.
        store: StoreSpec,
        /// Key, or prefix when recursive.
        key: String,
        /// Delete the objects with these keys, each below the prefix `key`. Not with `recursive`, `versions` or a filter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keys: Option<Vec<String>>,
        /// An earlier task has deleted other objects of the same list of `keys`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        continues_list: bool,
        /// Delete everything below the prefix.
        recursive: bool,
        /// Rules that choose among the objects.
        #[serde(default)]
        filter: ObjectFilter,
        /// Print what would be deleted, and delete nothing.
        dry_run: bool,
        /// Print NDJSON.
        json: bool,
        /// Finding nothing is not an error.
        allow_empty: bool,
        /// Delete all versions and delete markers, for good.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        versions: bool,
    },
    /// Prints how many versions and delete markers `rm` with `versions` would delete, and their bytes.
    CountVersions {
        /// Store.
        store: StoreSpec,
        /// Key, or prefix when recursive.
        key: String,
        /// Count everything below the prefix.
        recursive: bool,
        /// Rules that choose among the versions.
        #[serde(default)]
        filter: ObjectFilter,
    },
    /// Writes objects to stdout.
    Cat {
        /// Store.
        store: StoreSpec,
        /// Keys in order.
        keys: Vec<String>,
        /// Write what `filter` selects below this prefix, in the order of keys, instead of `keys`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        below: Option<String>,
        /// Rules that choose among the objects below the prefix.
        #[serde(default)]
        filter: ObjectFilter,
        /// Write only these bytes of each.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        range: Option<ByteRange>,
        /// Fail if the reader of stdout closes it before the end.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        whole: bool,
    },
    /// Writes stdin to one object.
    Put {
        /// Store.
        store: StoreSpec,
        /// Key.
        key: String,
        /// Part size.
        chunk_bytes: u64,
        /// Storage class to write.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        storage_class: Option<String>,
        /// Protection of the object.
        #[serde(default, skip_serializing_if = "ObjectLock::is_none")]
        object_lock: ObjectLock,
        /// Attributes to write.
        #[serde(default, skip_serializing_if = "AttributeRules::are_default")]
        attributes: AttributeRules,
        /// End with one JSON object on stdout.
        json: bool,
    },
    /// Compares two trees.
    Check {
        /// Store of the first tree.
        source: StoreSpec,
        /// Its prefix.
        source_prefix: String,
        /// Store of the second tree.
        destination: StoreSpec,
        /// Its prefix.
        destination_prefix: String,
        /// Rules that choose among the objects.
        #[serde(default)]
        filter: ObjectFilter,
        /// How to compare objects.
        compare: Comparison,
        /// Read both sides of every object and compare the bytes' checksums.
        read: bool,
        /// Extra objects at the destination do not count as differences.
        one_way: bool,
        /// Print NDJSON.
        json: bool,
    },
    /// Explains why an object is selected or skipped, and how a comparison would treat it.
    Explain {
        /// Relative name.
        name: String,
        /// Length, where known.
        size_bytes: Option<u64>,
        /// Rules.
        filter: ObjectFilter,
        /// The job that it would be part of. The source is asked for the object, and with a comparison the destinations too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<Box<JobSpec>>,
    },
    /// Checks the access to stores: credentials found (never shown), endpoint, clock skew, whether they can be listed.
    Doctor {
        /// Stores to check.
        stores: Vec<StoreSpec>,
        /// Clouds to check without a bucket: credentials and clock. URLs are `s3://`, `gs://`, `az://`.
        #[serde(default)]
        clouds: Vec<StoreSpec>,
        /// Print NDJSON.
        json: bool,
    },
    /// Prints where these stores keep their objects: one JSON line per store, with `provider` and `name` where they are known,
    /// or with `error` where the request failed.
    Locate {
        /// Stores to ask.
        stores: Vec<StoreSpec>,
    },
    /// Aborts the unfinished uploads of a job and marks it cancelled.
    Cancel {
        /// The job's folder.
        state_dir: String,
        /// Its destinations, in order.
        stores: Vec<StoreSpec>,
    },
}

/// Some bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ByteRange {
    /// The first byte, counted from 0; if negative, counted from the end.
    pub start: i64,
    /// Number of bytes; all to the end if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}
