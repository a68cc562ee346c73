//! Deduplication between a source and a sink: bytes that the sink has received already are not sent again.
//!
//! ```text
//!  source                                                    sink
//!  cut the body into pieces, hash each     ──── body ────▶   restore it from its recipe and the window
//!  send new pieces, refer to known ones                      keep its new bytes in the window
//!  note where the sink keeps the new ones  ◀─── answer ───   where they are kept, and how full the window is
//! ```
//!
//! **Participants.** [`cutting`] cuts bodies at places that depend on their content, so that equal data gives equal
//! pieces wherever it is. [`recipe`] describes a body as new bytes and references. [`known`] is the source's record of
//! what each sink keeps; [`window`] is what a sink keeps.
//!
//! **Goals.** A source refers only to bytes that an answer of that very sink process has confirmed, or that are in the
//! same body. A sink checks the hash of each referenced piece. Both ends use bounded memory, and none is on disk. No
//! piece is shared between jobs: window and record belong to one run of one program, and a reference can only name a
//! body that was sealed by the same source process.
//!
//! **Not goals.** Finding bytes that are still in flight, that left the window, or that another source sent. A
//! reference to a piece that is gone is no error of the job: the sink refuses the body, and the lead orders it again.
//! Only a first attempt may have references, so the second one needs no window.

pub mod cutting;
pub mod known;
pub mod recipe;
pub mod window;

/// The shortest piece that is cut, except at the end of an object.
pub const CUT_BYTES_MIN: usize = 16 << 10;
/// The length around which most cuts are made.
pub const CUT_BYTES_AVERAGE: usize = 64 << 10;
/// The longest piece.
pub const CUT_BYTES_MAX: usize = 256 << 10;
/// Shorter pieces are always sent. A reference takes some 45 bytes, and the source remembers each piece.
pub const REFERENCED_BYTES_MIN: usize = 4 << 10;

/// BLAKE3 of a piece.
pub type PieceHash = [u8; 32];

#[cfg(test)]
mod tests;
