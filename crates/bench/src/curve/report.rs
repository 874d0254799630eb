//! Results of a run as tables and as a page.

use entresol_base::ByteSize;
use entresol_measure::report::curves::{Curve, CurvePoint, curves};
use entresol_measure::report::svg::{Axis, Scale};
use entresol_measure::report::table::{grouped, number};
use entresol_measure::report::{Page, Table};

use super::result::{CurveResult, Point, SystemResult};

/// Percentiles that are drawn.
type Of = fn(&Point) -> Option<f64>;
const DRAWN: [(&str, Of); 5] = [
    ("mean", |point| Some(point.mean_us)),
    ("99%", |point| Some(point.p99_us)),
    ("99.9%", |point| point.p99_9_us),
    ("99.99%", |point| point.p99_99_us),
    ("99.999%", |point| point.p99_999_us),
];

impl SystemResult {
    fn table(&self) -> Table {
        let saturation = &self.saturation_ops_s;
        let title = format!(
            "{}: {} requests/s saturate it ({} to {}); times from when a request was due, us",
            self.subject,
            grouped(saturation.median),
            grouped(saturation.min),
            grouped(saturation.max),
        );
        let columns = [
            "load",
            "offered/s",
            "achieved/s",
            "mean",
            "p50",
            "p99",
            "p99.9",
            "p99.99",
            "p99.999",
            "max",
            "",
        ];
        let mut table = Table::new(&title, &columns);
        for (at, point) in self.points.iter().enumerate() {
            let rare = |us: Option<f64>| us.map_or("-".to_owned(), number);
            table.row(vec![
                format!("{}%", point.percent),
                grouped(point.offered_ops_s),
                grouped(point.achieved_ops_s),
                number(point.mean_us),
                number(point.p50_us),
                number(point.p99_us),
                rare(point.p99_9_us),
                rare(point.p99_99_us),
                rare(point.p99_999_us),
                number(point.max_us),
                self.remark(at, point),
            ]);
        }
        table
    }

    fn remark(&self, at: usize, point: &Point) -> String {
        let late =
            || format!("VOID: generator {} us late, p99", number(point.generator_late_p99_us));
        let is_last = !self.points.iter().skip(at + 1).any(Point::is_valid);
        let knee = if is_last { "knee, here or beyond" } else { "knee" };
        let remarks = [
            (self.knee == Some(at)).then(|| knee.to_owned()),
            (!point.kept_up).then(|| "does not keep up".to_owned()),
            point.is_void.then(late),
        ];
        remarks.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Returns the lines of the drawing: each percentile over the load, and a stroke at the knee.
    fn curves(&self, is_alone: bool) -> Vec<Curve> {
        let label = |what: &str| match is_alone {
            true => what.to_owned(),
            false => format!("{}, {what}", self.subject),
        };
        let valid = || self.points.iter().filter(|point| point.is_valid());
        let line = |(what, of): &(&str, Of)| {
            let points = valid().filter_map(|point| {
                let (x, y) = (point.achieved_ops_s, of(point)?);
                let rounds = point.p99_us_rounds;
                let (low, high) = if *what == "99%" { (rounds.min, rounds.max) } else { (y, y) };
                Some(CurvePoint { x, y, low, high })
            });
            Curve { label: label(what), points: points.collect() }
        };
        let mut all: Vec<Curve> = DRAWN.iter().map(line).collect();
        all.retain(|curve| !curve.points.is_empty());
        // Two systems share the colours: each has its mean, 99%, rarest percentile and knee.
        while !is_alone && all.len() > 3 {
            all.remove(2);
        }
        if let Some(point) = self.knee.and_then(|at| self.points.get(at)) {
            let x = point.achieved_ops_s;
            let at = |y| CurvePoint { x, y, low: y, high: y };
            let what = format!("knee at {}/s", grouped(x));
            let points = vec![at(point.p50_us), at(point.p99_us)];
            all.push(Curve { label: label(&what), points });
        }
        all
    }
}

impl CurveResult {
    fn title(&self) -> String {
        let reads = self.read_share * 100.0;
        format!("Response time at load, {}, {reads}% reads", ByteSize(self.size_bytes))
    }

    /// Returns the tables for a terminal.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let mut facts = Table::new(&self.title(), &[""]);
        for system in &self.systems {
            facts.row(vec![format!("{}: {}", system.subject, system.description)]);
        }
        self.systems.iter().map(SystemResult::table).chain([facts]).collect()
    }

    /// Draws the curves.
    #[must_use]
    pub fn drawing(&self) -> String {
        let axis = |label: &str, scale| Axis { label: label.to_owned(), scale, ticks: Vec::new() };
        let is_alone = self.systems.len() == 1;
        let all: Vec<Curve> = self.systems.iter().flat_map(|it| it.curves(is_alone)).collect();
        curves(
            &self.title(),
            &axis("requests/s", Scale::Linear),
            &axis("response time, us", Scale::Logarithmic),
            &all,
        )
    }

    /// Renders the results as a page with drawings.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new(&self.title());
        page.drawing(&self.drawing());
        page.note(
            "Times count from when a request was due. Loads at which the system does not keep up, \
             or the generator itself was late, are left out. Whiskers are the range of the rounds. \
             At the knee the ratio of rate and mean response time is greatest.",
        );
        for system in &self.systems {
            page.section(&system.subject);
            page.note(&system.description);
            page.table(&system.table());
        }
        page
    }
}
