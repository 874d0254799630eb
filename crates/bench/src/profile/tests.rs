//! Tests of profiles on a medium that follows a formula: every measurement reaches its destination.
#![expect(clippy::disallowed_methods, reason = "tests put files in the way")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use entresol_base::Picos;
use entresol_media::Account;
use entresol_media::cost::{Access, CostTable};
use entresol_media::model::ModelName;
use entresol_media::model::block::BlockModel;
use entresol_media::probe::{Order, StoreMethod, Task, Touch};

use super::costs::{self, Origin};
use super::memory::{self, MemorySubject, Rate, Scope, cost_plan, plan};
use super::*;

/// Medium by a formula. Reads take 100 ns and 0.1 ns per byte, writes twice as long, sequential
/// accesses half as long. All times are multiplied by the number of threads.
struct Formula {
    calls: usize,
}

fn block_ns(task: &Task, threads: usize) -> f64 {
    let write = if matches!(task.touch, Touch::Write(..)) { 2.0 } else { 1.0 };
    let order = if task.order == Order::Sequential { 0.5 } else { 1.0 };
    (100.0 + 0.1 * task.block_bytes as f64) * write * order * threads as f64
}

impl MemorySubject for Formula {
    fn sample(&mut self, tasks: &[Task]) -> Result<Vec<Rate>, BenchError> {
        // Every seventh call is ten times as slow; medians must be unaffected.
        self.calls += 1;
        let noise = if self.calls.is_multiple_of(7) { 10.0 } else { 1.0 };
        let rate =
            |task| Rate { blocks: 1000, elapsed_ns: 1000.0 * noise * block_ns(task, tasks.len()) };
        Ok(tasks.iter().map(rate).collect())
    }
}

fn figures(full: bool) -> Vec<Figure> {
    let methods = vec![StoreMethod::Streaming, StoreMethod::Clwb, StoreMethod::Clflush];
    let scope = Scope { full, threads: vec![1, 2, 4], methods };
    let mut subjects: Vec<Box<dyn MemorySubject>> = vec![Box::new(Formula { calls: 0 })];
    let progress = Progress::hidden();
    let measure = |plan: &memory::Plan, subjects: &mut [Box<dyn MemorySubject>]| {
        memory::measure(plan, subjects, ROUNDS, &progress).expect("measures").remove(0)
    };
    let mut figures = measure(&plan(&scope), &mut subjects);
    figures.extend(measure(&cost_plan(&scope, [2, 1]), &mut subjects));
    figures
}

fn origin() -> Origin {
    Origin {
        medium: "formula".into(),
        machine: "none".into(),
        date: "2026-11-21".into(),
        method: "by formula".into(),
    }
}

fn the_profile(full: bool) -> Profile {
    let figures = figures(full);
    let costs = costs::table(figures.last().expect("costs"), origin()).expect("a table");
    let medium = MediumProfile {
        medium: "formula".into(),
        kind: "a formula".into(),
        facts: vec![Fact { name: "pages", text: "none".into() }],
        splits: Vec::new(),
        advice: advice::of_memory(&figures),
        figures,
        costs,
        unreliable: None,
    };
    Profile { mode: "quick", rounds: ROUNDS, media: vec![medium] }
}

#[test]
fn every_figure_of_the_paper_is_there_and_has_its_points() {
    for full in [false, true] {
        let figures = figures(full);
        assert_eq!(figures.len(), 14, "two latencies, two by threads, four bandwidths ...");
        for figure in &figures {
            assert!(!figure.series.is_empty(), "{}", figure.name);
            for series in &figure.series {
                assert!(series.points.len() >= 2, "{}: {}", figure.name, series.label);
                assert!(series.points.windows(2).all(|two| two[0].x < two[1].x));
                assert!(series.points.iter().all(|point| point.y.median > 0.0));
            }
        }
        let names: std::collections::BTreeSet<_> = figures.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), figures.len());
    }
}

