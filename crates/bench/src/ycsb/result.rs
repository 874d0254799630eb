//! What was measured, as it is printed with `--json`.

use std::time::Duration;

use entresol_base::histogram::Histogram;
use entresol_store::{KvdbOptions, MediaClass, WrittenBytes};
use serde::Serialize;

use super::worker::Tally;
use super::workload::Kind;
use super::{Workload, YcsbOptions};
use crate::load::LatencySummary;
use crate::process::Resident;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct YcsbResult {
    /// The store.
    pub engine: &'static str,
    /// Where it was.
    pub directory: String,
    /// What it was on: `file`, `pmem` or `emulated pmem`.
    pub medium: &'static str,
    /// The drive that the directory was slowed to.
    pub model: Option<String>,
    /// The place of the class capacity, if there was one beside the directory.
    pub capacity: Option<CapacityResult>,
    /// The policy of keys and values, if one was given.
    pub policy: Option<String>,
    /// The share of a class that values might take because they were read often, if there were
    /// several classes or it was given.
    pub hot_share: Option<f64>,
    /// Keys that were loaded.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value; none if they were drawn.
    pub value_bytes: Option<usize>,
    /// Records of each scan of `e`; none if they were drawn.
    pub scan_records: Option<usize>,
    /// Threads that worked at once.
    pub threads: usize,
    /// `closed` or `open`.
    pub r#loop: &'static str,
    /// Bytes of the store's cache, if they were given.
    pub cache_bytes: Option<u64>,
    /// Bytes of memory that our store might take, if they were given.
    pub memory_bytes: Option<u64>,
    /// Opening or creating the store took so long.
    pub open_s: f64,
    /// Closing it took so long.
    pub close_s: f64,
    /// The workloads, in their order.
    pub workloads: Vec<WorkloadResult>,
    /// Keys that were read and checked after reopening, if that was asked for.
    pub keys_read_back: Option<u64>,
}

/// The place of the class capacity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CapacityResult {
    /// Where it was.
    pub directory: String,
    /// The drive that it was slowed to.
    pub model: Option<String>,
    /// The class of the other place.
    pub fast_class: MediaClass,
    /// The most bytes that the store took in the other place.
    pub fast_bytes_max: Option<u64>,
}

/// One workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkloadResult {
    /// Which.
    pub workload: Workload,
    /// Operations done.
    pub operations: u64,
    /// From the first to the end of the last.
    pub duration_s: f64,
    /// As before, and until all was durable, and merged if that was asked for.
    pub duration_with_sync_s: f64,
    /// Operations a second.
    pub throughput_ops_s: f64,
    /// Operations due a second (open loop).
    pub offered_ops_s: Option<f64>,
    /// Times of all operations, in an open loop from when each was due.
    pub latency: LatencySummary,
    /// The same by kind of operation, of those that there were.
    pub kinds: Vec<KindResult>,
    /// Open loop: how late operations were begun, 99th percentile.
    pub begun_late_p99_us: Option<f64>,
    /// Reads of keys that were not there.
    pub reads_missing: u64,
    /// Records that scans showed.
    pub records_scanned: u64,
    /// Processor time of all threads of the process, those of the store included.
    pub cpu_s: f64,
    /// The same for each operation.
    pub cpu_us_per_operation: f64,
    /// Of it the generator's: the same operations without a store.
    pub generator_cpu_us_per_operation: f64,
    /// Bytes of keys and values that were put.
    pub user_bytes: u64,
    /// Bytes that the kernel counts as written; none on file systems that are not counted.
    pub bytes_written: Option<u64>,
    /// Bytes written for each byte of a key or value that was put.
    pub bytes_written_per_user_byte: Option<f64>,
    /// The most memory that was resident, files' pages included.
    pub resident_bytes_max: u64,
    /// The most memory that was resident and no file's.
    pub anonymous_bytes_max: u64,
    /// Bytes that the store's files take at the end.
    pub directory_bytes: u64,
    /// Each of the store's volumes; none if the store does not tell.
    pub volumes: Vec<VolumeResult>,
}

/// What one workload has done to one of the store's volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VolumeResult {
    /// Its class of media.
    pub class: MediaClass,
    /// Its directory.
    pub directory: String,
    /// Bytes that were written to it, as the store counts them.
    pub bytes_written: u64,
    /// The same by their causes.
    pub written: WrittenBytes,
    /// Bytes that the store's files take there at the end.
    pub directory_bytes: u64,
}

/// One kind of operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindResult {
    /// Which.
    pub kind: &'static str,
    /// How long they took.
    pub latency: LatencySummary,
}

/// What the kernel and the clock say of a workload.
#[derive(Debug, Clone)]
pub(super) struct Counted {
    pub(super) duration: Duration,
    pub(super) with_settling: Duration,
    pub(super) cpu_ns: u64,
    pub(super) generator_cpu_ns: f64,
    pub(super) bytes_written: Option<u64>,
    pub(super) memory: Resident,
    pub(super) directory_bytes: u64,
    pub(super) volumes: Vec<VolumeResult>,
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
            cache_bytes: options.cache_bytes.map(|bytes| bytes.0),
            memory_bytes: options.memory_bytes.map(|bytes| bytes.0),
            open_s,
            close_s,
            workloads,
            keys_read_back,
        }
    }
}
