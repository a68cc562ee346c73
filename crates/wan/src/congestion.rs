//! The congestion control of a namespace.
//!
//! A namespace may only choose what the host allows for all, and keeps its choice afterwards. So the host's list is
//! extended while namespaces choose, and restored at once: a later crash leaves nothing behind. Emulators that start at
//! the same time take turns.

use crate::fault::Fault;
use crate::tun::TUN_DEVICE;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};

const FOLDER: &str = "/proc/sys/net/ipv4";
const ALLOWED: &str = "tcp_allowed_congestion_control";
const AVAILABLE: &str = "tcp_available_congestion_control";
const CHOSEN: &str = "tcp_congestion_control";

/// The host's extended list, until it is restored.
pub struct AllowedControls {
    before: Option<String>,
    _turn: Flock<File>,
}

impl AllowedControls {
    /// Allows all of `wanted`. Call this in the host's namespace.
    pub fn allow<'a>(wanted: impl Iterator<Item = &'a str>) -> Result<Self, Fault> {
        // A lock file: any existing file that all emulators see will do.
        let turn = File::open(TUN_DEVICE).map_err(|error| {
            let hint = "run as root; without the device: modprobe tun; in a container add it and CAP_NET_ADMIN";
            Fault::unavailable(format!("{TUN_DEVICE}: {error}"), hint)
        })?;
        let turn = Flock::lock(turn, FlockArg::LockExclusive)
            .map_err(|(_, error)| Fault::failed(format!("{TUN_DEVICE}: lock: {}", error.desc())))?;
        let (available, before) = (read_setting(AVAILABLE)?, read_setting(ALLOWED)?);
        let mut allowed: Vec<&str> = before.split_whitespace().collect();
        for name in wanted {
            if !available.split_whitespace().any(|known| known == name) {
                return Err(Fault::unavailable(
                    format!("this kernel has no congestion control {name}; it has {}", available.trim()),
                    format!("modprobe tcp_{name}, as root; or choose another in the sky file"),
                ));
            }
            if !allowed.contains(&name) {
                allowed.push(name);
            }
        }
        let grown = allowed.len() > before.split_whitespace().count();
        if grown {
            write_setting(ALLOWED, &allowed.join(" "))?;
        }
        Ok(Self { before: grown.then_some(before), _turn: turn })
    }

    /// Restores the host's list. Call this in the host's namespace.
    pub fn put_back(self) -> Result<(), Fault> {
        self.before.as_ref().map_or(Ok(()), |before| write_setting(ALLOWED, before.trim()))
    }
}

/// Sets the congestion control of new connections in this thread's namespace.
pub fn choose(name: &str) -> Result<(), Fault> {
    write_setting(CHOSEN, name)
}

/// Writes a setting of this thread's namespace.
pub fn write_setting(name: &str, value: &str) -> Result<(), Fault> {
    fs::write(format!("{FOLDER}/{name}"), value).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => Fault::unavailable(
            format!("{FOLDER}/{name} cannot be set to {value:?}: {error}"),
            "run as root; in a container mount /proc/sys writable (privileged)",
        ),
        _ => Fault::failed(format!("{FOLDER}/{name} cannot be set to {value:?}: {error}")),
    })
}

fn read_setting(name: &str) -> Result<String, Fault> {
    fs::read_to_string(format!("{FOLDER}/{name}")).map_err(|error| Fault::failed(format!("{FOLDER}/{name}: {error}")))
}
