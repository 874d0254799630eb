//! Writer of a run: entries in order, front to back, in memory that does not depend on their
//! number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use entresol_media::Directory;

use crate::cache::block::{BlockCache, PageKind};
use crate::error::StoreError;
use crate::names;
use crate::options::PREFIXES_GONE_MAX;
use crate::types::{Entry, Expiry, KvsId, Mark, PAGE_BYTES, RunNumber, Sequence, Value};

use super::output::Output;
use crate::bytes::common_prefix;
use crate::run::format::block::{
    Address, BlockBuilder, BlockKind, Body, Child, Record, seal, separator,
};
use crate::run::format::ends::{Footer, header};
use crate::run::format::filter;
use crate::run::format::list;
use crate::run::format::list::ListEntry;
use crate::run::read::reader::{FilterGroup, Run, RunParts};
use crate::run::{
    BLOCK_BYTES_MAX, FILTER_BITS_MAX, GROUP_KEYS, INLINE_BYTES_MAX, KEY_BYTES_MAX,
    PREFIXES_GONE_BYTES_MAX, RangeDelete, RunOptions, SegmentBytes,
};

/// A run that is being written. If it is dropped before [`RunWriter::finish`] has returned, its
/// file is removed.
///
/// Its memory is bounded: the buffer of `write_bytes`, two mebibytes for hashes and 350 KiB for the
/// filter of a group of keys, a block for each level (of which there are four for a billion keys),
/// the range deletes, 32 bytes for each segment that entries lead to, and a short key for every
/// 262,144 keys.
#[derive(Debug)]
pub(crate) struct RunWriter {
    output: Output,
    options: RunOptions,
    data: BlockBuilder,
    /// Levels of index blocks, the lowest first.
    index: Vec<Level>,
    /// Sequence number that was added last, minus the base.
    last_delta: u64,
    group: Group,
    groups: Vec<FilterGroup>,
    prefixes: Vec<RangeDelete>,
    prefixes_bytes: usize,
    live: BTreeMap<u64, u64>,
    footer: Footer,
    failed: bool,
}

#[derive(Debug)]
struct Level {
    block: BlockBuilder,
    last_delta: u64,
}

/// Keys whose filter is not written yet.
#[derive(Debug, Default)]
struct Group {
    /// A key at or below the first of them, and above all keys before.
    first: Box<[u8]>,
    hashes: Vec<u64>,
}

impl RunWriter {
    /// Creates the file of a run, which must not exist yet.
    ///
    /// # Errors
    /// Fails if the file cannot be created, or if the options are not valid.
    pub(crate) fn create(
        directory: &Arc<dyn Directory>,
        number: RunNumber,
        kvs: KvsId,
        options: RunOptions,
    ) -> Result<RunWriter, StoreError> {
        check_options(&options)?;
        let mut output =
            Output::create(directory, names::of_run(number), number, options.write_bytes)?;
        output.append(&header(number, kvs))?;
        let footer = Footer {
            number,
            kvs,
            entries: 0,
            keys: 0,
            gone: 0,
            expiring: 0,
            inline_bytes: 0,
            base: options.sequence_base,
            least: Sequence::MAX,
            greatest: Sequence::default(),
            root: Child { page: 0, pages: 0 },
            levels: 0,
            probes: 0,
            seed: options.filter_seed,
            groups: Default::default(),
            prefixes: Default::default(),
            live: Default::default(),
            pages: 0,
            mark: Mark::NONE,
        };
        Ok(RunWriter {
            data: BlockBuilder::new(BlockKind::Data, 0, options.block_bytes),
            output,
            options,
            index: Vec::new(),
            last_delta: 0,
            group: Group::default(),
            groups: Vec::new(),
            prefixes: Vec::new(),
            prefixes_bytes: 0,
            live: BTreeMap::new(),
            footer,
            failed: false,
        })
    }

    /// Puts the blocks into a cache as well, as far as it has room for them. Just written blocks
    /// are likely to be read, and then need not be read from disk.
    pub(crate) fn cache_in(&mut self, pages: &Arc<BlockCache>) {
        self.output.cache_in(pages);
    }

    /// Counts the bytes of the file as long as it is being written.
    pub(crate) fn count_in(&mut self, counter: &Arc<AtomicU64>) {
        self.output.count_in(counter);
    }

