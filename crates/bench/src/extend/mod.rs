//! DRAM extension: an application whose data exceed the memory that it may use (Platform storage
//! performance with 3D XPoint, section V-C).
//!
//! Its data lie in a mapped file, which the system pages, or in a cache that reads its file itself.
//! A key-value loop gets random values of 4 KiB; in a mapped file each get counts a reference in
//! its item and moves it in a list by last use, as memcached does. A columnar scan sums one column
//! by another. Time is real, and the drive is that of a directory.

mod items;
mod load;
mod memory;
mod own;
mod paged;
mod report;

use std::path::{Path, PathBuf};
use std::time::Duration;

use entresol_base::ByteSize;
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_measure::statistics::{PairedRatio, Spread, paired_ratio};
use entresol_media::files;
use serde::Serialize;

use items::{Items, Table};
use memory::MemoryLimit;
use own::OwnCache;
use paged::PagedTable;

/// Least number of bytes of data for each byte of memory.
const BEYOND_MIN: u64 = 2;
/// Least size of the data: the segments of a smaller cache have no room for a piece of a column.
const SIZE_MIN: ByteSize = ByteSize::mib(8);
const VALUES: &str = "values";
const COLUMNS_FILE: &str = "columns";
const CACHE: &str = "cache";

/// Options of a measurement.
#[derive(Debug, Clone)]
pub struct ExtendOptions {
    /// New directory for the files, on the drive to measure; it is removed in the end.
    pub directory: PathBuf,
    /// Memory for data. The process may use what the cache takes for its keys and buffers beside
    /// it.
    pub memory: ByteSize,
    /// Bytes of the values, and of the columns as well.
    pub size: ByteSize,
    /// Lets gets of a mapped file write nothing: they neither count references nor move items.
    pub read_only: bool,
    /// Threads of the key-value loop.
    pub threads: usize,
    /// Length of one loop of gets, and at most of one scan.
    pub duration: Duration,
    /// Number of rounds, in each of which every way runs once.
    pub rounds: usize,
    /// Seed of the order of gets.
    pub seed: u64,
}

/// Place of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Mapped file.
    Mapped,
    /// Mapped file whose pages are announced as read in no order (`MADV_RANDOM`).
    MappedRandom,
    /// Cache that reads its file itself, past the page cache.
    Cache,
}

impl Way {
    /// All ways, in the order in which a round runs them.
    pub const ALL: [Way; 3] = [Way::Mapped, Way::MappedRandom, Way::Cache];
}

/// Results of one way over the rounds.
#[derive(Debug, Clone, Serialize)]
pub struct WayResult {
    /// Place of the data.
    pub way: Way,
    /// Gets a second of all threads.
    pub gets_s: Spread,
    /// Median time of a get, in microseconds.
    pub get_us_p50: Spread,
    /// 99th percentile of the time of a get, in microseconds.
    pub get_us_p99: Spread,
    /// Bytes a second that a scan reads.
    pub scan_bytes_s: Spread,
}

/// Results of a measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Extended {
    /// Memory that the process may use.
    pub limit_bytes: u64,
    /// Part of it that the cache may take for keys, metadata and buffers.
    pub cache_dram_bytes: u64,
    /// Way in which memory was limited.
    pub limited_by: &'static str,
    /// Bytes of the values, and of the columns as well.
    pub data_bytes: u64,
    /// True if gets of a mapped file wrote nothing.
    pub read_only: bool,
    /// Threads of the key-value loop.
    pub threads: usize,
    /// Rounds behind each number.
    pub rounds: usize,
    /// Results of each way.
    pub ways: Vec<WayResult>,
    /// Gets of the cache over those of the mapped file that was faster in the same round.
    pub cache_over_mapped: Option<PairedRatio>,
    /// Bytes that the cache scans over those of the mapped file that was faster.
    pub cache_over_mapped_scan: Option<PairedRatio>,
}

/// Numbers of one way in one round.
#[derive(Debug, Clone, Copy)]
struct Sample {
    gets_s: f64,
    us_p50: f64,
    us_p99: f64,
    scan_bytes_s: f64,
}

