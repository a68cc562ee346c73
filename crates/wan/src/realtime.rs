//! Real-time scheduling of the thread that holds packets.

use nix::errno::Errno;

/// Lowest of the real-time priorities: above all ordinary processes is enough.
const PRIORITY: i32 = 1;

/// Gives this thread real-time scheduling; false if the host does not let us, which costs about half a millisecond of
/// exactness on a busy machine and shows in the lateness.
#[allow(unsafe_code)]
pub fn claim() -> bool {
    // Without real-time scheduling the kernel may round our timers up by 50 µs.
    let _ = nix::sys::prctl::set_timerslack(1);
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the pointer is to a structure of ours that outlives the call, and the call keeps nothing of it. Zero
    // means this thread. Neither nix nor rustix has this call.
    let done =
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameters) };
    Errno::result(done).is_ok()
}
