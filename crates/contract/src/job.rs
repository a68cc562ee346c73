//! A job: the objects to move, after the command line has been resolved.

use crate::{AttributeRules, CodecChoice, CopyScope, KeyScope, ObjectLock, Preserve, SourceTags, StoreSpec};
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
    /// Destinations; each gets all objects.
    pub targets: Vec<Target>,
    /// `None` copies everything selected; otherwise only what differs is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare: Option<Comparison>,
    /// Writes each object under the last part of its name, without the directories above. Only `compare` of
    /// [`Comparison::Existing`] goes with it, and no `delete`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub flatten: bool,
    /// Deletes at the destinations what the source does not have. Only with `compare`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete: Option<Deletion>,
    /// Deletes each source object after its verified copy (`mv`).
    #[serde(default)]
    pub delete_source: bool,
    /// How to prove each copy.
    #[serde(default)]
    pub verify: VerifyMode,
    /// An empty selection is not an error.
    #[serde(default)]
    pub allow_empty: bool,
    /// Copy inside the store where source and destination are the same store.
    #[serde(default = "yes")]
    pub server_side_copy: bool,
    /// Chunk and part size; grows so that an object has at most 10,000 parts. Default 16 MiB.
    #[serde(default = "default_chunk_bytes")]
    pub chunk_bytes: u64,
    /// Storage class to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Protection of the objects that are written.
    #[serde(default, skip_serializing_if = "ObjectLock::is_none")]
    pub object_lock: ObjectLock,
    /// Attributes to write.
    #[serde(default, skip_serializing_if = "AttributeRules::are_default")]
    pub attributes: AttributeRules,
    /// Tags to write. A source's other tags are treated as `source_tags` says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The treatment of the source's tags.
    #[serde(default, skip_serializing_if = "SourceTags::is_default")]
    pub source_tags: SourceTags,
    /// The attributes that copies keep of files.
    #[serde(default, skip_serializing_if = "Preserve::is_default")]
    pub preserve: Preserve,
    /// Compress chunks between gateways, as `codec` says.
    #[serde(default)]
    pub compress: bool,
    /// How chunks are compressed, if they are.
    #[serde(default)]
    pub codec: CodecChoice,
    /// Do not send bytes between gateways that the receiving one has from this run of the job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deduplicate: bool,
    /// Ceiling on the average egress price of the bytes sent, USD per GB; more expensive routes are used only below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_usd_per_gb: Option<f64>,
    /// Ceiling on the egress cost of all runs of the job, USD. With both ceilings, the lower one applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_usd: Option<f64>,
    /// Ceiling on the bytes sent in all runs of the job, including bytes that were lost and sent again (exit code 8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bytes: Option<u64>,
    /// Bytes per second over all routes; `None` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit_bytes_per_s: Option<u64>,
    /// Maximum time without a working route, in seconds; then the job fails and can be resumed. Default 60.
    #[serde(default = "default_stall_s")]
    pub stall_s: u32,
    /// Bytes that may be sent a second time over another route while the first route does not answer, as a fraction of
    /// the bytes listed (0 to 1). Unless it is 0, a stalled route may always repeat what its largest window holds.
    /// Default 0.02.
    #[serde(default = "default_duplicate_fraction_max")]
    pub duplicate_fraction_max: f64,
    /// Report the first mappings and the totals, and move nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Folder for journal, status and report. Absent: nothing is kept and the job cannot be resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<String>,
    /// Path of the report: one JSON verdict per object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_file: Option<String>,
    /// Resume the job in `state_dir`: skip the work that it records as done.
    #[serde(default)]
    pub resume: bool,
}

impl JobSpec {
    /// Returns the maximum number of bytes that the source may list. At the average price, more would exceed a ceiling.
    pub fn listed_bytes_max(&self) -> Option<u64> {
        let price = self.ceiling_usd_per_gb.filter(|price| *price > 0.0);
        let affordable = self.ceiling_usd.zip(price).map(|(usd, price)| (usd / price * 1e9) as u64);
        affordable.into_iter().chain(self.ceiling_bytes).min()
    }