impl ExtendOptions {
    fn check(&self) -> Result<(), BenchError> {
        let usage = |what: String| Err(BenchError::Usage(what));
        if self.threads == 0 || self.rounds == 0 || self.duration.is_zero() {
            return usage("give at least one thread, one round and some time".to_owned());
        }
        if self.size < SIZE_MIN {
            return usage(format!("{} of data are too few: take {SIZE_MIN} or more", self.size));
        }
        if self.size.0 < self.memory.0.saturating_mul(BEYOND_MIN) {
            let (size, memory) = (self.size, self.memory);
            return usage(format!("{size} of data do not exceed {memory} of memory twice"));
        }
        if files::exists(&self.directory) {
            let directory = self.directory.display();
            return usage(format!("{directory} exists: name a new directory"));
        }
        Ok(())
    }

    fn values(&self) -> Items {
        Items::values(self.size, !self.read_only)
    }

    fn pieces(&self) -> Items {
        Items::pieces(self.size)
    }
}

/// Returns the number of steps of a measurement.
#[must_use]
pub fn extend_steps(options: &ExtendOptions) -> u64 {
    (options.rounds * Way::ALL.len()) as u64
}

/// Measures all ways in alternating rounds, while the memory of this process is limited. An
/// interrupted measurement has the results of its whole rounds.
///
/// # Errors
/// Fails if the memory of this process cannot be limited, if the data do not exceed it, if files of
/// the directory cannot be made, or if an item that is read is not the one that was written.
pub fn run_extend(options: &ExtendOptions, progress: &Progress) -> Result<Extended, BenchError> {
    options.check()?;
    let dram = OwnCache::dram(&[options.values(), options.pieces()]);
    let limit = MemoryLimit::enter(ByteSize(options.memory.0 + dram.0))?;
    let samples = measured(options, progress)?;
    let of = |way: usize, number: fn(&Sample) -> f64| -> Vec<f64> {
        samples.iter().map(|round| number(&round[way])).collect()
    };
    let result = |(at, way): (usize, Way)| WayResult {
        way,
        gets_s: Spread::of(&of(at, |it| it.gets_s)),
        get_us_p50: Spread::of(&of(at, |it| it.us_p50)),
        get_us_p99: Spread::of(&of(at, |it| it.us_p99)),
        scan_bytes_s: Spread::of(&of(at, |it| it.scan_bytes_s)),
    };
    let ratio = |number: fn(&Sample) -> f64| {
        let pair = |[mapped, random, cache]: &[Sample; 3]| {
            (number(cache), number(mapped).max(number(random)))
        };
        let pairs: Vec<(f64, f64)> = samples.iter().map(pair).collect();
        paired_ratio(&pairs, options.seed)
    };
    Ok(Extended {
        limit_bytes: limit.bytes.0,
        cache_dram_bytes: dram.0,
        limited_by: limit.how(),
        data_bytes: options.size.0,
        read_only: options.read_only,
        threads: options.threads,
        rounds: samples.len(),
        ways: Way::ALL.into_iter().enumerate().map(result).collect(),
        cache_over_mapped: ratio(|it| it.gets_s),
        cache_over_mapped_scan: ratio(|it| it.scan_bytes_s),
    })
}

/// Runs the rounds and returns what each way had in each whole one.
fn measured(options: &ExtendOptions, progress: &Progress) -> Result<Vec<[Sample; 3]>, BenchError> {
    let data = Data::make(options, progress)?;
    if progress.is_stopped() {
        return Err(BenchError::Interrupted { has_results: false });
    }
    let mut samples = Vec::new();
    'rounds: for round in 0..options.rounds {
        let mut of_round = Vec::new();
        for way in Way::ALL {
            progress.say(&format!("round {}: {}", round + 1, way.text()));
            let sample = data.sample(way, round, options, progress)?;
            if progress.is_stopped() {
                break 'rounds;
            }
            of_round.push(sample);
            progress.advance(1);
        }
        samples.extend(<[Sample; 3]>::try_from(of_round));
    }
    if samples.is_empty() {
        return Err(BenchError::Interrupted { has_results: false });
    }
    Ok(samples)
}

/// Files of the data in a directory of their own, which is removed on drop.
struct Data {
    values: Items,
    pieces: Items,
    cache: OwnCache,
    /// Dropped last, once the cache has ended and removed its file.
    directory: NewDirectory,
}

struct NewDirectory(PathBuf);

impl NewDirectory {
    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        // If this fails, the directory remains.
        let _ = files::remove_tree(&self.0);
    }
}

