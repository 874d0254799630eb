//! Figure 5: a fence after every 256 bytes of large writes.
//!
//! With fences, the shipped copy [`Region::write_streaming`] runs on an observed region. Without
//! them, the model is called directly, since no shipped code writes like that.

use std::sync::Arc;

use entresol_base::clock::Picos;
use entresol_base::size::ByteSize;
use entresol_base::thread;
use entresol_base::world::{World, WorldOptions};
use entresol_media::model::memory::SimulatedMemory;
use entresol_media::observe::{Counters, Observed};
use entresol_media::region::Region;

use super::{AEP, Group, Line, Outcome, Pattern, Scale, Settings, THREADS, axis, lines, scenario};
use crate::check::Check;
use crate::memory::run;
use crate::tolerance::Side;

/// Block sizes: chosen.
const SIZES: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20];
/// Bytes of the area that each thread overwrites again and again.
const AREA_BYTES: u64 = 4 << 20;
/// Least number of bytes that a thread writes in each round; the first round is not measured.
const ROUND_BYTES: u64 = 256 << 10;

#[derive(Debug, Clone, Copy)]
struct Point {
    bytes: u64,
    threads: u32,
    gb_s: f64,
    /// Units that the medium wrote for each unit of the request.
    amplification: f64,
}

type Memory = Observed<(Arc<Counters>, SimulatedMemory)>;

/// Measures the shipped copy. Also returns its fences for each unit of 256 bytes.
fn fenced(bytes: u64, threads: u32, seed: u64) -> (Point, f64) {
    let world = World::new(WorldOptions::seeded(seed));
    let counters = Arc::new(Counters::default());
    let memory = SimulatedMemory::new(&world, AEP);
    let observers = (Arc::clone(&counters), memory.clone());
    let region = match Observed::new(AREA_BYTES * u64::from(threads), observers) {
        Ok(region) => Arc::new(region),
        Err(error) => panic!("no memory to write to: {error}"),
    };
    let inner = world.clone();
    let ran = world.run(move || {
        let start = |id: u32| {
            let (world, region) = (inner.clone(), Arc::clone(&region));
            thread::spawn(&format!("writer {id}"), move || write(&world, &region, id, bytes))
        };
        let handles: Vec<_> = (0..threads).map(start).collect();
        let times = handles.into_iter().map(|handle| handle.join().unwrap_or(Picos::MAX));
        times.collect::<Vec<Picos>>()
    });
    let times = ran.unwrap_or_else(|failure| panic!("the writers ended badly: {failure:?}"));
    let rate = |time: &Picos| round(bytes) as f64 / time.as_secs_f64() / 1e9;
    let asked = 2.0 * round(bytes) as f64 * f64::from(threads) / 256.0;
    let amplification = memory.counts().units_written as f64 / asked;
    let point = Point { bytes, threads, gb_s: times.iter().map(rate).sum(), amplification };
    (point, counters.counts().copy_fences as f64 / asked)
}

/// Returns the bytes that a thread writes in each of its two rounds.
fn round(bytes: u64) -> u64 {
    bytes.max(ROUND_BYTES)
}

/// Writes two rounds of blocks and returns the time of the second.
fn write(world: &World, region: &Memory, id: u32, bytes: u64) -> Picos {
    let block = vec![7; bytes as usize];
    let (first, blocks) = (u64::from(id) * AREA_BYTES, round(bytes) / bytes);
    let mut began = Picos::ZERO;
    for number in 0..2 * blocks {
        if number == blocks {
            began = world.now();
        }
        region.write_streaming(first + number * bytes % AREA_BYTES, &block);
        region.drain();
    }
    world.now().since(began)
}

/// Measures writes without fences within a block.
fn unfenced(bytes: u64, threads: u32, seed: u64) -> Point {
    let group = Group::writers(threads, bytes, Pattern::Sequential);
    let scene = run(&AEP, &[group], seed);
    let asked = scene.groups[0].bytes as f64 / 256.0;
    let amplification = scene.counts.units_written as f64 / asked;
    Point { bytes, threads, gb_s: scene.groups[0].gb_s(), amplification }
}

fn peak(points: &[&Point]) -> f64 {
    points.iter().map(|point| point.gb_s).fold(0.0, f64::max)
}

/// Returns the checks of one thread count.
fn checks(threads: u32, with: &[Point], without: &[Point]) -> Vec<Check> {
    let of = |points| -> Vec<&Point> {
        let points: &[Point] = points;
        points.iter().filter(|point| point.threads == threads).collect()
    };
    let (with, without) = (of(with), of(without));
    let left = |points: &[&Point], gb_s: f64| gb_s / peak(points);
    let least = with.iter().map(|point| left(&with, point.gb_s)).fold(f64::INFINITY, f64::min);
    let fallen = without.last().map_or(1.0, |point| left(&without, point.gb_s));
    let written = |points: &[&Point]| points.last().map_or(0.0, |point| point.amplification);
    let worst = with.iter().map(|point| point.amplification).fold(0.0, f64::max);
    vec![
        Check::limit(
            format!("{threads} threads, with fences: the size that falls most, of the peak"),
            "%",
            Side::AtLeast,
            95.0,
            least * 100.0,
        ),
        Check::limit(
            format!("{threads} threads, without: the largest size, of the peak"),
            "%",
            Side::Below,
            95.0,
            fallen * 100.0,
        ),
        Check::about(
            format!("{threads} threads, with fences: media units written per unit asked"),
            "",
            1.0,
            worst,
            1,
        ),
        Check::limit(
            format!("{threads} threads, without: media units written per unit asked, largest size"),
            "",
            Side::Above,
            1.05,
            written(&without),
        ),
    ]
}

pub(super) fn figure5(settings: &Settings) -> Outcome {
    let (mut with, mut without, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for bytes in SIZES {
        for threads in THREADS {
            let (point, fences) = fenced(bytes, threads, settings.seed);
            found.push(fences);
            with.push(point);
            without.push(unfenced(bytes, threads, settings.seed));
        }
    }
    let mut all: Vec<Check> =
        THREADS.into_iter().flat_map(|threads| checks(threads, &with, &without)).collect();
    let exact = found.iter().all(|&fences| fences == 1.0);
    let least = found.iter().copied().fold(f64::INFINITY, f64::min);
    all.push(Check::shape(
        "fences of the shipped copy",
        "one for each 256 B",
        format!("{least} for each"),
        exact,
    ));
    let scenario = scenario(&[
        "blocks of 4 KiB to 4 MiB (chosen), one behind the other, each thread in memory of its own",
        "with fences the program's own copy runs, write_streaming on an observed region; a fence \
         for each 256 B costs one thread bandwidth, since it waits for each unit",
    ]);
    Outcome { scenario, checks: all, drawings: vec![drawing(&with, &without)] }
}

fn drawing(with: &[Point], without: &[Point]) -> String {
    let line = |name: &str, points: &[Point], threads: u32| Line {
        label: format!("{threads} threads, {name}"),
        points: points
            .iter()
            .filter(|point| point.threads == threads)
            .map(|point| (point.bytes as f64, point.gb_s))
            .collect(),
    };
    let series = [
        line("fences", with, 1),
        line("fences", with, 16),
        line("no fences", without, 1),
        line("no fences", without, 16),
    ];
    let title = format!("Writes with and without a fence every {}", ByteSize(256));
    let x = axis("block size", Scale::Logarithmic);
    lines(&title, &x, &axis("GB/s", Scale::Linear), &series)
}
