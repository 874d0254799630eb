//! Mapped files in real time whose persists are no faster than a drive that is not present.

use std::cmp::Ordering;
use std::io;
use std::path::Path;
use std::sync::Arc;

use entresol_base::Place;
use entresol_base::clock::Nanos;

use super::Drive;
use crate::access::Access;
use crate::mapped::{MappedFile, MappedKind};

/// A mapped file of which a persist takes as long as the drive takes to write its range, after all
/// its earlier requests. It is not known which bytes of the range are new: persisting a range again
/// costs as much again.
#[derive(Debug)]
pub(crate) struct SlowMapped {
    inner: Arc<dyn MappedFile>,
    drive: Arc<Drive>,
    /// Position on the drive at which the file begins.
    base: u64,
}

impl SlowMapped {
    /// Slows an ordinary file; persistent memory is on no drive.
    pub(crate) fn over(inner: Arc<dyn MappedFile>, drive: &Arc<Drive>) -> Arc<dyn MappedFile> {
        if inner.kind().is_pmem() {
            return inner;
        }
        let base = drive.place(inner.len());
        Arc::new(SlowMapped { inner, drive: Arc::clone(drive), base })
    }

    /// Returns the time at which the drive has written the range and all before it.
    fn due(&self, offset: u64, len: u64) -> Nanos {
        let Ok(bytes) = usize::try_from(len) else { return Nanos(0) };
        if bytes > 0 {
            self.drive.due(Access::Write, self.base + offset, bytes);
        }
        self.drive.busy_until()
    }
}

impl MappedFile for SlowMapped {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn kind(&self) -> MappedKind {
        self.inner.kind()
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        self.inner.write(offset, bytes);
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        self.inner.read(offset, out);
    }

    fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        self.inner.append_to(offset, len, out);
    }

    fn read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
        self.inner.read_out(offset, len, out)
    }

    fn try_read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        self.inner.try_read_out(offset, len, out)
    }

    fn expect_reads_only(&self) {
        self.inner.expect_reads_only();
    }

    fn expect_reads(&self) {
        self.inner.expect_reads();
    }

    fn prefetch(&self, offset: u64) {
        self.inner.prefetch(offset);
    }

    fn expect_writes(&self, offset: u64, len: u64) {
        self.inner.expect_writes(offset, len);
    }

    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        self.inner.equals(offset, bytes)
    }

    fn compare(&self, offset: u64, len: usize, bytes: &[u8]) -> Ordering {
        self.inner.compare(offset, len, bytes)
    }

    fn flush_at(&self, offset: u64, len: u64, place: Place) {
        self.inner.flush_at(offset, len, place);
    }

    fn persist_at(&self, offset: u64, len: u64, place: Place) -> io::Result<()> {
        let due = self.due(offset, len);
        self.inner.persist_at(offset, len, place)?;
        if len > 0 {
            self.drive.sleep(due);
        }
        Ok(())
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }
}
