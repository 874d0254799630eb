//! What a cache is made from, and what is wrong with it if it cannot be made.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use entresol_base::ByteSize;
use entresol_media::{BackendChoice, CostTable, MediumSpec};
use serde::{Deserialize, Serialize};

/// Which segment goes when room is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Eviction {
    /// Merge some old segments into one, keeping what is read often.
    #[default]
    Merge,
    /// The oldest segment.
    Fifo,
    /// Any segment.
    Random,
    /// The segment with the fewest live bytes.
    LeastUtilised,
}

impl Eviction {
    /// Every policy's name, as a configuration writes it.
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
            _ => Err(format!("'{text}' is no eviction: use merge, fifo, random or least-utilised")),
        }
    }
}

/// What a cache is made from.
#[derive(Debug, Clone)]
pub struct Config {
    /// The tenant's name, for errors and saved state.
    pub name: String,
    /// What values lie on.
    pub medium: MediumSpec,
    /// Quota of DRAM: keys, metadata, tables, open segments, write buffers; with `dram` also
    /// values.
    pub dram_bytes: ByteSize,
    /// Quota of the medium, if it is another than DRAM: whole segments.
    pub medium_bytes: ByteSize,
    /// Size of a segment; chosen from the quota if absent.
    pub segment_bytes: Option<ByteSize>,
    /// The largest value taken.
    pub value_bytes_max: ByteSize,
    /// Which segment goes when room is short.
    pub eviction: Eviction,
    /// How many threads will hold a worker.
    pub workers: usize,
    /// Where state is kept over a restart, if it shall be.
    pub restart_dir: Option<PathBuf>,
    /// Ask for huge pages.
    pub huge_pages: bool,
    /// How block files are read and written.
    pub io_backend: BackendChoice,
    /// What accesses to the medium cost; what is published for such media if absent.
    pub costs: Option<Arc<CostTable>>,
    /// Seed of the key hash; drawn at random if absent.
    pub seed: Option<u64>,
}

impl Config {
    /// A cache in DRAM with everything else at its default.
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

/// Segments are at most this large, since a value's length has 24 bits.
pub const SEGMENT_BYTES_MAX: ByteSize = ByteSize::mib(16);
/// Segments are at least this large.
pub const SEGMENT_BYTES_MIN: ByteSize = ByteSize::kib(64);
/// A quota holds at least this many segments: open ones take at most an eighth of it.
pub const SEGMENTS_MIN: u64 = 8;
/// Room in a segment for one item's header and key besides its value, and for a sealed segment's
/// closing block.
pub const SEGMENT_OVERHEAD_BYTES: u64 = 8192;
