//! No policy: all tenants are free. For comparison, and to switch sharing off live.

use std::time::Duration;

use entresol_base::Nanos;

use super::Policy;
use crate::tick::{Hands, Tick};

/// Interval between ticks, so that the tenants' views stay fresh.
const TICK: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct None;

impl Policy for None {
    fn tick(&mut self, tick: &Tick<'_>, _hands: &mut Hands<'_>) -> Nanos {
        tick.now.after(TICK)
    }
}