    /// Adds an entry. Its key must be greater than the last one, or equal with a smaller sequence
    /// number.
    ///
    /// # Errors
    /// Fails if the disk fails. Fails as well if the entry is out of order or too large, which is a
    /// mistake of the caller. Nothing can be added after an error.
    pub(crate) fn push(&mut self, entry: &Entry<'_>) -> Result<(), StoreError> {
        let pushed = self.check_alive().and_then(|()| self.add(entry));
        self.failed |= pushed.is_err();
        pushed
    }

    /// Returns the bytes that are written or buffered.
    pub(crate) fn bytes(&self) -> u64 {
        self.output.address().page * PAGE_BYTES as u64
    }

    /// Adds a range delete: the write `sequence` deleted all keys with a prefix in their older
    /// versions. Range deletes come in any order, between entries or not.
    ///
    /// # Errors
    /// Fails if there are more than [`PREFIXES_GONE_MAX`] of them, or more than
    /// [`PREFIXES_GONE_BYTES_MAX`] in their prefixes. The writer can go on without the range
    /// delete.
    pub(crate) fn push_range_delete(
        &mut self,
        prefix: &[u8],
        sequence: Sequence,
    ) -> Result<(), StoreError> {
        self.check_alive()?;
        if sequence < self.options.sequence_base || prefix.len() > KEY_BYTES_MAX {
            return Err(self.wrong("a prefix has a sequence below the base, or is too long"));
        }
        let bytes = self.prefixes_bytes + prefix.len();
        if self.prefixes.len() >= PREFIXES_GONE_MAX || bytes > PREFIXES_GONE_BYTES_MAX {
            let (path, most) = (self.output.path().to_owned(), PREFIXES_GONE_MAX);
            return Err(StoreError::TooManyPrefixes { path, most });
        }
        self.prefixes_bytes = bytes;
        self.prefixes.push(RangeDelete { prefix: prefix.into(), sequence });
        self.note_sequence(sequence);
        Ok(())
    }

    /// Writes the rest, makes all of the file durable, and opens the run, which needs no reads.
    /// Making the name durable in the directory is left to the caller, which can do it once for
    /// several files.
    ///
    /// # Errors
    /// Fails if the disk fails. The file is removed then.
    pub(crate) fn finish(mut self, pages: &Arc<BlockCache>) -> Result<Arc<Run>, StoreError> {
        self.check_alive()?;
        let last_key = self.finish_tree()?;
        let top = self.index.last().map_or(&self.data, |level| &level.block);
        let root = (self.footer.root.pages > 0).then(|| top.finished().to_vec());
        self.close_group()?;
        self.footer.groups = self.write_groups()?;
        self.prefixes.sort_unstable();
        self.prefixes.dedup();
        self.footer.prefixes = self.write_prefixes()?;
        self.footer.live = self.write_live()?;
        if self.footer.least > self.footer.greatest {
            self.footer.least = self.footer.greatest;
        }
        let in_filters: u64 = self.groups.iter().map(|group| group.keys).sum();
        assert!(
            in_filters <= self.footer.entries && (in_filters > 0) == (self.footer.root.pages > 0),
            "a run of {} entries has {in_filters} keys in its filters",
            self.footer.entries,
        );
        self.footer.pages = self.output.address().page + 1;
        self.footer.mark = self.output.mark();
        let file = self.output.finish(&self.footer.encode())?;
        let RunWriter { footer, groups, prefixes, live, .. } = self;
        let live = live.iter().map(SegmentBytes::of).collect();
        let held = RunParts { footer, groups, prefixes, live, last_key };
        Ok(Run::written(file, pages, root.as_deref(), held))
    }

    fn check_alive(&self) -> Result<(), StoreError> {
        if self.failed { Err(self.wrong("its writer failed before")) } else { Ok(()) }
    }

    #[cold]
    fn wrong(&self, what: &str) -> StoreError {
        StoreError::Internal { what: format!("{}: {what}", self.output.path().display()) }
    }

