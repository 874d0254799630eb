//! Measures the cost of appending records to a mapped file that another thread persists every 100
//! ms: the processor time of both per record, page faults included.
//!
//! `mapped_log DIRECTORY RECORD_BYTES RECORDS_PER_S` makes a file of 64 MiB in the directory and
//! fills it three times: new, reused, and once more through the same mapping without persists,
//! which measures copying alone. The file is removed.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use entresol_base::clock::{Clock, Nanos, SystemClock};
use entresol_media::{Directory, LocalDirectory, MapOptions, MappedFile};
use rustix::time::{ClockId, clock_gettime};

const FILE_BYTES: u64 = 64 << 20;
const NAME: &str = "mapped-log-trial";
const INTERVAL: Duration = Duration::from_millis(100);
/// Number of records after which the writer checks its pace.
const BATCH: u64 = 1000;

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, bytes, rate] = arguments.as_slice() else {
        return Err("usage: mapped_log DIRECTORY RECORD_BYTES RECORDS_PER_S".into());
    };
    let (bytes, rate) = (bytes.parse()?, rate.parse()?);
    if !(1..=1 << 20).contains(&bytes) || !(1..=1_000_000_000).contains(&rate) {
        return Err(
            "records have 1 byte to 1 MiB, and 1 to a thousand million come a second".into()
        );
    }
    let directory = LocalDirectory::open_existing(Path::new(directory))?;
    let trials = try_all(&directory, bytes, rate);
    let removed = directory.remove(NAME);
    trials?;
    Ok(removed?)
}

fn try_all(directory: &LocalDirectory, bytes: usize, rate: u64) -> Result<(), Error> {
    let options = MapOptions { create: Some(FILE_BYTES), ..MapOptions::default() };
    for state in ["new", "used again"] {
        let file = directory.map_file(NAME, &options)?;
        report(state, &append(&file, bytes, rate, true)?)?;
    }
    let file = directory.map_file(NAME, &options)?;
    append(&file, bytes, rate, false)?;
    report("in memory", &append(&file, bytes, rate, false)?)
}

/// Processor time of the threads.
struct Spent {
    records: u64,
    writing_ns: u64,
    persisting_ns: u64,
    persists: Vec<Duration>,
}

fn report(state: &str, spent: &Spent) -> Result<(), Error> {
    let each = |ns: u64| ns as f64 / spent.records as f64;
    let (writing, persisting) = (each(spent.writing_ns), each(spent.persisting_ns));
    let longest = spent.persists.iter().max().copied().unwrap_or_default();
    let count = spent.persists.len();
    let line = format!(
        "{state:10} {writing:6.1} ns to write, {persisting:6.1} ns to persist; {count} persists, \
         {longest:.1?} the longest"
    );
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

/// Fills the file with records at this rate.
fn append(
    file: &Arc<dyn MappedFile>,
    bytes: usize,
    rate: u64,
    persists: bool,
) -> Result<Spent, Error> {
    let (written, over) = (AtomicU64::new(0), AtomicBool::new(!persists));
    let (clock, records) = (SystemClock::new(), file.len() / bytes as u64);
    std::thread::scope(|scope| {
        let persisting = scope.spawn(|| persist(file, &written, &over, &clock));
        let record = vec![7; bytes];
        let (begun, mut writing_ns) = (clock.now(), 0);
        for first in (0..records).step_by(BATCH as usize) {
            let before = processor_ns();
            for number in first..(first + BATCH).min(records) {
                file.write(number * bytes as u64, &record);
                written.store((number + 1) * bytes as u64, Ordering::Release);
            }
            writing_ns += processor_ns() - before;
            let due = Nanos(begun.0 + (first + BATCH) * 1_000_000_000 / rate);
            std::thread::sleep(due.since(clock.now()));
        }
        over.store(true, Ordering::Release);
        let (persisting_ns, persists) =
            persisting.join().map_err(|_| "the thread that persists panicked")??;
        Ok(Spent { records, writing_ns, persisting_ns, persists })
    })
}

/// Persists new bytes again and again; returns the processor time and the duration of each persist.
fn persist(
    file: &Arc<dyn MappedFile>,
    written: &AtomicU64,
    over: &AtomicBool,
    clock: &SystemClock,
) -> std::io::Result<(u64, Vec<Duration>)> {
    let (before, mut durable, mut took) = (processor_ns(), 0, Vec::new());
    while !over.load(Ordering::Acquire) {
        std::thread::sleep(INTERVAL);
        let (end, begun) = (written.load(Ordering::Acquire), clock.now());
        file.persist(durable, end - durable)?;
        durable = end;
        took.push(clock.now().since(begun));
    }
    Ok((processor_ns() - before, took))
}

fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
