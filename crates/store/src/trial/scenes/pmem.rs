//! Scenes on persistent memory, where a write is durable when the call returns.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::thread;
use entresol_base::world::{Preemption, World};
use entresol_media::{MapOptions, PmemMode};
use entresol_simulated::disk::{Disk, DiskOptions, SectorSize};

use super::super::{Trial, options, options_on};
use super::crashed::{is_kept, moved_in, reopened_in, segments_in, several_in, trial};
use super::{Pairs, Told, all, create, flush, key, on_disk, open, require, text};
use crate::run::format::filter;
use crate::types::KvsId;
use crate::{Kvdb, KvdbOptions, Kvs, KvsOptions, check};

fn on_pmem() -> Trial {
    Trial { pmem: true, ..trial() }
}

/// A process dies and leaves records only in the processor's caches. A power cut must undo neither
/// what the next process finds nor its own writes, without any sync.
pub(super) fn left_by_the_dead() -> Told {
    on_disk(Preemption::Never, pmem_disk(), |world, disk| {
        let (_store, kvs) = create(world, disk)?;
        let left = disk.image(&vec![0; disk.units().len()]);
        for number in 0..12 {
            kvs.put(&key(number), &vec![number as u8; 20 * number as usize]).map_err(text)?;
        }
        let expected = all(&kvs)?;
        leave(disk, &left)?;
        let (_next, kvs) = open(world, &left)?;
        require(all(&kvs)? == expected, "the next process finds something else")?;
        is_kept(world, &left, &expected)?;
        kvs.put(&key(99), b"of the next process").map_err(text)?;
        is_kept(world, &left, &all(&kvs)?)
    })
}

/// Writes the segments of a disk to another one, as a process that died there would have left them:
/// by a thread whose flushes no other thread's drain completes.
fn leave(disk: &Disk, left: &Disk) -> Told {
    let (to, files) = (left.root(), disk.contents());
    let dead = thread::spawn("dead", move || -> Told {
        for (name, bytes) in files.iter().filter(|(name, _)| name.ends_with(".segment")) {
            let pmem = Some(PmemMode { assume_dax: false });
            let options = MapOptions {
                create: Some(bytes.len() as u64),
                magic: None,
                pmem,
                read_only: false,
            };
            to.map_file(name, &options).map_err(text)?.write(0, bytes);
        }
        Ok(())
    });
    dead.join().unwrap_or_else(|_| Err("the thread panicked".to_owned()))
}

/// Writes some records before a memtable image's watermark and some behind it. Returns the disk
/// that a dying process then leaves, and the contents that must be found there.
fn with_an_image(world: &World, disk: &Disk) -> Result<(Disk, Pairs), String> {
    let (store, kvs) = create(world, disk)?;
    write_some(&kvs)?;
    thread::sleep(Duration::from_millis(50));
    store.create_kvs("two", KvsOptions::default()).map_err(text)?;
    // The image's name is durable as well.
    store.core().files.volumes.sync().map_err(text)?;
    // At this point the next watermark is not durable, but the previous one is.
    kvs.put(&key(12), b"again").map_err(text)?;
    thread::sleep(Duration::from_millis(50));
    let left = disk.image(&vec![0; disk.units().len()]);
    kvs.put(&key(2), b"anew").map_err(text)?;
    kvs.delete(&key(3)).map_err(text)?;
    kvs.delete_prefix(b"key002").map_err(text)?;
    kvs.put(&key(12), b"once more").map_err(text)?;
    kvs.put(&key(24), b"again").map_err(text)?;
    leave(disk, &left)?;
    Ok((left, all(&kvs)?))
}

fn write_some(kvs: &Kvs) -> Told {
    for number in 0..30 {
        kvs.put(&key(number), &vec![number as u8; 10 * number as usize]).map_err(text)?;
    }
    kvs.delete(&key(1)).map_err(text)?;
    kvs.delete_prefix(b"key001").map(drop).map_err(text)
}

/// Number of writes behind the watermark.
const BEHIND: u64 = 6;

