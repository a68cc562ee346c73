//! The program `tradewind-gateway`. All its code is in the library, so that the compiler can use all processors.

use std::ffi::{c_int, c_long};
use std::process::ExitCode;

/// Data-plane buffers of megabytes are allocated and freed on all threads; see docs/decisions/0004-mimalloc.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The option of mimalloc that says after how many milliseconds free memory returns to the kernel.
const MI_OPTION_PURGE_DELAY: c_int = 15;
/// Its value where nothing else is set. Another value means that the user has set it.
const MI_PURGE_DELAY_MS: c_long = 1_000;
/// Our value. Memory that has returned is zeroed page by page when it is needed again.
const PURGE_DELAY_MS: c_long = 10_000;

fn main() -> ExitCode {
    keep_free_memory_longer();
    tradewind_gateway::command_line::main()
}

/// Keeps the memory of bodies between one body and the next: at full speed it is needed again soon.
#[expect(unsafe_code, reason = "no safe wrapper sets options of mimalloc")]
fn keep_free_memory_longer() {
    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
        fn mi_option_set(option: c_int, value: c_long);
    }
    // SAFETY: the signatures are those of mimalloc.h, and no other thread runs yet.
    unsafe {
        if mi_option_get(MI_OPTION_PURGE_DELAY) == MI_PURGE_DELAY_MS {
            mi_option_set(MI_OPTION_PURGE_DELAY, PURGE_DELAY_MS);
        }
    }
}
