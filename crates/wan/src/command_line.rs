//! Commands and options.

use clap::{Parser, Subcommand};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use tradewind_wan::fault::Fault;
use tradewind_wan::{guard, namespace, serve, traffic};

/// An emulated WAN between network namespaces. `tradewind sky` is the way to use it.
///
/// Exit codes: 0 done, 1 failed, 2 usage, 9 this host cannot do it (no root, no TUN device).
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one emulator until it is told to stop
    Run {
        /// The network document, as JSON
        #[arg(long, value_name = "FILE")]
        network: PathBuf,
        /// Where the control socket is made
        #[arg(long, value_name = "SOCKET")]
        control: PathBuf,
        /// End at the end of standard input
        #[arg(long)]
        exit_with_stdin: bool,
    },
    /// Becomes another program, in a machine's network
    Enter {
        /// Path of the machine's network namespace
        #[arg(long, value_name = "PATH")]
        netns: String,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Makes TCP traffic and measures it
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

/// Runs one command line.
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
    // As shells say it: not found, or found and not to be run.
    ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}

fn fail(fault: &Fault) -> ExitCode {
    eprintln!("error: {fault}");
    if let Some(hint) = fault.hint() {
        eprintln!("hint: {hint}");
    }
    ExitCode::from(fault.exit_code())
}
