//! Tests of small runs, on our store and on stores with mistakes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::*;

/// Bytes that a store may take beyond its bound.
const BESIDE_BYTES_MAX: u64 = 16 << 20;

fn options(directory: &Path, workloads: &[Workload]) -> YcsbOptions {
    YcsbOptions {
        engine: Entresol::NAME,
        directory: directory.join("store"),
        model: None,
        pmem: None,
        capacity: None,
        policy: None,
        hot_share: None,
        workloads: workloads.to_vec(),
        keys: 3000,
        operations: 3000,
        duration: None,
        key_bytes: 16,
        value_bytes: 100,
        scan_records: None,
        threads: 2,
        rate_ops_s: None,
        writer_ops_s: None,
        shards: 1,
        verify: true,
        settle: false,
        keep: false,
        cache_bytes: Some(ByteSize::mib(1)),
        memory_bytes: None,
        // The smallest generation, which makes the store write runs as well.
        generation_bytes: Some(ByteSize::kib(128)),
        space_bound: None,
        seed: 1,
    }
}

fn run(options: &YcsbOptions) -> Result<YcsbResult, BenchError> {
    let open = |opening: &Opening<'_>| -> Result<Box<dyn Engine>, BenchError> {
        Ok(Box::new(Entresol::open(opening)?))
    };
    run_ycsb(options, &open, &Progress::hidden())
}

#[test]
fn space_is_watched_by_the_second() {
    let scratch = tempfile::tempdir().expect("a directory");
    let workloads = [Workload::Load, Workload::Overwrite, Workload::OverwriteZipf];
    let watched = YcsbOptions {
        operations: u64::from(u32::MAX),
        duration: Some(Duration::from_millis(1300)),
        rate_ops_s: Some(20_000.0),
        space_bound: Some(2.0),
        ..options(scratch.path(), &workloads)
    };
    let result = run(&watched).expect("measured");
    for found in &result.workloads[1..] {
        let space = found.space.as_ref().expect("watched");
        let [first, ..] = space.seconds.as_slice() else { panic!("no second of {space:?}") };
        assert_eq!((first.live_bytes, space.bound), (3000 * 116, 2.0));
        assert!(first.du_bytes >= first.live_bytes && first.value_bytes.is_some());
        assert!(space.ratio_max >= 1.0 && first.operations > 0);
        let written = space.written.expect("counted");
        assert!(written.values >= 1.0 && written.runs > 0.0, "{written:?}");
        let most = 2.0 + BESIDE_BYTES_MAX as f64 / first.live_bytes as f64;
        assert!(written.bound_of_values < most, "{written:?}");
    }
    assert_eq!(result.tables().len(), 3 + 2 * 3);
    let unwatched = run(&options(scratch.path(), &workloads[..1])).expect("measured");
    assert_eq!(unwatched.workloads[0].space, None);
}

#[test]
fn every_workload_runs_and_all_that_is_read_is_right() {
    let scratch = tempfile::tempdir().expect("a directory");
    let all = &Workload::ALL[..Workload::OF_YCSB];
    let result = run(&options(scratch.path(), all)).expect("measured");
    assert_eq!(result.workloads.len(), 7);
    for found in &result.workloads {
        assert_eq!((found.operations, found.latency.count), (3000, 3000), "{}", found.workload);
        assert_eq!(found.reads_missing, 0);
        assert!(found.cpu_us_per_operation > 0.0 && found.throughput_ops_s > 0.0);
        assert!(found.generator_cpu_us_per_operation < found.cpu_us_per_operation);
        assert!(found.resident_bytes_max >= found.anonymous_bytes_max);
    }
    let load = &result.workloads[0];
    assert_eq!((load.user_bytes, load.kinds[0].kind), (3000 * 116, "insert"));
    let scans = result.workloads.iter().find(|it| it.workload == Workload::E).expect("ran");
    let scanned = scans.records_scanned as f64 / scans.kinds[1].latency.count as f64;
    assert!((30.0..60.0).contains(&scanned), "{scanned} records a scan");
    // Workloads D and E insert.
    assert!(result.keys_read_back.is_some_and(|keys| (3250..3350).contains(&keys)));
    assert!(!files::exists(&scratch.path().join("store")), "it is removed");
}

