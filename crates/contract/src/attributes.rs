//! The attributes of the objects that a job writes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The treatment of the attributes of a source object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttributeDirective {
    /// They are kept, except those that the job sets.
    #[default]
    Keep,
    /// None of them is kept.
    Replace,
}

/// The treatment of the tags of a source object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceTags {
    /// They are kept if both stores keep tags and the source says that the object has some. Tags that one of the stores
    /// refuses are dropped and counted ([`crate::Summary::tags_dropped`]).
    #[default]
    Auto,
    /// They are kept: every object's tags are read, and an object whose tags cannot be kept fails.
    Keep,
    /// They are not read, and not kept.
    Drop,
}

impl SourceTags {
    /// Returns whether this is the default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The attributes that a copy keeps of a file: a new file gets them, and an object has them in its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Preserve {
    /// The mode. The setuid, setgid and sticky bits only if the owner is kept too, by root.
    #[serde(default)]
    pub mode: bool,
    /// User and group. Only root can give files to others.
    #[serde(default)]
    pub owner: bool,
    /// The time of modification.
    #[serde(default = "yes")]
    pub time: bool,
}

/// Protection of new objects against deletion and replacement (S3 Object Lock).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectLock {
    /// Until when they are kept; `None` for the default of the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// Keep them until somebody removes the hold.
    #[serde(default)]
    pub legal_hold: bool,
}

impl ObjectLock {
    /// Returns whether nothing is asked for.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The time for which an object is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Users who may shorten it.
    pub mode: RetentionMode,
    /// Its end, seconds since the Unix epoch.
    pub until_unix_s: i64,
}

/// Users who may shorten a retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetentionMode {
    /// Users with a permission of their own.
    Governance,
    /// Nobody.
    Compliance,
}

impl Default for Preserve {
    fn default() -> Self {
        Self { mode: false, owner: false, time: true }
    }
}

impl Preserve {
    /// Returns whether this is the default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

fn yes() -> bool {
    true
}

/// The attributes to write with each object. An object whose content type is neither set here nor kept gets one by the
/// extension of its name. Files have no attributes: at a file system nothing of this applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributeRules {
    /// The treatment of the source's attributes.
    #[serde(default)]
    pub directive: AttributeDirective,
    /// `Content-Type` to set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// `Cache-Control` to set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_control: Option<String>,
    /// User metadata to set, names in lower case. With `keep`, the source's other names are kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl AttributeRules {
    /// Returns whether they change nothing of a source's attributes.
    pub fn are_default(&self) -> bool {
        *self == Self::default()
    }
}
