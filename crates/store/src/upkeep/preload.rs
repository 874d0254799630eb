//! Caching all runs at once, where they fit: after a store was opened, or much was merged, most
//! blocks are cached nowhere, and each is waited for by whoever asks for it first. Once readers
//! have waited as often as reading all from front to back takes reads, that is done behind their
//! backs: at worst it doubles what is read.

use crate::names;
use crate::scheduler::IDLE;
use crate::types::RunNumber;
use crate::upkeep::charging::{Bill, Traffic};
use crate::version::core::Core;
use crate::version::view::ViewRun;

/// Caches all runs when readers have asked for so many blocks that were not that it is worth it,
/// and gives back what blocks that are gone have left.
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

/// Caches the runs that there are, and does not go on with one that is damaged or cannot be read:
/// whoever asks for what is in it is told.
fn preload(core: &Core) {
    let mut bill = Bill::new(core, |_| false);
    let mut traffic = Traffic::default();
    let numbers: Vec<_> = {
        let view = core.current.get();
        view.runs.values().flat_map(|runs| runs.iter().map(ViewRun::number)).collect()
    };
    for number in numbers {
        // Those that were merged meanwhile are read by nobody, and must not be held.
        let Some(run) = run_of(core, number) else { continue };
        let class = core.volumes.class_of(&names::of_run(number));
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
