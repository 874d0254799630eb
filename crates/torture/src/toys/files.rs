//! Toy on two media: records in the blocks of files, and in a region an index that names the block
//! of each key's newest record.
//!
//! A record and the name of its file are durable before the index points to them. A file is removed
//! once the index does not point to it any more. Blocks are written once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use entresol_media::block::{BlockFile, BlockOptions, IoBuffer};
use entresol_media::{Directory, Region};

use super::Plant;

const LINE_BYTES: u64 = 64;
/// Size of a record: two sectors of 512 bytes, which makes torn records possible.
const BLOCK_BYTES: u64 = 1024;
/// Blocks of a file.
const BLOCKS: u64 = 4;

/// Position of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spot {
    /// Number of the file, from 1.
    file: u64,
    block: u64,
}

impl Spot {
    fn word(self) -> u64 {
        self.file * BLOCKS + self.block
    }

    fn of(word: u64) -> Option<Spot> {
        (word != 0).then_some(Spot { file: word / BLOCKS, block: word % BLOCKS })
    }
}

/// File that receives new records.
struct Current {
    number: u64,
    file: Arc<dyn BlockFile>,
    blocks: u64,
}

/// Toy in files and a region.
pub(in super::super) struct Files<R> {
    region: Arc<R>,
    root: Arc<dyn Directory>,
    index: BTreeMap<u64, (Spot, u64)>,
    current: Option<Current>,
    /// Largest number that a file ever had.
    newest: u64,
    plant: Option<Plant>,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn name(number: u64) -> String {
    format!("log-{number}")
}

fn number(name: &str) -> Result<u64, String> {
    let number = name.strip_prefix("log-").and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("{name} is no file of records"))
}

/// Encodes a record: the key, the value, and the value again in every further word.
fn encode(key: u64, value: u64) -> IoBuffer {
    let mut block = IoBuffer::new(BLOCK_BYTES as usize);
    block.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
    block[..8].copy_from_slice(&key.to_le_bytes());
    block
}

impl<R: Region> Files<R> {
    /// Opens the toy on two media, after a crash or for the first time. A zeroed region without
    /// files is an empty toy. Files that the index does not point to are removed.
    ///
    /// # Errors
    /// Returns a description of the damage.
    pub(in super::super) fn open(
        region: Arc<R>,
        root: Arc<dyn Directory>,
        keys: u64,
        plant: Option<Plant>,
    ) -> Result<Files<R>, String> {
        let mut files =
            Files { region, root, index: BTreeMap::new(), current: None, newest: 0, plant };
        let mut opened = BTreeMap::new();
        for key in 0..keys {
            let word = files.region.load_u64(key * LINE_BYTES, Acquire);
            let Some(spot) = Spot::of(word) else { continue };
            let file = match opened.entry(spot.file) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    let options = BlockOptions::default();
                    let file = files.root.open_block_file(&name(spot.file), &options);
                    unknown.insert(file.map_err(text)?)
                }
            };
            let value = read(file.as_ref(), key, spot)?;
            files.index.insert(key, (spot, value));
        }
        for entry in files.root.list().map_err(text)? {
            let number = number(&entry.name)?;
            files.newest = files.newest.max(number);
            if !opened.contains_key(&number) {
                files.root.remove(&entry.name).map_err(text)?;
            }
        }
        Ok(files)
    }

    /// Writes a record; it is durable on return.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub(in super::super) fn put(&mut self, key: u64, value: u64) -> Result<(), String> {
        let mut current = match self.current.take().filter(|current| current.blocks < BLOCKS) {
            Some(current) => current,
            None => self.start_file()?,
        };
        let spot = Spot { file: current.number, block: current.blocks };
        if self.plant == Some(Plant::WrongOrder) {
            self.point(key, spot.word());
        }
        current.file.write_at(spot.block * BLOCK_BYTES, &encode(key, value)).map_err(text)?;
        if self.plant != Some(Plant::MissingFileSync) {
            current.file.sync().map_err(text)?;
        }
        if self.plant != Some(Plant::WrongOrder) {
            self.point(key, spot.word());
        }
        current.blocks += 1;
        self.current = Some(current);
        let before = self.index.insert(key, (spot, value));
        self.give_up(before)
    }

    /// Removes a record; the removal is durable on return.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub(in super::super) fn remove(&mut self, key: u64) -> Result<(), String> {
        let before = self.index.remove(&key);
        if before.is_some() {
            self.point(key, 0);
        }
        self.give_up(before)
    }

    /// Calls `with` for every key and its value, in the order of the keys.
    pub(in super::super) fn each(&self, with: &mut dyn FnMut(u64, u64)) {
        self.index.iter().for_each(|(&key, &(_, value))| with(key, value));
    }

    fn start_file(&mut self) -> Result<Current, String> {
        self.newest += 1;
        let create = Some(BLOCKS * BLOCK_BYTES);
        let options = BlockOptions { create, ..BlockOptions::default() };
        let file = self.root.open_block_file(&name(self.newest), &options).map_err(text)?;
        if self.plant != Some(Plant::MissingDirectorySync) {
            self.root.sync().map_err(text)?;
        }
        Ok(Current { number: self.newest, file, blocks: 0 })
    }

    fn point(&self, key: u64, word: u64) {
        let at = key * LINE_BYTES;
        self.region.store_u64(at, word, Release);
        if self.plant != Some(Plant::MissingFlush) {
            self.region.flush(at, 8);
        }
        if self.plant != Some(Plant::MissingFence) {
            self.region.drain();
        }
    }

    /// Removes the file of a replaced record if the index does not point to it any more.
    fn give_up(&self, before: Option<(Spot, u64)>) -> Result<(), String> {
        let Some((Spot { file, .. }, _)) = before else { return Ok(()) };
        let current = self.current.as_ref().map(|current| current.number);
        if current == Some(file) || self.index.values().any(|(spot, _)| spot.file == file) {
            return Ok(());
        }
        self.root.remove(&name(file)).map_err(text)
    }
}

/// Reads the value of a record and checks that it belongs to `key`.
fn read(file: &dyn BlockFile, key: u64, spot: Spot) -> Result<u64, String> {
    let mut block = IoBuffer::new(BLOCK_BYTES as usize);
    let read = file.read_at(spot.block * BLOCK_BYTES, &mut block).map_err(text)?;
    let value = block[8..16].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    if read as u64 != BLOCK_BYTES || value == 0 || block[..] != encode(key, value)[..] {
        return Err(format!(
            "block {} of {} is not the record of key {key}",
            spot.block,
            name(spot.file)
        ));
    }
    Ok(value)
}
