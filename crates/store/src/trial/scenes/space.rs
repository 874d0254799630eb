//! A scene of the bound of a store's space.

use std::sync::Arc;

use entresol_base::Nanos;
use entresol_base::rng::Rng;
use entresol_base::world::Preemption;
use entresol_media::ModelName;
use entresol_simulated::disk::DiskOptions;

use super::{Told, on_disk, require, text};
use crate::{Kvdb, KvdbOptions, KvsOptions};

const KEYS: u64 = 6000;
const VALUE_BYTES: usize = 4000;
const OVERWRITES: u64 = 16_000;
const BOUND: f64 = 1.5;
/// Bytes of values that must be overwritten in a second at least.
const RATE_MIN: f64 = 5e6;

/// Keys are put as fast as without a bound, and then overwritten at random. A drive that takes its
/// time never has more files than the bound allows, and writers are slowed for that, but not much.
pub(super) fn kept_within_its_bound() -> Told {
    let disk = DiskOptions { model: Some(ModelName::NandP3700), ..DiskOptions::default() };
    on_disk(Preemption::Never, disk, |world, disk| {
        let options = KvdbOptions {
            memory_bytes: 32 << 20,
            space_bound: Some(BOUND),
            ..KvdbOptions::default()
        };
        let store = Kvdb::create(disk.root(), options, Arc::new(world.clone())).map_err(text)?;
        let kvs = store.create_kvs("one", KvsOptions::default()).map_err(text)?;
        let put = |number: u64, byte: u8| kvs.put(&number.to_be_bytes(), &[byte; VALUE_BYTES]);
        for number in 0..KEYS {
            put(number, 0).map_err(text)?;
        }
        let stalls = store.statistics().map_err(text)?.stalls;
        require(stalls.space.count == 0, format!("new keys are slowed down: {stalls:?}"))?;
        let live = KEYS * (8 + VALUE_BYTES as u64);
        let most = (live as f64 * BOUND) as u64 + (16 << 20);
        let (mut rng, began) = (Rng::new(1), Nanos::from(world.now()));
        for number in 0..OVERWRITES {
            put(rng.below(KEYS), number as u8).map_err(text)?;
            let used = disk.used_bytes();
            require(used <= most, format!("{used} bytes are taken, of at most {most}"))?;
        }
        let took = Nanos::from(world.now()).since(began).as_secs_f64();
        let rate = OVERWRITES as f64 * VALUE_BYTES as f64 / took;
        require(rate > RATE_MIN, format!("writers are slowed to {rate} bytes a second"))?;
        let stalls = store.statistics().map_err(text)?.stalls;
        require(stalls.space.count > 0, format!("no writer is slowed down: {stalls:?}"))?;
        store.close().map_err(text)
    })
}
