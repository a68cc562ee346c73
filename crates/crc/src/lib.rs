//! CRC-64/NVME and CRC-32C.
//!
//! All functions of `crc-fast` are `#[inline(always)]`: each crate that calls them compiles all its algorithms once more,
//! at its own level. Below level 3 they take several times as long, because the compiler no longer inlines the processor's
//! instructions. So only this crate calls them, and its functions are not inlined.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-64/NVME of bytes that pass in pieces.
pub struct PassingCrc64(Digest);

/// CRC-32C (Castagnoli) of bytes that pass in pieces.
pub struct PassingCrc32(Digest);

impl Default for PassingCrc64 {
    #[inline(never)]
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Nvme))
    }
}

impl PassingCrc64 {
    /// Adds the next bytes.
    #[inline(never)]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    pub fn checksum(&self) -> u64 {
        self.0.finalize()
    }
}

impl Default for PassingCrc32 {
    #[inline(never)]
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl PassingCrc32 {
    /// Adds the next bytes.
    #[inline(never)]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    pub fn checksum(&self) -> u32 {
        // A 32-bit checksum in a 64-bit integer.
        self.0.finalize() as u32
    }
}

/// CRC-64/NVME of bytes.
pub fn crc64(bytes: &[u8]) -> u64 {
    let mut passing = PassingCrc64::default();
    passing.update(bytes);
    passing.checksum()
}

/// CRC-32C of bytes.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut passing = PassingCrc32::default();
    passing.update(bytes);
    passing.checksum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_values_of_the_catalogue_come_out() {
        // https://reveng.sourceforge.io/crc-catalogue/all.htm
        assert_eq!(crc64(b"123456789"), 0xae8b_1486_0a79_9888);
        assert_eq!(crc32(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn pieces_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..60_000u32).map(|number| ((number * number) >> 7) as u8).collect();
        let (mut first, mut second) = (PassingCrc64::default(), PassingCrc32::default());
        for piece in bytes.chunks(777) {
            first.update(piece);
            second.update(piece);
        }
        assert_eq!(first.checksum(), crc64(&bytes));
        assert_eq!(second.checksum(), crc32(&bytes));
    }
}
