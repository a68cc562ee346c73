//! The input and output of a task.

use super::text::{TerminalSafeJson, one_line, with_paths};
use serde::Serialize;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, LineWriter, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use tradewind_store::{Disk, Kernel};

/// Most bytes collected for one write to stdout.
const DATA_BUFFER_BYTES: usize = 256 << 10;

/// stdin, stdout and stderr, or their replacements in a test.
pub struct Streams {
    /// Input of `put`; taken by the thread that reads it.
    pub input: Option<Box<dyn Read + Send>>,
    /// Output for data.
    pub data: Box<dyn Write + Send>,
    /// Output for messages.
    pub talk: Talk,
}

/// Where a task writes messages for the user, one line at a time. Clones share the output.
#[derive(Clone)]
pub struct Talk {
    writer: Arc<Mutex<dyn Write + Send>>,
    /// Write errors only.
    quiet: bool,
}

impl Talk {
    /// Writes messages to `writer`.
    pub fn new(writer: impl Write + Send + 'static) -> Self {
        Self { writer: Arc::new(Mutex::new(writer)), quiet: false }
    }

    /// Writes one line, whatever characters a name in it contains, unless only errors are wanted.
    pub(super) fn say(&self, line: &str) {
        if !self.quiet {
            self.write(line);
        }
    }

    fn write(&self, line: &str) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // A message that cannot be written changes nothing.
        writeln!(writer, "{}", one_line(&with_paths(line))).ok();
    }
}

impl Streams {
    /// The streams of the process. On a terminal each line of stdout is written at once; otherwise stdout is buffered and
    /// flushed before each message and at the end. With `quiet`, only errors are written to stderr.
    pub fn of_process(quiet: bool) -> Self {
        let output = Named("standard output", StandardOutput);
        Self {
            input: Some(Box::new(Named("standard input", io::stdin()))),
            data: match io::stdout().is_terminal() {
                true => Box::new(LineWriter::new(output)),
                false => Box::new(BufWriter::with_capacity(DATA_BUFFER_BYTES, output)),
            },
            talk: Talk { quiet, ..Talk::new(io::stderr()) },
        }
    }

    /// Discards data once its reader is gone, instead of failing. For tasks that change something, or whose exit code
    /// is an answer: they must run to their end.
    pub(super) fn outlive_reader(&mut self) {
        let data = std::mem::replace(&mut self.data, Box::new(io::sink()));
        self.data = Box::new(OutlivesReader { data: Some(data) });
    }

    /// Writes one line of NDJSON.
    pub(super) fn json_line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut serializer = serde_json::Serializer::with_formatter(&mut self.data, TerminalSafeJson);
        line.serialize(&mut serializer).map_err(io::Error::from)?;
        self.data.write_all(b"\n")
    }

    /// Writes one line to the user, whatever characters a name in it contains, unless only errors are wanted.
    pub(super) fn say(&mut self, line: &str) {
        self.flush_before_message();
        self.talk.say(line);
    }

    /// Writes what went wrong, with a hint.
    pub(super) fn say_error(&mut self, message: &str, hint: Option<&str>) {
        self.flush_before_message();
        self.talk.write(&format!("error: {message}"));
        if let Some(hint) = hint {
            self.talk.write(&format!("hint: {hint}"));
        }
    }

    /// Writes what is buffered: stdout and stderr may be one file or terminal, in which lines keep their order.
    fn flush_before_message(&mut self) {
        // The flush at the end of the task fails again, and reports why.
        self.data.flush().ok();
    }
}

/// A stream whose errors begin with its name.
struct Named<Stream>(&'static str, Stream);

impl<Stream> Named<Stream> {
    fn named(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.0))
    }
}

impl<Stream: Read> Read for Named<Stream> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1.read(buffer).map_err(|error| self.named(error))
    }
}

impl<Stream: Write> Write for Named<Stream> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.write(bytes).map_err(|error| self.named(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.1.flush().map_err(|error| self.named(error))
    }
}

/// The standard output. Flushing it also reports what a file system reports only when a file is closed.
struct StandardOutput;

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut stdout = io::stdout();
        stdout.flush()?;
        Ok(Kernel.flush(stdout.as_fd())?)
    }
}

/// A writer that discards everything after the first broken pipe.
struct OutlivesReader {
    data: Option<Box<dyn Write + Send>>,
}

impl OutlivesReader {
    fn unless_closed(&mut self, done: io::Result<usize>, bytes: usize) -> io::Result<usize> {
        match done {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                // An inner buffer retries once when it is dropped, and ignores the result.
                self.data = None;
                Ok(bytes)
            }
            done => done,
        }
    }
}

impl Write for OutlivesReader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(data) = &mut self.data else { return Ok(bytes.len()) };
        let done = data.write(bytes);
        self.unless_closed(done, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(data) = &mut self.data else { return Ok(()) };
        let done = data.flush().map(|()| 0);
        self.unless_closed(done, 0).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(ErrorKind::BrokenPipe.into())
        }
    }

    fn streams(data: impl Write + Send + 'static) -> Streams {
        Streams { input: None, data: Box::new(data), talk: Talk::new(io::sink()) }
    }

    #[test]
    fn output_without_a_reader_is_discarded_only_where_asked() {
        let mut plain = streams(Closed);
        assert_eq!(plain.json_line(&1).unwrap_err().kind(), ErrorKind::BrokenPipe);
        let mut lasting = streams(BufWriter::with_capacity(4, Closed));
        lasting.outlive_reader();
        for number in 0..100 {
            lasting.json_line(&number).unwrap();
        }
        lasting.data.flush().unwrap();
    }

    #[test]
    fn other_errors_of_the_output_are_still_errors() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
                Err(ErrorKind::StorageFull.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut full = streams(Full);
        full.outlive_reader();
        assert_eq!(full.json_line(&1).unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
