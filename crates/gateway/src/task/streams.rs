//! Where a task reads and writes.

use super::text::one_line;
use serde::Serialize;
use std::io::{self, BufWriter, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes gathered for one write to stdout.
const DATA_BUFFER_BYTES: usize = 256 << 10;

/// stdin, stdout and stderr, or what stands for them in a test.
pub struct Streams {
    /// What `put` reads; taken by the thread that reads it.
    pub input: Option<Box<dyn Read + Send>>,
    /// Data.
    pub data: Box<dyn Write + Send>,
    /// Talk.
    pub talk: Talk,
}

/// Where a task talks to the user, a line at a time. Clones talk to the same place.
#[derive(Clone)]
pub struct Talk(Arc<Mutex<dyn Write + Send>>);

impl Talk {
    /// Talks to `writer`.
    pub fn new(writer: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(writer)))
    }

    /// Says one line, whatever a name in it holds.
    pub(super) fn say(&self, line: &str) {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Talk that nobody hears changes nothing.
        writeln!(writer, "{}", one_line(line)).ok();
    }
}

impl Streams {
    /// Those of the process; stdout is buffered and flushed at the end.
    pub fn of_process() -> Self {
        Self {
            input: Some(Box::new(io::stdin())),
            data: Box::new(BufWriter::with_capacity(DATA_BUFFER_BYTES, io::stdout())),
            talk: Talk::new(io::stderr()),
        }
    }

    /// Writes one line of NDJSON.
    pub(super) fn json_line(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.data, line).map_err(io::Error::from)?;
        self.data.write_all(b"\n")
    }

    /// Says one line to the user, whatever a name in it holds.
    pub(super) fn say(&mut self, line: &str) {
        self.talk.say(line);
    }

    /// Says what went wrong and what to do.
    pub(super) fn say_error(&mut self, message: &str, hint: Option<&str>) {
        self.say(&format!("error: {message}"));
        if let Some(hint) = hint {
            self.say(&format!("hint: {hint}"));
        }
    }
}
