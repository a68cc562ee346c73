//! TUN devices, and the few ioctl requests that make and configure them.

use crate::fault::Fault;
use crate::packet::VIRTIO_HEADER_BYTES;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::sys::stat::Mode;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The device through which the kernel makes TUN devices.
pub const TUN_DEVICE: &str = "/dev/net/tun";
/// Name of the device in each machine.
const NAME: &[u8] = b"wan0";
/// Most packets that the kernel holds until they are read. Further ones are lost, and only the device counts them.
const QUEUE_PACKETS: i32 = 4_000;

/// Size of `struct ifreq` of `linux/if.h`: 16 bytes of name, and a union of which each request reads its own part.
const IFREQ_BYTES: usize = 40;
const IFREQ_NAME_BYTES: usize = 16;

/// Makes `wan0` in the network namespace of this thread, sets its address and brings it up. Returns the descriptor to
/// read packets from.
///
/// The device lives exactly as long as the descriptor.
pub fn open_in_this_namespace(address: Ipv4Addr, mtu_bytes: u16) -> Result<OwnedFd, Fault> {
    let device =
        open(TUN_DEVICE, OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC, Mode::empty()).map_err(unavailable)?;
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as i16;
    request(&device, libc::TUNSETIFF, NAME, &flags.to_ne_bytes()).map_err(unavailable)?;
    let header_bytes = (VIRTIO_HEADER_BYTES as i32).to_ne_bytes();
    request_with(&device, libc::TUNSETVNETHDRSZ, header_bytes).map_err(failed("virtio headers"))?;
    let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO_ECN;
    request_by_value(&device, libc::TUNSETOFFLOAD, offloads).map_err(failed("segmentation offload"))?;

    let socket =
        socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).map_err(failed("a socket"))?;
    // glibc and musl declare these numbers alike, but the argument of `ioctl` as different types.
    request(&socket, libc::SIOCSIFMTU as libc::Ioctl, NAME, &i32::from(mtu_bytes).to_ne_bytes())
        .map_err(failed("the MTU"))?;
    request(&socket, libc::SIOCSIFTXQLEN as libc::Ioctl, NAME, &QUEUE_PACKETS.to_ne_bytes())
        .map_err(failed("the queue"))?;
    request(&socket, libc::SIOCSIFADDR as libc::Ioctl, NAME, &socket_address(address))
        .map_err(failed("the address"))?;
    let netmask = socket_address(Ipv4Addr::new(255, 255, 0, 0));
    request(&socket, libc::SIOCSIFNETMASK as libc::Ioctl, NAME, &netmask).map_err(failed("the netmask"))?;
    for name in [NAME, b"lo"] {
        let up = ((libc::IFF_UP | libc::IFF_RUNNING) as i16).to_ne_bytes();
        request(&socket, libc::SIOCSIFFLAGS as libc::Ioctl, name, &up).map_err(failed("bringing it up"))?;
    }
    Ok(device)
}

fn unavailable(error: Errno) -> Fault {
    let hint = match error {
        Errno::ENOENT | Errno::ENODEV | Errno::ENXIO => "this kernel has no TUN device: modprobe tun, as root",
        _ => "run as root; in a container add the device /dev/net/tun and CAP_NET_ADMIN",
    };
    Fault::unavailable(format!("{TUN_DEVICE}: {}", error.desc()), hint)
}

fn failed(what: &'static str) -> impl Fn(Errno) -> Fault {
    move |error| Fault::failed(format!("the TUN device: {what}: {}", error.desc()))
}

/// Builds a `struct sockaddr_in`: family in the host's byte order, no port, address.
fn socket_address(address: Ipv4Addr) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&address.octets());
    bytes
}

/// Makes a request whose argument is a `struct ifreq` with this name and this content of its union.
fn request(descriptor: &impl AsFd, number: libc::Ioctl, name: &[u8], content: &[u8]) -> Result<(), Errno> {
    let mut ifreq = [0; IFREQ_BYTES];
    ifreq[..name.len()].copy_from_slice(name);
    ifreq[IFREQ_NAME_BYTES..IFREQ_NAME_BYTES + content.len()].copy_from_slice(content);
    request_with(descriptor, number, ifreq)
}

/// Makes a request whose argument points to `N` bytes.
#[allow(unsafe_code)]
fn request_with<const N: usize>(
    descriptor: &impl AsFd,
    number: libc::Ioctl,
    mut argument: [u8; N],
) -> Result<(), Errno> {
    // SAFETY: the pointer is to an array of ours that outlives the call. The requests made here read at most a
    // `struct ifreq` (40 bytes) of it, or an int (4 bytes) in the case of TUNSETVNETHDRSZ, and write no more back; the
    // callers in this file pass arrays of exactly these lengths. Neither nix nor rustix has these requests.
    let done = unsafe { libc::ioctl(descriptor.as_fd().as_raw_fd(), number, argument.as_mut_ptr()) };
    Errno::result(done).map(drop)
}

/// Makes a request whose argument is a number.
#[allow(unsafe_code)]
fn request_by_value(descriptor: &impl AsFd, number: libc::Ioctl, argument: u32) -> Result<(), Errno> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value; the kernel follows no pointer.
    let done = unsafe { libc::ioctl(descriptor.as_fd().as_raw_fd(), number, libc::c_ulong::from(argument)) };
    Errno::result(done).map(drop)
}
