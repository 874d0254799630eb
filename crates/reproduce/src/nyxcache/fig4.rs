//! Figure 4: gain of a cache from keeping keys out of persistent memory, and from storing values
//! past the processor's caches.
//!
//! Both layouts are simulated here on models of the two memories. The shipped cache, which has only
//! one of them, is measured on the same model in `fig4_cache`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use entresol_base::Picos;
use entresol_base::rng::Rng;
use entresol_media::model::memory::{
    AEP2, Accessor, DRAM, Fence, MemoryAccess, MemoryModel, MemoryOp, Transfer,
};

use super::fig4_cache;
use super::tenants::{drawing, line};
use crate::{Check, Outcome, Settings, Side};

/// Sizes of values; the text gives no numbers for the paper's axis.
pub(super) const SIZES: [u64; 5] = [256, 512, 1024, 2048, 4096];
/// Bytes of persistent memory filled with values, and bytes of DRAM filled with buckets and with
/// keys.
const VALUES_BYTES: u64 = 8 << 30;
const KEYS_BYTES: u64 = 1 << 30;
const BUCKET_BYTES: u64 = 64;
/// Bytes of an item's header and of its key of 4 bytes.
pub(super) const HEAD_BYTES: u64 = 12;
/// Processor time of a request in addition to its accesses.
const CPU: Picos = Picos::from_nanos(100);
/// Mean number of keys that a get compares: its own, and half of the others in a bucket of two.
const KEYS: f64 = 1.5;
const GETS: u32 = 20_000;
const SETS: u32 = 40_000;
pub(super) const SET_THREADS: u32 = 8;

/// Layout of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Header, key and value contiguous in persistent memory.
    Together,
    /// Headers and keys in DRAM, values packed in persistent memory.
    Apart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    Dram,
    Persistent,
}

type Step = (Memory, MemoryAccess);

fn step(memory: Memory, op: MemoryOp, offset: u64, bytes: u64) -> Step {
    (memory, MemoryAccess { op, offset, bytes, fence: Fence::None })
}

/// Draws a position in `whole` on a multiple of the item's size.
fn place(rng: &mut Rng, whole: u64, item: u64) -> u64 {
    rng.below(whole / item - 1) * item
}

fn bucket(rng: &mut Rng) -> Step {
    let offset = place(rng, KEYS_BYTES, BUCKET_BYTES);
    step(Memory::Dram, MemoryOp::Load, offset, BUCKET_BYTES)
}

fn key_in_dram(rng: &mut Rng) -> Step {
    step(Memory::Dram, MemoryOp::Load, KEYS_BYTES + place(rng, KEYS_BYTES, 16), HEAD_BYTES)
}

/// Returns the accesses of a get in reverse order.
fn get(rng: &mut Rng, layout: Layout, bytes: u64, keys: f64) -> Vec<Step> {
    // The whole part of the mean is always compared; one more key with the probability of the
    // fraction.
    let more = keys - 1.0;
    let others = more as u32 + u32::from(rng.next_f64() < more.fract());
    let mut steps = vec![bucket(rng)];
    match layout {
        Layout::Together => {
            let item = HEAD_BYTES + bytes;
            let head = |rng: &mut Rng| {
                let offset = place(rng, VALUES_BYTES, item);
                step(Memory::Persistent, MemoryOp::Load, offset, HEAD_BYTES)
            };
            (0..others).for_each(|_| steps.push(head(rng)));
            let own = head(rng);
            let value = own.1.offset + HEAD_BYTES;
            steps.extend([own, step(Memory::Persistent, MemoryOp::Load, value, bytes)]);
        }
        Layout::Apart => {
            (0..=others).for_each(|_| steps.push(key_in_dram(rng)));
            let value = place(rng, VALUES_BYTES, bytes);
            steps.push(step(Memory::Persistent, MemoryOp::Load, value, bytes));
        }
    }
    steps.reverse();
    steps
}

/// Returns the accesses of a replacement in place, in reverse order.
fn replace(rng: &mut Rng, op: MemoryOp, bytes: u64) -> Vec<Step> {
    let value = place(rng, VALUES_BYTES, bytes);
    vec![step(Memory::Persistent, op, value, bytes), key_in_dram(rng), bucket(rng)]
}

/// Thread with the remaining accesses of its request and the one in flight.
#[derive(Default)]
struct Thread {
    steps: Vec<Step>,
    under_way: Option<(Memory, Transfer)>,
}

