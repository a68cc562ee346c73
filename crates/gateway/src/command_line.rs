//! The command line of `tradewind-gateway`: parses it, prepares the process, and runs a gateway, an owner or a task.

use crate::limits::{BLOCKING_THREADS_MAX, IDENTITY_DAYS_DEFAULT, WORKERS_MAX, WORKERS_MIN};
use crate::program::{Environment, NodeRunner};
use crate::{alive, identity, owner, schema, serve, split, task};
use clap::{Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

/// One process of Tradewind's data plane.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    /// Level of log messages on stderr
    #[arg(long, global = true, value_enum, default_value_t = LogLevel::Warn)]
    log_level: LogLevel,
    /// Threads of the runtime [default: one per processor, 2 to 16]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=WORKERS_MAX as i64))]
    workers: Option<u16>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run one gateway until it is stopped
    Serve(serve::ServeArgs),
    /// Enrol the gateways of a fleet and forward control to them until stopped
    Owner(owner::OwnerArgs),
    /// Create a fleet's CA and one identity per gateway
    Identity {
        /// Folder for the identities
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Names of the gateways
        #[arg(long = "name", value_name = "NODE", required = true, num_args = 1..)]
        names: Vec<String>,
        /// Validity in days
        #[arg(long, default_value_t = IDENTITY_DAYS_DEFAULT)]
        days: u32,
        /// Also write the CA's private key, so that gateways can be added later
        #[arg(long)]
        keep_ca: bool,
    },
    /// Exit with 0 if the gateway of `serve --alive-dir DIR` works, and with 1 if it has stood still for 30 s
    Alive {
        /// The folder
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print the JSON schema of the contract
    Schema,
    /// Run a split-TCP proxy until it is stopped
    // Hidden until the command line of Tradewind starts it.
    #[command(hide = true)]
    Split {
        /// File to read the configuration from; `-` is stdin
        #[arg(long, value_name = "PATH")]
        config: PathBuf,
    },
    /// Run one task (ls, cat, check, …) given as JSON
    Task {
        /// File to read the task from [default: stdin]
        #[arg(long, value_name = "PATH")]
        file: Option<PathBuf>,
        /// Write no messages but errors
        #[arg(long)]
        quiet: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl From<LogLevel> for tracing::Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// Runs the command of this process's arguments, and returns its exit code.
pub fn main() -> ExitCode {
    report_file_size_limit_as_error();
    let cli = Cli::parse();
    start_log(tracing::Level::from(cli.log_level));
    match cli.command {
        Command::Serve(args) => run_gateway(&args, cli.workers),
        Command::Owner(args) => run_owner(&args, cli.workers),
        Command::Identity { out, names, days, keep_ca } => {
            let request = identity::Request { out: &out, names: &names, days, keep_ca };
            match identity::make(&request, SystemTime::now()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail(&error, error.hint()),
            }
        }
        Command::Alive { dir } => match alive::check(&dir) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, "a gateway that was stopped works again when it is continued (SIGCONT)"),
        },
        Command::Schema => print(&schema::text()),
        Command::Split { config } => run_split(&config, cli.workers),
        Command::Task { file, quiet } => run_task(file.as_deref(), quiet, cli.workers),
    }
}

/// Starts the log on standard error. Messages of libraries appear only if the level is `info` or more verbose: their
/// warnings (a missing AWS file, an unknown field) are for their developers, and users get errors instead.
fn start_log(level: tracing::Level) {
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    let libraries = if level >= tracing::Level::INFO { LevelFilter::from_level(level) } else { LevelFilter::OFF };
    let targets = Targets::new().with_default(libraries).with_target("tradewind", level);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(lines).with(targets).init();
}

/// Prints an error and returns the exit code for failures other than invalid usage (for which clap exits with 2).
fn fail(error: &dyn std::fmt::Display, hint: &str) -> ExitCode {
    eprintln!("error: {error}\nhint: {hint}");
    ExitCode::FAILURE
}

/// Prints a text. A closed pipe (`… schema | head`) sets the exit code and is not reported.
fn print(text: &str) -> ExitCode {
    match std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run_gateway(args: &serve::ServeArgs, workers: Option<u16>) -> ExitCode {
    raise_file_limit();
    refuse_huge_pages();
    let served = serve::Bound::new(args).and_then(|bound| {
        let runtime = runtime(workers)?;
        let runner = NodeRunner::new(Environment { stores: bound.stores(), ..Environment::default() });
        let code = runtime.block_on(bound.run(runner));
        // Blocked system calls of stores and the thread that reads stdin end with the process.
        runtime.shutdown_background();
        code
    });
    served.unwrap_or_else(|error| fail(&error, error.hint()))
}

fn run_owner(args: &owner::OwnerArgs, workers: Option<u16>) -> ExitCode {
    raise_file_limit();
    refuse_huge_pages();
    let owned = owner::BoundOwner::new(args).and_then(|bound| {
        let runtime = runtime(workers)?;
        let code = runtime.block_on(bound.run());
        // The thread that reads stdin may be blocked forever.
        runtime.shutdown_background();
        code
    });
    owned.unwrap_or_else(|error| fail(&error, error.hint()))
}

fn run_split(config: &Path, workers: Option<u16>) -> ExitCode {
    raise_file_limit();
    refuse_huge_pages();
    let code = split::Prepared::new(config).and_then(|prepared| runtime(workers)?.block_on(prepared.run()));
    code.map_or_else(|error| fail(&error, error.hint()), |()| ExitCode::SUCCESS)
}

fn run_task(file: Option<&Path>, quiet: bool, workers: Option<u16>) -> ExitCode {
    raise_file_limit();
    refuse_huge_pages();
    match runtime(workers) {
        Ok(runtime) => {
            let code = runtime.block_on(task::main(file, quiet));
            // The thread that reads stdin for a `put` may be blocked forever.
            runtime.shutdown_background();
            ExitCode::from(code)
        }
        Err(error) => fail(&error, "check the limits of processes and memory"),
    }
}

fn runtime(workers: Option<u16>) -> std::io::Result<tokio::runtime::Runtime> {
    let processors = std::thread::available_parallelism().map_or(WORKERS_MIN, usize::from);
    let workers = workers.map_or(processors.clamp(WORKERS_MIN, WORKERS_MAX), usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build()
}

/// Ignores the signal that the kernel sends beyond `ulimit -f`: the write then fails, and is reported.
fn report_file_size_limit_as_error() {
    // SAFETY: no handler is installed, and no other thread runs yet.
    #[expect(unsafe_code, reason = "no safe wrapper sets a signal to be ignored")]
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Raises the soft limit of open files, 1,024 on many systems, to the hard limit.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// Refuses huge pages. Each thread has its own heap, so with huge pages the kernel zeroes 2 MiB for a thread that
/// allocates 100 bytes: half of the CPU time of a download of small objects by a hundred threads.
#[cfg(target_os = "linux")]
fn refuse_huge_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages stay as they are");
    }
}

#[cfg(not(target_os = "linux"))]
fn refuse_huge_pages() {}
