//! The resolution of a file system's modification times.
//!
//! Only file systems that are known to round are treated as such. Guessing from the times would treat two files as
//! equal whenever one of them was changed at a whole second.

use super::Tree;
use std::os::fd::OwnedFd;

/// FAT in all its variants: even seconds.
const MSDOS: u64 = 0x4d44;
/// exFAT: hundredths of a second.
const EXFAT: u64 = 0x2011_bab0;

impl Tree {
    /// Notes the resolution of the file system that holds `directory`.
    pub(super) fn note_grain(&self, directory: &OwnedFd) {
        self.grain_ns.get_or_init(|| magic_of(directory).map_or(1, grain_ns));
    }
}

#[cfg(target_os = "linux")]
fn magic_of(directory: &OwnedFd) -> Option<u64> {
    // Width and sign of the number depend on the machine.
    Some(nix::sys::statfs::fstatfs(directory).ok()?.filesystem_type().0 as u64 & 0xffff_ffff)
}

#[cfg(not(target_os = "linux"))]
fn magic_of(_directory: &OwnedFd) -> Option<u64> {
    None
}

/// The resolution of a file system with this magic number (see `statfs(2)`).
fn grain_ns(magic: u64) -> u64 {
    match magic {
        MSDOS => 2_000_000_000,
        EXFAT => 10_000_000,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_that_are_known_to_round_are_coarse() {
        assert_eq!(grain_ns(MSDOS), 2_000_000_000);
        assert_eq!(grain_ns(EXFAT), 10_000_000);
        for fine in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x6969] {
            assert_eq!(grain_ns(fine), 1, "{fine:x}");
        }
    }
}
