//! Cost tables: the share of a medium's time that one access of a kind and size takes.
//!
//! The cost of an access is one over the maximum number of such accesses that the medium serves in
//! a second (NyxCache, section 3.3). It is device time: the accesses of a second in which the
//! medium is just busy cost one second in all. Sizes up to 4 KiB have an entry per 64 bytes, then
//! there is one per power of two up to 1 MiB, where the medium reaches its full bandwidth; between
//! two of these, and beyond the last, every further 64 bytes cost the same.
//!
//! Costs are kept in sixteenths of a nanosecond: rounding the cheapest (some 19 ns) to whole
//! nanoseconds would be off by 2%, more than the promised precision of limits; and 64 bits of
//! sixteenths still last for 36 years of a busy medium.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use crate::access::Access;
use crate::medium::{self, MediumKind, MediumSpec};

/// Units of cost in a nanosecond.
pub(crate) const UNITS_PER_NS: u64 = 16;
/// Granularity of sizes in a table.
const STEP_BYTES: usize = 64;
/// Number of sizes in a table, up to 4 KiB.
const STEPS: usize = 64;
/// Sizes beyond 4 KiB that have an entry, in bytes: powers of two, up to where a medium has
/// certainly reached its full bandwidth.
pub const LARGE_SIZES: [usize; 8] =
    [8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// Fraction bits of the cost of a step beyond 4 KiB.
const SLOPE_BITS: u32 = 16;
/// Suffix that a medium's path gets in the name of its table.
const SUFFIX: &str = ".costs.json";
/// Name of the table for the process's own memory.
const DRAM: &str = "dram";
/// Version of the saved form.
const FORMAT: u32 = 3;
/// Maximum cost of an access of up to 4 KiB: it still fits 32 bits of units.
const COST_NS_MAX: f64 = 200_000_000.0;
/// Maximum cost of an access of 1 MiB: that of 256 pages of the maximum cost.
const LARGE_NS_MAX: f64 = 256.0 * COST_NS_MAX;

/// Origin of a table. Printed with every result that depends on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostSource {
    /// Medium, such as `pmem:/mnt/pmem0/x`, or the name of a model.
    pub medium: String,
    /// Processor, kernel and device of the machine.
    pub machine: String,
    /// Day of the measurement.
    pub date: String,
    /// Spread of repeated measurements: half their range as a fraction of the median, the largest
    /// of all entries.
    pub spread: f64,
    /// Method of measurement: number of threads or requests, interpolated entries.
    pub method: String,
}

/// Costs of accesses to one medium.
#[derive(Debug, Clone, PartialEq)]
pub struct CostTable {
    source: CostSource,
    /// Costs by kind, then by size in steps; the first entry is for zero bytes.
    units: [[u32; STEPS + 1]; 2],
    /// Stretches beyond 4 KiB by kind, each up to one of [`LARGE_SIZES`].
    large: [[Stretch; LARGE_SIZES.len()]; 2],
}

/// Costs from one size to its double.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stretch {
    /// Cost of the smaller size; that of the first stretch is 4 KiB.
    from: u64,
    /// Cost of the larger size.
    to: u64,
    /// Cost of each step, see [`SLOPE_BITS`].
    slope: u64,
}

/// Measured costs in nanoseconds of the medium's time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MeasuredCosts {
    /// Reads of 64, 128 ... 4096 bytes.
    pub read_ns: Vec<f64>,
    /// Writes of 64, 128 ... 4096 bytes.
    pub write_ns: Vec<f64>,
    /// Reads of [`LARGE_SIZES`].
    pub read_large_ns: Vec<f64>,
    /// Writes of [`LARGE_SIZES`].
    pub write_large_ns: Vec<f64>,
}

/// Limits of a medium that is described by its data sheet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MediumRates {
    /// Maximum reads in a second, however small.
    pub reads_s: f64,
    /// Maximum bytes read in a second.
    pub read_bytes_s: f64,
    /// Maximum writes in a second, however small.
    pub writes_s: f64,
    /// Maximum bytes written in a second.
    pub written_bytes_s: f64,
}

/// Saved form of a table.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    format: u32,
    #[serde(flatten)]
    source: CostSource,
    step_bytes: usize,
    large_sizes: Vec<usize>,
    read_ns: Vec<f64>,
    write_ns: Vec<f64>,
    read_large_ns: Vec<f64>,
    write_large_ns: Vec<f64>,
}

/// The field that is checked first, since tables of other versions may lack any other.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

