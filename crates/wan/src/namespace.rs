//! Unnamed network namespaces: each lives as long as a descriptor of it, or a process in it.

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

/// Path of the calling thread's namespace.
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// A machine's namespace and device.
pub struct Namespace {
    /// Keeps the namespace alive.
    pub netns: OwnedFd,
    /// Packets that the machine sends are read from this device; packets for it are written to it.
    pub device: OwnedFd,
}

/// Makes the namespaces of all machines, and returns this thread to its own.
///
/// Call this before other threads start, because a new thread begins in the namespace of its creator.
pub fn make_all(network: &Network) -> Result<Vec<Namespace>, Fault> {
    let own = open_namespace(OWN_NAMESPACE)?;
    let controls = AllowedControls::allow(network.machines.iter().map(|machine| machine.congestion_control.as_str()))?;
    let made: Result<Vec<_>, Fault> = network.machines.iter().map(|machine| make(machine, network.mtu_bytes)).collect();
    let back = enter(&own);
    // Restore after any failure too, and from the host's namespace, because the file shows its reader's namespace. A
    // thread that could not enter a namespace has not left the host's either.
    controls.put_back()?;
    let made = made?;
    back?;
    Ok(made)
}

/// Sets the congestion control of new connections in these namespaces.
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

/// Moves this thread into a namespace.
pub fn enter(netns: &impl AsFd) -> Result<(), Fault> {
    setns(netns, CloneFlags::CLONE_NEWNET).map_err(|error| refused("entering a network namespace", error))
}

/// Moves this process into a machine's namespace for good, provided that the machine's emulator still holds it
/// afterwards.
///
/// Without that check, a process that enters while the emulator ends could be missed by its guard, and stay.
pub fn enter_machine(path: &str) -> Result<(), Fault> {
    let netns = open_namespace(path)?;
    enter(&netns)?;
    let entered = namespace_id(OWN_NAMESPACE);
    if entered.is_none() || entered != namespace_id(path) {
        return Err(Fault::failed(format!("{path}: the machine no longer exists")));
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
    // The kernel remembers the metrics of earlier connections to an address, so one run would influence the next.
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