    /// Returns the keys that its source objects may have.
    pub fn reads(&self) -> KeyScope {
        match &self.selection {
            Selection::Object { key } => KeyScope::Object { key: key.clone() },
            Selection::Prefix { prefix, .. } | Selection::List { prefix, .. } => {
                KeyScope::Prefix { prefix: prefix.clone() }
            }
            Selection::Several { members, .. } => KeyScope::Prefix { prefix: common_prefix(members).to_owned() },
        }
    }

    /// Returns whether a ceiling limits its bytes or its cost.
    pub fn has_ceiling(&self) -> bool {
        self.ceiling_usd_per_gb.is_some() || self.ceiling_usd.is_some() || self.ceiling_bytes.is_some()
    }

    /// Returns the keys that its objects may have at each destination.
    pub fn writes(&self) -> Vec<KeyScope> {
        let is_one = matches!(self.selection, Selection::Object { .. });
        let scope = |target: &Target| match is_one {
            true => KeyScope::Object { key: target.key.clone() },
            false => KeyScope::Prefix { prefix: target.key.clone() },
        };
        self.targets.iter().map(scope).collect()
    }

    /// Returns the keys that the destinations may copy inside their store.
    pub fn copies(&self) -> Option<CopyScope> {
        self.server_side_copy.then(|| CopyScope { bucket: self.source.bucket().to_owned(), keys: self.reads() })
    }
}

/// Returns the common prefix of the keys of all members.
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

fn default_duplicate_fraction_max() -> f64 {
    0.02
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
    /// The keys in `list_file`, relative to `prefix`, one per line.
    List {
        /// The prefix.
        prefix: String,
        /// A file with one relative key per line (UTF-8).
        list_file: String,
        /// Rules that choose among them.
        #[serde(default)]
        filter: ObjectFilter,
    },
    /// Several objects and prefixes of one store, each with its own name.
    Several {
        /// In the order given, 1 to 10,000.
        members: Vec<Member>,
        /// Selects among their objects, by the name at the destination.
        #[serde(default)]
        filter: ObjectFilter,
    },
}

/// One of several sources. At the destination it is called `name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Key of an object, or a prefix if it ends in `/`: all its keys are selected.
    pub key: String,
    /// Name at the destination, without a final `/`. Names are unique.
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
    /// Select objects that match.
    Include(String),
    /// Skip objects that match.
    Exclude(String),
}

/// The wildcards of a place as a user typed it, such as `2024-*/x` in `s3://b/2024-*/x`: they match the whole relative name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NameGlob {
    /// `*`, `?` and `[…]` match within a folder, `**` across. All other characters mean themselves, also `{`, `}` and `\\`.
    /// A final `/` matches folders only.
    pub glob: String,
    /// Select everything below a folder that matches, too.
    pub below: bool,
}

/// Rules that choose objects of a prefix, with the meaning of `.gitignore` patterns: they match the relative name, the last match
/// wins, and nothing below an excluded directory is included again. With no match an object is taken, unless the first rule is
/// an include or excludes `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectFilter {
    /// Only names that match this, before all rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<NameGlob>,
    /// In the order given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FilterRule>,
    /// With no match an object is taken whatever the first rule is: the rules begin with those of a `.gitignore` file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub includes_unmatched: bool,
    /// Minimum size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_min_bytes: Option<u64>,
    /// Maximum size.
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
    /// Size, and checksum where both listings give one. Otherwise time: between file systems it must be equal; elsewhere
    /// the destination must not be older.
    #[default]
    Auto,
    /// Size and checksum, requested per object where the listings give none.
    Checksum,
    /// Size only.
    Size,
    /// Size and time.
    Time,
    /// The name alone: an object that exists at the destination is never replaced.
    Existing,
}

/// Limits of `--delete`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Deletion {
    /// Delete nothing if more objects than this would be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_max: Option<u64>,
    /// Delete even if more than half of a destination's objects would be deleted.
    #[serde(default)]
    pub over_half: bool,
    /// Delete nothing yet: end with [`crate::Summary::to_delete`]. The client asks for confirmation and resumes the job without
    /// this.
    #[serde(default)]
    pub ask: bool,
}

/// How to prove that an object arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerifyMode {
    /// Compare our checksum with those that both stores state without extra reads.
    #[default]
    Auto,
    /// Read back from the destination the objects whose checksum no store states.
    Read,
}
