//! Signs of life of a gateway, for a supervisor that can only run programs: Kubernetes in an image without a shell.
//!
//! `serve --alive-dir DIR` writes the machine's uptime to a file again and again, from the runtime that does all work.
//! `alive DIR`, another process of the same program, fails if the file is old. So a gateway that is stopped, or whose
//! runtime hangs, is found; one that is merely busy writes late, and has [`SILENCE_MAX`] for that.
//!
//! The folder must be in memory: a disk that hangs would stop the runtime.

use crate::control::lease::uptime;
use crate::limits::{ALIVE_INTERVAL, SILENCE_MAX};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::time::Duration;

const UPTIME_FILE: &str = "uptime";
/// A link to the program, because the supervisor of an image does not know the path.
const PROGRAM_LINK: &str = "gateway";

/// The signs of life of this gateway.
pub(crate) struct SignsOfLife {
    /// Stays open: a gateway that has no free file descriptor works.
    file: File,
}

impl SignsOfLife {
    /// Gives the first sign, and links the program.
    ///
    /// # Errors
    /// A file cannot be made.
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let link = folder.join(PROGRAM_LINK);
        match std::fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => symlink(std::env::current_exe()?, &link)?,
        }
        let signs = Self { file: File::create(folder.join(UPTIME_FILE))? };
        signs.give()?;
        Ok(signs)
    }

    /// Gives signs as long as the runtime works.
    pub(crate) async fn keep_giving(self) {
        let mut ticks = tokio::time::interval(ALIVE_INTERVAL);
        loop {
            ticks.tick().await;
            if let Err(error) = self.give() {
                tracing::warn!(%error, "a sign of life could not be written");
            }
        }
    }

    /// Overwrites the file. The text has always the same length.
    fn give(&self) -> io::Result<()> {
        self.file.write_all_at(format!("{:020.2}\n", uptime()?.as_secs_f64()).as_bytes(), 0)
    }
}

/// Returns how long ago the gateway of a folder gave its last sign.
fn silence(folder: &Path) -> io::Result<Duration> {
    let text = std::fs::read_to_string(folder.join(UPTIME_FILE))?;
    let seconds = text.trim().parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let last = seconds.ok_or_else(|| io::Error::other(format!("{:?} is not an uptime", text.trim())))?;
    Ok(uptime()?.saturating_sub(last))
}

/// Why a gateway does not count as alive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAlive {
    /// It has given signs, but no more.
    #[error("the gateway has stood still for {} s", .0.as_secs())]
    Silent(Duration),
    /// There is no readable sign.
    #[error("the gateway has given no sign of life: {0}")]
    Unknown(#[from] io::Error),
}

/// Checks that the gateway of a folder works.
pub(crate) fn check(folder: &Path) -> Result<(), NotAlive> {
    let silence = silence(folder)?;
    if silence > SILENCE_MAX { Err(NotAlive::Silent(silence)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, text: &str) {
        std::fs::write(folder.join(UPTIME_FILE), text).unwrap();
    }

    #[test]
    fn a_gateway_lives_from_its_first_sign() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(check(folder.path()), Err(NotAlive::Unknown(_))));
        let signs = SignsOfLife::new(folder.path()).unwrap();
        check(folder.path()).unwrap();
        assert_eq!(std::fs::canonicalize(folder.path().join(PROGRAM_LINK)).unwrap(), std::env::current_exe().unwrap());
        drop(signs);
        // A process that replaces another one finds the folder as that left it.
        SignsOfLife::new(folder.path()).unwrap();
        check(folder.path()).unwrap();
    }

    #[test]
    fn a_late_sign_is_allowed_and_a_missing_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let now = uptime().unwrap();
        for (age, is_alive) in [(SILENCE_MAX / 2, true), (SILENCE_MAX + Duration::from_secs(5), false)] {
            let Some(last) = now.checked_sub(age) else { continue }; // The machine has only just booted.
            write(folder.path(), &format!("{:.2}\n", last.as_secs_f64()));
            assert_eq!(check(folder.path()).is_ok(), is_alive, "{age:?}");
        }
        write(folder.path(), "no number");
        assert!(matches!(check(folder.path()), Err(NotAlive::Unknown(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn signs_are_given_again_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let giving = tokio::spawn(SignsOfLife::new(folder.path()).unwrap().keep_giving());
        write(folder.path(), &"0".repeat(20));
        tokio::time::sleep(ALIVE_INTERVAL * 2).await;
        assert!(silence(folder.path()).unwrap() < Duration::from_secs(60));
        giving.abort();
    }
}
