//! Work that a job must do at its end, in a temporary file: any number of entries fits, and none uses memory.
//!
//! The file is created with the first entry, so that an ordinary job has none. It has no name, so none is left behind.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

/// Entries to be read once, in the order in which they were added.
#[derive(Debug)]
pub struct Backlog<T> {
    dir: Option<PathBuf>,
    file: Option<BufWriter<File>>,
    kind: PhantomData<fn() -> T>,
}

/// The entries of a [`Backlog`].
#[derive(Debug)]
pub struct Reading<T> {
    lines: Option<BufReader<File>>,
    kind: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Backlog<T> {
    /// Returns an empty backlog. Its file will lie in `dir`, or where the system keeps temporary files.
    pub fn new(dir: Option<&Path>) -> Self {
        Self { dir: dir.map(Path::to_owned), file: None, kind: PhantomData }
    }

    /// Adds one entry. Blocks for a disk write now and then.
    ///
    /// # Errors
    /// The error of the file system; the backlog must not be read after it.
    pub fn push(&mut self, thing: &T) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let made = match &self.dir {
                    Some(dir) => tempfile::tempfile_in(dir)?,
                    None => tempfile::tempfile()?,
                };
                self.file.insert(BufWriter::new(made))
            }
        };
        serde_json::to_writer(&mut *file, thing).map_err(io::Error::from)?;
        file.write_all(b"\n")
    }

    /// Takes all entries and leaves the backlog empty.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn take(&mut self) -> io::Result<Reading<T>> {
        let lines = match self.file.take() {
            None => None,
            Some(writing) => {
                let mut file = writing.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.rewind()?;
                Some(BufReader::new(file))
            }
        };
        Ok(Reading { lines, kind: PhantomData })
    }
}

impl<T: DeserializeOwned> Iterator for Reading<T> {
    type Item = io::Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        match self.lines.as_mut()?.read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_slice(&line).map_err(io::Error::from)),
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_down_is_read_once_in_its_order() {
        let mut backlog = Backlog::new(None);
        assert_eq!(backlog.take().unwrap().count(), 0);
        for round in 0..2 {
            let things: Vec<String> = (0..1000).map(|index| format!("{round} \"{index}\"\n")).collect();
            things.iter().for_each(|thing| backlog.push(thing).unwrap());
            assert_eq!(backlog.take().unwrap().collect::<io::Result<Vec<_>>>().unwrap(), things);
        }
        assert_eq!(backlog.take().unwrap().count(), 0);
    }
}
