//! Where a task reads and writes.

use super::text::one_line;
use serde::Serialize;
use std::io::{self, BufWriter, Read, Write};

/// Bytes gathered for one write to stdout.
const DATA_BUFFER_BYTES: usize = 256 << 10;

/// stdin, stdout and stderr, or what stands for them in a test.
pub struct Streams {
    /// What `put` reads; taken by the thread that reads it.
    pub input: Option<Box<dyn Read + Send>>,
    /// Data.
    pub data: Box<dyn Write + Send>,
    /// Talk.
    pub talk: Box<dyn Write + Send>,
}

impl Streams {
    /// Those of the process; stdout is buffered and flushed at the end.
    pub fn of_process() -> Self {
        Self {
            input: Some(Box::new(io::stdin())),
            data: Box::new(BufWriter::with_capacity(DATA_BUFFER_BYTES, io::stdout())),
            talk: Box::new(io::stderr()),
        }
    }

    /// Writes one line of NDJSON.
    pub(super) fn json_line(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.data, line).map_err(io::Error::from)?;
        self.data.write_all(b"\n")
    }

    /// Says one line to the user, whatever a name in it holds.
    pub(super) fn say(&mut self, line: &str) {
        // Talk that nobody hears changes nothing.
        writeln!(self.talk, "{}", one_line(line)).ok();
    }

    /// Says what went wrong and what to do.
    pub(super) fn say_error(&mut self, message: &str, hint: Option<&str>) {
        self.say(&format!("error: {message}"));
        if let Some(hint) = hint {
            self.say(&format!("hint: {hint}"));
        }
    }
}
