//! A trace run through simulated policies: at equal memory, at equal object bytes, and as a curve
//! over capacities.

use entresol_base::hash::KeyHasher;
use serde::Serialize;

use super::tally::{Hits, Tally};
use crate::policies::{Access, PolicyName};
use entresol_measure::progress::Progress;
use entresol_measure::trace::{Operation, Recorded, Recording};

/// Requests between two looks at the progress bar.
const PROGRESS_EVERY: usize = 1 << 16;
/// Objects that a curve samples, if the trace has more.
const SAMPLED_OBJECTS: u64 = 50_000;
/// Capacities of a curve in per cent of the trace's footprint.
const CURVE_PERCENTS: [f64; 11] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0];

/// Room that a simulated policy gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sizing {
    /// The quota of our cache; each object costs its key, its value and a stated overhead.
    EqualMemory,
    /// The bytes of keys and values that our cache held; an object costs no more than these.
    EqualObjectBytes,
}

/// Hits of one simulated policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyHits {
    /// Name of the policy.
    pub policy: &'static str,
    /// Kind of room that the policy got.
    pub sizing: Sizing,
    /// Capacity of the simulated cache.
    pub capacity_bytes: u64,
    /// Bytes that an object costs beside its key and its value.
    pub overhead_bytes: u64,
    /// Hits of the policy.
    #[serde(flatten)]
    pub hits: Hits,
}

/// Miss-ratio curve of one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MissRatioCurve {
    /// Name of the policy.
    pub policy: &'static str,
    /// Share of objects that were sampled, by the hash of their keys.
    pub sampled_share: f64,
    /// Miss ratio at each capacity.
    pub points: Vec<CurvePoint>,
}

/// Point of a miss-ratio curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Capacity in per cent of the footprint.
    pub footprint_percent: f64,
    /// Capacity.
    pub capacity_bytes: u64,
    /// Share of gets that miss.
    pub miss_ratio: f64,
}

/// A trace and the way in which caches see it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) recorded: &'a Recorded,
    /// Number of the next request for the key of each request.
    pub(super) next: &'a [u64],
    /// True if a value is stored after a miss.
    pub(super) store_on_miss: bool,
    /// Requests that count as warm-up.
    pub(super) warm_up: usize,
}

/// Capacity and cost of objects of one simulated cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) sizing: Sizing,
    pub(super) capacity_bytes: u64,
    pub(super) overhead_bytes: u64,
}

/// Runs the trace through one policy.
pub(super) fn simulate(
    scene: Scene<'_>,
    name: PolicyName,
    room: Room,
    progress: &Progress,
) -> PolicyHits {
    let tally = run(scene, name, room, progress, |_| true);
    PolicyHits {
        policy: name.as_str(),
        sizing: room.sizing,
        capacity_bytes: room.capacity_bytes,
        overhead_bytes: room.overhead_bytes,
        hits: tally.hits(),
    }
}

fn run(
    scene: Scene<'_>,
    name: PolicyName,
    room: Room,
    progress: &Progress,
    is_sampled: impl Fn(u32) -> bool,
) -> Tally {
    let mut cache = Simulated::new(scene, name, room);
    let requests = scene.recorded.requests();
    for (number, request) in requests.iter().enumerate() {
        if number.is_multiple_of(PROGRESS_EVERY) {
            progress.advance(PROGRESS_EVERY.min(requests.len() - number) as u64);
            if progress.is_stopped() {
                break;
            }
        }
        if is_sampled(request.object) {
            cache.request(number, request);
        }
    }
    cache.tally
}

/// A policy with the commands of a cache: expiry, stores, deletes.
struct Simulated<'a> {
    scene: Scene<'a>,
    policy: Box<dyn crate::policies::Policy>,
    overhead: u64,
    /// Second in which each held object expires, 0 for never.
    expires_s: Vec<u32>,
    value_bytes: Vec<u32>,
    tally: Tally,
}

