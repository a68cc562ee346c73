//! The `tradewind-wan` program: takes the command line apart and hands over.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
mod command_line;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    command_line::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("error: network namespaces and TUN devices are Linux's\nhint: run it in a Linux virtual machine");
    ExitCode::from(9)
}