/// Reason why a saved table cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostTableError {
    /// The file cannot be read or written.
    #[error("cost table {path}: {cause}; check the path and its permissions")]
    File {
        /// The file.
        path: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The text is no cost table.
    #[error("not a cost table: {reason}; run `entresol profile` to make a new one")]
    Content {
        /// Reason why it is none.
        reason: String,
    },
}

impl CostTable {
    /// Returns a table with the shape that NyxCache publishes (figure 3) for two interleaved Optane
    /// modules of the first generation. It is used until a medium has been profiled.
    ///
    /// The figure's numbers are not printed, but follow from these facts: the modules move whole
    /// units of 256 bytes, 13.2 GB/s of them when reading and 4.6 GB/s when writing; an access
    /// whose size is no multiple of 256 lies anywhere on the 64-byte grid, and so touches one more
    /// unit in some of the four positions; 3.0 million reads of 4 KiB a second; and the processor's
    /// prefetching wastes 40% of the traffic of 1 KiB reads.
    #[must_use]
    pub fn published() -> CostTable {
        const UNIT_BYTES: f64 = 256.0;
        let units_touched = |bytes: usize| match bytes % 256 {
            0 => bytes as f64 / UNIT_BYTES,
            // An access of n lines starting on any of a unit's four lines touches on average
            // 1 + (n - 1) / 4 units.
            _ => 1.0 + (bytes / STEP_BYTES - 1) as f64 / 4.0,
        };
        let read_ns = |bytes: usize| {
            let traffic = units_touched(bytes) * UNIT_BYTES;
            traffic / (13.2 * published_read_efficiency(bytes))
        };
        let write_ns = |bytes: usize| units_touched(bytes) * UNIT_BYTES / 4.6;
        let source = CostSource {
            medium: "two interleaved 3D XPoint modules".to_owned(),
            machine: "as published by NyxCache, figure 3".to_owned(),
            date: "2022".to_owned(),
            spread: 0.0,
            method: String::new(),
        };
        CostTable::from_function(source, read_ns, write_ns)
    }

    /// Returns a table for a medium of which only the limits are known: an access costs its share
    /// of the tighter limit.
    #[must_use]
    pub fn from_rates(medium: &str, rates: MediumRates) -> CostTable {
        let cost = |operations_s: f64, bytes_s: f64| {
            move |bytes: usize| (1e9 / operations_s).max(bytes as f64 * 1e9 / bytes_s)
        };
        let source = CostSource {
            medium: medium.to_owned(),
            machine: "from a data sheet".to_owned(),
            date: String::new(),
            spread: 0.0,
            method: String::new(),
        };
        let reads = cost(rates.reads_s, rates.read_bytes_s);
        CostTable::from_function(source, reads, cost(rates.writes_s, rates.written_bytes_s))
    }

    /// Returns the table that is used for a medium of this kind until it has been profiled: the
    /// published one for byte-addressable media, and for files the limits on a P4800X's data sheet
    /// (550,000 reads and 500,000 writes a second, 2.4 and 2.0 GB/s).
    #[must_use]
    pub fn default_for(kind: MediumKind) -> CostTable {
        match kind {
            MediumKind::Dram | MediumKind::Pmem => CostTable::published(),
            MediumKind::File => CostTable::from_rates(
                "3D XPoint SSD (P4800X)",
                MediumRates {
                    reads_s: 550_000.0,
                    read_bytes_s: 2.4e9,
                    writes_s: 500_000.0,
                    written_bytes_s: 2.0e9,
                },
            ),
        }
    }

    fn from_function(
        source: CostSource,
        read_ns: impl Fn(usize) -> f64,
        write_ns: impl Fn(usize) -> f64,
    ) -> CostTable {
        let row = |cost_ns: &dyn Fn(usize) -> f64| {
            std::array::from_fn(|step| match step {
                0 => 0,
                _ => to_units(cost_ns(step * STEP_BYTES)),
            })
        };
        let units = [row(&read_ns), row(&write_ns)];
        // By the bandwidth of 4 KiB.
        let large = units.map(|row| {
            LARGE_SIZES.map(|bytes| u64::from(row[STEPS]) * (bytes / STEP_BYTES / STEPS) as u64)
        });
        CostTable::new(source, units, large)
    }