impl<'a> Simulated<'a> {
    fn new(scene: Scene<'a>, name: PolicyName, room: Room) -> Simulated<'a> {
        let objects = scene.recorded.objects() as usize;
        Simulated {
            scene,
            policy: name.build(room.capacity_bytes),
            overhead: room.overhead_bytes,
            expires_s: vec![0; objects],
            value_bytes: vec![0; objects],
            tally: Tally::new(scene.recorded.requests().len(), scene.warm_up),
        }
    }

    fn access(&self, number: usize, request: &Recording, value_bytes: u32) -> Access {
        let key = self.scene.recorded.key(request.object).len() as u64;
        Access {
            object: request.object,
            bytes: key + u64::from(value_bytes) + self.overhead,
            number: number as u64,
            next: self.scene.next[number],
        }
    }

    fn request(&mut self, number: usize, request: &Recording) {
        let at = request.object as usize;
        if self.expires_s[at] != 0 && request.at_s >= self.expires_s[at] {
            self.policy.remove(request.object);
            self.expires_s[at] = 0;
        }
        let access = self.access(number, request, request.value_bytes);
        match request.operation {
            Operation::Get => {
                let is_hit = self.policy.hit(access);
                self.tally.get(number, request.value_bytes, is_hit);
                if !is_hit && self.scene.store_on_miss {
                    self.admit(access, request);
                }
            }
            Operation::Delete => self.policy.remove(request.object),
            Operation::Increment | Operation::Decrement => {
                self.policy.hit(access);
            }
            Operation::Set => self.store(number, request, request.value_bytes),
            Operation::Add => {
                if !self.policy.hit(access) {
                    self.admit(access, request);
                }
            }
            Operation::Replace | Operation::Append | Operation::Prepend => {
                if self.policy.hit(access) {
                    let before = match request.operation {
                        Operation::Replace => 0,
                        _ => self.value_bytes[at],
                    };
                    self.store(number, request, before.saturating_add(request.value_bytes));
                }
            }
        }
    }

    /// Stores a value; a held object of the same size is renewed.
    fn store(&mut self, number: usize, request: &Recording, value_bytes: u32) {
        let access = self.access(number, request, value_bytes);
        if self.value_bytes[request.object as usize] != value_bytes {
            self.policy.remove(request.object);
        }
        if self.policy.hit(access) {
            self.note(request, value_bytes);
        } else {
            self.admit(access, &Recording { value_bytes, ..*request });
        }
    }

    fn admit(&mut self, access: Access, request: &Recording) {
        self.policy.admit(access);
        self.note(request, request.value_bytes);
    }

    fn note(&mut self, request: &Recording, value_bytes: u32) {
        let at = request.object as usize;
        self.value_bytes[at] = value_bytes;
        self.expires_s[at] = match request.ttl_s {
            0 => 0,
            ttl_s => request.at_s.saturating_add(ttl_s).max(1),
        };
    }
}

/// Measures the miss ratio of a policy over capacities, on a sample of the objects.
///
/// The sample is spatial, as in SHARDS (Waldspurger et al., FAST 2015): an object is in it by the
/// hash of its key, and the simulated capacity is the same share of the real one. Misses are
/// divided by the gets that the share should have had, which corrects for hot objects that the
/// sample lacks or has by chance.
pub(super) fn curve(
    scene: Scene<'_>,
    name: PolicyName,
    overhead_bytes: u64,
    progress: &Progress,
) -> MissRatioCurve {
    let recorded = scene.recorded;
    let hasher = KeyHasher::seeded(0);
    let share = (SAMPLED_OBJECTS as f64 / f64::from(recorded.objects().max(1))).min(1.0);
    let below = (share * u64::MAX as f64) as u64;
    let sampled: Vec<bool> = (0..recorded.objects())
        .map(|object| share >= 1.0 || hasher.hash(recorded.key(object)) <= below)
        .collect();
    let footprint = recorded.footprint_bytes(overhead_bytes);
    let gets = recorded.requests().iter().filter(|it| it.operation == Operation::Get).count();
    let points = CURVE_PERCENTS.into_iter().map(|percent| {
        let capacity = footprint as f64 * percent / 100.0;
        let room = Room {
            sizing: Sizing::EqualMemory,
            capacity_bytes: (capacity * share) as u64,
            overhead_bytes,
        };
        let hits = run(scene, name, room, progress, |object| sampled[object as usize]).hits();
        let missed = (hits.all.gets - hits.all.hits) as f64;
        CurvePoint {
            footprint_percent: percent,
            capacity_bytes: capacity as u64,
            miss_ratio: (missed / (gets.max(1) as f64 * share)).min(1.0),
        }
    });
    MissRatioCurve { policy: name.as_str(), sampled_share: share, points: points.collect() }
}

/// Number of capacities of a curve, each of which runs the whole trace once.
pub(super) const CURVE_RUNS: u64 = CURVE_PERCENTS.len() as u64;
