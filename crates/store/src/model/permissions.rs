//! Mode and owner of a file in the metadata of its object, in the form of rclone (`backend/local/metadata.go`): `mode`
//! in octal digits with the type of the file (`100644`), `uid` and `gid` in decimal digits.

use super::Attributes;
use serde::{Deserialize, Serialize};

/// Name of the metadata for the mode.
pub const KEPT_MODE: &str = "mode";
/// Name of the metadata for the user.
pub const KEPT_USER: &str = "uid";
/// Name of the metadata for the group.
pub const KEPT_GROUP: &str = "gid";

/// Mode and owner of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    /// `st_mode`, with the type of the file.
    pub mode: u32,
    /// `st_uid`.
    pub uid: u32,
    /// `st_gid`.
    pub gid: u32,
}

/// The attributes that a copy keeps of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preserve {
    /// The mode.
    pub mode: bool,
    /// User and group.
    pub owner: bool,
    /// The time of modification.
    pub time: bool,
}

impl Default for Preserve {
    fn default() -> Self {
        Self { mode: false, owner: false, time: true }
    }
}

impl Permissions {
    /// Adds the parts that are kept to the metadata of an object, unless it has them already.
    pub fn keep_in(self, attributes: &mut Attributes, preserve: Preserve) {
        let mut keep = |name: &str, text: String| {
            attributes.metadata.entry(name.to_owned()).or_insert(text);
        };
        if preserve.mode {
            keep(KEPT_MODE, format!("{:o}", self.mode));
        }
        if preserve.owner {
            keep(KEPT_USER, self.uid.to_string());
            keep(KEPT_GROUP, self.gid.to_string());
        }
    }
}