    fn new(
        source: CostSource,
        units: [[u32; STEPS + 1]; 2],
        large: [[u64; LARGE_SIZES.len()]; 2],
    ) -> CostTable {
        let large = std::array::from_fn(|kind| {
            let (mut from, mut steps) = (u64::from(units[kind][STEPS]), STEPS as u64);
            large[kind].map(|to| {
                // No access is cheaper than a smaller one.
                let to = to.max(from);
                let stretch = Stretch { from, to, slope: ((to - from) << SLOPE_BITS) / steps };
                (from, steps) = (to, 2 * steps);
                stretch
            })
        });
        CostTable { source, units, large }
    }

    /// Makes a table of measured costs.
    ///
    /// # Errors
    /// If the number of entries is not that of the sizes, or one is not a sensible duration.
    pub fn from_measured(
        source: CostSource,
        costs: &MeasuredCosts,
    ) -> Result<CostTable, CostTableError> {
        let content = |reason: String| CostTableError::Content { reason };
        let rows = [
            ("read_ns", &costs.read_ns, STEPS, COST_NS_MAX),
            ("write_ns", &costs.write_ns, STEPS, COST_NS_MAX),
            ("read_large_ns", &costs.read_large_ns, LARGE_SIZES.len(), LARGE_NS_MAX),
            ("write_large_ns", &costs.write_large_ns, LARGE_SIZES.len(), LARGE_NS_MAX),
        ];
        for (name, row, entries, most) in rows {
            if row.len() != entries {
                return Err(content(format!("{name} has {} entries, not {entries}", row.len())));
            }
            if let Some(ns) = row.iter().find(|&&ns| !(ns > 0.0 && ns <= most)) {
                return Err(content(format!("{name} has an entry of {ns}, not a time above 0")));
            }
        }
        let units = [&costs.read_ns, &costs.write_ns].map(|row| {
            std::array::from_fn(|step| if step == 0 { 0 } else { to_units(row[step - 1]) })
        });
        let large = [&costs.read_large_ns, &costs.write_large_ns].map(|row| {
            std::array::from_fn(|size| (row[size] * UNITS_PER_NS as f64).round() as u64)
        });
        Ok(CostTable::new(source, units, large))
    }

    /// Returns the table's origin.
    #[must_use]
    pub fn source(&self) -> &CostSource {
        &self.source
    }

    /// Returns the cost of an access in nanoseconds of the medium's time.
    #[must_use]
    pub fn cost_ns(&self, access: Access, bytes: usize) -> f64 {
        self.cost_units(access, bytes) as f64 / UNITS_PER_NS as f64
    }

    /// Returns the cost of an access in sixteenths of a nanosecond.
    #[inline]
    pub(crate) fn cost_units(&self, access: Access, bytes: usize) -> u64 {
        let row = &self.units[access as usize];
        let steps = bytes.div_ceil(STEP_BYTES);
        match row.get(steps) {
            Some(&units) => u64::from(units),
            None => {
                // Stretches in multiples of 4 KiB, from a power of two to the next: the first ends
                // with 8 KiB.
                let size = (((steps - 1) / STEPS).ilog2() as usize).min(LARGE_SIZES.len() - 1);
                let Stretch { from, slope, .. } = self.large[access as usize][size];
                let beyond = ((steps - (STEPS << size)) as u64).saturating_mul(slope);
                from + (beyond >> SLOPE_BITS)
            }
        }
    }

