//! Tests of the search on a model, a file and a store.

use entresol_base::Stop;

use super::*;

fn options(subject: ActSubject) -> ActOptions {
    ActOptions {
        subject,
        definition: Definition::Paper,
        interval: None,
        size: ByteSize::mib(64),
        records: 500,
        multiple_max: 1 << 20,
        keep: false,
        seed: 1,
    }
}

#[test]
fn a_model_gives_the_same_multiples_on_any_machine_and_the_tight_one_is_smaller() {
    let options = options(ActSubject::Medium(MediumSpec::Model(ModelName::NandS3700)));
    let of = |options: &ActOptions| {
        let result = run_act(options, &Progress::hidden()).expect("a result");
        let best: Vec<_> = result.best.iter().map(|it| it.multiple.expect("found")).collect();
        let reasons: Vec<_> = result.best.iter().filter_map(|it| it.limited_by).collect();
        assert_eq!(reasons, ["response times", "response times"]);
        best
    };
    let best = of(&options);
    assert_eq!(best, of(&options));
    assert!(best[0] > best[1], "{best:?}");
    // A multiple of today's tool has twice the reads and writes.
    let current = of(&ActOptions { definition: Definition::Current, ..options });
    let ratio = f64::from(best[0]) / f64::from(current[0]);
    assert!((1.6..2.4).contains(&ratio), "{best:?} and {current:?}");
}

#[test]
fn a_file_is_read_and_written_at_the_rates_of_the_load_and_removed() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("act");
    let raw = RawFile::open(&path, None, ByteSize::mib(64), false, &Stop::new()).expect("a file");
    let interval = Interval::Time(Duration::from_millis(500));
    let load = Definition::Paper.load(2);
    let on = OnFile { raw, load, interval, seed: 1 };
    let ran = on.run(2, &Stop::new()).expect("a run").expect("not ended");
    let reads: u64 = ran.intervals.iter().map(|times| times.count()).sum();
    // A machine that is too busy to keep up leaves reads out; it never adds any.
    assert!(reads < 2_300, "{reads} of 2,000 on average");
    assert!(!ran.kept_up || reads > 1_700, "{reads} of 2,000 on average");
    drop(on);
    assert!(!files::exists(&path));
}

#[test]
fn a_store_is_filled_loaded_and_removed_and_one_that_exists_is_left_alone() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("store");
    let interval = Some(Duration::from_millis(200));
    let subject = ActSubject::Store(path.clone());
    let mine = ActOptions { interval, multiple_max: 1, ..options(subject) };
    let result = run_act(&mine, &Progress::hidden()).expect("a result");
    let [run] = &result.runs[..] else { panic!("{:?}", result.runs) };
    let reads: u64 = run.intervals.iter().map(|it| it.reads).sum();
    assert!((250..550).contains(&reads), "{reads} of 400 on average");
    assert_eq!(result.puts_per_second, Some(500.0));
    assert!(!files::exists(&path));
    files::create_directories(&path).expect("a directory");
    assert!(run_act(&mine, &Progress::hidden()).expect_err("refused").is_usage());
    assert!(files::exists(&path));
}

#[test]
fn a_wish_to_end_leaves_what_is_known() {
    let progress = Progress::hidden();
    progress.stop().ask();
    let options = options(ActSubject::Medium(MediumSpec::Model(ModelName::NandS3700)));
    let error = run_act(&options, &progress).expect_err("nothing is known");
    assert!(matches!(error, BenchError::Interrupted { has_results: false }), "{error}");
}

#[test]
fn memory_is_no_medium_of_the_tool() {
    for medium in [MediumSpec::Dram, MediumSpec::Model(ModelName::Aep)] {
        let error = run_act(&options(ActSubject::Medium(medium)), &Progress::hidden());
        assert!(error.expect_err("refused").is_usage());
    }
}
