//! Preloading of the block cache, where all runs fit. After a store was opened, or much was
//! compacted, most blocks are not cached, and the first reader of each waits. Once readers have
//! waited as often as reading all runs from front to back takes reads, a background thread does
//! that. At worst it doubles what is read.

use crate::run;
use crate::types::RunNumber;
use crate::upkeep::charging::{Bill, Traffic};
use crate::upkeep::scheduler::IDLE;
use crate::version::core::Core;
use crate::version::view::ViewRun;

/// Preloads all runs whenever readers have missed enough blocks to make it worthwhile, and gives
/// back memory of dropped blocks.
pub(crate) fn keep_preloading(core: &Core) {
    while !core.work.is_over() {
        let seen = core.work.events();
        core.pages.give_spares_back();
        if core.pages.is_preload_due() {
            preload(core);
        } else {
            core.work.wait(seen, IDLE);
        }
    }
}

/// Caches all runs. A run that is damaged or cannot be read is skipped: readers that need its data
/// get the error.
fn preload(core: &Core) {
    let mut bill = Bill::new(core, |_| false);
    let mut traffic = Traffic::default();
    let numbers: Vec<_> = {
        let view = core.current.get();
        view.runs.values().flat_map(|runs| runs.iter().map(ViewRun::number)).collect()
    };
    for number in numbers {
        // Runs that were compacted meanwhile have no readers, and must not be held.
        let Some(run) = run_of(core, number) else { continue };
        let class = core.volumes.class_of(&run::file_name(number));
        let mut counted = 0;
        let done = run.run.preload(&mut |bytes| {
            if let Some(class) = class {
                traffic.read(class, bytes - counted);
            }
            counted = bytes;
            bill.moved(&traffic);
            !core.work.is_over() && core.room.do_runs_fit()
        });
        if matches!(done, Ok(false)) {
            break;
        }
    }
    bill.settle(&traffic);
}

fn run_of(core: &Core, number: RunNumber) -> Option<ViewRun> {
    let view = core.current.get();
    view.runs.values().flat_map(|runs| runs.iter()).find(|run| run.number() == number).cloned()
}
