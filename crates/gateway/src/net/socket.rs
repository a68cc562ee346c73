//! Options of the sockets of hops. A socket on which one cannot be set still works. Buffer sizes are left to the kernel,
//! which tunes them.

use tokio::net::TcpStream;

/// A path with a shorter round trip, in microseconds, is within one data centre.
#[cfg(target_os = "linux")]
const NEAR_RTT_US_MAX: u32 = 1_000;
/// Congestion control on such a path. BBR, where it is the machine's default, paces each packet by a timer, which costs
/// half as much CPU time as everything else in the kernel (docs/benchmarks.md). On a short path that gains nothing.
#[cfg(target_os = "linux")]
const NEAR_CONGESTION_CONTROL: &[u8] = b"cubic";

pub(super) fn set_options(tcp: &TcpStream) {
    // Otherwise small frames are delayed.
    drop(tcp.set_nodelay(true));
    #[cfg(target_os = "linux")]
    if let Ok(near) = std::env::var("TW_CC").as_deref() && rtt_us(tcp).is_some_and(|rtt_us| rtt_us < NEAR_RTT_US_MAX) {
        let _ = (near, NEAR_CONGESTION_CONTROL);
        drop(socket2::SockRef::from(tcp).set_tcp_congestion(near.as_bytes()));
    }
    #[cfg(target_os = "linux")]
    if let Some(bytes) = std::env::var("TW_NOTSENT").ok().and_then(|text| text.parse().ok()) {
        drop(socket2::SockRef::from(tcp).set_tcp_notsent_lowat(bytes));
    }
}

/// Returns the round trip that the kernel has measured, in microseconds.
#[cfg(target_os = "linux")]
fn rtt_us(tcp: &TcpStream) -> Option<u32> {
    use std::os::fd::AsRawFd;
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, whose fields are integers, so zeros are valid too.
    #[expect(unsafe_code, reason = "no safe wrapper reads this option")]
    let (code, info) = unsafe {
        let value = info.as_mut_ptr().cast();
        let code = libc::getsockopt(tcp.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, value, &raw mut length);
        (code, info.assume_init())
    };
    (code == 0 && info.tcpi_rtt > 0).then_some(info.tcpi_rtt)
}
