//! The reason why an object is selected or not, in words.

use std::fmt;
use tradewind_contract::FilterRule;

/// Why an object is selected or not, with the rule that decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// True if the object is selected.
    pub included: bool,
    /// The deciding rule or limit.
    pub because: Because,
}

/// The rule or limit that decided about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// The last rule that matches its name, or that of a folder above it.
    Rule {
        /// Position of the rule, from 1.
        position: usize,
        /// The rule.
        rule: FilterRule,
        /// The folder that it matches; `None` if it matches the name itself.
        folder: Option<String>,
    },
    /// The wildcards of the source do not match its name.
    NotWithin,
    /// No rule matches and the first rule is not an include.
    NoRuleMatches,
    /// No rule matches and the first rule is an include.
    NotIncluded,
    /// Smaller than the minimum size.
    TooSmall,
    /// Larger than the maximum size.
    TooLarge,
    /// Not modified since `--newer`.
    TooOld,
    /// Modified since `--older`.
    TooNew,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { position, rule, folder } => {
                let (option, glob) = match rule {
                    FilterRule::Include(glob) => ("include", glob),
                    FilterRule::Exclude(glob) => ("exclude", glob),
                };
                write!(f, "rule {position}, --{option} '{glob}', ")?;
                match folder {
                    None => f.write_str("is the last that matches"),
                    Some(folder) => write!(f, "{option}s its directory {folder}"),
                }
            }
            Self::NotWithin => f.write_str("the wildcards of the source do not match it"),
            Self::NoRuleMatches => f.write_str("no rule matches, so it is included by default"),
            Self::NotIncluded => {
                f.write_str("no rule matches, and the first rule is an --include, so all else is excluded")
            }
            Self::TooSmall => f.write_str("it is smaller than --min-size"),
            Self::TooLarge => f.write_str("it is larger than --max-size"),
            Self::TooOld => f.write_str("it was last modified before --newer"),
            Self::TooNew => f.write_str("it was last modified at or after --older"),
        }
    }
}
