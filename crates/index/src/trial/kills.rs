//! Processes that are killed at every change, one after the other: in an operation, while an index
//! and its pool are being made, and while they are opened.
//!
//! The next process sees all stores of the last. Another of its threads answers, so that its drains
//! do not cover flushes of the opening; then the power fails.

use std::sync::Arc;

use entresol_base::Stop;
use entresol_base::thread;
use entresol_media::Region;
use entresol_simulated::crash::{RecordedRegion, Report};

use super::life::cut_off;
use super::{
    Answers, Grounds, Op, Opened, TrialKey, TrialOptions, Watch, act, add, in_its_world, lock,
    run_here, value_before,
};
use crate::Persistent;

/// More changes than any operation makes.
const CHANGES_MAX: u64 = 4000;
/// Number of images at a point: few, since each kill is another point already.
const IMAGES_MAX: u32 = 16;

fn small(seed: u64) -> TrialOptions {
    let mut options =
        TrialOptions { keys: 26, region_bytes: 192 << 10, ..TrialOptions::seeded(seed) };
    options.explore.exhaustive_max = IMAGES_MAX;
    options.explore.images_max = IMAGES_MAX;
    options
}

/// Kills a process at every change of some operations: those that split a node, empty one, or do
/// nothing special, and the opening.
///
/// # Errors
/// The failure, and the change at which the process was killed.
pub fn killed_anywhere<I>(index: &I::Options) -> Result<Report, String>
where
    I: Persistent<RecordedRegion, Key: TrialKey> + 'static,
    I::Options: 'static,
{
    let insert = |number: u64| Op::Insert { key: number * 7 % 24, value: 1 };
    let all: Vec<Op> = (0..24).map(insert).collect();
    let mut cases = Vec::new();
    // Among this many inserts in a row one splits a small node, and among this many removals one
    // empties it.
    cases.extend((18..24).map(|count| (all[..count].to_vec(), insert(count as u64))));
    cases.extend((0..6).map(|gone| {
        let removed = (0..gone).map(|key| Op::Remove { key });
        let before = all.iter().copied().chain(removed).collect();
        (before, Op::Remove { key: gone })
    }));
    cases.extend([Op::Upsert { key: 5, value: 8 }, Op::Reopen].map(|op| (all.clone(), op)));
    let mut whole = Report::default();
    for (before, killed) in cases {
        add(
            &mut whole,
            &killed_in::<I>(index, Answers::Here, &before, killed, |changes| {
                // Some of them touch the nodes that were being changed, some do not.
                let near = [20, 2, 11].map(|key| Op::Upsert { key, value: 2 + changes });
                near.into_iter().chain([Op::Remove { key: 19 }]).collect()
            })?,
        );
    }
    Ok(whole)
}

/// Kills a process at every change of the last of several operations. The next process then carries
/// out the operations that `after` returns for that change, and only there crashes are tried.
///
/// # Errors
/// The failure, and the change at which the process was killed.
pub fn killed_in<I>(
    index: &I::Options,
    answers: Answers,
    before: &[Op],
    killed: Op,
    after: impl Fn(u64) -> Vec<Op>,
) -> Result<Report, String>
where
    I: Persistent<RecordedRegion, Key: TrialKey> + 'static,
    I::Options: 'static,
{
    let mut whole = Report::default();
    for changes in 0..CHANGES_MAX {
        let options = small(changes);
        let mut ops = before.to_vec();
        ops.extend([Op::Kill { changes }, killed]);
        ops.extend(after(changes));
        let watch = Watch { from: before.len(), answers };
        let ran = run_here::<I>(&options, index, &ops, watch, &Stop::new())?;
        if let Some(failure) = ran.report.failure {
            return Err(format!("{killed}, killed after {changes} changes: {failure}"));
        }
        add(&mut whole, &ran.report);
        if ran.kills == 0 {
            break;
        }
    }
    Ok(whole)
}

/// Tries crashes while an index and its pool are made, and kills the process that makes them at
/// every change; in a world nothing is killed.
///
/// # Errors
/// The failure, and the change at which the process was killed.
pub fn killed_while_made<I>(options: &TrialOptions, index: &I::Options) -> Result<Report, String>
where
    I: Persistent<RecordedRegion, Key: TrialKey> + 'static,
    I::Options: 'static,
{
    let mut explored = small(options.seed);
    (explored.caches_survive, explored.in_world) = (options.caches_survive, options.in_world);
    explored.region_bytes = options.region_bytes;
    let mut whole = in_its_world(&explored, index, (&[], &Stop::new()), |options, index, _| {
        made::<I>(options, index, None).map(|made| made.report)
    })?;
    let kills = if options.in_world { 0 } else { CHANGES_MAX };
    for changes in 0..kills {
        let Made { report, was_killed } = made::<I>(&explored, index, Some(changes))?;
        if let Some(failure) = report.failure {
            return Err(format!("killed after {changes} changes while it was made: {failure}"));
        }
        add(&mut whole, &report);
        if !was_killed {
            break;
        }
    }
    match whole.failure.take() {
        Some(failure) => Err(format!("while it was made: {failure}")),
        None => Ok(whole),
    }
}

struct Made {
    report: Report,
    was_killed: bool,
}

/// Makes an index in a region without a pool, and then carries out a few operations on it.
fn made<I>(options: &TrialOptions, index: &I::Options, kill: Option<u64>) -> Result<Made, String>
where
    I: Persistent<RecordedRegion, Key: TrialKey> + 'static,
    I::Options: 'static,
{
    let Grounds { power, region, subject, explorer } =
        Grounds::<I>::new(options, index, &Stop::new())?;
    // Whatever was there: no index may rely on zeroes where it has put none.
    let (begin, len) = (options.chunk_bytes, options.region_bytes - options.chunk_bytes);
    region.write(begin, &vec![0xA5; len as usize]);
    region.persist(begin, len as usize);
    let mut was_killed = false;
    if let Some(changes) = kill {
        let (theirs, options, index) = (Arc::clone(&region), *options, index.clone());
        let work = move || Opened::<I>::open(&theirs, &options, &index).map(drop);
        match cut_off(&region, changes, work) {
            None => was_killed = true,
            Some(made) => made?,
        }
    }
    explorer.watch(&power);
    let opened = Arc::new(Opened::<I>::open(&region, options, index)?);
    for op in [
        Op::Insert { key: 0, value: 7 },
        Op::Upsert { key: 1, value: 8 },
        Op::Upsert { key: 0, value: 9 },
        Op::Remove { key: 1 },
    ] {
        let before = {
            let expected = &mut *lock(&subject.expected);
            expected.in_flight = Some(op);
            value_before(&expected.records, op)
        };
        let theirs = Arc::clone(&opened);
        let acted = thread::spawn("answers", move || theirs.act(op, before)).join();
        acted.map_err(|_| format!("{op}: a panic"))??;
        let expected = &mut *lock(&subject.expected);
        expected.in_flight = None;
        act(&mut expected.records, op);
    }
    drop(opened);
    Ok(Made { report: explorer.finish(&power), was_killed })
}