#[test]
fn readers_of_several_stores_beside_a_writer_find_what_was_written() {
    let scratch = tempfile::tempdir().expect("a directory");
    let options = options(scratch.path(), &[Workload::Load, Workload::Read]);
    let options = YcsbOptions {
        shards: 3,
        writer_ops_s: Some(50_000.0),
        // So many take long enough for the writer to begin, whatever runs beside.
        operations: 300_000,
        keep: true,
        ..options
    };
    let result = run(&options).expect("measured");
    let (load, read) = (&result.workloads[0], &result.workloads[1]);
    assert!(load.writer.is_none() && load.volumes.len() == 3);
    let writer = read.writer.as_ref().expect("it wrote");
    assert!(writer.operations > 0 && writer.latency.count == writer.operations, "{writer:?}");
    assert_eq!(read.user_bytes, writer.operations * 116);
    assert_eq!((read.operations, read.latency.count, read.kinds.len()), (300_000, 300_000, 1));
    assert_eq!((read.reads_missing, result.keys_read_back), (0, Some(3000)));
    for shard in ["shard-0", "shard-1", "shard-2"] {
        let bytes = files::tree_bytes(&options.directory.join(shard)).expect("a shard");
        assert!(bytes > 3000 * 116 / 6, "{shard} has {bytes} of the keys");
    }
    let refused = |options: YcsbOptions| run(&options).expect_err("refused").is_usage();
    assert!(refused(YcsbOptions { shards: 0, ..options.clone() }));
    assert!(refused(YcsbOptions { workloads: vec![Workload::E], ..options.clone() }));
    assert!(refused(YcsbOptions { writer_ops_s: Some(0.0), ..options.clone() }));
    let fewer = YcsbOptions { workloads: vec![Workload::Read], shards: 2, ..options };
    let error = run(&fewer).expect_err("two of three shards have not all keys");
    assert!(error.is_usage() && error.to_string().contains("more than 2 shards"), "{error}");
}

#[test]
fn scans_have_as_many_records_as_are_asked_for() {
    let scratch = tempfile::tempdir().expect("a directory");
    let options = options(scratch.path(), &[Workload::Load, Workload::E]);
    // The number is so small that hardly any scan reaches the end of the keys.
    let options = YcsbOptions { scan_records: Some(7), ..options };
    let result = run(&options).expect("measured");
    let (found, scans) = (&result.workloads[1], result.workloads[1].kinds[1].latency.count);
    assert!((scans * 7 - 70..=scans * 7).contains(&found.records_scanned), "{found:?}");
    assert_eq!(result.scan_records, Some(7));
}

#[test]
fn flushes_count_as_writes_of_the_workload_that_filled_the_memtables() {
    let scratch = tempfile::tempdir().expect("a directory");
    let options = YcsbOptions {
        keys: 60_000,
        operations: 500,
        generation_bytes: Some(ByteSize::mib(1)),
        ..options(scratch.path(), &[Workload::Load, Workload::E])
    };
    let result = run(&options).expect("measured");
    let [load, scans] = &result.workloads[..] else { panic!("{result:?}") };
    let flushed = |found: &WorkloadResult| found.volumes[0].written.flush_bytes;
    // Values lie inside the runs, but for what the last memtable holds.
    assert!(flushed(load) > load.user_bytes - (2 << 20), "{load:?}");
    assert!(scans.user_bytes > 1000, "keys were inserted: {scans:?}");
    assert_eq!(flushed(scans), 0, "{scans:?}");
}

#[test]
fn mixgraph_has_values_and_scans_of_its_own() {
    let scratch = tempfile::tempdir().expect("a directory");
    let options = options(scratch.path(), &[Workload::Load, Workload::Mixgraph]);
    let result = run(&YcsbOptions { key_bytes: 48, settle: true, ..options }).expect("measured");
    let (load, mixed) = (&result.workloads[0], &result.workloads[1]);
    let value_bytes = load.user_bytes as f64 / 3000.0 - 48.0;
    assert!((33.0..42.0).contains(&value_bytes), "{value_bytes}");
    assert_eq!(mixed.kinds.len(), 3);
    assert!(mixed.records_scanned > 100);
}

