//! The processes in a machine, found by their namespace, whoever started them.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Most searches for processes; the search ends earlier when it finds no new one. If a machine creates processes faster
/// than they are found, the search cannot win.
const LOOKS_MAX: usize = 50;

/// Distinguishes one namespace from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NamespaceId {
    device: u64,
    inode: u64,
}

/// Returns the identity of the namespace at a path of /proc; `None` if there is none.
pub fn namespace_id(path: &str) -> Option<NamespaceId> {
    let metadata = fs::metadata(path).ok()?;
    Some(NamespaceId { device: metadata.dev(), inode: metadata.ino() })
}

/// Sends a signal to every process in these namespaces, repeatedly until no process is left that did not get it.
pub fn signal_all(namespaces: &HashSet<NamespaceId>, signal: Signal) {
    let mut signalled = HashSet::new();
    for _ in 0..LOOKS_MAX {
        let found: Vec<Pid> = members(namespaces).filter(|pid| signalled.insert(*pid)).collect();
        if found.is_empty() {
            return;
        }
        for pid in found {
            // It may have ended in the meantime, which is just as good.
            let _ = kill(pid, signal);
        }
    }
}

fn members(namespaces: &HashSet<NamespaceId>) -> impl Iterator<Item = Pid> {
    let own = Pid::this();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
        .filter(move |pid| *pid != own)
        .filter(|pid| namespace_id(&format!("/proc/{pid}/ns/net")).is_some_and(|id| namespaces.contains(&id)))
}