/// Returns the rate, in millions of requests per second, of threads that perform one access after
/// the other, measured after a warm-up.
fn rate(
    threads: u32,
    count: u32,
    seed: u64,
    mut request: impl FnMut(&mut Rng) -> Vec<Step>,
) -> f64 {
    let mut rng = Rng::named(seed, "requests");
    let (mut dram, mut persistent) = (MemoryModel::new(DRAM), MemoryModel::new(AEP2));
    let mut all: Vec<Thread> = (0..threads).map(|_| Thread::default()).collect();
    let mut turns: BinaryHeap<_> = (0..threads).map(|id| Reverse((Picos::ZERO, id))).collect();
    let (mut begun, mut from) = (0, Picos::ZERO);
    while let Some(Reverse((at, id))) = turns.pop() {
        let thread = &mut all[id as usize];
        if let Some((memory, transfer)) = &mut thread.under_way {
            let model = if *memory == Memory::Dram { &mut dram } else { &mut persistent };
            if let Some(later) = model.advance(at, transfer) {
                turns.push(Reverse((later, id)));
                continue;
            }
            thread.under_way = None;
        }
        let Some((memory, access)) = thread.steps.pop() else {
            // The first half warms the caches and the modules' buffers.
            begun += 1;
            match begun {
                _ if begun == count / 2 => from = at,
                _ if begun == count => {
                    return f64::from(count - count / 2) / at.since(from).as_secs_f64() / 1e6;
                }
                _ => {}
            }
            thread.steps = request(&mut rng);
            turns.push(Reverse((at.after(CPU), id)));
            continue;
        };
        let model = if memory == Memory::Dram { &mut dram } else { &mut persistent };
        thread.under_way = Some((memory, model.begin(Accessor(id), access)));
        turns.push(Reverse((at, id)));
    }
    f64::NAN
}

pub(super) fn fig4a(settings: &Settings) -> Outcome {
    let of =
        |layout, bytes, keys| rate(1, GETS, settings.seed, |rng| get(rng, layout, bytes, keys));
    let rows: Vec<[f64; 3]> = SIZES
        .iter()
        .map(|&bytes| {
            let [together, apart] = [Layout::Together, Layout::Apart].map(|l| of(l, bytes, KEYS));
            [bytes as f64, together, apart]
        })
        .collect();
    let gains: Vec<f64> = rows.iter().map(|[_, together, apart]| apart / together).collect();
    let best = gains.iter().copied().fold(0.0, f64::max);
    let least = gains.iter().copied().fold(f64::INFINITY, f64::min);
    let told = |gains: &[f64]| {
        let one = |(bytes, gain): (&u64, &f64)| format!("{bytes} B: {gain:.2}");
        SIZES.iter().zip(gains).map(one).collect::<Vec<_>>().join(", ")
    };
    let mut checks = vec![
        Check::limit("gets: best gain by keys in DRAM", "", Side::AtLeast, 1.4, best).beside(1.55),
        Check::limit("no size loses: the least gain", "", Side::AtLeast, 1.0, least)
            .beside("a gain at each size")
            .noting(told(&gains)),
    ];
    let why = "the paper says that several keys may be read, not how many";
    for keys in [1.0, 2.0] {
        let gain =
            |&bytes: &u64| of(Layout::Apart, bytes, keys) / of(Layout::Together, bytes, keys);
        let best = SIZES.iter().map(gain).fold(0.0, f64::max);
        let what = format!("the same with {keys} keys compared a get");
        checks.push(Check::report(what, "", None, best, why));
    }
    checks.extend(fig4_cache::gets(settings.seed));
    let points = |of: usize| rows.iter().map(move |row| (row[0], row[of]));
    Outcome {
        scenario: vec![
            format!(
                "One thread of gets, uniform keys of 4 B: a bucket in DRAM, {KEYS} keys compared \
                 on average (chosen: whatever else hangs on the bucket lies elsewhere), then the \
                 value; 100 ns of processor a request (chosen). Items of header, key and value \
                 one behind the other in persistent memory, against headers and keys in DRAM."
            ),
            "On models of both memories, in virtual time.".to_owned(),
            fig4_cache::told(),
        ],
        checks,
        drawings: vec![drawing(
            "Gets by one thread (model)",
            "bytes a value",
            "million/s",
            vec![line("keys in persistent memory", points(1)), line("keys in DRAM", points(2))],
        )],
    }
}

pub(super) fn fig4b(settings: &Settings) -> Outcome {
    let of = |op, bytes| rate(SET_THREADS, SETS, settings.seed, |rng| replace(rng, op, bytes));
    let rows: Vec<[f64; 3]> = SIZES
        .iter()
        .map(|&bytes| [bytes as f64, of(MemoryOp::Store, bytes), of(MemoryOp::NtStore, bytes)])
        .collect();
    let gains = rows.iter().map(|[_, cached, past]| past / cached);
    let best = gains.clone().fold(0.0, f64::max);
    let least = gains.clone().fold(f64::INFINITY, f64::min);
    let told: Vec<String> =
        gains.clone().zip(SIZES).map(|(gain, bytes)| format!("{bytes} B: {gain:.2}")).collect();
    let mut checks = vec![
        Check::limit(
            "replacements: best gain by stores past the caches",
            "",
            Side::AtLeast,
            2.5,
            best,
        )
        .beside(3.0),
        Check::limit("no size loses: the least gain", "", Side::AtLeast, 1.0, least)
            .beside("a gain at each size")
            .noting(told.join(", ")),
    ];
    checks.extend(fig4_cache::replacements(settings.seed));
    let points = |of: usize| rows.iter().map(move |row| (row[0], row[of]));
    Outcome {
        scenario: vec![
            format!(
                "{SET_THREADS} threads of replacements in place: a bucket and a key in DRAM, then \
                 the value is stored; 100 ns of processor a request (chosen); on models of both \
                 memories."
            ),
            fig4_cache::told(),
        ],
        checks,
        drawings: vec![drawing(
            "Replacements by eight threads (model)",
            "bytes a value",
            "million/s",
            vec![line("stores through the caches", points(1)), line("stores past them", points(2))],
        )],
    }
}
