//! The program `tradewind-gateway`. All its code is in the library, so that the compiler can use all processors.

use std::process::ExitCode;

/// Data-plane buffers of megabytes are allocated and freed on all threads; see docs/decisions/0004-mimalloc.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tradewind_gateway::command_line::main()
}