/// Records before a memtable image's watermark are not read again, and are found unchanged.
pub(super) fn image_of_the_dead() -> Told {
    on_disk(Preemption::Never, pmem_disk(), |world, disk| {
        let (left, expected) = with_an_image(world, disk)?;
        let clock = Arc::new(world.clone());
        // A read-only store flushes nothing.
        let store = Kvdb::open_read_only(left.root(), options_on(&left), clock).map_err(text)?;
        let read = store.statistics().map_err(text)?.log_records_read;
        require(read == BEHIND, format!("{read} records were read"))?;
        let kvs = store.kvs("one").map_err(text)?;
        for number in 0..40 {
            let found = kvs.get(&key(number)).map_err(text)?;
            let was = expected.iter().find(|(of, _)| *of == key(number)).map(|(_, value)| value);
            require(found.as_ref() == was, format!("key {number} is {found:?}"))?;
        }
        require(all(&kvs)? == expected, "the next process finds something else")?;
        store.close().map_err(text)?;
        let (store, kvs) = open(world, &left)?;
        is_kept(world, &left, &expected)?;
        flush(&store)?;
        require(all(&kvs)? == expected, "what was flushed is something else")?;
        is_kept(world, &left, &expected)?;
        store.close().map_err(text)?;
        require(!has_image(&left), "an image outlives its generation")
    })
}

fn has_image(disk: &Disk) -> bool {
    disk.contents().keys().any(|name| name.starts_with("image"))
}

/// Opening a closed store reads no records, even after a power cut. A store opened as if on a disk
/// makes no use of memtable images.
pub(super) fn image_of_the_closed() -> Told {
    on_disk(Preemption::Never, pmem_disk(), |world, disk| {
        let (store, kvs) = create(world, disk)?;
        write_some(&kvs)?;
        thread::sleep(Duration::from_millis(50));
        // The store is closed before its background thread has entered these writes.
        kvs.put(&key(2), b"anew").map_err(text)?;
        kvs.delete(&key(3)).map_err(text)?;
        kvs.delete_prefix(b"key002").map_err(text)?;
        let expected = all(&kvs)?;
        store.close().map_err(text)?;
        let (pmem, file) = (options_on(disk), options());
        let cut = disk.image(&vec![0; disk.units().len()]);
        let is_read = |disk: &Disk, options: KvdbOptions, most: u64| -> Told {
            let clock = Arc::new(world.clone());
            let store = Kvdb::open_read_only(disk.root(), options, clock).map_err(text)?;
            let read = store.statistics().map_err(text)?.log_records_read;
            require(read <= most, format!("{read} records were read"))?;
            let found = all(&store.kvs("one").map_err(text)?)?;
            require(found == expected, "what was written is not there")?;
            require(has_image(disk), "an image went while the store was only read")
        };
        is_read(disk, pmem, 0)?;
        is_read(&cut, pmem, 0)?;
        is_read(&cut, file, u64::MAX)?;
        let clock = Arc::new(world.clone());
        let store = Kvdb::open(cut.root(), file, clock).map_err(text)?;
        require(!has_image(&cut), "a store on a disk has an image")?;
        let kvs = store.kvs("one").map_err(text)?;
        kvs.put(&key(5), b"on a disk").map_err(text)?;
        let expected = all(&kvs)?;
        store.close().map_err(text)?;
        let (_store, kvs) = open(world, &cut)?;
        require(all(&kvs)? == expected, "what was written on a disk is not there")
    })
}

/// Bits flip in the memtable image of a store that was closed. Readers find what was written all
/// the same, and `check` reports each of them or it changes nothing.
pub(super) fn changed_image() -> Told {
    on_disk(Preemption::Never, pmem_disk(), |world, disk| {
        let (store, kvs) = create(world, disk)?;
        write_some(&kvs)?;
        // The background thread makes the image.
        thread::sleep(Duration::from_millis(50));
        let expected = all(&kvs)?;
        store.close().map_err(text)?;
        let is_whole = check(&disk.root(), &mut |_| {}).map_err(text)?.is_whole();
        require(is_whole, "an undamaged store is called damaged")?;
        let contents = disk.contents();
        let (name, image) =
            contents.iter().find(|(name, _)| name.starts_with("image")).ok_or("no image")?;
        let mut told = 0;
        let used = (0..image.len()).filter(|&at| image[at] != 0);
        for (at, bit) in used.zip((0..8).cycle()) {
            disk.flip(name, at as u64, bit).map_err(text)?;
            let clock = Arc::new(world.clone());
            let store = Kvdb::open_read_only(disk.root(), options_on(disk), clock).map_err(text)?;
            let found = all(&store.kvs("one").map_err(text)?)?;
            require(found == expected, format!("with bit {bit} of byte {at}, readers find less"))?;
            store.close().map_err(text)?;
            let report = check(&disk.root(), &mut |_| {}).map_err(text)?;
            told += u32::from(!report.is_whole() || !report.remarks.is_empty());
            disk.flip(name, at as u64, bit).map_err(text)?;
        }
        require(told > 30, format!("{told} were reported"))
    })
}

