//! The events that end a gateway or an owner: signals, and the end of standard input.

use std::io;
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// All events that can end the process.
pub(crate) struct Endings {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    /// `None` without `--exit-with-stdin`.
    stdin_end: Option<oneshot::Receiver<()>>,
}

impl Endings {
    /// Starts to watch.
    ///
    /// # Errors
    /// The system refused signal handlers or a thread.
    pub(crate) fn new(exit_with_stdin: bool) -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            stdin_end: if exit_with_stdin { Some(watch_stdin()?) } else { None },
        })
    }

    /// Waits for the first reason to end, and returns its name. If dropped before that, it can be called again.
    pub(crate) async fn first(&mut self) -> &'static str {
        let stdin_end = async {
            match &mut self.stdin_end {
                // An error means that the watching thread is gone, which counts as the end of stdin too.
                Some(end) => drop(end.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
            () = stdin_end => "end of standard input",
        }
    }

    /// Waits for a signal after that, and returns the exit code that shells expect for it.
    pub(crate) async fn second(&mut self) -> ExitCode {
        let signal = tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        };
        ExitCode::from(128 + signal.as_raw_value() as u8)
    }
}

/// Reads stdin to its end on a separate thread, because a read cannot be cancelled and would block the runtime's exit.
fn watch_stdin() -> io::Result<oneshot::Receiver<()>> {
    let (tell, end) = oneshot::channel();
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        if let Err(error) = io::copy(&mut io::stdin().lock(), &mut io::sink()) {
            tracing::warn!(%error, "standard input cannot be read");
        }
        // Nobody listens if the gateway is already ending.
        let _ = tell.send(());
    })?;
    Ok(end)
}
