//! What a store must be able to do to be measured.

use std::path::PathBuf;

use entresol_store::{MediaClass, WrittenBytes};

use crate::error::BenchError;

/// What a store has written to one of its volumes since it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeWritten {
    /// The place's class of media.
    pub class: MediaClass,
    /// Its directory.
    pub directory: PathBuf,
    /// What was written, by its causes.
    pub written: WrittenBytes,
}

/// A store that several threads use at once. What its own threads do behind that is measured, too.
pub trait Engine: Send + Sync {
    /// Gives a key a value, as durable as the store is configured to be.
    ///
    /// # Errors
    /// If the store refuses.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), BenchError>;

    /// Appends the value of a key to `out`, and says whether there is one.
    ///
    /// # Errors
    /// If the store cannot say.
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, BenchError>;

    /// Shows at most so many keys with their values, ascending, from the first that is not below
    /// `from`.
    ///
    /// # Errors
    /// If the store cannot read them.
    fn scan(
        &self,
        from: &[u8],
        most: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), BenchError>;

    /// Makes all that was put durable.
    ///
    /// # Errors
    /// If the medium fails.
    fn sync(&self) -> Result<(), BenchError>;

    /// What it keeps its data on: `file`, `pmem` or `emulated pmem`.
    fn medium(&self) -> &'static str {
        "file"
    }

    /// What it has written to each of its volumes, by its own count; nothing if it does not count.
    ///
    /// # Errors
    /// If the store cannot say.
    fn written(&self) -> Result<Vec<VolumeWritten>, BenchError> {
        Ok(Vec::new())
    }

    /// Does now what the store would have to do later, such as merging.
    ///
    /// # Errors
    /// If the medium fails or has no room.
    fn settle(&self) -> Result<(), BenchError>;

    /// Ends it, with everything durable.
    ///
    /// # Errors
    /// If the medium fails.
    fn close(self: Box<Self>) -> Result<(), BenchError>;
}

/// Does nothing: what is measured then is the generator.
#[derive(Debug)]
pub(super) struct Nothing;

impl Engine for Nothing {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        std::hint::black_box((key, value));
        Ok(())
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, BenchError> {
        std::hint::black_box((key, out));
        Ok(true)
    }

    fn scan(
        &self,
        from: &[u8],
        most: usize,
        _show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), BenchError> {
        std::hint::black_box((from, most));
        Ok(())
    }

    fn sync(&self) -> Result<(), BenchError> {
        Ok(())
    }

    fn settle(&self) -> Result<(), BenchError> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        Ok(())
    }
}
