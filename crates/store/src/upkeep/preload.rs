//! Preloading of the block cache, where all runs fit. After a store was opened, or much was
//! compacted, most blocks are not cached, and the first reader of each waits. Once readers have
//! waited as often as reading all runs from front to back takes reads, a background thread does
//! that. At worst it doubles what is read.

use crate::cache::budget::Room;
use crate::names;
use crate::scheduler::IDLE;
use crate::types::RunNumber;
use crate::upkeep::charging::{Bill, Traffic};
use crate::upkeep::context::Background;
use crate::version::files::Files;
use crate::version::view::ViewRun;

/// Preloads all runs whenever readers have missed enough blocks to make it worthwhile, and gives
/// back memory of dropped blocks.
pub(crate) fn keep_preloading(files: &Files, background: &Background, room: &Room) {
    while !background.scheduler.is_over() {
        let seen = background.scheduler.events();
        files.pages.give_spares_back();
        if files.pages.is_preload_due() {
            preload(files, background, room);
        } else {
            background.scheduler.wait(seen, IDLE);
        }
    }
}

/// Caches all runs. A run that is damaged or cannot be read is skipped: readers that need its data
/// get the error.
fn preload(files: &Files, background: &Background, room: &Room) {
    let mut bill = Bill::new(files, background, || false);
    let mut traffic = Traffic::default();
    let numbers: Vec<_> = {
        let view = files.current.get();
        view.runs.values().flat_map(|runs| runs.iter().map(ViewRun::number)).collect()
    };
    for number in numbers {
        // Runs that were compacted meanwhile have no readers, and must not be held.
        let Some(run) = run_of(files, number) else { continue };
        let class = files.volumes.class_of(&names::of_run(number));
        let mut counted = 0;
        let done = run.run.preload(&mut |bytes| {
            if let Some(class) = class {
                traffic.read(class, bytes - counted);
            }
            counted = bytes;
            bill.moved(&traffic);
            !background.scheduler.is_over() && room.do_runs_fit()
        });
        if matches!(done, Ok(false)) {
            break;
        }
    }
    bill.settle(&traffic);
}

fn run_of(files: &Files, number: RunNumber) -> Option<ViewRun> {
    let view = files.current.get();
    view.runs.values().flat_map(|runs| runs.iter()).find(|run| run.number() == number).cloned()
}
