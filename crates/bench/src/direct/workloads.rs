//! The timed loops, each the same for every subject.

use std::hint::black_box;

use fastrand::Rng;
use serde::Serialize;

use super::subjects::{BATCH, Batch, Subject};
use crate::error::BenchError;
use crate::popularity::{KeyChooser, Popularity};
use crate::process::thread_cpu_ns;
use crate::values::KeyMaker;

/// What is done in one timed loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Gets of keys known in advance, every key as likely.
    GetUniform,
    /// Gets of keys known in advance, popular by Zipf's law.
    GetZipf,
    /// Each key follows from the last value: no two overlap in the processor.
    GetDependent,
    /// Gets in batches of sixteen, prefetched where the subject can.
    GetBatched,
    /// Sets of keys that are there.
    SetUniform,
    /// Gets and sets by turns.
    Mixed,
}

impl Workload {
    /// All that one thread does, in order.
    pub const SINGLE: [Workload; 5] = [
        Workload::GetUniform,
        Workload::GetZipf,
        Workload::GetDependent,
        Workload::GetBatched,
        Workload::SetUniform,
    ];

    /// What a table calls it.
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

/// Objects and the order in which they are asked for.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) keys: KeyMaker,
    pub(crate) count: u32,
    pub(crate) value_bytes: usize,
    uniform: Vec<u32>,
    zipf: Vec<u32>,
}

impl Objects {
    /// `count` objects and `operations` draws of each kind.
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
        let zipf = draw(Popularity::Zipf { theta: crate::popularity::THETA_DEFAULT });
        Objects { keys, count, value_bytes, uniform, zipf }
    }

    pub(crate) fn operations(&self) -> usize {
        self.uniform.len()
    }

    /// A value whose first eight bytes are `number` well mixed: a dependent get draws from them.
    pub(crate) fn value(&self, number: u64, value: &mut Vec<u8>) {
        value.resize(self.value_bytes, b'v');
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let bytes = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes();
        let head = self.value_bytes.min(8);
        value[..head].copy_from_slice(&bytes[..head]);
    }
}

/// The time of one loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timed {
    pub(crate) cpu_ns_per_operation: f64,
}

/// Stores every object once.
pub(crate) fn fill<S: Subject>(objects: &Objects, subject: &mut S) -> Result<Timed, BenchError> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut stored = 0;
    let before = thread_cpu_ns();
    for number in 0..u64::from(objects.count) {
        key.clear();
        objects.keys.append(number, &mut key);
        objects.value(number, &mut value);
        stored += usize::from(subject.set(&key, &value));
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

fn independent<S: Subject>(
    objects: &Objects,
    order: &[u32],
    subject: &mut S,
) -> Result<Timed, BenchError> {
    let (mut key, mut out) = (Vec::new(), Vec::new());
    let mut found = 0;
    let before = thread_cpu_ns();
    for number in order {
        key.clear();
        objects.keys.append(u64::from(*number), &mut key);
        out.clear();
        found += usize::from(subject.get(&key, &mut out));
        black_box(&out);
    }
    finish(before, order.len(), found, "gets")
}

fn dependent<S: Subject>(objects: &Objects, subject: &mut S) -> Result<Timed, BenchError> {
    let (mut key, mut out) = (Vec::new(), Vec::new());
    let (mut found, mut last) = (0, 0_u64);
    let operations = objects.operations();
    let before = thread_cpu_ns();
    for step in 0..operations as u64 {
        // The step keeps the walk out of short cycles; the value still decides where it goes.
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
    let mut out = Vec::new();
    let mut batch = Batch { keys: Vec::new(), key_bytes: objects.keys.key_bytes() };
    let mut found = 0;
    let before = thread_cpu_ns();
    for numbers in objects.uniform.chunks(BATCH) {
        batch.keys.clear();
        for number in numbers {
            objects.keys.append(u64::from(*number), &mut batch.keys);
        }
        out.clear();
        found += subject.get_batch(&batch, &mut out);
        black_box(&out);
    }
    finish(before, objects.operations(), found, "gets")
}

fn overwrite<S: Subject>(objects: &Objects, subject: &mut S) -> Result<Timed, BenchError> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut stored = 0;
    let before = thread_cpu_ns();
    for number in &objects.uniform {
        let number = u64::from(*number);
        key.clear();
        objects.keys.append(number, &mut key);
        objects.value(number, &mut value);
        stored += usize::from(subject.set(&key, &value));
    }
    finish(before, objects.operations(), stored, "sets")
}

fn mixed<S: Subject>(objects: &Objects, subject: &mut S) -> Result<Timed, BenchError> {
    let (mut key, mut value, mut out) = (Vec::new(), Vec::new(), Vec::new());
    let mut done = 0;
    let before = thread_cpu_ns();
    for (step, number) in objects.uniform.iter().enumerate() {
        let number = u64::from(*number);
        key.clear();
        objects.keys.append(number, &mut key);
        if step % 2 == 0 {
            out.clear();
            done += usize::from(subject.get(&key, &mut out));
            black_box(&out);
        } else {
            objects.value(number, &mut value);
            done += usize::from(subject.set(&key, &value));
        }
    }
    finish(before, objects.operations(), done, "gets and sets")
}

/// A loop in which an operation failed measured something else than it says.
fn finish(before: u64, wanted: usize, done: usize, what: &str) -> Result<Timed, BenchError> {
    let cpu_ns = thread_cpu_ns() - before;
    if done != wanted {
        let missing = wanted - done;
        return Err(BenchError::Cache(format!("{missing} of {wanted} {what} failed")));
    }
    Ok(Timed { cpu_ns_per_operation: cpu_ns as f64 / wanted.max(1) as f64 })
}
