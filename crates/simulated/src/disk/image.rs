//! A simulated disk after a crash: the state of each of its parts, and the disk that recovery
//! opens.

use std::any::Any;

use entresol_base::rng::Rng;

use super::{Core, Disk, DiskOptions};
use crate::crash::{Power, Unsettled};

impl Unsettled for Core {
    fn units(&self) -> Vec<u16> {
        self.state().tree.units()
    }

    fn settle(&self, choices: &mut [u16]) {
        self.state().tree.settle_choices(choices);
    }

    fn moments(&self) -> Vec<u64> {
        self.state().tree.moments()
    }

    fn cut(&self, moment: u64, choices: &mut [u16]) {
        let states = self.state().tree.states_before(moment);
        choices.iter_mut().zip(states).for_each(|(choice, state)| *choice = state);
    }

    /// Returns a [`Disk`] of the world that opens it, without times or faults.
    fn image(&self, choices: &[u16], power: &Power) -> Box<dyn Any> {
        let tree = self.state().tree.image(choices);
        // Recovery is watched only if crashes in it are to be tried.
        let own = Power::new();
        let power = if power.is_watched() { power } else { &own };
        Box::new(Disk::of_tree(&self.world(), power, tree))
    }
}

impl Disk {
    /// Returns for each unsettled part the number of states that it may have besides the durable
    /// one.
    #[must_use]
    pub fn units(&self) -> Vec<u16> {
        self.0.core.units()
    }

    /// Returns the disk as a crash with these choices leaves it, one for each of [`Disk::units`].
    #[must_use]
    pub fn image(&self, choices: &[u16]) -> Disk {
        let state = self.0.core.state();
        let mut choices = choices.to_vec();
        state.tree.settle_choices(&mut choices);
        Disk::of_tree(&self.0.core.world(), &Power::new(), state.tree.image(&choices))
    }

    /// Returns the disk as a random crash leaves it.
    #[must_use]
    pub fn random_image(&self, rng: &mut Rng) -> Disk {
        let units = self.units();
        let choices: Vec<u16> =
            units.into_iter().map(|states| rng.below(u64::from(states) + 1) as u16).collect();
        self.image(&choices)
    }

    /// Returns a disk with these bytes and names on a newly started machine, perhaps in another
    /// world: nothing is open or locked, and everything is durable.
    ///
    /// # Errors
    /// If the model is one of memory, or sectors have another size.
    pub fn reopen(&self, world: &super::World, options: DiskOptions) -> std::io::Result<Disk> {
        let tree = self.0.core.state().tree.settled();
        if options.sector.bytes() != tree.sector {
            let text = format!("the disk has sectors of {} bytes", tree.sector);
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, text));
        }
        Disk::with(world, options, tree)
    }
}
