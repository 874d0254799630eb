//! Cost table of a medium, made from the largest number of random accesses per second of each size
//! (NyxCache, section 3.3), and the place where it is saved.

use std::path::{Path, PathBuf};

use entresol_media::cost::{
    Access, CostSource, CostTable, CostTableError, LARGE_SIZES, MeasuredCosts,
};
use entresol_media::{MediumSpec, cost};

use super::figure::Figure;

/// Name of the figure from which costs are made.
pub(super) const FIGURE: &str = "max_iops";
/// Label of the figure's series of reads.
pub(super) const READS: &str = "reads";
/// Label of the figure's series of writes.
pub(super) const WRITES: &str = "writes";

/// Origin of a table, as far as the figures do not state it.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    /// Medium as the user named it.
    pub(super) medium: String,
    /// Description of the machine, or of the model.
    pub(super) machine: String,
    /// Date of the measurement.
    pub(super) date: String,
    /// Method: threads, queue depth and interpolated sizes.
    pub(super) method: String,
}

/// Makes a cost table from the figure of the most operations per second.
///
/// A size that was not measured costs as much as the next larger one that was, since a disk
/// transfers whole sectors.
pub(super) fn table(figure: &Figure, origin: Origin) -> Result<CostTable, CostTableError> {
    let row = |label| -> (Vec<f64>, Vec<f64>) {
        let cost_ns = |bytes: usize| {
            let points = figure.series(label).map_or(&[][..], |series| &series.points);
            let point = points.iter().find(|point| point.x >= bytes as f64);
            point.map_or(f64::NAN, |point| 1e9 / point.y.median)
        };
        ((64..=4096).step_by(64).map(cost_ns).collect(), LARGE_SIZES.map(cost_ns).to_vec())
    };
    let ((read_ns, read_large_ns), (write_ns, write_large_ns)) = (row(READS), row(WRITES));
    let points = figure.series.iter().flat_map(|series| &series.points);
    let spread =
        points.map(|point| (point.y.max - point.y.min) / 2.0 / point.y.median).fold(0.0, f64::max);
    let source = CostSource {
        medium: origin.medium,
        machine: origin.machine,
        date: origin.date,
        // Three digits: any further ones would be noise.
        spread: (spread * 1000.0).round() / 1000.0,
        method: origin.method,
    };
    let costs = MeasuredCosts { read_ns, write_ns, read_large_ns, write_large_ns };
    CostTable::from_measured(source, &costs)
}

/// Returns the default path of a medium's cost table.
#[must_use]
pub fn default_place(medium: &MediumSpec) -> Option<PathBuf> {
    cost::place_of(medium)
}

/// Describes a saved table in one sentence.
#[must_use]
pub fn describe(costs: &CostTable, path: &Path) -> String {
    format!(
        "cost table saved in {}: a read of 256 B costs {:.1} ns of the medium's time, a write \
         {:.1} ns",
        path.display(),
        costs.cost_ns(Access::Read, 256),
        costs.cost_ns(Access::Write, 256),
    )
}
