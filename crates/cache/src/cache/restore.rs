//! Saving a cache at a clean stop, and restoring it.
//!
//! A snapshot is a sequence of segments' records, each behind a head of 40 bytes that holds their
//! checksum; its own length and the checksum of all heads are in the map, which alone decides if
//! the snapshot is valid.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use entresol_base::checksum::{crc32c, crc32c_append};
use entresol_base::{Seconds, mutation_site};

use crate::cache::Cache;
use crate::error::{CloseError, OpenError};
use crate::index::Heat;
use crate::ops::Expiry;
use crate::record::{Head, UNIT, mark};
use crate::restart::closing::{BLOCK_BYTES, Block, Closing};
use crate::restart::{Left, Restart};
use crate::segment::{Kind, SEQUENCE_MAX, State};
use crate::shared::Shared;
use crate::shared::append::PAGE;
use crate::values::Values;

const HEAD_BYTES: usize = 40;

/// A segment to restore.
struct Saved {
    id: u32,
    class: u8,
    sequence: u64,
    value_used: u32,
    records: Vec<u8>,
    /// True if the map's bits tell which records are void.
    has_bits: bool,
}

impl Saved {
    fn head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&self.sequence.to_le_bytes());
        head[8..12].copy_from_slice(&self.id.to_le_bytes());
        head[12..16].copy_from_slice(&self.value_used.to_le_bytes());
        head[16..20].copy_from_slice(&(self.records.len() as u32).to_le_bytes());
        head[20..24].copy_from_slice(&crc32c(&self.records).to_le_bytes());
        head[24] = self.class;
        let checksum = crc32c(&head[..HEAD_BYTES - 4]);
        head[HEAD_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
        head
    }

    /// Returns the log and class of its items, if those and the sequence are in their ranges.
    fn kind(&self) -> Option<Kind> {
        Kind::from_u8(self.class).filter(|_| (1..SEQUENCE_MAX).contains(&self.sequence))
    }

    /// Reads the next segment of a snapshot; `Err` at its end or at damage.
    fn read(input: &mut impl Read, record_bytes_max: u64) -> std::io::Result<(Option<Self>, u32)> {
        let damaged = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        let mut head = [0; HEAD_BYTES];
        input.read_exact(&mut head)?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        let checksum = word(HEAD_BYTES - 4);
        if crc32c(&head[..HEAD_BYTES - 4]) != checksum || u64::from(word(16)) > record_bytes_max {
            return Err(damaged());
        }
        let mut records = vec![0; word(16) as usize];
        input.read_exact(&mut records)?;
        let intact =
            crc32c(&records) == word(20) || mutation_site!("the records of a snapshot are checked");
        let saved = Saved {
            id: word(8),
            class: head[24],
            sequence: u64::from(word(0)) | u64::from(word(4)) << 32,
            value_used: word(12),
            records,
            has_bits: false,
        };
        Ok((intact.then_some(saved), checksum))
    }
}

impl Cache {
    /// Restores the remains of the last process, then records that this one is running.
    pub(crate) fn restore(&self) -> Result<(), OpenError> {
        let shared = &self.shared;
        let Some(restart) = &shared.restart else { return Ok(()) };
        let now = shared.clock.seconds();
        let mut items = 0;
        match restart.left {
            Left::Nothing => {}
            Left::Snapshot => items = shared.restore_snapshot(restart, now),
            Left::Sealed => items = shared.restore_sealed(restart, now),
        }
        restart.set_restored_items(items);
        let (flushed_below, flush_at) = restart.flushes();
        shared.next_sequence.fetch_max(flushed_below + 1, Ordering::SeqCst);
        shared.resume_flush(flush_at);
        restart.begin(now).map_err(|cause| OpenError::RestartDir {
            tenant: shared.name.clone(),
            path: restart.files.path().to_owned(),
            cause,
        })?;
        shared.forget_what_stayed_away(restart);
        Ok(())
    }

