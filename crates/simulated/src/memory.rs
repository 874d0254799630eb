//! A model as the observer of a region: every access takes the virtual time that it would take on
//! the device.

use std::sync::Arc;

use entresol_base::sync::Mutex;
use entresol_base::thread;
use entresol_base::world::World;
use entresol_media::model::memory::{
    Accessor, Fence, MediumCounts, MemoryAccess, MemoryModel, MemoryOp, Parameters,
};
use entresol_media::observe::{Observer, Step, StoreKind};

/// A device in a world: the observer of one region on it, or of several that lie one behind the
/// other, see [`SimulatedMemory::at`].
///
/// Accesses by threads of the world take time; those from outside of any world take none.
#[derive(Clone)]
pub struct SimulatedMemory {
    world: World,
    model: Arc<Mutex<MemoryModel>>,
    /// Offset of the region on the device.
    base: u64,
}

impl SimulatedMemory {
    /// Makes an idle device.
    #[must_use]
    pub fn new(world: &World, parameters: Parameters) -> SimulatedMemory {
        let model = Arc::new(Mutex::new(MemoryModel::new(parameters)));
        SimulatedMemory { world: world.clone(), model, base: 0 }
    }

    /// Returns the observer of another region on this device, `base` bytes behind its beginning.
    #[must_use]
    pub fn at(&self, base: u64) -> SimulatedMemory {
        SimulatedMemory { base, ..self.clone() }
    }

    /// Returns the medium's work so far.
    #[must_use]
    pub fn counts(&self) -> MediumCounts {
        self.model.lock().counts()
    }

    fn access(&self, accessor: Accessor, op: MemoryOp, offset: u64, len: usize) {
        let offset = self.base + offset;
        let access = MemoryAccess { op, offset, bytes: len as u64, fence: Fence::None };
        let mut transfer = self.model.lock().begin(accessor, access);
        loop {
            let later = self.model.lock().advance(self.world.now(), &mut transfer);
            let Some(later) = later else { return };
            self.world.wait_until(later);
        }
    }

    fn fence(&self, accessor: Accessor) {
        let later = self.model.lock().fence(self.world.now(), accessor);
        self.world.wait_until(later);
    }
}

impl Observer for SimulatedMemory {
    fn wait(&self, step: &Step) {
        if World::current().is_none() {
            return;
        }
        let accessor = Accessor(thread::current_id().0);
        match *step {
            Step::Load { offset, len } => self.access(accessor, MemoryOp::Load, offset, len),
            Step::Store { offset, len, kind: StoreKind::Cached } => {
                self.access(accessor, MemoryOp::Store, offset, len);
            }
            Step::Store { offset, len, kind: StoreKind::Streaming } => {
                self.access(accessor, MemoryOp::NtStore, offset, len);
            }
            Step::Locked { offset, len } => {
                self.access(accessor, MemoryOp::Store, offset, len);
                self.fence(accessor);
            }
            Step::Flush { offset, len } => {
                let offset = self.base + offset;
                let later = self.model.lock().flush(self.world.now(), accessor, offset, len);
                self.world.wait_until(later);
            }
            Step::Drain => self.fence(accessor),
        }
    }
}

impl std::fmt::Debug for SimulatedMemory {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SimulatedMemory").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use entresol_base::clock::Picos;
    use entresol_base::world::WorldOptions;

    use entresol_media::model::memory::AEP;
    use entresol_media::{Observed, Region};

    use super::*;

    /// Runs threads that read, write and persist pieces of one region. Returns the time at which
    /// the last one is done, and a hash of the order of their turns.
    fn history(seed: u64) -> (Picos, u64) {
        let world = World::new(WorldOptions::seeded(seed));
        let memory = SimulatedMemory::new(&world, AEP);
        let region = Arc::new(Observed::new(1 << 20, memory).expect("memory"));
        let inner = world.clone();
        let ran = world.run(move || {
            let work = |id: u64| {
                let (region, mut rng) = (Arc::clone(&region), inner.rng(&format!("{id}")));
                thread::spawn(&format!("{id}"), move || {
                    for _ in 0..500 {
                        let offset = rng.below((1 << 20) / 4096 - 1) * 4096 + id * 1024;
                        match rng.below(4) {
                            0 => region.read(offset, &mut [0; 700]),
                            1 => region.write_streaming(offset, &[1; 1000]),
                            2 => region.store_u64(offset, id, Ordering::Relaxed),
                            _ => region.persist(offset, 64),
                        }
                    }
                    region.drain();
                })
            };
            let handles: Vec<_> = (0..3).map(work).collect();
            handles.into_iter().for_each(|handle| handle.join().expect("no panic"));
        });
        ran.expect("the world ends");
        (world.now(), world.fingerprint())
    }

    #[test]
    fn the_same_history_takes_the_same_time_on_any_machine() {
        assert_eq!(history(1), history(1));
        assert_eq!(history(1).0, Picos(261_097_426));
    }

    #[test]
    fn a_persisted_word_takes_what_the_model_says() {
        let world = World::new(WorldOptions::seeded(1));
        let region = Observed::new(4096, SimulatedMemory::new(&world, AEP)).expect("memory");
        let inner = world.clone();
        let time = world.run(move || {
            region.store_u64(0, 1, Ordering::Relaxed);
            region.persist(0, 8);
            inner.now()
        });
        let (module, processor) = (&AEP.module, &AEP.processor);
        let fetched = module.unit_read.after(module.jump);
        let flushed = processor.store_line.after(module.store_latency);
        assert_eq!(time.expect("the world ends"), fetched.after(flushed));
    }
}
