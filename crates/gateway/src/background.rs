//! Where the lead's blocking work (SQLite) runs.

use tokio::task::JoinError;

/// Threads are for production. The simulator runs everything on one thread, in the order that its seed determines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Background {
    /// On their own threads, so that no task waits for a disk.
    #[default]
    Threads,
    /// On the runtime's thread.
    Inline,
}

impl Background {
    /// Runs blocking `work`.
    ///
    /// # Errors
    /// It panicked on its thread, or the runtime is shutting down.
    pub async fn run<T, F>(self, work: F) -> Result<T, JoinError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        match self {
            Self::Threads => tokio::task::spawn_blocking(work).await,
            Self::Inline => Ok(work()),
        }
    }
}