    /// Seals and writes everything and, with a restart directory, leaves a snapshot.
    pub(crate) fn save(&self) -> Result<(), CloseError> {
        let shared = &self.shared;
        let mut closed = shared.closed.lock();
        *closed = true;
        for shard in shared.all_shards() {
            shard.lock().seal_all(shared);
        }
        shared.values.stop();
        shared.debug_assert_adds_up();
        let Some(restart) = &shared.restart else { return Ok(()) };
        let checksum = shared.write_snapshot(restart).map_err(|cause| {
            // Part of a snapshot is of no use, and may be filling the disk.
            let _ = restart.files.remove_snapshot();
            CloseError::Snapshot { path: restart.files.path().to_owned(), cause }
        })?;
        restart.end(checksum, shared.clock.seconds());
        Ok(())
    }
}

impl Shared {
    fn write_snapshot(&self, restart: &Restart) -> std::io::Result<u32> {
        let mut ids: Vec<u32> = self.queues.lock().all_sealed().collect();
        ids.sort_by_key(|id| self.segments.get(*id).sequence.load(Ordering::SeqCst));
        let flushed_below = self.flushed_below();
        let mut output = restart.files.write_snapshot()?;
        let mut checksum = 0;
        for id in ids {
            let Closing { sequence, class, value_used, records } = self.closing(id);
            if sequence < flushed_below {
                continue;
            }
            let saved = Saved { id, class, sequence, value_used, records, has_bits: false };
            let head = saved.head();
            checksum = crc32c_append(checksum, &head[HEAD_BYTES - 4..]);
            output.write_all(&head)?;
            output.write_all(&saved.records)?;
        }
        output.flush()?;
        drop(output);
        restart.files.sync_snapshot()?;
        Ok(checksum)
    }

    /// Reads the snapshot twice: to check that it is the valid one, then to restore it. A segment
    /// whose records are damaged is left out.
    fn restore_snapshot(&self, restart: &Restart, now: Seconds) -> u64 {
        let each = |visit: &mut dyn FnMut(Saved)| -> std::io::Result<u32> {
            let input = restart.files.read_snapshot()?;
            let mut input = std::io::BufReader::with_capacity(1 << 20, input);
            let mut checksum = 0;
            loop {
                match Saved::read(&mut input, self.segment_bytes) {
                    Ok((saved, head)) => {
                        checksum = crc32c_append(checksum, &head.to_le_bytes());
                        if let Some(saved) = saved {
                            visit(saved);
                        }
                    }
                    Err(end) if end.kind() == std::io::ErrorKind::UnexpectedEof => {
                        return Ok(checksum);
                    }
                    Err(damage) => return Err(damage),
                }
            }
        };
        let counts = each(&mut |_| ()).is_ok_and(|sum| sum == restart.snapshot_checksum());
        let mut items = 0;
        if counts {
            // It was read to its end a moment ago; if that fails now, items restored so far are
            // still valid.
            let _ = each(&mut |saved| items += self.bring_back(&saved, restart, now));
        }
        items
    }

    fn restore_sealed(&self, restart: &Restart, now: Seconds) -> u64 {
        let (flushed_below, _) = restart.flushes();
        let mut saved: Vec<(u64, u32)> = (0..restart.segments())
            .filter_map(|id| restart.saved_sequence(id).map(|sequence| (sequence, id)))
            .filter(|(sequence, _)| *sequence >= flushed_below)
            .collect();
        saved.sort_unstable();
        let mut items = 0;
        for (sequence, id) in saved {
            let saved = if restart.adds_up(id) { self.read_closing(id) } else { None };
            if let Some(saved) = saved.filter(|saved| saved.sequence == sequence) {
                items += self.bring_back(&saved, restart, now);
            }
        }
        items
    }