#[test]
fn medians_are_what_the_medium_does_and_spreads_show_what_disturbed_it() {
    let figures = figures(false);
    let figure = |name: &str| figures.iter().find(|figure| figure.name == name).expect("figure");
    let value = |name: &str, series: &str, x: f64| {
        figure(name).series(series).and_then(|series| series.at(x)).expect("a point")
    };
    let check = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 1e-9, "{got} {want}");
    check(value("read_latency", "random", 1024.0), 202.4);
    check(value("read_latency", "sequential", 1024.0), 101.2);
    check(value("write_latency", "nt-store random", 8.0), 201.6);
    check(value("read_latency_by_threads", "4 threads", 64.0), 4.0 * 106.4);
    // Four threads of 4 KiB, each four times as slow.
    check(value("read_bandwidth_random", "4 threads", 4096.0), 4096.0 / 509.6);
    // Two readers and four writers, six threads in total.
    check(value("mixed_read_latency", "2 readers", 4.0), 6.0 * 125.6);
    check(value("mixed_write_bandwidth", "4 writers", 2.0), 4.0 * 256.0 / (6.0 * 251.2));
    let spread = |name: &str| {
        let points = figure(name).series.iter().flat_map(|series| &series.points);
        points.map(|point| point.y.max / point.y.min).fold(0.0, f64::max)
    };
    check(spread("read_latency"), 10.0);
}

#[test]
fn costs_are_one_over_the_most_operations() {
    let figures = figures(false);
    let table = costs::table(figures.last().expect("costs"), origin()).expect("a table");
    let check = |access, bytes, want: f64| {
        let got = table.cost_ns(access, bytes);
        assert!((got / want - 1.0).abs() < 2e-3, "{access:?} of {bytes}: {got}, not {want}");
    };
    // Two readers, each half as fast, reach the rate of one alone.
    check(Access::Read, 64, 106.4);
    check(Access::Read, 4096, 509.6);
    check(Access::Read, 1 << 20, 100.0 + 0.1 * 1_048_576.0);
    check(Access::Write, 320, 264.0);
    assert!(table.source().spread > 0.4, "the disturbance is told: {}", table.source().spread);
    assert_eq!(CostTable::from_json(&table.to_json()).expect("loads"), table);
}

#[test]
fn the_page_and_the_terminal_have_every_figure() {
    let profile = the_profile(true);
    let html = profile.page().render();
    let text: String = profile.tables().iter().map(ToString::to_string).collect();
    for figure in &profile.media[0].figures {
        assert!(html.contains(&format!("aria-label='{}'", figure.title)), "{}", figure.title);
        assert!(text.contains(figure.title), "{}", figure.title);
    }
    assert!(html.matches("<svg").count() > profile.media[0].figures.len(), "and the costs");
    assert!(!html.contains("NaN") && !html.contains("http"));
    let json = serde_json::to_value(&profile).expect("json");
    assert_eq!(json["media"][0]["costs"]["format"], 3);
}

#[test]
fn two_media_stand_side_by_side() {
    let mut profile = the_profile(false);
    let mut other = profile.media[0].clone();
    other.medium = "another".into();
    for point in other.figures[0].series.iter_mut().flat_map(|series| &mut series.points) {
        point.y.median *= 2.0;
    }
    profile.media.push(other);
    let text: String = profile.tables().iter().map(ToString::to_string).collect();
    assert!(text.contains("Latency of reads, one thread, random (latency, ns), both media"));
    let row = |line: &&str| line.starts_with("  64 ") && line.ends_with(" 0.500");
    assert_eq!(text.lines().filter(row).count(), 1, "{text}");
    assert!(profile.page().render().contains("formula, random"));
}

