//! Workloads of YCSB, as its core package defines them (Cooper et al., SoCC 2010), and RocksDB's
//! `mixgraph` (Cao et al., FAST 2020).

use std::fmt;
use std::str::FromStr;

use entresol_base::suggest;
use fastrand::Rng;
use serde::{Serialize, Serializer};

/// Workload on a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Inserts every key once.
    Load,
    /// Half reads, half updates; popular keys by Zipf's law.
    A,
    /// 95% reads, 5% updates; popular keys by Zipf's law.
    B,
    /// Reads only; popular keys by Zipf's law.
    C,
    /// 95% reads, 5% inserts; the latest keys are the popular ones.
    D,
    /// 95% scans of 1 to 100 records, 5% inserts; first keys of scans by Zipf's law.
    E,
    /// Half reads, half reads followed by a write of the same key.
    F,
    /// Updates only; every key is equally popular.
    Overwrite,
    /// Updates only; popular keys by Zipf's law.
    OverwriteZipf,
    /// 85% reads, 14% updates, 1% scans; popular ranges of keys, popular keys within them, and
    /// sizes of values and scans as in ZippyDB.
    Mixgraph,
    /// Reads only; every key is equally popular.
    Read,
}

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads one key.
    Read,
    /// Writes a key that exists.
    Update,
    /// Writes a key that is new.
    Insert,
    /// Reads records in the order of keys.
    Scan,
    /// Reads a key and writes it.
    ReadModifyWrite,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 5] =
        [Kind::Read, Kind::Update, Kind::Insert, Kind::Scan, Kind::ReadModifyWrite];

    /// Its name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Update => "update",
            Kind::Insert => "insert",
            Kind::Scan => "scan",
            Kind::ReadModifyWrite => "read-modify-write",
        }
    }
}

/// Distribution of requested keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// Zipf's law, with the popular keys scattered over all.
    Zipfian,
    /// Every key is equally popular.
    Uniform,
    /// Zipf's law, from the newest key to the oldest.
    Latest,
    /// Ranges of neighbouring keys, each with its own popularity.
    Ranges,
}

impl Workload {
    /// All workloads: YCSB's in its recommended order, in which those that insert come last, then
    /// the others.
    pub const ALL: [Workload; 11] = [
        Workload::Load,
        Workload::A,
        Workload::B,
        Workload::C,
        Workload::F,
        Workload::D,
        Workload::E,
        Workload::Overwrite,
        Workload::OverwriteZipf,
        Workload::Read,
        Workload::Mixgraph,
    ];

    /// Number of YCSB's workloads, the load included, with which [`Workload::ALL`] begins.
    pub const OF_YCSB: usize = 7;

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Workload::Load => "load",
            Workload::A => "a",
            Workload::B => "b",
            Workload::C => "c",
            Workload::D => "d",
            Workload::E => "e",
            Workload::F => "f",
            Workload::Overwrite => "overwrite",
            Workload::OverwriteZipf => "overwrite-zipf",
            Workload::Mixgraph => "mixgraph",
            Workload::Read => "read",
        }
    }

    /// Draws the kind of the next request.
    #[inline]
    pub fn kind(self, rng: &mut Rng) -> Kind {
        let of_hundred = rng.u32(0..100);
        let (first, second, third) = match self {
            Workload::Load => return Kind::Insert,
            Workload::C | Workload::Read => return Kind::Read,
            Workload::Overwrite | Workload::OverwriteZipf => return Kind::Update,
            Workload::A => ((50, Kind::Read), (100, Kind::Update), Kind::Update),
            Workload::B => ((95, Kind::Read), (100, Kind::Update), Kind::Update),
            Workload::D => ((95, Kind::Read), (100, Kind::Insert), Kind::Insert),
            Workload::E => ((95, Kind::Scan), (100, Kind::Insert), Kind::Insert),
            Workload::F => ((50, Kind::Read), (100, Kind::ReadModifyWrite), Kind::ReadModifyWrite),
            Workload::Mixgraph => ((85, Kind::Read), (99, Kind::Update), Kind::Scan),
        };
        match of_hundred {
            it if it < first.0 => first.1,
            it if it < second.0 => second.1,
            _ => third,
        }
    }

    pub(super) fn request(self) -> Request {
        match self {
            Workload::D => Request::Latest,
            Workload::Overwrite | Workload::Read => Request::Uniform,
            Workload::Mixgraph => Request::Ranges,
            _ => Request::Zipfian,
        }
    }

    /// Returns the share of inserts among the requests.
    pub fn insert_share(self) -> f64 {
        if matches!(self, Workload::D | Workload::E) { 0.05 } else { 0.0 }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Workload, String> {
        let found = Workload::ALL.into_iter().find(|workload| workload.name() == text);
        found.ok_or_else(|| suggest::unknown("workload", text, &Workload::ALL.map(Workload::name)))
    }
}

impl Serialize for Workload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_that_are_published() {
        let shares: [(Workload, &[(Kind, u32)]); 11] = [
            (Workload::Load, &[(Kind::Insert, 100)]),
            (Workload::A, &[(Kind::Read, 50), (Kind::Update, 50)]),
            (Workload::B, &[(Kind::Read, 95), (Kind::Update, 5)]),
            (Workload::C, &[(Kind::Read, 100)]),
            (Workload::D, &[(Kind::Read, 95), (Kind::Insert, 5)]),
            (Workload::E, &[(Kind::Scan, 95), (Kind::Insert, 5)]),
            (Workload::F, &[(Kind::Read, 50), (Kind::ReadModifyWrite, 50)]),
            (Workload::Overwrite, &[(Kind::Update, 100)]),
            (Workload::OverwriteZipf, &[(Kind::Update, 100)]),
            (Workload::Read, &[(Kind::Read, 100)]),
            (Workload::Mixgraph, &[(Kind::Read, 85), (Kind::Update, 14), (Kind::Scan, 1)]),
        ];
        for (workload, expected) in shares {
            let mut rng = Rng::with_seed(3);
            let mut counts = [0_u32; Kind::ALL.len()];
            for _ in 0..100_000 {
                counts[workload.kind(&mut rng) as usize] += 1;
            }
            for (number, kind) in Kind::ALL.into_iter().enumerate() {
                let share = expected.iter().find(|(of, _)| *of == kind).map_or(0, |(_, it)| *it);
                let drawn = f64::from(counts[number]) / 1000.0;
                assert!((drawn - f64::from(share)).abs() < 0.5, "{workload} {kind:?}: {drawn}");
            }
        }
    }
}
