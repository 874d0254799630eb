//! Interface that a store must implement to be measured.

use std::path::PathBuf;

use std::time::Duration;

use entresol_measure::BenchError;
use entresol_store::{MediaClass, WrittenBytes};

/// Bytes that a store wrote to one of its volumes since it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeWritten {
    /// Class of the volume.
    pub class: MediaClass,
    /// Directory of the volume.
    pub directory: PathBuf,
    /// Bytes written, by cause.
    pub written: WrittenBytes,
}

/// Space that a store takes, and the time for which its writers have waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpaceHeld {
    /// Bytes of the segments that hold flushed values.
    pub value_bytes: u64,
    /// Total time for which the store has delayed writers since it was opened, all threads
    /// together.
    pub slowed: Duration,
}

/// Store that several threads use at once. The work of its own threads is measured as well.
pub trait Engine: Send + Sync {
    /// Writes a value of a key, as durable as the store is configured to be.
    ///
    /// # Errors
    /// Fails if the store refuses the write.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), BenchError>;

    /// Appends the value of a key to `out` and returns true if the key exists.
    ///
    /// # Errors
    /// Fails if the store cannot read it.
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, BenchError>;

    /// Calls `show` for at most `most` keys with their values, in ascending order from the first
    /// key that is not below `from`.
    ///
    /// # Errors
    /// Fails if the store cannot read them.
    fn scan(
        &self,
        from: &[u8],
        most: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), BenchError>;

    /// Makes all writes durable.
    ///
    /// # Errors
    /// Fails if the medium fails.
    fn sync(&self) -> Result<(), BenchError>;

    /// Returns the kind of the medium: `file`, `pmem` or `emulated pmem`.
    fn medium(&self) -> &'static str {
        "file"
    }

    /// Returns the bytes written to each volume, as the store counts them; empty if it does not
    /// count.
    ///
    /// # Errors
    /// Fails if the store cannot read its counts.
    fn written(&self) -> Result<Vec<VolumeWritten>, BenchError> {
        Ok(Vec::new())
    }

    /// Returns the space that the store takes; `None` if it does not tell.
    ///
    /// # Errors
    /// Fails if the store cannot read its counts.
    fn space(&self) -> Result<Option<SpaceHeld>, BenchError> {
        Ok(None)
    }

    /// Waits until the memtables that are full are flushed, or until `is_stopped` returns true. A
    /// store that does not tell when they are need not wait.
    ///
    /// # Errors
    /// Fails if the medium fails.
    fn finish_flushes(&self, _is_stopped: &dyn Fn() -> bool) -> Result<(), BenchError> {
        Ok(())
    }

    /// Performs the work that the store has postponed, such as compaction.
    ///
    /// # Errors
    /// Fails if the medium fails or is full.
    fn settle(&self) -> Result<(), BenchError>;

    /// Closes the store, with all writes durable.
    ///
    /// # Errors
    /// Fails if the medium fails.
    fn close(self: Box<Self>) -> Result<(), BenchError>;
}

/// Engine that does nothing; a measurement of it shows the generator.
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
