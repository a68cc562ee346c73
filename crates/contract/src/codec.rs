//! The choice of a codec for the bytes between gateways.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The level of zstd unless one is given: a hop is rarely slower than that.
pub const ZSTD_LEVEL: u8 = 1;
/// The highest level of zstd. Higher ones take seconds and far more memory for one body.
pub const ZSTD_LEVEL_MAX: u8 = 9;

/// How a body is compressed: `auto`, `lz4`, `zstd` or `zstd:LEVEL`. A body that would not get shorter is sent as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum CodecChoice {
    /// A sample of each body decides whether it is compressed, and how.
    #[default]
    Auto,
    /// LZ4, always.
    Lz4,
    /// Zstandard at this level, always.
    Zstd(u8),
}

impl FromStr for CodecChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::Zstd(ZSTD_LEVEL)),
            _ => {
                let level = text.strip_prefix("zstd:").and_then(|level| level.parse().ok());
                let level = level.filter(|level| (1..=ZSTD_LEVEL_MAX).contains(level));
                level.map(Self::Zstd).ok_or_else(|| {
                    format!("a codec is auto, lz4, zstd or zstd:LEVEL (1 to {ZSTD_LEVEL_MAX}), not {text:?}")
                })
            }
        }
    }
}

impl TryFrom<String> for CodecChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for CodecChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

impl From<CodecChoice> for String {
    fn from(choice: CodecChoice) -> Self {
        choice.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_survives_its_text() {
        let choices = (1..=ZSTD_LEVEL_MAX).map(CodecChoice::Zstd).chain([CodecChoice::Auto, CodecChoice::Lz4]);
        for choice in choices {
            assert_eq!(choice.to_string().parse(), Ok(choice));
            let words = serde_json::to_string(&choice).unwrap();
            assert_eq!(serde_json::from_str::<CodecChoice>(&words).unwrap(), choice);
        }
        assert_eq!("zstd".parse(), Ok(CodecChoice::Zstd(ZSTD_LEVEL)));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "off", "gzip", "zstd:", "zstd:0", "zstd:10", "zstd:300", "zstd:-1", "lz4:3", "AUTO"] {
            assert!(text.parse::<CodecChoice>().is_err_and(|why| why.contains("zstd:LEVEL")), "{text:?}");
        }
    }
}
