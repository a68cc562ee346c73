//! Real-time scheduling of the thread that holds packets.

use nix::errno::Errno;

/// Lowest real-time priority, which is above all ordinary processes.
const PRIORITY: i32 = 1;

/// Requests real-time scheduling for this thread; returns false if the host does not allow it. That costs about half a
/// millisecond of precision on a busy machine, and shows in the lateness.
#[allow(unsafe_code)]
pub fn claim() -> bool {
    // Without real-time scheduling the kernel may round our timers up by 50 µs.
    let _ = nix::sys::prctl::set_timerslack(1);
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the pointer is to a structure of ours that outlives the call, and the call does not keep it. Zero
    // means this thread. Neither nix nor rustix has this call.
    let done =
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameters) };
    Errno::result(done).is_ok()
}