    /// Returns the table as JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        let row = |access: Access| {
            (1..=STEPS).map(|step| self.cost_ns(access, step * STEP_BYTES)).collect()
        };
        let large_ns = |access: Access| {
            let sizes = self.large[access as usize].iter();
            sizes.map(|stretch| stretch.to as f64 / UNITS_PER_NS as f64).collect()
        };
        let saved = Saved {
            format: FORMAT,
            source: self.source.clone(),
            step_bytes: STEP_BYTES,
            large_sizes: LARGE_SIZES.to_vec(),
            read_ns: row(Access::Read),
            write_ns: row(Access::Write),
            read_large_ns: large_ns(Access::Read),
            write_large_ns: large_ns(Access::Write),
        };
        // A struct of numbers and strings always has a JSON form.
        serde_json::to_string_pretty(&saved).unwrap_or_default()
    }

    /// Parses a table that [`CostTable::to_json`] wrote, with exactly its costs.
    ///
    /// # Errors
    /// If the text is something else, or of another version.
    pub fn from_json(text: &str) -> Result<CostTable, CostTableError> {
        let content = |reason: String| CostTableError::Content { reason };
        let version: Version =
            serde_json::from_str(text).map_err(|error| content(error.to_string()))?;
        if version.format != FORMAT {
            let found = version.format;
            return Err(content(format!("format {found}; this version reads format {FORMAT}")));
        }
        let saved: Saved =
            serde_json::from_str(text).map_err(|error| content(error.to_string()))?;
        if saved.step_bytes != STEP_BYTES || saved.large_sizes != LARGE_SIZES {
            let Saved { step_bytes, large_sizes, .. } = saved;
            return Err(content(format!(
                "steps of {step_bytes} bytes and sizes of {large_sizes:?}; this version reads \
                 steps of {STEP_BYTES} and sizes of {LARGE_SIZES:?}"
            )));
        }
        let costs = MeasuredCosts {
            read_ns: saved.read_ns,
            write_ns: saved.write_ns,
            read_large_ns: saved.read_large_ns,
            write_large_ns: saved.write_large_ns,
        };
        CostTable::from_measured(saved.source, &costs)
    }

    /// Writes the table to a file, which it replaces as a whole.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), CostTableError> {
        crate::files::write_atomically(path, self.to_json().as_bytes())
            .map_err(|cause| CostTableError::File { path: path.display().to_string(), cause })
    }

    /// Reads a table from a file.
    ///
    /// # Errors
    /// If the file cannot be read or holds no table.
    pub fn load(path: &Path) -> Result<CostTable, CostTableError> {
        let path_text = || path.display().to_string();
        let text = crate::files::read_to_string(path)
            .map_err(|cause| CostTableError::File { path: path_text(), cause })?;
        CostTable::from_json(&text).map_err(|error| match error {
            CostTableError::Content { reason } => {
                CostTableError::Content { reason: format!("{}: {reason}", path_text()) }
            }
            other => other,
        })
    }
}

/// Returns the path at which the table of a medium is looked for, and to which `entresol profile`
/// saves it: beside the medium, as `PATH.costs.json`. The table of the process's own memory is
/// `dram.costs.json`, and that of a device in `/dev` has its name; both are in `$STATE_DIRECTORY`
/// (which systemd sets for a service), `$XDG_STATE_HOME/entresol` or `~/.local/state/entresol`; the
/// first of these variables that is set decides. A model has no path.
#[must_use]
pub fn place_of(medium: &MediumSpec) -> Option<PathBuf> {
    place_by(medium, &|name| std::env::var_os(name))
}

fn place_by(medium: &MediumSpec, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let (path, suffix) = match medium {
        MediumSpec::Dram => (Path::new(DRAM), SUFFIX.to_owned()),
        MediumSpec::Pmem { path, .. } | MediumSpec::File { path, model: None } => {
            (path.as_path(), SUFFIX.to_owned())
        }
        MediumSpec::File { path, model: Some(model) } => {
            (path.as_path(), format!(".{}{SUFFIX}", model.name()))
        }
        MediumSpec::Model(_) => return None,
    };
    let of_state = matches!(medium, MediumSpec::Dram) || medium::is_device(path);
    match of_state {
        // The directory of devices is in memory, and not ours.
        true => {
            let directory = state_directory(variable)?;
            Some(directory.join(with_suffix(Path::new(path.file_name()?), &suffix)))
        }
        false => Some(with_suffix(path, &suffix)),
    }
}

