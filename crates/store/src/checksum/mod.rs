//! CRC-64/NVME and CRC-32C: computed while bytes pass, combined from parts into those of whole objects.
//!
//! Both are linear, so the checksum of a concatenation follows from those of its parts and their lengths alone.

mod combine;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tradewind_crc::{PassingCrc32, PassingCrc64};

/// CRC-64/NVME, called `CRC64NVME` by S3.
pub type Crc64Nvme = u64;
/// CRC-32C (Castagnoli), as used by GCS and S3.
pub type Crc32c = u32;

/// The known checksums of some bytes. A field is `None` if nobody stated or computed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksums {
    /// CRC-64/NVME of the bytes.
    pub crc64nvme: Option<Crc64Nvme>,
    /// CRC-32C of the bytes.
    pub crc32c: Option<Crc32c>,
    /// MD5 of the bytes.
    pub md5: Option<[u8; 16]>,
}

/// CRCs that are computed of the same bytes, fewest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Crcs {
    /// Only CRC-64/NVME.
    Crc64,
    /// CRC-64/NVME and CRC-32C.
    Both,
}

/// Bytes that both CRCs read before the next ones, so that the second finds them in the cache.
const BLOCK_BYTES: usize = 32 << 10;

/// CRCs of bytes that pass in pieces. A piece that has just been received is still in the cache. Reading it again
/// from memory, when a whole chunk has come, costs 0.05 CPU-s per GB more.
pub struct PassingChecksums {
    crc64: PassingCrc64,
    crc32: Option<PassingCrc32>,
}

impl PassingChecksums {
    /// The CRCs of no bytes yet.
    pub fn new(crcs: Crcs) -> Self {
        Self { crc64: PassingCrc64::default(), crc32: (crcs == Crcs::Both).then(PassingCrc32::default) }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        let Some(crc32) = &mut self.crc32 else { return self.crc64.update(bytes) };
        for block in bytes.chunks(BLOCK_BYTES) {
            self.crc64.update(block);
            crc32.update(block);
        }
    }

    /// The checksums of all bytes so far.
    pub fn checksums(&self) -> Checksums {
        let crc32c = self.crc32.as_ref().map(PassingCrc32::checksum);
        Checksums { crc64nvme: Some(self.crc64.checksum()), crc32c, md5: None }
    }
}

impl Checksums {
    /// Computes both CRCs of the segments, in order.
    pub fn of_segments(segments: &[Bytes]) -> Self {
        Self::computed(segments, Crcs::Both)
    }

    /// Computes these CRCs of the segments, in order.
    pub fn computed(segments: &[Bytes], crcs: Crcs) -> Self {
        let mut passing = PassingChecksums::new(crcs);
        for segment in segments {
            passing.update(segment);
        }
        passing.checksums()
    }

    /// Combines `first` with `second`, which follows it and is `second_bytes` long. A checksum that one side lacks is
    /// dropped, and so is every MD5.
    pub fn concat(first: &Self, second: &Self, second_bytes: u64) -> Self {
        Self {
            crc64nvme: first.crc64nvme.zip(second.crc64nvme).map(|(a, b)| combine_crc64nvme(a, b, second_bytes)),
            crc32c: first.crc32c.zip(second.crc32c).map(|(a, b)| combine_crc32c(a, b, second_bytes)),
            md5: None,
        }
    }

    /// Drops an MD5 that cannot belong to `size_bytes` bytes: some servers state one constant for all objects, such as
    /// zeros or the MD5 of nothing.
    pub fn plausible(self, size_bytes: u64) -> Self {
        Self { md5: self.md5.filter(|md5| may_be_md5(u128::from_be_bytes(*md5), size_bytes)), ..self }
    }

    /// `Some(true)` when at least one checksum is known on both sides and all of those agree, `Some(false)` when one
    /// differs, `None` when no checksum is known on both sides.
    pub fn agrees_with(&self, other: &Self) -> Option<bool> {
        let verdicts = [
            self.crc64nvme.zip(other.crc64nvme).map(|(a, b)| a == b),
            self.crc32c.zip(other.crc32c).map(|(a, b)| a == b),
            self.md5.zip(other.md5).map(|(a, b)| a == b),
        ];
        verdicts.into_iter().flatten().reduce(|a, b| a && b)
    }
}

/// Returns whether a number can be the MD5 of `size_bytes` bytes.
pub fn may_be_md5(md5: u128, size_bytes: u64) -> bool {
    const OF_NOTHING: u128 = 0xd41d_8cd9_8f00_b204_e980_0998_ecf8_427e;
    md5 != 0 && (md5 == OF_NOTHING) == (size_bytes == 0)
}

/// CRC-64/NVME of a concatenation.
pub fn combine_crc64nvme(first: Crc64Nvme, second: Crc64Nvme, second_bytes: u64) -> Crc64Nvme {
    combine::CRC64_NVME.combine(first, second, second_bytes)
}

/// CRC-32C of a concatenation.
pub fn combine_crc32c(first: Crc32c, second: Crc32c, second_bytes: u64) -> Crc32c {
    combine::CRC32C.combine(u64::from(first), u64::from(second), second_bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_is_no_md5() {
        let nothing = Checksums {
            md5: Some(0xd41d_8cd9_8f00_b204_e980_0998_ecf8_427e_u128.to_be_bytes()),
            crc32c: Some(1),
            ..Checksums::default()
        };
        assert_eq!(nothing.plausible(0), nothing);
        assert_eq!(nothing.plausible(1), Checksums { md5: None, ..nothing });
        assert!(!may_be_md5(0, 0) && !may_be_md5(0, 1) && may_be_md5(1, 1));
    }

    #[test]
    fn known_vectors() {
        let sums = Checksums::of_segments(&[Bytes::from_static(b"123456789")]);
        assert_eq!(sums.crc64nvme, Some(0xae8b_1486_0a79_9888));
        assert_eq!(sums.crc32c, Some(0xe306_9283));
    }

    #[test]
    fn the_size_of_pieces_does_not_matter() {
        let bytes: Vec<u8> = (0..3 * BLOCK_BYTES + 5).map(|index| (index * 7 % 251) as u8).collect();
        let whole = Checksums::of_segments(&[Bytes::from(bytes.clone())]);
        for piece_bytes in [1, 1000, BLOCK_BYTES, BLOCK_BYTES + 1] {
            for (crcs, wanted) in [(Crcs::Both, whole), (Crcs::Crc64, Checksums { crc32c: None, ..whole })] {
                let mut passing = PassingChecksums::new(crcs);
                bytes.chunks(piece_bytes).for_each(|piece| passing.update(piece));
                assert_eq!(passing.checksums(), wanted, "{piece_bytes}");
            }
        }
    }

    #[test]
    fn concatenation_combines() {
        let (a, b) = (Bytes::from_static(b"trade"), Bytes::from_static(b"wind"));
        let whole = Checksums::of_segments(&[a.clone(), b.clone()]);
        let combined = Checksums::concat(&Checksums::of_segments(&[a]), &Checksums::of_segments(&[b]), 4);
        assert_eq!(whole, combined);
        assert_eq!(whole.agrees_with(&combined), Some(true));
    }

    #[test]
    fn without_a_common_checksum_there_is_no_verdict() {
        let md5_only = Checksums { md5: Some([0; 16]), ..Checksums::default() };
        assert_eq!(md5_only.agrees_with(&Checksums::of_segments(&[])), None);
    }
}
