//! Cuts a body into pieces by its content (FastCDC 2020: Xia et al., "The Design of Fast Content-Defined Chunking for
//! Data Deduplication Based Storage Systems", IEEE TPDS 31(9)).

use super::{CUT_BYTES_AVERAGE, CUT_BYTES_MAX, CUT_BYTES_MIN, PieceHash, REFERENCED_BYTES_MIN};
use fastcdc::v2020::FastCDC;

/// A piece of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset of its first byte.
    pub at: u32,
    /// Length.
    pub bytes: u32,
    /// Its hash; `None` if it is too short to be referred to.
    pub hash: Option<PieceHash>,
}

/// Returns the pieces of `data`, which has objects of these lengths one after the other. No piece has bytes of two
/// objects. Bytes after the last object are one more.
pub fn pieces(data: &[u8], objects: impl Iterator<Item = u64>) -> Vec<Piece> {
    let mut found = Vec::with_capacity(data.len() / CUT_BYTES_AVERAGE + 1);
    let mut start = 0usize;
    for length in objects.chain([u64::MAX]) {
        let end = usize::try_from(length).map_or(data.len(), |length| start.saturating_add(length).min(data.len()));
        let object = &data[start..end];
        for piece in FastCDC::new(object, CUT_BYTES_MIN, CUT_BYTES_AVERAGE, CUT_BYTES_MAX) {
            let bytes = &object[piece.offset..piece.offset + piece.length];
            let hash = (bytes.len() >= REFERENCED_BYTES_MIN).then(|| *blake3::hash(bytes).as_bytes());
            found.push(Piece { at: (start + piece.offset) as u32, bytes: bytes.len() as u32, hash });
        }
        start = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::dedup::tests::noise;
    use std::collections::HashSet;

    fn hashes(pieces: &[Piece]) -> HashSet<PieceHash> {
        pieces.iter().filter_map(|piece| piece.hash).collect()
    }

    #[test]
    fn pieces_follow_the_content_and_not_its_place() {
        let data = noise(1, 4 << 20);
        let whole = pieces(&data, [data.len() as u64].into_iter());
        let mut edited = data.clone();
        edited.splice(100_000..100_000, *b"inserted");
        let after = hashes(&pieces(&edited, std::iter::empty()));
        let lost = hashes(&whole).difference(&after).count();
        assert!(whole.len() > 30 && lost <= 2, "{lost} of {} pieces differ", whole.len());
    }

    #[test]
    fn pieces_cover_all_objects_and_no_piece_has_bytes_of_two() {
        let lengths = [5u64, 0, 300_000, 4096, 70_000];
        let data = noise(2, lengths.iter().sum::<u64>() as usize);
        let found = pieces(&data, lengths.into_iter());
        let mut at = 0;
        let mut starts = HashSet::new();
        for piece in &found {
            assert_eq!(piece.at, at);
            starts.insert(u64::from(at));
            at += piece.bytes;
            assert!(piece.bytes as usize <= CUT_BYTES_MAX);
            assert_eq!(piece.hash.is_some(), piece.bytes as usize >= REFERENCED_BYTES_MIN);
        }
        assert_eq!(at as usize, data.len());
        let mut boundary = 0;
        for length in lengths {
            assert!(length == 0 || starts.contains(&boundary));
            boundary += length;
        }
    }
}
