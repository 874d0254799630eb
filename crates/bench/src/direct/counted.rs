//! Loop for counting instructions: two runs that differ only in their number of operations differ
//! by exactly these operations.

use std::str::FromStr;
use std::sync::Arc;

use entresol_base::{ByteSize, Clock, Seconds, clock::ManualClock};
use entresol_cache::{Cache, Config};
use entresol_measure::BenchError;
use entresol_measure::values::KeyMaker;

use super::cache_error;
use super::subjects::{Batch, CacheSubject, Subject};

/// Number of objects: few enough to start quickly under an instrument, but more than one segment.
const OBJECTS: u64 = 20_000;
const KEY_BYTES: usize = 16;
const BATCH: usize = 16;

/// Operation that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedOperation {
    /// Get that hits.
    Get,
    /// Get that misses.
    GetMiss,
    /// Get in a prefetched batch of sixteen.
    GetBatched,
    /// Set of an existing key, with a value of the same size.
    Set,
}

impl FromStr for CountedOperation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "get" => Ok(CountedOperation::Get),
            "get-miss" => Ok(CountedOperation::GetMiss),
            "get-batched" => Ok(CountedOperation::GetBatched),
            "set" => Ok(CountedOperation::Set),
            _ => Err(format!("'{text}': write get, get-miss, get-batched or set")),
        }
    }
}

/// Fills a cache and performs `operations` operations of one kind. The clock stands still and the
/// seeds are constant.
///
/// # Errors
/// Fails if the cache cannot be opened or an operation does not have its expected result.
pub fn run_counted(
    operation: CountedOperation,
    operations: u64,
    value_bytes: usize,
) -> Result<(), BenchError> {
    let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
    let now = clock.seconds();
    let config = Config { huge_pages: false, seed: Some(1), ..Config::dram(ByteSize::mib(64)) };
    let cache = Cache::open(config, clock).map_err(cache_error)?;
    let mut subject = CacheSubject::new(&cache, now);
    let keys = KeyMaker::new(KEY_BYTES, OBJECTS * 2)
        .ok_or_else(|| BenchError::Usage("keys are too short".to_owned()))?;
    let value = vec![b'v'; value_bytes];
    let mut key = Vec::new();
    for number in 0..OBJECTS {
        key.clear();
        keys.append(number, &mut key);
        if !subject.set(&key, &value) {
            return Err(BenchError::Cache("a set of the filling failed".to_owned()));
        }
    }
    let mut out = Vec::new();
    let first = if operation == CountedOperation::GetMiss { OBJECTS } else { 0 };
    let width = if operation == CountedOperation::GetBatched { BATCH } else { 1 };
    let mut done = 0;
    for start in (0..operations).step_by(width) {
        key.clear();
        for number in start..start + width as u64 {
            keys.append(first + number * 7 % OBJECTS, &mut key);
        }
        out.clear();
        done += match operation {
            CountedOperation::Get => u64::from(subject.get(&key, &mut out)),
            CountedOperation::GetMiss => u64::from(!subject.get(&key, &mut out)),
            CountedOperation::Set => u64::from(subject.set(&key, &value)),
            CountedOperation::GetBatched => {
                let batch = Batch { keys: &key, key_bytes: KEY_BYTES };
                subject.get_batch(batch, &mut out) as u64
            }
        };
    }
    if done < operations {
        return Err(BenchError::Cache(format!("{done} of {operations} operations succeeded")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_does_what_it_is_counted_as() {
        for name in ["get", "get-miss", "get-batched", "set"] {
            run_counted(name.parse().unwrap(), 1_000, 100).unwrap();
        }
        assert!("touch".parse::<CountedOperation>().is_err());
    }
}
