//! Configuration of a cache, and the names of the eviction policies.

pub(crate) mod plan;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use entresol_base::ByteSize;
use entresol_media::{BackendChoice, CostTable, MediumSpec};
use serde::{Deserialize, Serialize};

/// Policy that picks the segments to evict when the quota is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Eviction {
    /// Merges several old segments into one, keeping the items that are read often.
    #[default]
    Merge,
    /// Evicts the oldest segment.
    Fifo,
    /// Evicts a segment chosen at random.
    Random,
    /// Evicts the segment with the fewest live bytes.
    LeastUtilised,
}

impl Eviction {
    /// Names of all policies, as a configuration spells them.
    pub const NAMES: [&str; 4] = ["merge", "fifo", "random", "least-utilised"];
}

impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Eviction::Merge => "merge",
            Eviction::Fifo => "fifo",
            Eviction::Random => "random",
            Eviction::LeastUtilised => "least-utilised",
        })
    }
}

impl FromStr for Eviction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "merge" => Ok(Eviction::Merge),
            "fifo" => Ok(Eviction::Fifo),
            "random" => Ok(Eviction::Random),
            "least-utilised" => Ok(Eviction::LeastUtilised),
            _ => Err(format!(
                "'{text}' is not an eviction policy: use merge, fifo, random or least-utilised"
            )),
        }
    }
}

/// Settings of one cache.
#[derive(Debug, Clone)]
pub struct Config {
    /// Tenant's name, for errors and saved state.
    pub name: String,
    /// Medium that values lie on.
    pub medium: MediumSpec,
    /// Quota of DRAM: keys, metadata, tables, open segments, write buffers; with `dram` also
    /// values.
    pub dram_bytes: ByteSize,
    /// Quota of the medium in whole segments, if it is not DRAM.
    pub medium_bytes: ByteSize,
    /// Bytes of a segment; derived from the quota if absent.
    pub segment_bytes: Option<ByteSize>,
    /// Largest value that is accepted.
    pub value_bytes_max: ByteSize,
    /// Eviction policy.
    pub eviction: Eviction,
    /// Number of threads that will hold a worker.
    pub workers: usize,
    /// Directory that keeps the cache's state over a restart; without one nothing is kept.
    pub restart_dir: Option<PathBuf>,
    /// True if the cache asks for huge pages.
    pub huge_pages: bool,
    /// Backend that reads and writes block files.
    pub io_backend: BackendChoice,
    /// Cost table of the medium; the published one for its kind if absent.
    pub costs: Option<Arc<CostTable>>,
    /// Seed of the key hash; drawn at random if absent.
    pub seed: Option<u64>,
}

impl Config {
    /// Returns the configuration of a cache in DRAM with defaults for all else.
    #[must_use]
    pub fn dram(dram_bytes: ByteSize) -> Self {
        Config {
            name: "default".to_owned(),
            medium: MediumSpec::Dram,
            dram_bytes,
            medium_bytes: ByteSize(0),
            segment_bytes: None,
            value_bytes_max: ByteSize::mib(1),
            eviction: Eviction::Merge,
            workers: 1,
            restart_dir: None,
            huge_pages: true,
            io_backend: BackendChoice::Auto,
            costs: None,
            seed: None,
        }
    }
}

/// Largest segment: a value's length has 24 bits.
pub const SEGMENT_BYTES_MAX: ByteSize = ByteSize::mib(16);
/// Smallest segment.
pub const SEGMENT_BYTES_MIN: ByteSize = ByteSize::kib(64);
/// Fewest segments that a quota may hold: open ones take at most an eighth of it.
pub const SEGMENTS_MIN: u64 = 8;
/// Bytes of a segment reserved for one item's header and key, and for the closing block.
pub const SEGMENT_OVERHEAD_BYTES: u64 = 8192;
