//! A trace in memory: requests with dense object numbers, ready to be run many times.

use std::collections::HashMap;
use std::path::Path;

use super::{Operation, SizeDistribution, TraceFormat, TraceReader};
use crate::error::BenchError;
use crate::progress::Progress;

/// Requests between two updates of the progress bar.
const PROGRESS_EVERY: u64 = 1 << 16;

/// One request of a recorded trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recording {
    /// Dense number of the key, in the order of first requests.
    pub object: u32,
    /// Size of the value.
    pub value_bytes: u32,
    /// Seconds since the trace began.
    pub at_s: u32,
    /// Time to live of a stored value; 0 is for ever.
    pub ttl_s: u32,
    /// Operation of the request.
    pub operation: Operation,
}

/// Origin of the values' sizes.
#[derive(Debug, Clone)]
pub enum ValueSizes {
    /// Sizes of the trace. A request without one takes that of the nearest request for its key that
    /// has one, and otherwise this default.
    Trace(Option<u32>),
    /// Sizes drawn from a distribution, whatever the trace says.
    Drawn(SizeDistribution),
}

/// Requests and keys of a whole trace. A request takes 20 bytes, a key its length and 8 bytes.
#[derive(Debug, Default)]
pub struct Recorded {
    requests: Vec<Recording>,
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    sizes_assumed: u64,
}

