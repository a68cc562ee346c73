//! Makes random bytes and the wall clock deterministic in a child process.
//!
//! The standard library seeds its hash maps, `rand` its generators and tokio its `select!` from `getrandom`. A symbol
//! of that name in the program replaces that of the C library, so the code under test need not be changed. Only a child
//! process that runs one seed turns this on; every other process gets the kernel's answers.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

static ARMED: AtomicBool = AtomicBool::new(false);
static RANDOM: AtomicU64 = AtomicU64::new(0);
static UNIX_MS: AtomicI64 = AtomicI64::new(0);

/// Derives random bytes from `seed` from now on, and sets the wall clock to `unix_ms`.
pub(crate) fn arm(seed: u64, unix_ms: i64) {
    RANDOM.store(seed, Ordering::Relaxed);
    UNIX_MS.store(unix_ms, Ordering::Relaxed);
    ARMED.store(true, Ordering::SeqCst);
}

/// Sets the wall clock.
pub(crate) fn set_unix_ms(unix_ms: i64) {
    UNIX_MS.store(unix_ms, Ordering::Relaxed);
}

/// The next word of SplitMix64.
fn next_word() -> u64 {
    let mut word = RANDOM.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Replaces the C library's function.
///
/// # Safety
/// As `getrandom(2)`: `buffer` has room for `length` bytes.
#[unsafe(no_mangle)]
#[expect(
    unsafe_code,
    reason = "the C library's signature; only so can the standard library's own randomness be seeded"
)]
pub(crate) unsafe extern "C" fn getrandom(buffer: *mut libc::c_void, length: usize, flags: libc::c_uint) -> isize {
    if !ARMED.load(Ordering::SeqCst) {
        // SAFETY: the caller's arguments are passed on as they are.
        return unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) as isize };
    }
    // SAFETY: the caller promises room for `length` bytes.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    for chunk in bytes.chunks_mut(8) {
        let word = next_word().to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    length as isize
}

/// Replaces the C library's function. Only the wall clock is ours; monotonic clocks stay real, and no code under
/// test reads them.
///
/// # Safety
/// As `clock_gettime(2)`: `time` points to a `timespec`.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "the C library's signature; only so does `SystemTime::now` follow simulated time")]
pub(crate) unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    if clock != libc::CLOCK_REALTIME || !ARMED.load(Ordering::SeqCst) {
        // SAFETY: the caller's arguments are passed on as they are.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) as libc::c_int };
    }
    let unix_ms = UNIX_MS.load(Ordering::Relaxed);
    // SAFETY: the caller promises that `time` points to a `timespec`.
    unsafe {
        (*time).tv_sec = unix_ms.div_euclid(1000);
        (*time).tv_nsec = unix_ms.rem_euclid(1000) * 1_000_000;
    }
    0
}
