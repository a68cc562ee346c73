//! The real binary, and a folder for its files.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

pub(crate) fn gateway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind-gateway"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

pub(crate) async fn run(arguments: &[&str]) -> Output {
    gateway(arguments).output().await.unwrap()
}

/// A gateway that has reported that it is ready.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) ready: Value,
    log: Lines<BufReader<ChildStderr>>,
}

impl Serving {
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[]).await
    }

    /// With these variables in its environment.
    pub(crate) async fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = gateway(&[&["serve"], arguments].concat());
        Self::ready(command.envs(variables.iter().copied()).spawn().unwrap()).await
    }

    /// With its control socket at this path.
    pub(crate) async fn start_at(socket: &Path) -> Self {
        Self::start(&["--control", &format!("unix:{}", socket.display())]).await
    }

    /// With this text on its standard input, which stays open, and these variables in its environment.
    pub(crate) async fn start_told(arguments: &[&str], text: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = gateway(&[&["serve"], arguments].concat()).envs(variables.iter().copied()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(text.as_bytes()).await.unwrap();
        Self::ready(child).await
    }

    async fn ready(mut child: Child) -> Self {
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = stdout.next_line().await.unwrap().expect("a readiness line");
        Self { child, ready: serde_json::from_str(&line).unwrap(), log }
    }

    pub(crate) fn control(&self) -> &str {
        self.ready["control"].as_str().unwrap()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id().unwrap() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub(crate) async fn log_says(&mut self, text: &str) {
        loop {
            let line = self.log.next_line().await.unwrap().unwrap_or_else(|| panic!("the log never said {text:?}"));
            if line.contains(text) {
                return;
            }
        }
    }

    pub(crate) async fn end_of_stdin(mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        self.child.wait().await.unwrap()
    }
}

pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn socket(&self) -> String {
        format!("unix:{}", self.text("socket"))
    }

    /// Makes a fleet in the folder `name`, with the real command.
    pub(crate) async fn fleet(&self, name: &str, nodes: &[&str]) {
        let out = self.text(name);
        let made = run(&[&["identity", "--out", &out, "--name"], nodes].concat()).await;
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
}