impl Recorded {
    /// Reads a trace, at most `requests_max` requests of it.
    ///
    /// # Errors
    /// Fails if the file cannot be read, does not match its format, or has a request whose size
    /// neither the trace nor `sizes` tells.
    pub fn read(
        (path, format): (&Path, TraceFormat),
        sizes: &ValueSizes,
        requests_max: Option<u64>,
        progress: &Progress,
    ) -> Result<Recorded, BenchError> {
        let mut reader = TraceReader::open(path, format)?;
        let mut recorded = Recorded::default();
        let mut numbers: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut unknown = Vec::new();
        let mut key = Vec::new();
        let limit = requests_max.unwrap_or(u64::MAX);
        'file: while let Some(request) = reader.next(&mut key)? {
            let object = match numbers.get(&key) {
                Some(&object) => object,
                None => recorded.add_key(&key, &mut numbers),
            };
            let known = match sizes {
                ValueSizes::Trace(_) => request.value_bytes,
                ValueSizes::Drawn(drawn) => Some(drawn.of_key(&key)),
            };
            let needs_size = !matches!(
                request.operation,
                Operation::Delete | Operation::Increment | Operation::Decrement
            );
            for _ in 0..request.count {
                let number = recorded.requests.len() as u64;
                if number == limit || number.is_multiple_of(PROGRESS_EVERY) && progress.is_stopped()
                {
                    break 'file;
                }
                if known.is_none() && needs_size {
                    unknown.push((recorded.requests.len(), reader.line_number()));
                }
                recorded.requests.push(Recording {
                    object,
                    value_bytes: known.unwrap_or(0),
                    at_s: request.at_s,
                    ttl_s: request.ttl_s,
                    operation: request.operation,
                });
            }
        }
        recorded.fill_sizes(&unknown, sizes, (path, reader.unit()))?;
        Ok(recorded)
    }

    fn add_key(&mut self, key: &[u8], numbers: &mut HashMap<Vec<u8>, u32>) -> u32 {
        let object = u32::try_from(self.key_ends.len()).unwrap_or(u32::MAX);
        assert!(object < u32::MAX, "a trace of more than 4 billion keys");
        self.keys.extend_from_slice(key);
        self.key_ends.push(self.keys.len());
        numbers.insert(key.to_vec(), object);
        object
    }

    /// Gives requests without a size that of the next request for their key, of the last one, or
    /// the default.
    fn fill_sizes(
        &mut self,
        unknown: &[(usize, u64)],
        sizes: &ValueSizes,
        (path, unit): (&Path, &str),
    ) -> Result<(), BenchError> {
        let ValueSizes::Trace(default) = sizes else { return Ok(()) };
        if unknown.is_empty() {
            return Ok(());
        }
        let is_unknown: std::collections::HashSet<usize> =
            unknown.iter().map(|&(at, _)| at).collect();
        let mut known: Vec<Option<u32>> = vec![None; self.key_ends.len()];
        let has_size = |request: &Recording, at: usize| {
            !is_unknown.contains(&at)
                && !matches!(
                    request.operation,
                    Operation::Delete | Operation::Increment | Operation::Decrement
                )
        };
        for (at, request) in self.requests.iter().enumerate() {
            if has_size(request, at) {
                known[request.object as usize] = Some(request.value_bytes);
            }
        }
        // From the end: `known` has the last size first, then that of the nearest later request.
        for at in (0..self.requests.len()).rev() {
            let request = self.requests[at];
            if has_size(&request, at) {
                known[request.object as usize] = Some(request.value_bytes);
            } else if is_unknown.contains(&at)
                && let Some(bytes) = known[request.object as usize].or(*default)
            {
                self.requests[at].value_bytes = bytes;
                self.sizes_assumed += 1;
            }
        }
        let lost = unknown.iter().find(|&&(at, _)| {
            default.is_none() && known[self.requests[at].object as usize].is_none()
        });
        match lost {
            None => Ok(()),
            Some((_, line)) => Err(BenchError::Format {
                path: path.to_owned(),
                problem: format!(
                    "{unit} {line}: neither this request nor another one for its key records the \
                     size of the value; give --value-size or --sizes"
                ),
            }),
        }
    }

    /// Repeats the trace: `loops` runs in all, each beginning a second after the end of the last.
    #[must_use]
    pub fn repeated(mut self, loops: u32) -> Recorded {
        let once = self.requests.clone();
        let length_s = once.last().map_or(0, |last| last.at_s + 1);
        for run in 1..loops {
            let later = |it: &Recording| Recording {
                at_s: it.at_s.saturating_add(run.saturating_mul(length_s)),
                ..*it
            };
            self.requests.extend(once.iter().map(later));
        }
        self
    }

    /// Requests in the order of the trace.
    #[must_use]
    pub fn requests(&self) -> &[Recording] {
        &self.requests
    }

    /// Key of an object.
    #[must_use]
    pub fn key(&self, object: u32) -> &[u8] {
        let at = object as usize;
        let start = if at == 0 { 0 } else { self.key_ends[at - 1] };
        &self.keys[start..self.key_ends[at]]
    }

    /// Number of different keys.
    #[must_use]
    pub fn objects(&self) -> u32 {
        self.key_ends.len() as u32
    }

    /// Requests whose size the trace does not record.
    #[must_use]
    pub fn sizes_assumed(&self) -> u64 {
        self.sizes_assumed
    }

    /// Bytes of all objects, each with its key, the value of its last request and `overhead`.
    #[must_use]
    pub fn footprint_bytes(&self, overhead: u64) -> u64 {
        let mut values = vec![0; self.key_ends.len()];
        for request in &self.requests {
            if request.value_bytes > 0 {
                values[request.object as usize] = u64::from(request.value_bytes);
            }
        }
        self.keys.len() as u64 + values.iter().sum::<u64>() + overhead * values.len() as u64
    }

    /// Returns for each request the number of the next one for its key, `u64::MAX` if there is
    /// none.
    #[must_use]
    pub fn next_requests(&self) -> Vec<u64> {
        let mut next_of = vec![u64::MAX; self.key_ends.len()];
        let mut next = vec![u64::MAX; self.requests.len()];
        for (at, request) in self.requests.iter().enumerate().rev() {
            next[at] = std::mem::replace(&mut next_of[request.object as usize], at as u64);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, sizes: &ValueSizes) -> Result<Recorded, BenchError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        entresol_media::files::write_atomically(&path, text.as_bytes()).unwrap();
        Recorded::read((&path, TraceFormat::Csv), sizes, None, &Progress::hidden())
    }

    #[test]
    fn requests_have_dense_objects_and_know_their_next() {
        let text = "key,op,size,op_count\na,get,10,1\nbb,get,20,2\na,get,12,1\nbb,delete,0,1\n";
        let recorded = read(text, &ValueSizes::Trace(None)).unwrap();
        let objects: Vec<u32> = recorded.requests().iter().map(|it| it.object).collect();
        assert_eq!(objects, [0, 1, 1, 0, 1]);
        assert_eq!(recorded.next_requests(), [3, 2, 4, u64::MAX, u64::MAX]);
        assert_eq!((recorded.key(0), recorded.key(1)), (&b"a"[..], &b"bb"[..]));
        assert_eq!(recorded.footprint_bytes(5), 1 + 2 + 12 + 20 + 2 * 5);
    }

    #[test]
    fn a_missing_size_is_that_of_the_nearest_request_or_the_default_or_an_error_with_its_line() {
        let text = "key,op,size\na,get,0\nb,get,7\na,set,30\na,get,0\nb,set,0\nb,get,0\nc,get,0\n";
        let recorded = read(text, &ValueSizes::Trace(Some(99))).unwrap();
        let sizes: Vec<u32> = recorded.requests().iter().map(|it| it.value_bytes).collect();
        assert_eq!(sizes, [30, 7, 30, 30, 0, 0, 99]);
        assert_eq!(recorded.sizes_assumed(), 4);
        let error = read(text, &ValueSizes::Trace(None)).unwrap_err().to_string();
        assert!(error.contains("line 8") && error.contains("--value-size"), "{error}");
    }
}
