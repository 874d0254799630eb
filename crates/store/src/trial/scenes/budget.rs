//! A scene of a drive's budget of writes a day.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::thread;
use entresol_base::world::Preemption;
use entresol_simulated::disk::Disk;

use super::{Told, flush, in_world, options_on, require, text};
use crate::upkeep::compaction::RUNS_URGENT;
use crate::{Kvdb, KvdbOptions, Kvs, KvsOptions, WrittenBytes};

const DAYS: u64 = 12;
const HOURS_BETWEEN_FLUSHES: u64 = 4;
const KEYS: u64 = 4000;
const KEYS_AT_ONCE: u64 = 200;
const BYTES_PER_DAY: u64 = 1300 << 10;
/// Bytes of the largest compaction, which the budget may be exceeded by.
const LARGEST: u64 = 1 << 20;

/// Writers and flushes stay below the budget by a third, and compaction would exceed it. Over days,
/// the drive is not written more than the budget says, no writer is refused, and readers do not
/// search more runs than without one. The budget and the counts go on where an earlier process
/// ended.
pub(super) fn kept_over_days() -> Told {
    in_world(Preemption::Never, |world, disk| {
        let mut store = Kvdb::create(disk.root(), options(disk), Arc::new(world.clone()));
        let before = store.as_ref().map_err(text)?;
        before.create_kvs("one", inline()).map_err(text)?;
        before.set_writes_per_day(disk.root().path(), Some(BYTES_PER_DAY)).map_err(text)?;
        let mut rng = Rng::new(1);
        let mut known = WrittenBytes::default();
        for day in 0..DAYS {
            let open = store.map_err(text)?;
            one_day(&open, &mut rng)?;
            let life = open.statistics().map_err(text)?.media[0].life.clone();
            let budget = life.budget.ok_or("the budget is gone")?;
            require(budget.bytes_per_day == BYTES_PER_DAY, "the budget is another one")?;
            require(life.written.sum() > known.sum(), "the counts began anew")?;
            let most = (day + 2) * BYTES_PER_DAY + LARGEST;
            let all = life.written.sum();
            require(all <= most, format!("{all} bytes after day {day}, at most {most}"))?;
            known = life.written;
            open.close().map_err(text)?;
            store = Kvdb::open(disk.root(), options(disk), Arc::new(world.clone()));
        }
        Ok(())
    })
}

/// Puts keys and flushes them every few hours, and checks what readers find.
fn one_day(store: &Kvdb, rng: &mut Rng) -> Told {
    let kvs = store.kvs("one").map_err(text)?;
    for _ in 0..24 / HOURS_BETWEEN_FLUSHES {
        for _ in 0..KEYS_AT_ONCE {
            let number = rng.below(KEYS);
            kvs.put(&number.to_be_bytes(), &value_of(number)).map_err(text)?;
        }
        flush(store)?;
        thread::sleep(Duration::from_secs(3600 * HOURS_BETWEEN_FLUSHES));
        let runs = store.statistics().map_err(text)?.kvs[0].runs;
        require(runs <= RUNS_URGENT as u64, format!("{runs} runs"))?;
    }
    all_right(&kvs)
}

fn all_right(kvs: &Kvs) -> Told {
    for (key, value) in super::all(kvs)? {
        let number = u64::from_be_bytes(*key.first_chunk().ok_or("a short key")?);
        require(value == value_of(number), format!("the value of {number} is another one"))?;
    }
    Ok(())
}

fn value_of(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(25)
}

/// Returns options whose syncs in the background do not fill days with steps.
fn options(disk: &Disk) -> KvdbOptions {
    KvdbOptions { durability_interval: Duration::from_secs(3600), ..options_on(disk) }
}

fn inline() -> KvsOptions {
    KvsOptions { inline_bytes: 200, ..KvsOptions::default() }
}
