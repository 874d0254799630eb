//! Figures as data: named axes with their units, and series of points that keep their spread. The
//! table on the terminal, the drawing on the page and the JSON object are three views of a figure.

use entresol_base::ByteSize;
use entresol_measure::report::Table;
use entresol_measure::report::curves::{Curve, CurvePoint, curves};
use entresol_measure::report::svg::{Axis, Scale};
use entresol_measure::report::table::number;
use entresol_measure::statistics::Spread;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::costs;

/// Quantity along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity {
    /// Name of the JSON field, with the unit last.
    pub field: &'static str,
    /// Name for readers.
    pub label: &'static str,
    /// True if equal distances are equal ratios.
    pub logarithmic: bool,
}

impl Quantity {
    const fn new(field: &'static str, label: &'static str, logarithmic: bool) -> Quantity {
        Quantity { field, label, logarithmic }
    }

    /// Bytes of one access.
    pub const GRANULARITY: Quantity =
        Quantity::new("granularity_bytes", "bytes of one access", true);
    /// Bytes of one access, on a linear scale.
    pub const SIZE: Quantity = Quantity::new("granularity_bytes", "bytes of one access", false);
    /// Nanoseconds of the medium's time.
    pub const COST_NS: Quantity = Quantity::new("cost_ns", "cost, ns", false);
    /// Latency of an access in nanoseconds.
    pub const LATENCY_NS: Quantity = Quantity::new("latency_ns", "latency, ns", true);
    /// Latency of an access in microseconds.
    pub const LATENCY_US: Quantity = Quantity::new("latency_us", "latency, us", true);
    /// Bytes transferred per second.
    pub const BANDWIDTH: Quantity = Quantity::new("bandwidth_gb_s", "bandwidth, GB/s", false);
    /// Accesses per second.
    pub const OPERATIONS: Quantity = Quantity::new("operations_s", "accesses per second", false);
    /// Threads that read.
    pub const READERS: Quantity = Quantity::new("reader_threads", "reading threads", false);
    /// Threads that write.
    pub const WRITERS: Quantity = Quantity::new("writer_threads", "writing threads", false);
    /// Requests in flight.
    pub const DEPTH: Quantity = Quantity::new("queue_depth", "requests in flight", true);
    /// Requests per second that fell due and were served.
    pub const LOAD: Quantity = Quantity::new("achieved_s", "requests per second", false);
}

/// Measured point of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Position on the bottom axis.
    pub x: f64,
    /// Median and range of the measurements.
    pub y: Spread,
}

/// Series of points with one label.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Label of the series.
    pub label: String,
    /// Points in ascending order of their x.
    pub points: Vec<Point>,
}

impl Series {
    /// Returns the median at `x`, if it was measured.
    #[must_use]
    pub fn at(&self, x: f64) -> Option<f64> {
        self.points.iter().find(|point| (point.x - x).abs() < 1e-9).map(|point| point.y.median)
    }
}

/// Figure of a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Name in JSON.
    pub name: &'static str,
    /// Title of the figure.
    pub title: &'static str,
    /// Description of the measurement and its method.
    pub about: String,
    /// Quantity along the bottom axis.
    pub x: Quantity,
    /// Quantity along the vertical axis.
    pub y: Quantity,
    /// Lines of the figure.
    pub series: Vec<Series>,
}

