//! Tests of whole runs, on models, files, a cache and a store.

use std::time::Duration;

use entresol_media::MediumSpec;
use entresol_media::model::ModelName;

use super::*;

fn options(subjects: Vec<CurveSubject>) -> CurveOptions {
    CurveOptions {
        subjects,
        size: ByteSize(4096),
        read_share: 0.7,
        keys: 200,
        clients: 1,
        duration: Duration::from_millis(50),
        rounds: 1,
        file_size: ByteSize::mib(64),
        seed: 1,
    }
}

fn model(name: ModelName) -> CurveSubject {
    CurveSubject::Raw(MediumSpec::Model(name))
}

#[test]
fn two_models_have_the_curves_of_the_paper() {
    let both = options(vec![model(ModelName::OptaneSsd), model(ModelName::NandP3700)]);
    let result = run_curve(&both, &Progress::hidden()).expect("a result");
    let [optane, nand] = &result.systems[..] else { panic!("two systems") };
    for system in [optane, nand] {
        assert_eq!(system.points.len(), LOADS_PERCENT.len());
        assert!(system.points.iter().all(|it| it.p99_999_us.is_some() && !it.is_void));
    }
    let [light, heavy] = [0, 9].map(|at| [&optane.points[at], &nand.points[at]]);
    assert!(light[1].mean_us > 5.0 * light[0].mean_us, "NAND is slower at any load");
    assert!(heavy[0].p99_999_us.is_some_and(|us| us < 100.0), "{:?}", heavy[0]);
    assert!(heavy[1].p99_us > 1_000.0, "{:?}", heavy[1]);
    let rise = |system: &SystemResult| system.points[9].mean_us / system.points[0].mean_us;
    assert!(rise(optane) < 2.0 && rise(nand) > 3.0, "the curve of NAND rises throughout");
    assert!([optane, nand].iter().all(|system| system.knee.is_some()));
    let drawing = result.drawing();
    assert!(drawing.contains("knee at") && drawing.contains("nand-p3700, 99.999%"));
    assert_eq!(drawing.matches("class='legend'").count(), 8, "as many as there are colours");
}

#[test]
fn a_cache_and_a_store_are_measured_by_turns_and_removed() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("store");
    let both =
        options(vec![CurveSubject::Cache(MediumSpec::Dram), CurveSubject::Store(path.clone())]);
    let progress = Progress::hidden();
    let result = run_curve(&both, &progress).expect("a result");
    for system in &result.systems {
        assert!(!system.points.is_empty());
        assert!(system.description.ends_with(": 0"), "every key is there: {}", system.description);
        for point in &system.points {
            let part = point.offered_ops_s / system.saturation_ops_s.median;
            assert!((part * 100.0 - f64::from(point.percent)).abs() < 0.1, "{part}");
            assert!(point.requests > 0 && point.p99_us >= point.p50_us);
        }
    }
    assert!(!entresol_media::files::exists(&path));
}

#[test]
fn a_file_is_measured_and_removed() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("raw");
    let raw = CurveSubject::Raw(MediumSpec::File { path: path.clone(), model: None });
    let result = run_curve(&options(vec![raw]), &Progress::hidden()).expect("a result");
    assert!(result.systems[0].saturation_ops_s.min > 0.0);
    assert!(!entresol_media::files::exists(&path));
}

#[test]
fn a_wish_to_end_shows_the_loads_so_far_or_none() {
    let progress = Progress::hidden();
    progress.stop().ask();
    let mine = options(vec![model(ModelName::OptaneSsd)]);
    let error = run_curve(&mine, &progress).expect_err("nothing is known");
    assert!(matches!(error, BenchError::Interrupted { has_results: false }), "{error}");
}

#[test]
fn systems_are_written_as_they_are_read() {
    for text in
        ["raw:file:/a", "raw:model:optane-ssd", "cache:dram", "store:/b", "server:127.0.0.1:1"]
    {
        assert_eq!(text.parse::<CurveSubject>().expect(text).to_string(), text);
    }
    for text in ["", "raw", "raw:nothing", "store:", "disk:/a"] {
        assert!(text.parse::<CurveSubject>().is_err(), "{text}");
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let one = || options(vec![model(ModelName::OptaneSsd)]);
    let refused = |options: &CurveOptions| {
        run_curve(options, &Progress::hidden()).expect_err("refused").is_usage()
    };
    assert!(refused(&CurveOptions { subjects: Vec::new(), ..one() }));
    assert!(refused(&CurveOptions { read_share: 1.5, ..one() }));
    assert!(refused(&CurveOptions { rounds: 0, ..one() }));
    assert!(refused(&CurveOptions { size: ByteSize(1_000), ..one() }), "no whole sectors");
    assert!(refused(&options(vec![model(ModelName::Aep)])), "no drive");
}
