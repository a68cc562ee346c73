//! A job: the objects to move, after the command line has been resolved.

use crate::{CopyScope, KeyScope, StoreSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A job as the lead gets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Store to read.
    pub source: StoreSpec,
    /// The objects to take from it.
    pub selection: Selection,
    /// Where it goes; each destination gets everything.
    pub targets: Vec<Target>,
    /// `None` copies everything selected; otherwise only what differs is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare: Option<Comparison>,
    /// Deletes at the destinations what the source does not have. Only with `compare`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete: Option<Deletion>,
    /// Deletes each source object after its verified copy (`mv`).
    #[serde(default)]
    pub delete_source: bool,
    /// How hard to prove.
    #[serde(default)]
    pub verify: VerifyMode,
    /// An empty selection is not an error.
    #[serde(default)]
    pub allow_empty: bool,
    /// Server-side copies where both sides are one store.
    #[serde(default = "yes")]
    pub server_side_copy: bool,
    /// Chunk and part size; grows so that an object has at most 10,000 parts. Default 16 MiB.
    #[serde(default = "default_chunk_bytes")]
    pub chunk_bytes: u64,
    /// Storage class to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Tags to write.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Compress chunks between gateways when a sample says it pays.
    #[serde(default)]
    pub compress: bool,
    /// Ceiling on the mean egress price over all bytes sent, USD per GB; dearer routes are never used beyond it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_usd_per_gb: Option<f64>,
    /// Ceiling on egress, all runs of the job together, USD. Under both ceilings the lower one holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_usd: Option<f64>,
    /// Ceiling on the bytes sent, all runs of the job together, those that were lost and sent again included (exit code 8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bytes: Option<u64>,
    /// Bytes per second over all routes; `None` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit_bytes_per_s: Option<u64>,
    /// Maximum time without a working route, in seconds; then the job fails and can be resumed. Default 60.
    #[serde(default = "default_stall_s")]
    pub stall_s: u32,
    /// Plan only: emit the first mappings and totals, move nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Folder for journal, status and report. Absent: nothing is kept and the job cannot be resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<String>,
    /// Where to write one JSON verdict per object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_file: Option<String>,
    /// Go on with what `state_dir` says is not yet done.
    #[serde(default)]
    pub resume: bool,
}

impl JobSpec {
    /// So many bytes may be listed at most: at the mean price more would certainly cost more than the ceiling allows.
    pub fn listed_bytes_max(&self) -> Option<u64> {
        let price = self.ceiling_usd_per_gb.filter(|price| *price > 0.0);
        let affordable = self.ceiling_usd.zip(price).map(|(usd, price)| (usd / price * 1e9) as u64);
        affordable.into_iter().chain(self.ceiling_bytes).min()
    }

    /// The keys that its source objects may have.
    pub fn reads(&self) -> KeyScope {
        match &self.selection {
            Selection::Object { key } => KeyScope::Object { key: key.clone() },
            Selection::Prefix { prefix, .. } | Selection::List { prefix, .. } => {
                KeyScope::Prefix { prefix: prefix.clone() }
            }
            Selection::Several { members, .. } => KeyScope::Prefix { prefix: common_prefix(members).to_owned() },
        }
    }

    /// Returns whether what it sends or spends is limited.
    pub fn has_ceiling(&self) -> bool {
        self.ceiling_usd_per_gb.is_some() || self.ceiling_usd.is_some() || self.ceiling_bytes.is_some()
    }

    /// The keys that its objects may have at each destination.
    pub fn writes(&self) -> Vec<KeyScope> {
        let is_one = matches!(self.selection, Selection::Object { .. });
        let scope = |target: &Target| match is_one {
            true => KeyScope::Object { key: target.key.clone() },
            false => KeyScope::Prefix { prefix: target.key.clone() },
        };
        self.targets.iter().map(scope).collect()
    }

    /// The keys that the destinations may have their store copy.
    pub fn copies(&self) -> Option<CopyScope> {
        self.server_side_copy.then(|| CopyScope { bucket: self.source.bucket().to_owned(), keys: self.reads() })
    }
}

/// The common prefix of the keys of all members.
fn common_prefix(members: &[Member]) -> &str {
    let mut keys = members.iter().map(|member| member.key.as_str());
    let first = keys.next().unwrap_or_default();
    keys.fold(first, |common, key| {
        let differs = common.char_indices().zip(key.chars()).find(|((_, one), other)| one != other);
        let end = differs.map_or(common.len().min(key.len()), |((at, _), _)| at);
        &common[..end]
    })
}

fn yes() -> bool {
    true
}

fn default_chunk_bytes() -> u64 {
    16 << 20
}

fn default_stall_s() -> u32 {
    60
}

/// The objects that are taken from the source store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Selection {
    /// One object.
    Object {
        /// Its key.
        key: String,
    },
    /// All keys that begin with `prefix` (empty, or ending in `/`).
    Prefix {
        /// The prefix, which is cut from the key to give the relative name.
        prefix: String,
        /// Rules that choose among them.
        #[serde(default)]
        filter: ObjectFilter,
    },
    /// The keys named, relative to `prefix`, one a line in `list_file`.
    List {
        /// The prefix.
        prefix: String,
        /// A file with one relative key a line (UTF-8).
        list_file: String,
        /// Rules that choose among them.
        #[serde(default)]
        filter: ObjectFilter,
    },
    /// Several objects and prefixes of one store, each under a name of its own.
    Several {
        /// In the order given, 1 to 10,000.
        members: Vec<Member>,
        /// Selects among their objects, by the name at the destination.
        #[serde(default)]
        filter: ObjectFilter,
    },
}

/// One source of several. At the destination it is called `name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Key of an object; or, if it ends in `/`, a prefix of which all keys are taken.
    pub key: String,
    /// Name at the destination, without `/` at its end. No two members have one name.
    pub name: String,
}

/// One destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The store.
    pub store: StoreSpec,
    /// For a single object the key itself; otherwise the prefix put before each relative name.
    pub key: String,
}

/// One `--include` or `--exclude`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "rule", content = "glob", rename_all = "snake_case")]
pub enum FilterRule {
    /// Take what matches.
    Include(String),
    /// Leave what matches.
    Exclude(String),
}

/// Rules that choose objects of a prefix. They are read in order and the last that matches wins; with no match an object is
/// taken, unless the first rule is an include. Globs match the relative name: `*` within a folder, `**` across.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectFilter {
    /// In the order given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FilterRule>,
    /// At least so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_min_bytes: Option<u64>,
    /// At most so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_max_bytes: Option<u64>,
    /// Modified at or after this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newer_than_unix_ms: Option<i64>,
    /// Modified before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_unix_ms: Option<i64>,
}

/// How `sync` decides that two objects are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// Size, and checksum where both listings give one, else time: between file systems it must be the same, elsewhere the
    /// destination must not be older.
    #[default]
    Auto,
    /// Size and checksum, asked for per object where the listings give none.
    Checksum,
    /// Size only.
    Size,
    /// Size and time.
    Time,
}

/// Limits of `--delete`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Deletion {
    /// Delete nothing at all if more than this many would go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_max: Option<u64>,
    /// Delete also where more than half of what a destination holds would go.
    #[serde(default)]
    pub over_half: bool,
    /// Delete nothing yet: end with [`crate::Summary::to_delete`], for somebody to be asked, and be resumed without this.
    #[serde(default)]
    pub ask: bool,
}

/// How hard to prove that an object arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerifyMode {
    /// Hold our checksum against what both stores say for free.
    #[default]
    Auto,
    /// Read back from the destination what no store vouches for.
    Read,
}
