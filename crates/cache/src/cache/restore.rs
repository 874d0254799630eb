//! Saving a cache at a clean stop, and restoring it.
//!
//! A snapshot is a sequence of segments' records, each behind a head of 40 bytes that holds their
//! checksum; its own length and the checksum of all heads are in the map, which alone decides if
//! the snapshot is valid. In DRAM the pieces of a segment's values follow its records, in the order
//! of these; what a value has in its record is there.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use entresol_base::checksum::{crc32c, crc32c_append};
use entresol_base::{Seconds, mutation_site};

use crate::cache::Cache;
use crate::error::{CloseError, OpenError};
use crate::index::Heat;
use crate::ops::Expiry;
use crate::pieces::List;
use crate::record::{Head, UNIT, mark};
use crate::restart::closing::{BLOCK_BYTES, Block, Closing};
use crate::restart::{Left, Restart};
use crate::segment::{Kind, SEQUENCE_MAX, State};
use crate::shared::items::Items;
use crate::shared::records::Records;
use crate::shared::space::Space;
use crate::shared::writers::Writers;
use crate::values::Values;

const HEAD_BYTES: usize = 40;

/// A segment to restore.
struct Saved {
    id: u32,
    class: u8,
    sequence: u64,
    value_used: u32,
    records: Vec<u8>,
    /// Bytes of pieces of values that follow the records in a snapshot.
    piece_bytes: u64,
    /// True if the map's bits tell which records are void.
    has_bits: bool,
}

/// A segment as a snapshot has it; its values in pieces are still to be read.
struct FromSnapshot {
    /// The segment, if its records are intact.
    saved: Option<Saved>,
    checksum: u32,
    piece_bytes: u64,
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
        head[28..36].copy_from_slice(&self.piece_bytes.to_le_bytes());
        let checksum = crc32c(&head[..HEAD_BYTES - 4]);
        head[HEAD_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
        head
    }

    /// Returns the log and class of its items, if those and the sequence are in their ranges.
    fn kind(&self) -> Option<Kind> {
        Kind::from_u8(self.class).filter(|_| (1..SEQUENCE_MAX).contains(&self.sequence))
    }

    /// Reads the next segment of a snapshot; `Err` at its end or at damage.
    fn read(input: &mut impl Read, record_bytes_max: u64) -> std::io::Result<FromSnapshot> {
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
            piece_bytes: u64::from(word(28)) | u64::from(word(32)) << 32,
            has_bits: false,
        };
        let piece_bytes = saved.piece_bytes;
        Ok(FromSnapshot { saved: intact.then_some(saved), checksum, piece_bytes })
    }
}

impl Cache {
    /// Restores the remains of the last process, then records that this one is running.
    pub(crate) fn restore(&self) -> Result<(), OpenError> {
        let shared = &self.shared;
        let space = shared.space();
        let Some(restart) = &space.restart else { return Ok(()) };
        let now = shared.clock.seconds();
        let restorer = Restorer { items: &shared.items, writers: &shared.writers, restart, now };
        let mut items = 0;
        match restart.left {
            Left::Nothing => {}
            Left::Snapshot => items = restorer.restore_snapshot(),
            Left::Sealed => items = restorer.restore_sealed(),
        }
        restart.set_restored_items(items);
        let lost = restart.lost_segments();
        if lost > 0 {
            let reason = "damaged, or without room in the quota";
            restart.remark(format!("{lost} saved segments are not restored: {reason}"));
        }
        let (flushed_below, flush_at) = restart.flushes();
        space.flushes.pass_sequence(flushed_below);
        space.flushes.pass_sequence(restart.first_sequence());
        let first_sequence = space.flushes.leave_out_unseen();
        space.flushes.order(flush_at);
        restart.begin(now, first_sequence).map_err(|cause| OpenError::RestartDir {
            tenant: shared.name.clone(),
            path: restart.files.path().to_owned(),
            cause,
        })?;
        restorer.forget_what_stayed_away();
        Ok(())
    }