#[test]
fn what_is_kept_is_used_again_in_an_open_loop() {
    let scratch = tempfile::tempdir().expect("a directory");
    let keep = YcsbOptions { keep: true, ..options(scratch.path(), &[Workload::Load]) };
    run(&keep).expect("loaded");
    assert!(matches!(run(&keep), Err(BenchError::Usage(_))), "it is there already");
    let duration = Some(Duration::from_millis(300));
    let rate_ops_s = Some(2000.0);
    let open = YcsbOptions { duration, rate_ops_s, workloads: vec![Workload::B], ..keep };
    let result = run(&open).expect("measured");
    let found = &result.workloads[0];
    assert!((300..1000).contains(&found.operations), "{} of 600", found.operations);
    assert!(found.begun_late_p99_us.is_some() && found.duration_s < 3.0);
    assert!(files::exists(&open.directory), "what it did not make it does not remove");
}

#[test]
fn on_what_it_was_measured_is_said() {
    let scratch = tempfile::tempdir().expect("a directory");
    let on_a_disk = options(scratch.path(), &[Workload::Load, Workload::A]);
    assert_eq!(run(&on_a_disk).expect("measured").medium, "file");
    let pmem = Some(PmemMode { assume_dax: true });
    let result = run(&YcsbOptions { pmem, ..on_a_disk }).expect("measured");
    // A directory for temporary files may be on persistent memory as well.
    assert!(result.medium.ends_with("pmem"), "{}", result.medium);
    assert!(result.tables()[0].to_string().contains("pmem"));
}

fn capacity(scratch: &Path, fast_bytes_max: Option<ByteSize>) -> Option<Capacity> {
    Some(Capacity { directory: scratch.join("capacity"), model: None, fast_bytes_max })
}

#[test]
fn what_was_written_to_each_of_two_volumes_is_told() {
    let scratch = tempfile::tempdir().expect("a directory");
    let aging = "new-keys=staging,new-values=staging,old-keys=staging,old-values=capacity";
    let volumes = YcsbOptions {
        capacity: capacity(scratch.path(), None),
        policy: Some(aging.parse().expect("a policy")),
        value_bytes: 1000,
        settle: true,
        hot_share: Some(0.25),
        ..options(scratch.path(), &[Workload::Load, Workload::C])
    };
    let result = run(&volumes).expect("measured");
    let [load, reads] = &result.workloads[..] else { panic!("{result:?}") };
    let [fast, slow] = &load.volumes[..] else { panic!("{load:?}") };
    assert_eq!((fast.class, slow.class), (MediaClass::Staging, MediaClass::Capacity));
    assert!(fast.written.log_bytes >= load.user_bytes, "{fast:?}");
    let aged = load.user_bytes..load.user_bytes * 12 / 10;
    assert!(aged.contains(&slow.written.demoted_bytes), "{slow:?}");
    assert!(aged.contains(&slow.directory_bytes), "{slow:?}");
    assert_eq!(load.directory_bytes, fast.directory_bytes + slow.directory_bytes);
    assert_eq!(reads.volumes[1].bytes_written, 0, "{reads:?}");
    let tables = result.tables().iter().map(ToString::to_string).collect::<Vec<_>>().join("");
    assert_eq!(result.hot_share, Some(0.25));
    let policy = format!("policy {aging}, hot share 0.25:");
    for part in ["store (staging) and ", policy.as_str(), "each volume"] {
        assert!(tables.contains(part), "{part}: {tables}");
    }
    assert!(result.keys_read_back.is_some());
    for directory in volumes.directories() {
        assert!(!files::exists(directory), "it is removed");
    }
}

