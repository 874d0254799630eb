//! Caching all runs at once, where they fit: after a store was opened, or much was merged, most
//! blocks are cached nowhere, and each is waited for by whoever asks for it first. Once readers
//! have waited as often as reading all from front to back takes reads, that is done behind their
//! backs: at worst it doubles what is read.

use crate::background::{Bill, Traffic};
use crate::entry::RunNumber;
use crate::inner::Inner;
use crate::run;
use crate::view::Frozen;
use crate::work::IDLE;

/// Caches all runs when readers have asked for so many blocks that were not that it is worth it,
/// and gives back what blocks that are gone have left.
pub(crate) fn keep_preloading(inner: &Inner) {
    while !inner.work.is_over() {
        let seen = inner.work.events();
        inner.pages.give_spares_back();
        if inner.pages.is_preload_due() {
            preload(inner);
        } else {
            inner.work.wait(seen, IDLE);
        }
    }
}

/// Caches the runs that there are, and does not go on with one that is damaged or cannot be read:
/// whoever asks for what is in it is told.
fn preload(inner: &Inner) {
    let mut bill = Bill::new(inner, |_| false);
    let mut traffic = Traffic::default();
    let numbers: Vec<_> = {
        let view = inner.current.get();
        view.runs.values().flat_map(|runs| runs.iter().map(Frozen::number)).collect()
    };
    for number in numbers {
        // Those that were merged meanwhile are read by nobody, and must not be held.
        let Some(run) = run_of(inner, number) else { continue };
        let class = inner.places.class_of(&run::file_name(number));
        let mut counted = 0;
        let done = run.run.preload(&mut |bytes| {
            if let Some(class) = class {
                traffic.read(class, bytes - counted);
            }
            counted = bytes;
            bill.moved(&traffic);
            !inner.work.is_over() && inner.room.do_runs_fit()
        });
        if matches!(done, Ok(false)) {
            break;
        }
    }
    bill.settle(&traffic);
}

fn run_of(inner: &Inner, number: RunNumber) -> Option<Frozen> {
    let view = inner.current.get();
    view.runs.values().flat_map(|runs| runs.iter()).find(|run| run.number() == number).cloned()
}
