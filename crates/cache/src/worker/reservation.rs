//! Values that arrive between those of other items: each is received into the place that its record
//! will have, at the end of an open segment, and others are stored behind it meanwhile.
//!
//! The place counts as an item, but its record is dead until it is published, so that a walk of the
//! segment passes it by. The segment is not sealed before its last reservation has ended: it
//! can neither be evicted nor written to a block file. So reservations are few, and a value that
//! stands still is moved out of its place ([`Reservation::into_bytes`]).

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use entresol_base::checksum::crc32c_append;
use entresol_base::{Seconds, thread};

use super::Worker;
use super::request::{condition, new_record};
use crate::ops::{KeyHash, Store, StoreMode, Stored};
use crate::record::NewRecord;
use crate::segment::Log;
use crate::shared::Shared;
use crate::shared::append::{NoPlace, PlaceAhead};
use crate::shared::items::{Published, Refusal};
use crate::shared::records::Records;
use crate::shared::space::Seen;

/// A place for a value that is still arriving, between those of other items.
pub struct Reservation {
    shared: Arc<Shared>,
    place: PlaceAhead,
    hash: u64,
    len: usize,
    written: usize,
    /// Checksum of the bytes that have arrived, if values lie elsewhere.
    checksum: u32,
    /// True once an item has the place.
    is_published: bool,
}

/// Result of asking for a place for a value that is still to arrive.
pub enum Reserved {
    /// A place.
    Place(Reservation),
    /// Nothing: the value depends on an old one, lies in pieces, or is to be received as a whole
    /// first, since such places are few.
    Nothing,
    /// Wait for a write buffer of a block file, of which none is free, as for [`Stored::Busy`].
    Busy,
}

/// Result of storing a value in its reserved place.
pub enum StoredInPlace {
    /// Result of the store.
    Done(Stored),
    /// The place is of no use: the value is to be stored like any other.
    Elsewhere(Vec<u8>),
}

impl Reservation {
    /// Reserves a place for a value of so many bytes, which `store` does not hold yet, and which
    /// follows so many bytes of its request.
    #[cold]
    pub fn begin(
        worker: &mut Worker,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        (len, follows): (usize, usize),
    ) -> Reserved {
        let shared = Arc::clone(&worker.shared);
        let records = shared.records();
        let joins = matches!(store.mode, StoreMode::Append | StoreMode::Prepend);
        if joins || !records.takes_whole(key, len) || !records.takes_parts() {
            return Reserved::Nothing;
        }
        shared.space().check_flush(now);
        let before = shared.reservations.fetch_add(1, Ordering::Relaxed);
        let place = if before < shared.reservations_max {
            let record = NewRecord { value_len: len, ..new_record(key, now, store, 0) };
            let mut shard = shared.writers.shards[worker.shard].lock();
            shard.reserve_ahead(&shared.items, &record, follows, hash.0, now)
        } else {
            Err(NoPlace::NoMemory)
        };
        match place {
            Ok(place) => {
                let (hash, written, checksum, is_published) = (hash.0, 0, 0, false);
                let place =
                    Reservation { shared, place, hash, len, written, checksum, is_published };
                Reserved::Place(place)
            }
            Err(none) => {
                shared.reservations.fetch_sub(1, Ordering::Relaxed);
                if none == NoPlace::Busy { Reserved::Busy } else { Reserved::Nothing }
            }
        }
    }

    /// Stores a value that has arrived in its reserved place.
    pub fn store(
        mut self,
        worker: &mut Worker,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
    ) -> StoredInPlace {
        debug_assert!(self.missing() == 0, "{self:?} have arrived");
        self.shared.space().check_flush(now);
        match self.publish(worker, key, hash, now, store) {
            Some(stored) => {
                self.is_published = matches!(stored, Stored::Stored { .. });
                worker.end_store(key, hash, now, store, &stored);
                StoredInPlace::Done(stored)
            }
            None => StoredInPlace::Elsewhere(self.into_bytes()),
        }
    }

    /// Publishes the record of a reserved place. `None` if that cannot be.
    fn publish(
        &self,
        worker: &mut Worker,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
    ) -> Option<Stored> {
        let shared = &self.shared;
        let (items, space, records) = (&shared.items, shared.space(), shared.records());
        let Reservation { place: PlaceAhead { place, .. }, len, checksum, .. } = self;
        let record = NewRecord { value_len: *len, ..new_record(key, now, store, 0) };
        let elsewhere = records.values.is_elsewhere();
        let is_flushed = place.sequence < space.flushes.below();
        if is_flushed || record.whole_record_bytes(elsewhere) != place.record_bytes {
            return None;
        }
        let condition = |seen: &Seen, records: &Records| condition(store, seen, records);
        let mut shard = shared.writers.shards[worker.shard].lock();
        shard.begin_publishing(space, place);
        records.segments.get(place.segment).extend_deadline(record.expiry);
        record.write(
            &records.arena,
            place.at,
            elsewhere.then_some((place.value_offset, *checksum)),
        );
        thread::step();
        let refusal = match items.publish(&mut shard, hash, now, &record, place, &condition) {
            Published::Replaced { cas } => return Some(Stored::Stored { cas }),
            Published::Inserted { cas } => {
                items.count_added(&mut worker.uncounted_items, &mut shard, place, now);
                return Some(Stored::Stored { cas });
            }
            // Its token needs room that the record does not have.
            Published::NeedsCas(_) => None,
            Published::Refused(Refusal::Exists) if store.invalidate => None,
            Published::Refused(refusal) => Some(refusal.into()),
        };
        shard.leave(space, place);
        refusal
    }

