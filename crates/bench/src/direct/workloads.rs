//! Timed loops, the same for every subject.

use std::hint::black_box;

use entresol_measure::BenchError;
use entresol_measure::popularity::{KeyChooser, Popularity};
use entresol_measure::process::thread_cpu_ns;
use entresol_measure::values::KeyMaker;
use fastrand::Rng;
use serde::Serialize;

use super::subjects::{BATCH, Batch, Subject};

/// Operations of a timed loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Gets of keys known in advance, all equally likely.
    GetUniform,
    /// Gets of keys known in advance, popular by Zipf's law.
    GetZipf,
    /// Gets whose key depends on the previous value; none overlap in the processor.
    GetDependent,
    /// Gets in batches of sixteen, prefetched if the subject supports it.
    GetBatched,
    /// Sets of existing keys.
    SetUniform,
    /// Gets and sets by turns.
    Mixed,
}

impl Workload {
    /// Loops of one thread, in order.
    pub const SINGLE: [Workload; 5] = [
        Workload::GetUniform,
        Workload::GetZipf,
        Workload::GetDependent,
        Workload::GetBatched,
        Workload::SetUniform,
    ];

    /// Returns the label in tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Workload::GetUniform => "get, independent, uniform",
            Workload::GetZipf => "get, independent, Zipf 0.99",
            Workload::GetDependent => "get, each key from the last value",
            Workload::GetBatched => "get, batches of 16",
            Workload::SetUniform => "set, overwriting",
            Workload::Mixed => "half gets, half sets",
        }
    }
}

/// Objects and the order in which they are requested.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) keys: KeyMaker,
    pub(crate) count: u32,
    pub(crate) value_bytes: usize,
    uniform: Vec<u32>,
    zipf: Vec<u32>,
}

impl Objects {
    /// Creates `count` objects and `operations` draws of each kind.
    pub(crate) fn new(
        keys: KeyMaker,
        count: u32,
        value_bytes: usize,
        operations: usize,
        seed: u64,
    ) -> Objects {
        let mut rng = Rng::with_seed(seed);
        let mut draw = |popularity| {
            let chooser = KeyChooser::new(popularity, u64::from(count));
            (0..operations).map(|_| chooser.next(&mut rng) as u32).collect()
        };
        let uniform = draw(Popularity::Uniform);
        let zipf = draw(Popularity::Zipf { theta: entresol_measure::popularity::THETA_DEFAULT });
        Objects { keys, count, value_bytes, uniform, zipf }
    }

    pub(crate) fn operations(&self) -> usize {
        self.uniform.len()
    }

    /// Returns the draws that are all equally likely.
    pub(crate) fn uniform(&self) -> &[u32] {
        &self.uniform
    }

    /// Fills the first eight bytes of a value with `number`, well mixed; a dependent get draws from
    /// them.
    pub(crate) fn value(&self, number: u64, value: &mut [u8]) {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let bytes = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes();
        let head = value.len().min(8);
        value[..head].copy_from_slice(&bytes[..head]);
    }
}

/// Time of one loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timed {
    pub(crate) cpu_ns_per_operation: f64,
}

/// Stores every object once.
pub(crate) fn fill<S: Subject>(objects: &Objects, subject: &mut S) -> Result<Timed, BenchError> {
    let (mut prepared, mut stored) = (Prepared::new(), 0);
    let numbers: Vec<u32> = (0..objects.count).collect();
    let before = thread_cpu_ns();
    for numbers in numbers.chunks(PREPARED) {
        prepared.keys_and_values(objects, numbers);
        for (key, value) in prepared.pairs(objects) {
            stored += usize::from(subject.set(key, value));
        }
    }
    finish(before, objects.count as usize, stored, "sets of the filling")
}

/// Runs one workload over all its draws.
pub(crate) fn run<S: Subject>(
    workload: Workload,
    objects: &Objects,
    subject: &mut S,
) -> Result<Timed, BenchError> {
    match workload {
        Workload::GetUniform => independent(objects, &objects.uniform, subject),
        Workload::GetZipf => independent(objects, &objects.zipf, subject),
        Workload::GetDependent => dependent(objects, subject),
        Workload::GetBatched => batched(objects, subject),
        Workload::SetUniform => overwrite(objects, subject),
        Workload::Mixed => mixed(objects, subject),
    }
}

/// Keys and values of the next few operations, prepared before their use, as a server finds them in
/// its receive buffer. If they were made right before use, a load of the new bytes would wait for
/// their stores, and these for every earlier access. Independent operations would then no longer
/// overlap.
pub(crate) struct Prepared {
    keys: Vec<u8>,
    values: Vec<u8>,
}

/// Number of operations prepared together; their keys and values stay in the nearest cache.
pub(crate) const PREPARED: usize = 64;

impl Prepared {
    pub(crate) fn new() -> Prepared {
        Prepared { keys: Vec::new(), values: Vec::new() }
    }

