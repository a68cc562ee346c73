//! The processes in a machine: found by the namespace that they are in, whoever started them.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Processes are looked for until a look finds no new one, at most so often: a machine in which processes are made
/// faster than they are found is not ours to win against.
const LOOKS_MAX: usize = 50;

/// What tells one namespace from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NamespaceId {
    device: u64,
    inode: u64,
}

/// Identity of the namespace that a path of /proc leads to. None if there is none.
pub fn namespace_id(path: &str) -> Option<NamespaceId> {
    let metadata = fs::metadata(path).ok()?;
    Some(NamespaceId { device: metadata.dev(), inode: metadata.ino() })
}

/// Sends a signal to every process in these namespaces, again and again until there is no other that did not get it.
pub fn signal_all(namespaces: &HashSet<NamespaceId>, signal: Signal) {
    let mut signalled = HashSet::new();
    for _ in 0..LOOKS_MAX {
        let found: Vec<Pid> = members(namespaces).filter(|pid| signalled.insert(*pid)).collect();
        if found.is_empty() {
            return;
        }
        for pid in found {
            // It may have ended meanwhile, which is as good.
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
