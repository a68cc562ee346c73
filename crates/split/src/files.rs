//! The limit of open files, which bounds the connections of a proxy.

use crate::config::Limits;
use crate::limits::FILES_RESERVED;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::io;

/// Files of one connection: its client's side, and its destination's.
const FILES_PER_CONNECTION: u64 = 2;

/// The limits, with no more connections than this process may have files for. Without this, connections beyond would wait
/// in the kernel for a file, and accepted ones would not reach their destinations.
pub(crate) fn within_files(limits: &Limits) -> Limits {
    bounded(limits, getrlimit(Resource::Nofile).current)
}

fn bounded(limits: &Limits, files_max: Option<u64>) -> Limits {
    let Some(files_max) = files_max else { return limits.clone() };
    let most = (files_max.saturating_sub(FILES_RESERVED) / FILES_PER_CONNECTION).max(1);
    let connections_max = limits.connections_max.min(usize::try_from(most).unwrap_or(usize::MAX));
    // Nobody has asked for the default.
    if connections_max < limits.connections_max && limits.connections_max != Limits::default().connections_max {
        tracing::warn!(
            "connections_max is {}, but this process may open {files_max} files only (`ulimit -n`): \
             at most {connections_max} connections at once",
            limits.connections_max
        );
    }
    Limits { connections_max, ..limits.clone() }
}

/// True if an error says that the process or the machine has no file left.
pub(crate) fn used_up(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Cause;

    #[test]
    fn connections_are_bounded_by_open_files() {
        let limits = Limits { connections_max: 500, ..Limits::default() };
        for (files_max, most) in [(Some(1 << 20), 500), (Some(1024), 480), (Some(0), 1), (None, 500)] {
            assert_eq!(bounded(&limits, files_max).connections_max, most, "{files_max:?}");
        }
    }

    #[test]
    fn a_dial_without_a_file_is_refused_for_a_limit() {
        let error = io::Error::from(Errno::MFILE);
        assert_eq!(Cause::of_dial(&error), Cause::Limit);
        assert_eq!(Cause::of_dial(&io::ErrorKind::ConnectionReset.into()), Cause::Broken);
    }
}
