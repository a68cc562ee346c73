//! Real-time scheduling of the thread that holds packets.

use nix::errno::Errno;

/// Lowest real-time priority, which is above all ordinary processes.
static PRIORITY: libc::c_int = 1;

/// Requests real-time scheduling for this thread; returns false if the host does not allow it. That costs about half a
/// millisecond of precision on a busy machine, and shows in the lateness.
#[allow(unsafe_code)]
pub fn claim() -> bool {
    // Without real-time scheduling the kernel may round our timers up by 50 µs.
    let _ = nix::sys::prctl::set_timerslack(1);
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the pointer is to an int of ours, which is the kernel's whole `struct sched_param`. It outlives the call,
    // and the call does not keep it. Zero means this thread. Neither nix nor rustix has this call, and in musl, with
    // which static programs are built, it always fails.
    let done = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const PRIORITY) };
    Errno::result(done).is_ok()
}