    /// Reads a sealed segment's records from the medium, if they are whole.
    fn read_closing(&self, id: u32) -> Option<Saved> {
        let base = self.medium_base_of(id);
        let block_at = (self.segment_bytes - BLOCK_BYTES as u64) as usize;
        let mut block = [0; BLOCK_BYTES];
        let (decoded, records) = match &self.values {
            Values::Inline => return None,
            Values::Pmem(pmem) => {
                pmem.read(base + block_at as u64, &mut block);
                let decoded = Block::decode(&block)?;
                let end = decoded.records_at() + u64::from(decoded.record_bytes);
                if end > block_at as u64 {
                    return None;
                }
                let mut records = vec![0; decoded.record_bytes as usize];
                pmem.read(base + decoded.records_at(), &mut records);
                (decoded, records)
            }
            Values::File(file) => {
                let bytes = file.read_segment(base).ok()?;
                block.copy_from_slice(bytes.get(block_at..)?);
                let decoded = Block::decode(&block)?;
                let start = decoded.records_at() as usize;
                let records = bytes.get(start..start + decoded.record_bytes as usize)?;
                (decoded, records.to_vec())
            }
        };
        decoded.vouches_for(&records).then_some(Saved {
            id,
            class: decoded.class,
            sequence: decoded.sequence,
            value_used: decoded.value_used,
            records,
            has_bits: true,
        })
    }

    /// Voids every saved segment that was not restored, for want of room or for damage: its items
    /// may be stored anew from now on, and that would not void the old ones. A process that dies
    /// before this is done has not answered any request yet.
    fn forget_what_stayed_away(&self, restart: &Restart) {
        for id in 0..restart.segments() {
            if restart.saved_sequence(id).is_some()
                && !mutation_site!("segments that were not restored are void")
                && self.segments.get(id).state() != State::Sealed
            {
                restart.forget_segment(id);
            }
        }
    }

    /// Puts a saved segment in its old place and its items into the index; returns their number.
    fn bring_back(&self, saved: &Saved, restart: &Restart, now: Seconds) -> u64 {
        let elsewhere = self.values.is_elsewhere();
        let Some(kind) = saved.kind() else { return 0 };
        if !self.segment_quota().take(self.segment_bytes) {
            return 0;
        }
        let id = {
            let mut queues = self.queues.lock();
            // Values elsewhere keep their place; records in DRAM may go anywhere.
            let id = if elsewhere {
                queues.take(saved.id, kind.log()).then_some(saved.id)
            } else {
                queues.take_free(kind.log())
            };
            let Some(id) = id else {
                self.segment_quota().give_back(self.segment_bytes);
                return 0;
            };
            id
        };
        let used = saved.records.len() as u64;
        let pages = used.next_multiple_of(PAGE);
        if elsewhere && !self.dram.take(pages) {
            self.queues.lock().give_back(id, kind.log());
            self.segment_quota().give_back(self.segment_bytes);
            return 0;
        }
        self.next_sequence.fetch_max(saved.sequence + 1, Ordering::SeqCst);
        self.arena.write(self.base_of(id), &saved.records);
        let segment = self.segments.get(id);
        segment.start(saved.sequence, kind);
        segment.used.store(used as u32, Ordering::Relaxed);
        segment.value_used.store(saved.value_used, Ordering::Relaxed);
        segment.go_on(&[State::Free], State::Open);
        let items = self.bring_items_back(id, saved, restart, now);
        let live = segment.live_items();
        assert!(items == live, "{items} items of segment {id} came back, {live} are counted");
        if elsewhere {
            // Where its records could not be told apart, the pages behind are not used.
            let kept = u64::from(segment.used.load(Ordering::Relaxed));
            self.dram.give_back(pages - kept.next_multiple_of(PAGE));
        }
        if elsewhere && restart.keeps_saved {
            restart.keep_segment(id, saved.sequence);
        }
        let mut queues = self.queues.lock();
        segment.go_on(&[State::Open], State::Sealed);
        queues.push_sealed(kind, id, segment.deadline.load(Ordering::Relaxed));
        items
    }

