//! Scene of the summary of read frequencies that is kept while a store is closed.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::thread;
use entresol_base::world::Preemption;

use super::super::arrange;
use super::super::drives::Drives;
use super::{Told, in_world, require, text};
use crate::Kvdb;
use crate::upkeep::read_frequency::kept::{FILE, Kept};

/// The next opening uses the summary, unless a bit of it has flipped.
pub(super) fn kept() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let clock = Arc::new(world.clone());
        let volumes = arrange::volumes(&Drives::one(disk)).map_err(text)?;
        let store = Kvdb::create_on(&volumes, arrange::options(disk), clock.clone());
        let closed = |store: Kvdb| {
            // The background thread first has to see that there is a choice of classes.
            thread::sleep(Duration::from_millis(10));
            store.close().map_err(text)
        };
        closed(store.map_err(text)?)?;
        let name = disk.contents().into_keys().find(|name| name.ends_with(FILE));
        let name = name.ok_or("nothing is kept")?;
        let opened = || {
            let home = arrange::home(disk).map_err(text)?;
            let store = Kvdb::open(home, arrange::options(disk), clock.clone()).map_err(text)?;
            let before = store.core().read_frequency.kept_before();
            Ok::<_, String>((store, before))
        };
        for byte in [20, 100, 177] {
            disk.flip(&name, byte, 3).map_err(text)?;
            let (store, before) = opened()?;
            require(matches!(before, Kept::Ignored(_)), format!("byte {byte}: {before:?}"))?;
            closed(store)?;
        }
        let (store, before) = opened()?;
        require(before == Kept::Used, format!("what is right is not used: {before:?}"))?;
        closed(store)
    })
}