impl Figure {
    /// Returns the series of this label.
    #[must_use]
    pub fn series(&self, label: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.label == label)
    }

    /// Returns the figure for drawing. On a linear scale of sizes only those up to `size` remain,
    /// since a single large one would compress all others.
    pub(super) fn up_to(&self, size: f64) -> Figure {
        let mut drawn = self.clone();
        if self.x == Quantity::SIZE {
            let series = drawn.series.iter_mut();
            series.for_each(|series| series.points.retain(|point| point.x <= size));
        }
        drawn
    }

    /// Returns true if a comparison of two media includes this figure.
    pub(super) fn is_compared(&self) -> bool {
        let of_memory = ["read_latency", "write_latency", "read_bandwidth_random"];
        let of_files = ["latency", "bandwidth"];
        self.name == costs::FIGURE
            || of_memory.contains(&self.name)
            || of_files.contains(&self.name)
    }

    /// Returns all positions on the bottom axis that have a point.
    fn places(&self) -> Vec<f64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let mut places: Vec<f64> = points.map(|point| point.x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        places
    }

    /// Formats a position on the bottom axis.
    pub(super) fn place_text(&self, x: f64) -> String {
        match self.x {
            Quantity::GRANULARITY | Quantity::SIZE => size(x),
            Quantity::LOAD => number(x),
            _ => format!("{x}"),
        }
    }

    /// Returns the figure as a table with a row for each position and a column for each series:
    /// medians with half the range of their rounds.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut columns = vec![self.x.label];
        columns.extend(self.series.iter().map(|series| series.label.as_str()));
        let mut table = Table::new(&format!("{} ({})", self.title, self.y.label), &columns);
        for x in self.places() {
            let mut row = vec![self.place_text(x)];
            row.extend(self.series.iter().map(|series| {
                let point = series.points.iter().find(|point| (point.x - x).abs() < 1e-9);
                point.map_or_else(String::new, |point| with_spread(point.y))
            }));
            table.row(row);
        }
        table
    }

    /// Returns the figure as a drawing.
    #[must_use]
    pub fn drawing(&self) -> String {
        let scale = |quantity: Quantity| match quantity.logarithmic {
            true => Scale::Logarithmic,
            false => Scale::Linear,
        };
        let places = self.places();
        let step = places.len().div_ceil(12).max(1);
        let ticks = |x: Quantity| match x {
            Quantity::LOAD => Vec::new(),
            Quantity::SIZE => (0..=8).map(|k| f64::from(k) * 512.0).map(|x| (x, size(x))).collect(),
            _ => places.iter().step_by(step).map(|&x| (x, self.place_text(x))).collect(),
        };
        let x = Axis { label: self.x.label.into(), scale: scale(self.x), ticks: ticks(self.x) };
        let y = Axis { label: self.y.label.into(), scale: scale(self.y), ticks: Vec::new() };
        let lines: Vec<Curve> = self
            .series
            .iter()
            .map(|series| Curve {
                label: series.label.clone(),
                points: series.points.iter().map(curve_point).collect(),
            })
            .collect();
        curves(self.title, &x, &y, &lines)
    }
}

fn curve_point(point: &Point) -> CurvePoint {
    CurvePoint { x: point.x, y: point.y.median, low: point.y.min, high: point.y.max }
}

/// Formats a median with half the range of its rounds.
#[must_use]
pub(super) fn with_spread(spread: Spread) -> String {
    if spread.median > 0.0 && spread.max > spread.min {
        let half = (spread.max - spread.min) / 2.0 / spread.median * 100.0;
        format!("{} ±{half:.0}%", number(spread.median))
    } else {
        number(spread.median)
    }
}

/// Formats bytes for an axis: `64`, `4K`.
fn size(bytes: f64) -> String {
    ByteSize(bytes as u64).to_string().replace("iB", "").replace('B', "")
}

/// Point whose JSON fields are named by the axes.
struct NamedPoint<'a>(&'a Figure, &'a Point);

impl Serialize for NamedPoint<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let NamedPoint(figure, point) = self;
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry(figure.x.field, &point.x)?;
        map.serialize_entry(figure.y.field, &point.y.median)?;
        map.serialize_entry(&format!("{}_min", figure.y.field), &point.y.min)?;
        map.serialize_entry(&format!("{}_max", figure.y.field), &point.y.max)?;
        map.end()
    }
}

#[derive(Serialize)]
struct NamedSeries<'a> {
    label: &'a str,
    points: Vec<NamedPoint<'a>>,
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let series: Vec<NamedSeries> = self
            .series
            .iter()
            .map(|series| NamedSeries {
                label: &series.label,
                points: series.points.iter().map(|point| NamedPoint(self, point)).collect(),
            })
            .collect();
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("name", self.name)?;
        map.serialize_entry("title", self.title)?;
        map.serialize_entry("about", &self.about)?;
        map.serialize_entry("series", &series)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        let point = |x, median, max| Point { x, y: Spread { median, min: median, max } };
        let series = |label: &str, points| Series { label: label.into(), points };
        Figure {
            name: "read_latency",
            title: "Latency of reads",
            about: "one thread".into(),
            x: Quantity::GRANULARITY,
            y: Quantity::LATENCY_NS,
            series: vec![
                series("random", vec![point(64.0, 100.0, 110.0), point(4096.0, 500.0, 500.0)]),
                series("sequential", vec![point(4096.0, 400.0, 400.0)]),
            ],
        }
    }

    #[test]
    fn a_table_has_a_row_for_each_place_and_leaves_gaps() {
        assert_eq!(
            figure().table().to_string(),
            "Latency of reads (latency, ns)\n  \
             bytes of one access   random  sequential\n  \
             64                   100 ±5%\n  \
             4K                       500         400\n"
        );
    }

    #[test]
    fn points_bear_their_units_in_json() {
        let json = serde_json::to_value(figure()).unwrap();
        let point = &json["series"][0]["points"][0];
        assert_eq!(point["granularity_bytes"], 64.0);
        assert_eq!(point["latency_ns"], 100.0);
        assert_eq!(point["latency_ns_max"], 110.0);
        assert_eq!(json["name"], "read_latency");
    }

    #[test]
    fn a_drawing_has_every_series() {
        let svg = figure().drawing();
        assert!(svg.contains("random") && svg.contains("sequential") && !svg.contains("NaN"));
    }
}