    /// Returns the bytes of the whole value.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no place is reserved for an empty value")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes that have arrived.
    #[must_use]
    pub fn written(&self) -> usize {
        self.written
    }

    /// Returns the bytes that are still to come.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.len - self.written
    }

    /// Writes the next bytes of the value; returns how many of `bytes` they were.
    pub fn write(&mut self, worker: &mut Worker, bytes: &[u8]) -> usize {
        thread::step();
        let bytes = bytes.get(..self.missing()).unwrap_or(bytes);
        let records = self.shared.records();
        records.write_part(&self.place, self.written as u64, bytes, &mut worker.account);
        if records.values.is_elsewhere() {
            self.checksum = crc32c_append(self.checksum, bytes);
        }
        self.written += bytes.len();
        worker.moved_bytes += bytes.len();
        bytes.len()
    }

    /// Receives the next bytes, at most so many, from a socket into their place.
    ///
    /// # Errors
    /// Those of the system call, among them that nothing can be received now.
    pub fn receive(
        &mut self,
        worker: &mut Worker,
        socket: BorrowedFd<'_>,
        most: usize,
    ) -> io::Result<usize> {
        let range = (self.written as u64, self.missing().min(most));
        let (records, account) = (self.shared.records(), &mut worker.account);
        let received = records.receive_part(&self.place, range, socket, self.checksum, account)?;
        self.checksum = received.1;
        self.written += received.0;
        Ok(received.0)
    }

    /// Moves what has arrived out of its place, which becomes free.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.shared.records().read_parts(&self.place, self.written)
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes", self.written, self.len)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let (space, place) = (self.shared.space(), &self.place.place);
        let segment = self.shared.records().segments.get(place.segment);
        if !self.is_published {
            space.vacancy.remove_live(segment, place.bytes());
            if segment.kind().log() == Log::Main {
                // The key is as it was before.
                space.logs.ghosts.put(self.hash, Log::Small);
            }
        }
        space.end_reservation(place.segment);
        self.shared.reservations.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use entresol_base::{ByteSize, Clock, ManualClock, Seconds};
    use entresol_media::MediumSpec;

    use super::{Reservation, Reserved, StoredInPlace};
    use crate::{Cache, Config, Store, Stored};

    /// Bytes of a value: those of pages, so that nothing but records shifts the next one.
    const LEN: usize = 65_536;
    /// Bytes of the line before it.
    const FOLLOWS: usize = 20;

    /// Stores values one behind the other, each in a reserved place.
    fn places(medium: MediumSpec) -> Vec<u64> {
        let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
        let config =
            Config { medium, medium_bytes: ByteSize::mib(32), ..Config::dram(ByteSize::mib(32)) };
        let cache = Cache::open(config, clock.clone()).expect("memory for a cache");
        let (mut worker, now) = (cache.worker(), clock.seconds());
        let places = (0..300).filter_map(|number| {
            let (key, store) = (format!("key-{number}"), Store::set(b""));
            let hash = worker.hash(key.as_bytes());
            let at = (LEN, FOLLOWS);
            let begun = Reservation::begin(&mut worker, key.as_bytes(), hash, now, &store, at);
            let mut place = match begun {
                Reserved::Place(place) => place,
                Reserved::Nothing => panic!("there are places for one"),
                Reserved::Busy => return None,
            };
            let at = place.place.value_at;
            assert_eq!(place.write(&mut worker, &[number as u8; LEN]), LEN);
            let stored = place.store(&mut worker, key.as_bytes(), hash, now, &store);
            assert!(matches!(stored, StoredInPlace::Done(Stored::Stored { .. })));
            Some(at)
        });
        let places = places.collect();
        drop(worker);
        cache.close().expect("what was left out is passed by");
        places
    }

    #[test]
    fn no_value_lies_a_little_further_in_its_page_than_in_its_request() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = MediumSpec::File { path: folder.path().join("values"), model: None };
        for medium in [MediumSpec::Dram, file] {
            let places = places(medium);
            assert!(places.len() > 30, "{} places", places.len());
            let further = |at: &&u64| (1..32).contains(&(at.wrapping_sub(FOLLOWS as u64) % 4096));
            assert_eq!(places.iter().find(further), None);
        }
    }
}
