//! The lines of a report: the verdict on each object, and its proof.

use crate::failure::ObjectUrl;
use serde::{Deserialize, Serialize};
use tradewind_contract::FailedObject;

/// The beginning of each line.
pub(super) const LINE_START: &[u8] = br#"{"source":""#;

/// The result for one object at one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectVerdict {
    /// Source URL.
    pub source: String,
    /// Destination URL.
    pub destination: String,
    /// Length.
    pub size_bytes: u64,
    /// The verdict.
    pub verdict: Verdict,
    /// The proofs of the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<ProofRecord>,
    /// Orders given again for it.
    #[serde(default)]
    pub retries: u64,
    /// For a failure: its meaning, as in [`FailedObject::kind`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// For a failure: one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The verdict on an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Transferred and proven.
    #[default]
    Copied,
    /// The destination already had it.
    Skipped,
    /// Deleted at the destination (`--delete`), or at the source (`mv`).
    Deleted,
    /// Not transferred.
    Failed,
}

/// The proofs of a copy, in the words of `docs/concepts/integrity.md`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofRecord {
    /// Compared with what the source store states.
    pub source: String,
    /// Compared in transit.
    pub hop: String,
    /// Compared with what the destination store states.
    pub destination: String,
}

/// The line of a copied object: that of an [`ObjectVerdict`], from parts that are at hand.
#[derive(Debug)]
pub struct CopiedLine<'a> {
    /// Source URL.
    pub source: ObjectUrl<'a>,
    /// Destination URL.
    pub destination: ObjectUrl<'a>,
    /// Length.
    pub size_bytes: u64,
    /// The proofs of the copy.
    pub proof: ProofNames,
    /// Orders given again for it.
    pub retries: u64,
}

/// See [`ProofRecord`].
#[derive(Debug)]
pub struct ProofNames {
    /// Compared with what the source store states.
    pub source: &'static str,
    /// Compared in transit.
    pub hop: &'static str,
    /// Compared with what the destination store states.
    pub destination: &'static str,
}

/// A line of a report.
pub trait Line: Sync {
    /// Writes it without an end of line.
    ///
    /// # Errors
    /// It has a part that JSON cannot express.
    fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()>;
}

impl Line for ObjectVerdict {
    fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(out, self)
    }
}

/// Written for each object, so without what makes serializers general.
impl Line for CopiedLine<'_> {
    fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        out.extend_from_slice(LINE_START);
        push_url(out, self.source)?;
        out.extend_from_slice(br#"","destination":""#);
        push_url(out, self.destination)?;
        out.extend_from_slice(br#"","size_bytes":"#);
        serde_json::to_writer(&mut *out, &self.size_bytes)?;
        out.extend_from_slice(br#","verdict":"copied","proof":{"source":""#);
        out.extend_from_slice(self.proof.source.as_bytes());
        out.extend_from_slice(br#"","hop":""#);
        out.extend_from_slice(self.proof.hop.as_bytes());
        out.extend_from_slice(br#"","destination":""#);
        out.extend_from_slice(self.proof.destination.as_bytes());
        out.extend_from_slice(br#""},"retries":"#);
        serde_json::to_writer(&mut *out, &self.retries)?;
        out.push(b'}');
        Ok(())
    }
}

fn push_url(out: &mut Vec<u8>, url: ObjectUrl<'_>) -> serde_json::Result<()> {
    url.parts().into_iter().try_for_each(|part| push_text(out, part))
}

/// Writes a part of a JSON string.
fn push_text(out: &mut Vec<u8>, text: &str) -> serde_json::Result<()> {
    let is_plain = text.bytes().fold(true, |plain, byte| plain & (byte >= b' ') & (byte != b'"') & (byte != b'\\'));
    if is_plain {
        out.extend_from_slice(text.as_bytes());
        return Ok(());
    }
    let quoted = serde_json::to_string(text)?;
    out.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
    Ok(())
}

impl From<&FailedObject> for ObjectVerdict {
    fn from(failed: &FailedObject) -> Self {
        Self {
            source: failed.source.clone(),
            destination: failed.destination.clone(),
            verdict: Verdict::Failed,
            kind: Some(failed.kind.clone()),
            message: Some(failed.message.clone()),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_copy_is_that_of_its_verdict() {
        let of = |name: &str| name.to_owned();
        for (root, url) in [("s3://b", "s3://b/k\"\n\u{e9}"), ("mem:/", "mem:/k\"\n\u{e9}")] {
            let object = ObjectUrl { root, key: "k\"\n\u{e9}" };
            let proof = ProofNames { source: "a", hop: "b", destination: "c" };
            let (size_bytes, retries) = (u64::MAX, 2);
            let line = CopiedLine { source: object, destination: object, size_bytes, proof, retries };
            let proof = ProofRecord { source: of("a"), hop: of("b"), destination: of("c") };
            let (source, destination) = (of(url), of(url));
            let whole = ObjectVerdict { source, destination, size_bytes, retries, ..ObjectVerdict::default() };
            let whole = ObjectVerdict { proof: Some(proof), ..whole };
            let [line, whole] = [&line as &dyn Line, &whole].map(|line| {
                let mut text = Vec::new();
                line.write(&mut text).unwrap();
                String::from_utf8(text).unwrap()
            });
            assert_eq!(line, whole);
        }
    }
}
