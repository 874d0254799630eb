//! Large values that are sent from where they lie.

use entresol_media::SendPart;

use super::file_io::FileIo;
use super::pin::Pin;
use super::window::Window;
use crate::ops::KeyHash;

/// A large value that a read has found. Its memory counts towards the quota until this is dropped,
/// whatever becomes of its item.
pub struct Pinned {
    pin: Pin,
    hash: KeyHash,
    /// Bytes at its beginning that were checked.
    checked: usize,
    is_damaged: bool,
    /// Chunks that were read of a value on a block file.
    window: Option<Window>,
}

/// Error of a value whose bytes are not those that were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

impl Pinned {
    pub(super) fn of(pin: Pin, hash: KeyHash) -> Pinned {
        let window = pin.is_on_file().then(Window::default);
        Pinned { pin, hash, checked: 0, is_damaged: false, window }
    }

    pub(super) fn pin(&self) -> &Pin {
        &self.pin
    }

    pub(super) fn hash(&self) -> KeyHash {
        self.hash
    }

    /// Returns the bytes of the value.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a large value is never empty")]
    pub fn len(&self) -> usize {
        self.pin.len()
    }

    /// Returns the bytes of memory that it takes beside its pieces.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.pin.rest_len() + self.window.as_ref().map_or(0, Window::bytes)
    }

    /// Returns true if a check has found damage.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Returns true if its item has gone or has another value, so that this alone keeps its memory.
    #[must_use]
    pub fn is_orphan(&self) -> bool {
        self.pin.is_orphan()
    }

    /// Returns true if it lies on a block file, from which it is read part by part.
    #[must_use]
    pub fn is_on_file(&self) -> bool {
        self.window.is_some()
    }

    /// Lets go what was read before byte `sent`.
    pub fn let_go(&mut self, sent: usize) {
        if let Some(window) = &mut self.window {
            window.let_go(sent);
        }
    }

    /// Returns the bytes of memory for the read without which nothing more can be sent; 0 if it
    /// needs none, or that is under way.
    #[must_use]
    pub fn wanted_bytes(&self) -> usize {
        self.window.as_ref().map_or(0, |window| window.wanted_bytes(&self.pin))
    }

    /// Moves this read to `out`, and those that bring so many bytes more of what comes next.
    /// Returns the bytes of memory that they take.
    pub fn read_ahead(&mut self, spare: usize, out: &mut Vec<FileIo>) -> usize {
        self.window.as_mut().map_or(0, |window| window.ask(&self.pin, spare, out))
    }

    /// Checks the value up to the chunk that holds the byte before `end`, as far as it was not, and
    /// as far as it was read. Returns the bytes at its beginning that were checked.
    ///
    /// # Errors
    /// If a chunk is damaged, or could not be read.
    pub fn check_to(&mut self, end: usize) -> Result<usize, Damaged> {
        let end = end.min(self.len());
        while self.checked < end && !self.is_damaged {
            let checked = match &mut self.window {
                Some(window) if (self.checked as u64) < self.pin.rest_at() => {
                    match window.check(&self.pin, self.checked) {
                        None => return Ok(self.checked),
                        Some(false) => None,
                        Some(true) => self.pin.chunk_of(self.checked).map(|it| it.end()),
                    }
                }
                _ => self.pin.check_chunk(self.checked),
            };
            self.is_damaged = checked.is_none();
            self.checked = checked.unwrap_or(self.checked);
        }
        if self.is_damaged { Err(Damaged) } else { Ok(self.checked) }
    }

    /// Appends the parts that hold a range of the value, which must have been checked.
    pub fn append_parts<'a>(&'a self, from: usize, len: usize, parts: &mut Vec<SendPart<'a>>) {
        debug_assert!(from + len <= self.checked, "bytes are sent that were not checked");
        match &self.window {
            Some(window) => {
                window.append_parts(from, len, parts);
                let rest = self.pin.in_rest(from as u64, len);
                parts.extend((!rest.is_empty()).then(|| SendPart::bytes(rest)));
            }
            None => self.pin.append_parts(from as u64, len, parts),
        }
    }

    /// Appends a range of the value, which must have been checked, to `out`.
    pub fn append_range(&self, from: usize, len: usize, out: &mut Vec<u8>) {
        debug_assert!(from + len <= self.checked, "bytes are sent that were not checked");
        match &self.window {
            Some(window) => {
                window.append_range(from, len, out);
                out.extend_from_slice(self.pin.in_rest(from as u64, len));
            }
            None => _ = self.pin.append_range(from as u64, len, out),
        }
    }
}

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a value of {} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use entresol_base::{ByteSize, Clock, ManualClock, Seconds};

    use crate::{Cache, Config, GetOptions, Lookup, Store, Worker};

    const LEN: usize = 3_000_000;

    fn look(worker: &mut Worker, now: Seconds) -> Lookup {
        let options = GetOptions { pin: true, ..GetOptions::default() };
        worker.get(b"k", worker.hash(b"k"), now, &options, &mut Vec::new(), |_, _| ())
    }

    /// Flips a bit of byte `at` of a large value, and reads on until that is found.
    fn damaged_at(at: usize) -> Option<usize> {
        let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
        let value_bytes_max = Some(ByteSize::mib(8));
        let config = Config { value_bytes_max, ..Config::dram(ByteSize::mib(32)) };
        let cache = Cache::open(config, clock.clone()).expect("memory for a cache");
        let (mut worker, now) = (cache.worker(), clock.seconds());
        worker.store(b"k", worker.hash(b"k"), now, &Store::set(&vec![7; LEN]), None);
        assert!(matches!(look(&mut worker, now), Lookup::Hit(_)));
        let value = worker.take_pinned().expect("a large value");
        let shared = Arc::clone(&worker.shared);
        let records = shared.records();
        let piece = at as u64 / records.segment_bytes;
        let id = (0..piece).fold(value.pin().leader(), |id, _| {
            records.segments.get(id).next_piece().expect("a further piece")
        });
        let place = records.base_of(id) + at as u64 % records.segment_bytes;
        let order = std::sync::atomic::Ordering::Relaxed;
        records.arena.store_u8(place, records.arena.load_u8(place, order) ^ 1, order);
        drop(value);
        if look(&mut worker, now) == Lookup::Miss {
            return Some(0);
        }
        let mut value = worker.take_pinned()?;
        let found = (1..=LEN).step_by(1000).find(|end| value.check_to(*end).is_err());
        worker.drop_damaged_pinned(&value);
        assert_eq!(look(&mut worker, now), Lookup::Miss, "a damaged value is served again");
        assert_eq!(cache.statistics().events.damaged, 1);
        found
    }

    #[test]
    fn damage_is_found_before_its_chunk_is_sent_and_ends_the_item() {
        assert_eq!(damaged_at(1000), Some(0));
        let found = damaged_at(1_500_000).expect("damage is found");
        assert!((1_000_000..=1_500_000).contains(&found), "{found}");
    }
}
