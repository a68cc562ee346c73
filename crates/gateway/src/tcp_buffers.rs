//! The kernel's maxima of TCP buffers, `net.ipv4.tcp_rmem` and `tcp_wmem`. They bound the window of a connection. Each
//! network namespace has its own.

use crate::limits::TCP_BUFFER_BYTES;
use std::io;
use std::path::Path;

const SETTINGS: &str = "/proc/sys/net/ipv4";
/// The maxima of receive and send buffers.
const NAMES: [&str; 2] = ["tcp_rmem", "tcp_wmem"];

/// The maximum of a setting: the third of its values. `None` where the system does not have it.
pub(crate) fn largest(name: &str) -> Option<u64> {
    let values = std::fs::read_to_string(Path::new(SETTINGS).join(name)).ok()?;
    values.split_ascii_whitespace().nth(2)?.parse().ok()
}

/// Raises both maxima to [`TCP_BUFFER_BYTES`], as far as this process may. A larger one stays.
pub(crate) fn raise() {
    for name in NAMES {
        match raise_in(Path::new(SETTINGS), name) {
            Ok(true) => tracing::info!(name, bytes = TCP_BUFFER_BYTES, "raised the maximum of TCP buffers"),
            Ok(false) => {}
            Err(error) => tracing::warn!(name, %error, "the maximum of TCP buffers stays as it is"),
        }
    }
}

/// Returns true if the maximum was raised.
fn raise_in(folder: &Path, name: &str) -> io::Result<bool> {
    let path = folder.join(name);
    let values = std::fs::read_to_string(&path)?;
    let [least, first, most] = values.split_ascii_whitespace().collect::<Vec<_>>()[..] else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not three numbers"));
    };
    if most.parse::<u64>().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? >= TCP_BUFFER_BYTES {
        return Ok(false);
    }
    std::fs::write(&path, format!("{least} {first} {TCP_BUFFER_BYTES}"))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_maximum_is_raised_and_a_larger_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tcp_rmem");
        std::fs::write(&path, "4096\t131072\t6291456\n").unwrap();
        assert!(raise_in(folder.path(), "tcp_rmem").unwrap());
        let raised = format!("4096 131072 {TCP_BUFFER_BYTES}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), raised);
        assert!(!raise_in(folder.path(), "tcp_rmem").unwrap());
        std::fs::write(&path, "4096 131072 2000000000").unwrap();
        assert!(!raise_in(folder.path(), "tcp_rmem").unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "4096 131072 2000000000");
        std::fs::write(&path, "4096").unwrap();
        assert!(raise_in(folder.path(), "tcp_rmem").is_err() && raise_in(folder.path(), "tcp_wmem").is_err());
    }
}
