//! Scenes of damage in the log of a store whose process was killed.

use std::sync::Arc;

use entresol_base::world::{Preemption, World};
use entresol_simulated::disk::{Disk, DiskOptions};

use super::super::options;
use super::{Told, all, create, in_world, key, require, text};
use crate::{Kvdb, check};

/// Returns the disk as a process that is killed leaves it: with everything that it wrote.
fn killed(world: &World, disk: &Disk) -> Result<Disk, String> {
    disk.reopen(world, DiskOptions::default()).map_err(text)
}

/// A bit has flipped in a write that a sync had made durable. No older state is answered, and
/// `check` reports it.
pub(super) fn synced_tail() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let (store, kvs) = create(world, disk)?;
        for number in 0..4 {
            kvs.put(&key(number), &[7; 30]).map_err(text)?;
        }
        store.sync().map_err(text)?;
        let expected = all(&kvs)?;
        let segment = disk.contents().into_keys().find(|name| name.ends_with(".segment"));
        let segment = segment.ok_or("there is no segment")?;
        let record = 24 + 7 + 30;
        for (number, at) in (0..4).map(|number| (number, 4096 + number * record + 40)) {
            let left = killed(world, disk)?;
            left.flip(&segment, at, 3).map_err(text)?;
            let clock = Arc::new(world.clone());
            let opened = Kvdb::open_read_only(left.root(), options(), clock);
            require(opened.is_err(), format!("damage of write {number} is not told"))?;
            let report = check(&left.root(), &mut |_| {}).map_err(text)?;
            require(!report.is_whole(), format!("check misses damage of write {number}"))?;
        }
        let left = killed(world, disk)?;
        let clock = Arc::new(world.clone());
        let store = Kvdb::open_read_only(left.root(), options(), clock).map_err(text)?;
        let found = all(&store.kvs("one").map_err(text)?)?;
        require(found == expected, "what was synced is not there")
    })
}
