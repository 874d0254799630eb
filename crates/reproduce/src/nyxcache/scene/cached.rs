//! Caches of a scene's tenants: the shipped one, with its values on the scene's device.

use std::sync::Arc;

use entresol_base::world::World;
use entresol_base::{ByteSize, Clock, Nanos, Picos, Seconds, thread};
use entresol_cache::media::{LABEL_BYTES, Medium, Share};
use entresol_cache::{Cache, Config, GetOptions, Lookup, Store, Stored, Worker};
use entresol_measure::popularity::{KeyChooser, Popularity};
use entresol_measure::values::KeyMaker;
use entresol_media::{Account, Admission, MediumSpec, ModelName, Observed};
use entresol_simulated::SimulatedMemory;

use super::Scene;
use super::actor::Actor;

/// Area of the device that each tenant has for itself.
const AREA_BYTES: u64 = 1 << 30;
/// DRAM of a tenant: more than its keys ever take.
const DRAM_BYTES: ByteSize = ByteSize::mib(64);
/// Interval at which upkeep looks for work, as in a server.
const UPKEEP: Picos = Picos::from_millis(1);

/// A tenant's cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Kept {
    /// Quota of the medium.
    pub(crate) quota: ByteSize,
    /// Bytes of a key.
    pub(crate) key_bytes: usize,
    /// Bytes of a value that is stored before the scene begins.
    pub(crate) value_bytes: usize,
    /// Number of keys that requests draw from.
    pub(crate) keys: u64,
    /// Popularity of the keys.
    pub(crate) popularity: Popularity,
    /// Number of keys that are stored before the scene begins, from the first on.
    pub(crate) stored: u64,
}

/// A tenant's cache, opened.
pub(super) struct Open {
    cache: Arc<Cache>,
    kept: Kept,
}

/// Opens and fills the caches of a scene. Filling takes no time: it is done outside of the world.
pub(super) fn open_all(world: &World, scene: &Scene) -> Vec<Option<Open>> {
    let device = SimulatedMemory::new(world, scene.device);
    let open = |(place, actor): (usize, &Actor)| {
        let kept = actor.cache?;
        let memory = device.at(place as u64 * AREA_BYTES);
        Some(Open::filled(world, scene, actor, kept, memory))
    };
    let caches: Vec<_> = scene.actors.iter().enumerate().map(open).collect();
    let with_cache = caches.iter().flatten().count();
    assert!(with_cache == 0 || with_cache == caches.len(), "all tenants have a cache, or none");
    caches
}

impl Open {
    /// Opens a cache. Its sizes come from this program; an error in them is a bug.
    fn filled(
        world: &World,
        scene: &Scene,
        actor: &Actor,
        kept: Kept,
        memory: SimulatedMemory,
    ) -> Open {
        let region = match Observed::new(LABEL_BYTES + kept.quota.0, memory) {
            Ok(region) => region,
            Err(error) => unreachable!("{error}"),
        };
        let config = Config {
            name: actor.tenant.0.to_string(),
            medium: MediumSpec::Model(ModelName::Aep2),
            workers: actor.threads_max() as usize,
            huge_pages: false,
            costs: Some(Arc::clone(&scene.costs)),
            seed: Some(scene.seed),
            ..Config::dram(DRAM_BYTES)
        };
        let medium = Medium::Region(Box::new(region));
        let share = Share { medium, bytes: kept.quota, segment_bytes: None };
        let clock: Arc<dyn Clock> = Arc::new(world.clone());
        let cache = match Cache::open_on(config, vec![share], None, clock) {
            Ok(cache) => cache,
            Err(error) => unreachable!("{error}"),
        };
        let open = Open { cache, kept };
        let mut client = open.client(scene.seed);
        let now = world.seconds();
        for number in 0..kept.stored {
            client.store(number, now, kept.value_bytes);
            while open.cache.maintain(now) {}
        }
        open
    }

    pub(super) fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    pub(super) fn account(&self) -> Arc<Account> {
        Arc::clone(self.cache.account())
    }

    pub(super) fn client(&self, seed: u64) -> Client {
        let Kept { key_bytes, keys, popularity, .. } = self.kept;
        let Some(maker) = KeyMaker::new(key_bytes, keys) else {
            unreachable!("{keys} keys of {key_bytes} B")
        };
        Client {
            worker: self.cache.worker(),
            maker,
            chooser: KeyChooser::new(popularity, keys),
            rng: fastrand::Rng::with_seed(seed),
            key: Vec::new(),
            value: Vec::new(),
            out: Vec::new(),
        }
    }
}

/// A loop's handle on its tenant's cache.
pub(super) struct Client {
    worker: Worker,
    maker: KeyMaker,
    chooser: KeyChooser,
    rng: fastrand::Rng,
    key: Vec<u8>,
    value: Vec<u8>,
    out: Vec<u8>,
}

impl Client {
    pub(super) fn admit(&mut self, now: Nanos) -> Admission {
        self.worker.admit(now)
    }

    /// Gets an item of a key that it draws; returns true if there is one.
    pub(super) fn get(&mut self, now: Seconds) -> bool {
        self.key.clear();
        self.maker.append(self.chooser.next(&mut self.rng), &mut self.key);
        self.out.clear();
        let (hash, options) = (self.worker.hash(&self.key), GetOptions::default());
        let found = self.worker.get(&self.key, hash, now, &options, &mut self.out, |_, _| {});
        matches!(found, Lookup::Hit(_))
    }

    /// Stores an item of a key that it draws; returns true if it was accepted.
    pub(super) fn set(&mut self, now: Seconds, bytes: usize) -> bool {
        let number = self.chooser.next(&mut self.rng);
        self.store(number, now, bytes)
    }

    fn store(&mut self, number: u64, now: Seconds, bytes: usize) -> bool {
        self.key.clear();
        self.maker.append(number, &mut self.key);
        self.value.resize(bytes, b'v');
        let hash = self.worker.hash(&self.key);
        let stored = self.worker.store(&self.key, hash, now, &Store::set(&self.value), None);
        matches!(stored, Stored::Stored { .. })
    }
}

/// Does a cache's upkeep until the scene ends.
pub(super) fn keep_up(world: &World, cache: &Cache, end: Picos) {
    while world.now() < end {
        while cache.maintain(world.seconds()) && world.now() < end {
            thread::step();
        }
        world.wait_until(world.now().after(UPKEEP).min(end));
    }
}
