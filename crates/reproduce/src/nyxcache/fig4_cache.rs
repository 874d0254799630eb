//! Figure 4 by the cache that ships: its index, segments, eviction and upkeep on a model of the
//! paper's device. The layout that the paper leaves behind is made by its region: an item's header
//! and key lie before its value on the medium, and are read there.

use std::sync::Arc;

use entresol_base::Picos;
use entresol_base::world::World;
use entresol_bench::direct::lab::{CacheLab, Hand, LabOptions};
use entresol_cache::media::{LABEL_BYTES, ValueRegion};
use entresol_measure::BenchError;
use entresol_measure::index::{Device, in_world};
use entresol_measure::values::KeyMaker;
use entresol_media::model::memory::Parameters;
use entresol_media::{ModelName, Observed, Region};
use fastrand::Rng;

use super::fig4::{HEAD_BYTES, Layout, SET_THREADS, SIZES};
use crate::{Check, Side};

/// Bytes of the values that are stored: far more than the processor's cache holds.
const VALUES_BYTES: u64 = 24 << 20;
/// Quota of the medium: the values fill three quarters, so that replacements make it evict.
const QUOTA_BYTES: u64 = 32 << 20;
const DRAM_BYTES: u64 = 64 << 20;
const KEY_BYTES: usize = 4;
/// Requests of a measurement, all threads together.
const GETS: u64 = 8_000;
const SETS: u64 = 16_000;

/// Region of values in one of the two layouts.
struct Laid {
    region: Observed<Arc<Device>>,
    layout: Layout,
    /// True to store past the processor's caches.
    past_caches: bool,
    /// Mean number of headers of other items that a get reads first.
    others: f64,
}

impl ValueRegion for Laid {
    fn len(&self) -> u64 {
        Region::len(&self.region)
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        Region::read(&self.region, offset, out);
    }

    fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        match self.layout {
            Layout::Together => {
                let head = (HEAD_BYTES as usize).min(len);
                self.read_others(head, offset);
                Region::append_to(&self.region, offset, head, out);
                Region::append_to(&self.region, offset + head as u64, len - head, out);
            }
            Layout::Apart => Region::append_to(&self.region, offset, len, out),
        }
    }

    fn write_durably(&self, offset: u64, bytes: &[u8]) {
        ValueRegion::write_durably(&self.region, offset, bytes);
    }

    fn write_streaming(&self, offset: u64, bytes: &[u8]) {
        match self.past_caches {
            true => Region::write_streaming(&self.region, offset, bytes),
            false => Region::write(&self.region, offset, bytes),
        }
    }

    fn drain(&self) {
        Region::drain(&self.region);
    }
}

