//! One file of a simulated disk: its durable bytes, later writes, and the states in which a crash
//! may leave it.
//!
//! Every sector has a list of the writes since it was last durable, and the file has a list of its
//! lengths since then. A crash picks from each list independently. Shortening the file also removes
//! earlier writes behind the new end, as the file system's journal does: later writes there are
//! never seen with the old bytes around them.
//!
//! A write is in flight until the program learns of its completion. A sync covers no write that was
//! in flight when it was called, and of two writes of a sector that were in flight together either
//! may come last, whatever a read has shown.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::content::{Content, Sector};

mod lines;

use lines::Flushed;

/// Content of a sector after one of its writes.
#[derive(Debug, Clone)]
struct Version {
    bytes: Option<Sector>,
    /// Time of the write, by [`Power::tick`](crate::crash::Power::tick): its place in the order of
    /// all changes.
    order: u64,
    /// Earlier writes of the sector that were in flight when this one began: the drive may do them
    /// after it.
    beside: Vec<u64>,
    /// Set once a sync could not decide if the sector has this content: it failed, or another write
    /// was in flight together with this one. No later sync decides it either, only one of a later
    /// write.
    unsure: bool,
}

impl Version {
    /// Returns true if the other write was complete when this one began, so that it is certainly
    /// overwritten once this one is durable.
    fn follows(&self, other: &Version) -> bool {
        other.order < self.order && !self.beside.contains(&other.order)
    }

    fn overlaps(&self, other: &Version) -> bool {
        self.order != other.order && !self.follows(other) && !other.follows(self)
    }
}

/// A change of the file's length.
#[derive(Debug, Clone, Copy)]
struct Length {
    bytes: u64,
    order: u64,
}

/// State of a file.
#[derive(Debug, Clone)]
pub(super) struct File {
    sector: u64,
    durable: Content,
    durable_len: u64,
    unsettled: BTreeMap<u64, Vec<Version>>,
    lengths: Vec<Length>,
    /// Writes in flight.
    flights: BTreeSet<u64>,
    /// Flushed lines of persistent memory that their threads have not drained.
    flushed: Vec<Flushed>,
    /// Ranges without space, by first byte, with their ends.
    holes: BTreeMap<u64, u64>,
    /// Position of the file on the device, for its model.
    pub(super) device_offset: u64,
}

/// Extent of a sync, which is fixed when it begins and takes effect when it ends.
#[derive(Debug, Clone)]
pub(super) struct SyncCut {
    order: u64,
    flights: BTreeSet<u64>,
    /// Sectors that it covers.
    sectors: Range<u64>,
}

impl SyncCut {
    fn covers(&self, version: &Version) -> bool {
        version.order <= self.order && !self.flights.contains(&version.order)
    }
}

/// A write that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flight(u64);

impl File {
    /// Makes a file without bytes.
    pub(super) fn new(sector: u64, device_offset: u64) -> File {
        File {
            sector,
            durable: Content::default(),
            durable_len: 0,
            unsettled: BTreeMap::new(),
            lengths: Vec::new(),
            flights: BTreeSet::new(),
            flushed: Vec::new(),
            holes: BTreeMap::new(),
            device_offset,
        }
    }

    /// Returns the length that programs see.
    pub(super) fn len(&self) -> u64 {
        self.lengths.last().map_or(self.durable_len, |length| length.bytes)
    }

    /// Returns the bytes that the file takes on the disk.
    pub(super) fn allocated(&self) -> u64 {
        let holes: u64 = self.holes.iter().map(|(start, end)| end - start).sum();
        self.len().next_multiple_of(self.sector).saturating_sub(holes)
    }

    /// Changes the file's length; added bytes have space and read as zero.
    pub(super) fn set_len(&mut self, bytes: u64, order: u64) {
        self.lengths.push(Length { bytes, order });
        let end = bytes.next_multiple_of(self.sector);
        self.holes.split_off(&end);
        if let Some(mut last) = self.holes.last_entry()
            && *last.get() > end
        {
            *last.get_mut() = end;
        }
    }