/// Finds the table for a medium, in `configured` or at its own path, and returns it with the path;
/// none if the medium was not profiled.
///
/// # Errors
/// If there is a table and it cannot be used.
pub fn find(
    medium: &MediumSpec,
    configured: Option<&Path>,
) -> Result<Option<(CostTable, PathBuf)>, CostTableError> {
    let path = match configured {
        Some(path) => path.to_path_buf(),
        None => match place_of(medium).filter(|path| crate::files::exists(path)) {
            Some(path) => path,
            None => return Ok(None),
        },
    };
    Ok(Some((CostTable::load(&path)?, path)))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn state_directory(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // Systemd separates several directories by colons; the first is the service's own.
    let of_service = set("STATE_DIRECTORY").map(|all| match all.to_str() {
        Some(text) => PathBuf::from(text.split(':').next().unwrap_or(text)),
        None => all,
    });
    of_service
        .or_else(|| set("XDG_STATE_HOME").map(|state| state.join("entresol")))
        .or_else(|| set("HOME").map(|home| home.join(".local/state/entresol")))
}

/// Returns the share of a random read's traffic that software asked for; the rest is prefetched in
/// vain. It is 1 up to 256 bytes, 60% at 1 KiB, and at 4 KiB it yields 3.0 million reads a second.
/// A size between two units wastes as much as the next whole number of units.
fn published_read_efficiency(bytes: usize) -> f64 {
    const AT_4K: f64 = 3.0e6 * 4096.0 / 13.2e9;
    let bytes = bytes.next_multiple_of(256) as f64;
    let between = |(x0, y0): (f64, f64), (x1, y1): (f64, f64)| {
        y0 + (y1 - y0) * ((bytes - x0) / (x1 - x0)).clamp(0.0, 1.0)
    };
    if bytes <= 1024.0 {
        between((256.0, 1.0), (1024.0, 0.6))
    } else {
        between((1024.0, 0.6), (4096.0, AT_4K))
    }
}

/// Converts to units, at least one, so that no access is free.
fn to_units(ns: f64) -> u32 {
    let units = ns.clamp(0.0, COST_NS_MAX) * UNITS_PER_NS as f64;
    (units.round() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn operations_s(table: &CostTable, access: Access, bytes: usize) -> f64 {
        1e9 / table.cost_ns(access, bytes)
    }

    #[test]
    fn the_published_table_has_the_published_shape() {
        let table = CostTable::published();
        let reads = operations_s(&table, Access::Read, 4096);
        assert!((reads / 3.0e6 - 1.0).abs() < 0.01, "{reads}");
        let useful = operations_s(&table, Access::Read, 1024) * 1024.0 / 13.2e9;
        assert!((useful / 0.6 - 1.0).abs() < 0.01, "{useful}");
        for access in [Access::Read, Access::Write] {
            assert_eq!(table.cost_units(access, 64), table.cost_units(access, 256));
            for bytes in (64..=4096usize).step_by(64) {
                let whole = bytes.next_multiple_of(256);
                assert!(
                    table.cost_units(access, bytes) >= table.cost_units(access, whole)
                        || bytes == 64,
                    "{access:?} of {bytes} serves more than of {whole}"
                );
                assert!(
                    table.cost_units(Access::Write, bytes) > table.cost_units(Access::Read, bytes),
                    "stores below loads at {bytes}"
                );
            }
        }
    }

    #[test]
    fn large_accesses_cost_by_bandwidth() {
        let table = CostTable::published();
        let cost = |bytes| table.cost_units(Access::Write, bytes);
        assert_eq!(cost(0), 0);
        assert_eq!((cost(1), cost(64)), (cost(256), cost(256)));
        assert_eq!(cost(8192), 2 * cost(4096));
        assert_eq!(cost(1 << 20), 256 * cost(4096));
    }

    #[test]
    fn a_saved_table_costs_the_same_to_the_bit() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("table.json");
        for kind in [MediumKind::Pmem, MediumKind::File] {
            let table = CostTable::default_for(kind);
            table.save(&path).expect("saves");
            assert_eq!(CostTable::load(&path).expect("loads"), table);
        }
    }

    #[test]
    fn what_is_no_table_is_refused_with_the_reason() {
        let good = CostTable::published().to_json();
        let check = |text: &str, reason: &str| {
            let error = CostTable::from_json(text).expect_err(reason).to_string();
            assert!(error.contains(reason) && error.contains("entresol profile"), "{error}");
        };
        check("", "EOF");
        check(&good.replace("\"format\": 3", "\"format\": 4"), "format 4");
        check("{\"format\": 1, \"read_ns\": []}", "format 1; this version reads format 3");
        check(&good.replace("\"step_bytes\": 64", "\"step_bytes\": 32"), "steps of 32 bytes");
        check(&good.replace("\"spread\"", "\"spred\""), "spread");
        let first = good.find("19.").expect("a cost");
        check(&format!("{}-{}", &good[..first], &good[first..]), "not a time above 0");
        let missing = CostTable::load(Path::new("/nonexistent/t.json")).expect_err("missing");
        assert!(missing.to_string().starts_with("cost table /nonexistent/t.json: "), "{missing}");
    }

    #[test]
    fn a_table_is_found_beside_its_medium_or_where_it_is_said_to_be() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("values");
        let medium = format!("file:{}", path.display()).parse().expect("a medium");
        assert!(find(&medium, None).expect("none").is_none());
        let table = CostTable::default_for(MediumKind::File);
        let place = place_of(&medium).expect("a place");
        table.save(&place).expect("saves");
        assert_eq!(find(&medium, None).expect("found"), Some((table.clone(), place.clone())));
        let other = directory.path().join("other");
        let error = find(&medium, Some(&other)).expect_err("missing").to_string();
        assert!(error.contains("other"), "{error}");
        crate::files::write_atomically(&place, b"{}").expect("writes");
        let error = find(&medium, None).expect_err("damaged").to_string();
        assert!(error.contains("values.costs.json") && error.contains("profile"), "{error}");
        table.save(&other).expect("saves");
        assert!(find(&medium, Some(&other)).expect("found").is_some());
    }

    #[test]
    fn a_table_lies_beside_its_medium_unless_that_has_no_folder_of_its_own() {
        let check = |medium: &str, place: Option<&str>| {
            let medium = medium.parse().expect("a medium");
            let found = place_by(&medium, &|name| (name == "HOME").then(|| "/h".into()));
            assert_eq!(found, place.map(PathBuf::from), "{medium}");
        };
        check("dram", Some("/h/.local/state/entresol/dram.costs.json"));
        check("pmem:/dev/dax0.0", Some("/h/.local/state/entresol/dax0.0.costs.json"));
        check("file:/dev/nvme0n1", Some("/h/.local/state/entresol/nvme0n1.costs.json"));
        check("file:/dev/shm/a", Some("/dev/shm/a.costs.json"));
        check("pmem:/mnt/x.pool,assume-dax", Some("/mnt/x.pool.costs.json"));
        check("file:/a/b", Some("/a/b.costs.json"));
        check("file:/a/b,model=qlc-5210", Some("/a/b.qlc-5210.costs.json"));
        check("model:aep", None);
        let state = |set: &'static [(&str, &str)]| {
            let value = move |name: &str| set.iter().find(|(key, _)| *key == name);
            state_directory(&move |name| value(name).map(|(_, value)| OsString::from(value)))
        };
        assert_eq!(state(&[("HOME", "/h")]), Some("/h/.local/state/entresol".into()));
        assert_eq!(state(&[("HOME", "/h"), ("XDG_STATE_HOME", "/s")]), Some("/s/entresol".into()));
        assert_eq!(
            state(&[("STATE_DIRECTORY", "/var/lib/entresol:/x"), ("HOME", "/h")]),
            Some("/var/lib/entresol".into())
        );
        assert_eq!(state(&[("HOME", "")]), None);
    }

    #[test]
    fn large_accesses_cost_what_was_measured() {
        let costs = MeasuredCosts {
            read_ns: vec![8000.0; STEPS],
            write_ns: vec![9000.0; STEPS],
            read_large_ns: vec![10e3, 15e3, 30e3, 60e3, 120e3, 240e3, 480e3, 960e3],
            write_large_ns: vec![100.0; LARGE_SIZES.len()],
        };
        let source = CostTable::published().source().clone();
        let table = CostTable::from_measured(source, &costs).expect("table");
        let read = |bytes| table.cost_ns(Access::Read, bytes);
        assert!((read(4096) - 8000.0).abs() < 1e-9);
        for (bytes, ns) in LARGE_SIZES.into_iter().zip(&costs.read_large_ns) {
            assert!((read(bytes) - ns).abs() < 0.1, "{bytes}: {}", read(bytes));
        }
        for (bytes, ns) in [(6144, 9e3), (12_288, 12_500.0), (24_576, 22_500.0), (4 << 20, 3.84e6)]
        {
            assert!((read(bytes) / ns - 1.0).abs() < 1e-3, "{bytes}: {}", read(bytes));
        }
        // No access is cheaper than a smaller one.
        assert!((table.cost_ns(Access::Write, 1 << 20) - 9000.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn any_measured_table_survives_saving(
            reads in prop::collection::vec(0.1f64..1e6, STEPS),
            writes in prop::collection::vec(0.1f64..1e6, STEPS),
            large in 0.5f64..300.0,
            bytes in 0usize..4_000_000,
        ) {
            let source = CostTable::published().source().clone();
            let costs = MeasuredCosts {
                read_large_ns: LARGE_SIZES.map(|_| reads[STEPS - 1] * large).to_vec(),
                write_large_ns: LARGE_SIZES.map(|_| writes[STEPS - 1] * large).to_vec(),
                read_ns: reads,
                write_ns: writes,
            };
            let table = CostTable::from_measured(source, &costs).expect("table");
            let again = CostTable::from_json(&table.to_json()).expect("loads");
            prop_assert_eq!(&again, &table);
            prop_assert!(table.cost_units(Access::Read, bytes) > 0 || bytes == 0);
        }
    }
}
