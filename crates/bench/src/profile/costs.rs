//! The cost table: how many random accesses of each size a medium serves in a second at most
//! (NyxCache, section 3.3), from figures to what is saved.

use std::path::{Path, PathBuf};

use entresol_media::cost::{
    Access, CostSource, CostTable, CostTableError, LARGE_SIZES, MeasuredCosts,
};
use entresol_media::{MediumSpec, cost};

use super::figure::Figure;

/// The name of the figure that costs are made of.
pub(super) const FIGURE: &str = "max_iops";
/// The labels of its series.
pub(super) const READS: &str = "reads";
/// As above.
pub(super) const WRITES: &str = "writes";

/// Where a table came from, as far as the figures do not say it.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    /// The medium, as it was named.
    pub(super) medium: String,
    /// The machine, or the model's description.
    pub(super) machine: String,
    /// The day.
    pub(super) date: String,
    /// Threads, depth, what was interpolated.
    pub(super) method: String,
}

/// Makes the table out of the figure of most operations a second.
///
/// A size that was not measured costs as much as the next larger one that was: a disk moves whole
/// sectors.
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
        // Three digits: the rest is noise of the noise.
        spread: (spread * 1000.0).round() / 1000.0,
        method: origin.method,
    };
    let costs = MeasuredCosts { read_ns, write_ns, read_large_ns, write_large_ns };
    CostTable::from_measured(source, &costs)
}

/// Where the table of a medium is saved unless told otherwise.
#[must_use]
pub fn default_place(medium: &MediumSpec) -> Option<PathBuf> {
    cost::place_of(medium)
}

/// A sentence about what a saved table says.
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