    fn add(&mut self, entry: &Entry<'_>) -> Result<(), StoreError> {
        let Some(delta) = entry.sequence.0.checked_sub(self.options.sequence_base.0) else {
            return Err(self.wrong("an entry has a sequence below the base"));
        };
        if entry.key.len() > KEY_BYTES_MAX {
            return Err(self.wrong("a key is too long"));
        }
        let last = self.data.last_key();
        let shared = common_prefix(last, entry.key);
        let is_first = self.footer.entries == 0;
        let is_same = !is_first && shared == last.len() && shared == entry.key.len();
        let is_next = match (last.get(shared), entry.key.get(shared)) {
            _ if is_first => true,
            (None, None) => delta < self.last_delta,
            (last, key) => last < key,
        };
        if !is_next {
            return Err(self.wrong("entries are not in order"));
        }
        if !is_same {
            self.begin_key(entry.key, shared)?;
        }
        self.count(entry)?;
        let record = Record::of(entry, delta);
        if !self.data.add(&record, shared) {
            self.close_data(entry.key, is_same)?;
            self.data.add(&record, shared);
        }
        self.last_delta = delta;
        Ok(())
    }

    /// Begins a key, which is above all before.
    fn begin_key(&mut self, key: &[u8], shared: usize) -> Result<(), StoreError> {
        let is_first = self.footer.keys == 0;
        if is_first || self.group.hashes.len() >= GROUP_KEYS {
            self.close_group()?;
            // This much of the key is enough to tell it from the keys before.
            let first = if is_first { key } else { key.get(..=shared).unwrap_or(key) };
            self.group.first = first.into();
        }
        self.group.hashes.push(filter::hash(key, self.options.filter_seed));
        self.footer.keys += 1;
        Ok(())
    }

    fn count(&mut self, entry: &Entry<'_>) -> Result<(), StoreError> {
        match entry.value {
            Value::Inline(value) if value.len() > INLINE_BYTES_MAX => {
                return Err(self.wrong("a value is too large to lie beside its key"));
            }
            Value::Inline(value) => self.footer.inline_bytes += value.len() as u64,
            Value::Apart(place) => {
                *self.live.entry(place.segment.0).or_default() += u64::from(place.bytes);
            }
            Value::Gone => self.footer.gone += 1,
        }
        self.footer.entries += 1;
        self.footer.expiring += u64::from(entry.expiry != Expiry::default());
        self.note_sequence(entry.sequence);
        Ok(())
    }

    fn note_sequence(&mut self, sequence: Sequence) {
        self.footer.least = self.footer.least.min(sequence);
        self.footer.greatest = self.footer.greatest.max(sequence);
    }

    /// Writes the data block, which has no room for the next key.
    fn close_data(&mut self, next: &[u8], is_same: bool) -> Result<(), StoreError> {
        let last = self.data.last_key();
        let (key, delta) = match separator(last, next) {
            _ if is_same => (last, self.last_delta),
            Some(short) => (short, 0),
            None => (last, 0),
        };
        let key = key.to_vec();
        let child = self.write_data()?;
        self.add_child(0, &key, delta, child)
    }

    fn write_data(&mut self) -> Result<Child, StoreError> {
        let child = write_block(&mut self.output, &mut self.data, PageKind::Data)?;
        self.data.clear();
        Ok(child)
    }

    /// Adds a block that was written to the index above it. None of its entries is above `key` in
    /// the version `delta`.
    fn add_child(
        &mut self,
        level: usize,
        key: &[u8],
        delta: u64,
        child: Child,
    ) -> Result<(), StoreError> {
        if self.index.len() == level {
            let block =
                BlockBuilder::new(BlockKind::Index, level as u8 + 1, self.options.block_bytes);
            self.index.push(Level { block, last_delta: 0 });
        }
        let record = Record { key, delta, expiry: Expiry::default(), body: Body::Child(child) };
        let Some(Level { block, last_delta }) = self.index.get_mut(level) else {
            return Err(self.wrong("an index has no such level"));
        };
        assert!(
            block.last_key() <= key,
            "an index block of level {level} goes on with {key:?} after {:?}",
            block.last_key(),
        );
        let shared = common_prefix(block.last_key(), key);
        if block.add(&record, shared) {
            *last_delta = delta;
            return Ok(());
        }
        let full = (block.last_key().to_vec(), *last_delta);
        let full_child = write_block(&mut self.output, block, PageKind::Index)?;
        block.clear();
        block.add(&record, shared);
        *last_delta = delta;
        self.add_child(level + 1, &full.0, full.1, full_child)
    }

