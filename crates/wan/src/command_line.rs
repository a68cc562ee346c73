//! Commands and options.

use clap::{Parser, Subcommand};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use tradewind_wan::fault::Fault;
use tradewind_wan::{guard, namespace, serve, traffic};

/// An emulated WAN between network namespaces; normally started by `tradewind sky`.
///
/// Exit codes: 0 done, 1 failed, 2 usage, 11 not possible on this host (no root, no TUN device).
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run one emulator until it is stopped
    Run {
        /// The network document, as JSON
        #[arg(long, value_name = "FILE")]
        network: PathBuf,
        /// Path of the control socket to create
        #[arg(long, value_name = "SOCKET")]
        control: PathBuf,
        /// End at the end of standard input
        #[arg(long)]
        exit_with_stdin: bool,
    },
    /// Run another program in a machine's network, in place of this process
    Enter {
        /// Path of the machine's network namespace
        #[arg(long, value_name = "PATH")]
        netns: String,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Send TCP traffic and measure it
    Traffic {
        #[command(subcommand)]
        end: traffic::End,
    },
    /// Started by `run` for itself
    #[command(hide = true)]
    Guard {
        /// Descriptors of the namespaces
        descriptors: Vec<RawFd>,
    },
}

/// Runs the command of this process's arguments, and returns its exit code.
pub(crate) fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run { network, control, exit_with_stdin } => {
            serve::run(&serve::Settings { network, control, exit_with_stdin })
        }
        Command::Enter { netns, command } => return become_program(&netns, &command),
        Command::Traffic { end } => traffic::run(&end),
        Command::Guard { descriptors } => {
            guard::run(&descriptors);
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => fail(&fault),
    }
}

fn become_program(netns: &str, command: &[String]) -> ExitCode {
    if let Err(fault) = namespace::enter_machine(netns) {
        return fail(&fault);
    }
    let error = std::process::Command::new(&command[0]).args(&command[1..]).exec();
    eprintln!("error: {}: {error}", command[0]);
    // The exit codes of shells: 127 for not found, 126 for found but not executable.
    ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}

fn fail(fault: &Fault) -> ExitCode {
    eprintln!("error: {fault}");
    if let Some(hint) = fault.hint() {
        eprintln!("hint: {hint}");
    }
    ExitCode::from(fault.exit_code())
}