    /// Returns how many bytes of the range have no space.
    pub(super) fn missing(&self, offset: u64, bytes: u64) -> u64 {
        let end = offset + bytes;
        let overlap = |(&from, &to): (&u64, &u64)| to.min(end).saturating_sub(from.max(offset));
        self.holes.range(..end).map(overlap).sum()
    }

    /// Gives the range space.
    pub(super) fn allocate(&mut self, offset: u64, bytes: u64) {
        let end = offset + bytes;
        let touched: Vec<(u64, u64)> = self
            .holes
            .range(..end)
            .filter(|&(_, &to)| to > offset)
            .map(|(&from, &to)| (from, to))
            .collect();
        for (from, to) in touched {
            self.holes.remove(&from);
            if from < offset {
                self.holes.insert(from, offset);
            }
            if to > end {
                self.holes.insert(end, to);
            }
        }
    }

    /// Removes the range's space and bytes.
    pub(super) fn discard(&mut self, offset: u64, bytes: u64, order: u64) {
        self.allocate(offset, bytes);
        self.holes.insert(offset, offset + bytes);
        let (first, end) = (offset / self.sector, (offset + bytes) / self.sector);
        let mut numbers = self.durable.numbers(first, end);
        numbers.extend(self.unsettled.range(first..end).map(|(&number, _)| number));
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            if self.live(number).is_some() {
                self.put(number, None, order);
            }
        }
    }

    /// Begins a write.
    pub(super) fn begin(&mut self, order: u64) -> Flight {
        self.flights.insert(order);
        Flight(order)
    }

    /// Notes that the program knows of the write's completion.
    pub(super) fn finish(&mut self, Flight(order): Flight) {
        self.flights.remove(&order);
    }

    /// Writes whole sectors. A partial last one is filled with zeroes.
    pub(super) fn write(&mut self, Flight(order): Flight, offset: u64, bytes: &[u8]) {
        let first = offset / self.sector;
        for (number, chunk) in (first..).zip(bytes.chunks(self.sector as usize)) {
            let mut sector = vec![0; self.sector as usize];
            sector[..chunk.len()].copy_from_slice(chunk);
            self.put(number, stored(sector), order);
        }
    }

    /// Writes bytes at any offset; the rest of their sectors stays.
    pub(super) fn write_within(&mut self, order: u64, offset: u64, bytes: &[u8]) {
        let size = self.sector as usize;
        let mut at = 0;
        while at < bytes.len() {
            let place = offset + at as u64;
            let (number, within) = (place / self.sector, (place % self.sector) as usize);
            let part = &bytes[at..(at + size - within).min(bytes.len())];
            let mut sector = self.live(number).map_or_else(|| vec![0; size], |live| live.to_vec());
            sector[within..within + part.len()].copy_from_slice(part);
            self.put(number, stored(sector), order);
            at += part.len();
        }
    }

    fn put(&mut self, number: u64, bytes: Option<Sector>, order: u64) {
        let versions = self.unsettled.entry(number).or_default();
        let before = versions.iter().map(|version| version.order);
        let beside = before.filter(|earlier| self.flights.contains(earlier)).collect();
        versions.push(Version { bytes, order, beside, unsure: false });
    }

    /// Returns a sector as programs read it.
    fn live(&self, number: u64) -> Option<&Sector> {
        let all = self.unsettled.get(&number).map_or(0, Vec::len);
        self.visible(number, all, self.lengths.len())
    }

    /// Returns a sector's content if `versions` of its writes and `lengths` of the file's changes
    /// of length have happened.
    fn visible(&self, number: u64, versions: usize, lengths: usize) -> Option<&Sector> {
        let pending = self.unsettled.get(&number).map_or(&[][..], Vec::as_slice);
        let (order, bytes) = match pending[..versions].last() {
            Some(version) => (version.order, version.bytes.as_ref()),
            None => (0, self.durable.get(number)),
        };
        let cut = self.lengths[..lengths].iter().rev().find(|length| self.cuts(length, number));
        if cut.is_some_and(|cut| cut.order > order) { None } else { bytes }
    }

    /// Returns true if a change of length removed the sector.
    fn cuts(&self, length: &Length, number: u64) -> bool {
        length.bytes <= number * self.sector
    }

    /// Copies bytes as programs read them at `offset` into `to`, and returns how many there are.
    pub(super) fn read(&self, offset: u64, to: &mut [u8]) -> usize {
        let bytes = self.len().saturating_sub(offset).min(to.len() as u64) as usize;
        let size = self.sector as usize;
        let mut at = 0;
        while at < bytes {
            let (number, within) =
                ((offset + at as u64) / self.sector, (offset as usize + at) % size);
            let step = (size - within).min(bytes - at);
            match self.live(number) {
                Some(sector) => {
                    to[at..at + step].copy_from_slice(&sector[within..within + step]);
                }
                None => to[at..at + step].fill(0),
            }
            at += step;
        }
        bytes
    }

    /// Returns the extent of a sync of these sectors that begins now; lengths are always covered.
    pub(super) fn cut(&self, order: u64, sectors: Range<u64>) -> SyncCut {
        SyncCut { order, flights: self.flights.clone(), sectors }
    }

    /// Returns the runs of adjacent sectors, among these, with writes not yet covered by any sync.
    pub(super) fn new_runs(&self, sectors: &Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (&number, versions) in self.unsettled.range(sectors.clone()) {
            if versions.iter().all(|version| version.unsure) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == number => run.end += 1,
                _ => runs.push(number..number + 1),
            }
        }
        runs
    }

    /// Returns the moments of the changes that are not settled.
    pub(super) fn moments(&self) -> impl Iterator<Item = u64> {
        let writes = self.unsettled.values().flatten().map(|version| version.order);
        self.lengths.iter().map(|length| length.order).chain(writes)
    }

    /// Returns the states of [`File::units`] with all changes before a moment.
    pub(super) fn states_before(&self, moment: u64) -> impl Iterator<Item = u16> {
        let lengths = self.lengths.partition_point(|length| length.order < moment);
        let before = move |versions: &Vec<Version>| {
            count(versions.partition_point(|version| version.order < moment))
        };
        let length = (!self.lengths.is_empty()).then(|| count(lengths));
        length.into_iter().chain(self.unsettled.values().map(before))
    }

    /// Makes the writes that were complete when the sync began durable.
    pub(super) fn settle(&mut self, cut: &SyncCut) {
        let lengths: Vec<Length> = self.lengths.clone();
        for length in lengths.iter().filter(|length| length.order <= cut.order) {
            self.settle_length(*length);
        }
        self.lengths.retain(|length| length.order > cut.order);
        let durable = &mut self.durable;
        self.unsettled.retain(|&number, versions| {
            if !cut.sectors.contains(&number) {
                return true;
            }
            if let Some(bytes) = settle_sector(versions, cut) {
                durable.set(number, bytes);
            }
            !versions.is_empty()
        });
    }

    fn settle_length(&mut self, length: Length) {
        let first = length.bytes.div_ceil(self.sector);
        if length.bytes < self.durable_len {
            self.durable.truncate(first);
        }
        for (_, versions) in self.unsettled.range_mut(first..) {
            versions.retain(|version| version.order > length.order);
        }
        self.unsettled.retain(|_, versions| !versions.is_empty());
        self.durable_len = length.bytes;
    }

    /// Handles a failed sync: the kernel takes dirty data for written, and it is unknown if any of
    /// it was. If `readable`, programs go on reading it; otherwise they read the disk's content,
    /// which is the old one.
    pub(super) fn lose(&mut self, cut: &SyncCut, readable: bool) {
        for (_, versions) in self.unsettled.range_mut(cut.sectors.clone()) {
            if readable {
                let covered = versions.iter_mut().filter(|version| cut.covers(version));
                covered.for_each(|version| version.unsure = true);
            } else {
                versions.retain(|version| !cut.covers(version));
            }
        }
        self.unsettled.retain(|_, versions| !versions.is_empty());
    }

    /// Returns true if a crash leaves the file as programs see it.
    pub(super) fn is_quiet(&self) -> bool {
        self.lengths.is_empty() && self.unsettled.is_empty()
    }

    /// Returns the number of states that each unsettled part has besides the durable one: the
    /// length, then the sectors in order.
    pub(super) fn units(&self) -> impl Iterator<Item = u16> {
        let length = (!self.lengths.is_empty()).then(|| count(self.lengths.len()));
        length.into_iter().chain(self.open_sectors().map(|(_, states)| states))
    }

    /// Returns the unsettled sectors, each with its number of states besides the durable one.
    fn open_sectors(&self) -> impl Iterator<Item = (u64, u16)> {
        self.unsettled.iter().map(|(&number, versions)| (number, count(versions.len())))
    }

    /// Moves choices to states that are possible together, and of equal ones to the first.
    pub(super) fn settle_choices(&self, choices: &mut [u16]) {
        let given = self.lengths.len().min(1);
        if choices.len() < given {
            return;
        }
        let (length, sectors) = choices.split_at_mut(given);
        let lengths = length.first().map_or(0, |&choice| usize::from(choice));
        let lengths = lengths.min(self.lengths.len());
        let target: Vec<Option<&Sector>> = self
            .open_sectors()
            .zip(&*sectors)
            .map(|((number, _), &choice)| {
                let shown = number * self.sector < self.len_after(lengths);
                let choice = choice.min(self.reachable(number, lengths));
                self.state(number, choice, lengths).filter(|_| shown)
            })
            .collect();
        // A length that was left and set again may look like the earlier one.
        let same = (0..lengths).filter(|&earlier| {
            self.len_after(earlier) == self.len_after(lengths)
                && self.same_elsewhere(earlier, lengths)
        });
        for earlier in same.chain([lengths]) {
            let Some(found) = self.shown_as(&target, earlier) else { continue };
            sectors.iter_mut().zip(found).for_each(|(choice, found)| *choice = found);
            length.iter_mut().for_each(|choice| *choice = count(earlier));
            return;
        }
    }

    /// Returns the first choices that give the open sectors this content, if there are any.
    fn shown_as(&self, target: &[Option<&Sector>], lengths: usize) -> Option<Vec<u16>> {
        let len = self.len_after(lengths);
        let choice = |((number, _), target): ((u64, u16), &Option<&Sector>)| {
            if number * self.sector >= len {
                return Some(0);
            }
            let most = self.reachable(number, lengths);
            (0..=most).find(|&choice| self.state(number, choice, lengths) == *target)
        };
        self.open_sectors().zip(target).map(choice).collect()
    }

    /// Returns true if unwritten sectors look alike with both numbers of lengths.
    fn same_elsewhere(&self, earlier: usize, lengths: usize) -> bool {
        let shortest = |lengths: &[Length]| lengths.iter().map(|length| length.bytes).min();
        let lowest = shortest(&self.lengths[earlier..lengths]).unwrap_or(self.durable_len);
        let first = lowest.div_ceil(self.sector);
        let end = self.len_after(lengths).div_ceil(self.sector);
        self.durable
            .numbers(first, end)
            .into_iter()
            .filter(|number| !self.unsettled.contains_key(number))
            .all(|number| self.visible(number, 0, earlier) == self.visible(number, 0, lengths))
    }

    /// Returns the file as a crash with these choices leaves it.
    pub(super) fn image(&self, choices: &[u16]) -> File {
        let (length, sectors) = choices.split_at(self.lengths.len().min(1).min(choices.len()));
        let lengths = length.first().map_or(0, |&choice| usize::from(choice));
        let lengths = lengths.min(self.lengths.len());
        let mut image = File {
            durable: self.durable.clone(),
            durable_len: self.len_after(lengths),
            holes: self.holes.clone(),
            ..File::new(self.sector, self.device_offset)
        };
        let kept = self.lengths[..lengths].iter().map(|length| length.bytes).min();
        if let Some(first) = kept.filter(|&bytes| bytes < self.durable_len) {
            image.durable.truncate(first.div_ceil(self.sector));
        }
        for ((number, _), &choice) in self.open_sectors().zip(sectors) {
            let choice = choice.min(self.reachable(number, lengths));
            if choice > 0 {
                image.durable.set(number, self.state(number, choice, lengths).cloned());
            }
        }
        image.durable.truncate(image.durable_len.div_ceil(self.sector));
        image.holes.split_off(&image.durable_len);
        image
    }

    fn len_after(&self, lengths: usize) -> u64 {
        self.lengths[..lengths].last().map_or(self.durable_len, |length| length.bytes)
    }

    /// Returns how many of a sector's writes count: one made after the file was shortened there
    /// counts only if the shortening does.
    fn reachable(&self, number: u64, lengths: usize) -> u16 {
        let versions = self.unsettled.get(&number).map_or(&[][..], Vec::as_slice);
        let behind = self.lengths[lengths..].iter().find(|length| self.cuts(length, number));
        let counts = |version: &&Version| behind.is_none_or(|behind| version.order < behind.order);
        count(versions.iter().filter(counts).count())
    }

    /// Returns a sector's content in one of its states.
    fn state(&self, number: u64, choice: u16, lengths: usize) -> Option<&Sector> {
        self.visible(number, choice.into(), lengths)
    }

    /// Flips one bit of the stored bytes, both durable and pending.
    pub(super) fn flip(&mut self, byte: u64, bit: u8) {
        let (number, within) = (byte / self.sector, (byte % self.sector) as usize);
        let turned = |sector: Option<&Sector>| {
            let mut bytes = sector.map_or_else(|| vec![0; self.sector as usize], |s| s.to_vec());
            bytes[within] ^= 1 << (bit % 8);
            Some(Sector::from(bytes))
        };
        let durable = turned(self.durable.get(number));
        let newest = self.unsettled.get(&number).and_then(|versions| versions.last());
        let newest = newest.map(|version| turned(version.bytes.as_ref()));
        if number * self.sector < self.durable_len {
            self.durable.set(number, durable);
        }
        if let (Some(versions), Some(bytes)) = (self.unsettled.get_mut(&number), newest)
            && let Some(version) = versions.last_mut()
        {
            version.bytes = bytes;
        }
    }

    /// Returns true if the other file shares its memory, except for unsettled sectors.
    #[cfg(test)]
    pub(super) fn shares_with(&self, other: &File) -> bool {
        self.durable.shares_with(&other.durable)
    }

    /// Returns how many durable sectors take memory.
    #[cfg(test)]
    pub(super) fn sectors(&self) -> usize {
        self.durable.len()
    }
}