    fn bring_items_back(&self, id: u32, saved: &Saved, restart: &Restart, now: Seconds) -> u64 {
        let segment = self.segments.get(id);
        let base = self.base_of(id);
        let end = base + saved.records.len() as u64;
        let (mut at, mut items) = (base, 0);
        while at < end {
            let head = self.head(at / UNIT);
            let next = at + head.record_bytes();
            if head.key_len == 0 || next > end {
                // The checksum matched, so this cannot happen; the records behind it cannot be told
                // apart.
                segment.used.store((at - base) as u32, Ordering::Relaxed);
                break;
            }
            let expiry = head.expiry(&self.arena);
            let expires = expiry != Expiry::Never;
            let void = head.has(mark::DEAD)
                || expiry.is_past(now)
                || expires && restart.clock_ran_back
                || saved.has_bits && restart.is_forgotten(id, at - base);
            if void || !self.bring_item_back(at / UNIT, &head, saved.sequence) {
                head.set_marks(&self.arena, mark::DEAD, 0);
                self.forget_saved(at / UNIT);
            } else {
                let value = if self.values.is_elsewhere() { head.value_len as u64 } else { 0 };
                segment.add_live(head.record_bytes() + value);
                segment.extend_deadline(match expiry {
                    Expiry::At(second) => Some(second),
                    Expiry::Never | Expiry::Immediately => None,
                });
                items += 1;
                self.index.count(1);
                if self.index.wants_growth() {
                    self.grow_index(&mut self.shards[0].lock(), now);
                }
            }
            at = next;
        }
        items
    }

    /// Puts an item into the index; of two with one key the younger stays.
    fn bring_item_back(&self, location: u64, head: &Head, sequence: u64) -> bool {
        let hash = self.rehash(location);
        let mut key = [0; 255];
        let key = &mut key[..head.key_len];
        self.arena.read(head.key_at(), key);
        loop {
            let pair = self.index.lock(hash);
            let other = pair.find(|at| self.head_of(at, key)).map(|(found, _)| found);
            if let Some(found) = other {
                let other = found.location();
                let segment = self.segments.get(self.segment_of(other));
                let older = segment.sequence.load(Ordering::SeqCst) >= sequence;
                if older && !mutation_site!("of two items with one key the younger is restored") {
                    return false;
                }
                self.retire(other, &self.head(other), || pair.remove(&found));
                self.index.count(-1);
            }
            if pair.insert(location, Heat::NEW) {
                return true;
            }
            drop(pair);
            if !self.index.make_room(hash, &|at| self.fetch(at), &|at| self.rehash(at)) {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use entresol_base::{ByteSize, ManualClock};

    use super::*;
    use crate::{Config, Store};

    fn open(dir: &Path) -> Arc<Cache> {
        let restart_dir = Some(dir.to_owned());
        let config = Config { restart_dir, ..Config::dram(ByteSize::mib(32)) };
        Cache::open(config, Arc::new(ManualClock::at(Seconds(1_000)))).unwrap()
    }

    /// Its checksums hold: another version of the program may have written it.
    #[test]
    fn a_saved_segment_that_cannot_be_is_left_out() {
        let damages: [fn(&mut Saved); 4] = [
            |_| (),
            |saved| saved.class = crate::segment::QUEUES as u8,
            |saved| saved.sequence = 0,
            |saved| saved.sequence = u64::MAX,
        ];
        for (number, damage) in damages.iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            let cache = open(dir.path());
            let mut worker = cache.worker();
            worker.store(b"key", worker.hash(b"key"), Seconds(1_000), &Store::set(b"1"), None);
            drop(worker);
            cache.close().unwrap();
            let restart = cache.shared.restart.as_ref().unwrap();
            let mut bytes = restart.files.read_snapshot().unwrap();
            let (saved, _) = Saved::read(&mut bytes, 1 << 20).unwrap();
            let mut saved = saved.unwrap();
            damage(&mut saved);
            let mut output = restart.files.write_snapshot().unwrap();
            output.write_all(&saved.head()).unwrap();
            output.write_all(&saved.records).unwrap();
            output.flush().unwrap();
            restart.end(crc32c_append(0, &saved.head()[HEAD_BYTES - 4..]), Seconds(1_000));
            drop((output, cache));
            let items = open(dir.path()).statistics().restored_items;
            assert_eq!(items, u64::from(number == 0), "damage {number}");
        }
    }
}
