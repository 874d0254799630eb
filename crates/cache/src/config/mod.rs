//! Configuration of a cache.

pub(crate) mod plan;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use entresol_base::ByteSize;
use entresol_media::{BackendChoice, CostTable, MediumSpec};
use serde::{Deserialize, Serialize};

/// Misses that eviction keeps few.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Favour {
    /// Misses of objects: small ones stay longer than large ones, since more of them fit.
    #[default]
    Objects,
    /// Bytes of the objects that are missed: their size does not matter.
    Bytes,
}

impl Favour {
    /// Names of all choices, as a configuration spells them.
    pub const NAMES: [&str; 2] = ["objects", "bytes"];
}

impl fmt::Display for Favour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Favour::Objects => "objects",
            Favour::Bytes => "bytes",
        })
    }
}

impl FromStr for Favour {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "objects" => Ok(Favour::Objects),
            "bytes" => Ok(Favour::Bytes),
            _ => Err(format!("'{text}' cannot be favoured: use objects or bytes")),
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
    /// Largest value that is accepted; if absent, 1 MiB less its header, or an eighth of a small
    /// quota.
    pub value_bytes_max: Option<ByteSize>,
    /// Misses that eviction keeps few.
    pub favour: Favour,
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
            value_bytes_max: None,
            favour: Favour::Objects,
            workers: 1,
            restart_dir: None,
            huge_pages: true,
            io_backend: BackendChoice::Auto,
            costs: None,
            seed: None,
        }
    }
}

/// Largest segment: the length of a value in one has 24 bits.
pub const SEGMENT_BYTES_MAX: ByteSize = ByteSize::mib(16);
/// Smallest segment.
pub const SEGMENT_BYTES_MIN: ByteSize = ByteSize::kib(8);
/// Fewest segments that a quota may hold: open ones take at most an eighth of it.
pub const SEGMENTS_MIN: u64 = 8;
