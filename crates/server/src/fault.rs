//! Lines about faults that repeat: one when a fault begins, one now and then, one when it is over.

use std::time::Duration;

use entresol_base::Nanos;

/// Interval between lines about a fault that lasts.
const REMIND_EVERY: Duration = Duration::from_secs(60);
/// Time without the fault after which it is over.
const OVER_AFTER: Duration = Duration::from_secs(1);

/// A kind of fault, and the lines that it may have.
#[derive(Debug, Default)]
pub(crate) struct Fault {
    current: Option<Spell>,
}

/// Time during which the fault occurs again and again.
#[derive(Debug, Clone, Copy)]
struct Spell {
    last: Nanos,
    logged: Nanos,
    /// Number of times since the last line.
    unlogged: u64,
    times: u64,
}

impl Fault {
    /// Notes that the fault has occurred. Returns the number of times since the last line if it is
    /// time for a line.
    pub(crate) fn occurred(&mut self, now: Nanos) -> Option<u64> {
        let Some(spell) = &mut self.current else {
            self.current = Some(Spell { last: now, logged: now, unlogged: 0, times: 1 });
            return Some(1);
        };
        spell.last = now;
        spell.times += 1;
        spell.unlogged += 1;
        if now.since(spell.logged) < REMIND_EVERY {
            return None;
        }
        spell.logged = now;
        Some(std::mem::take(&mut spell.unlogged))
    }

    /// Returns the number of times that the fault occurred, once it is over.
    pub(crate) fn is_over(&mut self, now: Nanos) -> Option<u64> {
        let spell = self.current.filter(|spell| now.since(spell.last) >= OVER_AFTER)?;
        self.current = None;
        Some(spell.times)
    }

    /// Time at which the fault may be over.
    pub(crate) fn over_at(&self) -> Option<Nanos> {
        self.current.map(|spell| spell.last.after(OVER_AFTER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_lasts_has_a_line_at_its_beginning_now_and_then_and_at_its_end() {
        let mut fault = Fault::default();
        let at = |ms: u64| Nanos(ms * 1_000_000);
        assert_eq!(fault.is_over(at(0)), None);
        let lines: Vec<u64> = (0..1300).filter_map(|n| fault.occurred(at(n * 100))).collect();
        assert_eq!(lines, [1, 600, 600]);
        assert_eq!(fault.is_over(at(129_901)), None);
        assert_eq!(fault.over_at(), Some(at(130_900)));
        assert_eq!(fault.is_over(at(130_900)), Some(1300));
        assert_eq!(fault.is_over(at(140_000)), None);
        assert_eq!(fault.occurred(at(150_000)), Some(1));
    }
}
