//! A switch that follows the load: on while most events are of one kind, off while most are not.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Percentage of events of the kind at which the switch goes on, and at which it goes off. In
/// between it stays as it is, so that a load near one of them does not make it flap: a window's
/// share strays by 1.6 points.
const ON_PERCENT: u64 = 60;
const OFF_PERCENT: u64 = 40;
/// Number of events that decide.
const WINDOW: u64 = 1024;
/// Number of events that a thread counts before it reports them, so that not all threads write to
/// one line.
pub(crate) const TOLD: u64 = 16;

/// State of the switch; see the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    is_on: AtomicBool,
    /// Events in the lower half, those of the kind in the upper one.
    events: AtomicU64,
}

impl Switch {
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Reports events, and those of the kind. Returns true if that changed the switch.
    pub(crate) fn tell(&self, events: u64, of_kind: u64) -> bool {
        let before = self.events.fetch_add(events | of_kind << 32, Relaxed);
        let all = (before & u64::from(u32::MAX)) + events;
        if all < WINDOW {
            return false;
        }
        self.events.store(0, Relaxed);
        let share = ((before >> 32) + of_kind) * 100 / all;
        let was_on = self.is_on();
        let is_on = if was_on { share > OFF_PERCENT } else { share >= ON_PERCENT };
        self.is_on.store(is_on, Relaxed);
        is_on != was_on
    }
}

#[cfg(test)]
mod tests {
    use entresol_base::rng::Rng;

    use super::*;

    /// Counts changes of the switch while this percentage of events is of the kind.
    fn changes(switch: &Switch, rng: &mut Rng, percent: u64) -> u32 {
        let mut told = (0..5000).map(|_| {
            let of_kind = (0..TOLD).filter(|_| rng.below(100) < percent).count();
            u32::from(switch.tell(TOLD, of_kind as u64))
        });
        told.by_ref().sum()
    }

    #[test]
    fn it_follows_the_load_and_does_not_flap() {
        let (switch, mut rng) = (Switch::default(), Rng::new(1));
        for (percent, expected, is_on) in [
            (10, 0, false),
            (50, 0, false),
            (90, 1, true),
            (50, 0, true),
            (45, 0, true),
            (10, 1, false),
            (55, 0, false),
        ] {
            assert_eq!(changes(&switch, &mut rng, percent), expected, "{percent} percent");
            assert_eq!(switch.is_on(), is_on, "{percent} percent");
        }
        // On an edge it changes once.
        assert!(changes(&switch, &mut rng, 60) <= 1);
        assert!(changes(&switch, &mut rng, 40) <= 1);
    }
}