    /// Writes the blocks that are not full, up to the root, and returns the last key. The last
    /// entry of each level's last block is the last key itself, so that readers know it.
    fn finish_tree(&mut self) -> Result<Box<[u8]>, StoreError> {
        if self.footer.entries == 0 {
            return Ok(Box::default());
        }
        let (key, delta): (Box<[u8]>, _) = (self.data.last_key().into(), self.last_delta);
        let mut top = write_block(&mut self.output, &mut self.data, PageKind::Data)?;
        let mut level = 0;
        while level < self.index.len() {
            self.add_child(level, &key, delta, top)?;
            let Some(Level { block, .. }) = self.index.get_mut(level) else { break };
            top = write_block(&mut self.output, block, PageKind::Index)?;
            level += 1;
        }
        self.footer.root = top;
        self.footer.levels = level as u8;
        Ok(key)
    }

    fn close_group(&mut self) -> Result<(), StoreError> {
        if self.group.hashes.is_empty() {
            return Ok(());
        }
        let bits = self.options.filter_bits_per_key;
        let first = self.output.address();
        let first_page = first.page;
        let mut pages = 0_u32;
        if bits > 0 {
            let mut bytes = filter::build(&self.group.hashes, bits);
            for page in bytes.chunks_exact_mut(PAGE_BYTES) {
                let address = Address { page: first_page + u64::from(pages), ..first };
                seal(address, page);
                self.output.cache(address, PageKind::Filter, page);
                pages += 1;
            }
            self.output.append(&bytes)?;
            self.footer.probes = filter::probes_for(bits);
        }
        let first = std::mem::take(&mut self.group.first);
        let keys = self.group.hashes.len() as u64;
        self.groups.push(FilterGroup { first, keys, page: first_page, pages });
        self.group.hashes.clear();
        Ok(())
    }

    fn write_groups(&mut self) -> Result<crate::run::format::ends::ListPlace, StoreError> {
        let volumes: Vec<[u8; 12]> = self.groups.iter().map(FilterGroup::place).collect();
        let entries = self.groups.iter().zip(&volumes).map(|(group, place)| ListEntry {
            key: &group.first,
            delta: group.keys,
            value: Value::Inline(place),
        });
        list::write(&mut self.output, BlockKind::Groups, self.options.block_bytes, entries)
    }

    fn write_prefixes(&mut self) -> Result<crate::run::format::ends::ListPlace, StoreError> {
        let base = self.options.sequence_base.0;
        let entries = self.prefixes.iter().map(|gone| ListEntry {
            key: &gone.prefix,
            delta: gone.sequence.0 - base,
            value: Value::Gone,
        });
        list::write(&mut self.output, BlockKind::Gone, self.options.block_bytes, entries)
    }

    fn write_live(&mut self) -> Result<crate::run::format::ends::ListPlace, StoreError> {
        let live: Vec<_> =
            self.live.iter().map(|(segment, bytes)| (segment.to_be_bytes(), *bytes)).collect();
        let entries = live.iter().map(|(segment, bytes)| ListEntry {
            key: segment,
            delta: *bytes,
            value: Value::Gone,
        });
        list::write(&mut self.output, BlockKind::Live, self.options.block_bytes, entries)
    }
}

fn write_block(
    output: &mut Output,
    block: &mut BlockBuilder,
    kind: PageKind,
) -> Result<Child, StoreError> {
    let address = output.address();
    let pages = block.finish(address);
    output.cache(address, kind, pages);
    let child = Child { page: address.page, pages: (pages.len() / PAGE_BYTES) as u32 };
    output.append(pages)?;
    Ok(child)
}

fn check_options(options: &RunOptions) -> Result<(), StoreError> {
    let whole = |bytes: usize| bytes > 0 && bytes.is_multiple_of(PAGE_BYTES);
    let wrong = |what: &str| Err(StoreError::Internal { what: what.to_owned() });
    if !whole(options.block_bytes) || options.block_bytes > BLOCK_BYTES_MAX {
        return wrong("a run's blocks are 4 KiB to 64 KiB, in steps of 4 KiB");
    }
    if !whole(options.write_bytes) {
        return wrong("a run is written in steps of whole 4 KiB");
    }
    if options.filter_bits_per_key > FILTER_BITS_MAX {
        return wrong("a run's filter has at most 32 bits a key");
    }
    Ok(())
}