    /// Seals and writes everything and, with a restart directory, leaves a snapshot.
    pub(crate) fn save(&self) -> Result<(), CloseError> {
        let shared = &self.shared;
        let space = shared.space();
        let mut closed = shared.closed.lock();
        *closed = true;
        shared.writers.seal_all(space);
        space.records.values.stop();
        shared.items.debug_assert_adds_up();
        let Some(restart) = &space.restart else { return Ok(()) };
        let checksum = write_snapshot(space, restart).map_err(|cause| {
            // Part of a snapshot is of no use, and may be filling the disk.
            let _ = restart.files.remove_snapshot();
            CloseError::Snapshot { path: restart.files.path().to_owned(), cause }
        })?;
        restart.end(checksum, shared.clock.seconds());
        Ok(())
    }
}

/// Brings back what the last process left, into an empty cache.
struct Restorer<'a> {
    items: &'a Items,
    writers: &'a Writers,
    restart: &'a Restart,
    now: Seconds,
}

impl<'a> Restorer<'a> {
    fn space(&self) -> &'a Space {
        &self.items.space
    }

    fn records(&self) -> &'a Records {
        &self.items.space.records
    }

    /// Reads the snapshot twice: to check that it is the valid one, then to restore it. A segment
    /// whose records are damaged is left out.
    fn restore_snapshot(&self) -> u64 {
        type Visit<'v> = dyn FnMut(Option<Saved>, &mut dyn Read) + 'v;
        let each = |visit: &mut Visit<'_>| -> std::io::Result<u32> {
            let input = self.restart.files.read_snapshot()?;
            let mut input = std::io::BufReader::with_capacity(1 << 20, input);
            let mut checksum = 0;
            loop {
                match Saved::read(&mut input, self.records().segment_bytes) {
                    Ok(read) => {
                        checksum = crc32c_append(checksum, &read.checksum.to_le_bytes());
                        let mut pieces = (&mut input).take(read.piece_bytes);
                        visit(read.saved, &mut pieces);
                        std::io::copy(&mut pieces, &mut std::io::sink())?;
                        if pieces.limit() > 0 {
                            return Err(std::io::Error::other("it ends within a value"));
                        }
                    }
                    Err(end) if end.kind() == std::io::ErrorKind::UnexpectedEof => {
                        return Ok(checksum);
                    }
                    Err(damage) => return Err(damage),
                }
            }
        };
        let cause = match each(&mut |_, _| ()) {
            Ok(sum) if sum == self.restart.snapshot_checksum() => None,
            Ok(_) => Some("its checksum is wrong".to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                Some("a segment's head is damaged".to_owned())
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(cause) = cause {
            self.restart.remark(format!("the snapshot is not restored: {cause}"));
            return 0;
        }
        let mut items = 0;
        let mut bring = |saved: Option<Saved>, pieces: &mut dyn Read| match saved {
            Some(saved) => items += self.bring_back(&saved, pieces),
            None => self.restart.lose_segments(1),
        };
        if let Err(error) = each(&mut bring) {
            // Items restored so far are still valid.
            self.restart.remark(format!("the snapshot is restored in part: {error}"));
        }
        items
    }

    fn restore_sealed(&self) -> u64 {
        let (flushed_below, _) = self.restart.flushes();
        let mut saved: Vec<(u64, u32)> = (0..self.restart.segments())
            .filter_map(|id| self.restart.saved_sequence(id).map(|sequence| (sequence, id)))
            .filter(|(sequence, _)| *sequence >= flushed_below)
            .collect();
        saved.sort_unstable();
        let mut items = 0;
        for (sequence, id) in saved {
            let saved = match (self.restart.adds_up(id), self.restart.is_open(id)) {
                (false, _) => None,
                (true, true) => self.seal_kept(id, sequence),
                (true, false) => self.read_closing(id),
            };
            if let Some(saved) = saved.filter(|saved| saved.sequence == sequence) {
                items += self.bring_back(&saved, &mut std::io::empty());
            } else {
                self.restart.lose_segments(1);
            }
        }
        items
    }

    /// Seals a segment that was open, with the records that the map has kept of it.
    fn seal_kept(&self, id: u32, sequence: u64) -> Option<Saved> {
        let closing = self.restart.kept_heads(id, sequence)?;
        self.space().close_kept(id, &closing).ok()?;
        // Its room is another segment's from here on.
        self.restart.keep_segment(id, sequence);
        let Closing { class, value_used, records, .. } = closing;
        Some(Saved { id, class, sequence, value_used, records, piece_bytes: 0, has_bits: true })
    }

    /// Reads a sealed segment's records from the medium, if they are whole.
    fn read_closing(&self, id: u32) -> Option<Saved> {
        let base = self.records().medium_base_of(id);
        let block_at = (self.records().segment_bytes - BLOCK_BYTES as u64) as usize;
        let mut block = [0; BLOCK_BYTES];
        let (decoded, records) = match &self.records().values {
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
            piece_bytes: 0,
            has_bits: true,
        })
    }

    /// Voids every saved segment that was not restored, for want of room or for damage: its items
    /// may be stored anew from now on, and that would not void the old ones. A process that dies
    /// before this is done has not answered any request yet.
    fn forget_what_stayed_away(&self) {
        for id in 0..self.restart.segments() {
            if self.restart.saved_sequence(id).is_some()
                && !mutation_site!("segments that were not restored are void")
                && self.records().segments.get(id).state() != State::Sealed
            {
                self.restart.forget_segment(id);
            }
        }
    }

    /// Puts a saved segment in its old place and its items into the index; returns their number.
    fn bring_back(&self, saved: &Saved, pieces: &mut dyn Read) -> u64 {
        let elsewhere = self.records().values.is_elsewhere();
        let lost = || {
            self.restart.lose_segments(1);
            0
        };
        let Some(kind) = saved.kind() else { return lost() };
        if !self.space().budget.take_segment(false) {
            return lost();
        }
        let id = {
            let mut queues = self.space().logs.queues.lock();
            // Values elsewhere keep their place; records in DRAM may go anywhere.
            let id = if elsewhere {
                queues.take(saved.id, kind.log()).then_some(saved.id)
            } else {
                queues.take_free(kind.log())
            };
            let Some(id) = id else {
                self.space().budget.give_back_segment();
                return lost();
            };
            id
        };
        let used = saved.records.len() as u64;
        if !self.space().budget.take_pages(0, used) {
            self.space().logs.queues.lock().give_back(id, kind.log());
            self.space().budget.give_back_segment();
            return lost();
        }
        self.space().flushes.pass_sequence(saved.sequence);
        self.records().arena.write(self.records().base_of(id), &saved.records);
        let segment = self.records().segments.get(id);
        segment.start(saved.sequence, kind);
        segment.used.store(used as u32, Ordering::Relaxed);
        segment.value_used.store(saved.value_used, Ordering::Relaxed);
        segment.go_on(&[State::Free], State::Open);
        let items = self.bring_items_back(id, saved, pieces);
        let live = segment.live_items();
        assert!(items == live, "{items} items of segment {id} came back, {live} are counted");
        if elsewhere {
            // Where its records could not be told apart, the pages behind are not used.
            let kept = u64::from(segment.used.load(Ordering::Relaxed));
            self.space().budget.give_back_pages(kept, used - kept);
        }
        if elsewhere && self.restart.keeps_saved {
            self.restart.keep_segment(id, saved.sequence);
        }
        let mut queues = self.space().logs.queues.lock();
        segment.go_on(&[State::Open], State::Sealed);
        self.space().queue_sealed(&mut queues, id);
        items
    }

    fn bring_items_back(&self, id: u32, saved: &Saved, pieces: &mut dyn Read) -> u64 {
        let segment = self.records().segments.get(id);
        let base = self.records().base_of(id);
        let end = base + saved.records.len() as u64;
        let (mut at, mut items) = (base, 0);
        while at < end {
            let head = self.records().head(at / UNIT);
            let next = at + head.record_bytes();
            if head.key_len == 0 || next > end {
                // The checksum matched, so this cannot happen; the records behind it cannot be told
                // apart.
                segment.used.store((at - base) as u32, Ordering::Relaxed);
                break;
            }
            let expiry = head.expiry(&self.records().arena);
            let expires = expiry != Expiry::Never;
            let void = head.has(mark::DEAD)
                || expiry.is_past(self.now)
                || expires && self.restart.clock_ran_back
                || saved.has_bits && self.restart.is_forgotten(id, at - base);
            if !self.bring_record_back((at / UNIT, &head), saved.sequence, void, pieces) {
                head.set_marks(&self.records().arena, mark::DEAD, 0);
                self.space().forget_saved(at / UNIT);
            } else {
                let records = self.records();
                segment.add_live(head.record_bytes() + records.bytes_beside(&head));
                segment.extend_deadline(match expiry {
                    Expiry::At(second) => Some(second),
                    Expiry::Never | Expiry::Immediately => None,
                });
                items += 1;
                self.items.index.count(1);
                if self.items.index.wants_growth() {
                    self.items.grow_index(&mut self.writers.shards[0].lock(), self.now);
                }
            }
            at = next;
        }
        items
    }

    /// Brings an item back, if it has not become void and every piece of its value is there.
    fn bring_record_back(
        &self,
        (location, head): (u64, &Head),
        sequence: u64,
        void: bool,
        pieces: &mut dyn Read,
    ) -> bool {
        if !head.has(mark::PIECES) {
            return !void && self.bring_item_back(location, head, sequence);
        }
        let Some(list) = self.bring_pieces_back(head, void, pieces) else { return false };
        let (space, records) = (self.space(), self.records());
        let leader = list.segments[0];
        space.link_pieces(&list.segments);
        records.segments.get(leader).set_owner(location);
        let is_back = self.bring_item_back(location, head, sequence);
        if is_back {
            let log = records.segment_at(location).kind().log();
            space.queue_value(leader, log);
        } else {
            space.free_pieces(&list.segments);
        }
        is_back
    }

    /// Takes the pieces of a value again. In DRAM they are others, and are filled from the
    /// snapshot, which is read behind them in any case.
    fn bring_pieces_back(&self, head: &Head, void: bool, input: &mut dyn Read) -> Option<List> {
        let (space, records) = (self.space(), self.records());
        let list = records.list_of(head);
        if records.values.is_elsewhere() {
            let list = list.filter(|_| !void)?;
            let is_back = space.take_pieces_again(&list.segments)
                || mutation_site!("a value is restored only with its pieces");
            return is_back.then_some(list);
        }
        if head.has(mark::DEAD) {
            return None;
        }
        let mut pieces = input.take(records.bytes_in_pieces(head));
        let list = list.filter(|_| !void).and_then(|list| self.read_pieces(list, &mut pieces));
        let behind = std::io::copy(&mut pieces, &mut std::io::sink());
        let list = list?;
        if behind.is_err() {
            space.free_pieces(&list.segments);
            return None;
        }
        list.store(&records.arena, head.list_at());
        Some(list)
    }

    /// Reads a value from a snapshot into free segments, if there are enough.
    fn read_pieces(&self, list: List, input: &mut impl Read) -> Option<List> {
        let (records, space) = (self.records(), self.space());
        let mut segments = Vec::new();
        let mut is_whole = space.take_pieces(list.segments.len(), &mut segments);
        let mut buffer = Vec::new();
        for chunk in records.cut.chunks(list.value_len) {
            let Some(piece) = chunk.piece.filter(|_| is_whole) else { break };
            buffer.resize(chunk.bytes, 0);
            is_whole = input.read_exact(&mut buffer).is_ok();
            records.arena.write(records.base_of(segments[piece]) + chunk.offset, &buffer);
        }
        if !is_whole {
            space.free_pieces(&segments);
            return None;
        }
        Some(List { segments, ..list })
    }

    /// Puts an item into the index; of two with one key the younger stays.
    fn bring_item_back(&self, location: u64, head: &Head, sequence: u64) -> bool {
        let hash = self.records().rehash(location);
        let mut key = [0; 255];
        let key = &mut key[..head.key_len];
        self.records().arena.read(head.key_at(), key);
        loop {
            let pair = self.items.index.lock(hash);
            let other = pair.find(|at| self.records().head_of(at, key)).map(|(found, _)| found);
            if let Some(found) = other {
                let other = found.location();
                let segment = self.records().segment_at(other);
                let older = segment.sequence.load(Ordering::SeqCst) >= sequence;
                if older && !mutation_site!("of two items with one key the younger is restored") {
                    return false;
                }
                self.space().retire(other, &self.records().head(other), || pair.remove(&found));
                self.items.index.count(-1);
            }
            if pair.insert(location, Heat::NEW) {
                return true;
            }
            drop(pair);
            if !self.items.displace_for(hash) {
                return false;
            }
        }
    }
}