#[test]
fn two_drives_are_compared_in_time_and_bandwidth_too() {
    let mut options = options("model:optane-ssd");
    options.against = Some("model:nand-p3700".parse().expect("a medium"));
    let profile = profile(&options, &Progress::hidden()).expect("measures");
    let text: String = profile.tables().iter().map(ToString::to_string).collect();
    let compared: Vec<&str> = text.lines().filter(|line| line.contains("both media")).collect();
    for title in ["Latency, one request", "Bandwidth by size", "Most random requests"] {
        assert!(compared.iter().any(|line| line.starts_with(title)), "{title}: {compared:?}");
    }
}

fn options(medium: &str) -> ProfileOptions {
    ProfileOptions {
        medium: medium.parse().expect("a medium"),
        against: None,
        full: false,
        threads: Some(2),
        size: None,
        huge_pages: false,
        keep: false,
        seed: 1,
    }
}

#[test]
fn a_model_gives_the_same_profile_every_time() {
    for medium in ["model:dram", "model:optane-ssd"] {
        let json = || {
            let profile = profile(&options(medium), &Progress::hidden()).expect("measures");
            serde_json::to_string(&profile).expect("json")
        };
        let first = json();
        assert!(first.contains("virtual time") && first.len() > 5_000, "{first}");
        assert!(json() == first, "{medium} differs");
    }
}

/// Figure 5 of 000: with several writers, fences every 256 bytes remove the losses of large blocks.
#[test]
fn the_module_is_advised_on_fences_as_the_paper_advises() {
    let mut options = options("model:aep");
    options.threads = Some(4);
    let profile = profile(&options, &Progress::hidden()).expect("measures");
    let advice = profile.media[0].advice.join("\n");
    assert!(
        advice.contains("(4 MiB, 16 MiB), and lowers it at no size: put one there"),
        "{advice}"
    );
}

#[test]
fn a_models_costs_are_those_of_a_busy_device() {
    let costs = addressable::model_costs(entresol_media::model::ModelName::Aep2).expect("costs");
    let parameters = entresol_media::model::memory::AEP2;
    // 002: two modules serve this many units of 256 B per second, however much of a unit is read.
    let unit_ns = 256e9 / (2.0 * parameters.module.read_bytes_s as f64);
    // Blocks of 192 B at any line: half of them touch two units and trigger the prefetcher.
    for (bytes, units) in [(64, 1.0), (128, 1.0), (192, 2.0), (256, 1.0)] {
        let ratio = costs.cost_ns(Access::Read, bytes) / (units * unit_ns);
        assert!((0.95..1.05).contains(&ratio), "{bytes} B: {ratio}");
    }
}

/// Returns the use that an account shows of a tenant that is alone on a drive, with `depth`
/// requests in flight.
fn use_alone(name: ModelName, costs: &Arc<CostTable>, reads_percent: u64, bytes: u32) -> f64 {
    let mut drive = BlockModel::of(name).expect("a drive");
    let account = Account::new("drive", Arc::clone(costs));
    let mut handle = account.handle();
    let mut rng = fastrand::Rng::with_seed(5);
    let depth = if bytes > 64 << 10 { 64 } else { 256 };
    let mut under_way: BinaryHeap<Reverse<u64>> = (0..depth).map(|_| Reverse(0)).collect();
    // Earlier work must not matter: the drive wrote for a while and then rested for a moment.
    for number in 0..2_000 {
        drive.submit(Picos(number), Access::Write, number << 20, 65_536);
    }
    let moment = 30_000_000_000_000;
    let (mut counted_from, mut now) = ((0, 0), 0);
    let requests = 40_000_u64.min((8 << 30) / u64::from(bytes));
    for number in 0..requests {
        now = under_way.pop().expect("one").0;
        if number == requests / 2 {
            counted_from = (now, account.used_ns());
        }
        let access = if rng.u64(0..100) < reads_percent { Access::Read } else { Access::Write };
        // Blocks of a power of two are aligned to their size, others to the next power of two.
        let grid = u64::from(bytes).next_power_of_two();
        let offset = rng.u64(0..(64 << 30) / grid) * grid;
        let done = drive.submit(Picos(moment + now), access, offset, bytes);
        handle.charge(access, bytes as usize);
        under_way.push(Reverse(done.0 - moment));
    }
    let (from, used) = counted_from;
    (account.used_ns() - used) as f64 * 1000.0 / (now - from) as f64
}

