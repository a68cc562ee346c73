//! Checksums of rows. SQLite keeps none of the pages of its file. A byte that the disk or another program has changed may
//! therefore leave a valid row that claims what was never done: another part of an upload, or another object.
//!
//! A row that differs from its checksum makes the journal damaged, and nothing in it is believed. Tables whose rows cost
//! only work when they are wrong have none.

use rusqlite::types::Type;
use tradewind_crc::crc64;

/// A row differs from its checksum.
#[derive(Debug, thiserror::Error)]
#[error("a row of the table {0} differs from its checksum")]
pub(super) struct RowDamaged(&'static str);

/// Capacity for the fields of a usual row.
const USUAL_BYTES: usize = 256;

/// Computes the checksum of a row from its fields, which must come in the same order each time.
pub(super) struct Digest(Vec<u8>);

impl Digest {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(USUAL_BYTES))
    }

    pub(super) fn number(self, value: impl Into<Option<i64>>) -> Self {
        let value: Option<i64> = value.into();
        self.bytes(value.map(i64::to_le_bytes))
    }

    pub(super) fn text<'a>(self, value: impl Into<Option<&'a str>>) -> Self {
        let value: Option<&str> = value.into();
        self.bytes(value)
    }

    /// Adds a field: NULL, or its length and its bytes.
    pub(super) fn bytes(mut self, value: Option<impl AsRef<[u8]>>) -> Self {
        match value {
            None => self.0.extend_from_slice(&u64::MAX.to_le_bytes()),
            Some(value) => {
                let value = value.as_ref();
                self.0.extend_from_slice(&(value.len() as u64).to_le_bytes());
                self.0.extend_from_slice(value);
            }
        }
        self
    }

    /// The checksum as it is stored.
    pub(super) fn sum(&self) -> i64 {
        crc64(&self.0).cast_signed()
    }

    /// Compares the checksum with that of a stored row of `table`; older versions stored none.
    pub(super) fn check(&self, table: &'static str, stored: Option<i64>) -> rusqlite::Result<()> {
        let sum = self.sum();
        match stored.filter(|stored| *stored != sum) {
            None => Ok(()),
            Some(_) => {
                let damaged = Box::new(RowDamaged(table));
                Err(rusqlite::Error::FromSqlConversionFailure(0, Type::Integer, damaged))
            }
        }
    }
}