/// Removes the versions that a sync has decided from a sector's list, and returns the durable
/// content if that has changed.
fn settle_sector(versions: &mut Vec<Version>, cut: &SyncCut) -> Option<Option<Sector>> {
    let fresh = |version: &&Version| cut.covers(version) && !version.unsure;
    let synced: Vec<Version> = versions.iter().filter(fresh).cloned().collect();
    let bytes = synced.last()?.bytes.clone();
    versions.retain(|version| !synced.iter().any(|synced| synced.follows(version)));
    // Writes that were in flight together stay, since either may have come last.
    let stays = |version: &Version| {
        !cut.covers(version) || versions.iter().any(|other| other.overlaps(version))
    };
    let stays: Vec<bool> = versions.iter().map(stays).collect();
    let mut stays = stays.into_iter();
    versions.retain(|_| stays.next() == Some(true));
    versions.iter_mut().filter(|version| cut.covers(version)).for_each(|v| v.unsure = true);
    Some(bytes)
}

/// Drops a sector of zeroes, which equals a missing one and so takes no memory.
fn stored(sector: Vec<u8>) -> Option<Sector> {
    sector.iter().any(|&byte| byte != 0).then(|| Sector::from(sector))
}

fn count(states: usize) -> u16 {
    u16::try_from(states).unwrap_or(u16::MAX)
}