#[test]
fn a_tenant_alone_at_full_speed_uses_all_of_a_drive() {
    for name in ModelName::ALL.into_iter().filter(|name| !name.is_memory()) {
        let profile = profile(&options(&format!("model:{name}")), &Progress::hidden());
        let costs = Arc::new(profile.expect("measures").media[0].costs.clone());
        for bytes in [512, 4096, 8192, 24 << 10, 64 << 10, 1 << 20] {
            let least = match bytes {
                // Drives write whole units of their own; sizes in between are off the line.
                24_576 => 0.7,
                65_536 => 0.95,
                _ => 0.97,
            };
            for percent in [100, 0] {
                let used = use_alone(name, &costs, percent, bytes);
                let right = (least..1.03).contains(&used);
                assert!(right, "{name}, {bytes} B, {percent}% reads: {used:.3} of the drive");
            }
            // Reads and writes have different bottlenecks in a drive. Together they may achieve
            // more, or less if a program operation delays a read.
            let mixed = use_alone(name, &costs, 50, bytes);
            assert!((0.75..1.5).contains(&mixed), "{name}, {bytes} B, half reads: {mixed:.3}");
        }
    }
}

#[test]
fn a_models_figures_are_the_models_own() {
    let profile = profile(&options("model:dram"), &Progress::hidden()).expect("measures");
    let figure = profile.media[0].figure("read_latency").expect("a figure");
    let latency = figure.series("random").and_then(|series| series.at(64.0)).expect("a point");
    // Table 7 of 000.
    assert!((latency / 40.0 - 1.0).abs() < 0.2, "{latency} ns");
}

#[test]
fn a_foreign_file_is_refused_by_name_and_keeps_its_bytes() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("theirs.segments");
    std::fs::write(&path, "precious").expect("writes");
    for medium in ["file:", "pmem:"] {
        let assume = if medium == "pmem:" { ",assume-dax" } else { "" };
        let medium = format!("{medium}{}{assume}", path.display());
        let error = profile(&options(&medium), &Progress::hidden()).expect_err("refused");
        assert!(error.is_usage() && error.to_string().contains("theirs.segments"), "{error}");
        assert_eq!(std::fs::read(&path).expect("reads"), b"precious");
    }
}

#[test]
fn a_file_that_was_made_is_gone_afterwards_unless_it_shall_stay() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("made");
    let medium = format!("pmem:{},assume-dax", path.display());
    let mut options = options(&medium);
    options.size = Some(ByteSize::mib(64));
    for keep in [false, true, false] {
        let there = path.exists();
        options.keep = keep;
        addressable::prepare_and_drop(&options).expect("prepared");
        assert_eq!(path.exists(), keep || there, "what was there before stays");
    }
}

#[test]
fn a_size_that_the_caches_hold_is_refused_with_the_least_that_is_useful() {
    let refused = |size: u64, cache: Option<ByteSize>| {
        let error = addressable::large_enough(Some(ByteSize(size)), cache).expect_err("too small");
        assert!(error.is_usage(), "{error}");
        error.to_string()
    };
    for size in [0, 1, 105 << 20, (512 << 20) - 1] {
        let text = refused(size, Some(ByteSize::mib(105)));
        assert!(text.contains("at least 512MiB") && text.contains("105MiB"), "{text}");
    }
    assert!(refused(1 << 20, None).contains("cannot be read"));
    for cache in [None, Some(ByteSize::mib(105))] {
        addressable::large_enough(Some(ByteSize::mib(512)), cache).expect("large enough");
        addressable::large_enough(None, cache).expect("chosen large enough");
    }
    // The whole call measures nothing either.
    let mut options = options("dram");
    options.size = Some(ByteSize(1));
    let error = profile(&options, &Progress::hidden()).expect_err("refused");
    assert!(error.to_string().contains("--size 1"), "{error}");
}

