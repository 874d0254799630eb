//! A simulated disk after a crash: the state that each of its parts is found in, and the disk that
//! recovery opens then.

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

    /// The image is a [`Disk`] of the world that opens it, on which nothing takes time and nothing
    /// fails.
    fn image(&self, choices: &[u16], power: &Power) -> Box<dyn Any> {
        let tree = self.state().tree.image(choices);
        // Recovery is watched only where crashes in it are to be tried.
        let own = Power::new();
        let power = if power.is_watched() { power } else { &own };
        Box::new(Disk::of_tree(&self.world(), power, tree))
    }
}

impl Disk {
    /// For each part that is not settled, how many states it may be in beside the durable one.
    #[must_use]
    pub fn units(&self) -> Vec<u16> {
        self.0.core.units()
    }

    /// The disk as a crash with these choices leaves it, one for each of [`Disk::units`].
    #[must_use]
    pub fn image(&self, choices: &[u16]) -> Disk {
        let state = self.0.core.state();
        let mut choices = choices.to_vec();
        state.tree.settle_choices(&mut choices);
        Disk::of_tree(&self.0.core.world(), &Power::new(), state.tree.image(&choices))
    }

    /// The disk as some crash leaves it.
    #[must_use]
    pub fn random_image(&self, rng: &mut Rng) -> Disk {
        let units = self.units();
        let choices: Vec<u16> =
            units.into_iter().map(|states| rng.below(u64::from(states) + 1) as u16).collect();
        self.image(&choices)
    }

    /// The same bytes and names on a machine that was started anew, in another world as it may be:
    /// nothing is open or locked, all is durable.
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
