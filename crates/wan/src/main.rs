//! The `tradewind-wan` program: parses the command line and runs the command.

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
    ExitCode::from(10)
}
