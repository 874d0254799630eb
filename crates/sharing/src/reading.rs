//! Readings of tenants at a tick, and the bounds within which they are believed.
//!
//! Readings come from accounts and from the tenants themselves, and so from programs that hang,
//! restart and err. A counter that fell has restarted and says nothing this time. A counter that
//! rose beyond the ability of a medium counts as the most that it can do.

use std::collections::BTreeMap;
use std::time::Duration;

use entresol_base::Nanos;
use entresol_media::Usage;

use crate::sketch::Sketch;
use crate::tenant::TenantId;
use crate::window::Window;

/// Maximum device time that is believed for each second: cost tables err by parts, not by
/// multiples.
const USE_MAX: u64 = 8;
/// Operations a second beyond any machine.
const OPERATIONS_S_MAX: u64 = 10_000_000_000;

/// Counters of one tenant. They may start anywhere; only their growth is read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// Tenant that the reading is of.
    pub tenant: TenantId,
    /// Use of its account on each medium, in the order of the media.
    pub used: Vec<Usage>,
    /// Requests answered so far, if the tenant counts them; if not, its accesses to media stand in.
    pub operations: Option<u64>,
    /// Response times since the last reading; empty if the tenant does not measure them.
    pub latency: Sketch,
}

/// Counters of all tenants at the last tick.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    at: Option<Nanos>,
    last: BTreeMap<TenantId, Reading>,
}

impl Meters {
    /// Returns each tenant's window since the last call; a tenant's first reading gives an empty
    /// one. Time that runs backwards counts as standing still.
    pub(crate) fn read(&mut self, now: Nanos, readings: &[Reading]) -> BTreeMap<TenantId, Window> {
        let before = self.at.unwrap_or(now);
        self.at = Some(before.max(now));
        let elapsed = now.since(before);
        let mut windows = BTreeMap::new();
        let mut seen = BTreeMap::new();
        for reading in readings {
            let latency = reading.latency.clone();
            let mut window = Window { elapsed, latency, ..Window::default() };
            if let Some(last) = self.last.get(&reading.tenant) {
                window.used = growth_of_all(&reading.used, &last.used, elapsed);
                window.operations = operations(reading, last, &window.used, elapsed);
            } else {
                window.latency.clear();
                window.used = vec![Usage::default(); reading.used.len()];
            }
            windows.insert(reading.tenant, window);
            seen.insert(reading.tenant, Reading { latency: Sketch::new(), ..reading.clone() });
        }
        self.last = seen;
        windows
    }
}

fn growth_of_all(now: &[Usage], before: &[Usage], elapsed: Duration) -> Vec<Usage> {
    let start = Usage::default();
    let before = before.iter().chain(std::iter::repeat(&start));
    now.iter().zip(before).map(|(now, before)| growth(now, before, elapsed)).collect()
}

fn growth(now: &Usage, before: &Usage, elapsed: Duration) -> Usage {
    let fell = now.used_ns < before.used_ns
        || now.reads < before.reads
        || now.writes < before.writes
        || now.read_bytes < before.read_bytes
        || now.written_bytes < before.written_bytes;
    if fell {
        return Usage::default();
    }
    let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    // A gigabyte in a millisecond is more than any medium moves; the bound also keeps sums small.
    let bytes_max = elapsed_ns.saturating_mul(1_000);
    Usage {
        used_ns: (now.used_ns - before.used_ns).min(elapsed_ns.saturating_mul(USE_MAX)),
        reads: (now.reads - before.reads).min(operations_max(elapsed)),
        writes: (now.writes - before.writes).min(operations_max(elapsed)),
        read_bytes: (now.read_bytes - before.read_bytes).min(bytes_max),
        written_bytes: (now.written_bytes - before.written_bytes).min(bytes_max),
    }
}

fn operations(now: &Reading, before: &Reading, used: &[Usage], elapsed: Duration) -> u64 {
    match (now.operations, before.operations) {
        (Some(now), Some(before)) => now.saturating_sub(before).min(operations_max(elapsed)),
        (Some(_), None) => 0,
        (None, _) => used.iter().map(|used| used.reads + used.writes).sum(),
    }
}

fn operations_max(elapsed: Duration) -> u64 {
    let per_second = u128::from(OPERATIONS_S_MAX);
    u64::try_from(elapsed.as_nanos() * per_second / 1_000_000_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn reading(used_ns: u64, operations: Option<u64>) -> Reading {
        let used = vec![Usage { used_ns, reads: used_ns / 100, ..Usage::default() }];
        Reading { tenant: TenantId(1), used, operations, latency: Sketch::new() }
    }

    fn check(steps: &[(u64, Reading)]) -> Window {
        let mut meters = Meters::default();
        let mut last = Window::default();
        for (at_ms, reading) in steps {
            let windows = meters.read(Nanos(at_ms * MS), std::slice::from_ref(reading));
            last = windows[&TenantId(1)].clone();
        }
        last
    }

    #[test]
    fn growth_is_what_was_done() {
        let window = check(&[(5, reading(100, Some(7))), (15, reading(5 * MS, Some(1007)))]);
        assert_eq!(window.elapsed, Duration::from_millis(10));
        assert_eq!(window.operations, 1000);
        assert!((window.use_of(0) - 0.5).abs() < 1e-4);
    }

    #[test]
    fn a_first_reading_says_nothing() {
        let window = check(&[(5, reading(u64::MAX, Some(u64::MAX)))]);
        assert_eq!((window.operations, window.use_of(0)), (0, 0.0));
    }

    #[test]
    fn a_counter_that_fell_has_started_anew() {
        let window = check(&[(0, reading(5 * MS, Some(50))), (10, reading(MS, Some(10)))]);
        assert_eq!((window.operations, window.use_of(0)), (0, 0.0));
    }

    #[test]
    fn a_counter_beyond_the_possible_is_cut() {
        let window = check(&[(0, reading(0, Some(0))), (10, reading(u64::MAX, Some(u64::MAX)))]);
        assert_eq!(window.use_of(0), USE_MAX as f64);
        assert_eq!(window.operations, OPERATIONS_S_MAX / 100);
    }

    #[test]
    fn time_that_runs_backwards_stands_still() {
        let window = check(&[(20, reading(0, Some(0))), (10, reading(MS, Some(9)))]);
        assert_eq!(window.elapsed, Duration::ZERO);
        assert_eq!((window.operations, window.use_of(0)), (0, 0.0));
    }

    #[test]
    fn accesses_stand_in_for_operations_that_nobody_counts() {
        let window = check(&[(0, reading(0, None)), (10, reading(MS, None))]);
        assert_eq!(window.operations, MS / 100);
    }

    #[test]
    fn a_medium_that_is_missing_was_not_used() {
        let window = check(&[(0, reading(0, None)), (10, reading(MS, None))]);
        assert_eq!(window.use_of(5), 0.0);
    }
}
