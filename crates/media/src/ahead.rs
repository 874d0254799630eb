//! Reads that are begun before a thread waits for them.

use std::fs::File;
use std::io::IoSliceMut;

use rustix::fs::{Advice, fadvise};
use rustix::io::{ReadWriteFlags, preadv2};

/// Maximum number of reads of one file that are remembered as begun and not waited for.
const BEGUN_MAX: usize = 256;

/// Appends `len` bytes of a file at `offset` to `out` if the page cache holds all of them, and
/// returns true then. Otherwise starts reading them without waiting.
pub(crate) fn try_read(file: &File, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
    let before = out.len();
    out.resize(before + len, 0);
    let mut slices = [IoSliceMut::new(&mut out[before..])];
    if preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT) == Ok(len) {
        return true;
    }
    out.truncate(before);
    // Most kernels have begun to read by now; others only report that the call would block. If this
    // fails as well, the reader just waits longer.
    let _ = fadvise(file, offset, std::num::NonZeroU64::new(len as u64), Advice::WillNeed);
    false
}

/// Reads of a file that were begun, each with the time at which it is done.
#[derive(Debug)]
pub struct Begun<T>(Vec<Range<T>>);

#[derive(Debug)]
struct Range<T> {
    offset: u64,
    end: u64,
    done: T,
}

impl<T> Default for Begun<T> {
    fn default() -> Begun<T> {
        Begun(Vec::new())
    }
}

impl<T: Copy> Begun<T> {
    /// Notes a read. Forgets the oldest one if there are too many.
    pub fn add(&mut self, offset: u64, len: u64, done: T) {
        if self.0.len() == BEGUN_MAX {
            self.0.remove(0);
        }
        self.0.push(Range { offset, end: offset + len, done });
    }

    /// Returns the time at which a read that covers the range is done, if there is one.
    pub fn find(&self, offset: u64, len: u64) -> Option<T> {
        self.0.iter().find(|it| it.has(offset, len)).map(|it| it.done)
    }

    /// Returns the time at which a read that covers the range is done, and forgets the read, since
    /// it was waited for.
    pub fn take(&mut self, offset: u64, len: u64) -> Option<T> {
        let place = self.0.iter().position(|it| it.has(offset, len))?;
        Some(self.0.remove(place).done)
    }
}

impl<T> Range<T> {
    fn has(&self, offset: u64, len: u64) -> bool {
        self.offset <= offset && offset + len <= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_was_begun_is_found_once_by_whom_it_suffices() {
        let mut begun = Begun::default();
        begun.add(4096, 8192, 7);
        begun.add(4096, 4096, 9);
        assert_eq!(begun.find(8192, 8192), None);
        assert_eq!(begun.take(0, 4096), None);
        assert_eq!(begun.find(4096, 4096), Some(7));
        assert_eq!(begun.take(4096, 4096), Some(7));
        assert_eq!(begun.take(4096, 4096), Some(9));
        assert_eq!(begun.take(4096, 4096), None);
        (0..=BEGUN_MAX as u64).for_each(|at| begun.add(at, 1, at));
        assert_eq!((begun.find(0, 1), begun.find(1, 1)), (None, Some(1)));
    }
}