    pub(crate) fn keys(&mut self, objects: &Objects, numbers: &[u32]) {
        self.keys.clear();
        for number in numbers {
            objects.keys.append(u64::from(*number), &mut self.keys);
        }
    }

    fn keys_and_values(&mut self, objects: &Objects, numbers: &[u32]) {
        self.keys(objects, numbers);
        self.values.resize(numbers.len() * objects.value_bytes, b'v');
        let values = self.values.chunks_exact_mut(objects.value_bytes);
        for (number, value) in numbers.iter().zip(values) {
            objects.value(u64::from(*number), value);
        }
    }

    pub(crate) fn each_key(&self, objects: &Objects) -> impl Iterator<Item = &[u8]> {
        self.keys.chunks_exact(objects.keys.key_bytes())
    }

    fn pairs(&self, objects: &Objects) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.each_key(objects).zip(self.values.chunks_exact(objects.value_bytes))
    }
}

fn independent<S: Subject>(
    objects: &Objects,
    order: &[u32],
    subject: &mut S,
) -> Result<Timed, BenchError> {
    run_block(objects, order, &mut Prepared::new(), subject)
}

/// Gets the objects of these numbers.
pub(crate) fn run_block<S: Subject>(
    objects: &Objects,
    numbers: &[u32],
    prepared: &mut Prepared,
    subject: &mut S,
) -> Result<Timed, BenchError> {
    let mut out = Vec::with_capacity(objects.value_bytes);
    let mut found = 0;
    let before = thread_cpu_ns();
    for few in numbers.chunks(PREPARED) {
        prepared.keys(objects, few);
        for key in prepared.each_key(objects) {
            out.clear();
            found += usize::from(subject.get(key, &mut out));
            black_box(&out);
        }
    }
    finish(before, numbers.len(), found, "gets")
}

fn dependent<S: Subject>(objects: &Objects, subject: &mut S) -> Result<Timed, BenchError> {
    let (mut key, mut out) = (Vec::new(), Vec::new());
    let (mut found, mut last) = (0, 0_u64);
    let operations = objects.operations();
    let before = thread_cpu_ns();
    for step in 0..operations as u64 {
        // The step prevents short cycles; the value still determines the next key.
        let mixed = (last ^ step).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let number = ((mixed >> 32) * u64::from(objects.count)) >> 32;
        key.clear();
        objects.keys.append(number, &mut key);
        out.clear();
        found += usize::from(subject.get(&key, &mut out));
        last = out.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    }
    black_box(last);
    finish(before, operations, found, "gets")
}

fn batched<S: Subject>(objects: &Objects, subject: &mut S) -> Result<Timed, BenchError> {
    let (mut prepared, mut out) = (Prepared::new(), Vec::new());
    let key_bytes = objects.keys.key_bytes();
    let mut found = 0;
    let before = thread_cpu_ns();
    for numbers in objects.uniform.chunks(PREPARED) {
        prepared.keys(objects, numbers);
        for keys in prepared.keys.chunks(BATCH * key_bytes) {
            out.clear();
            found += subject.get_batch(Batch { keys, key_bytes }, &mut out);
            black_box(&out);
        }
    }
    finish(before, objects.operations(), found, "gets")
}

fn overwrite<S: Subject>(objects: &Objects, subject: &mut S) -> Result<Timed, BenchError> {
    let mut prepared = Prepared::new();
    let mut stored = 0;
    let before = thread_cpu_ns();
    for numbers in objects.uniform.chunks(PREPARED) {
        prepared.keys_and_values(objects, numbers);
        for (key, value) in prepared.pairs(objects) {
            stored += usize::from(subject.set(key, value));
        }
    }
    finish(before, objects.operations(), stored, "sets")
}

fn mixed<S: Subject>(objects: &Objects, subject: &mut S) -> Result<Timed, BenchError> {
    let (mut prepared, mut out) = (Prepared::new(), Vec::new());
    let mut done = 0;
    let before = thread_cpu_ns();
    for numbers in objects.uniform.chunks(PREPARED) {
        prepared.keys_and_values(objects, numbers);
        for (step, (key, value)) in prepared.pairs(objects).enumerate() {
            if step % 2 == 0 {
                out.clear();
                done += usize::from(subject.get(key, &mut out));
                black_box(&out);
            } else {
                done += usize::from(subject.set(key, value));
            }
        }
    }
    finish(before, objects.operations(), done, "gets and sets")
}

/// Returns the time of a loop. Fails if an operation failed, since the loop then measured something
/// else.
fn finish(before: u64, wanted: usize, done: usize, what: &str) -> Result<Timed, BenchError> {
    let cpu_ns = thread_cpu_ns() - before;
    if done != wanted {
        let missing = wanted - done;
        return Err(BenchError::Cache(format!("{missing} of {wanted} {what} failed")));
    }
    Ok(Timed { cpu_ns_per_operation: cpu_ns as f64 / wanted.max(1) as f64 })
}
