//! Stores and worlds for the tests.

use std::sync::Arc;

use entresol_base::world::{World, WorldOptions};
use entresol_base::{ManualClock, Seconds};
use entresol_media::{Directory, LocalDirectory};
use entresol_simulated::disk::{Disk, DiskOptions};
use entresol_store::{CursorOptions, Kvdb, KvdbOptions, Kvs};

/// Policy that wants old values on capacity, however much room there is on staging.
pub(crate) const AGING: &str =
    "new-keys=staging,new-values=staging,old-keys=staging,old-values=capacity";

/// Runs a function in a world with an empty disk.
pub(crate) fn in_world<T: 'static>(run: impl FnOnce(World, Disk) -> T + 'static) -> T {
    in_seeded_world(1, run)
}

/// Runs in a simulated world of a seed, with a disk.
pub(crate) fn in_seeded_world<T: 'static>(
    seed: u64,
    run: impl FnOnce(World, Disk) -> T + 'static,
) -> T {
    let world = World::new(WorldOptions::seeded(seed));
    let within = world.clone();
    let ran = world.run(move || {
        let disk = Disk::new(&within, DiskOptions::default()).expect("a disk");
        run(within, disk)
    });
    ran.expect("the world comes to its end")
}

pub(crate) type Pair = (Vec<u8>, Vec<u8>);

/// Temporary directory for a store, with a clock.
pub(crate) struct Place {
    scratch: tempfile::TempDir,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) options: KvdbOptions,
}

impl Place {
    pub(crate) fn new() -> Place {
        let options = KvdbOptions {
            segment_bytes: 64 << 10,
            generation_bytes: 256 << 10,
            ..KvdbOptions::default()
        };
        Place {
            scratch: tempfile::tempdir().expect("a directory"),
            clock: Arc::new(ManualClock::at(Seconds(1_000_000))),
            options,
        }
    }

    pub(crate) fn directory(&self) -> Arc<dyn Directory> {
        Arc::new(LocalDirectory::open(&self.scratch.path().join("store")).expect("a directory"))
    }

    pub(crate) fn create(&self) -> Kvdb {
        Kvdb::create(self.directory(), self.options, self.clock.clone()).expect("a store")
    }

    pub(crate) fn open(&self) -> Kvdb {
        Kvdb::open(self.directory(), self.options, self.clock.clone()).expect("the store")
    }
}

/// Returns all pairs, up or down.
pub(crate) fn all(kvs: &Kvs, backward: bool) -> Vec<Pair> {
    pairs(kvs, CursorOptions { backward, ..CursorOptions::default() })
}

pub(crate) fn pairs(kvs: &Kvs, options: CursorOptions) -> Vec<Pair> {
    let mut cursor = kvs.cursor(options).expect("open");
    let mut all = Vec::new();
    while let Some((key, value)) = cursor.next().expect("readable") {
        all.push((key.to_vec(), value.to_vec()));
    }
    all
}
