//! Results of a run, as `--json` prints them.

use std::time::Duration;

use entresol_base::histogram::Histogram;
use entresol_measure::process::Resident;
use entresol_measure::ycsb::Kind;
use entresol_store::{KvdbOptions, MediaClass, WrittenBytes};
use serde::Serialize;

use super::space::SpaceResult;
use super::worker::Tally;
use super::{Workload, YcsbOptions};
use crate::load::LatencySummary;

/// Results of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct YcsbResult {
    /// Name of the store.
    pub engine: &'static str,
    /// Directory of the store.
    pub directory: String,
    /// Kind of the medium: `file`, `pmem` or `emulated pmem`.
    pub medium: &'static str,
    /// Drive that the directory was slowed down to.
    pub model: Option<String>,
    /// Volume of the class capacity, if there was one beside the directory.
    pub capacity: Option<CapacityResult>,
    /// Policy of keys and values, if one was given.
    pub policy: Option<String>,
    /// Share of a class that values might use because they were read often; set if it was given or
    /// there were several classes.
    pub hot_share: Option<f64>,
    /// Keys that were loaded.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value; `None` if sizes were drawn.
    pub value_bytes: Option<usize>,
    /// Records of each scan of `e`; `None` if numbers were drawn.
    pub scan_records: Option<usize>,
    /// Concurrent threads.
    pub threads: usize,
    /// Kind of loop: `closed` or `open`.
    pub r#loop: &'static str,
    /// Stores in directories of their own, to one of which each key belongs.
    pub shards: usize,
    /// Bytes of the store's cache, if given.
    pub cache_bytes: Option<u64>,
    /// Bytes of memory that our store might use, if given.
    pub memory_bytes: Option<u64>,
    /// Seconds to open or create the store.
    pub open_s: f64,
    /// Seconds to close the store.
    pub close_s: f64,
    /// Results of the workloads, in order.
    pub workloads: Vec<WorkloadResult>,
    /// Keys that were read and checked after reopening, if requested.
    pub keys_read_back: Option<u64>,
}

impl YcsbResult {
    /// Returns true if this many keys were loaded, or none were to be.
    pub(super) fn is_loaded(&self, keys: u64) -> bool {
        let load = self.workloads.iter().find(|it| it.workload == Workload::Load);
        load.is_none_or(|load| load.operations >= keys)
    }
}

/// Volume of the class capacity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CapacityResult {
    /// Directory of the volume.
    pub directory: String,
    /// Drive that the directory was slowed down to.
    pub model: Option<String>,
    /// Class of the other volume.
    pub fast_class: MediaClass,
    /// Largest number of bytes that the store used on the other volume.
    pub fast_bytes_max: Option<u64>,
}

/// Results of one workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkloadResult {
    /// Workload of the results.
    pub workload: Workload,
    /// Operations performed.
    pub operations: u64,
    /// Seconds from the first operation to the end of the last.
    pub duration_s: f64,
    /// Seconds until all writes were durable as well, and compacted if requested.
    pub duration_with_sync_s: f64,
    /// Operations per second.
    pub throughput_ops_s: f64,
    /// Operations due per second (open loop).
    pub offered_ops_s: Option<f64>,
    /// Times of all operations; in an open loop, they count from the due time.
    pub latency: LatencySummary,
    /// Times by kind of operation, for the kinds that occurred.
    pub kinds: Vec<KindResult>,
    /// 99th percentile of the delay until an operation was begun (open loop).
    pub begun_late_p99_us: Option<f64>,
    /// Reads of keys that were missing.
    pub reads_missing: u64,
    /// Records that scans visited.
    pub records_scanned: u64,
    /// Processor time of all threads of the process, including those of the store.
    pub cpu_s: f64,
    /// Processor time for each operation.
    pub cpu_us_per_operation: f64,
    /// Processor time of the generator for each operation, measured without a store.
    pub generator_cpu_us_per_operation: f64,
    /// Time of all processors together that a host gave to others while this machine wanted it.
    /// Longest times grow with it.
    pub stolen_s: f64,
    /// Bytes of keys and values that were put.
    pub user_bytes: u64,
    /// Bytes written by the kernel's count; `None` on file systems that are not counted.
    pub bytes_written: Option<u64>,
    /// Bytes written for each byte of a key or value that was put.
    pub bytes_written_per_user_byte: Option<f64>,
    /// Largest resident memory, pages of files included.
    pub resident_bytes_max: u64,
    /// Largest resident memory without pages of files.
    pub anonymous_bytes_max: u64,
    /// Size of the store's files at the end.
    pub directory_bytes: u64,
    /// Results of the store's volumes; empty if the store does not count them.
    pub volumes: Vec<VolumeResult>,
    /// Space that the directories took beside what was live, if it was watched.
    pub space: Option<SpaceResult>,
    /// Results of the writer beside the workload, which count nowhere else but in bytes and
    /// processor time.
    pub writer: Option<WriterResult>,
}

/// Results of the writer beside a workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WriterResult {
    /// Writes performed.
    pub operations: u64,
    /// Writes due per second.
    pub offered_ops_s: f64,
    /// Writes performed per second.
    pub throughput_ops_s: f64,
    /// Times from when a write was due.
    pub latency: LatencySummary,
}

