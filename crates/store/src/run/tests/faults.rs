//! Tests with disks that fail, and with power cuts while a run is written.

use std::sync::Mutex;

use entresol_simulated::crash::Power;
use entresol_simulated::disk::{
    Call, Calls, Effect, Failure, Fault, FaultPlan, Repeat, SectorSize, fail_every_call,
};

use super::*;

fn options() -> RunOptions {
    RunOptions { write_bytes: 8192, ..RunOptions::default() }
}

/// Checks the file under the run's name. Returns false if it is refused, and true if it is the run.
fn check_found(disk: &Disk, model: &Model) -> Result<bool, String> {
    let Ok(run) = Run::open(&disk.root(), NUMBER, &pages()) else { return Ok(false) };
    for (key, sequence) in model.keys().step_by(5) {
        if let Ok(found) = get(&run, key, sequence.0)
            && found != expected(model, key, sequence.0)
        {
            return Err(format!("found {found:?}"));
        }
    }
    match all_of(&run) {
        Ok(all) if all != *model => Err("other entries were found".to_owned()),
        all => Ok(all.is_ok() && run.verify(&mut |_| {}).is_ok()),
    }
}

#[test]
fn a_run_whose_writing_fails_anywhere_is_none() {
    let model = sample(300, 8);
    for failure in [Failure::Io, Failure::NoSpace] {
        let struck = fail_every_call(Calls::ALL, Effect::Fail(failure), |plan| {
            let disk = disk();
            let goes_on = plan.faults[0].repeat == Repeat::EverAfter;
            disk.inject(plan);
            let written = write(&disk.root(), &model, options());
            let struck = disk.struck_count();
            disk.inject(FaultPlan::default());
            if let Ok(summary) = &written
                && !(check_found(&disk, &model)? && summary.entries == model.len() as u64)
            {
                return Err("what was written is not there".to_owned());
            }
            let left = disk.root().list().map_err(|error| error.to_string())?;
            if written.is_err() && !goes_on && !left.is_empty() {
                return Err(format!("{left:?} was left behind"));
            }
            check_found(&disk, &model).map(|_| struck)
        });
        let struck = struck.unwrap_or_else(|error| panic!("{failure:?}: {error}"));
        assert!(struck > 20, "only {struck} attempts");
    }
}

#[test]
fn writes_that_go_wrong_in_silence_are_noticed_by_readers() {
    let model = sample(300, 9);
    for effect in [Effect::Flip, Effect::LoseSector, Effect::Misdirect, Effect::Short] {
        let mut noticed = 0;
        let struck = fail_every_call(Calls::of(&[Call::Write]), effect, |plan| {
            let disk = disk();
            disk.inject(plan);
            let written = write(&disk.root(), &model, options());
            let struck = disk.struck_count();
            disk.inject(FaultPlan::default());
            let whole = check_found(&disk, &model)?;
            noticed += u64::from(written.is_err() || !whole);
            Ok::<u64, String>(struck)
        });
        let struck = struck.unwrap_or_else(|error| panic!("{effect:?}: {error}"));
        // A write may be misdirected to its own place, and a lost sector be written again later.
        assert!(struck >= 6 && noticed * 2 > struck, "{effect:?}: {noticed} of {struck}");
    }
}

#[test]
fn reads_that_go_wrong_are_errors_and_pass() {
    let model = sample(300, 10);
    let disk = disk();
    let _ = write(&disk.root(), &model, options()).expect("writes");
    for effect in [Effect::Fail(Failure::Io), Effect::Short, Effect::Misdirect] {
        let mut errors = 0;
        let struck = fail_every_call(Calls::of(&[Call::Read]), effect, |plan| {
            disk.inject(plan);
            let whole = check_found(&disk, &model);
            let struck = disk.struck_count();
            disk.inject(FaultPlan::default());
            errors += u64::from(!whole?);
            if check_found(&disk, &model)? { Ok(struck) } else { Err("stays wrong".to_owned()) }
        });
        let struck = struck.unwrap_or_else(|error| panic!("{effect:?}: {error}"));
        // A read may be misdirected to its own place, and a failed one be repeated.
        assert!(struck >= 10 && errors > 5, "{effect:?}: {errors} of {struck}");
    }
}

