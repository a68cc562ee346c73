//! Network namespaces without a name: each lives as long as a descriptor of it, or a process in it.

use crate::congestion::AllowedControls;
use crate::fault::Fault;
use crate::network::{Machine, Network};
use crate::processes::namespace_id;
use crate::tun;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;
use std::os::fd::{AsFd, OwnedFd};

/// Where a thread finds the namespace that it is in.
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// A machine's namespace and device.
pub struct Namespace {
    /// Holds the namespace.
    pub netns: OwnedFd,
    /// Packets that the machine sends are read from it, those that it gets are written to it.
    pub device: OwnedFd,
}

/// Makes the namespaces of all machines; this thread is back in its own afterwards.
///
/// To be called before other threads are started, since a new thread begins in the namespace of the one that starts it.
pub fn make_all(network: &Network) -> Result<Vec<Namespace>, Fault> {
    let own = open_namespace(OWN_NAMESPACE)?;
    let controls = AllowedControls::allow(network.machines.iter().map(|machine| machine.congestion_control.as_str()))?;
    let made: Result<Vec<_>, Fault> = network.machines.iter().map(|machine| make(machine, network.mtu_bytes)).collect();
    let back = enter(&own);
    // Whatever failed; and from the host's namespace, since the file shows the one of its reader. Who may not enter a
    // namespace has not left it either.
    controls.put_back()?;
    let made = made?;
    back?;
    Ok(made)
}

/// Chooses the congestion control of new connections in these namespaces.
pub fn choose_control(namespaces: &[&OwnedFd], name: &str) -> Result<(), Fault> {
    let own = open_namespace(OWN_NAMESPACE)?;
    let controls = AllowedControls::allow(std::iter::once(name))?;
    let chosen = namespaces.iter().try_for_each(|netns| {
        enter(netns)?;
        crate::congestion::choose(name)
    });
    let back = enter(&own);
    controls.put_back()?;
    back?;
    chosen
}

/// Enters a namespace with this thread.
pub fn enter(netns: &impl AsFd) -> Result<(), Fault> {
    setns(netns, CloneFlags::CLONE_NEWNET).map_err(|error| refused("entering a network namespace", error))
}

/// Enters a machine's namespace with this process, for good, if the machine's emulator still holds it afterwards.
///
/// Whoever entered while the emulator ended might otherwise have come too late for its guard to see, and stay.
pub fn enter_machine(path: &str) -> Result<(), Fault> {
    let netns = open_namespace(path)?;
    enter(&netns)?;
    let entered = namespace_id(OWN_NAMESPACE);
    if entered.is_none() || entered != namespace_id(path) {
        return Err(Fault::failed(format!("{path}: the machine is gone")));
    }
    Ok(())
}

/// Opens a namespace by its path.
pub fn open_namespace(path: &str) -> Result<OwnedFd, Fault> {
    open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|error| Fault::failed(format!("{path}: {}", error.desc())))
}

fn make(machine: &Machine, mtu_bytes: u16) -> Result<Namespace, Fault> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| refused("making a network namespace", error))?;
    let device = tun::open_in_this_namespace(machine.address, mtu_bytes)?;
    set_up_tcp(machine)?;
    Ok(Namespace { netns: open_namespace(OWN_NAMESPACE)?, device })
}

fn set_up_tcp(machine: &Machine) -> Result<(), Fault> {
    crate::congestion::choose(&machine.congestion_control)?;
    // The kernel remembers how connections to an address went; a run would begin with what the one before it met.
    crate::congestion::write_setting("tcp_no_metrics_save", "1")
}

fn refused(what: &str, error: Errno) -> Fault {
    match error {
        Errno::EPERM => Fault::unavailable(
            format!("{what}: {}", error.desc()),
            "run as root; in a container add CAP_SYS_ADMIN and CAP_NET_ADMIN",
        ),
        _ => Fault::failed(format!("{what}: {}", error.desc())),
    }
}