#[test]
fn a_store_of_two_volumes_is_kept_and_used_again() {
    let scratch = tempfile::tempdir().expect("a directory");
    let keep = YcsbOptions {
        keep: true,
        capacity: capacity(scratch.path(), Some(ByteSize::gib(1))),
        ..options(scratch.path(), &[Workload::Load])
    };
    let result = run(&keep).expect("loaded");
    let title = result.tables()[0].to_string();
    assert!(title.contains("(staging, at most 1GiB)"), "{title}");
    assert!(title.contains("hot share 0.1:"), "the store's choice is told: {title}");
    let again = YcsbOptions {
        capacity: capacity(scratch.path(), None),
        policy: Some("capacity-only".parse().expect("a policy")),
        settle: true,
        workloads: vec![Workload::A],
        ..keep.clone()
    };
    let result = run(&again).expect("measured");
    let capacity = &result.workloads[0].volumes[1];
    assert!(capacity.written.compaction_bytes > 0, "the keys have moved: {capacity:?}");
    // The second directory is found as well if it is not named.
    run(&YcsbOptions { capacity: None, policy: None, ..again }).expect("measured");
    let wrong = YcsbOptions { workloads: vec![Workload::A], ..keep };
    assert!(run(&wrong).is_err_and(|error| error.is_usage()), "it has its bound");
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let scratch = tempfile::tempdir().expect("a directory");
    let good = options(scratch.path(), &[Workload::Load]);
    let pmem = Some(PmemMode { assume_dax: true });
    let mixgraph = vec![Workload::Load, Workload::Mixgraph];
    let wrong = [
        YcsbOptions { workloads: vec![Workload::A, Workload::Mixgraph], ..good.clone() },
        YcsbOptions { workloads: vec![Workload::A, Workload::Load], ..good.clone() },
        YcsbOptions { value_bytes: 19, ..good.clone() },
        YcsbOptions { pmem, model: Some(ModelName::Nvme9300), ..good.clone() },
        YcsbOptions { pmem, engine: "another", ..good.clone() },
        YcsbOptions { capacity: capacity(scratch.path(), None), engine: "another", ..good.clone() },
        YcsbOptions { policy: Some(Policy::default()), engine: "another", ..good.clone() },
        YcsbOptions { hot_share: Some(0.1), engine: "another", ..good.clone() },
        YcsbOptions { hot_share: Some(0.51), ..good.clone() },
        YcsbOptions { hot_share: Some(f64::NAN), ..good.clone() },
        YcsbOptions { capacity: capacity(&good.directory, None), ..good.clone() },
        YcsbOptions { key_bytes: 7, ..good.clone() },
        YcsbOptions { space_bound: Some(1.0), ..good.clone() },
        YcsbOptions { space_bound: Some(2.0), workloads: mixgraph, ..good.clone() },
        YcsbOptions { threads: 0, ..good.clone() },
        YcsbOptions { scan_records: Some(0), ..good.clone() },
        YcsbOptions { rate_ops_s: Some(0.0), ..good.clone() },
    ];
    for options in wrong {
        assert!(run(&options).is_err_and(|error| error.is_usage()), "{options:?}");
    }
    assert!(!files::exists(&good.directory), "nothing was made");
}

/// Store in memory with a mistake.
#[derive(Default)]
struct Toy {
    map: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    mistake: Option<Mistake>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    Forgets,
    Swaps,
    ScansFromElsewhere,
    ScansOthersValues,
}

impl Engine for Toy {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if self.mistake != Some(Mistake::Forgets) || map.len() < 2000 {
            map.insert(key.to_vec(), value.to_vec());
        }
        Ok(())
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, BenchError> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let swapped = self.mistake == Some(Mistake::Swaps);
        let found = if swapped { map.values().next() } else { map.get(key) };
        Ok(found.map(|value| out.extend_from_slice(value)).is_some())
    }

    fn scan(
        &self,
        from: &[u8],
        most: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), BenchError> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let from = if self.mistake == Some(Mistake::ScansFromElsewhere) { &[][..] } else { from };
        let first = map.values().next().cloned().unwrap_or_default();
        for (key, value) in map.range(from.to_vec()..).take(most) {
            let wrong = self.mistake == Some(Mistake::ScansOthersValues);
            show(key, if wrong { &first } else { value });
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), BenchError> {
        Ok(())
    }

    fn settle(&self) -> Result<(), BenchError> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        Ok(())
    }
}

#[test]
fn a_store_that_answers_wrongly_is_found_out() {
    for (mistake, workload) in [
        (Mistake::Forgets, Workload::C),
        (Mistake::Swaps, Workload::C),
        (Mistake::ScansFromElsewhere, Workload::E),
        (Mistake::ScansOthersValues, Workload::E),
    ] {
        let scratch = tempfile::tempdir().expect("a directory");
        let options = options(scratch.path(), &[Workload::Load, workload]);
        let open = |_: &Opening<'_>| -> Result<Box<dyn Engine>, BenchError> {
            Ok(Box::new(Toy { mistake: Some(mistake), ..Toy::default() }))
        };
        let wrong = run_ycsb(&options, &open, &Progress::hidden());
        assert!(matches!(wrong, Err(BenchError::WrongValue { .. })), "{mistake:?}: {wrong:?}");
    }
}
