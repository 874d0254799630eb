//! Scenes on persistent memory, where a write is durable when the call returns.

use entresol_base::thread;
use entresol_base::world::Preemption;
use entresol_media::disk::{DiskOptions, SectorSize};
use entresol_media::{MapOptions, PmemMode};

use super::super::Trial;
use super::crashed::{is_kept, moved_in, reopened_in, segments_in, several_in, trial};
use super::{Told, all, create, key, on_disk, open, require, text};

fn on_pmem() -> Trial {
    Trial { pmem: true, ..trial() }
}

/// A process dies and leaves records that are in the processor's caches only. What the next one
/// finds must not be undone by a power cut, nor what is written then; nobody syncs.
pub(super) fn left_by_the_dead() -> Told {
    let disk = DiskOptions { sector: SectorSize::Line, ..DiskOptions::default() };
    on_disk(Preemption::Never, disk, |world, disk| {
        let (_store, kvs) = create(world, disk)?;
        let left = disk.image(&vec![0; disk.units().len()]);
        for number in 0..12 {
            kvs.put(&key(number), &vec![number as u8; 20 * number as usize]).map_err(text)?;
        }
        let expected = all(&kvs)?;
        let seen = disk.contents();
        let (to, files) = (left.root(), seen.clone());
        // Another thread, whose flushes this one's drains do not wait for.
        let dead = thread::spawn("dead", move || -> Told {
            for (name, bytes) in files.iter().filter(|(name, _)| name.ends_with(".segment")) {
                let pmem = Some(PmemMode { assume_dax: false });
                let options = MapOptions { create: Some(bytes.len() as u64), magic: None, pmem };
                to.map_file(name, &options).map_err(text)?.write(0, bytes);
            }
            Ok(())
        });
        dead.join().unwrap_or_else(|_| Err("the thread panicked".to_owned()))?;
        require(seen == left.contents(), "the dead process has left something else")?;
        let (_next, kvs) = open(world, &left)?;
        require(all(&kvs)? == expected, "the next process finds something else")?;
        is_kept(world, &left, &expected)?;
        kvs.put(&key(99), b"of the next process").map_err(text)?;
        is_kept(world, &left, &all(&kvs)?)
    })
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