#[test]
fn a_cursor_goes_on_after_an_error() {
    let model = sample(2000, 11);
    let disk = disk();
    let _ = write(&disk.root(), &model, options()).expect("writes");
    let run = Run::open(&disk.root(), NUMBER, &pages()).expect("whole");
    let (calls, effect) = (Calls::of(&[Call::Read]), Effect::Fail(Failure::Io));
    disk.inject(FaultPlan::one(Fault { calls, nth: 4, repeat: Repeat::Once, effect }));
    let mut cursor = run.cursor();
    let mut more = cursor.seek_first();
    let mut last = None;
    while let Ok(true) = more {
        last = cursor.entry().map(|entry| found(&entry).0);
        more = cursor.next();
    }
    let error = more.expect_err("the fourth read");
    assert!(
        matches!(&error, StoreError::Io { doing: "read", path, .. } if path.ends_with(file_name(NUMBER)))
    );
    assert!(cursor.entry().is_none());
    let (key, sequence) = last.expect("some were read");
    assert!(cursor.seek_first_at_or_after(&key, Sequence(sequence.0)).expect("reads"));
    assert!(cursor.next().expect("reads"), "the one behind it can be read now");
}

/// Writes a run on a disk that may lose power at any moment. At each, it checks states that the
/// crash may have left. Returns the number of states.
fn crashes(sector: SectorSize) -> Result<u64, String> {
    let power = Power::new();
    let world = World::new(WorldOptions::seeded(12));
    let options = DiskOptions { sector, power: power.clone(), ..DiskOptions::default() };
    let disk = Disk::new(&world, options).map_err(|error| error.to_string())?;
    let model = Arc::new(sample(200, 12));
    let outcome = Arc::new(Mutex::new((0, 0, None)));
    let (seen, expected) = (Arc::clone(&outcome), Arc::clone(&model));
    let mut rng = Rng::named(12, "images");
    power.watch(Box::new(move |_, media| {
        let units = media[0].units();
        let nothing = vec![0; units.len()];
        let mut images = vec![nothing, units.clone()];
        // Each of the last writes is there alone, or missing alone.
        for at in units.len().saturating_sub(12)..units.len() {
            let mut alone = vec![0; units.len()];
            alone[at] = units[at];
            let mut missing = units.clone();
            missing[at] = 0;
            images.extend([alone, missing]);
        }
        images.extend((0..64).map(|_| {
            units.iter().map(|states| rng.below(u64::from(*states) + 1) as u16).collect()
        }));
        for choices in images {
            let image = media[0].image(&choices, &Power::new());
            let image = image.downcast_ref::<Disk>().expect("a disk");
            let mut seen = seen.lock().expect("nobody panics");
            seen.0 += 1;
            match check_image(image, &expected) {
                Ok(whole) => seen.1 += u64::from(whole),
                Err(error) => seen.2 = Some(error),
            }
        }
    }));
    let root = disk.root();
    let done = write(&root, &model, self::options()).map_err(|error| error.to_string());
    let named = root.sync().map_err(|error| error.to_string());
    power.unwatch();
    done?;
    named?;
    let (images, whole, failure) = outcome.lock().expect("nobody panics").clone();
    if let Some(failure) = failure {
        return Err(failure);
    }
    if whole == 0 || whole == images {
        return Err(format!("{whole} of {images} images were whole: not much of a test"));
    }
    // The file and its name are durable now.
    let nothing = vec![0; disk.units().len()];
    if check_image(&disk.image(&nothing), &model)? { Ok(images) } else { Err("lost".to_owned()) }
}

/// Checks that a run that opens is whole. Returns false if it does not open.
fn check_image(image: &Disk, model: &Model) -> Result<bool, String> {
    let Ok(run) = Run::open(&image.root(), NUMBER, &pages()) else { return Ok(false) };
    run.verify(&mut |_| {}).map_err(|error| format!("it opened, but {error}"))?;
    let all = all_of(&run).map_err(|error| error.to_string())?;
    if all == *model { Ok(true) } else { Err("it opened with other entries".to_owned()) }
}

#[test]
fn after_a_power_cut_a_run_is_whole_or_none() {
    for sector in [SectorSize::Large, SectorSize::Small] {
        let images = crashes(sector).unwrap_or_else(|error| panic!("{sector:?}: {error}"));
        assert!(images > 500, "only {images} images");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn every_site_is_noticed() {
    let suite = || {
        crashes(SectorSize::Large).map(drop)?;
        super::damage::one_bit_of_each_page()
    };
    let trials = entresol_base::mutants::try_all(suite).expect("passes as it is");
    let ours =
        |trial: &&entresol_base::mutants::Trial| trial.site.place.file().contains("store/src");
    let trials: Vec<_> = trials.iter().filter(ours).collect();
    let missed: Vec<String> = trials
        .iter()
        .filter(|trial| trial.noticed.is_none())
        .map(|trial| trial.site.to_string())
        .collect();
    // Two syncs of the file and one of the directory; the checks of both ends, of blocks, of pages
    // of filters and of lists.
    assert_eq!(trials.len(), 8, "{trials:?}");
    assert!(missed.is_empty(), "{missed:?}");
}