/// Returns the lists of a segment's values whose pieces do not outlive the process, in the order of
/// their records.
fn lists_in_dram(space: &Space, id: u32) -> Vec<List> {
    let records = &space.records;
    let used = records.segments.get(id).used.load(Ordering::Acquire);
    let mut lists = Vec::new();
    if records.values.is_elsewhere() {
        return lists;
    }
    let mut at = records.base_of(id);
    let end = at + u64::from(used);
    while at < end {
        let head = records.head(at / UNIT);
        if head.has(mark::PIECES) && !head.has(mark::DEAD) {
            lists.extend(records.list_of(&head));
        }
        at += head.record_bytes();
    }
    lists
}

/// Writes the pieces of a value behind the records of its segment.
fn write_pieces(space: &Space, list: &List, output: &mut impl Write) -> std::io::Result<()> {
    let records = &space.records;
    let mut buffer = Vec::new();
    for chunk in records.cut.chunks(list.value_len) {
        let Some(piece) = chunk.piece else { break };
        buffer.clear();
        records.append_piece(list.segments[piece], chunk.offset, chunk.bytes, &mut buffer);
        output.write_all(&buffer)?;
    }
    Ok(())
}

/// Writes the records of all sealed segments; returns the checksum of their heads.
fn write_snapshot(space: &Space, restart: &Restart) -> std::io::Result<u32> {
    let mut ids: Vec<u32> = space.logs.queues.lock().all_sealed().collect();
    ids.sort_by_key(|id| space.records.segments.get(*id).sequence.load(Ordering::SeqCst));
    let flushed_below = space.flushes.below();
    let mut output = restart.files.write_snapshot()?;
    let mut checksum = 0;
    for id in ids {
        let Closing { sequence, class, value_used, records } = space.records.closing(id);
        if sequence < flushed_below {
            continue;
        }
        let lists = lists_in_dram(space, id);
        let cut = space.records.cut;
        let in_pieces = |list: &List| list.value_len - cut.parts(list.value_len).1;
        let piece_bytes = lists.iter().map(in_pieces).sum();
        let saved =
            Saved { id, class, sequence, value_used, records, piece_bytes, has_bits: false };
        let head = saved.head();
        checksum = crc32c_append(checksum, &head[HEAD_BYTES - 4..]);
        output.write_all(&head)?;
        output.write_all(&saved.records)?;
        for list in &lists {
            write_pieces(space, list, &mut output)?;
        }
    }
    output.flush()?;
    drop(output);
    restart.files.sync_snapshot()?;
    Ok(checksum)
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
            let restart = cache.shared.space().restart.as_ref().unwrap();
            let mut bytes = restart.files.read_snapshot().unwrap();
            let mut saved = Saved::read(&mut bytes, 1 << 20).unwrap().saved.unwrap();
            damage(&mut saved);
            let mut output = restart.files.write_snapshot().unwrap();
            output.write_all(&saved.head()).unwrap();
            output.write_all(&saved.records).unwrap();
            output.flush().unwrap();
            restart.end(crc32c_append(0, &saved.head()[HEAD_BYTES - 4..]), Seconds(1_000));
            drop((output, cache));
            let opened = open(dir.path());
            assert_eq!(opened.statistics().restored_items, u64::from(number == 0), "{number}");
            assert_eq!(opened.restore_remarks().len(), usize::from(number != 0), "{number}");
        }
    }
}