/// A bit has flipped in a record that the opening did not read. A reader of it gets an error, and
/// it is not flushed.
pub(super) fn damage_behind_an_image() -> Told {
    on_disk(Preemption::Never, pmem_disk(), |world, disk| {
        let (left, _) = with_an_image(world, disk)?;
        let segment = left.contents().into_keys().find(|name| name.ends_with(".segment"));
        let segment = segment.ok_or("there is no segment")?;
        // The flipped bit lies in the value of the second record, and in nothing else.
        let byte = 4096 + (24 + 7) + (24 + 7) + 3;
        left.flip(&segment, byte, 3).map_err(text)?;
        let (store, kvs) = open(world, &left)?;
        let told = store.core().flush_all(&mut || true);
        require(told.is_err(), "a damaged record is flushed")?;
        require(kvs.put(b"key", b"value").is_err(), "and what is written then acknowledged")?;
        require(kvs.get(&key(29)).is_ok(), "what is whole can be read no more")
    })
}

/// An image leads to a segment behind that of its watermark, and the next process has generations
/// of one segment. The generation of the image gets both all the same: what is not there is looked
/// up there, too, and the store is whole.
pub(super) fn image_ahead() -> Told {
    on_disk(Preemption::Never, pmem_disk(), |world, disk| {
        let (store, kvs) = create(world, disk)?;
        kvs.put(b"first", b"value").map_err(text)?;
        thread::sleep(Duration::from_millis(50));
        store.core().files.volumes.sync().map_err(text)?;
        let identity = store.core().files.manifest.lock().store;
        let (there, missing) = alike(identity, kvs.id(), options_on(disk).generation_bytes);
        // These fill the segment before the background thread enters them. Its next watermark is
        // not durable, but its entries are.
        let young = store.core().files.current.get().young.clone();
        while young.segments().iter().count() == 1 {
            kvs.put(b"first", &[7; 90]).map_err(text)?;
        }
        kvs.put(&there, b"value").map_err(text)?;
        thread::sleep(Duration::from_millis(50));
        let left = disk.image(&vec![0; disk.units().len()]);
        let expected = all(&kvs)?;
        let findings = check(&left.root(), &mut |_| {}).map_err(text)?.findings;
        require(findings.is_empty(), format!("a whole store is called damaged: {findings:?}"))?;
        let options = options_on(&left);
        let options = KvdbOptions { generation_bytes: options.segment_bytes, ..options };
        let clock = Arc::new(world.clone());
        let next = Kvdb::open_read_only(left.root(), options, clock).map_err(text)?;
        require(next.core().files.current.get().closed.len() == 1, "the generation is split")?;
        let kvs = next.kvs("one").map_err(text)?;
        require(kvs.get(&missing).map_err(text)?.is_none(), "a key is there that was not put")?;
        require(all(&kvs)? == expected, "the next process finds something else")
    })
}

/// Returns two keys that a lookup in the image of a generation tells apart by their records alone.
fn alike(store: u64, kvs: KvsId, generation_bytes: u64) -> (Vec<u8>, Vec<u8>) {
    let (mut seen, lines) = (HashMap::new(), u128::from(generation_bytes / 800));
    let keys = (0_u64..).map(|number| number.to_string().into_bytes());
    let mut pairs = keys.filter_map(|key| {
        let hash = filter::hash(&key, store.wrapping_add(kvs.0.into()));
        let slot = ((u128::from(hash) * lines) >> 64, hash & 0xF_FFFF);
        seen.insert(slot, key.clone()).map(|before| (before, key))
    });
    pairs.next().unwrap_or_default()
}

fn pmem_disk() -> DiskOptions {
    DiskOptions { sector: SectorSize::Line, ..DiskOptions::default() }
}

pub(super) fn reopened() -> Told {
    reopened_in(on_pmem())
}

pub(super) fn segments() -> Told {
    segments_in(on_pmem())
}

pub(super) fn moved() -> Told {
    moved_in(on_pmem())
}

pub(super) fn several() -> Told {
    several_in(Trial { images_max: 2, ..on_pmem() })
}
