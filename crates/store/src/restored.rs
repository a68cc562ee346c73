//! Reads what a new file gets from the metadata of its object.
//!
//! Metadata comes from whoever wrote the object, so it never gives a program the rights of another user: see
//! [`Restored`].

use crate::{Attributes, KEPT_GROUP, KEPT_MODE, KEPT_TIME, KEPT_USER, Preserve, PutOptions, kept_time_ns};

/// The bits of the type of a file (`S_IFMT`).
const TYPE_BITS: u32 = 0o170_000;
/// The type of a regular file (`S_IFREG`).
const REGULAR: u32 = 0o100_000;
/// Setuid, setgid and sticky bit.
const SPECIAL_BITS: u32 = 0o7000;

/// The attributes that a new file gets by the metadata of its object. `None`: it stays as files are created.
///
/// Anybody who may write to a bucket could otherwise plant a program that runs with the rights of another user. So the
/// setuid, setgid and sticky bits are dropped, unless this process is root and the file also gets the user and the
/// group that its metadata states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Permission bits.
    pub mode: Option<u32>,
    /// User.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Time of modification, nanoseconds since the Unix epoch.
    pub modified_unix_ns: Option<i64>,
    /// True if the metadata has a value that is ignored because it cannot be read.
    pub ignores: bool,
}

impl Restored {
    /// Reads the metadata in the options of a write.
    pub fn of(options: &PutOptions) -> Self {
        Self::read(&options.attributes, options.preserve, rustix::process::geteuid().is_root())
    }

    fn read(attributes: &Attributes, preserve: Preserve, is_root: bool) -> Self {
        let text = |name: &str, wanted: bool| attributes.metadata.get(name).filter(|_| wanted).map(|text| text.trim());
        let (mode_text, uid_text, gid_text) =
            (text(KEPT_MODE, preserve.mode), text(KEPT_USER, preserve.owner), text(KEPT_GROUP, preserve.owner));
        let (mode, uid, gid) = (mode_text.and_then(mode), uid_text.and_then(id), gid_text.and_then(id));
        let keeps_special = is_root && uid.is_some() && gid.is_some();
        let time_text = text(KEPT_TIME, preserve.time);
        let modified_unix_ns = time_text.and_then(|_| kept_time_ns(attributes));
        Self {
            mode: mode.map(|bits| if keeps_special { bits } else { bits & !SPECIAL_BITS }),
            uid,
            gid,
            modified_unix_ns,
            ignores: mode_text.is_some() != mode.is_some()
                || uid_text.is_some() != uid.is_some()
                || gid_text.is_some() != gid.is_some()
                || time_text.is_some() != modified_unix_ns.is_some(),
        }
    }
}

/// Reads the permission bits of a mode, of a regular file or without a type.
fn mode(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let mode = digits.then(|| u32::from_str_radix(text, 8).ok()).flatten()?;
    let bits = mode & !TYPE_BITS;
    (matches!(mode & TYPE_BITS, 0 | REGULAR) && bits <= 0o7777).then_some(bits)
}

/// Reads the number of a user or group. The largest number means "no change" to the kernel.
fn id(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|digit| digit.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|id| *id != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Permissions;

    const ALL: Preserve = Preserve { mode: true, owner: true, time: true };

    fn with(pairs: &[(&str, &str)]) -> Attributes {
        let metadata = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Attributes { metadata, ..Attributes::default() }
    }

    #[test]
    fn what_is_kept_is_restored() {
        let mut attributes = with(&[("uid", "7")]);
        Permissions { mode: 0o104_755, uid: 1000, gid: 100 }.keep_in(&mut attributes, ALL);
        assert_eq!(attributes, with(&[("mode", "104755"), ("uid", "7"), ("gid", "100")]));
        let restored = Restored::read(&attributes, ALL, true);
        assert_eq!((restored.mode, restored.uid, restored.gid), (Some(0o4755), Some(7), Some(100)));
        assert_eq!(Restored::read(&attributes, Preserve::default(), true), Restored::default());
        let mut none = Attributes::default();
        Permissions::default().keep_in(&mut none, Preserve::default());
        assert_eq!(none, Attributes::default());
    }

    #[test]
    fn special_bits_need_root_and_an_owner() {
        let owned = with(&[("mode", "107777"), ("uid", "0"), ("gid", "0")]);
        let mode = |attributes: &Attributes, preserve, is_root| Restored::read(attributes, preserve, is_root).mode;
        assert_eq!(mode(&owned, ALL, true), Some(0o7777));
        assert_eq!(mode(&owned, ALL, false), Some(0o777));
        assert_eq!(mode(&owned, Preserve { owner: false, ..ALL }, true), Some(0o777));
        for partial in [&[("mode", "6755")][..], &[("mode", "6755"), ("uid", "0")], &[("mode", "6755"), ("gid", "0")]] {
            assert_eq!(mode(&with(partial), ALL, true), Some(0o755));
        }
        assert_eq!(mode(&with(&[("mode", "4755"), ("uid", "0"), ("gid", "x")]), ALL, true), Some(0o755));
    }

    #[test]
    fn values_that_cannot_be_read_are_ignored() {
        for wrong in ["", "rwx", "0o644", "+644", "-1", "100648", "120777", "40755", "1000000", "77777777777777"] {
            let restored = Restored::read(&with(&[("mode", wrong)]), ALL, true);
            assert_eq!((restored.mode, restored.ignores), (None, true), "{wrong}");
        }
        for wrong in ["", "root", "-1", "+1", "4294967295", "4294967296"] {
            let restored = Restored::read(&with(&[("uid", wrong), ("gid", "5")]), ALL, true);
            assert_eq!((restored.uid, restored.gid, restored.ignores), (None, Some(5), true), "{wrong}");
        }
        let no_time = with(&[("mtime", "yesterday"), ("mode", " 0640 ")]);
        let restored = Restored::read(&no_time, ALL, false);
        assert_eq!((restored.mode, restored.modified_unix_ns, restored.ignores), (Some(0o640), None, true));
        assert!(!Restored::read(&no_time, Preserve { time: false, ..ALL }, false).ignores);
    }
}
