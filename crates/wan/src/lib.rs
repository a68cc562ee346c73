//! An emulated WAN: machines are network namespaces, and this process carries every packet between them.
//!
//! Participants: a **machine** has a TUN device in a namespace of its own, and the kernel's real TCP above it. A **path**
//! leads from one machine to another; it has a delay and a loss, and goes through a **pipe**, which has a rate and a
//! queue and may be shared by several paths. A machine may have a pipe of its own on the way out (egress cap) and one on
//! the way in (ingress cap).
//!
//! ```text
//! TUN of src ─▶ egress cap ─▶ pipe ─▶ loss ─▶ delay ─▶ ingress cap ─▶ TUN of dst
//! ```
//!
//! - [`engine`] decides when each packet leaves and which are dropped. No sockets, no clock, no threads: tests give it
//!   the time. [`pipe`] and [`loss`] are its parts.
//! - [`packet`] knows what the kernel hands over: IPv4 packets, with TCP segments joined into super-packets of up to 64 KiB.
//! - [`network`] is the document that says what there is; [`control`] changes it while it runs.
//! - The shell around them is Linux: [`namespace`], [`tun`], [`carrier`] (the thread that reads, waits and writes),
//!   [`guard`] (a child that cleans up after a crash), [`serve`] (joins them).
//!
//! Goals: rates, delays and queues as exact as the host's scheduler lets them be; order kept on each path; a run that
//! the host was too busy for can be told from its own lateness. Not goals: IPv6, Ethernet, more packets per second than
//! one core carries.

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

/// Nanoseconds since the emulator began.
pub type Nanos = u64;