#[test]
fn costs_that_the_run_itself_doubts_replace_no_table() {
    let samples = |all, disturbed| memory::Samples { all, disturbed };
    assert_eq!(addressable::unreliable(samples(10, 10), samples(110, 60)), None);
    let why = addressable::unreliable(samples(10, 0), samples(110, 51)).expect("disturbed");
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("costs.json");
    let good = the_profile(false);
    save_costs(&good, &path).expect("saves");
    let before = std::fs::read(&path).expect("reads");
    let mut doubted = the_profile(false);
    doubted.media[0].costs = costs::table(
        doubted.media[0].figures.last().expect("costs"),
        Origin { medium: "another".into(), ..origin() },
    )
    .expect("a table");
    doubted.media[0].say_unreliable(Some(why));
    let error = save_costs(&doubted, &path).expect_err("refused").to_string();
    assert!(error.contains("51%") && error.contains("was not replaced"), "{error}");
    assert_eq!(std::fs::read(&path).expect("reads"), before);
    let text: String = doubted.tables().iter().map(ToString::to_string).collect();
    assert!(text.contains("unreliable: in 51%"), "{text}");
    save_costs(&doubted, &directory.path().join("elsewhere.json")).expect("nothing is replaced");
}

#[test]
fn media_of_different_kinds_are_not_compared() {
    let mut options = options("dram");
    options.against = Some("file:/nonexistent/x".parse().expect("a medium"));
    let error = profile(&options, &Progress::hidden()).expect_err("refused");
    assert!(error.is_usage(), "{error}");
}

#[test]
fn threads_are_powers_of_two_and_the_most() {
    assert_eq!(thread_counts(1), [1]);
    assert_eq!(thread_counts(2), [1, 2]);
    assert_eq!(thread_counts(6), [1, 2, 4, 6]);
}

#[test]
fn a_file_is_measured_in_every_figure_and_its_table_saved() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("disk");
    let mut options = options(&format!("file:{}", path.display()));
    options.size = Some(ByteSize::mib(64));
    let profile = profile(&options, &Progress::hidden()).expect("measures");
    assert!(!path.exists(), "what was made is removed");
    let medium = &profile.media[0];
    for name in ["latency", "operations", "bandwidth", "iops_over_depth", "max_iops"] {
        let figure = medium.figure(name).expect("a figure");
        assert!(figure.series.iter().all(|series| series.points.len() >= 2), "{name}");
    }
    assert!(medium.figure("response_time").is_some());
    assert_eq!(medium.splits.len(), 2, "by interrupt and by polling, or why not");
    let place = default_place(&options.medium).expect("a place");
    let sentence = save_costs(&profile, &place).expect("saves");
    assert!(sentence.contains("disk.costs.json"), "{sentence}");
    assert_eq!(CostTable::load(&place).expect("loads"), medium.costs);
}

#[test]
fn response_times_over_load_are_those_of_the_model() {
    let profile = profile(&options("model:optane-ssd"), &Progress::hidden()).expect("measures");
    let figure = profile.media[0].figure("response_time").expect("a figure");
    let mean = figure.series("mean").expect("a series");
    assert!(mean.points.len() >= 5, "{} loads were kept up with", mean.points.len());
    // Figure 7 of 004: the lowest load takes about 10 us.
    assert!((5.0..20.0).contains(&mean.points[0].y.median), "{:?}", mean.points[0]);
    let slowest = mean.points.iter().map(|point| point.y.median).fold(0.0, f64::max);
    assert!(slowest > mean.points[0].y.median, "load shows");
}