impl Data {
    fn make(options: &ExtendOptions, progress: &Progress) -> Result<Data, BenchError> {
        let path: &Path = &options.directory;
        let failed = |source| BenchError::File { path: path.to_owned(), source };
        files::create_directories(path).map_err(failed)?;
        let directory = NewDirectory(path.to_owned());
        let (values, pieces) = (options.values(), options.pieces());
        progress.say("writing the mapped files");
        PagedTable::make(&directory.file(VALUES), values, options.seed)?;
        PagedTable::make(&directory.file(COLUMNS_FILE), pieces, options.seed)?;
        progress.say("filling the cache");
        let file = directory.file(CACHE);
        let cache = OwnCache::make(&file, &[values, pieces], options.threads, progress.stop())?;
        Ok(Data { values, pieces, cache, directory })
    }

    fn open(&self, way: Way, items: Items) -> Result<Box<dyn Table + '_>, BenchError> {
        let name = if items == self.values { VALUES } else { COLUMNS_FILE };
        let mapped = |in_no_order| {
            PagedTable::open(&self.directory.file(name), items, in_no_order)
                .map(|table| Box::new(table) as Box<dyn Table>)
        };
        match way {
            Way::Mapped => mapped(false),
            Way::MappedRandom => mapped(true),
            Way::Cache => Ok(Box::new(self.cache.table(items))),
        }
    }

    /// Runs both loops on one way. In a round all ways get the items in the same order.
    fn sample(
        &self,
        way: Way,
        round: usize,
        options: &ExtendOptions,
        progress: &Progress,
    ) -> Result<Sample, BenchError> {
        let time = options.duration;
        let seed = |number: usize| {
            options
                .seed
                .wrapping_mul(1 << 32)
                .wrapping_add((round * (options.threads + 1) + number) as u64)
        };
        let seeds: Vec<u64> = (1..=options.threads).map(seed).collect();
        let got = {
            let table = self.open(way, self.values)?;
            load::gets(table.as_ref(), self.values, time, &seeds, progress.stop())?
        };
        let table = self.open(way, self.pieces)?;
        Ok(Sample {
            gets_s: got.per_second,
            us_p50: got.times.percentile_us(50.0),
            us_p99: got.times.percentile_us(99.0),
            scan_bytes_s: load::scan(table.as_ref(), self.pieces, time, seed(0))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(directory: PathBuf) -> ExtendOptions {
        ExtendOptions {
            directory,
            memory: ByteSize::mib(2),
            size: SIZE_MIN,
            read_only: false,
            threads: 2,
            duration: Duration::from_millis(20),
            rounds: 2,
            seed: 1,
        }
    }

    #[test]
    fn every_way_reads_what_was_written_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a directory");
        for read_only in [false, true] {
            let options = ExtendOptions { read_only, ..options(folder.path().join("made")) };
            let data = Data::make(&options, &Progress::hidden()).expect("files");
            let (mut out, mut sums) = (Vec::new(), Vec::new());
            for way in Way::ALL {
                let values = data.open(way, data.values).expect("values");
                let mut hand = values.hand();
                for item in 0..data.values.count {
                    hand.get(item, &mut out).expect("the item that was written");
                }
                let pieces = data.open(way, data.pieces).expect("columns");
                let sum = |first| load::sum(pieces.as_ref(), data.pieces, first, Duration::MAX);
                sums.extend([sum(0).expect("a scan"), sum(7).expect("a scan")]);
            }
            assert_eq!(sums[0].bytes, 4 << 20, "two columns of four");
            assert!(sums.iter().all(|sum| *sum == sums[0]), "all ways sum alike: {sums:?}");
            drop(data);
            assert!(!files::exists(&options.directory));
        }
    }

    #[test]
    fn each_whole_round_yields_a_number_of_each_way() {
        let folder = tempfile::tempdir().expect("a directory");
        let options = options(folder.path().join("made"));
        let samples = measured(&options, &Progress::hidden()).expect("rounds");
        assert_eq!(samples.len(), 2);
        let all = samples.iter().flatten();
        assert!(all.clone().all(|it| it.gets_s > 0.0 && it.scan_bytes_s > 0.0), "{samples:?}");
        assert!(all.clone().all(|it| it.us_p99 >= it.us_p50), "{samples:?}");
        assert!(!files::exists(&options.directory));
    }

    #[test]
    fn data_that_fit_the_memory_are_refused_before_anything_is_made() {
        let folder = tempfile::tempdir().expect("a directory");
        let memory = ByteSize::mib(5);
        let options = ExtendOptions { memory, ..options(folder.path().join("made")) };
        let refused = run_extend(&options, &Progress::hidden()).expect_err("less than twice");
        assert!(refused.is_usage() && refused.to_string().contains("exceed"), "{refused}");
        assert!(!files::exists(&options.directory));
    }
}