impl Laid {
    /// Reads headers elsewhere, as a get does whose bucket leads to other keys as well.
    fn read_others(&self, head: usize, offset: u64) {
        let mut rng = Rng::with_seed(offset);
        if rng.f64() < self.others {
            let place = rng.u64(0..Region::len(&self.region) - head as u64);
            Region::append_to(&self.region, place, head, &mut Vec::with_capacity(head));
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
struct Run {
    model: ModelName,
    layout: Layout,
    past_caches: bool,
    bytes: u64,
    /// Mean number of headers of other items that a get reads first where keys lie on the medium:
    /// none, as the shipped index holds a tag of each key.
    others: f64,
    seed: u64,
}

impl Run {
    /// Returns the bytes that an item has on the medium.
    fn item_bytes(&self) -> usize {
        let head = if self.layout == Layout::Together { HEAD_BYTES } else { 0 };
        (head + self.bytes) as usize
    }

    fn keys(&self) -> u64 {
        VALUES_BYTES / (self.bytes + HEAD_BYTES)
    }

    fn open(&self, world: &World, workers: usize) -> Result<CacheLab, BenchError> {
        let Some(parameters) = Parameters::of(self.model) else {
            return Err(BenchError::Usage(format!("{} is no model of memory", self.model)));
        };
        let device = Device::new(world, parameters);
        let region = Observed::new(LABEL_BYTES + QUOTA_BYTES, Arc::clone(&device));
        let region = region.map_err(|error| BenchError::Failed(error.to_string()))?;
        let Run { layout, past_caches, others, .. } = *self;
        let laid = Laid { region, layout, past_caches, others };
        let options = LabOptions {
            model: self.model,
            medium_bytes: QUOTA_BYTES,
            dram_bytes: DRAM_BYTES,
            workers,
            seed: self.seed,
        };
        CacheLab::on_region(world, &options, Box::new(laid), device)
    }

    /// Stores every item so many times, in no time.
    fn fill(&self, lab: &CacheLab, times: u32) {
        let mut hand = lab.hand();
        let value = vec![b'v'; self.item_bytes()];
        let (maker, mut key) = (keys(self.keys()), Vec::new());
        for number in (0..times).flat_map(|_| 0..self.keys()) {
            key.clear();
            maker.append(number, &mut key);
            hand.set(&key, &value);
            while lab.cache().maintain(entresol_base::Clock::seconds(hand.world())) {}
        }
    }

    /// Returns millions of requests in a second of all threads, the first half of them left out,
    /// and the share of the gets that found their item.
    fn rate(self, threads: u64, requests: u64, are_gets: bool) -> Result<(f64, f64), BenchError> {
        in_world(self.seed, move |world| {
            let lab = self.open(world, threads as usize)?;
            self.fill(&lab, if are_gets { 1 } else { 2 });
            let hands = (0..threads).map(|_| match self.layout {
                Layout::Together => lab.hand().without_keys_in_dram(),
                Layout::Apart => lab.hand(),
            });
            let share = requests / threads;
            let work =
                move |number: usize, mut hand: Hand| self.work(number, &mut hand, share, are_gets);
            let (done, _) = lab.run(hands.collect(), work)?;
            let done = done.into_iter().collect::<Result<Vec<_>, _>>()?;
            let rate = |(half, end, _): &(Picos, Picos, u64)| {
                (share - share / 2) as f64 / end.since(*half).as_secs_f64() / 1e6
            };
            let hits: u64 = done.iter().map(|(_, _, hits)| hits).sum();
            Ok((done.iter().map(rate).sum(), hits as f64 / (share * threads) as f64))
        })
    }

    /// Sends a thread's requests. Returns the times at the half and at the end, and the hits.
    fn work(
        &self,
        number: usize,
        hand: &mut Hand,
        share: u64,
        are_gets: bool,
    ) -> Result<(Picos, Picos, u64), BenchError> {
        let mut rng = Rng::with_seed(self.seed.wrapping_add(1 + number as u64));
        let (maker, mut key) = (keys(self.keys()), Vec::new());
        let value = vec![b'w'; self.item_bytes()];
        let (mut half, mut hits) = (Picos::ZERO, 0);
        for step in 0..share {
            if step == share / 2 {
                half = hand.world().now();
            }
            key.clear();
            maker.append(rng.u64(0..self.keys()), &mut key);
            hits += u64::from(if are_gets { hand.get(&key)? } else { hand.set(&key, &value) });
        }
        Ok((half, hand.world().now(), hits))
    }
}

fn keys(count: u64) -> KeyMaker {
    match KeyMaker::new(KEY_BYTES + 4, count) {
        Some(maker) => maker,
        None => unreachable!("{count} keys fit"),
    }
}

fn rate(run: Run, threads: u64, requests: u64, are_gets: bool) -> f64 {
    match run.rate(threads, requests, are_gets) {
        Ok((rate, hits)) => {
            assert!(hits > 0.99, "{run:?}: {hits} of the requests succeed");
            rate
        }
        Err(error) => unreachable!("{error}"),
    }
}

/// Gains at each size of values.
pub(super) struct Gains(Vec<f64>);

impl Gains {
    fn best(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }

    /// Checks the best gain and the least, and reports the best on one module.
    fn checks(&self, what: &str, (least, paper): (f64, f64), one_module: &Gains) -> Vec<Check> {
        let lowest = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let one = |(bytes, gain): (&u64, &f64)| format!("{bytes} B: {gain:.2}");
        let told =
            |gains: &Gains| SIZES.iter().zip(&gains.0).map(one).collect::<Vec<_>>().join(", ");
        let why = "the paper's device has two modules";
        let name = format!("the cache itself: best gain by {what}");
        vec![
            Check::limit(&name, "", Side::AtLeast, least, self.best()).beside(paper),
            Check::limit("the cache itself: the least gain", "", Side::AtLeast, 1.0, lowest)
                .beside("a gain at each size")
                .noting(told(self)),
            Check::report(
                "the cache itself on model:aep: best gain",
                "",
                None,
                one_module.best(),
                why,
            )
            .noting(told(one_module)),
        ]
    }
}

fn gains(of: impl Fn(u64) -> [f64; 2]) -> Gains {
    Gains(SIZES.map(of).map(|[before, after]| after / before).to_vec())
}

/// Returns what gets of the cache gain by keys in DRAM, if they read so many other headers.
fn of_gets(model: ModelName, others: f64, seed: u64) -> Gains {
    gains(|bytes| {
        [Layout::Together, Layout::Apart].map(|layout| {
            rate(Run { model, layout, past_caches: true, bytes, others, seed }, 1, GETS, true)
        })
    })
}

/// Checks what gets of the cache gain by keys in DRAM.
pub(super) fn gets(seed: u64) -> Vec<Check> {
    let of = |model| of_gets(model, 0.0, seed);
    of(ModelName::Aep2).checks("keys in DRAM", (1.4, 1.55), &of(ModelName::Aep))
}

/// Checks what replacements of the cache gain by stores past the caches.
pub(super) fn replacements(seed: u64) -> Vec<Check> {
    let of = |model| {
        gains(|bytes| {
            [false, true].map(|past_caches| {
                let (layout, others) = (Layout::Apart, 0.0);
                let run = Run { model, layout, past_caches, bytes, others, seed };
                rate(run, SET_THREADS.into(), SETS, false)
            })
        })
    };
    of(ModelName::Aep2).checks("stores past the caches", (2.5, 3.0), &of(ModelName::Aep))
}

/// Describes the cache of the checks for the scenarios.
pub(super) fn told() -> String {
    format!(
        "The cache itself: the shipped one, keys of {} B, {} MiB of values in a quota of {} MiB; \
         50 ns of processor a request and 40 for a line of DRAM, of which a get touches two and a \
         set three. Where keys lie in persistent memory its region reads a header of {HEAD_BYTES} \
         B before the value, once: the index compares one key a get.",
        KEY_BYTES + 4,
        VALUES_BYTES >> 20,
        QUOTA_BYTES >> 20,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves the reason in `expected-failures.toml`: with a mean of half a header more to read for
    /// a get where keys lie on the medium, as the model of the paper's cache has, the shipped one
    /// gains as much by keys in DRAM.
    #[test]
    #[ignore = "run by .ci/slow: slow tests"]
    fn slow_keys_in_dram_gain_as_much_if_a_get_compares_more_keys() {
        let [one, and_a_half] = [0.0, 0.5].map(|others| {
            let gains = of_gets(ModelName::Aep2, others, 1);
            println!("{:.2} keys compared a get: best gain {:.3}", 1.0 + others, gains.best());
            gains.best()
        });
        assert!(one < 1.4 && and_a_half > 1.4, "{one}, {and_a_half}");
    }
}
