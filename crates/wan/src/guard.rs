//! A child process that outlives the emulator briefly: it kills the processes left in the machines, however the
//! emulator ended.
//!
//! It inherits a descriptor of each namespace. So none can vanish, and its identity be reused, before the guard has
//! looked. The guard notices the emulator's end by end of file on its standard input, which only the emulator holds
//! open.

use crate::fault::Fault;
use crate::namespace::Namespace;
use crate::processes::{namespace_id, signal_all};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::setsid;
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::process::{Child, Command, Stdio};

/// The guard of a running emulator.
pub struct Guard {
    child: Child,
}

impl Guard {
    /// Starts the guard. Call this while no other thread runs, so that nothing else inherits the namespaces.
    pub fn start(namespaces: &[Namespace]) -> Result<Self, Fault> {
        set_inherited(namespaces, true)?;
        let child = Command::new("/proc/self/exe")
            .arg("guard")
            .args(namespaces.iter().map(|namespace| namespace.netns.as_raw_fd().to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| Fault::failed(format!("the guard cannot be started: {error}")));
        set_inherited(namespaces, false)?;
        Ok(Self { child: child? })
    }

    /// Lets the guard do its work, and waits until it is done.
    pub fn finish(mut self) {
        drop(self.child.stdin.take());
        // A failure could not be handled here.
        let _ = self.child.wait();
    }
}

/// The guard's own process: waits, kills, exits.
pub fn run(descriptors: &[RawFd]) {
    // A session of its own and ignored signals keep the guard alive when the emulator is stopped.
    let _ = setsid();
    let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), None);
    let namespaces = descriptors.iter().filter_map(|number| namespace_id(&format!("/proc/self/fd/{number}"))).collect();
    let mut nothing = [0; 64];
    while std::io::stdin().read(&mut nothing).is_ok_and(|bytes| bytes > 0) {}
    signal_all(&namespaces, Signal::SIGKILL);
}

fn set_inherited(namespaces: &[Namespace], inherited: bool) -> Result<(), Fault> {
    let flag = if inherited { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    for namespace in namespaces {
        fcntl(&namespace.netns, FcntlArg::F_SETFD(flag))
            .map_err(|error| Fault::failed(format!("a descriptor of a namespace: {}", error.desc())))?;
    }
    Ok(())
}
