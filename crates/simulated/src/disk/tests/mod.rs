//! Behaviour particular to simulated disks; the suites of `block` and `directory` check the rest.

use std::collections::BTreeSet;
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::world::{WorldFailure, WorldOptions};
use entresol_base::{checksum, thread};
use entresol_media::FileError;
use entresol_media::block::{BlockFile, BlockOptions, IoBuffer, IoCompletion, IoQueue, IoRequest};

use super::*;

mod crashes;
mod faults;
mod mapped;
#[cfg(feature = "mutants")]
mod mutants;
mod pmem;
mod times;

const BLOCK: usize = 4096;

fn world() -> World {
    World::new(WorldOptions::seeded(7))
}

fn disk() -> Disk {
    Disk::new(&world(), DiskOptions::default()).expect("no model")
}

fn disk_of(sector: SectorSize) -> Disk {
    Disk::new(&world(), DiskOptions { sector, ..DiskOptions::default() }).expect("no model")
}

fn options(bytes: u64) -> BlockOptions {
    BlockOptions { create: Some(bytes), grow: true, ..BlockOptions::default() }
}

/// Makes a file of this many blocks of ones that is durable, name and all.
fn settled_file(disk: &Disk, name: &str, blocks: usize) -> Arc<dyn BlockFile> {
    let root = disk.root();
    let file = root.open_block_file(name, &options((blocks * BLOCK) as u64)).expect("makes");
    write(&file, 0, blocks, 1);
    file.sync().expect("syncs");
    root.sync().expect("syncs");
    assert!(disk.units().is_empty(), "all is durable");
    file
}

fn buffer(bytes: usize, with: u8) -> IoBuffer {
    let mut buffer = IoBuffer::new(bytes);
    buffer.fill(with);
    buffer
}

fn write(file: &Arc<dyn BlockFile>, block: usize, blocks: usize, with: u8) {
    file.write_at((block * BLOCK) as u64, &buffer(blocks * BLOCK, with)).expect("writes");
}

/// Returns the first byte of each block.
fn read(file: &Arc<dyn BlockFile>) -> Vec<u8> {
    let mut buffer = IoBuffer::new(file.len() as usize);
    assert_eq!(file.read_at(0, &mut buffer).expect("reads"), buffer.len());
    buffer.chunks(BLOCK).map(|block| block[0]).collect()
}

/// Returns every choice of states, each settled.
fn choices(disk: &Disk) -> BTreeSet<Vec<u16>> {
    let units = disk.units();
    let count: u64 = units.iter().map(|&states| u64::from(states) + 1).product();
    assert!(count <= 100_000, "too many to try: {units:?}");
    let choice = |mut number: u64| -> Vec<u16> {
        let mut choice: Vec<u16> = Vec::new();
        for &states in &units {
            choice.push((number % (u64::from(states) + 1)) as u16);
            number /= u64::from(states) + 1;
        }
        disk.0.core.settle(&mut choice);
        choice
    };
    (0..count).map(choice).collect()
}

type Contents = BTreeMap<String, Vec<u8>>;

/// Returns every disk that a crash may leave, without duplicates.
fn crashed(disk: &Disk) -> BTreeSet<Contents> {
    choices(disk).iter().map(|choice| disk.image(choice).contents()).collect()
}

/// Returns for every disk that a crash may leave the first bytes of each file's blocks.
fn crashed_blocks(disk: &Disk) -> BTreeSet<Vec<(String, Vec<u8>)>> {
    let blocks = |bytes: Vec<u8>| bytes.chunks(BLOCK).map(|block| block[0]).collect();
    let shorten = |contents: Contents| {
        contents.into_iter().map(|(name, bytes)| (name, blocks(bytes))).collect()
    };
    crashed(disk).into_iter().map(shorten).collect()
}

/// Returns the expected `crashed_blocks` for one file `a`.
fn states<const N: usize>(states: [&[u8]; N]) -> BTreeSet<Vec<(String, Vec<u8>)>> {
    states.into_iter().map(|bytes| vec![("a".to_owned(), bytes.to_vec())]).collect()
}