/// Effect of one workload on one of the store's volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VolumeResult {
    /// Class of the volume.
    pub class: MediaClass,
    /// Directory of the volume.
    pub directory: String,
    /// Bytes written to the volume, as the store counts them.
    pub bytes_written: u64,
    /// Bytes written, by cause.
    pub written: WrittenBytes,
    /// Size of the store's files on the volume at the end.
    pub directory_bytes: u64,
}

/// Results of one kind of operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindResult {
    /// Name of the kind.
    pub kind: &'static str,
    /// Times of these operations.
    pub latency: LatencySummary,
}

/// Counts of the kernel and the clock for a workload.
#[derive(Debug, Clone)]
pub(super) struct Counted {
    pub(super) duration: Duration,
    pub(super) with_settling: Duration,
    pub(super) cpu_ns: u64,
    pub(super) generator_cpu_ns: f64,
    pub(super) stolen_ns: u64,
    pub(super) bytes_written: Option<u64>,
    pub(super) memory: Resident,
    pub(super) directory_bytes: u64,
    pub(super) volumes: Vec<VolumeResult>,
    pub(super) space: Option<SpaceResult>,
    pub(super) writer: Option<Tally>,
}

impl WorkloadResult {
    pub(super) fn new(
        options: &YcsbOptions,
        workload: Workload,
        tally: &Tally,
        counted: Counted,
    ) -> WorkloadResult {
        let mut all = Histogram::new();
        tally.times.iter().for_each(|times| all.merge(times));
        let kinds = Kind::ALL.into_iter().zip(&tally.times).filter(|(_, times)| times.count() > 0);
        let kinds = kinds.map(|(kind, times)| KindResult {
            kind: kind.name(),
            latency: LatencySummary::of(times),
        });
        let operations = tally.operations.max(1) as f64;
        let seconds = counted.duration.as_secs_f64();
        let amplification = |bytes: u64| bytes as f64 / tally.user_bytes as f64;
        WorkloadResult {
            workload,
            operations: tally.operations,
            duration_s: seconds,
            duration_with_sync_s: counted.with_settling.as_secs_f64(),
            throughput_ops_s: tally.operations as f64 / seconds.max(1e-9),
            offered_ops_s: options.rate_ops_s,
            latency: LatencySummary::of(&all),
            kinds: kinds.collect(),
            begun_late_p99_us: options.rate_ops_s.map(|_| tally.late.percentile_us(99.0)),
            reads_missing: tally.missing,
            records_scanned: tally.scanned,
            cpu_s: counted.cpu_ns as f64 / 1e9,
            cpu_us_per_operation: counted.cpu_ns as f64 / 1e3 / operations,
            generator_cpu_us_per_operation: counted.generator_cpu_ns / 1e3,
            stolen_s: counted.stolen_ns as f64 / 1e9,
            user_bytes: tally.user_bytes,
            bytes_written: counted.bytes_written,
            bytes_written_per_user_byte: match tally.user_bytes {
                0 => None,
                _ => counted.bytes_written.map(amplification),
            },
            resident_bytes_max: counted.memory.all_bytes,
            anonymous_bytes_max: counted.memory.anonymous_bytes,
            directory_bytes: counted.directory_bytes,
            volumes: counted.volumes,
            space: counted.space,
            writer: counted.writer.zip(options.writer_ops_s).map(|(tally, offered_ops_s)| {
                WriterResult {
                    operations: tally.operations,
                    offered_ops_s,
                    throughput_ops_s: tally.operations as f64 / seconds.max(1e-9),
                    latency: LatencySummary::of(&tally.times[Kind::Update as usize]),
                }
            }),
        }
    }
}

impl YcsbResult {
    pub(super) fn new(
        options: &YcsbOptions,
        medium: &'static str,
        (open_s, close_s): (f64, f64),
        workloads: Vec<WorkloadResult>,
        keys_read_back: Option<u64>,
    ) -> YcsbResult {
        YcsbResult {
            engine: options.engine,
            directory: options.directory.display().to_string(),
            medium,
            model: options.model.map(|model| model.to_string()),
            capacity: options.capacity.as_ref().map(|capacity| CapacityResult {
                directory: capacity.directory.display().to_string(),
                model: capacity.model.map(|model| model.to_string()),
                fast_class: options.fast_class(),
                fast_bytes_max: capacity.fast_bytes_max.map(|bytes| bytes.0),
            }),
            policy: options.policy.map(|policy| policy.to_string()),
            hot_share: options
                .hot_share
                .or_else(|| options.capacity.as_ref().map(|_| KvdbOptions::default().hot_share)),
            keys: options.keys,
            key_bytes: options.key_bytes,
            value_bytes: (!options.is_mixgraph()).then_some(options.value_bytes),
            scan_records: options.scan_records,
            threads: options.threads,
            r#loop: if options.rate_ops_s.is_some() { "open" } else { "closed" },
            shards: options.shards,
            cache_bytes: options.cache_bytes.map(|bytes| bytes.0),
            memory_bytes: options.memory_bytes.map(|bytes| bytes.0),
            open_s,
            close_s,
            workloads,
            keys_read_back,
        }
    }
}
