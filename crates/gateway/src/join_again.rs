//! Replaces a gateway with a new process of the same program, which joins the fleet again: `POST /v1/join`.
//!
//! A machine may serve several jobs, one after the other. `exec` lets the kernel drop all memory and all connections of
//! the process, so that nothing of a job (its stores' credentials, its bytes) is left for the next one. The process
//! keeps its id, its addresses and its lease. It has a new key, and proves itself to the owner with a new token.

use std::ffi::OsString;
use std::io::{self, PipeReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use tradewind_contract::{Join, JoinControl};

/// A join document without its token.
pub(crate) fn template(join: &Join) -> Join {
    Join { token_hex: String::new(), expires_unix_s: 0, ..join.clone() }
}

/// The document with the present addresses: of the control API, if the gateway listens there, and of the data port.
pub(crate) fn at(join: Join, (control, data): (Option<String>, Option<SocketAddr>)) -> Join {
    let control = match (join.control, control) {
        (JoinControl::Listen { .. }, Some(address)) => JoinControl::Listen { address },
        (control, _) => control,
    };
    Join { control, data: data.map(|address| address.to_string()), ..join }
}

/// Becomes a new process of this program, with the arguments of this one and the rest of its lease. Returns only if
/// that fails.
pub(crate) fn replace_process(join: &Join, lease: Option<Duration>) -> io::Error {
    let input = match piped(join) {
        Ok(input) => input,
        Err(error) => return error,
    };
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    // The file may have been removed, but the kernel still has it.
    Command::new("/proc/self/exe").arg0(name).args(arguments(words, lease)).stdin(input).exec()
}

/// A pipe with the document on one line. It is far smaller than a pipe's buffer.
fn piped(join: &Join) -> io::Result<PipeReader> {
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(&serde_json::to_vec(join)?)?;
    writer.write_all(b"\n")?;
    Ok(reader)
}

/// The arguments, with standard input as the join document and the rest of the lease, at least a second.
fn arguments(words: impl Iterator<Item = OsString>, lease: Option<Duration>) -> Vec<OsString> {
    let lease_s = lease.map_or(1, |left| left.as_secs().max(1)).to_string();
    let mut found = Vec::new();
    let mut words = words;
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        let (option, is_apart) = match text.split_once('=') {
            Some((option, _)) => (option, false),
            None => (text, true),
        };
        let value = match option {
            "--join" => "-",
            "--lease-s" => lease_s.as_str(),
            _ => {
                found.push(word);
                continue;
            }
        };
        found.extend([option.into(), value.into()]);
        if is_apart {
            words.next();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_keep_all_but_the_document_and_the_lease() {
        let words = ["--log-level", "info", "serve", "--join=file", "--lease-s", "900", "--lease-file", "end"];
        let found = arguments(words.map(OsString::from).into_iter(), Some(Duration::from_millis(7_900)));
        let wanted = ["--log-level", "info", "serve", "--join", "-", "--lease-s", "7", "--lease-file", "end"];
        assert_eq!(found, wanted.map(OsString::from));
    }
}
