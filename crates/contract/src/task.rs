//! Work that needs no gateways and no journal: standard input of `tradewind-gateway task`.

use crate::{Comparison, JobSpec, ObjectFilter, StoreSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One task. Data goes to stdout, talk to stderr, the exit code is that of the command line.
///
/// Beside its own fields may stand `contract` ([`crate::CONTRACT_VERSION`]) and `client` (the version of who asks): a
/// gateway program of another contract then says so, instead of what it does not understand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "task", rename_all = "snake_case", deny_unknown_fields)]
pub enum Task {
    /// Lists keys.
    Ls {
        /// Store.
        store: StoreSpec,
        /// Prefix.
        prefix: String,
        /// Everything below, not one level.
        recursive: bool,
        /// Which.
        #[serde(default)]
        filter: ObjectFilter,
        /// Size, time and storage class too.
        long: bool,
        /// Sizes in `kB`, `MB`, … instead of bytes.
        #[serde(default)]
        human: bool,
        /// NDJSON.
        json: bool,
    },
    /// Sums sizes.
    Du {
        /// Store.
        store: StoreSpec,
        /// Prefix.
        prefix: String,
        /// Which.
        #[serde(default)]
        filter: ObjectFilter,
        /// The size in `kB`, `MB`, … instead of bytes.
        #[serde(default)]
        human: bool,
        /// One JSON object.
        json: bool,
    },
    /// Deletes.
    Rm {
        /// Store.
        store: StoreSpec,
        /// Key, or prefix when recursive.
        key: String,
        /// All below.
        recursive: bool,
        /// Which.
        #[serde(default)]
        filter: ObjectFilter,
        /// Say, do not do.
        dry_run: bool,
        /// NDJSON.
        json: bool,
        /// Finding nothing is not an error.
        allow_empty: bool,
    },
    /// Writes objects to stdout.
    Cat {
        /// Store.
        store: StoreSpec,
        /// Keys in order.
        keys: Vec<String>,
        /// A reader that goes away before the end is a failure.
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
        /// End with one JSON object on stdout.
        json: bool,
    },
    /// Compares two trees.
    Check {
        /// One side.
        source: StoreSpec,
        /// Its prefix.
        source_prefix: String,
        /// The other.
        destination: StoreSpec,
        /// Its prefix.
        destination_prefix: String,
        /// Which.
        #[serde(default)]
        filter: ObjectFilter,
        /// By what.
        compare: Comparison,
        /// Read both sides of every object and compare the bytes' checksums.
        read: bool,
        /// Extra objects at the destination are no difference.
        one_way: bool,
        /// NDJSON.
        json: bool,
    },
    /// Why a key is taken or left, and what a comparison would make of it.
    Explain {
        /// Relative name.
        name: String,
        /// Length, where known.
        size_bytes: Option<u64>,
        /// Rules.
        filter: ObjectFilter,
        /// The job that it would be part of: the object itself is looked at, and with a comparison the destinations.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<Box<JobSpec>>,
    },
    /// Check the access to this store: credentials found (never shown), endpoint, clock skew, whether it can be listed.
    Doctor {
        /// Stores to try.
        stores: Vec<StoreSpec>,
        /// Clouds to look at before any bucket is named: credentials and clock. URLs are `s3://`, `gs://`, `az://`.
        #[serde(default)]
        clouds: Vec<StoreSpec>,
        /// NDJSON.
        json: bool,
    },
    /// Where these stores keep their objects: one JSON line a store, with `provider` and `name` where it is known, and
    /// with `error` where asking failed.
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
