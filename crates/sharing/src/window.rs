//! Windows: the use and response times of one tenant in a stretch of time. They add up.

use std::time::Duration;

use entresol_media::Usage;

use crate::sketch::Sketch;

/// Use and response times of one tenant in a stretch of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Window {
    /// Length of the stretch.
    pub(crate) elapsed: Duration,
    /// Use of each medium.
    pub(crate) used: Vec<Usage>,
    /// Requests answered.
    pub(crate) operations: u64,
    /// Response times.
    pub(crate) latency: Sketch,
}

impl Window {
    /// Adds the stretch that follows.
    pub(crate) fn add(&mut self, next: &Window) {
        self.elapsed += next.elapsed;
        self.add_beside(next);
    }

    /// Adds another tenant's use in the same stretch.
    pub(crate) fn add_beside(&mut self, other: &Window) {
        if self.used.len() < other.used.len() {
            self.used.resize(other.used.len(), Usage::default());
        }
        for (mine, theirs) in self.used.iter_mut().zip(&other.used) {
            mine.used_ns = mine.used_ns.saturating_add(theirs.used_ns);
            mine.reads = mine.reads.saturating_add(theirs.reads);
            mine.writes = mine.writes.saturating_add(theirs.writes);
            mine.read_bytes = mine.read_bytes.saturating_add(theirs.read_bytes);
            mine.written_bytes = mine.written_bytes.saturating_add(theirs.written_bytes);
        }
        self.operations = self.operations.saturating_add(other.operations);
        self.latency.merge(&other.latency);
    }

    fn seconds(&self) -> f64 {
        self.elapsed.as_secs_f64()
    }

    fn rate(&self, amount: f64) -> f64 {
        if self.elapsed.is_zero() { 0.0 } else { amount / self.seconds() }
    }

    /// Share of a medium's time that was used.
    pub(crate) fn use_of(&self, medium: usize) -> f64 {
        self.used.get(medium).map_or(0.0, |used| self.rate(used.used_ns as f64 / 1e9))
    }

    /// Dominant share: the largest share of any medium.
    pub(crate) fn use_dominant(&self) -> f64 {
        (0..self.used.len()).map(|medium| self.use_of(medium)).fold(0.0, f64::max)
    }

    /// Requests answered in a second.
    pub(crate) fn operations_s(&self) -> f64 {
        self.rate(self.operations as f64)
    }

    /// Bytes moved on a medium.
    pub(crate) fn bytes(&self, medium: usize) -> u64 {
        let total = |used: &Usage| used.read_bytes.saturating_add(used.written_bytes);
        self.used.get(medium).map_or(0, total)
    }

    /// Bytes moved in a second, on all media together.
    pub(crate) fn bytes_s(&self) -> f64 {
        self.rate((0..self.used.len()).map(|medium| self.bytes(medium) as f64).sum())
    }

    /// Part of the accesses that wrote.
    pub(crate) fn write_part(&self) -> f64 {
        let writes: u64 = self.used.iter().map(|used| used.writes).sum();
        let reads: u64 = self.used.iter().map(|used| used.reads).sum();
        if reads + writes == 0 { 0.0 } else { writes as f64 / (reads + writes) as f64 }
    }
}
