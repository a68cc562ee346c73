//! An emulated WAN: machines are network namespaces, and this process carries every packet between them.
//!
//! A **machine** has a TUN device in a namespace of its own, and the kernel's real TCP above it. A **path** leads from
//! one machine to another. It has a delay and a loss, and goes through a **pipe**, which has a rate and a queue and may
//! be shared by several paths. A machine may have its own pipe for outgoing traffic (egress cap) and for incoming
//! traffic (ingress cap).
//!
//! ```text
//! TUN of src ─▶ egress cap ─▶ pipe ─▶ loss ─▶ delay ─▶ ingress cap ─▶ TUN of dst
//! ```
//!
//! - [`engine`] decides when each packet leaves and which packets are dropped. It has no sockets, clock or threads:
//!   tests pass the time. [`pipe`] and [`loss`] are its parts.
//! - [`packet`] parses what the kernel delivers: IPv4 packets, with TCP segments joined into super-packets of up to 64
//!   KiB.
//! - [`network`] is the document that describes the network; [`control`] changes it at run time.
//! - The rest is specific to Linux: [`namespace`], [`tun`], [`carrier`] (the thread that reads, waits and writes),
//!   [`guard`] (a child that cleans up after a crash), [`serve`] (which combines them).
//!
//! Goals: rates, delays and queues as exact as the host's scheduler allows; packet order kept on each path; a run on a
//! host that was too busy can be recognised by its lateness. Not goals: IPv6, Ethernet, more packets per second than
//! one core can carry.

pub mod engine;
pub mod fault;
pub mod loss;
pub mod network;
pub mod packet;
pub mod pipe;
pub mod report;

#[cfg(target_os = "linux")]
pub mod carrier;
#[cfg(target_os = "linux")]
pub mod congestion;
#[cfg(target_os = "linux")]
pub mod control;
#[cfg(target_os = "linux")]
pub mod guard;
#[cfg(target_os = "linux")]
pub mod namespace;
#[cfg(target_os = "linux")]
pub mod processes;
#[cfg(target_os = "linux")]
pub mod realtime;
#[cfg(target_os = "linux")]
pub mod serve;
#[cfg(target_os = "linux")]
pub mod traffic;
#[cfg(target_os = "linux")]
pub mod tun;

/// Nanoseconds since the emulator's start.
pub type Nanos = u64;
