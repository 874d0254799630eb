//! Hits of one cache over a trace: in all, after warm-up, over time and by size.

use serde::Serialize;

/// Sections of a trace, in each of which hits are counted apart.
pub(super) const SECTIONS: usize = 100;
/// Classes of sizes: one for each power of two.
const CLASSES: usize = 33;

/// Gets and hits, by number and by bytes of values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    gets: u64,
    hits: u64,
    get_bytes: u64,
    hit_bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: u64, is_hit: bool) {
        self.gets += 1;
        self.get_bytes += bytes;
        if is_hit {
            self.hits += 1;
            self.hit_bytes += bytes;
        }
    }

    fn ratios(&self) -> HitRatios {
        HitRatios {
            gets: self.gets,
            hits: self.hits,
            hit_ratio: self.hits as f64 / self.gets.max(1) as f64,
            byte_hit_ratio: self.hit_bytes as f64 / self.get_bytes.max(1) as f64,
        }
    }

    fn plus(mut self, other: &Count) -> Count {
        self.gets += other.gets;
        self.hits += other.hits;
        self.get_bytes += other.get_bytes;
        self.hit_bytes += other.hit_bytes;
        self
    }
}

/// Counter of hits while a trace is run.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    all: Count,
    warm: Count,
    warm_from: usize,
    section_requests: usize,
    sections: Vec<Count>,
    classes: Vec<Count>,
}

impl Tally {
    /// Creates a counter for `requests` requests, of which the first `warm_up` count apart.
    pub(super) fn new(requests: usize, warm_up: usize) -> Tally {
        Tally {
            all: Count::default(),
            warm: Count::default(),
            warm_from: warm_up,
            section_requests: requests.div_ceil(SECTIONS).max(1),
            sections: Vec::new(),
            classes: vec![Count::default(); CLASSES],
        }
    }

    /// Counts a get of request `number`.
    pub(super) fn get(&mut self, number: usize, bytes: u32, is_hit: bool) {
        let section = number / self.section_requests;
        if section >= self.sections.len() {
            self.sections.resize(section + 1, Count::default());
        }
        let value = u64::from(bytes);
        self.all.add(value, is_hit);
        self.sections[section].add(value, is_hit);
        self.classes[(u32::BITS - bytes.leading_zeros()) as usize].add(value, is_hit);
        if number >= self.warm_from {
            self.warm.add(value, is_hit);
        }
    }

    /// Adds what another counter of the same trace has seen.
    pub(super) fn merge(&mut self, other: &Tally) {
        self.all = self.all.plus(&other.all);
        self.warm = self.warm.plus(&other.warm);
        let sections = self.sections.len().max(other.sections.len());
        self.sections.resize(sections, Count::default());
        for (ours, theirs) in self.sections.iter_mut().zip(&other.sections) {
            *ours = ours.plus(theirs);
        }
        for (ours, theirs) in self.classes.iter_mut().zip(&other.classes) {
            *ours = ours.plus(theirs);
        }
    }

    /// Summarizes the counts.
    pub(super) fn hits(&self) -> Hits {
        let over_time = self.sections.iter().filter(|it| it.gets > 0);
        let by_size = self.classes.iter().enumerate().filter(|(_, count)| count.gets > 0);
        Hits {
            all: self.all.ratios(),
            warm: (self.warm_from > 0).then(|| self.warm.ratios()),
            hit_ratio_over_time: over_time.map(|it| it.hits as f64 / it.gets as f64).collect(),
            by_size: by_size
                .map(|(class, count)| SizeClass {
                    value_bytes_below: 1 << class,
                    ratios: count.ratios(),
                })
                .collect(),
        }
    }
}

/// Hits by number and by bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HitRatios {
    /// Number of gets.
    pub gets: u64,
    /// Gets that found a value.
    pub hits: u64,
    /// Share of gets that found a value.
    pub hit_ratio: f64,
    /// Share of the bytes asked for that were found.
    pub byte_hit_ratio: f64,
}

/// Hits for values of one class of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SizeClass {
    /// Upper limit of the class, a power of two; the class begins at half of it.
    pub value_bytes_below: u64,
    /// Hits of the class.
    #[serde(flatten)]
    pub ratios: HitRatios,
}

/// Hits of one cache over a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hits {
    /// Hits of all requests.
    #[serde(flatten)]
    pub all: HitRatios,
    /// Hits of requests after warm-up, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm: Option<HitRatios>,
    /// Hit ratio in each hundredth of the trace that has gets.
    pub hit_ratio_over_time: Vec<f64>,
    /// Hits by the size of the value.
    pub by_size: Vec<SizeClass>,
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn hits_are_counted_in_all_after_warm_up_over_time_and_by_size() {
        let mut tally = Tally::new(200, 100);
        for number in 0..200 {
            tally.get(number, if number % 2 == 0 { 10 } else { 1000 }, number >= 150);
        }
        let mut twice = tally.clone();
        twice.merge(&tally);
        let hits = twice.hits();
        assert_eq!((hits.all.gets, hits.all.hits, hits.all.hit_ratio), (400, 100, 0.25));
        assert_eq!(hits.warm.map(|warm| (warm.gets, warm.hit_ratio)), Some((200, 0.5)));
        assert_eq!(hits.hit_ratio_over_time.len(), 100);
        assert_eq!((hits.hit_ratio_over_time[74], hits.hit_ratio_over_time[75]), (0.0, 1.0));
        let classes: Vec<(u64, u64)> =
            hits.by_size.iter().map(|it| (it.value_bytes_below, it.ratios.gets)).collect();
        assert_eq!(classes, [(16, 200), (1024, 200)]);
    }
}
