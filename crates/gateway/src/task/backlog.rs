//! Entries that wait in a temporary file, so that their number is unlimited.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::marker::PhantomData;

/// Entries in an unnamed temporary file: one line of JSON each.
pub(super) struct Backlog<T>(BufWriter<File>, PhantomData<T>);

impl<T: Serialize + DeserializeOwned> Backlog<T> {
    pub(super) fn create() -> io::Result<Self> {
        Ok(Self(BufWriter::new(tempfile::tempfile()?), PhantomData))
    }

    pub(super) fn push(&mut self, entry: &T) -> io::Result<()> {
        serde_json::to_writer(&mut self.0, entry)?;
        self.0.write_all(b"\n")
    }

    /// Reads the entries back, in batches of at most `entries_max`.
    pub(super) fn into_batches(self, entries_max: usize) -> io::Result<impl Iterator<Item = io::Result<Vec<T>>>> {
        let mut file = self.0.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        let mut lines = BufReader::new(file).lines();
        Ok(std::iter::from_fn(move || {
            let entries = lines.by_ref().take(entries_max).map(|line| Ok(serde_json::from_str(&line?)?));
            let batch: io::Result<Vec<T>> = entries.collect();
            batch.map(|batch| (!batch.is_empty()).then_some(batch)).transpose()
        }))
    }
}
