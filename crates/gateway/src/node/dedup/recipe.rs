//! A recipe: how a sink puts together the object bytes of a body, from the new bytes that the body has and from bytes
//! of earlier bodies.

use super::PieceHash;
use super::cutting::Piece;
use super::known::{Contents, Place};
use super::window::Window;
use crate::node::work::{Failure, parse_exactly};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use tradewind_wire::Fault;
use tradewind_wire::frame::SealId;

/// Kind of the failure of a body that refers to bytes which its sink does not hold.
const PIECE_GONE: &str = "piece_gone";

/// The next bytes of a body, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// They are the next new bytes.
    New {
        /// How many.
        bytes: u32,
    },
    /// They are among the new bytes of an earlier body of the same source process, or of this one.
    Reference {
        /// Count in the seal of that body ([`SealId::count`]).
        body: u64,
        /// Offset in the new bytes of that body.
        at: u32,
        /// Length.
        bytes: u32,
        /// The hash that these bytes must have.
        hash: PieceHash,
    },
}

impl Step {
    fn bytes(&self) -> u32 {
        match self {
            Step::New { bytes } | Step::Reference { bytes, .. } => *bytes,
        }
    }
}

/// A body with references.
#[derive(Debug, Default)]
pub struct Shortened {
    /// How to restore it.
    pub recipe: Vec<Step>,
    /// Its new bytes.
    pub new: Vec<Bytes>,
    /// For the source's record of the sink's window.
    pub contents: Contents,
}

/// Replaces the pieces of `data` that are at a known place, and those that come a second time. `body` is the count of
/// the body's own seal.
pub fn shorten(data: &Bytes, pieces: &[Piece], places: &[Option<Place>], body: u64) -> Shortened {
    let mut shortened = Shortened::default();
    let (mut own, mut run) = (HashMap::new(), 0..0);
    for (piece, place) in pieces.iter().zip(places) {
        let (start, end) = (piece.at as usize, piece.at as usize + piece.bytes as usize);
        let known = piece.hash.and_then(|hash| {
            let found = place.map(|place| (place.body, place.at)).or_else(|| own.get(&hash).map(|at| (body, *at)));
            found.map(|(body, at)| Step::Reference { body, at, bytes: piece.bytes, hash })
        });
        match known {
            Some(reference) => {
                shortened.push_new(data.slice(std::mem::replace(&mut run, end..end)));
                shortened.recipe.push(reference);
                shortened.contents.referenced_bytes += u64::from(piece.bytes);
            }
            None => {
                run = if run.is_empty() { start..end } else { run.start..end };
                let contents = &mut shortened.contents;
                if let Some(hash) = piece.hash {
                    let at = contents.new_bytes as u32;
                    own.insert(hash, at);
                    contents.new_pieces.push(Piece { at, ..*piece });
                }
                contents.new_bytes += u64::from(piece.bytes);
            }
        }
    }
    shortened.push_new(data.slice(run));
    shortened
}

impl Shortened {
    fn push_new(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.recipe.push(Step::New { bytes: bytes.len() as u32 });
            self.new.push(bytes);
        }
    }
}

/// Parses a recipe, without side effects; also used by the fuzzer.
pub fn parse_recipe(bytes: &[u8]) -> Option<Vec<Step>> {
    parse_exactly(bytes)
}

/// Returns how many object bytes a recipe gives.
pub fn restored_bytes(recipe: &[Step]) -> u64 {
    recipe.iter().map(|step| u64::from(step.bytes())).sum()
}

/// Puts together the object bytes of the body `id` from its new bytes and those in `window`. Bytes of the window are copied,
/// so that the result uses no more memory than its length, whatever leaves the window meanwhile.
///
/// # Errors
/// `Unavailable` if the window does not hold a referenced body. `Corrupt` if the recipe does not fit the body, or a piece
/// does not have its hash, which no source with the job's key sends.
pub fn restore(recipe: &[Step], new: &Bytes, id: SealId, window: &Window) -> Result<Vec<Bytes>, Failure> {
    let mut restored = Vec::with_capacity(recipe.len());
    let mut next = 0usize;
    for step in recipe {
        match step {
            Step::New { bytes } => {
                let end = next.saturating_add(*bytes as usize);
                restored.push(slice(new, next, end)?);
                next = end;
            }
            Step::Reference { body, at, bytes, hash } => {
                let is_own = *body == id.count;
                let kept = match is_own {
                    true => new.clone(),
                    false => window.find(SealId { count: *body, ..id }).ok_or_else(gone)?,
                };
                let piece = slice(&kept, *at as usize, (*at as usize).saturating_add(*bytes as usize))?;
                if blake3::hash(&piece).as_bytes() != hash {
                    return Err(Failure::mismatch("a piece that a chunk refers to has other bytes"));
                }
                restored.push(if is_own { piece } else { Bytes::copy_from_slice(&piece) });
            }
        }
    }
    if next != new.len() {
        return Err(Failure::mismatch("a chunk was damaged in transit: its recipe leaves out bytes"));
    }
    Ok(restored)
}

fn slice(bytes: &Bytes, start: usize, end: usize) -> Result<Bytes, Failure> {
    if start > end || end > bytes.len() {
        return Err(Failure::mismatch("a chunk was damaged in transit: its recipe does not fit"));
    }
    Ok(bytes.slice(start..end))
}

fn gone() -> Failure {
    let message = "a chunk refers to bytes that its sink no longer keeps, so it is sent again in full";
    Failure::new(Fault::Unavailable, PIECE_GONE, message)
}

/// Returns whether a body failed because its sink does not keep the bytes that it refers to.
pub fn is_gone(failure: &Failure) -> bool {
    failure.kind == PIECE_GONE
}
